"""What must hold for every plan and every box, on the emulated switch."""

import copy
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.capabilities import AlphaLimit, Capabilities
from mltswitch.plan import Plan
from mltswitch.targets import Change, SwitchState
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.capabilities import HARDWARE
from mltswitch.targets.sonic.database import QUEUE_TABLES, Database, Table, queues_in
from mltswitch.targets.sonic.objects import MAP, port_maps
from mltswitch.targets.state import QueueState, differences
from switchsim.sonic import SonicDevice
from tests.targets.sonic.device import apply, read
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

CAPABILITIES = TARGET.hardware(None)

few = settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FOREIGN_ROUTE: Table = {"default|192.0.2.0/24": {"nexthop": "192.0.2.1", "ifname": "Ethernet0"}}
PORTS = 6
"""Of the largest leaf that `plans` draws: three hosts, three spines."""
BOXES = st.sampled_from(list(HARDWARE.values()))


def drawn(data: st.DataObject, capabilities: Capabilities) -> SwitchState:
    plan: Plan = data.draw(plans(capabilities))
    return TARGET.quantise(plan, data.draw(switch_names(plan))).state


@few
@given(BOXES, st.data())
def test_a_change_leads_from_any_plan_to_any_other_and_back(
    capabilities: Capabilities, data: st.DataObject
) -> None:
    device = SonicDevice(ports=PORTS, box=capabilities.hardware)
    device.config_db["STATIC_ROUTE"] = dict(FOREIGN_ROUTE)
    for _ in range(2):
        wanted = drawn(data, capabilities)
        before = copy.deepcopy(device.config_db)
        change = TARGET.diff(read(device, wanted, capabilities), wanted, capabilities)
        check_steps(device, change, wanted, capabilities)
        running = read(device, wanted, capabilities)
        assert differences(wanted, running.state) == ()
        assert running.state == wanted
        assert TARGET.diff(running, wanted, capabilities).is_empty
        assert dict(foreign(device.config_db, wanted)) == dict(foreign(before, wanted))
        after = copy.deepcopy(device.config_db)
        if change.steps:
            [back] = [line for line in change.text.splitlines() if line.startswith("# back to the state")]
            assert device.execute("admin", back.partition(": ")[2]).status == 0
            assert device.config_db == before
        apply(device, TARGET.diff(read(device, wanted, capabilities), wanted, capabilities))
        assert device.config_db == after


def check_steps(device: SonicDevice, change: Change, wanted: SwitchState, capabilities: Capabilities) -> None:
    """Every queue has at every step what it had before or what it shall have, and its threshold can act."""
    start = values(read(device, wanted, capabilities).state)
    for step in change.steps:
        apply(device, Change((step,)))
        here = values(read(device, wanted, capabilities).state)
        for place, queue in values(wanted).items():
            for field in ("dscps", "ecn_threshold_bytes", "limit", "minimum", "maximum"):
                ends = (getattr(start[place], field), getattr(queue, field))
                assert getattr(here[place], field) in ends
            if isinstance(start[place].limit, AlphaLimit):
                assert threshold_acts(here[place], capabilities)


def values(state: SwitchState) -> dict[tuple[str, int], QueueState]:
    return {(port.name, queue.queue): queue for port in state.ports for queue in port.queues}


def threshold_acts(queue: QueueState, capabilities: Capabilities) -> bool:
    assert isinstance(queue.limit, AlphaLimit)
    assert capabilities.limit.pool_bytes is not None
    return (queue.ecn_threshold_bytes or 0) < queue.limit.resting_bytes(capabilities.limit.pool_bytes)


def foreign(database: Database, wanted: SwitchState) -> Iterator[tuple[str, object]]:
    """Everything that is not ours: other ports, other queues, other objects, other fields."""
    ours = {(port.name, queue.queue) for port in wanted.ports for queue in port.queues}
    for table, entries in database.items():
        for key, fields in entries.items():
            named, queues = queues_in(key)
            if table in QUEUE_TABLES and named:
                for queue in queues:
                    if (named, queue) not in ours:
                        yield f"{table} {named} {queue}", fields
            elif table == "PORT_QOS_MAP":
                yield f"{table} {key}", {n: v for n, v in fields.items() if n not in port_maps(MAP)}
            elif not key.startswith(("MLT", "mlt", "WRED_ECN_QUEUE")) and (
                table != "STATIC_ROUTE" or key in FOREIGN_ROUTE
            ):
                yield f"{table} {key}", fields
