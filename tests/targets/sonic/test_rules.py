"""What the YANG models let pass and SONiC does not do: one line for each, when written and when read."""

import copy
import json

import pytest

from mltswitch.errors import UserInputError
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.database import Database, Entry
from mltswitch.targets.sonic.rules import refusals, transition_refusals
from switchsim.sonic import SonicDevice
from tests.targets.sonic import yang
from tests.targets.sonic.test_sonic import CAPPED, FILE, GUARANTEEING

CAPABILITIES = TARGET.hardware(None)

GREEN: Entry = {"wred_green_enable": "true", "green_min_threshold": "1", "green_max_threshold": "1"}


def document() -> Database:
    tables: Database = json.loads(TARGET.render(CAPPED, GUARANTEEING)[FILE])
    return tables


TRAPS: list[tuple[str, str, Entry, str]] = [
    ("WRED_PROFILE", "X", {"green_min_threshold": "1"}, "green needs both thresholds"),
    ("WRED_PROFILE", "X", GREEN | {"green_min_threshold": " 1"}, "green_min_threshold is  1"),
    ("WRED_PROFILE", "X", {"wred_green_enable": "true"}, "green needs both thresholds"),
    ("WRED_PROFILE", "X", GREEN | {"green_max_threshold": str(2**31)}, "green_max_threshold is 2147483648"),
    (
        "WRED_PROFILE",
        "X",
        {"green_drop_probability": "5"},
        "green_drop_probability without wred_green_enable",
    ),
    ("WRED_PROFILE", "X", GREEN | {"ecn": "ecn_all"}, "ecn_all needs green, yellow and red on"),
    ("WRED_PROFILE", "X", GREEN | {"ecn": "ecn_all"}, "yellow needs both thresholds"),
    (
        "WRED_PROFILE",
        "X",
        GREEN
        | {"ecn": "ecn_green", "wred_red_enable": "true", "red_min_threshold": "1", "red_max_threshold": "1"},
        "ecn_green needs yellow and red off",
    ),
    ("QUEUE", "Ethernet0|99", {"scheduler": "mlt_strict"}, "queue 99 is outside 0 to 7"),
    ("QUEUE", "Ethernet0|5-2", {"scheduler": "mlt_strict"}, "a range that runs backwards names no queue"),
    ("QUEUE", "Ethernet0|5-6", {"scheduler": "mlt_strict"}, "queue 6 is in Ethernet0|6, too"),
    ("BUFFER_QUEUE", "Ethernet0|15", {"profile": "MLT_Q6_Ethernet0"}, "queue 15 is outside 0 to 7"),
    ("BUFFER_QUEUE", "Ethernet0|7-3", {"profile": "MLT_Q6_Ethernet0"}, "a range that runs backwards"),
    ("BUFFER_QUEUE", "Ethernet0|0-1", {"profile": "MLT_Q6_Ethernet0"}, "queue 0 is in Ethernet0|0, too"),
    ("SCHEDULER", "X", {"type": "STRICT", "weight": "10"}, "a strict queue has no weight"),
    ("SCHEDULER", "X", {"type": "STRICT", "priority": "7"}, "unknown field priority"),
    ("SCHEDULER", "X", {"type": "STRICT", "meter_type": "packets"}, "meter_type is packets"),
    (
        "BUFFER_PROFILE",
        "X",
        {"pool": "egress_lossy_pool", "size": "0", "static_th": "5", "dynamic_th": "1"},
        "dynamic_th and static_th: exactly one is needed",
    ),
    (
        "BUFFER_PROFILE",
        "X",
        {"pool": "egress_lossy_pool", "size": "0"},
        "no threshold: exactly one is needed",
    ),
    (
        "BUFFER_PROFILE",
        "X",
        {"pool": "egress_lossy_pool", "size": "0", "static_th": "5"},
        "static_th in the pool egress_lossy_pool, which is dynamic",
    ),
    (
        "BUFFER_PROFILE",
        "X",
        {"pool": "egress_lossless_pool", "size": "0", "dynamic_th": "5"},
        "dynamic_th in the pool egress_lossless_pool, which is static",
    ),
    ("TC_TO_QUEUE_MAP", "X", {"1": "9"}, "queue 9 is outside 0 to 7"),
    ("SRV6_SID_LIST", "X", {"path": "fd00::1,fd00::2"}, "nothing in SONiC reads this table"),
]
ALSO_REFUSED_BY_YANG: list[tuple[str, str, Entry, str]] = [
    ("WRED_PROFILE", "X", GREEN | {"weight": "0"}, "unknown field weight"),
    ("WRED_PROFILE", "X", GREEN | {"wred_green_enable": "True"}, "wred_green_enable is True"),
    ("WRED_PROFILE", "X", GREEN | {"green_min_threshold": "2"}, "green_min_threshold is above"),
    ("QUEUE", "Ethernet0,Ethernet4|3", {"scheduler": "mlt_strict"}, "names several ports"),
    ("QUEUE", "Ethernet0", {"scheduler": "mlt_strict"}, "names no queue of a port"),
]


