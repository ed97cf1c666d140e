"""SONiC's generic configuration updater: RFC 6902 patches, checked and applied whole or not at all.

Order of the checks, rules and texts follow generic_config_updater of sonic-utilities (generic_updater.py,
gu_common.py); what the validators of a release let change says sonic_validators.py. Not
emulated: the search for an order of small steps, the SONICYANG format, several ASICs.
"""

import json
from collections.abc import Collection, Iterable
from typing import Final

import jsonpatch
import jsonpointer

from switchsim import sonic_orchagent, sonic_yang
from switchsim.sonic_validators import refusals
from switchsim.sonic_yang import Database, Entry, FieldValue

MAX_OPERATIONS: Final = 100_000
_JUDGED_WHOLE: Final = "202405"
"""The first release whose `apply-patch` has the models judge the whole result, ignored places, too."""

_VALIDATORS: Final = "generic_config_updater.field_operation_validators"
_FUNCTIONS: Final = {
    "BUFFER_PROFILE": "buffer_profile_config_update_validator",
    "WRED_PROFILE": "wred_profile_config_update_validator",
}
"""Validators with a name of their own, in the newest release that has them."""


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


def patched(
    current: Database, patch: jsonpatch.JsonPatch, build: str, ignored: Collection[str] = ()
) -> Database:
    """The database after the patch, checked as the updater of this build checks; raises UpdateError."""
    try:
        target = patch.apply(current)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError) as error:
        raise UpdateError(str(error)) from None
    checked = as_database(target)
    check_transition(current, checked, build, ignored)
    if build >= _JUDGED_WHOLE and any(sonic_yang.problems(checked)):
        raise UpdateError(f"Failed validating patch: {patch}")
    return checked


def check_transition(current: Database, target: Database, build: str, ignored: Collection[str] = ()) -> None:
    """Refuse what the updater's validators, the YANG models or orchagent refuse; raises UpdateError.

    What the current configuration breaks already, the updater refuses to change: it looks there for what
    refers to a place that goes (patch_sorter.py, NoDependencyMoveValidator). The ignored places are judged in
    neither (IgnorePathsFromYangConfigSplitter).
    """
    for operation in jsonpatch.JsonPatch.from_diff(current, target):
        _check_operation(operation, _hardware(current), build)
    empty = [table for table, entries in target.items() if not entries]
    if empty:
        raise UpdateError(
            "given patch is not valid because it will result in empty tables "
            f"which is not allowed in ConfigDb. Table{'s' if len(empty) != 1 else ''}: {', '.join(empty)}"
        )
    _refuse(
        "Given patch will produce invalid config. Error: Data Loading Failed\n",
        sonic_yang.problems(_without(target, ignored)),
    )
    if current != target:
        _refuse("Data Loading Failed\n", sonic_yang.problems(_without(current, ignored)))
    _refuse("", sonic_orchagent.refusals(current, target))


def _without(database: Database, places: Collection[str]) -> Database:
    pointers = [
        [part.replace("~1", "/").replace("~0", "~") for part in place.split("/")[1:]] for place in places
    ]
    return {
        table: {key: fields for key, fields in entries.items() if [table, key] not in pointers}
        for table, entries in database.items()
        if [table] not in pointers
    }


def _refuse(title: str, problems: Iterable[str]) -> None:
    for problem in problems:
        raise UpdateError(title + problem)


def _hardware(database: Database) -> str:
    return str(database.get("DEVICE_METADATA", {}).get("localhost", {}).get("hwsku", ""))


def _check_operation(operation: dict[str, object], hardware: str, build: str) -> None:
    if refusals([operation], build, hardware):
        table = str(operation["path"]).split("/")[1]
        function = f"{_VALIDATORS}.{_FUNCTIONS.get(table, 'rdma_config_update_validator')}"
        raise UpdateError(
            f"Modification of {table} table is illegal- validating function {function} returned False"
        )


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
