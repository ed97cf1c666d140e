"""The emulator's YANG rules, written by hand, against SONiC's own models on random changes."""

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from switchsim import SonicDevice, sonic_yang
from switchsim.sonic_yang import Database
from tests.targets.sonic import yang

NUMBERS = "0 1 7 8 9 10 63 64 100 101 -1 -8 2147483648 18446744073709551616"
WORDS = "true false maybe STRICT DWRR bytes packets ecn_green ecn_all enable uN uA"
NAMES = "AZURE AZURE_LOSSLESS scheduler.0 egress_lossy_pool q_lossy_profile Ethernet0 nowhere"
ADDRESSES = "10.0.0.1 10.8.1.0/24 10.8.1.0/33 fd00:1:2:: fd00:1:2::/48 fd00::/129"
VALUES = f"{NUMBERS} {WORDS} {NAMES} {ADDRESSES}".split()
GLOBAL = "AZURE X.Y Ethernet0 Ethernet2 global loc WRED_ECN_QUEUE 10.8.1.0/24"
SPLIT = "Ethernet0|6 Ethernet0|99 Ethernet0|6-5 loc|fd00:1:2::/48 nowhere|fd00:1:2::/48 default|10.8.1.0/24"
KEYS = [*f"{GLOBAL} {SPLIT}".split(), "x" * 33]
FIELDS = {table: sorted(shapes[-1].fields.keys() - {"*"}) for table, shapes in sonic_yang.SHAPES.items()}
NOT_COMPARED = frozenset({"PORT", "INTERFACE"})
"""Of whose leaves the emulator has only those that it needs."""
TABLES = sorted(FIELDS.keys() - NOT_COMPARED)
MAPPED = ("0", "7", "8", "9", "10", "63", "64", "x")


@pytest.fixture(scope="module")
def valid() -> Database:
    database = SonicDevice(ports=1).config_db
    database["STATIC_ROUTE"] = {"default|10.8.1.0/24": {"nexthop": "10.0.0.1"}}
    database["SRV6_MY_LOCATORS"] = {"loc": {"prefix": "fd00:1:2::"}}
    database["SRV6_MY_SIDS"] = {"loc|fd00:1:2::/48": {"action": "uN"}}
    return database


@st.composite
def changes(draw: DrawFn) -> tuple[str, str, str, str | None]:
    """Table, key (none: the first that is there), field, and what it shall say (None: the field goes)."""
    table = draw(st.sampled_from(TABLES))
    field = draw(st.sampled_from(FIELDS[table] or MAPPED))
    value = draw(st.none() | st.sampled_from(VALUES))
    return table, draw(st.just("") | st.sampled_from(KEYS)), field, value


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(changes(), min_size=1, max_size=2))
def test_both_give_the_same_verdict(valid: Database, changed: list[tuple[str, str, str, str | None]]) -> None:
    database = copy.deepcopy(valid)
    for table, key, field, value in changed:
        entries = database[table]
        fields = entries.setdefault(key or next(iter(entries)), {})
        if value is None:
            fields.pop(field, None)
        else:
            fields[field] = value
    ours = list(sonic_yang.problems(database))
    theirs = yang.refusal(database)
    assert (ours == []) == (theirs is None), (changed, ours, theirs)
