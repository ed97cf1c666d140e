"""Paths that die, lose, come back, come and go, in virtual time; times and packets are bounds."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from mltswitch.hostagent.spraying.settings import MILLISECOND, SECOND, Policy, SprayingSettings
from mltswitch.hostagent.spraying.sprayer import MAXIMUM_EVENTS, PathSprayer
from mltswitch.hostagent.spraying.standing import Reason, State
from mltswitch.hostagent.transport.interfaces import Sprayer
from tests.hostagent.spraying.network import Network, Road

SEEDS = range(5)
QUARTER = 0.25


def network(
    seed: int = 0,
    *,
    paths: int = 4,
    policy: Policy = Policy.ROUND_ROBIN,
    chunk_bursts: int = 64,
    chunk_ns: int = 400_000,
    burst_packets: int = 1,
) -> Network:
    return Network(
        PathSprayer(paths, SprayingSettings(policy=policy), seed=seed),
        [Road() for _ in range(paths)],
        np.random.default_rng(1000 + seed),
        chunk_bursts=chunk_bursts,
        chunk_ns=chunk_ns,
        burst_packets=burst_packets,
    )


def is_in(made: Network, path: int, state: State) -> Callable[[], bool]:
    return lambda: made.sprayer.statistics()[path].state is state


def changes(made: Network) -> list[tuple[int, Reason]]:
    return [(event.path, event.reason) for event in made.sprayer.take_events()]


def test_it_is_what_the_transport_asks_for() -> None:
    sprayer: Sprayer = PathSprayer(4, seed=1)
    assert sprayer.next_timer_ns() is None
    assert sprayer.probes_due(0) == ()
    assert len(sprayer.choose(0, 0)) == 0


def test_a_connection_has_a_path() -> None:
    with pytest.raises(ValueError, match="0 paths"):
        PathSprayer(0)


@pytest.mark.parametrize("policy", list(Policy))
def test_equal_paths_get_equal_shares(policy: Policy) -> None:
    made = network(policy=policy)
    made.run(400 * MILLISECOND)
    sent = np.array([road.sent for road in made.roads])
    tolerance = 0.01 if policy is not Policy.RANDOM else 5 * np.sqrt(0.75 / 4 / sent.sum())
    assert np.all(np.abs(sent / sent.sum() - QUARTER) < tolerance)
    assert changes(made) == []


def test_a_slow_path_gets_less_where_delay_decides() -> None:
    made = network(policy=Policy.LEAST_DELAY)
    made.roads[1].delay_ns = 500_000  # round trip 1 ms against 0.4
    made.run(400 * MILLISECOND)
    sent = [road.sent for road in made.roads]
    assert sent[1] < 0.3 * sent[0]
    assert sent[1] > 0.02 * sent[0], "but enough to see it get better"


def test_a_path_that_loses_a_little_gets_less_where_loss_decides() -> None:
    made = network(policy=Policy.LEAST_LOSS)
    made.roads[1].loss = 0.01
    made.run(400 * MILLISECOND)
    before = [road.sent for road in made.roads]
    made.run(400 * MILLISECOND)
    sent = [road.sent - earlier for road, earlier in zip(made.roads, before, strict=True)]
    assert sent[1] < 0.8 * min(sent[0], sent[2], sent[3])
    assert changes(made) == [], "1 % is not grey"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_path_is_left_within_45_milliseconds(seed: int) -> None:
    made = network(seed)
    made.run(20 * MILLISECOND)
    made.roads[2].is_dead = True
    assert made.run(SECOND, is_in(made, 2, State.LEFT)) <= 45 * MILLISECOND
    assert changes(made) == [(2, Reason.DEAD)]
    sent = made.roads[2].sent
    made.run(20 * MILLISECOND)
    assert made.roads[2].sent == sent, "not even a probe so soon"


def test_the_largest_share_is_that_of_a_path_in_use() -> None:
    made = network()
    assert made.sprayer.largest_share == QUARTER
    made.run(20 * MILLISECOND)
    made.roads[2].is_dead = True
    made.run(SECOND, is_in(made, 2, State.LEFT))
    assert made.sprayer.largest_share == pytest.approx(1 / 3)


def test_the_largest_share_is_what_the_policy_gives_a_path() -> None:
    made = network(policy=Policy.LEAST_DELAY)
    for road in made.roads[1:]:
        road.delay_ns = 500_000
    made.run(400 * MILLISECOND)
    before = [road.sent for road in made.roads]
    made.run(400 * MILLISECOND)
    sent = [road.sent - earlier for road, earlier in zip(made.roads, before, strict=True)]
    assert made.sprayer.largest_share > 2 * QUARTER
    assert made.sprayer.largest_share == pytest.approx(max(sent) / sum(sent), rel=0.02)


def test_the_largest_share_is_computed_when_shares_change_and_not_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[None] = []
    shares = PathSprayer._shares

    def counted(sprayer: PathSprayer) -> NDArray[np.float64]:
        computed.append(None)
        return shares(sprayer)

    monkeypatch.setattr(PathSprayer, "_shares", counted)
    sprayer = PathSprayer(4, seed=1)
    assert [sprayer.largest_share for _ in range(100)] == [QUARTER] * 100
    assert len(computed) == 1
    sprayer._change(2, Reason.DEAD, 1)
    assert [sprayer.largest_share for _ in range(100)] == [pytest.approx(1 / 3)] * 100
    assert len(computed) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_path_is_found_where_little_is_sent(seed: int) -> None:
    """A burst on each path once in 100 ms: the probes to other paths make the clock of answers go on."""
    made = network(seed, chunk_bursts=4, chunk_ns=100 * MILLISECOND)
    made.run(SECOND)
    made.roads[2].is_dead = True
    assert made.run(SECOND, is_in(made, 2, State.LEFT)) <= 150 * MILLISECOND
    assert changes(made) == [(2, Reason.DEAD)]


def test_a_dead_path_of_long_round_trips_takes_longer() -> None:
    made = network()
    for road in made.roads:
        road.delay_ns = 50 * MILLISECOND
    made.run(SECOND)
    made.roads[2].is_dead = True
    assert 300 * MILLISECOND < made.run(3 * SECOND, is_in(made, 2, State.LEFT)) < SECOND
    assert changes(made) == [(2, Reason.DEAD)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_path_that_loses_five_percent_is_left(seed: int) -> None:
    made = network(seed)
    made.run(20 * MILLISECOND)
    made.roads[1].loss = 0.05
    sent = made.roads[1].sent
    made.run(5 * SECOND, is_in(made, 1, State.LEFT))
    assert made.roads[1].sent - sent < 8_000
    assert changes(made) == [(1, Reason.GREY)]


@pytest.mark.parametrize("policy", list(Policy))
def test_every_policy_leaves_a_grey_path(policy: Policy) -> None:
    made = network(policy=policy)
    made.run(20 * MILLISECOND)
    made.roads[1].loss = 0.08
    made.run(5 * SECOND, is_in(made, 1, State.LEFT))
    assert changes(made) == [(1, Reason.GREY)]


@pytest.mark.parametrize("loss", [0.005, 0.05])
@pytest.mark.parametrize("burst_packets", [1, 16])
def test_loss_that_all_paths_share_leaves_all_of_them(loss: float, burst_packets: int) -> None:
    made = network(burst_packets=burst_packets, chunk_ns=400_000 * burst_packets)
    made.whole_bursts = True
    made.common_loss = lambda _: loss
    made.window_bytes = 1 << 24
    made.run(400 * MILLISECOND * burst_packets)
    assert min(road.lost for road in made.roads) > 0
    assert changes(made) == []


def test_congestion_that_comes_and_goes_leaves_all_of_them() -> None:
    made = network()
    made.common_loss = lambda now_ns: 0.3 if now_ns // (7 * MILLISECOND) % 5 == 0 else 0.0
    made.run(SECOND)
    assert min(road.lost for road in made.roads) > 200
    assert changes(made) == []


def test_packets_of_lower_classes_that_come_late_are_no_loss() -> None:
    made = network()
    for road in made.roads:
        road.late_share, road.late_ns = 0.3, 5 * MILLISECOND
    made.run(400 * MILLISECOND)
    assert changes(made) == []
    # What is on its way, and nothing else: 30 % of 5 ms.
    for statistics, road in zip(made.sprayer.statistics(), made.roads, strict=True):
        assert statistics.lost_packets < 0.5 * road.sent * 5 / 400


@pytest.mark.parametrize("asleep_ms", [15, 60, 150, 1000])
def test_a_peer_that_sleeps_has_no_dead_paths(asleep_ms: int) -> None:
    """Its paths are silent together, and wake one after another."""
    made = network()
    for _ in range(5):
        made.run(50 * MILLISECOND)
        made.asleep_until_ns = made.now_ns + asleep_ms * MILLISECOND
        made.run(asleep_ms * MILLISECOND)
    made.run(200 * MILLISECOND)
    assert changes(made) == []


def test_no_path_is_left_where_none_answers() -> None:
    made = network()
    made.run(20 * MILLISECOND)
    for road in made.roads:
        road.is_dead = True
    made.run(3 * SECOND)
    assert changes(made) == []
    made.roads[3].is_dead = False
    made.run(2 * SECOND, lambda: len(set(made.sprayer.choose(64, made.now_ns))) == 1)
    assert set(made.sprayer.choose(64, made.now_ns)) == {3}
    assert sorted(changes(made)) == [(path, Reason.DEAD) for path in range(3)]


def test_the_last_path_is_never_left() -> None:
    made = network()
    made.run(20 * MILLISECOND)
    for path in (0, 1, 2):
        made.roads[path].is_dead = True
    made.run(200 * MILLISECOND)
    made.roads[3].loss = 0.5
    made.run(500 * MILLISECOND)
    made.roads[3].is_dead = True
    made.run(3 * SECOND)
    assert set(made.sprayer.choose(64, made.now_ns)) == {3}


def test_a_path_that_answers_replaces_the_last_one_when_that_dies() -> None:
    made = network(paths=2)
    made.run(20 * MILLISECOND)
    made.roads[0].loss = 0.2
    made.run(2 * SECOND, is_in(made, 0, State.LEFT))
    made.roads[0].loss = 0.02
    made.roads[1].is_dead = True
    passed_ns = made.run(2 * SECOND, is_in(made, 1, State.LEFT))
    assert passed_ns < SECOND
    assert set(made.sprayer.choose(64, made.now_ns)) == {0}
    assert changes(made)[:3] == [(0, Reason.GREY), (0, Reason.NEEDED), (1, Reason.DEAD)]


def test_one_path_alone_stays_whatever_happens() -> None:
    made = network(paths=1)
    made.run(20 * MILLISECOND)
    made.roads[0].loss = 0.5
    made.run(200 * MILLISECOND)
    made.roads[0].is_dead = True
    made.run(SECOND)
    assert changes(made) == []
    assert set(made.sprayer.choose(5, made.now_ns)) == {0}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_path_returns_after_its_repair(seed: int) -> None:
    made = network(seed)
    made.roads[2].is_dead = True
    made.run(500 * MILLISECOND)
    made.roads[2].is_dead = False
    assert made.run(5 * SECOND, is_in(made, 2, State.PROBATION)) < SECOND + 100 * MILLISECOND
    before = [road.sent for road in made.roads]
    made.run(4 * MILLISECOND)
    sent = [road.sent - earlier for road, earlier in zip(made.roads, before, strict=True)]
    assert 0 < sent[2] < sent[0] / 2, "a part of its share"
    assert made.run(SECOND, is_in(made, 2, State.ACTIVE)) < 200 * MILLISECOND
    assert changes(made) == [(2, Reason.DEAD), (2, Reason.ANSWERS), (2, Reason.PROVED)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_grey_path_returns_after_its_repair(seed: int) -> None:
    made = network(seed)
    made.roads[2].loss = 0.2
    made.run(2 * SECOND, is_in(made, 2, State.LEFT))
    made.roads[2].loss = 0.0
    # 200 ms of pause, 20 answered probes; 5 ms between them.
    assert made.run(5 * SECOND, is_in(made, 2, State.PROBATION)) < 320 * MILLISECOND
    assert made.run(SECOND, is_in(made, 2, State.ACTIVE)) < 200 * MILLISECOND


def test_a_path_that_stays_grey_costs_less_and_less() -> None:
    made = network()
    made.roads[2].loss = 0.05
    shares = []
    for _ in range(3):
        before = (sum(road.sent for road in made.roads), made.roads[2].sent)
        made.run(1500 * MILLISECOND)
        shares.append((made.roads[2].sent - before[1]) / (sum(road.sent for road in made.roads) - before[0]))
    assert shares[0] < 0.15
    assert shares[2] < 0.02
    assert {path for path, _ in changes(made)} == {2}


def test_a_path_that_flaps_is_used_less_and_less() -> None:
    made = network()
    times = []
    for _ in range(6):
        made.roads[2].is_dead = True
        made.run(5 * SECOND, is_in(made, 2, State.LEFT))
        made.roads[2].is_dead = False
        times.append(made.run(5 * SECOND, is_in(made, 2, State.PROBATION)))
    assert times[-1] > 5 * times[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_acknowledgements_never_block(seed: int) -> None:
    """Nothing is answered any more; the window must open again and again, and be empty in the end."""
    made = network(seed)
    made.window_bytes = 100_000
    made.run(20 * MILLISECOND)
    for road in made.roads:
        road.is_dead = True
    made.run(50 * MILLISECOND)
    sent = sum(road.sent for road in made.roads)
    made.run(SECOND)
    assert made.blocked > 0
    assert sum(road.sent for road in made.roads) > sent
    made.is_sending = False
    made.run(SECOND)
    assert made.sprayer.in_flight_bytes <= 4 * 40, "a probe on each path at most"


def test_a_tail_without_acknowledgement_is_asked_for() -> None:
    """The receiver acknowledges every tenth packet: what is left over is settled by probes."""
    made = network(chunk_bursts=12)
    made.is_sending = False
    paths = made.sprayer.choose(12, 0)
    ones = np.ones(12, np.int64)
    made.sprayer.sent(paths, ones, ones * 1500, 0)
    for path in range(4):
        made._send(path, 3, 0)
    assert made.sprayer.in_flight_bytes == 18_000
    made.run(40 * MILLISECOND)
    assert made.sprayer.in_flight_bytes == 0
    assert 1 <= made.probes <= 8
    assert made.sprayer.next_timer_ns() is None
    assert [entry.lost_packets for entry in made.sprayer.statistics()] == [0] * 4


def test_a_dead_path_does_not_hold_the_window() -> None:
    made = network()
    made.window_bytes = 300_000
    made.run(20 * MILLISECOND)
    made.roads[0].is_dead = True
    made.run(200 * MILLISECOND)
    blocked = made.blocked
    made.run(200 * MILLISECOND)
    assert made.blocked == blocked
    assert made.sprayer.in_flight_bytes < 200_000


def test_statistics_agree_with_what_happened() -> None:
    made = network()
    made.roads[3].loss = 0.01
    made.run(300 * MILLISECOND)
    made.is_sending = False
    made.run(100 * MILLISECOND)
    for entry, road in zip(made.sprayer.statistics(), made.roads, strict=True):
        assert entry.sent_packets == road.sent
        assert entry.acknowledged_packets == road.sent - road.lost
        assert entry.refused_acknowledgements == 0
        assert entry.round_trip_ns == pytest.approx(2 * road.delay_ns)
        assert 0.5 * road.lost <= entry.lost_packets <= road.lost
    assert made.sprayer.statistics()[3].loss_share == pytest.approx(0.01, abs=0.015)


@pytest.mark.parametrize("seed", SEEDS)
def test_packets_that_were_doubled_hide_no_later_losses(seed: int) -> None:
    """On the way, too: what is under way then is all that they may stand for."""
    made = network(seed)
    for road in made.roads[:2]:
        road.doubled_share = 0.5
    made.run(300 * MILLISECOND)
    assert [entry.lost_packets for entry in made.sprayer.statistics()] == [0] * 4
    for road in made.roads:
        road.doubled_share, road.loss = 0.0, 0.2
    made.run(300 * MILLISECOND)
    made.is_sending = False
    made.run(100 * MILLISECOND)
    for entry, road in zip(made.sprayer.statistics(), made.roads, strict=True):
        assert 0.9 * road.lost <= entry.lost_packets <= road.lost
        assert entry.loss_share == pytest.approx(0.2, abs=0.08)
        assert entry.times_left == 0


@pytest.mark.parametrize("path", [-1, 4, 65_535])
def test_acknowledgements_of_paths_that_do_not_exist(path: int) -> None:
    sprayer = PathSprayer(4, seed=0)
    sprayer.acknowledged(path, 0, 1, 0, 1, 5)
    assert sprayer.unknown_paths == 1
    assert all(entry.acknowledged_packets == 0 for entry in sprayer.statistics())


def test_events_that_nobody_takes_are_bounded() -> None:
    made = network(chunk_ns=4 * MILLISECOND)
    assert made.sprayer._events.maxlen == MAXIMUM_EVENTS


def test_a_peer_that_comes_to_one_path_after_the_other_leaves_none() -> None:
    """A busy host reads its sockets in turn: others answer while a path is silent, and yet it is sound."""
    paths, turn_ns = 8, 25 * MILLISECOND
    sprayer = PathSprayer(paths, seed=1)
    counts = [0] * paths
    for step in range(4 * paths):
        for part in range(5):
            now_ns = step * turn_ns + part * 5 * MILLISECOND + 1
            each = np.arange(paths)
            sprayer.choose(paths, now_ns)
            sprayer.sent(each, np.full(paths, 3), np.full(paths, 4500), now_ns)
            probed = sprayer.probes_due(now_ns)
            counts = [count + 3 + (path in probed) for path, count in enumerate(counts)]
        answering = step % paths
        late_ns = now_ns + 4 * MILLISECOND
        sprayer.acknowledged(answering, now_ns, counts[answering], 0, late_ns - now_ns, late_ns)
    assert [path.times_left for path in sprayer.statistics()] == [0] * paths
