"""What we render, judged by SONiC's own YANG models; and what they refuse."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.capabilities import Capabilities
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.capabilities import HARDWARE
from mltswitch.targets.sonic.database import Database, Entry
from mltswitch.targets.sonic.merge import merged
from switchsim.sonic import SonicDevice
from tests.targets.sonic import yang
from tests.targets.sonic.test_sonic import FILE, SEGMENTS, STATE
from tests.targets.strategies import plans, switch_names

CAPABILITIES = TARGET.hardware(None)

some = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
BOXES = st.sampled_from(list(HARDWARE.values()))
WRED: Entry = {
    "wred_green_enable": "true",
    "ecn": "ecn_green",
    "green_min_threshold": "61440",
    "green_max_threshold": "61440",
    "green_drop_probability": "100",
}
PROFILE: Entry = {"pool": "egress_lossy_pool", "size": "0", "dynamic_th": "-2"}
STRICT: Entry = {"type": "STRICT"}
LOCATOR: Entry = {"prefix": "fd00:6d6c:1::"}
SEGMENT = "loc|fd00:6d6c:1::/48"


@some
@given(BOXES, st.data())
def test_every_plan_is_valid_on_a_device(capabilities: Capabilities, data: st.DataObject) -> None:
    plan = data.draw(plans(capabilities))
    state = TARGET.fit_to_hardware(plan, data.draw(switch_names(plan))).state
    database = merged(SonicDevice(ports=6, box=capabilities.hardware).config_db, state)
    assert yang.refusal(database) is None
    assert database.keys() - yang.tables() == set()
    ours = json.loads(TARGET.render(state, capabilities)[FILE])
    for table, entries in ours.items():
        assert entries.keys() <= database[table].keys()


REFUSED: list[tuple[str, str, Entry]] = [
    ("WRED_PROFILE", "X", WRED | {"green_min_threshold": "61441"}),
    ("WRED_PROFILE", "X", {"green_max_threshold": "1"}),
    ("WRED_PROFILE", "X", WRED | {"green_drop_probability": "101"}),
    ("WRED_PROFILE", "X", WRED | {"ecn": "ecn_ect"}),
    ("WRED_PROFILE", "X", WRED | {"gentle": "true"}),
    ("WRED_PROFILE", "X" * 33, WRED),
    ("WRED_PROFILE", "MLT.Q6", WRED),
    ("QUEUE", "Ethernet0|6", {"wred_profile": "nowhere"}),
    ("QUEUE", "Ethernet0|6", {"wred_profile": "[WRED_PROFILE|AZURE_LOSSLESS]"}),
    ("QUEUE", "Ethernet0,Ethernet4|6", {"scheduler": "scheduler.0"}),
    ("QUEUE", "Ethernet2|6", {"scheduler": "scheduler.0"}),
    ("SCHEDULER", "X", {"type": "DWRR", "weight": "0"}),
    ("SCHEDULER", "X", STRICT | {"pir": "5"}),
    ("SCHEDULER", "X", STRICT | {"cir": "0", "pir": "5"}),
    ("SCHEDULER", "X", STRICT | {"cir": "6", "pir": "5"}),
    ("DSCP_TO_TC_MAP", "X", {"64": "0"}),
    ("DSCP_TO_TC_MAP", "X", {"1": "16"}),
    ("TC_TO_QUEUE_MAP", "X", {"1": "10"}),
    ("TC_TO_PRIORITY_GROUP_MAP", "X", {"1": "8"}),
    ("BUFFER_PROFILE", "X", PROFILE | {"dynamic_th": "8"}),
    ("BUFFER_PROFILE", "X", {"pool": "egress_lossy_pool", "dynamic_th": "1"}),
    ("BUFFER_PROFILE", "X", PROFILE | {"pool": "nowhere"}),
    ("BUFFER_QUEUE", "Ethernet0|16", {"profile": "q_lossy_profile"}),
    ("PORT_QOS_MAP", "Ethernet0", {"dscp_to_tc_map": "nowhere"}),
    ("PORT_QOS_MAP", "Ethernet0", {"pfc_enable": "8"}),
    ("SRV6_MY_SIDS", SEGMENT, {"action": "uDX4"}),
    ("SRV6_MY_SIDS", SEGMENT, {"action": "uA"}),
    ("SRV6_MY_SIDS", "nowhere|fd00:6d6c:1::/48", {"action": "uN"}),
    ("SRV6_MY_LOCATORS", "loc", {"prefix": "fd00:6d6c:1::", "node_len": "90"}),
    ("SRV6_MY_LOCATORS", "loc", {"block_len": "32"}),
    ("STATIC_ROUTE", "default|10.8.1.0/33", {"nexthop": "10.0.0.1"}),
    ("FLEX_COUNTER_TABLE", "WRED_ECN_QUEUE", {"FLEX_COUNTER_STATUS": "on"}),
]


@pytest.fixture(scope="module")
def switch() -> Database:
    device = SonicDevice(ports=3)
    wanted = type(STATE)(STATE.ports, STATE.routes, SEGMENTS)
    return merged(device.config_db, wanted) | {"SRV6_MY_LOCATORS": {"loc": LOCATOR}, "SRV6_MY_SIDS": {}}


def test_the_switch_of_these_tests_is_valid(switch: Database) -> None:
    assert yang.refusal({name: entries for name, entries in switch.items() if entries}) is None


@pytest.mark.parametrize(("table", "key", "fields"), REFUSED)
def test_what_the_models_refuse(switch: Database, table: str, key: str, fields: Entry) -> None:
    changed = switch | {table: switch[table] | {key: fields}}
    assert yang.refusal({name: entries for name, entries in changed.items() if entries}) is not None
