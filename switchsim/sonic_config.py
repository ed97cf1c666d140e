"""The `config` program of an emulated SONiC switch.

Messages and exit codes follow config/main.py of sonic-utilities; texts of our own end in `[emulator]`. As on
the switch, it demands root, `config load` merges without asking the YANG models, and `config reload` restarts
the services.
"""

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from switchsim import sonic_orchagent, sonic_yang
from switchsim.device import CommandResult
from switchsim.linux import FileError, Process, UsageError, failure, options, output
from switchsim.sonic_updater import (
    UpdateError,
    as_database,
    check_transition,
    parse,
    parse_patch,
    patched,
)
from switchsim.sonic_yang import Database

if TYPE_CHECKING:
    from switchsim.sonic import SonicDevice

CONFIG_FILE: Final = "/etc/sonic/config_db.json"
CHECKPOINTS: Final = "/etc/sonic/checkpoints"
CHECKPOINT_SUFFIX: Final = ".cp.json"

_CHECKPOINT_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_GENERATOR: Final = "/usr/local/bin/sonic-cfggen"

SonicProcess: TypeAlias = "Process[SonicDevice]"
Options = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Command:
    """One word after `config`: what it does with its operand and its options, and which it has."""

    run: Callable[[SonicProcess, str, Options], CommandResult]
    operand: str
    """What its help calls it; empty where it takes none."""
    flags: str
    valued: str = ""
    default: str = ""
    """The operand where none is given; without a default it must be."""
    question: str = ""
    """What it asks unless there is `-y`."""
    purpose: str = ""
    """What it says that it failed to do, if that is not its name."""


class _AbortedError(Exception):
    """As click ends after such a text, also at a question that nobody answers."""


def config(process: SonicProcess) -> CommandResult:
    """Run one `config` command line."""
    if not process.is_root:
        return failure("Root privileges are required for this operation\n")
    name, *arguments = process.arguments or [""]
    command = _COMMANDS.get(name)
    if command is None:
        return failure(f'{_usage("COMMAND [ARGS]...", "")}\nError: No such command "{name}".\n', 2)
    usage = _usage("[ARGS]...", f" {name}")
    try:
        chosen, operands = options(arguments, command.flags, command.valued)
        operand = _operand(command, operands)
        if command.question and "-y" not in chosen:
            raise _AbortedError(f"{command.question.format(operand)} [y/N]: ")  # noqa: TRY301
        return command.run(process, operand, chosen)
    except _AbortedError as error:
        return CommandResult(f"{error}\n".encode(), b"Aborted!\n", 1)
    except UsageError as error:
        return failure(f"{usage}\nError: {error}\n", 2)
    except (UpdateError, FileError) as error:
        title, text = f"Failed to {command.purpose or name}", str(error)
        if name == "apply-patch":
            text = f"Failed to apply patch on the following scopes:\n- localhost: {error}"
            title = f"{title} due to: {text}"
        return failure(f"{title}\n{usage}\nError: {text}\n", 2)


def _operand(command: _Command, operands: Sequence[str]) -> str:
    if command.operand and not (operands or command.default):
        raise UsageError(f'Missing argument "{command.operand}".')
    if extra := operands[bool(command.operand) :]:
        raise UsageError(f"Got unexpected extra argument ({' '.join(extra)})")
    return operands[0] if operands else command.default


def _usage(operands: str, command: str) -> str:
    return f'Usage: config{command} [OPTIONS] {operands}\nTry "config{command} -h" for help.\n'


def _replace_database(
    process: SonicProcess, target: Database, chosen: Options, said: str, log: str = ""
) -> CommandResult:
    """What a command does that has checked its target: the target runs, unless the command is a dry run."""
    if "-d" in chosen:
        log = f"** DRY RUN EXECUTION **\n{log}"
    else:
        process.device.config_db = target
    return output(f"{log}{process.coloured(said)}\n")


def _apply_patch(process: SonicProcess, path: str, chosen: Options) -> CommandResult:
    wanted = chosen.get("-f", ["CONFIGDB"])[-1]
    if wanted != "CONFIGDB":
        raise UsageError(
            f"invalid choice: {wanted}. (choose from CONFIGDB; SONICYANG is not emulated) [emulator]"
        )
    patch = parse_patch(process.read(path))
    target = patched(process.device.config_db, patch, process.device.build, chosen.get("-i", ()))
    text = json.dumps(patch.patch)
    lines = ("Patch application starting.", f"Patch: {text}", "patch application completed.")
    log = "".join(f"Patch Applier: localhost: {line}\n" for line in lines)
    return _replace_database(process, target, chosen, "Patch applied successfully.", log)


def _replace(process: SonicProcess, path: str, chosen: Options) -> CommandResult:
    target = as_database(parse(process.read(path)))
    check_transition(process.device.config_db, target, process.device.build, chosen.get("-i", ()))
    return _replace_database(process, target, chosen, "Config replaced successfully.")


