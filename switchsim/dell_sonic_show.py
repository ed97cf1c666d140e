"""What an emulated Enterprise SONiC switch shows.

The running configuration has the order and the form of sonic-mgmt-framework's renderer (show_config_data.py,
show_config_qos.py, show_config_qos_map.py, show_config_static_routes.py, show_config_fbs.py) and of the one
that AMD's "GPU cluster networking" prints of a Z9664F; the other shows follow the templates show_wred.j2,
show_qos_scheduler_policies.j2, show_qos_map_dscp.j2 and show_qos_interface_config.j2.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from switchsim.dell_sonic_modes import MAP_KINDS, MODES, SCHEDULER, kind_of, name_in, printed
from switchsim.dell_sonic_settings import DellSonicConfiguration
from switchsim.settings import Block

BOX: Final = "s5232f"


def version(box: str) -> str:
    """`show version`, as far as Dell's user guides print it of every release."""
    return (
        "Software Version  : 4.1.0-Enterprise_Premium\n"
        "Product           : Enterprise SONiC Distribution by Dell Technologies\n"
        f"Platform          : x86_64-dellemc_{box}_c3538-r0\n"
        f"HwSKU             : DellEMC-{box.capitalize()}-C32\n"
        "ASIC              : broadcom\n"
    )


def running_configuration(configuration: DellSonicConfiguration) -> str:
    """`show running-configuration`."""
    lines = ["!", "interface-naming standard"]
    for kind in MODES:
        for head in configuration.heads(kind) if kind not in {"class-map", "policy-map"} else ():
            if head == next(iter(configuration.heads("interface")), ""):
                lines += ["!", "line vty", " service-policy type qos in oob-qos-policy"]
            lines += _block(head, configuration.blocks[head])
    lines += ["!"] if configuration.routes else []
    lines += map(str, configuration.routes)
    for head in (*sorted(configuration.heads("class-map")), *sorted(configuration.heads("policy-map"))):
        lines += _block(head, configuration.blocks[head])
    return "\n".join((*lines, "!")) + "\n"


def interface(configuration: DellSonicConfiguration, head: str) -> str:
    """`show running-configuration interface`."""
    return "\n".join(_block(head, configuration.blocks[head])) + "\n"


def _block(head: str, block: Block) -> Iterator[str]:
    kind, lines = kind_of(head), printed(head, block.facts)
    yield from ("!", head)
    if kind.startswith("qos map "):
        word, target, _ = MAP_KINDS[kind.split(" ")[2]]
        for value in sorted(set(block.facts.values())):
            numbers = _ranges(fact[2] for fact in sorted(block.facts) if block.facts[fact] == value)
            yield f" {word} {numbers} {target} {value}"
        return
    yield from (f" {line}" for line in lines)
    if any(line.startswith("priority-flow-control priority ") for line in lines):
        yield " priority-flow-control watchdog action drop"
    for inner, shown in _inner(head, block):
        yield from (" !", f" {inner}", *shown) if kind == SCHEDULER else (f" {inner}", *shown, " !")


def _inner(head: str, block: Block) -> list[tuple[str, list[str]]]:
    """Queues in their order, the port behind them; classes by name."""
    heads = sorted(block.inner, key=lambda each: (each == "port", len(each) if "queue" in each else 0, each))
    return [(each, [f"  {line}" for line in printed(head, block.inner[each], each)]) for each in heads]


def _ranges(numbers: Iterable[int]) -> str:
    parts: list[tuple[int, int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def wred_policies(configuration: DellSonicConfiguration) -> str:
    """`show qos wred-policy`."""
    rule = "-" * 51
    lines: list[str] = []
    for head in configuration.heads("qos wred-policy"):
        lines += [rule, f"Policy                 : {name_in(head)}", rule]
        of_green: list[str] = []
        for word, *values in (line.split(" ") for line in configuration.lines(head)):
            if word == "ecn":
                lines.append(f"ecn                    : ecn_{values[0]}")
            else:
                of_green = [
                    f"green-min-threshold    : {values[1]:<12}KBytes",
                    f"green-max-threshold    : {values[3]:<12}KBytes",
                    f"green-drop-probability : {values[5]:<12}",
                ]
        lines += of_green
    return "".join(f"{line}\n" for line in lines)


def scheduler_policies(configuration: DellSonicConfiguration) -> str:
    """`show qos scheduler-policy`."""
    lines: list[str] = []
    for head in configuration.heads(SCHEDULER):
        lines.append(f" Scheduler Policy: {name_in(head)}")
        for inner, shown in _inner(head, configuration.blocks[head]):
            lines.append("   Port: port" if inner == "port" else f"   Queue: {inner.split(' ')[1]}")
            for line in shown:
                word, _, value = line.strip().partition(" ")
                unit = {"cir": "Kbps", "pir": "Kbps", "cbs": "Bytes", "pbs": "Bytes"}.get(word)
                lines.append(f"              {word}: " + (f"{value:<12}{unit}" if unit else value))
    return "".join(f"{line}\n" for line in lines)


def qos_map(configuration: DellSonicConfiguration, kind: str) -> str:
    """`show qos map dscp-tc` or `tc-queue`."""
    heading = {"dscp-tc": ("DSCP-TC-MAP", "DSCP", "TC"), "tc-queue": ("TC-Q-MAP", "TC", "Q")}[kind]
    rule = "-" * 28
    lines: list[str] = []
    for head in configuration.heads(f"qos map {kind}"):
        lines += [f"{heading[0]}: {name_in(head)}", rule, f"    {heading[1]:<5}{heading[2]:<5}", rule]
        entries = configuration.blocks[head].facts
        lines += [f"    {number:<5}{entries[_, what, number]:<5}" for _, what, number in sorted(entries)]
        lines.append(rule)
    return "".join(f"{line}\n" for line in lines)


def qos_interface(configuration: DellSonicConfiguration, head: str) -> str:
    """`show qos interface`."""
    words = [line.split(" ") for line in configuration.lines(head)]
    lines = [f"    scheduler policy: {each[1]}" for each in words if each[0] == "scheduler-policy"]
    names = {"pfc-priority-queue": "pfc-priority-queue-map"}
    lines += [
        f"    {names.get(each[1], f'{each[1]}-map')}: {each[2]}" for each in words if each[0] == "qos-map"
    ]
    if lossless := [each[2] for each in words if each[:2] == ["priority-flow-control", "priority"]]:
        lines.append(f"    pfc-priority  : {','.join(lossless)}")
    return "".join(f"{line}\n" for line in lines)
