"""The program `nv` of an emulated Cumulus switch.

Its refusals begin as NVUE's do where a source shows them (`Invalid Command`, `Invalid config [rev_id: 4]`).
"""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import yaml

from switchsim.cumulus_revisions import RefusedConfigError, Revisions
from switchsim.cumulus_schema import SchemaError
from switchsim.cumulus_tree import Tree, difference, joined, leaves
from switchsim.device import CommandResult, column_table, mac_address, serial_number

if TYPE_CHECKING:
    from switchsim.cumulus import CumulusDevice

RELEASE: Final = "Cumulus Linux 5.9.2"
_LLDP_COLUMNS: Final = ("Interface", "Speed", "Type", "Remote Host", "Remote Port")


_DURATION: Final = re.compile(r"([0-9]{1,6})([smh]?)")
_SECONDS: Final = {"s": 1, "m": 60, "": 60, "h": 3600}
"""Minutes without a unit (NVUE reference)."""


def nv(device: "CumulusDevice", arguments: Sequence[str]) -> CommandResult:
    """Run `nv` of the switch with these arguments."""
    revisions = device.revisions
    try:
        match list(arguments):
            case ["set", *words] if words:
                revisions.set(words)
                return CommandResult()
            case ["unset", *words] if words:
                revisions.unset(words)
                return CommandResult()
            case ["config", *words] if words:
                return _config(device, words)
            case ["show", *words]:
                if (shown := _operational(device, words)) is not None:
                    return _output(shown)
    except SchemaError as error:
        return _failure(f"Invalid Command: {arguments[0]} {error}\n")
    return _failure(f"Invalid Command: {' '.join(arguments)}\n")


def _operational(device: "CumulusDevice", words: list[str]) -> str | None:
    """What `nv show` prints of the switch's state; None for what is not emulated."""
    match words:
        case ["interface", "lldp"]:
            rows = [(port, "100G", "swp", *peer) for port, peer in device.neighbours.items()]
            return column_table(_LLDP_COLUMNS, rows)
        case ["system" | "platform" as part, "-o", "json"]:
            hostname = device.revisions.applied["system"]["hostname"]
            system = {"build": device.release, "hostname": hostname}
            return json.dumps(system if part == "system" else _platform(device), indent=2) + "\n"
        case _:
            return None


def _platform(device: "CumulusDevice") -> Tree:
    """As release 5.9 and later print it; earlier ones list the software."""
    return {
        "manufacturer": "Mellanox",
        "product-name": device.model,
        "serial-number": serial_number(device.name),
        "system-mac": mac_address(device.name),
    }


def _config(device: "CumulusDevice", words: list[str]) -> CommandResult:
    revisions = device.revisions
    match words:
        case ["show" | "diff" as verb, *options]:
            return _show(device, options, pending=verb == "diff")
        case ["apply", *options]:
            return _trial(revisions, options)
        case ["patch" | "replace" as verb, path]:
            return _from_file(revisions, device.files, path, replaces=verb == "replace")
        case ["save"] | ["save", "-y"]:
            revisions.saved = copy.deepcopy(revisions.applied)
            return _output("saved [rev_id: applied]\n")
        case ["detach"]:
            revisions.pending = None
            return CommandResult()
    return _failure(f"Invalid Command: config {' '.join(words)}\n")


def _show(device: "CumulusDevice", options: list[str], *, pending: bool) -> CommandResult:
    revisions = device.revisions
    if not pending:
        header: Tree = {
            "model": device.model,
            "nvue-api-version": "nvue_v1",
            "rev-id": 1.0,
            "version": device.release,
        }
        parts = [{"header": header}, {"set": joined(revisions.applied)}]
        return _printed(parts, revisions.applied, options)
    if options[:2] == ["startup", "applied"]:
        return _printed(difference(revisions.saved, revisions.applied), revisions.applied, options[2:])
    candidate = revisions.applied if revisions.pending is None else revisions.pending
    return _printed(difference(revisions.applied, candidate), candidate, options)


def _printed(parts: list[dict[str, Tree]], tree: Tree, options: list[str]) -> CommandResult:
    match options:
        case ["-o", "json"]:
            return _output(json.dumps(parts, indent=2) + "\n")
        case [] | ["-o", "yaml"]:
            return _output(yaml.safe_dump(parts, sort_keys=False) if parts else "")
        case ["-o", "commands"]:
            words = ((*path, *([] if value is None else [str(value)])) for path, value in leaves(tree))
            return _output("".join(f"nv set {' '.join(each)}\n" for each in words))
        case _:
            return _failure(f"Invalid Command: {' '.join(options)}\n")


def _trial(revisions: Revisions, options: list[str]) -> CommandResult:
    """`nv config apply` with what concerns a confirmation."""
    if options in (["--confirm-yes"], ["--confirm-no"]):
        ended = revisions.end_trial(keep=options == ["--confirm-yes"])
        return _output("Confirmed\n") if ended else _failure("Error: no configuration waits [emulator]\n")
    if revisions.trial is not None:
        return _failure("Error: a configuration waits to be confirmed [emulator]\n")
    if "--confirm" not in options:
        return _apply(revisions, options, None)
    place = options.index("--confirm")
    match = _DURATION.fullmatch(" ".join(options[place + 1 : place + 2]))
    if match is None:
        return _failure(f"Invalid Command: config apply {' '.join(options)}\n")
    seconds = int(match[1]) * _SECONDS[match[2]]
    return _apply(revisions, options[:place] + options[place + 2 :], seconds)


def _apply(revisions: Revisions, options: list[str], seconds: int | None) -> CommandResult:
    rest = [option for option in options if option not in {"-y", "--assume-yes"}]
    if rest:
        if len(rest) > 1 or not (rest[0].isdigit() and 1 <= int(rest[0]) <= len(revisions.history)):
            return _failure(f"Invalid Command: config apply {' '.join(options)}\n")
        config = revisions.history[int(rest[0]) - 1]
    elif revisions.pending is None or not difference(revisions.applied, revisions.pending):
        return _output("config apply executed with no config diff\n")
    elif len(rest) == len(options):
        # Without a terminal, nobody answers the question.
        return _failure("Are you sure? [y/N] Declined apply after warnings\n")
    else:
        config = revisions.pending
    try:
        number = revisions.apply(config, seconds)
    except RefusedConfigError as error:
        rev_id = len(revisions.history) + 1
        return _failure(f"Invalid config [rev_id: {rev_id}]\n  Config invalid at {error}\n")
    return _output(f"applied [rev_id: {number}]\n")


def _from_file(
    revisions: Revisions, files: Mapping[str, bytes], path: str, *, replaces: bool
) -> CommandResult:
    """Whole or not at all; the path must be a full one."""
    if path not in files:
        return _failure(f"Error: {path}: No such file\n")
    before = copy.deepcopy(revisions.pending)
    try:
        operations = yaml.safe_load(files[path]) or []
        if replaces:
            revisions.pending = {}
        revisions.patch(operations)
    except yaml.YAMLError:
        revisions.pending = before
        return _failure("Error: Failed to parse YAML\n")
    except (SchemaError, AttributeError, RecursionError) as error:
        revisions.pending = before
        return _failure(f"Error: Invalid config at {error}\n")
    return CommandResult()


def _output(text: str) -> CommandResult:
    return CommandResult(stdout=text.encode())


def _failure(text: str) -> CommandResult:
    return CommandResult(stderr=text.encode(), status=1)
