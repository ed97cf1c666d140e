"""The way back from any point of a push leads to exactly what ran before."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from mltswitch.capabilities import Capabilities
from mltswitch.targets import Change
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.database import Entry
from switchsim.sonic import SonicDevice
from tests.targets.sonic.device import apply, list_ports, read
from tests.targets.sonic.test_laws import BOXES, FOREIGN_ROUTE, PORTS, drawn, few

FOREIGN: tuple[tuple[str, str, Entry], ...] = (
    ("QUEUE", "Ethernet0|0-2", {"scheduler": "scheduler.0"}),
    ("PORT_QOS_MAP", "Ethernet0", {"pfc_enable": "3,4", "tc_to_queue_map": "AZURE"}),
    ("PORT_QOS_MAP", "Ethernet4", {"dscp_to_tc_map": "AZURE"}),
    ("DSCP_TO_TC_MAP", "MINE", {str(dscp): "1" for dscp in range(64)}),
)


@few
@given(BOXES, st.data(), st.sets(st.sampled_from(range(len(FOREIGN)))))
def test_the_way_back_leads_to_what_ran(
    capabilities: Capabilities, data: st.DataObject, foreign: set[int]
) -> None:
    device = SonicDevice(ports=PORTS, box=capabilities.hardware)
    device.config_db["STATIC_ROUTE"] = dict(FOREIGN_ROUTE)
    if data.draw(st.booleans()):
        former = drawn(data, capabilities)
        apply(device, TARGET.diff(read(device, former, capabilities), former, capabilities))
    else:
        for number in foreign:
            table, key, fields = FOREIGN[number]
            device.config_db.setdefault(table, {})[key] = dict(fields)
        if data.draw(st.booleans()):
            list_ports(device.config_db, ("Ethernet4", "Ethernet8", "Ethernet20"))
    wanted = drawn(data, capabilities)
    for route in wanted.routes:
        if data.draw(st.booleans()):
            hop: Entry = {"nexthop": "192.0.2.9", "ifname": "Ethernet0", "distance": "7"}
            device.config_db["STATIC_ROUTE"].setdefault(f"default|{route.prefix}", hop)
    before, at_start = read(device, wanted, capabilities).answers, copy.deepcopy(device.config_db)

    def way_back() -> Change:
        return TARGET.restore(before, read(device, wanted, capabilities), wanted, capabilities)

    assert way_back().is_empty
    change = TARGET.diff(read(device, wanted, capabilities), wanted, capabilities)
    sent = data.draw(st.just(len(change.steps)) | st.integers(0, len(change.steps)))
    apply(device, Change(change.steps[:sent]))
    apply(device, way_back())
    assert device.config_db == at_start
    assert way_back().is_empty
