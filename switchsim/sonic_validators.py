"""What the validators of each SONiC release's configuration updater let a patch change.

The facts are those of sonic-net/sonic-utilities, one branch a release: generic_config_updater's
field_operation_validators.py and gcu_field_operation_validators.conf.json. A field may change
where the rule of its release for its table names it. Tables without a rule may change freely. Releases before
202205, and 202211, have no rules at all. Left out: PORT and PFC_WD, and families of chips that no simulated
box has.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

NEWEST: Final = "master"
RELEASES: Final = (
    *("202205", "202211", "202305", "202311", "202405", "202411", "202505", "202511", "202605"),
    NEWEST,
)
"""Branches that have been read, oldest first."""
Operation = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Rule:
    """What may change of one table in the releases `first` to `last`; a rule with no fields lets nothing."""

    table: str
    first: str
    last: str
    fields: frozenset[str]
    """Fields whose values may be replaced: `ENTRY/FIELD` in lower case, the parts with digits left out."""
    any_entry: bool = False
    """Whether `fields` are names of fields alone, whatever the entry's name is."""
    whole_entries: frozenset[str] = field(default_factory=frozenset)
    """Operations that a whole entry may undergo, whatever its fields are."""
    broadcom_since: Mapping[str, str] = field(default_factory=dict)
    """Field → first dated build (YYYYMMDD) that lets it change on a Broadcom chip."""


_POOL: Final = ("ingress_lossless_pool/xoff", "ingress_lossless_pool/size", "egress_lossy_pool/size")
_PROFILE: Final = frozenset({"dynamic_th", "xoff"})
_ECN: Final = ("green_min_threshold", "green_max_threshold", "green_drop_probability")
_HEADROOM: Final = "20221100"
RULES: Final = (
    Rule("BUFFER_POOL", "202205", "202505", frozenset(_POOL), broadcom_since=dict.fromkeys(_POOL, _HEADROOM)),
    Rule("BUFFER_POOL", "202511", NEWEST, frozenset()),
    Rule("BUFFER_PROFILE", "202205", "202505", _PROFILE, broadcom_since={"xoff": _HEADROOM}),
    Rule(
        "BUFFER_PROFILE",
        "202511",
        NEWEST,
        _PROFILE,
        any_entry=True,
        whole_entries=frozenset({"add", "remove", "replace"}),
        broadcom_since={"xoff": _HEADROOM},
    ),
    Rule("WRED_PROFILE", "202205", "202411", frozenset(f"azure_lossless/{name}" for name in _ECN)),
    Rule("WRED_PROFILE", "202505", "202505", frozenset(_ECN), any_entry=True),
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

_BRANCH: Final = re.compile(r"(?:^|[.\-_])(20[12]\d(?:0\d|1[0-2]))(?:\d\d)?(?=[.\-_]|$)")
_DATED: Final = re.compile(r"(?:^|\.)(\d{8})(?=\.|$)")


def release_of(build: str) -> str | None:
    """The release whose rules a build has: the newest that is not after it; empty before all of them.

    None for one of which this table knows nothing: a vendor's own name, a newer release, or master.
    """
    found = _BRANCH.search(build)
    if found is None or found[1] > RELEASES[-2]:
        return None
    return max((release for release in RELEASES[:-1] if release <= found[1]), default="")


def refusals(patch: Iterable[Operation], build: str, hwsku: str | None) -> tuple[str, ...]:
    """What of an RFC 6902 patch the updater of this build refuses on this hardware, in the patch's order.

    The updater judges the difference that a patch makes, not its wording: see `differences_made`. `hwsku` is
    None for hardware that is not to be judged, because this table knows none of its family.
    """
    release = release_of(build)
    release = NEWEST if release is None else release
    return tuple(
        f"{operation['op']} of {'|'.join(_parts(operation))}"
        for operation in patch
        for rule in RULES
        if rule.table == _parts(operation)[0]
        and release not in _WITHOUT_RULES
        and RELEASES.index(rule.first) <= RELEASES.index(release) <= RELEASES.index(rule.last)
        and not _lets(rule, operation, release, build, hwsku)
    )


def _parts(operation: Operation) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in str(operation["path"]).split("/")[1:]]


def _lets(rule: Rule, operation: Operation, release: str, build: str, hwsku: str | None) -> bool:
    entry = _parts(operation)[1:]
    if len(entry) == 1 and operation["op"] in rule.whole_entries:
        return True
    maker = "" if hwsku is None else _maker(hwsku, release)
    if maker is None or operation["op"] != "replace":
        return False
    dated = _DATED.search(build)
    place = "/".join(part for part in entry if not re.search(r"\d", part) or rule.any_entry).lower()
    value = operation.get("value")
    names = [f"{place}/{name}".lstrip("/") for name in value] if isinstance(value, Mapping) else [place]
    for name in names:
        allowed = name.rpartition("/")[2] if rule.any_entry else name
        is_early = maker == "broadcom" and dated and dated[1] < rule.broadcom_since.get(allowed, "")
        if allowed not in rule.fields or is_early:
            return False
    return True


def _maker(hwsku: str, release: str) -> str | None:
    """Of the chip in hardware that the release lists; on hardware that it does not, no field may change."""
    for maker, table in (("mellanox", _MELLANOX), ("broadcom", _BROADCOM)):
        for first, names in table.items():
            for name in names.lower().split() if first <= release else ():
                if name == hwsku.lower() or (maker == "broadcom" and name in hwsku.lower()):
                    return maker
    return None
