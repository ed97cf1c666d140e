"""Links that fail at given times, against what arithmetic says of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from mltswitch.documents import validate
from mltswitch.errors import UserInputError
from mltswitch.network.faults import Fault, check_faults
from mltswitch.network.transports.parameters import Mlt, NewReno
from mltswitch.network.units import parse_seconds
from mltswitch.network.workloads import Flow
from mltswitch.network.world import World
from tests.network.support import MICROSECOND, network
from tests.network.test_engine import CABLE_PICOSECONDS, PACKET_PICOSECONDS, finished
from tests.network.test_simulate import run, written

FOUR_LINKS = 4 * (PACKET_PICOSECONDS + CABLE_PICOSECONDS)


def fault(**fields: Any) -> Fault:
    return validate({"link": ["leaf1", "spine1"], "from": 0, "to": "5ms"} | fields, Fault, where="fault")


def made(faults: list[Fault], flows: list[Flow], transport: Any, *, spraying: bool = False) -> World:
    settings = transport.settings()
    return World(network(), flows, settings, seed=1, spraying=spraying, faults=faults)


def spine_of(world: World) -> str:
    """The spine over which the first flow goes by its hash."""
    first = int(world.tables["hops"]["port"][int(world.flows["path"][0])])
    leaf, _, port = world.network.ports[first].name.partition(":")
    return world.network.topology.switch(leaf).port(port).peer


def ports(world: World, one: str, other: str) -> list[int]:
    switches = [
        (switch.name, port.peer) for switch in world.network.topology.switches for port in switch.ports
    ]
    return [place for place, ends in enumerate(switches, world.network.hosts) if set(ends) == {one, other}]


@pytest.mark.parametrize(
    ("to", "detected_after", "resent_after"),
    [("5ms", None, 10), ("15ms", None, 30), ("15ms", "5ms", 10), ("15ms", "12ms", 30), ("5ms", "7ms", 10)],
)
def test_a_dead_link_takes_its_flows_until_it_is_back_or_known(
    to: str, detected_after: str | None, resent_after: int
) -> None:
    """A packet is sent again after 10 ms and then 20 ms more, and gets through at the first good moment."""
    flow, transport = Flow(0, 7, 1460, 0), NewReno()
    dead = spine_of(made([], [flow], transport))
    for spine in ("spine1", "spine2"):
        given = fault(link=["leaf1", spine], to=to, detected_after=detected_after)
        world = finished(made([given], [flow], transport))
        late = resent_after * 1000 * MICROSECOND if spine == dead else 0
        assert int(world.flows["finish"][0]) == late + FOUR_LINKS
        tries = {0: 1, 10: 2, 30: 3}[late // (1000 * MICROSECOND)]
        assert int(world.flows["sent_packets"][0]) == tries
        assert int(world.tables["ports"]["lost_packets"].sum()) == tries - 1


@pytest.mark.parametrize("flow", [Flow(0, 1, 1460, 0), Flow(1, 0, 1460, 0)])
def test_both_directions_of_a_host_are_dead_and_have_no_other_path(flow: Flow) -> None:
    gone = fault(link=["host1", "leaf1"], detected_after=0)
    world = finished(made([gone], [flow], NewReno()))
    assert int(world.flows["finish"][0]) == 10_000 * MICROSECOND + FOUR_LINKS // 2
    assert int(world.tables["ports"]["lost_packets"].sum()) == 1


def test_sprayed_packets_avoid_a_link_that_is_known_to_be_dead() -> None:
    flows = [Flow(host, 4 + host, 300_000, 0) for host in range(4)]
    gone = fault(detected_after=0, to=1)
    world = finished(made([gone], flows, Mlt(loss_bound=0.0), spraying=True))
    assert not world.tables["ports"]["sent_packets"][ports(world, "leaf1", "spine1")].any()
    assert not world.tables["ports"]["lost_packets"].any()
    assert world.tables["ports"]["sent_packets"][ports(world, "leaf1", "spine2")].all()


def test_a_link_that_is_back_is_used_again() -> None:
    flows = [Flow(0, 7, 3_000_000, 0), Flow(0, 7, 30_000, 0, 4_000 * MICROSECOND)]
    world = made([fault(detected_after=0, to="2ms")], flows, Mlt(loss_bound=0.0), spraying=True)
    world.advance(until_picoseconds=2_000 * MICROSECOND - 1)
    link = ports(world, "leaf1", "spine1")
    assert not world.tables["ports"]["sent_packets"][link].any()
    finished(world)
    assert world.tables["ports"]["sent_packets"][link].all()
    assert not world.tables["ports"]["loss"].any()


def test_a_grey_link_loses_its_share_and_no_other_does() -> None:
    flows = [Flow(host, 4 + host, 1_500_000, 0) for host in range(4)]
    world = finished(made([fault(loss=0.2, to=1)], flows, Mlt(loss_bound=0.0), spraying=True))
    table, link = world.tables["ports"], ports(world, "leaf1", "spine1")
    lost, sent = int(table["lost_packets"][link].sum()), int(table["sent_packets"][link].sum())
    assert lost == int(table["lost_packets"].sum())
    assert abs(lost - 0.2 * sent) < 4 * (0.2 * 0.8 * sent) ** 0.5
    assert sent > 2000


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": (
        {"link": ["leaf1", "spin2"]},
        "faults[0].link: the fabric has no 'spin2', did you mean spine2?",
    ),
    "no link": ({"link": ["leaf1", "leaf2"]}, "faults[0].link: no link joins leaf1 and leaf2"),
    "ends first": ({"to": 0}, "to: 0 s is not after from: 0 s"),
    "unit": ({"to": "3 minutes"}, "'3 minutes' is no time, write for example 1.5ms or 0.0015"),
    "loss": ({"loss": 1.5}, "loss: must be at most 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_faults_are_one_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, line = BAD[case]
    given = {"link": ["leaf1", "spine2"], "from": 0, "to": "3ms"} | changes
    assert run(written(tmp_path, faults=[given])) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_times_have_units() -> None:
    texts = ["3ms", "3 ms", "3000us", "3000 µs", "0.003s", "3e6ns", 0.003]
    assert {parse_seconds(text) for text in texts} == {0.003}
    check_faults([fault(link=["spine2", "leaf1"])], network().topology)
    with pytest.raises(UserInputError, match="no 'x'"):
        check_faults([fault(link=["x", "leaf1"])], network().topology)


def test_a_scenario_has_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first windows of four senders, 10 packets each, meet a dead link."""
    dead = [{"link": ["leaf2", "host8"], "from": 0, "to": "5ms"}]
    assert run(written(tmp_path, faults=dead, transports=["newreno"]), "--json") == 0
    (played,) = json.loads(capsys.readouterr().out)["transports"]
    assert played["runs"][0]["summary"]["lost_packets"] == 4 * 10
    assert played["figures"]["fct_mean_seconds"]["mean"] > 0.01
