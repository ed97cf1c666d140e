"""An emulated NVIDIA/Mellanox Onyx switch: what its command line does and shows.

Stateful and strict: a line that the grammar lacks, or whose values are out of range, changes nothing and is
answered with a line that starts with `%`. Prefix modes are on by default, as on the switch: then `interface
ethernet 1/1` alone opens a sub-mode in which every line but `exit` and `show` is prefixed. Each line takes
effect at once; `configuration write` saves. There is no paging, and no remote command (`ssh host command`).

The JSON shapes of `show interfaces ethernet N congestion-control`, `show dcb ets interface ethernet N`, `show
qos interface ethernet N` and `show version` are those of the Ansible collection mellanox.onyx (its unit-test
fixtures, release 3.6), that of `show dcb priority-flow-control` is a public poller's record of a switch. Our
own choice: the "Mode" string BOTH, which no source shows, the line of a port's shaper in the running
configuration, the figure of a bandwidth in `show dcb ets`, the text of `show ip route`, and that the running
configuration sorts routes, pools and access lists.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import ClassVar, Final

from switchsim.device import mac_address, serial_number
from switchsim.grammar import RefusalError, Values, invalid
from switchsim.modes import Action, Mode, Modes, Session, SheetDevice, goes_to, leaves
from switchsim.onyx_sheet import (
    ARGUMENTS,
    DSCP_COUNT,
    MAX_PORTS,
    NULL0,
    PORT_WORDS,
    ROWS,
    SECTIONS,
    TRAFFIC_CLASSES,
)
from switchsim.settings import NO_FACTS, Facts

MAX_FILES: Final = 16


class OnyxSession(Session):
    """One command-line session."""

    def __init__(self, device: "OnyxDevice", username: str = "") -> None:
        super().__init__(device, username)
        self.prefix: tuple[str, ...] = ()
        """Words that a sub-mode puts before each line."""
        self.filter: str | None = None
        """What stands behind the `|` of the line that is executed."""

    def prompt_words(self) -> dict[str, str]:
        """The values of the prompt's placeholders, to which Onyx adds the prefix of the open sub-mode."""
        return super().prompt_words() | {"prefix": "".join(f" {word}" for word in self.prefix)}

    def words(self, line: str) -> list[str]:
        """Split a line into words; `no interface ethernet 1/1 X` becomes `interface ethernet 1/1 no X`."""
        command, pipe, rest = line.partition("|")
        words, self.filter = command.split(), " ".join(rest.split()) if pipe else None
        if pipe and not words:
            raise _unrecognized("|")
        if words and self.prefix and words[0] not in {"exit", "show"}:
            words = [*self.prefix, *words]
        if len(words) > 4 and words[0] == "no" and words[1] and "interface".startswith(words[1]):
            words = [*words[1:4], "no", *words[4:]]
        return words

    def execute(self, words: Sequence[str]) -> str | None:
        """Execute a line's words; the only filter behind `|` is `json-print`, for lines that show data."""
        action, values = self.modes.find(self.mode, words)
        if self.filter not in {None, "json-print"}:
            raise _unrecognized(str(self.filter))
        if self.filter and not "show".startswith(words[0]):
            raise invalid("only a show command takes `| json-print`")
        return action(self, values)

    def places(self, name: str, values: Values) -> Sequence[str]:
        """The ports that a line names, or the whole switch; raises RefusalError where one is not there."""
        del name
        named = values.maybe("ports", tuple) or values.all("port", str)
        for port in named:
            if port not in self.device.ports:
                raise invalid(f"there is no interface ethernet {port}")
        return named or ("",)


class OnyxDevice(SheetDevice):
    """One switch with ports 1/1 to 1/`ports`."""

    usual_ports: ClassVar[int] = 16
    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "sn2100": {"model": "MSN2100-CB2F"},
        "sn2700": {"model": "MSN2700-CS2F"},
    }
    session_class = OnyxSession
    port_head = "{}"
    active_file: ClassVar[str] = "initial"
    """Name of the configuration file with which the switch starts."""

    def __init__(self, name: str = "onyx1", ports: int = 16, model: str = "MSN2100-CB2F") -> None:
        self.modes = MODES
        self.files: dict[str, Facts] = {}
        names = [f"1/{number}" for number in range(1, ports + 1)]
        super().__init__(name, names, MAX_PORTS, model, RELEASE)

    def as_delivered(self) -> Facts:
        """The configuration of a new switch, which has no facts."""
        return NO_FACTS

    @property
    def saved(self) -> Facts:
        """The configuration in the file with which the switch starts."""
        return self.files[self.active_file]

    @saved.setter
    def saved(self, facts: Facts) -> None:
        self.files[self.active_file] = facts


# --- what lines do -----------------------------------------------------------------------------------------


def _unrecognized(line: str) -> RefusalError:
    return RefusalError(f'% Unrecognized command "{line}".\nType "?" for help.')


def _exit(session: OnyxSession, values: Values) -> None:
    if session.prefix:
        session.prefix = ()
    else:
        leaves(session, values)


def _open_interface(session: OnyxSession, values: Values) -> None:
    if not session.device.fact("", "prefix-modes"):
        raise RefusalError("% Incomplete command: prefix modes are off [emulator]")
    ports = session.places("", values)
    session.prefix = ("interface", "ethernet", "-".join(dict.fromkeys((ports[0], ports[-1]))))


def _open_access_list(session: OnyxSession, values: Values) -> None:
    """Makes it where there is none, and opens its mode (user manual, ACL Commands)."""
    name = values.one("name", str)
    session.facts = Facts({**session.facts, ("", "access-list", name): True})
    session.prefix = ("ipv4", "access-list", name)


