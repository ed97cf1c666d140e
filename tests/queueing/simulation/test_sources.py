from collections import Counter
from itertools import islice, pairwise
from math import inf

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.queueing import Arrivals, Batch, Incast, Poisson, QueueTraffic, Trace
from mltswitch.queueing.simulation.arrays import IMPORTANT, UNIMPORTANT
from mltswitch.queueing.simulation.records import pending_capacity, random_streams
from tests.queueing.simulation.support import arrivals


@pytest.mark.parametrize(
    "pattern",
    [
        Poisson(),
        Batch(5),
        Batch(5, source_rate_ratio=2.0),
        Batch(5, "geometric"),
        Batch(1, "geometric"),
        Batch(40, source_rate_ratio=0.01),
        Trace((1, 2, 30), (0.5, 0.25, 0.25)),
        Incast(7, 3, jitter_packet_times=4.0),
        Incast(7, 3, jitter_packet_times=1000.0, source_rate_ratio=inf),
        Incast(2, 100, source_rate_ratio=0.01),
    ],
)
def test_sources_keep_their_rate_and_their_order(pattern: Arrivals) -> None:
    seen = list(islice(arrivals(QueueTraffic(0.8, arrivals=pattern)), 12_000))
    assert all(one.time <= other.time for one, other in pairwise(seen))
    start = len(seen) // 4  # slow trains overlap only after a while
    packets = sum(arrival.packets for arrival in seen[start:])
    assert packets / (seen[-1].time - seen[start].time) == pytest.approx(0.8, rel=0.1)


def test_geometric_sizes_are_geometric() -> None:
    sizes = Counter(
        one.packets for one in islice(arrivals(QueueTraffic(0.8, arrivals=Batch(4, "geometric"))), 12_000)
    )
    for size in range(1, 6):
        assert sizes[size] / 12_000 == pytest.approx(0.25 * 0.75 ** (size - 1), abs=0.015)


def test_a_trace_repeats_its_sizes() -> None:
    pattern = Trace((1, 4, 9), (0.5, 0.2, 0.3))
    sizes = Counter(one.packets for one in islice(arrivals(QueueTraffic(0.8, arrivals=pattern)), 12_000))
    assert set(sizes) == {1, 4, 9}
    for size, share in zip(pattern.sizes_packets, pattern.probabilities, strict=True):
        assert sizes[size] / 12_000 == pytest.approx(share, abs=0.02)


def test_a_burst_takes_as_long_as_its_sender_is_slow() -> None:
    """Rare bursts: three gaps of half a packet time, then a long one."""
    seen = list(islice(arrivals(QueueTraffic(1e-6, arrivals=Batch(4, source_rate_ratio=2.0))), 40))
    gaps = [other.time - one.time for one, other in pairwise(seen)]
    for place, gap in enumerate(gaps):
        assert gap > 100 if place % 4 == 3 else gap == pytest.approx(0.5, abs=1e-6)


def test_incast_comes_at_regular_distance_with_every_sender() -> None:
    pattern = Incast(
        senders=5, round_packets=6, jitter_packet_times=3.0, burst_packets=4, source_rate_ratio=inf
    )
    seen = list(islice(arrivals(QueueTraffic(0.3, 0.5, pattern, "burst")), 5 * 2 * 40))
    distance = 5 * 6 / 0.3
    rounds = [seen[index : index + 10] for index in range(0, len(seen), 10)]
    phase = seen[0].time % distance
    for number, of_round in enumerate(rounds):
        assert sorted(one.packets for one in of_round) == [2] * 5 + [4] * 5
        assert sum(one.tag in (IMPORTANT, UNIMPORTANT) for one in of_round) == 10
        since = of_round[0].time - rounds[0][0].time - number * distance
        assert abs(since) <= 3.0
        assert of_round[-1].time - of_round[0].time <= 3.0
    assert 0 <= phase < distance


def test_jitter_is_uniform() -> None:
    pattern = Incast(senders=3, round_packets=1, jitter_packet_times=2.0)
    times = [one.time for one in islice(arrivals(QueueTraffic(0.01, arrivals=pattern)), 3 * 3000)]
    offsets = np.array(times).reshape(-1, 3)
    phase = (offsets[:, 0] - np.arange(3000) * 300).min()
    late = (offsets - np.arange(3000)[:, None] * 300 - phase).ravel()
    assert np.histogram(late, 4, (0, 2))[0] / 9000 == pytest.approx([0.25] * 4, abs=0.02)


def test_tags_per_burst_have_the_share() -> None:
    traffic = QueueTraffic(0.5, 0.3, Batch(4, source_rate_ratio=1e6), "burst")
    tags = [one.tag for one in islice(arrivals(traffic), 16_000)]
    assert tags.count(UNIMPORTANT) / len(tags) == pytest.approx(0.3, abs=0.03)
    assert all(len(set(tags[index : index + 4])) == 1 for index in range(0, 16_000, 4))


def test_streams_depend_on_seed_replication_and_place_alone() -> None:
    three, two = random_streams(1, 0, 3), random_streams(1, 0, 2)
    assert list(three[:2]) == list(two[:2])
    everything = [
        int(word["word"])
        for seed in (1, 2)
        for replication in (0, 1)
        for word in random_streams(seed, replication, 3)
    ]
    assert len(set(everything)) == len(everything)


def test_jitter_over_too_many_rounds_is_refused() -> None:
    pattern = Incast(senders=100, round_packets=1, jitter_packet_times=1e9)
    with pytest.raises(UserInputError, match="jitter"):
        pending_capacity([QueueTraffic(0.5, arrivals=pattern)])
