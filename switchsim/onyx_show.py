"""What an emulated Onyx switch prints about itself.

The JSON shapes of `show interfaces ethernet N congestion-control`, `show dcb ets interface ethernet N`,
`show qos interface ethernet N` and `show version` are those of the Ansible collection mellanox.onyx (its
unit-test fixtures, release 3.6), that of `show dcb priority-flow-control` is a public poller's record of a
switch. Ours: the "Mode" string BOTH, which no source shows, the line of a port's shaper in the running
configuration, the figure of a bandwidth in `show dcb ets`, and the text of `show ip route`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv4Address
from itertools import groupby
from typing import Final

from switchsim.device import Neighbours, mac_address, serial_number
from switchsim.onyx_state import (
    DEFAULT_MTU_BYTES,
    DEFAULT_WEIGHTS,
    TRAFFIC_CLASSES,
    OnyxConfiguration,
    Port,
    ThresholdMode,
    TrafficClass,
    Trust,
)

RELEASE: Final = "3.9.2110"

JsonValue = str | list["JsonValue"] | dict[str, "JsonValue"]

_UNITS: Final = {ThresholdMode.ABSOLUTE: " KB", ThresholdMode.RELATIVE: "%"}
_RULE: Final = "-" * 94
_NO_GATEWAY: Final = str(IPv4Address(0))


def version(release: str) -> dict[str, JsonValue]:
    """`show version`."""
    return {
        "Product name": "Onyx",
        "Product release": release,
        "Build ID": "#1-emulator",
        "Target arch": "x86_64",
        "Target hw": "x86_64",
        "Version summary": f"X86_64 {release} emulator x86_64",
        "Product model": "x86onie",
    }


def inventory(model: str, name: str) -> str:
    """`show inventory`: the row of the box."""
    row = "{:16} {:20} {}\n"
    return (
        f"{_RULE}\n"
        + row.format("Module", "Part Number", "Serial Number")
        + f"{_RULE}\n"
        + row.format("CHASSIS", model, serial_number(name))
    )


def neighbours(found: Neighbours) -> list[JsonValue]:
    """`show lldp interfaces ethernet remote`, as HPE's CANU records it."""
    if not found:
        return [{"Lines": ["", "No lldp remote information.", ""]}]
    return [
        {
            f"Eth{port}": [
                {
                    "port id subtype": "Interface Name (5)",
                    "Remote chassis id": mac_address(system),
                    "Remote port-id": name,
                    "Remote port description": "Not Advertised",
                    "Remote system name": system,
                }
            ]
        }
        for port, (system, name) in found.items()
    ]


def congestion_control(name: str, port: Port) -> list[JsonValue]:
    """`show interfaces ethernet N congestion-control`: traffic class n stands at index n + 1."""
    shown: list[JsonValue] = [{"Interface ethernet": name, "ECN marked packets": "0"}]
    for index, traffic_class in enumerate(port.traffic_classes):
        wanted = traffic_class.congestion_control
        header: dict[str, JsonValue] = {"header": f"TC-{index}", "Mode": "none"}
        if wanted is not None:
            unit = _UNITS[wanted.threshold_mode]
            header |= {
                "Mode": wanted.control.upper(),
                "Threshold mode": wanted.threshold_mode,
                "Minimum threshold": f"{wanted.minimum}{unit}",
                "Maximum threshold": f"{wanted.maximum}{unit}",
                "RED dropped packets": "0",
            }
        shown.append(header)
    return shown


def ets(name: str, port: Port) -> list[JsonValue]:
    """`show dcb ets interface ethernet N`."""
    weights = [0 if entry.strict else entry.weight for entry in port.traffic_classes]
    per_class: dict[str, JsonValue] = {
        str(index): [
            {
                "S.Mode": "Strict" if entry.strict else "WRR",
                "W": str(weights[index]),
                "W(%)": str(percent),
                "BW Gr.(Mbps)": str(entry.guaranteed_mbps),
                "BW Sh.(Mbps)": _rate(entry.shaper_mbps),
            }
        ]
        for index, (entry, percent) in enumerate(
            zip(port.traffic_classes, _percentages(weights), strict=True)
        )
    }
    general: JsonValue = {
        "Multicast unaware mapping": "disabled",
        "Interface Bandwidth Shape [Mbps]": _rate(port.shaper_mbps),
    }
    flags: JsonValue = {
        "Flags": [
            {
                "S.Mode": "Scheduling Mode [Strict/WRR]",
                "Bw.Sh": "Bandwidth Shaper",
                "D": "-",
                "W": "Weight",
                "Bw.Gr": "Bandwidth Guaranteed",
            }
        ]
    }
    return [{f"Eth{name}": [general, flags, {"ETS per TC": [per_class]}]}]