def _save(session: OnyxSession, values: Values) -> None:
    files = session.device.files
    name = values.maybe("name", str) or session.device.active_file
    if name not in files and len(files) >= MAX_FILES:
        raise invalid(f"there are {MAX_FILES} configuration files already")
    files[name] = session.facts


# --- what is shown -----------------------------------------------------------------------------------------

RELEASE: Final = "3.9.2110"

JsonValue = str | list["JsonValue"] | dict[str, "JsonValue"]

_UNITS: Final = {"absolute": " KB", "relative": "%"}
_RULE: Final = "-" * 94


def _version(device: OnyxDevice) -> JsonValue:
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


def _inventory(device: OnyxDevice) -> str:
    """`show inventory`: the row of the box."""
    row = "{:16} {:20} {}\n".format
    titles = row("Module", "Part Number", "Serial Number")
    return f"{_RULE}\n{titles}{_RULE}\n{row('CHASSIS', device.model, serial_number(device.name))}"


def _files(device: OnyxDevice) -> str:
    """`show configuration files`."""
    active = device.active_file
    names = "".join(f"{name}{' (active)' if name == active else ''}\n" for name in device.files)
    unsaved = "no" if device.saved == device.configuration else "yes"
    return f"{names}\nActive configuration: {active}\nUnsaved changes : {unsaved}\n"


def _neighbours(device: OnyxDevice) -> JsonValue:
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


def _congestion_control(device: OnyxDevice, port: str) -> JsonValue:
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


def _ets(device: OnyxDevice, port: str) -> JsonValue:
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


def _qos(device: OnyxDevice, port: str) -> JsonValue:
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


def _priority_flow_control(device: OnyxDevice) -> JsonValue:
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


def _ip_route(device: OnyxDevice) -> str:
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


def _running_config(device: OnyxDevice) -> str:
    """`show running-config`: positive lines indented by three spaces, `no` lines not at all."""
    lines_by_title: dict[str, list[str]] = {
        "Running-config temporary prefix mode setting": ["no cli default prefix-modes enable"],
        **{title: [] for title in SECTIONS},
    }
    lines_by_title["Other IP configuration"].append(f"hostname {device.name}")
    blocks = device.configuration.blocks
    for title, settings in SECTIONS.items():
        places_by_line: dict[str, list[str]] = {}
        for place in ("", *device.ports):
            for line in MODES.printed(blocks.get(place, NO_FACTS), place, settings):
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


def _shows(show: Callable[[OnyxSession, Values], JsonValue]) -> Action:
    """A show command, which has a JSON form if it is no plain text."""

    def action(session: OnyxSession, values: Values) -> str:
        shown = show(session, values)
        if session.filter and isinstance(shown, str):
            raise invalid("this command has no JSON form")
        if isinstance(shown, str):
            return shown
        return json.dumps(shown, indent=4) + "\n" if session.filter else _plain(shown)

    return action


def _plain(shown: JsonValue, indentation: str = "") -> str:
    """The same facts as `name: value` lines; this text form is ours, the JSON form is the switch's."""
    if isinstance(shown, str):
        return f"{indentation}{shown}\n"
    if isinstance(shown, list):
        return "".join(_plain(entry, indentation) for entry in shown)
    text = ""
    for name, value in shown.items():
        inner = f" {value}\n" if isinstance(value, str) else f"\n{_plain(value, indentation + '  ')}"
        text += f"{indentation}{name}:{inner}"
    return text


def _shows_device(show: Callable[[OnyxDevice], JsonValue]) -> Action:
    return _shows(lambda session, _: show(session.device))


def _shows_port(show: Callable[[OnyxDevice, str], JsonValue]) -> Action:
    return _shows(lambda session, values: show(session.device, *session.places("", values)))


_EVERYWHERE: Final[Mapping[str, Action]] = {
    "exit": _exit,
    "no cli session paging enable": lambda _, __: None,
    "cli session paging enable": lambda _, __: None,
    "show version": _shows_device(_version),
    "show hosts": _shows_device(lambda device: f"Hostname: {device.name}\n"),
    "show lldp interfaces ethernet remote": _shows_device(_neighbours),
    "show inventory": _shows_device(_inventory),
    "show interfaces ethernet {port} congestion-control": _shows_port(_congestion_control),
    "show dcb ets interface ethernet {port}": _shows_port(_ets),
    "show qos interface ethernet {port}": _shows_port(_qos),
    "show dcb priority-flow-control": _shows_device(_priority_flow_control),
    "show ip route": _shows_device(_ip_route),
}
_PRIVILEGED: Final[Mapping[str, Action]] = {
    **_EVERYWHERE,
    "show running-config": _shows_device(_running_config),
    "show configuration files": _shows_device(_files),
}
_ENABLE: Final[Mapping[str, Action]] = {
    "enable": goes_to("enable"),
    "disable": goes_to("user"),
    "configure terminal": goes_to("config"),
}
_CONFIG: Final[Mapping[str, Action]] = {
    "interface ethernet {ports}": _open_interface,
    "ipv4 access-list {access-list}": _open_access_list,
    "configuration write [to {name} no-switch]": _save,
    "write memory": _save,
}
MODES: Final = Modes(
    {
        "user": Mode("{device} [standalone: master] > ", {**_EVERYWHERE, "enable": goes_to("enable")}),
        "enable": Mode("{device} [standalone: master] # ", {**_PRIVILEGED, **_ENABLE}),
        "config": Mode(
            "{device} [standalone: master] (config{prefix}) # ",
            {**_PRIVILEGED, **_CONFIG},
            "enable",
            rows=ROWS,
        ),
    },
    ARGUMENTS,
    "ports",
)
