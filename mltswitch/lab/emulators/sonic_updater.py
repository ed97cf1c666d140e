"""SONiC's generic configuration updater: RFC 6902 patches, checked and applied whole or not at all.

Order of the checks, rules and texts follow generic_config_updater of sonic-utilities (generic_updater.py,
gu_common.py, field_operation_validators.py). Not emulated: the search for an order of small steps, the
SONICYANG format, several ASICs.
"""

import json
from collections.abc import Iterable
from typing import Final

import jsonpatch
import jsonpointer

from mltswitch.lab.emulators import sonic_orchagent, sonic_yang
from mltswitch.lab.emulators.sonic_yang import Database, Entry, FieldValue

MAX_OPERATIONS: Final = 100_000

_VALIDATORS: Final = "generic_config_updater.field_operation_validators"
_TUNABLE_SKUS: Final = frozenset(
    {
        *("ACS-MSN2700", "ACS-MSN2740", "ACS-MSN2100", "ACS-MSN2410", "ACS-MSN2010"),
        *("Mellanox-SN2700", "Mellanox-SN2700-C28D8", "Mellanox-SN2700-D40C8S8", "Mellanox-SN2700-D44C10"),
        *("ACS-MSN3700", "ACS-MSN3700C", "Arista-7060CX-32S-C32", "Arista-7260CX3-C64"),
        *("Arista-7050CX3-32S-C32", "Arista-7050CX3-32S-D48C8"),
    }
)
"""Some of the hardware for which the updater allows single fields of a buffer profile."""
_TUNABLE_FIELDS: Final = frozenset({"dynamic_th", "xoff"})


class UpdateError(Exception):
    """The updater refuses; the text is what it prints."""


def parse_patch(text: bytes) -> jsonpatch.JsonPatch:
    """A patch from JSON; raises UpdateError."""
    try:
        operations = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UpdateError(str(error)) from None
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise UpdateError("a patch is a list of operations [emulator]")
    if len(operations) > MAX_OPERATIONS:
        raise UpdateError(f"more than {MAX_OPERATIONS} operations [emulator]")
    if any(each.get("path") in {"", None} for each in operations):
        raise UpdateError("Wrong patch with empty path.")
    try:
        return jsonpatch.JsonPatch(operations)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError) as error:
        raise UpdateError(str(error)) from None


def patched(current: Database, patch: jsonpatch.JsonPatch) -> Database:
    """The database after the patch, checked as the updater checks; raises UpdateError."""
    try:
        target = patch.apply(current)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError) as error:
        raise UpdateError(str(error)) from None
    checked = as_database(target)
    check_transition(current, checked)
    return checked


def check_transition(current: Database, target: Database) -> None:
    """Refuse what the updater's validators, the YANG models or orchagent refuse; raises UpdateError."""
    for operation in jsonpatch.JsonPatch.from_diff(current, target):
        _check_operation(operation, _hardware(current))
    empty = [table for table, entries in target.items() if not entries]
    if empty:
        raise UpdateError(
            "given patch is not valid because it will result in empty tables "
            f"which is not allowed in ConfigDb. Table{'s' if len(empty) != 1 else ''}: {', '.join(empty)}"
        )
    _refuse(
        "Given patch will produce invalid config. Error: Data Loading Failed\n", sonic_yang.problems(target)
    )
    _refuse("", sonic_orchagent.refusals(current, target))


def _refuse(title: str, problems: Iterable[str]) -> None:
    for problem in problems:
        raise UpdateError(title + problem)


def _hardware(database: Database) -> str:
    return str(database.get("DEVICE_METADATA", {}).get("localhost", {}).get("hwsku", ""))


def _check_operation(operation: dict[str, object], hardware: str) -> None:
    """BUFFER_POOL may not change; of BUFFER_PROFILE only whole entries, or some fields on known hardware."""
    table, *rest = jsonpointer.JsonPointer(str(operation["path"])).parts
    verb = operation["op"]
    if table == "BUFFER_POOL":
        raise UpdateError(_illegal(table, "rdma_config_update_validator"))
    if table == "BUFFER_PROFILE":
        is_whole_entry = len(rest) == 1 and verb in {"add", "remove", "replace"}
        is_tunable = len(rest) == 2 and rest[1] in _TUNABLE_FIELDS and verb == "replace"
        if not is_whole_entry and not (is_tunable and hardware in _TUNABLE_SKUS):
            raise UpdateError(_illegal(table, "buffer_profile_config_update_validator"))


def _illegal(table: str, function: str) -> str:
    validator = f"validating function {_VALIDATORS}.{function}"
    return f"Modification of {table} table is illegal- {validator} returned False"


def as_database(document: object) -> Database:
    """Check the form table → key → field → text or list of texts; raises UpdateError."""
    if not isinstance(document, dict):
        raise UpdateError("a configuration is an object of tables [emulator]")
    database: Database = {}
    for table, entries in document.items():
        if not isinstance(entries, dict):
            raise UpdateError(f"{table} is no table [emulator]")
        database[table] = {key: _as_entry(f"{table}|{key}", fields) for key, fields in entries.items()}
    return database


def _as_entry(where: str, fields: object) -> Entry:
    if not isinstance(fields, dict):
        raise UpdateError(f"{where} has no fields [emulator]")
    return {name: _as_value(f"{where} {name}", value) for name, value in fields.items()}


def _as_value(where: str, value: object) -> FieldValue:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return list(value)
    raise UpdateError(f"{where} is no text [emulator]")
