"""An emulated Cumulus Linux switch: NVUE behind a small bash.

Stateful and strict: a command that NVUE's command list does not hold is refused, and a revision that NVUE
refuses changes nothing. Refusals of `nv` begin as NVUE's do where a source shows them (`Invalid Command`,
`Invalid config [rev_id: 4]`).
"""

import copy
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias

import yaml

from switchsim.cumulus_revisions import RefusedConfigError, Revisions, SchemaError
from switchsim.cumulus_tree import Tree, difference, joined, leaves
from switchsim.device import CommandResult, column_table, mac_address, serial_number
from switchsim.linux import FileError, LinuxDevice, Process, Program, failure, output

RELEASE: Final = "Cumulus Linux 5.9.2"
_LLDP_COLUMNS: Final = ("Interface", "Speed", "Type", "Remote Host", "Remote Port")
_DURATION: Final = re.compile(r"([0-9]{1,6})([smh]?)")
_SECONDS: Final = {"s": 1, "m": 60, "": 60, "h": 3600}
"""Minutes without a unit (NVUE reference)."""

_Process: TypeAlias = "Process[CumulusDevice]"


def _nv(process: _Process) -> CommandResult:
    revisions = process.device.revisions
    result = None
    try:
        match process.arguments:
            case ["set" | "unset" as verb, _, *_]:
                (revisions.set if verb == "set" else revisions.unset)(process.arguments[1:])
                result = CommandResult()
            case ["config", *words]:
                result = _config(process, words)
            case ["show", *words]:
                result = _show(process.device, words)
    except SchemaError as error:
        return failure(f"Invalid Command: {process.arguments[0]} {error}\n")
    return result or failure(f"Invalid Command: {' '.join(process.arguments)}\n")


def _show(device: "CumulusDevice", words: list[str]) -> CommandResult | None:
    """What `nv show` prints of the switch's state; None for what is not emulated."""
    match words:
        case ["interface", "lldp"]:
            rows = [(port, "100G", "swp", *peer) for port, peer in device.neighbours.items()]
            return output(column_table(_LLDP_COLUMNS, rows))
        case ["system", "-o", "json"]:
            hostname = device.applied.get("system", {}).get("hostname", "cumulus")  # as it is delivered
            shown = {"build": device.release, "hostname": hostname}
        case ["platform", "-o", "json"]:  # as release 5.9 and later; earlier ones list the software
            shown = {
                "manufacturer": "Mellanox",
                "product-name": device.model,
                "serial-number": serial_number(device.name),
                "system-mac": mac_address(device.name),
            }
        case _:
            return None
    return output(json.dumps(shown, indent=2) + "\n")


def _config(process: _Process, words: list[str]) -> CommandResult | None:
    """`nv config`; None for what is no command."""
    device, revisions = process.device, process.device.revisions
    candidate = device.applied if revisions.pending is None else revisions.pending
    result: CommandResult | None = CommandResult()
    match words:
        case ["show", *options]:
            names = ("model", "nvue-api-version", "rev-id", "version")
            header = dict(zip(names, (device.model, "nvue_v1", 1.0, device.release), strict=True))
            result = _printed([{"header": header}, {"set": joined(device.applied)}], device.applied, options)
        case ["diff", "startup", "applied", *options]:
            result = _printed(difference(device.saved, device.applied), device.applied, options)
        case ["diff", *options]:
            result = _printed(difference(device.applied, candidate), candidate, options)
        case ["apply", *options]:
            result = _trial(revisions, options)
        case ["patch" | "replace" as verb, path]:
            result = _from_file(process, path, replaces=verb == "replace")
        case ["save"] | ["save", "-y"]:
            revisions.saved = copy.deepcopy(revisions.applied)
            result = output("saved [rev_id: applied]\n")
        case ["detach"]:
            revisions.pending = None
        case _:
            result = None
    return result


def _printed(parts: list[dict[str, Tree]], tree: Tree, options: list[str]) -> CommandResult:
    match options:
        case ["-o", "json"]:
            return output(json.dumps(parts, indent=2) + "\n")
        case [] | ["-o", "yaml"]:
            return output(yaml.safe_dump(parts, sort_keys=False) if parts else "")
        case ["-o", "commands"]:
            words = ((*path, *([] if value is None else [str(value)])) for path, value in leaves(tree))
            return output("".join(f"nv set {' '.join(each)}\n" for each in words))
        case _:
            return failure(f"Invalid Command: {' '.join(options)}\n")