def _rate(mbps: int | None) -> str:
    return "N/A" if mbps is None else str(mbps)


def _percentages(weights: Sequence[int]) -> list[int]:
    """Shares that add up to 100: what rounding down leaves goes to the first weighted classes, one each."""
    total = sum(weights)
    shares = [weight * 100 // total if total else 0 for weight in weights]
    left = 100 - sum(shares) if total else 0
    for index in [index for index, weight in enumerate(weights) if weight][:left]:
        shares[index] += 1
    return shares


def qos(name: str, port: Port) -> list[JsonValue]:
    """`show qos interface ethernet N`."""
    general: JsonValue = {
        "Trust mode": port.trust,
        "Default switch-priority": str(port.default_switch_priority),
        "Default PCP": "0",
        "Default DEI": "0",
        "PCP,DEI rewrite": "enabled" if port.rewrite_pcp else "disabled",
        "IP PCP;DEI rewrite": "enable",
        "DSCP rewrite": "enabled" if port.rewrite_dscp else "disabled",
    }
    mapping: dict[str, JsonValue] = {}
    rewrite: dict[str, JsonValue] = {}
    for priority in range(TRAFFIC_CLASSES):
        code_points = _numbers(port.dscp_to_switch_priority, priority)
        mapping[f"{priority}(0) {priority}(1)"] = [{"switch-priority": str(priority), "DSCP": code_points}]
        rewrite[str(priority)] = [
            {
                "PCP(DEI)": f"{priority}(0)",
                "TC": str(port.switch_priority_to_class[priority]),
                "DSCP": str(priority * 8),
            }
        ]
    title = "PCP(DEI); DSCP rewrite mapping (switch-priority to PCP(DEI); DSCP; traffic-class)"
    tables: list[JsonValue] = [
        general,
        {"PCP(DEI); DSCP to switch-priority mapping": [mapping]},
        {title: [{"Egress Interface": f"Eth{name}"}, rewrite]},
    ]
    return [{f"Eth{name}": tables}]


def _numbers(sequence: Sequence[int], value: int) -> str:
    return " ".join(str(index) for index, entry in enumerate(sequence) if entry == value)


def priority_flow_control(configuration: OnyxConfiguration) -> list[JsonValue]:
    """`show dcb priority-flow-control`."""
    enabled = configuration.pfc_priorities
    ports: dict[str, JsonValue] = {
        f"Eth{name}": [
            {"PFC admin": "Auto", "PFC oper": "Enabled" if configuration.pfc and port.pfc else "Disabled"}
        ]
        for name, port in configuration.ports.items()
    }
    return [
        {
            "PFC": "enabled" if configuration.pfc else "disabled",
            "Priority Enabled List": " ".join(map(str, sorted(enabled))),
            "Priority Disabled List": " ".join(str(n) for n in range(TRAFFIC_CLASSES) if n not in enabled),
        },
        ports,
    ]


def ip_route(configuration: OnyxConfiguration) -> str:
    """`show ip route`: only active routes, those whose next hop lies on a port's network."""
    columns = "{:<18}{:<18}{:<6}{:<18}{:<15}{:<11}{}\n"
    text = f"VRF Name default:\n{_RULE}\n"
    text += (
        columns.format("Destination", "Mask", "Flag", "Gateway", "Interface", "Source", "AD/M") + f"{_RULE}\n"
    )
    connected = {name: port.address for name, port in configuration.ports.items() if port.address is not None}
    for name, address in connected.items():
        network = address.network
        text += columns.format(
            str(network.network_address), str(network.netmask), "", _NO_GATEWAY, f"Eth{name}", "direct", "0/0"
        )
    for route in configuration.routes:
        for name, address in connected.items():
            if route.next_hop in address.network:
                prefix = route.prefix
                text += columns.format(
                    *(str(prefix.network_address), str(prefix.netmask), ""),
                    *(str(route.next_hop), f"Eth{name}", "static", f"{route.distance}/1"),
                )
    return text


def running_config(hostname: str, configuration: OnyxConfiguration) -> str:
    """`show running-config`: positive lines indented by three spaces, `no` lines not at all."""
    sections: list[tuple[str, list[str]]] = [
        ("Running-config temporary prefix mode setting", ["no cli default prefix-modes enable"]),
        ("Interface Ethernet configuration", _port_lines(configuration, _general_lines)),
        ("Shared Buffers advanced configuration", list(_buffer_lines(configuration))),
        ("QoS configuration", _port_lines(configuration, _qos_lines)),
        ("ACL configuration", [f"ipv4 access-list {name}" for name in configuration.access_lists]),
        ("DCBX PFC configuration", list(_pfc_lines(configuration))),
        ("L3 configuration", [*_routing_lines(configuration), *_port_lines(configuration, _address_lines)]),
        ("Other IP configuration", [f"hostname {hostname}", *_route_lines(configuration)]),
    ]
    text = f'##\n## Running database "initial"\n## Hostname: {hostname}\n## Product release: {RELEASE}\n##\n'
    for title, lines in sections:
        if lines:
            text += f"\n##\n## {title}\n##\n"
            text += "".join(line + "\n" if line.startswith("no ") else f"   {line}\n" for line in lines)
    return text


def _port_lines(configuration: OnyxConfiguration, lines_of: Callable[[Port], Iterable[str]]) -> list[str]:
    """One line for all neighbouring ports that have it; `no X` becomes `no interface ethernet RANGE X`."""
    ports_by_line: dict[str, list[int]] = {}
    for name, port in configuration.ports.items():
        for line in lines_of(port):
            ports_by_line.setdefault(line, []).append(int(name.removeprefix("1/")))
    return [
        f"no interface ethernet {ports} {line[3:]}"
        if line.startswith("no ") and line != "no switchport force"
        else f"interface ethernet {ports} {line}"
        for line, numbers in ports_by_line.items()
        for ports in _ranges(numbers)
    ]


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        yield f"1/{run[0]}" if len(run) == 1 else f"1/{run[0]}-1/{run[-1]}"


def _general_lines(port: Port) -> Iterator[str]:
    if port.mtu_bytes != DEFAULT_MTU_BYTES:
        yield f"mtu {port.mtu_bytes} force"
    if port.shutdown:
        yield "shutdown"
    if not port.switchport:
        yield "no switchport force"


def _address_lines(port: Port) -> Iterator[str]:
    if port.address is not None:
        yield f"ip address {port.address} primary"


def _qos_lines(port: Port) -> Iterator[str]:
    if port.trust is not Trust.L2:
        yield f"qos trust {port.trust}"
    if port.rewrite_dscp:
        yield "qos rewrite dscp"
    if not port.rewrite_pcp:
        yield "no qos rewrite pcp"
    if port.shaper_mbps is not None:
        yield f"bandwidth shape {port.shaper_mbps / 1000:g}G"
    for priority in range(TRAFFIC_CLASSES):
        moved = [
            str(dscp)
            for dscp, mapped in enumerate(port.dscp_to_switch_priority)
            if mapped == priority != dscp >> 3
        ]
        if moved:
            yield f"qos map dscp {' '.join(moved)} to switch-priority {priority}"
    for index in range(TRAFFIC_CLASSES):
        bound = [
            str(priority)
            for priority, mapped in enumerate(port.switch_priority_to_class)
            if mapped == index != priority
        ]
        if bound:
            yield f"traffic-class {index} bind switch-priority {' '.join(bound)}"
    for index, traffic_class in enumerate(port.traffic_classes):
        for line in _class_lines(index, traffic_class):
            yield f"traffic-class {index} {line}"


def _class_lines(index: int, traffic_class: TrafficClass) -> Iterator[str]:
    wanted = traffic_class.congestion_control
    if wanted is not None:
        mode = wanted.threshold_mode
        thresholds = f"minimum-{mode} {wanted.minimum} maximum-{mode} {wanted.maximum}"
        yield f"congestion-control {wanted.control} {thresholds}"
    if traffic_class.strict:
        yield "dcb ets strict"
    elif traffic_class.weight != DEFAULT_WEIGHTS[index]:
        yield f"dcb ets wrr {traffic_class.weight}"


def _buffer_lines(configuration: OnyxConfiguration) -> Iterator[str]:
    if not configuration.advanced_buffers:
        return
    yield "advanced buffer management force"
    for name, pool in configuration.pools.items():
        yield f"pool {name} size {pool.size_bytes} type {pool.mode}"

    def lines_of(port: Port) -> Iterator[str]:
        for index, traffic_class in enumerate(port.traffic_classes):
            if (buffer := traffic_class.buffer) is not None:
                size = f"reserved {buffer.reserved_bytes} shared alpha {buffer.alpha}"
                yield f"egress-buffer ePort.tc{index} map pool {buffer.pool} {size}"

    yield from _port_lines(configuration, lines_of)


def _pfc_lines(configuration: OnyxConfiguration) -> Iterator[str]:
    if configuration.pfc:
        yield "dcb priority-flow-control enable force"
    for priority in sorted(configuration.pfc_priorities):
        yield f"dcb priority-flow-control priority {priority} enable"
    yield from _port_lines(
        configuration, lambda port: ["dcb priority-flow-control mode on force"] if port.pfc else []
    )


def _routing_lines(configuration: OnyxConfiguration) -> list[str]:
    return [f"ip routing vrf {vrf}" for vrf in sorted(configuration.routing_vrfs)]


def _route_lines(configuration: OnyxConfiguration) -> list[str]:
    return [str(route) for route in configuration.routes]
