"""The `config` program of an emulated SONiC switch.

Messages and exit codes follow config/main.py of sonic-utilities; texts of our own end in `[emulator]`.
As there, it demands root, `config load` merges without asking the YANG models, and `config reload` restarts
the services.
"""

import copy
import json
import re
from collections.abc import Callable, Sequence
from typing import Final

from switchsim import sonic_orchagent, sonic_yang
from switchsim.device import CommandResult
from switchsim.sonic_filesystem import FileError
from switchsim.sonic_process import Process, UsageError, failure, options, output
from switchsim.sonic_updater import (
    UpdateError,
    as_database,
    check_transition,
    parse_patch,
    patched,
)

CONFIG_FILE: Final = "/etc/sonic/config_db.json"
CHECKPOINTS: Final = "/etc/sonic/checkpoints"
CHECKPOINT_SUFFIX: Final = ".cp.json"

_CHECKPOINT_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_GENERATOR: Final = "/usr/local/bin/sonic-cfggen"
_DRY_RUN: Final = "** DRY RUN EXECUTION **\n"


def config(process: Process) -> CommandResult:
    """Run one `config` command line."""
    if not process.is_root:
        return failure("Root privileges are required for this operation\n")
    name = process.arguments[0] if process.arguments else ""
    command = _COMMANDS.get(name)
    if command is None:
        return failure(f'{_usage("COMMAND [ARGS]...", "")}\nError: No such command "{name}".\n', 2)
    try:
        return command(process, process.arguments[1:])
    except UsageError as error:
        return failure(f"{_usage('[ARGS]...', f' {name}')}\nError: {error}\n", 2)
    except UpdateError as error:
        title = _FAILURES.get(name, f"Failed to {name}")
        if name == "apply-patch":
            text = f"Failed to apply patch on the following scopes:\n- localhost: {error}"
            title = f"{title} due to: {text}"
        else:
            text = str(error)
        return failure(f"{title}\n{_usage('[ARGS]...', f' {name}')}\nError: {text}\n", 2)


_FAILURES: Final = {
    "apply-patch": "Failed to apply patch",
    "replace": "Failed to replace config",
    "rollback": "Failed to rollback config",
    "checkpoint": "Failed to create a config checkpoint",
    "delete-checkpoint": "Failed to delete config checkpoint",
}


def _usage(operands: str, command: str) -> str:
    return f'Usage: config{command} [OPTIONS] {operands}\nTry "config{command} -h" for help.\n'


def _one(operands: Sequence[str], name: str) -> str:
    if not operands:
        raise UsageError(f'Missing argument "{name}".')
    if len(operands) > 1:
        raise UsageError(f"Got unexpected extra argument ({' '.join(operands[1:])})")
    return operands[0]


def _read(process: Process, path: str) -> bytes:
    try:
        return process.read(path)
    except FileError as error:
        raise UpdateError(f"[Errno 2] {error}: '{path}'") from None