def _trial(revisions: Revisions, options: list[str]) -> CommandResult | None:
    """`nv config apply` with what concerns a confirmation."""
    if options in (["--confirm-yes"], ["--confirm-no"]):
        ended = revisions.end_trial(keep=options == ["--confirm-yes"])
        return output("Confirmed\n") if ended else failure("Error: no configuration waits [emulator]\n")
    if revisions.trial is not None:
        return failure("Error: a configuration waits to be confirmed [emulator]\n")
    if "--confirm" not in options:
        return _apply(revisions, options, None)
    place = options.index("--confirm")
    found = _DURATION.fullmatch(" ".join(options[place + 1 : place + 2]))
    rest = options[:place] + options[place + 2 :]
    return None if found is None else _apply(revisions, rest, int(found[1]) * _SECONDS[found[2]])


def _apply(revisions: Revisions, options: list[str], seconds: int | None) -> CommandResult | None:
    rest = [option for option in options if option not in {"-y", "--assume-yes"}]
    config = revisions.pending
    if rest:
        if len(rest) > 1 or not (rest[0].isdigit() and 1 <= int(rest[0]) <= len(revisions.history)):
            return None
        config = revisions.history[int(rest[0]) - 1]
    elif config is None or not difference(revisions.applied, config):
        return output("config apply executed with no config diff\n")
    elif not options:  # without a terminal, nobody answers the question
        return failure("Are you sure? [y/N] Declined apply after warnings\n")
    try:
        return output(f"applied [rev_id: {revisions.apply(config, seconds)}]\n")
    except RefusedConfigError as error:
        rev_id = len(revisions.history) + 1
        return failure(f"Invalid config [rev_id: {rev_id}]\n  Config invalid at {error}\n")


def _from_file(process: _Process, path: str, *, replaces: bool) -> CommandResult:
    """Whole or not at all."""
    revisions = process.device.revisions
    before = copy.deepcopy(revisions.pending)
    try:
        operations = yaml.safe_load(process.read(path)) or []
        if replaces:
            revisions.pending = {}
        revisions.patch(operations)
    except FileError:
        return failure(f"Error: {path}: No such file\n")
    except yaml.YAMLError:
        revisions.pending = before
        return failure("Error: Failed to parse YAML\n")
    except (SchemaError, AttributeError, RecursionError) as error:
        revisions.pending = before
        return failure(f"Error: Invalid config at {error}\n")
    return CommandResult()


class CumulusDevice(LinuxDevice):
    """One switch, ports swp1, swp2, …; `applied` is what runs, `saved` what it starts with."""

    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {
        name: {"model": f"M{name.upper()}"} for name in ("sn2100", "sn2700", "sn3700")
    }
    home: ClassVar[str] = "/home/cumulus"
    vrf: ClassVar[str] = ":mgmt"
    programs: ClassVar[Mapping[str, Program]] = MappingProxyType({"nv": _nv})

    def __init__(self, name: str = "cumulus1", ports: int = 16, model: str = "MSN2700") -> None:
        super().__init__(name, ports)
        self.model, self.release = model, RELEASE
        names = tuple(f"swp{number}" for number in range(1, ports + 1))
        config: Tree = {
            "interface": {
                "eth0": {"ip": {"address": {"192.0.2.1/24": {}}}, "type": "eth"},
                **{port: {"link": {"mtu": 9216}, "type": "swp"} for port in names},
            },
            "system": {"hostname": name},
        }
        self.revisions = Revisions(names, config, config, [config])

    @property
    def applied(self) -> Tree:
        """The configuration (revision) that runs now."""
        return self.revisions.applied

    @property
    def saved(self) -> Tree:
        """The configuration with which the switch starts."""
        return self.revisions.saved

    def reboot(self) -> None:
        """Restart the emulated switch with its saved configuration."""
        with self._lock:
            self.revisions.apply(self.saved)
            self.locks.links.clear()
