"""What an emulated FASTPATH switch shows.

`show interfaces random-detect` has the columns of Dell's printed example, `show version` the fields that
public captures of N-series switches have; the other shows have the fields
that manuals of NETGEAR and Extreme list, in a layout of ours. The header of the running configuration is
the one that many public configurations have.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchsim.device import Neighbours, column_table, mac_address, serial_number
from switchsim.icos_state import (
    DEFAULT_DSCP_TO_QUEUE,
    Curve,
    IcosConfiguration,
    Port,
    Queue,
    Trust,
)

RELEASE: Final = "6.6.3.10"
_LABEL_WIDTH: Final = 47
_TRUST_WORDS: Final = {Trust.DOT1P: "Dot1P", Trust.IP_DSCP: "IP DSCP", Trust.UNTRUSTED: "Untrusted"}
_NAMED: Final[Mapping[int, str]] = {
    **{8 * n: f"cs{n}" for n in range(1, 8)},
    **{8 * n + 2 * m: f"af{n}{m}" for n in range(1, 5) for m in range(1, 4)},
    0: "be/cs0",
    46: "ef",
}


def _field(label: str, value: object) -> str:
    return f"{label.ljust(_LABEL_WIDTH, '.')} {value}\n"


def hosts(name: str) -> str:
    """`show hosts` without any host that it knows."""
    return "\n" + _field("Host name", name)


def version(model: str, release: str, name: str) -> str:
    """`show version`."""
    return (
        "\n"
        + _field("Machine Description", "Dell Networking Switch")
        + _field("System Model ID", model)
        + _field("Machine Type", f"Dell Networking {model}")
        + _field("Serial Number", serial_number(name))
        + _field("Burned In MAC Address", mac_address(name))
        + _field("Software Version", release)
    )


def neighbours(found: Neighbours) -> str:
    """`show lldp remote-device all`."""
    titles = ("Interface", "RemID", "Chassis ID", "Port ID", "System Name")
    rows = [
        (port, str(number), mac_address(system), name, system)
        for number, (port, (system, name)) in enumerate(found.items(), start=1)
    ]
    return f"\nLLDP Remote Device Summary\n\nLocal\n{column_table(titles, rows)}"


def trust(port: Port) -> str:
    """`show classofservice trust`."""
    text = f"\nClass of Service Trust Mode: {_TRUST_WORDS[port.trust]}\n"
    queue = port.priority_to_queue[port.default_priority]
    if port.trust is Trust.IP_DSCP:
        text += f"\nNon-IP Traffic Class: {queue}\n"
    if port.trust is Trust.UNTRUSTED:
        text += f"\nUntrusted Traffic Class: {queue}\n"
    return text


def priority_map(port: Port) -> str:
    """`show classofservice dot1p-mapping`."""
    rows = "".join(f"      {n}               {queue}\n" for n, queue in enumerate(port.priority_to_queue))
    return f"\nUser Priority   Traffic Class\n-------------   -------------\n{rows}"


def dscp_map(configuration: IcosConfiguration) -> str:
    """`show classofservice ip-dscp-mapping`."""
    rows = "".join(f"{_dscp(n):>15}    {queue:>9}\n" for n, queue in enumerate(configuration.dscp_to_queue))
    return f"\n   IP DSCP         Traffic Class\n-------------      -------------\n{rows}"


def _dscp(number: int) -> str:
    return f"{number}({_NAMED[number]})" if number in _NAMED else str(number)


def queues(name: str, port: Port) -> str:
    """`show interfaces cos-queue`."""
    rows = "".join(
        f"{n:<10} {queue.minimum_bandwidth:<16} {'Strict' if queue.strict else 'Weighted':<16} "
        f"{'WRED' if queue.random_detect else 'Tail Drop'}\n"
        for n, queue in enumerate(port.queues)
    )
    return (
        "\n"
        + _field("Interface", name)
        + _field("Interface Shaping Rate", port.shaping_percent)
        + _field("WRED Decay Exponent", port.weighting_exponent)
        + "\nQueue Id   Min. Bandwidth   Scheduler Type   Queue Management Type\n"
        + "--------   --------------   --------------   ---------------------\n"
        + rows
    )


def curves(name: str, port: Port) -> str:
    """`show interfaces random-detect`."""
    rows = "".join(
        f"{n:<9} {_row(queue.curve.minimum):<17} {_row(queue.curve.maximum):<17} "
        f"{_row(queue.curve.probability):<23} {'Yes' if queue.curve.ecn else 'No'}\n"
        for n, queue in enumerate(port.queues)
    )
    return (
        f"\n{_field('Interface', name)}\n"
        "Queue ID  WRED Minimum      WRED Maximum      WRED Drop               ECN Enabled\n"
        "          Threshold         Threshold         Probability Scale\n"
        "--------  ----------------  ----------------  ----------------------  -----------\n"
        f"{rows}"
    )


def _row(values: Sequence[int]) -> str:
    return "/".join(f"{value:>3}" if value < 100 else str(value) for value in values).strip()


def running_config(name: str, configuration: IcosConfiguration) -> str:
    """`show running-config`: what differs from the switch as delivered."""
    lines = [
        "!Current Configuration:",
        "!",
        f'!System Description "{name}, emulator, Linux"',
        f'!System Software Version "{RELEASE}"',
        "!",
        "configure",
        *(["ip routing"] if configuration.ip_routing else []),
        *map(str, configuration.routes),
        *(["flowcontrol"] if configuration.flow_control else []),
    ]
    for dscp, queue in enumerate(configuration.dscp_to_queue):
        if queue != DEFAULT_DSCP_TO_QUEUE[dscp]:
            lines.append(f"classofservice ip-dscp-mapping {dscp} {queue}")
    lines += configuration.diffserv.lines()
    for port_name, port in configuration.ports.items():
        if settings := list(_port_lines(port)):
            lines += [f"interface {port_name}", *settings, "exit", "!"]
    return "\n".join([*lines, "exit", ""])


def _port_lines(port: Port) -> Iterator[str]:
    fresh = Port()
    if port.shutdown:
        yield "shutdown"
    if port.flow_control:
        yield "storm-control flowcontrol"
    if port.default_priority:
        yield f"vlan priority {port.default_priority}"
    if port.policy:
        yield f"service-policy in {port.policy}"
    if port.trust is not fresh.trust:
        yield f"classofservice trust {port.trust}"
    for priority, queue in enumerate(port.priority_to_queue):
        if queue != fresh.priority_to_queue[priority]:
            yield f"classofservice dot1p-mapping {priority} {queue}"
    yield from _queue_lines(port.queues)
    if port.weighting_exponent != fresh.weighting_exponent:
        yield f"random-detect exponential-weighting-constant {port.weighting_exponent}"
    if port.shaping_percent:
        yield f"traffic-shape {port.shaping_percent}"
    yield from _bridging_lines(port)
    if port.routing:
        yield "routing"
    if port.address is not None:
        yield f"ip address {port.address.ip} {port.address.netmask}"


def _bridging_lines(port: Port) -> Iterator[str]:
    if port.pfc or port.lossless:
        yield "datacenter-bridging"
        if port.pfc:
            yield "priority-flow-control mode on"
        yield from (f"priority-flow-control priority {n} no-drop" for n in sorted(port.lossless))
        yield "exit"


def _queue_lines(settings: Sequence[Queue]) -> Iterator[str]:
    for words, chosen in (
        ("strict", [n for n, queue in enumerate(settings) if queue.strict]),
        ("random-detect", [n for n, queue in enumerate(settings) if queue.random_detect]),
    ):
        if chosen:
            yield f"cos-queue {words} {' '.join(map(str, chosen))}"
    if any(queue.minimum_bandwidth for queue in settings):
        yield f"cos-queue min-bandwidth {' '.join(str(queue.minimum_bandwidth) for queue in settings)}"
    for number, queue in enumerate(settings):
        if queue.curve != Curve():
            rows = (queue.curve.minimum, queue.curve.maximum, queue.curve.probability)
            low, high, scale = (" ".join(map(str, row)) for row in rows)
            ecn = " ecn" if queue.curve.ecn else ""
            yield (
                f"random-detect queue-parms {number} min-thresh {low} max-thresh {high} "
                f"drop-prob-scale {scale}{ecn}"
            )