def changed(table: str, key: str, fields: Entry) -> Database:
    """Our document, as part of a switch with a static and a dynamic pool, with one object more."""
    switch = SonicDevice(box="trident3").config_db
    tables = {name: switch[name] for name in ("PORT", "BUFFER_POOL", "DEVICE_METADATA")} | document()
    tables[table] = tables.get(table, {}) | {key: fields}
    return tables


@pytest.mark.parametrize(("table", "key", "fields", "problem"), TRAPS)
def test_yang_lets_it_pass_and_we_do_not(table: str, key: str, fields: Entry, problem: str) -> None:
    assert yang.refusal(changed(table, key, fields)) is None
    found = [refusal for refusal in refusals(changed(table, key, fields)) if problem in refusal.problem]
    assert [refusal.where for refusal in found] == [table if table == "SRV6_SID_LIST" else f"{table}|{key}"]


@pytest.mark.parametrize(("table", "key", "fields", "problem"), ALSO_REFUSED_BY_YANG)
def test_yang_refuses_it_and_so_do_we(table: str, key: str, fields: Entry, problem: str) -> None:
    assert yang.refusal(changed(table, key, fields)) is not None
    assert any(problem in refusal.problem for refusal in refusals(changed(table, key, fields)))


@pytest.mark.parametrize(
    ("table", "key", "fields", "problem"),
    [trap for trap in (*TRAPS, *ALSO_REFUSED_BY_YANG) if "the pool" not in trap[3]],
)
def test_a_file_that_says_so_is_one_error(table: str, key: str, fields: Entry, problem: str) -> None:
    tables = document()
    tables[table] = tables.get(table, {}) | {key: fields}
    with pytest.raises(UserInputError) as caught:
        TARGET.parse({FILE: json.dumps(tables)}, CAPABILITIES)
    assert caught.value.where.startswith(f"{FILE}: {table}")
    first = next(refusal.problem for refusal in refusals(tables))
    assert caught.value.what == first


def test_our_own_document_has_no_trap() -> None:
    assert list(refusals(changed("DSCP_TO_TC_MAP", "X", {}))) == []


def test_what_orchagent_ignores_of_a_live_object() -> None:
    running = changed("DSCP_TO_TC_MAP", "X", {})
    wanted = copy.deepcopy(running)
    wanted["BUFFER_POOL"]["egress_lossy_pool"]["mode"] = "static"
    wanted["BUFFER_PROFILE"]["MLT_Q6_Ethernet0"] = {
        "pool": "ingress_lossless_pool",
        "size": "0",
        "static_th": "1",
    }
    del wanted["SCHEDULER"]["MLT_MAX_Q6_Ethernet0"]["pir"]
    found = [f"{refusal.where}: {refusal.problem}" for refusal in transition_refusals(running, wanted)]
    assert found == [
        "BUFFER_POOL|egress_lossy_pool: mode of a live pool cannot be changed",
        "SCHEDULER|MLT_MAX_Q6_Ethernet0: a live object keeps pir when it no longer says so",
        "BUFFER_PROFILE|MLT_Q6_Ethernet0: the pool of a live profile cannot be changed",
        "BUFFER_PROFILE|MLT_Q6_Ethernet0: a live object keeps dynamic_th when it no longer says so",
    ]
    assert list(transition_refusals(running, running)) == []
