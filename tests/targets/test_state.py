from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

from mltswitch.capabilities import AlphaLimit, BytesLimit
from mltswitch.targets import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.state import differences

QUEUE = QueueState(3, (10,), 61440, BytesLimit(200_000))
PORT = PortState("eth1", True, None, (QUEUE, QueueState(4, (0,), None, BytesLimit(9000))))
ROUTE = RouteState(IPv4Network("10.100.0.0/16"), IPv4Address("10.1.0.2"), "eth2")
STATE = SwitchState((PORT, replace(PORT, name="eth2")), (ROUTE,))


def found(**changes: object) -> list[str]:
    port = replace(PORT, **changes)  # type: ignore[arg-type]  # each test names a field of PortState
    return [str(entry) for entry in differences(STATE, replace(STATE, ports=(port, STATE.ports[1])))]


def test_equal_states_have_no_difference() -> None:
    assert differences(STATE, STATE) == ()


def test_a_threshold_is_named_with_port_and_queue() -> None:
    queues = (replace(QUEUE, ecn_threshold_bytes=30000), PORT.queues[1])
    assert found(queues=queues) == ["port eth1, queue 3: ecn_threshold_bytes expected 61440, found 30000"]


def test_limits_of_different_kinds_differ() -> None:
    queues = (replace(QUEUE, limit=AlphaLimit(-1)), PORT.queues[1])
    assert found(queues=queues) == ["port eth1, queue 3: limit expected 200000 B, found alpha 2^-1"]


def test_trust_and_rate() -> None:
    assert found(trusted=False, shaped_bps=10) == [
        "port eth1: trusted expected True, found False",
        "port eth1: shaped_bps expected None, found 10",
    ]


def test_queues_missing_and_superfluous() -> None:
    assert found(queues=(PORT.queues[1], replace(QUEUE, queue=7))) == [
        "port eth1, queue 3: queue expected present, found absent",
        "port eth1, queue 7: queue expected absent, found present",
    ]


def test_what_no_field_can_say_is_still_a_difference() -> None:
    assert found(unexpected=("priomap 0",)) == [
        "port eth1: configuration expected as planned, found priomap 0"
    ]


def test_a_missing_port_is_one_difference_and_a_foreign_one_none() -> None:
    other = replace(PORT, name="eth9")
    assert [str(entry) for entry in differences(STATE, replace(STATE, ports=(STATE.ports[1], other)))] == [
        "port eth1: configuration expected present, found absent"
    ]


def test_routes() -> None:
    moved = replace(ROUTE, port="eth3")
    extra = replace(ROUTE, prefix=IPv4Network("10.99.0.0/16"))
    assert [str(entry) for entry in differences(STATE, replace(STATE, routes=(moved, extra)))] == [
        "routes: route 10.100.0.0/16 expected via 10.1.0.2 eth2, found via 10.1.0.2 eth3",
        "routes: route 10.99.0.0/16 expected absent, found via 10.1.0.2 eth2",
    ]
    assert [str(entry) for entry in differences(STATE, replace(STATE, routes=()))] == [
        "routes: route 10.100.0.0/16 expected via 10.1.0.2 eth2, found absent"
    ]
