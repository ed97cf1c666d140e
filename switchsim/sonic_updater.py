"""SONiC's generic configuration updater: RFC 6902 patches, checked and applied whole or not at all.

Order of the checks, rules and texts follow generic_config_updater of sonic-utilities (generic_updater.py,
gu_common.py). Not emulated: the search for an order of small steps, the SONICYANG format, several ASICs.

The rules of what a patch may change in each release come from field_operation_validators.py and
gcu_field_operation_validators.conf.json of sonic-utilities, one branch a release. Tables without a rule may
change freely. Releases before 202205, and 202211, have no rules at all. Left out: PORT and PFC_WD, and
families of chips that no simulated box has.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonpatch
import jsonpointer

from switchsim import sonic_orchagent, sonic_yang
from switchsim.sonic_yang import Database

MAX_OPERATIONS: Final = 100_000
_JUDGED_WHOLE: Final = "202405"
"""The first release whose `apply-patch` has the models judge the whole result, ignored places, too."""


class UpdateError(Exception):
    """The updater refuses a patch or a file; the text is what it prints."""


def parse(text: bytes) -> object:
    """Parse JSON; raises UpdateError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UpdateError(str(error)) from None


def parse_patch(text: bytes) -> jsonpatch.JsonPatch:
    """Parse a JSON Patch (RFC 6902); raises UpdateError."""
    operations = parse(text)
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
    """The new database after a patch that this build's updater accepts; raises UpdateError."""
    try:
        target = as_database(patch.apply(current))
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError, KeyError) as error:
        raise UpdateError(str(error)) from None
    check_transition(current, target, build, ignored)
    if build >= _JUDGED_WHOLE and any(sonic_yang.problems(target)):
        raise UpdateError(f"Failed validating patch: {patch}")
    return target


def check_transition(current: Database, target: Database, build: str, ignored: Collection[str] = ()) -> None:
    """Refuse what the updater's validators, the YANG models or orchagent refuse; raises UpdateError.

    If the current configuration breaks the models already, the updater refuses any change: it searches there
    for references to a removed place (patch_sorter.py, NoDependencyMoveValidator). The ignored places are
    checked in neither configuration (IgnorePathsFromYangConfigSplitter).
    """
    hwsku = str(current.get("DEVICE_METADATA", {}).get("localhost", {}).get("hwsku", ""))
    for operation in jsonpatch.JsonPatch.from_diff(current, target):
        table = _pointer(operation["path"])[0]
        if not lets(operation, build, hwsku):
            raise UpdateError(
                f"Modification of {table} table is illegal- validating function {_VALIDATORS}."
                f"{_FUNCTIONS.get(table, 'rdma')}_config_update_validator returned False"
            )
    empty = [table for table, entries in target.items() if not entries]
    if empty:
        raise UpdateError(
            "given patch is not valid because it will result in empty tables "
            f"which is not allowed in ConfigDb. Table{'s' if len(empty) != 1 else ''}: {', '.join(empty)}"
        )
    title = "Given patch will produce invalid config. Error: Data Loading Failed\n"
    _refuse(title, sonic_yang.problems(_without(target, ignored)))
    if current != target:
        _refuse("Data Loading Failed\n", sonic_yang.problems(_without(current, ignored)))
    _refuse("", sonic_orchagent.refusals(current, target))


def _refuse(title: str, problems: Iterable[str]) -> None:
    for problem in problems:
        raise UpdateError(title + problem)


def _without(database: Database, places: Collection[str]) -> Database:
    pointers = [_pointer(place) for place in places]
    return {
        table: {key: fields for key, fields in entries.items() if [table, key] not in pointers}
        for table, entries in database.items()
        if [table] not in pointers
    }


def _pointer(path: str) -> list[str]:
    """The parts of a JSON pointer (RFC 6901)."""
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def as_database(document: object) -> Database:
    """Check that a document is a database: table → key → field → text or texts; raises UpdateError."""
    if not isinstance(document, dict):
        raise UpdateError("a configuration is an object of tables [emulator]")
    for table, entries in document.items():
        if not isinstance(entries, dict):
            raise UpdateError(f"{table} is no table [emulator]")
        for key, fields in entries.items():
            if not isinstance(fields, dict):
                raise UpdateError(f"{table}|{key} has no fields [emulator]")
            for name, value in fields.items():
                texts = value if isinstance(value, list) else [value]
                if not all(isinstance(each, str) for each in texts):
                    raise UpdateError(f"{table}|{key} {name} is no text [emulator]")
    return document


# --- the validators of each release ------------------------------------------------------------------------

_VALIDATORS: Final = "generic_config_updater.field_operation_validators"
_FUNCTIONS: Final = {"BUFFER_PROFILE": "buffer_profile", "WRED_PROFILE": "wred_profile"}
"""Validators with a name of their own, in the newest release that has them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a patch may change in one table, from one release on and before another."""

    table: str
    first: str
    before: str
    fields: Collection[str] = ()
    """Fields whose values may be replaced: `ENTRY/FIELD` in lower case, digits left out, `*` for any
    entry."""
    whole_entries: Collection[str] = ()
    """Patch operations (such as "add") that are allowed on a whole entry, whatever its fields are."""


