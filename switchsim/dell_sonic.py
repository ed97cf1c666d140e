"""An emulated Enterprise SONiC switch: a Linux shell, `sonic-cli` in it, and what its command line shows.

Stateful and strict: a line that the command tree lacks, or whose values are out of range, changes nothing
and is answered with klish's own `% Error: ...`, or the `%Error: ...` of the checks behind it, or with a text
that ends in `[emulator]`. Each line takes effect at once; in each configuration mode the commands of the
global one and of the EXEC mode are known, too, as klish has it. There is no paging, and no remote command
(`ssh host command`).

The running configuration has the order and the form of sonic-mgmt-framework's renderer (show_config_data.py,
show_config_qos.py, show_config_qos_map.py, show_config_static_routes.py, show_config_fbs.py) and of the one
that AMD's "GPU cluster networking" prints of a Z9664F; the other shows follow the templates show_wred.j2,
show_qos_scheduler_policies.j2, show_qos_map_dscp.j2 and show_qos_interface_config.j2.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from switchsim.dell_sonic_sheet import (
    ARGUMENTS,
    AS_DELIVERED,
    MAP_KINDS,
    MODES,
    RESOURCE,
    ROUTES,
    SCHEDULER,
    WRED,
    check_colour,
    check_queue,
    check_speed,
    users,
)
from switchsim.device import Answer
from switchsim.grammar import Values
from switchsim.modes import (
    Action,
    Mode,
    Modes,
    Session,
    SheetDevice,
    goes_to,
    leaves,
    saves,
    shows,
    shows_port,
)
from switchsim.settings import Facts

MAX_PORTS: Final = 256
BOX: Final = "s5232f"
INVALID: Final = '% Error: Invalid input detected at "^" marker.'
INCOMPLETE: Final = "% Error: The command is not completed."
AMBIGUOUS: Final = "% Error: Ambiguous command."


class DellSonicSession(Session):
    """One command line, which begins in the Linux shell."""

    tries_around = "refused"
    refusals: ClassVar[Mapping[str, str]] = {
        "% Unrecognized": INVALID,
        "% Incomplete": INCOMPLETE,
        "% Ambiguous": AMBIGUOUS,
    }
    gone = f"{RESOURCE} [emulator]"

    def enter(self, line: str) -> Answer:
        """Execute one line, in the Linux shell or, after `sonic-cli`, in the switch's own command line."""
        words = line.split()
        if self.mode != "shell" or not words:
            return super().enter(line)
        if words == ["sonic-cli"]:
            self.go("exec")
            return Answer()
        if words in (["exit"], ["logout"]):
            return Answer(closes=True)
        return Answer(f"-bash: {words[0]}: command not found\n")

    def refused(self, text: str) -> str:
        """A refusal as klish words it (`% Error: ...`); texts of the value checks are left as they are."""
        known = super().refused(text)
        return (
            f"% Error: {known.removeprefix('% Invalid input: ')}" if "% Invalid input: " in known else known
        )

    def check_edit(self, facts: Facts, places: Sequence[str]) -> None:
        """Raise RefusalError where a changed WRED or scheduler policy does not fit the ports that use it."""
        for place in places:
            policy, _, inner = place.partition("\n")
            name = policy.rpartition(" ")[2]
            if policy.startswith(f"{WRED} ") and users(facts, "wred-policy", name):
                check_colour(facts, policy)
            elif policy.startswith(f"{SCHEDULER} ") and inner:
                check_queue(facts, place)
                for port in users(facts, "scheduler-policy", name):
                    check_speed(facts, place, port)


class DellSonicDevice(SheetDevice):
    """One switch whose ports are Eth1/1 to Eth1/`ports`, as `interface-naming standard` names them."""

    session_class = DellSonicSession
    opening: ClassVar[Sequence[str]] = ("sonic-cli", "configure terminal")

    def __init__(self, name: str = "sonic", ports: int = 32) -> None:
        self.box = BOX
        self.modes = TABLE
        super().__init__(name, [f"Eth1/{n}" for n in range(1, ports + 1)], MAX_PORTS, "", "")

    def as_delivered(self) -> Facts:
        """The configuration of a new switch: default port settings, no QoS maps and no policies."""
        heads = (f"interface {port}" for port in self.ports)
        return Facts(
            {(head, what): value for head in heads for what, value in {"": True, **AS_DELIVERED}.items()}
        )


# --- what is shown -----------------------------------------------------------------------------------------


def _version(device: DellSonicDevice) -> str:
    """`show version`, as far as Dell's user guides print it of every release."""
    return (
        "Software Version  : 4.1.0-Enterprise_Premium\n"
        "Product           : Enterprise SONiC Distribution by Dell Technologies\n"
        f"Platform          : x86_64-dellemc_{device.box}_c3538-r0\n"
        f"HwSKU             : DellEMC-{device.box.capitalize()}-C32\n"
        "ASIC              : broadcom\n"
    )


def _running_configuration(device: DellSonicDevice) -> str:
    facts, lines = device.configuration, ["!", "interface-naming standard"]
    for kind in (kind for kind, mode in MODES.items() if mode.around == "config" and "-map" not in kind):
        for number, head in enumerate(facts.heads(f"{kind} ")):
            if kind == "interface" and not number:
                lines += ["!", "line vty", " service-policy type qos in oob-qos-policy"]
            lines += _block(facts, head)
    routes = TABLE.printed(facts, "", ROUTES)
    lines += ["!", *routes] if routes else []
    for head in (*sorted(facts.heads("class-map ")), *sorted(facts.heads("policy-map "))):
        lines += _block(facts, head)
    return "\n".join((*lines, "!")) + "\n"


