"""What the configuration updater of each SONiC release lets a patch change.

The facts are those of sonic-net/sonic-utilities, one branch a release, in generic_config_updater/:
field_operation_validators.py and gcu_field_operation_validators.conf.json. A field may change where the
release's rule for its table names it. Tables without a rule may change freely. Releases before 202205, and
202211, have no rules at all. Left out is what no patch of mltswitch's touches, PORT, PFC_WD, pools and
headroom, and families of chips that no supported model has.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

NEWEST: Final = "master"
RELEASES: Final = (
    *("202205", "202211", "202305", "202311", "202405", "202411", "202505", "202511", "202605"),
    NEWEST,
)
"""Names of the release branches whose rules have been read, oldest first."""
Operation = Mapping[str, object]


class Rule(NamedTuple):
    """What may change in one table in the releases `first` to `last`; without fields, nothing may."""

    table: str
    first: str
    last: str
    fields: frozenset[str]
    """Fields whose values may be replaced: `ENTRY/FIELD` in lower case, the parts with digits left out."""
    any_entry: bool = False
    """Whether `fields` are bare field names, valid for entries of any name."""
    whole_entries: bool = False
    """Whether a whole entry may be added, removed and replaced, whatever its fields are."""


_SHARE: Final = frozenset({"dynamic_th"})
_ECN: Final = frozenset({"green_min_threshold", "green_max_threshold", "green_drop_probability"})
RULES: Final = (
    Rule("BUFFER_POOL", "202205", NEWEST, frozenset()),
    Rule("BUFFER_PROFILE", "202205", "202505", _SHARE),
    Rule("BUFFER_PROFILE", "202511", NEWEST, _SHARE, any_entry=True, whole_entries=True),
    Rule("WRED_PROFILE", "202205", "202411", frozenset(f"azure_lossless/{name}" for name in _ECN)),
    Rule("WRED_PROFILE", "202505", "202505", _ECN, any_entry=True),
)
_WITHOUT_RULES: Final = frozenset({"", "202211"})

_MELLANOX: Final[Mapping[str, str]] = {
    "202205": "ACS-MSN2010 ACS-MSN2100 ACS-MSN2410 ACS-MSN2700 ACS-MSN2740 Mellanox-SN2700 "
    "Mellanox-SN2700-D48C8 ACS-MSN3800 Mellanox-SN3800-D112C8",
    "202305": "ACS-MSN2700-A1 Mellanox-SN2700-A1 Mellanox-SN2700-A1-C28D8 Mellanox-SN2700-A1-D40C8S8 "
    "Mellanox-SN2700-A1-D44C10 Mellanox-SN2700-A1-D48C8 Mellanox-SN2700-C28D8 Mellanox-SN2700-D40C8S8 "
    "Mellanox-SN2700-D44C10 ACS-MSN3420 ACS-MSN3700 ACS-MSN3700C Mellanox-SN3800-C64 "
    "Mellanox-SN3800-D100C12S2 Mellanox-SN3800-D24C52 Mellanox-SN3800-D28C49S1 Mellanox-SN3800-D28C50",
}
"""Release → hwskus with Spectrum and Spectrum-2 chips that it is the first to list."""
_BROADCOM: Final[Mapping[str, str]] = {
    "202205": "Force10-S6100 Arista-7060CX-32S-C32 Arista-7060CX-32S-D48C8 Celestica-DX010-C32 "
    "Seastone-DX010 Arista-7260CX3-C64 Arista-7260CX3-D108C8 Arista-7260CX3-Q64 Arista-7050CX3-32S-C32 "
    "Arista-7050CX3-32S-D48C8",
    "202405": "Arista-7260CX3-D108C10 Arista-7050CX3-32S-C28S4",
    "202505": "Arista-7050CX3-32C-C32",
    "202511": "Arista-7260CX3-Q44",
    "202605": "Arista-7050CX3-32C-C28S4",
}
"""The same with Tomahawk, Tomahawk 2 and Trident 3 chips; names that contain one are listed, too."""

_BUILD_FILE_LINE: Final = re.compile(r"^build_version:\s*['\"]?([^'\"\s]+)", re.MULTILINE)
_BRANCH: Final = re.compile(r"(?:^|[.\-_])(20[12]\d(?:0\d|1[0-2]))(?:\d\d)?(?=[.\-_]|$)")


def build_of(version_file: str) -> str:
    """The build that `/etc/sonic/sonic_version.yml` names; empty where it names none."""
    found = _BUILD_FILE_LINE.search(version_file)
    return found[1] if found else ""


def release_of(build: str) -> str | None:
    """The release whose rules a build has: the newest that is not after it; empty: the build is older than
    all.

    None for one of which this table knows nothing: a vendor's own name, a newer release, or master.
    """
    found = _BRANCH.search(build)
    if found is None or found[1] > RELEASES[-2]:
        return None
    return max((release for release in RELEASES[:-1] if release <= found[1]), default="")


def refusals(patch: Iterable[Operation], build: str, hwsku: str | None) -> tuple[str, ...]:
    """The operations of an RFC 6902 patch, in order, that this build's updater refuses on this hardware.

    The updater judges the difference that a patch makes, not its wording: see `differences_made`. `hwsku` is
    None for hardware that is not to be judged, because this table knows none of its family.
    """
    known = release_of(build)
    release = NEWEST if known is None else known
    if release in _WITHOUT_RULES:
        return ()
    place = RELEASES.index(release)
    rules = [rule for rule in RULES if RELEASES.index(rule.first) <= place <= RELEASES.index(rule.last)]
    is_listed = hwsku is None or _is_listed(hwsku.lower(), release)
    return tuple(
        f"{operation['op']} of {'|'.join(_parts(operation))}"
        for operation in patch
        for rule in rules
        if rule.table == _parts(operation)[0] and not _lets(rule, operation, is_listed=is_listed)
    )


def differences_made(
    patch: Iterable[Operation], before: Mapping[str, Mapping[str, object]]
) -> Iterator[Operation]:
    """The patch with each replaced entry turned into operations on the fields that change."""
    for operation in patch:
        table, *rest = _parts(operation)
        old, new = before.get(table, {}).get(rest[0]) if rest else None, operation.get("value")
        if len(rest) != 1 or not isinstance(old, Mapping) or not isinstance(new, Mapping):
            yield operation
            continue
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                verb = "remove" if name not in new else "replace" if name in old else "add"
                yield {"op": verb, "path": f"{operation['path']}/{name}", "value": new.get(name)}


def first_to_accept(patch: Iterable[Operation], hwsku: str | None) -> str | None:
    """The release from which on, up to the newest, none refuses the patch; None where the newest does."""
    operations, found = list(patch), None
    for release in reversed(RELEASES):
        if refusals(operations, release, hwsku):
            break
        found = release
    return found


def _parts(operation: Operation) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in str(operation["path"]).split("/")[1:]]


def _lets(rule: Rule, operation: Operation, *, is_listed: bool) -> bool:
    entry = _parts(operation)[1:]
    if rule.whole_entries and len(entry) == 1 and operation["op"] in {"add", "remove", "replace"}:
        return True
    place = "/".join(part for part in entry if not re.search(r"\d", part) or rule.any_entry).lower()
    value = operation.get("value")
    names = [f"{place}/{name}".lstrip("/") for name in value] if isinstance(value, Mapping) else [place]
    fields = {name.rpartition("/")[2] if rule.any_entry else name for name in names}
    return is_listed and operation["op"] == "replace" and fields <= rule.fields


def _is_listed(hwsku: str, release: str) -> bool:
    """Whether the release lists the hardware, in lower case; on any other, no field may change."""
    mellanox, broadcom = (
        [name for first, names in table.items() if first <= release for name in names.lower().split()]
        for table in (_MELLANOX, _BROADCOM)
    )
    return hwsku in mellanox or any(name in hwsku for name in broadcom)