_LATER: Final = "~"
"""Sorts behind the names of all releases, master, too."""
_POOL: Final = ("ingress_lossless_pool/xoff", "ingress_lossless_pool/size", "egress_lossy_pool/size")
_ECN: Final = ("green_min_threshold", "green_max_threshold", "green_drop_probability")
_ANY_OPERATION: Final = ("add", "remove", "replace")
RULES: Final = (
    Rule("BUFFER_POOL", "202205", "202511", _POOL),
    Rule("BUFFER_POOL", "202511", _LATER),
    Rule("BUFFER_PROFILE", "202205", "202511", ("dynamic_th", "xoff")),
    Rule("BUFFER_PROFILE", "202511", _LATER, ("*/dynamic_th", "*/xoff"), _ANY_OPERATION),
    Rule("WRED_PROFILE", "202205", "202505", tuple(f"azure_lossless/{name}" for name in _ECN)),
    Rule("WRED_PROFILE", "202505", "202511", tuple(f"*/{name}" for name in _ECN)),
)
_WITHOUT_RULES: Final = ("202211", "202305")
"""From the first of these releases on, before the second."""
_SINCE: Final = "20221100"
"""The first dated build (YYYYMMDD) that lets the next fields change on a Broadcom chip."""
_LATE_ON_BROADCOM: Final = frozenset({*_POOL, "xoff", "*/xoff"})

_HARDWARE: Final[Mapping[str, Mapping[str, str]]] = {
    "mellanox": {
        "202205": "ACS-MSN2010 ACS-MSN2100 ACS-MSN2410 ACS-MSN2700 ACS-MSN2740 Mellanox-SN2700 "
        "Mellanox-SN2700-D48C8 ACS-MSN3800 Mellanox-SN3800-D112C8",
        "202305": "ACS-MSN2700-A1 Mellanox-SN2700-A1 Mellanox-SN2700-A1-C28D8 Mellanox-SN2700-A1-D40C8S8 "
        "Mellanox-SN2700-A1-D44C10 Mellanox-SN2700-A1-D48C8 Mellanox-SN2700-C28D8 Mellanox-SN2700-D40C8S8 "
        "Mellanox-SN2700-D44C10 ACS-MSN3420 ACS-MSN3700 ACS-MSN3700C Mellanox-SN3800-C64 "
        "Mellanox-SN3800-D100C12S2 Mellanox-SN3800-D24C52 Mellanox-SN3800-D28C49S1 Mellanox-SN3800-D28C50",
    },
    "broadcom": {
        "202205": "Force10-S6100 Arista-7060CX-32S-C32 Arista-7060CX-32S-D48C8 Celestica-DX010-C32 "
        "Seastone-DX010 Arista-7260CX3-C64 Arista-7260CX3-D108C8 Arista-7260CX3-Q64 Arista-7050CX3-32S-C32 "
        "Arista-7050CX3-32S-D48C8",
        "202405": "Arista-7260CX3-D108C10 Arista-7050CX3-32S-C28S4",
        "202505": "Arista-7050CX3-32C-C32",
        "202511": "Arista-7260CX3-Q44",
        "202605": "Arista-7050CX3-32C-C28S4",
    },
}
"""Maker → release → hwskus that it is the first to list, with Spectrum and Spectrum-2, or Tomahawk, Tomahawk
2 and Trident 3 chips; of Broadcom's, names that contain one are listed, too."""

_BRANCH: Final = re.compile(r"(?:^|[.\-_])(20[12]\d(?:0\d|1[0-2]))(?:\d\d)?(?=[.\-_]|$)")
_DATED: Final = re.compile(r"(?:^|\.)(\d{8})(?=\.|$)")


def lets(operation: Mapping[str, Any], build: str, hwsku: str) -> bool:
    """Whether the validators of this build allow a patch operation on this hardware.

    They judge the difference that a patch makes, not its wording. A build whose name says no release (a
    vendor's own) is judged as the newest.
    """
    found = _BRANCH.search(build)
    release = "master" if found is None else found[1]
    table, *entry = _pointer(operation["path"])
    rule = next((rule for rule in RULES if rule.table == table and rule.first <= release < rule.before), None)
    if rule is None or _WITHOUT_RULES[0] <= release < _WITHOUT_RULES[1]:
        return True
    if len(entry) == 1 and operation["op"] in rule.whole_entries:
        return True
    maker = _maker(hwsku, release)
    if maker is None or operation["op"] != "replace":
        return False
    dated = _DATED.search(build)
    is_early = maker == "broadcom" and dated is not None and dated[1] < _SINCE
    may_change = {*rule.fields} - (_LATE_ON_BROADCOM if is_early else set())
    place = "/".join(part for part in entry if not re.search(r"\d", part)).lower()
    value = operation["value"]
    names = [f"{place}/{name}".lstrip("/") for name in value] if isinstance(value, Mapping) else [place]
    return all({name, f"*/{name.rpartition('/')[2]}"} & may_change for name in names)


def _maker(hwsku: str, release: str) -> str | None:
    """Of the chip in hardware that the release lists; on hardware that it does not, no field may change."""
    for maker, lists in _HARDWARE.items():
        for first, names in lists.items():
            for name in names.lower().split() if first <= release else ():
                if name == hwsku.lower() or (maker == "broadcom" and name in hwsku.lower()):
                    return maker
    return None
