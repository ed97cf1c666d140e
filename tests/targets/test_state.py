from dataclasses import fields, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Any

import pytest

from mltswitch.capabilities import AlphaLimit, BytesLimit
from mltswitch.targets import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.state import SegmentRouting, differences

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
    moved = ROUTE._replace(port="eth3")
    extra = ROUTE._replace(prefix=IPv4Network("10.99.0.0/16"))
    assert [str(entry) for entry in differences(STATE, replace(STATE, routes=(moved, extra)))] == [
        "routes: route 10.100.0.0/16 expected via 10.1.0.2 eth2, found via 10.1.0.2 eth3",
        "routes: route 10.99.0.0/16 expected absent, found via 10.1.0.2 eth2",
    ]
    assert [str(entry) for entry in differences(STATE, replace(STATE, routes=()))] == [
        "routes: route 10.100.0.0/16 expected via 10.1.0.2 eth2, found absent"
    ]


OTHER_OF_A_PORT: dict[str, Any] = {
    "name": "eth9",
    "trusted": False,
    "shaped_bps": 10,
    "queues": (replace(QUEUE, ecn_threshold_bytes=30000), PORT.queues[1]),
    "unexpected": ("something",),
    "rewritten": (48,),
    "hardware_address": "02:4d:0a:14:00:02",
    "mtu_bytes": 1500,
}
OTHER_OF_A_SWITCH: dict[str, Any] = {
    "ports": STATE.ports[:1],
    "routes": (),
    "segment_routing": SegmentRouting(IPv6Network("2001:db8::/48"), ()),
    "packet_spraying": True,
    "background_dscp": 8,
}


def _anew() -> SwitchState:
    """An equal state that has no object in common with `STATE`."""
    ports = tuple(
        PortState(name, True, None, tuple(replace(queue) for queue in PORT.queues))
        for name in ("eth1", "eth2")
    )
    return SwitchState(ports, (ROUTE._replace(prefix=IPv4Network("10.100.0.0/16")),))


def test_equal_states_are_equal_whatever_objects_they_share() -> None:
    assert _anew() == STATE
    assert hash(_anew()) == hash(STATE)
    assert STATE != "a state"
    assert replace(_anew(), unexpected=("roce lossless",)) != STATE


@pytest.mark.parametrize("name", [field.name for field in fields(PortState)])
@pytest.mark.parametrize("place", [0, 1])
def test_each_field_of_each_port_makes_a_state_another(name: str, place: int) -> None:
    ports = list(_anew().ports)
    ports[place] = replace(ports[place], **{name: OTHER_OF_A_PORT[name]})
    assert replace(STATE, ports=tuple(ports)) != STATE


@pytest.mark.parametrize("name", [field.name for field in fields(SwitchState) if field.compare])
def test_each_field_makes_a_state_another(name: str) -> None:
    assert replace(_anew(), **{name: OTHER_OF_A_SWITCH[name]}) != STATE


def test_what_code_points_become_is_a_difference() -> None:
    rewriting = replace(STATE.ports[0], rewritten=(48, 56))
    wanted = replace(STATE, ports=(rewriting, *STATE.ports[1:]))
    [found] = differences(wanted, replace(wanted, background_dscp=8))
    assert (found.port, found.field, found.expected, found.found) == ("", "background_dscp", "0", "8")
    assert not differences(STATE, replace(STATE, background_dscp=8))
