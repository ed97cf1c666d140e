"""What an emulated Onyx switch prints about itself.

The JSON shapes of `show interfaces ethernet N congestion-control`, `show dcb ets interface ethernet N`,
`show qos interface ethernet N` and `show version` are those of the Ansible collection mellanox.onyx (its
unit-test fixtures, release 3.6), that of `show dcb priority-flow-control` is a public poller's record of a
switch. Ours: the "Mode" string BOTH, which no source shows, the line of a port's shaper in the running
configuration, the figure of a bandwidth in `show dcb ets`, the text of `show ip route`, and
that the running configuration sorts routes, pools and access lists.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from switchsim.device import mac_address, serial_number
from switchsim.onyx_sheet import DSCP_COUNT, NULL0, PORT_WORDS, SECTIONS, SHEET, TRAFFIC_CLASSES
from switchsim.settings import SheetDevice, by_place

RELEASE: Final = "3.9.2110"

JsonValue = str | list["JsonValue"] | dict[str, "JsonValue"]

_UNITS: Final = {"absolute": " KB", "relative": "%"}
_RULE: Final = "-" * 94


def version(device: SheetDevice) -> JsonValue:
    """`show version`."""
    return {
        "Product name": "Onyx",
        "Product release": device.release,
        "Build ID": "#1-emulator",
        "Target arch": "x86_64",
        "Target hw": "x86_64",
        "Version summary": f"X86_64 {device.release} emulator x86_64",
        "Product model": "x86onie",
    }


def inventory(device: SheetDevice) -> str:
    """`show inventory`: the row of the box."""
    row = "{:16} {:20} {}\n".format
    titles = row("Module", "Part Number", "Serial Number")
    return f"{_RULE}\n{titles}{_RULE}\n{row('CHASSIS', device.model, serial_number(device.name))}"


def files(device: SheetDevice) -> str:
    """`show configuration files`."""
    active = device.active_file
    names = "".join(f"{name}{' (active)' if name == active else ''}\n" for name in device.files)
    unsaved = "no" if device.saved == device.configuration else "yes"
    return f"{names}\nActive configuration: {active}\nUnsaved changes : {unsaved}\n"


def neighbours(device: SheetDevice) -> JsonValue:
    """`show lldp interfaces ethernet remote`, as HPE's CANU records it."""
    if not device.neighbours:
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
        for port, (system, name) in device.neighbours.items()
    ]


def congestion_control(device: SheetDevice, port: str) -> JsonValue:
    """`show interfaces ethernet N congestion-control`: traffic class n stands at index n + 1."""
    shown: list[JsonValue] = [{"Interface ethernet": port, "ECN marked packets": "0"}]
    for number in range(TRAFFIC_CLASSES):
        header: dict[str, JsonValue] = {"header": f"TC-{number}", "Mode": "none"}
        if (wanted := device.fact(port, "congestion-control", number)) is not None:
            mode, control, minimum, maximum = wanted
            header |= {
                "Mode": control.upper(),
                "Threshold mode": mode,
                "Minimum threshold": f"{minimum}{_UNITS[mode]}",
                "Maximum threshold": f"{maximum}{_UNITS[mode]}",
                "RED dropped packets": "0",
            }
        shown.append(header)
    return shown


def ets(device: SheetDevice, port: str) -> JsonValue:
    """`show dcb ets interface ethernet N`."""
    scheduling = [device.fact(port, "scheduling", number) for number in range(TRAFFIC_CLASSES)]
    weights = [0 if entry == "strict" else entry[1] for entry in scheduling]
    per_class: dict[str, JsonValue] = {
        str(number): [
            {
                "S.Mode": "WRR" if weight else "Strict",
                "W": str(weight),
                "W(%)": str(percent),
                "BW Gr.(Mbps)": str(device.fact(port, "class-guaranteed-mbps", number)),
                "BW Sh.(Mbps)": str(device.fact(port, "class-shaper-mbps", number) or "N/A"),
            }
        ]
        for number, (weight, percent) in enumerate(zip(weights, _percentages(weights), strict=True))
    }
    general: JsonValue = {
        "Multicast unaware mapping": "disabled",
        "Interface Bandwidth Shape [Mbps]": str(device.fact(port, "shaper-mbps") or "N/A"),
    }
    flags: JsonValue = {
        "S.Mode": "Scheduling Mode [Strict/WRR]",
        "Bw.Sh": "Bandwidth Shaper",
        "D": "-",
        "W": "Weight",
        "Bw.Gr": "Bandwidth Guaranteed",
    }
    return [{f"Eth{port}": [general, {"Flags": [flags]}, {"ETS per TC": [per_class]}]}]