def _block(facts: Facts, head: str) -> Iterator[str]:
    yield from ("!", head, *(f" {line}" for line in TABLE.printed(facts, head)))
    if any(fact[:2] == (head, "lossless") for fact in facts):
        yield " priority-flow-control watchdog action drop"
    for inner, shown in _inner(facts, head):
        yield from (" !", f" {inner}", *shown) if head.startswith(SCHEDULER) else (f" {inner}", *shown, " !")


def _inner(facts: Facts, head: str) -> Iterator[tuple[str, list[str]]]:
    """Queues in their order, the port behind them; classes by name."""
    order = {
        each: (each == "port", len(each) if "queue" in each else 0, each) for each in facts.heads("", head)
    }
    for each in sorted(order, key=order.__getitem__):
        yield each, [f"  {line}" for line in TABLE.printed(facts, f"{head}\n{each}")]


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _wred_policies(device: DellSonicDevice) -> str:
    rule, facts = "-" * 51, device.configuration
    lines: list[str] = []
    for head in facts.heads(f"{WRED} "):
        lines += [rule, f"Policy                 : {head.rpartition(' ')[2]}", rule]
        if (ecn := facts.get((head, "ecn"))) is not None:
            lines.append(f"ecn                    : ecn_{ecn}")
        if (green := facts.get((head, "green"))) is not None:
            lines += [
                f"green-min-threshold    : {green[0]:<12}KBytes",
                f"green-max-threshold    : {green[1]:<12}KBytes",
                f"green-drop-probability : {green[2]:<12}",
            ]
    return _text(lines)


def _scheduler_policies(device: DellSonicDevice) -> str:
    lines: list[str] = []
    for head in device.configuration.heads(f"{SCHEDULER} "):
        lines.append(f" Scheduler Policy: {head.rpartition(' ')[2]}")
        for inner, shown in _inner(device.configuration, head):
            lines.append("   Port: port" if inner == "port" else f"   Queue: {inner.split(' ')[1]}")
            for word, value in (line.split() for line in shown):
                unit = {"cir": "Kbps", "pir": "Kbps", "cbs": "Bytes", "pbs": "Bytes"}.get(word)
                lines.append(f"              {word}: " + (f"{value:<12}{unit}" if unit else value))
    return _text(lines)


def _qos_map(kind: str, *titles: str) -> Action:
    def show(device: DellSonicDevice) -> str:
        rule, facts = "-" * 28, device.configuration
        lines: list[str] = []
        for head in facts.heads(f"qos map {kind} "):
            lines += [f"{titles[0]}: {head.rpartition(' ')[2]}", rule]
            lines += [f"    {titles[1]:<5}{titles[2]:<5}", rule]
            entries = sorted(
                (fact[2], target) for fact, target in facts.items() if fact[:2] == (head, "entry")
            )
            lines += [f"    {number:<5}{target:<5}" for number, target in entries]
            lines.append(rule)
        return _text(lines)

    return shows(show)


def _interface(device: DellSonicDevice, port: str) -> str:
    return _text([*_block(device.configuration, f"interface {port}")])


def _qos_interface(device: DellSonicDevice, name: str) -> str:
    facts, port = device.configuration, f"interface {name}"
    scheduler = facts.get((port, "scheduler-policy"))
    lines = [f"    scheduler policy: {scheduler}"] if scheduler else []
    maps = {kind: facts.get((port, kind)) for kind in MAP_KINDS}
    lines += [f"    {kind}-map: {name}" for kind, name in maps.items() if name]
    if lossless := sorted(fact[2] for fact in facts if fact[:2] == (port, "lossless")):
        lines.append(f"    pfc-priority  : {','.join(map(str, lossless))}")
    return _text(lines)


def _open_interface(session: DellSonicSession, values: Values) -> None:
    session.open("interface", f"interface {values.one('interface', str)}", values)


def _with_ports_in_two_words(lines: Mapping[str, Action]) -> Mapping[str, Action]:
    """A port is `Eth1/1` in one word or in two."""
    return {**lines, **{text.replace("{interface}", "{eth} {number}"): each for text, each in lines.items()}}


_EXEC: Final[Mapping[str, Action]] = {
    "exit": leaves,
    "configure terminal": goes_to("config"),
    "terminal length {length}": lambda _, __: None,
    "write memory": saves(""),
    "show version": shows(_version),
    "show running-configuration": shows(_running_configuration),
    "show running-configuration interface {interface}": shows_port(_interface),
    "show qos wred-policy": shows(_wred_policies),
    "show qos scheduler-policy": shows(_scheduler_policies),
    "show qos map dscp-tc": _qos_map("dscp-tc", "DSCP-TC-MAP", "DSCP", "TC"),
    "show qos map tc-queue": _qos_map("tc-queue", "TC-Q-MAP", "TC", "Q"),
    "show qos interface {interface}": shows_port(_qos_interface),
}
_CONFIG: Final[Mapping[str, Action]] = {"end": goes_to("exec"), "interface {eth} {number}": _open_interface}
TABLE: Final = Modes(
    {
        "shell": Mode("{user}@{device}:~$ "),
        "exec": Mode("{device}# ", _with_ports_in_two_words(_EXEC), "shell"),
        "config": Mode("{device}(config)# ", _CONFIG, "exec", rows=ROUTES),
        **MODES,
    },
    ARGUMENTS,
)