def _load(process: SonicProcess, path: str, _chosen: Options) -> CommandResult:
    try:
        text = process.read(path)
    except FileError:
        return output(f"The config_db file {path} doesn't exist\n")
    merged = copy.deepcopy(process.device.config_db)
    for table, entries in as_database(parse(text)).items():
        for key, fields in entries.items():
            merged.setdefault(table, {}).setdefault(key, {}).update(fields)
    for refusal in sonic_orchagent.refusals(process.device.config_db, merged):
        raise UpdateError(refusal)
    process.device.config_db = merged
    return output(f"Running command: {_GENERATOR} -j {path} --write-to-db\n")


def _save(process: SonicProcess, path: str, _chosen: Options) -> CommandResult:
    try:
        process.write(path, process.device.print_data().encode())
    except FileError as error:
        return failure(f"/bin/sh: 1: cannot create {path}: {error.strerror}\n", 2)
    return output(f"Running command: {_GENERATOR} -d --print-data > {path}\n")


def _reload(process: SonicProcess, path: str, _chosen: Options) -> CommandResult:
    try:
        target = as_database(parse(process.read(path)))
    except FileError:
        raise _AbortedError(f"The config file {path} doesn't exist") from None
    except UpdateError as error:
        raise _AbortedError(f"Failed to read config file {path}: {error}") from None
    for problem in (*sonic_yang.problems(target), *sonic_orchagent.refusals({}, target)):
        raise _AbortedError(f"Invalid config file:'{path}'!\n{problem}")
    process.device.config_db = target
    process.device.restarts += 1
    return output(
        f"Running command: {_GENERATOR} -j {path} --write-to-db\nRestarting SONiC target ... [emulator]\n"
    )


def _checkpoint_path(process: SonicProcess, name: str, *, exists: bool) -> str:
    path = f"{CHECKPOINTS}/{name}{CHECKPOINT_SUFFIX}"
    if not _CHECKPOINT_NAME.fullmatch(name):
        raise UpdateError(f"Checkpoint name '{name}' is no file name [emulator]")
    if exists and not process.device.files.exists(path):
        raise UpdateError(f"Checkpoint '{name}' does not exist")
    return path


def _checkpoint(process: SonicProcess, name: str, _chosen: Options) -> CommandResult:
    process.write(_checkpoint_path(process, name, exists=False), process.device.print_data().encode())
    return output(process.coloured("Checkpoint created successfully.") + "\n")


def _rollback(process: SonicProcess, name: str, chosen: Options) -> CommandResult:
    target = as_database(parse(process.read(_checkpoint_path(process, name, exists=True))))
    check_transition(process.device.config_db, target, process.device.build, chosen.get("-i", ()))
    return _replace_database(process, target, chosen, "Config rolled back successfully.")


def _delete_checkpoint(process: SonicProcess, name: str, _chosen: Options) -> CommandResult:
    process.device.files.remove(_checkpoint_path(process, name, exists=True), as_root=True)
    return output(process.coloured("Checkpoint deleted successfully.") + "\n")


def _list_checkpoints(process: SonicProcess, _operand: str, _chosen: Options) -> CommandResult:
    return output(json.dumps(process.device.checkpoints, indent=4) + "\n")


_VERBOSE, _DRY, _IGNORE, _YES = "-v/--verbose", "-d/--dry-run", "-i/--ignore-path", "-y/--yes"
_NAME: Final = "CHECKPOINT_NAME"
_COMMANDS: Final[Mapping[str, _Command]] = {
    "apply-patch": _Command(
        _apply_patch, "PATCH_FILE_PATH", f"{_VERBOSE} {_DRY}", f"-f/--format {_IGNORE}", purpose="apply patch"
    ),
    "replace": _Command(_replace, "TARGET_FILE_PATH", "-v -d", _IGNORE, purpose="replace config"),
    "load": _Command(_load, "FILENAME", _YES, "", CONFIG_FILE, "Load config from the file(s) {} ?"),
    "save": _Command(
        _save, "FILENAME", _YES, "", CONFIG_FILE, "Existing files will be overwritten, continue?"
    ),
    "reload": _Command(
        *(_reload, "FILENAME", f"{_YES} -f/--force", "", CONFIG_FILE),
        "Clear current config and reload config in config_db format from the file(s) ?",
    ),
    "checkpoint": _Command(_checkpoint, _NAME, _VERBOSE, purpose="create a config checkpoint"),
    "rollback": _Command(_rollback, _NAME, f"{_VERBOSE} {_DRY}", _IGNORE, purpose="rollback config"),
    "delete-checkpoint": _Command(_delete_checkpoint, _NAME, _VERBOSE, purpose="delete config checkpoint"),
    "list-checkpoints": _Command(_list_checkpoints, "", _VERBOSE),
}