def _percentages(weights: Sequence[int]) -> list[int]:
    """Shares that add up to 100: what rounding down leaves goes to the first weighted classes, one each."""
    total = sum(weights)
    shares = [weight * 100 // total if total else 0 for weight in weights]
    left = 100 - sum(shares) if total else 0
    for index in [index for index, weight in enumerate(weights) if weight][:left]:
        shares[index] += 1
    return shares


def qos(device: SheetDevice, port: str) -> JsonValue:
    """`show qos interface ethernet N`."""
    priorities = [device.fact(port, "switch-priority", dscp) for dscp in range(DSCP_COUNT)]
    general: JsonValue = {
        "Trust mode": device.fact(port, "trust"),
        "Default switch-priority": str(device.fact(port, "default-switch-priority")),
        "Default PCP": "0",
        "Default DEI": "0",
        "PCP,DEI rewrite": "enabled" if device.fact(port, "rewrite-pcp") else "disabled",
        "IP PCP;DEI rewrite": "enable",
        "DSCP rewrite": "enabled" if device.fact(port, "rewrite-dscp") else "disabled",
    }
    mapping: dict[str, JsonValue] = {}
    rewrite: dict[str, JsonValue] = {}
    for number in range(TRAFFIC_CLASSES):
        dscps = " ".join(str(dscp) for dscp, priority in enumerate(priorities) if priority == number)
        mapping[f"{number}(0) {number}(1)"] = [{"switch-priority": str(number), "DSCP": dscps}]
        to_class = str(device.fact(port, "traffic-class", number))
        rewrite[str(number)] = [{"PCP(DEI)": f"{number}(0)", "TC": to_class, "DSCP": str(number * 8)}]
    title = "PCP(DEI); DSCP rewrite mapping (switch-priority to PCP(DEI); DSCP; traffic-class)"
    tables: list[JsonValue] = [
        general,
        {"PCP(DEI); DSCP to switch-priority mapping": [mapping]},
        {title: [{"Egress Interface": f"Eth{port}"}, rewrite]},
    ]
    return [{f"Eth{port}": tables}]


def priority_flow_control(device: SheetDevice) -> JsonValue:
    """`show dcb priority-flow-control`."""
    is_on = device.fact("", "pfc")
    priorities: dict[bool, list[str]] = {True: [], False: []}
    for number in range(TRAFFIC_CLASSES):
        priorities[device.fact("", "pfc-priority", number)].append(str(number))
    states = {
        port: "Enabled" if is_on and device.fact(port, "pfc-mode") else "Disabled" for port in device.ports
    }
    return [
        {
            "PFC": "enabled" if is_on else "disabled",
            "Priority Enabled List": " ".join(priorities[True]),
            "Priority Disabled List": " ".join(priorities[False]),
        },
        {f"Eth{port}": [{"PFC admin": "Auto", "PFC oper": state}] for port, state in states.items()},
    ]


def ip_route(device: SheetDevice) -> str:
    """`show ip route`: only active routes, those whose next hop lies on a port's network."""
    row = "{:<18}{:<18}{:<6}{:<18}{:<15}{:<11}{}\n".format
    titles = row("Destination", "Mask", "Flag", "Gateway", "Interface", "Source", "AD/M")
    text = f"VRF Name default:\n{_RULE}\n{titles}{_RULE}\n"
    addresses = {port: device.fact(port, "address") for port in device.ports}
    connected = {port: address.network for port, address in addresses.items() if address is not None}
    for port, net in connected.items():
        text += row(str(net.network_address), str(net.netmask), "", str(NULL0), f"Eth{port}", "direct", "0/0")
    for (_, what, *keys), distance in device.configuration.items():
        if what == "route":
            prefix, hop = keys
            for port in (port for port, network in connected.items() if hop in network):
                address, mask = str(prefix.network_address), str(prefix.netmask)
                text += row(address, mask, "", str(hop), f"Eth{port}", "static", f"{distance}/1")
    return text


def running_config(device: SheetDevice) -> str:
    """`show running-config`: positive lines indented by three spaces, `no` lines not at all."""
    lines_by_title: dict[str, list[str]] = {
        "Running-config temporary prefix mode setting": ["no cli default prefix-modes enable"],
        **{title: [] for title in SECTIONS},
    }
    lines_by_title["Other IP configuration"].append(f"hostname {device.name}")
    facts = by_place(device.configuration)
    for title, settings in SECTIONS.items():
        places_by_line: dict[str, list[str]] = {}
        for place in ("", *device.ports):
            for line in SHEET.printed(facts.get(place, {}), place, settings):
                places_by_line.setdefault(line, []).append(place)
        lines_by_title[title] += [
            _outdented(line).replace("{ports}", span)
            for line, places in places_by_line.items()
            for span in _ranges(places)
        ]
    text = f'##\n## Running database "initial"\n## Hostname: {device.name}\n'
    text += f"## Product release: {device.release}\n##\n"
    for title, lines in lines_by_title.items():
        if lines:
            text += f"\n##\n## {title}\n##\n"
            text += "".join(line + "\n" if line.startswith("no ") else f"   {line}\n" for line in lines)
    return text


def _outdented(line: str) -> str:
    """`no X` of a port is printed as `no interface ethernet N X`, but for its way to become a router's."""
    beginning = f"{PORT_WORDS}no "
    if not line.startswith(beginning) or line == f"{beginning}switchport force":
        return line
    return f"no {PORT_WORDS}{line.removeprefix(beginning)}"


def _ranges(places: Sequence[str]) -> Iterator[str]:
    """Neighbouring ports as one range; the whole switch as itself."""
    numbers = [int(place.removeprefix("1/") or 0) for place in places]
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        yield f"1/{run[0]}" if len(run) == 1 else f"1/{run[0]}-1/{run[-1]}"