def _ignored(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(places that the YANG models are not to judge, the other arguments): `-i` may stand more than once."""
    ignored: list[str] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in {"-i", "--ignore-path"}:
            ignored.append(next(rest, ""))
        else:
            others.append(argument)
    return ignored, others


def _log(*lines: str) -> str:
    return "".join(f"Patch Applier: localhost: {line}\n" for line in lines)


def _apply_patch(process: Process, arguments: Sequence[str]) -> CommandResult:
    ignored, arguments = _ignored(arguments)
    chosen, operands = options(arguments, {"-v", "--verbose", "-d", "--dry-run"}, {"-f", "--format"})
    path = _one(operands, "PATCH_FILE_PATH")
    wanted = chosen.get("-f", chosen.get("--format", "CONFIGDB"))
    if wanted != "CONFIGDB":
        raise UsageError(
            f"invalid choice: {wanted}. (choose from CONFIGDB; SONICYANG is not emulated) [emulator]"
        )
    is_dry = not chosen.keys().isdisjoint({"-d", "--dry-run"})
    patch = parse_patch(_read(process, path))
    database = process.device.config_db
    target = patched(database, patch, process.device.build, ignored)
    if not is_dry:
        process.device.config_db = target
    return output(
        (_DRY_RUN if is_dry else "")
        + _log(
            "Patch application starting.", f"Patch: {json.dumps(patch.patch)}", "patch application completed."
        )
        + process.coloured("Patch applied successfully.")
        + "\n"
    )


def _replace(process: Process, arguments: Sequence[str]) -> CommandResult:
    ignored, arguments = _ignored(arguments)
    chosen, operands = options(arguments, {"-v", "-d"}, set())
    target = _document(_read(process, _one(operands, "TARGET_FILE_PATH")))
    check_transition(process.device.config_db, target, process.device.build, ignored)
    if "-d" in chosen:
        return output(_DRY_RUN + process.coloured("Config replaced successfully.") + "\n")
    process.device.config_db = target
    return output(process.coloured("Config replaced successfully.") + "\n")


def _document(text: bytes) -> sonic_yang.Database:
    try:
        return as_database(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise UpdateError(str(error)) from None


def _load(process: Process, arguments: Sequence[str]) -> CommandResult:
    chosen, operands = options(arguments, {"-y", "--yes"}, set())
    path = _one(operands, "FILENAME") if operands else CONFIG_FILE
    if not chosen:
        return _abort(f"Load config from the file(s) {path} ? [y/N]: ")
    try:
        text = process.read(path)
    except FileError:
        return output(f"The config_db file {path} doesn't exist\n")
    database = process.device.config_db
    merged = copy.deepcopy(database)
    for table, entries in _document(text).items():
        for key, fields in entries.items():
            merged.setdefault(table, {}).setdefault(key, {}).update(fields)
    for refusal in sonic_orchagent.refusals(database, merged):
        raise UpdateError(refusal)
    process.device.config_db = merged
    return output(f"Running command: {_GENERATOR} -j {path} --write-to-db\n")


def _abort(question: str) -> CommandResult:
    """A question that nobody answers: click aborts at the end of standard input."""
    return CommandResult(stdout=f"{question}\n".encode(), stderr=b"Aborted!\n", status=1)


def _save(process: Process, arguments: Sequence[str]) -> CommandResult:
    chosen, operands = options(arguments, {"-y", "--yes"}, set())
    path = _one(operands, "FILENAME") if operands else CONFIG_FILE
    if not chosen:
        return _abort("Existing files will be overwritten, continue? [y/N]: ")
    try:
        process.write(path, process.device.print_data().encode())
    except FileError as error:
        return failure(f"/bin/sh: 1: cannot create {path}: {error}\n", 2)
    return output(f"Running command: {_GENERATOR} -d --print-data > {path}\n")


def _reload(process: Process, arguments: Sequence[str]) -> CommandResult:
    chosen, operands = options(arguments, {"-y", "--yes", "-f", "--force"}, set())
    path = _one(operands, "FILENAME") if operands else CONFIG_FILE
    if chosen.keys().isdisjoint({"-y", "--yes"}):
        return _abort("Clear current config and reload config in config_db format from the file(s) ? [y/N]: ")
    try:
        target = _document(process.read(path))
    except FileError:
        return CommandResult(f"The config file {path} doesn't exist\n".encode(), b"Aborted!\n", 1)
    except UpdateError as error:
        return CommandResult(f"Failed to read config file {path}: {error}\n".encode(), b"Aborted!\n", 1)
    for problem in (*sonic_yang.problems(target), *sonic_orchagent.refusals({}, target)):
        text = f"Invalid config file:'{path}'!\n{problem}\n"
        return CommandResult(text.encode(), b"Aborted!\n", 1)
    process.device.config_db = target
    process.device.restarts += 1
    return output(
        f"Running command: {_GENERATOR} -j {path} --write-to-db\nRestarting SONiC target ... [emulator]\n"
    )


def _checkpoint_path(name: str) -> str:
    if not _CHECKPOINT_NAME.fullmatch(name):
        raise UpdateError(f"Checkpoint name '{name}' is no file name [emulator]")
    return f"{CHECKPOINTS}/{name}{CHECKPOINT_SUFFIX}"


def _existing_checkpoint(process: Process, name: str) -> str:
    path = _checkpoint_path(name)
    if not process.device.files.exists(path):
        raise UpdateError(f"Checkpoint '{name}' does not exist")
    return path


def _checkpoint(process: Process, arguments: Sequence[str]) -> CommandResult:
    _, operands = options(arguments, {"-v", "--verbose"}, set())
    path = _checkpoint_path(_one(operands, "CHECKPOINT_NAME"))
    try:
        process.write(path, process.device.print_data().encode())
    except FileError as error:
        raise UpdateError(f"[Errno 28] {error}: '{path}'") from None
    return output(process.coloured("Checkpoint created successfully.") + "\n")


def _rollback(process: Process, arguments: Sequence[str]) -> CommandResult:
    ignored, arguments = _ignored(arguments)
    chosen, operands = options(arguments, {"-v", "--verbose", "-d", "--dry-run"}, set())
    path = _existing_checkpoint(process, _one(operands, "CHECKPOINT_NAME"))
    target = _document(process.device.files.read(path))
    check_transition(process.device.config_db, target, process.device.build, ignored)
    is_dry = not chosen.keys().isdisjoint({"-d", "--dry-run"})
    if not is_dry:
        process.device.config_db = target
    return output((_DRY_RUN if is_dry else "") + process.coloured("Config rolled back successfully.") + "\n")


def _delete_checkpoint(process: Process, arguments: Sequence[str]) -> CommandResult:
    _, operands = options(arguments, {"-v", "--verbose"}, set())
    path = _existing_checkpoint(process, _one(operands, "CHECKPOINT_NAME"))
    process.device.files.remove(path, as_root=True)
    return output(process.coloured("Checkpoint deleted successfully.") + "\n")


def _list_checkpoints(process: Process, arguments: Sequence[str]) -> CommandResult:
    _, operands = options(arguments, {"-v", "--verbose"}, set())
    if operands:
        raise UsageError(f"Got unexpected extra argument ({' '.join(operands)})")
    return output(json.dumps(process.device.checkpoints, indent=4) + "\n")


_COMMANDS: Final[dict[str, Callable[[Process, Sequence[str]], CommandResult]]] = {
    "apply-patch": _apply_patch,
    "replace": _replace,
    "load": _load,
    "save": _save,
    "reload": _reload,
    "checkpoint": _checkpoint,
    "rollback": _rollback,
    "delete-checkpoint": _delete_checkpoint,
    "list-checkpoints": _list_checkpoints,
}
