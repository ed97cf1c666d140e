"""What an emulated Enterprise SONiC switch shows.

The running configuration has the order and the form of sonic-mgmt-framework's renderer (show_config_data.py,
show_config_qos.py, show_config_qos_map.py, show_config_static_routes.py, show_config_fbs.py) and of the one
that AMD's "GPU cluster networking" prints of a Z9664F; the other shows follow the templates show_wred.j2,
show_qos_scheduler_policies.j2, show_qos_map_dscp.j2 and show_qos_interface_config.j2.
"""

from collections.abc import Iterable, Iterator

from mltswitch.lab.emulators.dell_sonic_state import (
    MAP_KINDS,
    PORT_SECTION,
    DellSonicConfiguration,
    Port,
    Scheduler,
)


def running_configuration(configuration: DellSonicConfiguration) -> str:
    """`show running-configuration`."""
    lines = ["!", "interface-naming standard"]
    for name, policy in configuration.wred.items():
        lines += ["!", f"qos wred-policy {name}"]
        if policy.green is not None:
            green = policy.green
            lines.append(
                f" green minimum-threshold {green.minimum} maximum-threshold {green.maximum} "
                f"drop-probability {green.probability}"
            )
        lines += [f" ecn {policy.ecn}"] if policy.ecn else []
    for name, queues in configuration.schedulers.items():
        lines += ["!", f"qos scheduler-policy {name}"]
        for number, scheduler in sorted(queues.items()):
            lines += [" !", " port" if number == PORT_SECTION else f" queue {number}"]
            lines += (f"  {line}" for line in _scheduler(scheduler))
    for kind, maps in configuration.maps.items():
        word, target, _ = MAP_KINDS[kind]
        for name, entries in maps.items():
            lines += ["!", f"qos map {kind} {name}"]
            for value in sorted(set(entries.values())):
                numbers = _ranges(number for number in sorted(entries) if entries[number] == value)
                lines.append(f" {word} {numbers} {target} {value}")
    lines += ["!", "line vty", " service-policy type qos in oob-qos-policy"]
    for name, port in configuration.ports.items():
        lines += ["!", f"interface {name}", *(f" {line}" for line in port_lines(port))]
    lines += ["!"] if configuration.routes else []
    lines += map(str, configuration.routes)
    for (kind, name, *inner), flow in sorted(configuration.flows.items()):
        said = [f"{word} {value}" for word, value in flow.items() if word != "priority"]
        if inner:
            lines += [f" class {inner[0]} priority {flow['priority']}", *(f"  {line}" for line in said), " !"]
        else:
            type_of = "match-type fields match-all" if kind == "class-map" else "type qos"
            lines += ["!", f"{kind} {name} {type_of}", *(f" {line}" for line in said)]
    return "\n".join((*lines, "!")) + "\n"


def interface(name: str, port: Port) -> str:
    """`show running-configuration interface`."""
    return "\n".join(("!", f"interface {name}", *(f" {line}" for line in port_lines(port)))) + "\n"


def port_lines(port: Port) -> Iterator[str]:
    """Lines of one port."""
    if port.description:
        yield f"description {port.description}"
    yield "mtu 9100"
    yield f"speed {port.speed_mbps}"
    yield "fec none"
    yield "unreliable-los auto"
    yield "shutdown" if port.shutdown else "no shutdown"
    if port.address is not None:
        yield f"ip address {port.address}"
    if port.service_policy:
        yield f"service-policy type qos in {port.service_policy}"
    for queue, name in sorted(port.wred.items()):
        yield f"queue {queue} wred-policy {name}"
    if port.scheduler:
        yield f"scheduler-policy {port.scheduler}"
    for kind in MAP_KINDS:
        if kind in port.maps:
            yield f"qos-map {kind} {port.maps[kind]}"
    for priority in sorted(port.lossless):
        yield f"priority-flow-control priority {priority}"
    if port.asymmetric:
        yield "priority-flow-control asymmetric"
    yield from (f"flowcontrol {way} on" for way in port.flow_control)
    if port.lossless:
        yield "priority-flow-control watchdog action drop"


def _scheduler(scheduler: Scheduler) -> Iterator[str]:
    if scheduler.type:
        yield f"type {scheduler.type}"
    if scheduler.weight is not None:
        yield f"weight {scheduler.weight}"
    if scheduler.meter_type:
        yield f"meter-type {scheduler.meter_type}"
    for word, value in scheduler.rates.items():
        yield f"{word} {value}"


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
    for name, policy in configuration.wred.items():
        lines += [rule, f"Policy                 : {name}", rule]
        lines += [f"ecn                    : ecn_{policy.ecn}"] if policy.ecn else []
        if policy.green is not None:
            lines += [
                f"green-min-threshold    : {policy.green.minimum:<12}KBytes",
                f"green-max-threshold    : {policy.green.maximum:<12}KBytes",
                f"green-drop-probability : {policy.green.probability:<12}",
            ]
    return "".join(f"{line}\n" for line in lines)


def scheduler_policies(configuration: DellSonicConfiguration) -> str:
    """`show qos scheduler-policy`."""
    lines: list[str] = []
    for name, queues in configuration.schedulers.items():
        lines.append(f" Scheduler Policy: {name}")
        for number, scheduler in sorted(queues.items()):
            lines.append("   Port: port" if number == PORT_SECTION else f"   Queue: {number}")
            for line in _scheduler(scheduler):
                word, _, value = line.partition(" ")
                unit = {"cir": "Kbps", "pir": "Kbps", "cbs": "Bytes", "pbs": "Bytes"}.get(word)
                lines.append(f"              {word}: " + (f"{value:<12}{unit}" if unit else value))
    return "".join(f"{line}\n" for line in lines)


def qos_map(configuration: DellSonicConfiguration, kind: str) -> str:
    """`show qos map dscp-tc` or `tc-queue`."""
    heading = {"dscp-tc": ("DSCP-TC-MAP", "DSCP", "TC"), "tc-queue": ("TC-Q-MAP", "TC", "Q")}[kind]
    rule = "-" * 28
    lines: list[str] = []
    for name, entries in configuration.maps.get(kind, {}).items():
        lines += [f"{heading[0]}: {name}", rule, f"    {heading[1]:<5}{heading[2]:<5}", rule]
        lines += [f"    {number:<5}{target:<5}" for number, target in sorted(entries.items())]
        lines.append(rule)
    return "".join(f"{line}\n" for line in lines)


def qos_interface(port: Port) -> str:
    """`show qos interface`."""
    lines = [f"    scheduler policy: {port.scheduler}"] if port.scheduler else []
    names = {"pfc-priority-queue": "pfc-priority-queue-map"}
    lines += [
        f"    {names.get(kind, f'{kind}-map')}: {port.maps[kind]}" for kind in MAP_KINDS if kind in port.maps
    ]
    if port.lossless:
        lines.append(f"    pfc-priority  : {','.join(map(str, sorted(port.lossless)))}")
    return "".join(f"{line}\n" for line in lines)
