"""One map for a switch, and what some of its ports send elsewhere."""

from dataclasses import replace

import pytest

from mltswitch.capabilities import Unlimited
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets import PortState, QueueState, SwitchState
from mltswitch.targets.remap import (
    HOST_POLICY,
    UNTRUSTED_POLICY,
    Remap,
    SwitchMap,
    code_points,
    policy_of,
    rewriting_map,
    switch_map,
)
from mltswitch.targets.state import every_dscp_but

FABRIC = {6: (48, 56), 5: (10,), 0: (0, 1)}
HOSTS = {6: (), 5: (10,), 0: (0, 1, 48, 56)}


def port(name: str, dscps: dict[int, tuple[int, ...]]) -> PortState:
    queues = (QueueState(queue, points, None, Unlimited()) for queue, points in dscps.items())
    return PortState(name, True, None, tuple(queues))


def test_ports_alike_have_the_switchs_map() -> None:
    assert switch_map((), "X") == SwitchMap({})
    assert switch_map((port("a", HOSTS), port("b", HOSTS)), "X") == SwitchMap(HOSTS)


@pytest.mark.parametrize("hosts_first", [True, False])
def test_what_some_ports_send_to_background_is_a_departure(hosts_first: bool) -> None:
    ports = [port("a", FABRIC), port("b", HOSTS), port("c", HOSTS)]
    found = switch_map(ports[::-1] if hosts_first else ports, "X")
    assert found == SwitchMap(FABRIC, Remap((48, 56), 0), frozenset({"b", "c"}))


@pytest.mark.parametrize(
    "other",
    [
        {6: (10,), 5: (48, 56), 0: (0, 1)},
        {6: (48, 56), 5: (0,), 0: (1, 10)},
        {6: (48, 56), 5: (10,), 0: (0,)},
        {6: (48, 56), 4: (10,), 0: (0, 1)},
    ],
)
def test_any_other_difference_is_refused(other: dict[int, tuple[int, ...]]) -> None:
    with pytest.raises(UnsupportedPlanError, match=r"^port b: X has one DSCP map for all ports"):
        switch_map((port("a", FABRIC), port("b", other)), "X")


def test_two_departures_are_refused() -> None:
    third = {6: (48,), 5: (10,), 0: (0, 1, 56)}
    with pytest.raises(UnsupportedPlanError, match="port b"):
        switch_map((port("a", FABRIC), port("b", HOSTS), port("c", third)), "X")


def test_ports_that_are_alike_need_not_stand_together() -> None:
    ports = [port(name, HOSTS if name in "bd" else FABRIC) for name in "abcd"]
    assert switch_map(ports, "X") == SwitchMap(FABRIC, Remap((48, 56), 0), frozenset("bd"))


def test_ports_that_rewrite_have_a_policy_also_where_the_map_moves_the_same() -> None:
    host = replace(port("a", HOSTS), rewritten=(48, 56))
    other = replace(port("b", HOSTS), trusted=False, rewritten=every_dscp_but(9))
    wanted = SwitchMap(HOSTS, Remap((48, 56), 0), frozenset("a"))
    assert rewriting_map(SwitchState((host, other), (), background_dscp=9), "X") == wanted
    assert list(map(policy_of, (host, other, port("c", HOSTS)))) == [HOST_POLICY, UNTRUSTED_POLICY, ""]
    with pytest.raises(UnsupportedPlanError, match="port b: X rewrites what a port"):
        rewriting_map(SwitchState((host, other), (), background_dscp=0), "X")


def test_code_points_of_each_queue() -> None:
    assert code_points((6, 0, 6, 5)) == {6: (0, 2), 0: (1,), 5: (3,)}


def test_a_departure_changes_a_map() -> None:
    assert Remap((1, 3), 0).applied((6, 6, 5, 4)) == (6, 0, 5, 0)
