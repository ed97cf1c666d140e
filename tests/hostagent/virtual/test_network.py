"""The virtual network itself: with ends that count, before connections are put on it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE, Bursts, Datagram, DatagramGrid
from mltswitch.hostagent.transport.interfaces import Event
from tests.hostagent.virtual.links import PERFECT, BurstLoss, LinkSettings
from tests.hostagent.virtual.network import ControlSettings, HostSettings, LoopError, Side, VirtualNetwork

ELEMENTS = 100
PACKETS = 400
MILLISECOND = 1_000_000
SECOND = 10**9


class Counting:
    """Sends so many data packets, paced, and so many control bytes; remembers what came."""

    def __init__(self, token: int, peer_token: int, packets: int = PACKETS, control: bytes = b"") -> None:
        self.receive_token, self._peer_token = token, peer_token
        self._left, self._control = packets, control
        self._next_ns = 0
        self.packets = packets
        self.tensor = np.arange(packets * ELEMENTS, dtype=np.uint32).astype(np.uint8)
        self.came: list[tuple[int, int, bytes, int]] = []
        self.control = b""
        self.chunks: list[int] = []
        self.ended: list[AgentError] = []
        self.timers: list[int] = []

    def control_received(self, data: bytes, now_ns: int) -> None:
        self.control += data
        self.chunks.append(len(data))

    def control_ended(self, error: AgentError, now_ns: int) -> None:
        self.ended.append(error)

    def datagrams_received(self, grids: Sequence[DatagramGrid], now_ns: int) -> None:
        for grid in grids:
            self._received(grid, now_ns)

    def _received(self, grid: DatagramGrid, now_ns: int) -> None:
        for message in range(grid.messages):
            for place in range(grid.datagrams_per_message):
                data = bytes(grid.datagram(message, place))
                sequence = int(np.frombuffer(data[:40], HEADER_DTYPE)[0]["sequence"])
                self.came.append((now_ns, sequence, data[40:], int(grid.tos[message])))

    def timer(self, now_ns: int) -> None:
        self.timers.append(now_ns)

    def control_to_send(self) -> bytes:
        data, self._control = self._control, b""
        return data

    def bursts(self, now_ns: int, maximum_packets: int) -> Bursts | None:
        if not self._left or now_ns < self._next_ns:
            return None
        count = min(4, self._left, maximum_packets)
        self._next_ns = now_ns + 50_000
        first = self.packets - self._left
        self._left -= count
        headers = np.zeros(count, HEADER_DTYPE)
        headers["flow_token"] = self._peer_token
        headers["sequence"] = np.arange(first, first + count)
        return Bursts(
            headers,
            self.tensor,
            np.arange(first, first + count, dtype=np.int64) * ELEMENTS,
            np.full(count, ELEMENTS, np.int64),
            np.array([0, count], np.int64),
            np.array([first // 4 % 2], np.int64),
            np.array([2], np.uint8),
        )

    def markers_to_send(self, now_ns: int) -> list[Datagram]:
        return []

    def datagrams_to_send(self, now_ns: int) -> list[Datagram]:
        return []

    def next_timer_ns(self) -> int | None:
        return self._next_ns if self._left else None

    def events(self) -> list[Event]:
        return []


class Restless(Counting):
    def next_timer_ns(self) -> int | None:
        return 0


def met(
    link: LinkSettings = PERFECT,
    *,
    control: ControlSettings = ControlSettings(),  # noqa: B008  (frozen)
    host: HostSettings = HostSettings(),  # noqa: B008  (frozen)
    until_ns: int = SECOND,
    seed: int = 1,
    data: bytes = b"",
) -> tuple[VirtualNetwork, Counting, Side]:
    """What came to the second of two ends; the first has sent everything."""
    network = VirtualNetwork(seed)
    first, second = Counting(1, 2, control=data), Counting(2, 1, packets=0)
    paths = {0: link, 1: link}
    _, side = network.join(("a", "b"), (first, second), (paths, paths), control, (HostSettings(), host))
    network.run(until_ns)
    return network, second, side


def sequences(end: Counting) -> list[int]:
    return [sequence for _, sequence, _, _ in end.came]


def test_a_perfect_network_delivers_everything_once_in_time_and_unchanged() -> None:
    _, end, side = met()
    assert sorted(sequences(end)) == list(range(PACKETS))
    first = end.came[0]
    assert PERFECT.delay_ns < first[0] < PERFECT.delay_ns + 30_000
    tensor = Counting(0, 0).tensor
    for _, sequence, body, tos in end.came:
        assert body == tensor[sequence * ELEMENTS : (sequence + 1) * ELEMENTS].tobytes()
        assert tos == 2
    assert side.refused == 0


@pytest.mark.parametrize(
    ("link", "least", "most"),
    [
        (LinkSettings(loss=0.3), 0.6, 0.8),
        (LinkSettings(burst_loss=BurstLoss(0.05, 0.2)), 0.6, 0.95),
        (LinkSettings(duplicated=0.2), 1.1, 1.3),
        (LinkSettings(corrupted=0.3), 0.6, 0.8),
        (LinkSettings(dead=((0, SECOND),)), 0, 0),
        (LinkSettings(rate_bps=10e6, queue_bytes=1000), 0.02, 0.5),
    ],
)
def test_faults_happen_as_often_as_they_should(link: LinkSettings, least: float, most: float) -> None:
    _, end, _ = met(link)
    assert least <= len(end.came) / PACKETS <= most


def test_lost_in_bursts() -> None:
    _, end, _ = met(LinkSettings(burst_loss=BurstLoss(0.02, 0.1)))
    per_path = [
        [sequence for sequence in sorted(sequences(end)) if sequence // 4 % 2 == path] for path in (0, 1)
    ]
    gaps = [after - before for path in per_path for before, after in pairwise(path)]
    assert max(gaps) > 20


def test_reordering() -> None:
    _, end, _ = met()
    in_order = sequences(end)
    assert in_order == sorted(in_order)
    _, end, _ = met(LinkSettings(reordered=0.3, reorder_ns=MILLISECOND))
    found = sequences(end)
    assert found != sorted(found)
    assert sorted(found) == list(range(PACKETS))


def test_a_spike_delays_and_a_path_comes_back() -> None:
    _, end, _ = met(
        LinkSettings(spikes=((0, MILLISECOND, 20 * MILLISECOND),), dead=((MILLISECOND, 2 * MILLISECOND),))
    )
    when = {sequence: at for at, sequence, _, _ in end.came}
    assert when[0] > 20 * MILLISECOND
    assert 100 not in when
    assert when[300] < 20 * MILLISECOND


def test_above_the_threshold_capable_packets_are_marked() -> None:
    link = LinkSettings(rate_bps=20e6, ecn_threshold_bytes=2000, queue_bytes=10**6)
    _, end, _ = met(link)
    marked = [tos == 3 for *_, tos in end.came]
    assert not marked[0]
    assert sum(marked) > PACKETS / 2
    _, end, _ = met(replace(link, bleaches_ecn=True))
    assert {tos for *_, tos in end.came} == {0}


def test_noticeable_flips_only() -> None:
    _, end, side = met(LinkSettings(corrupted=1.0, unnoticed=1.0))
    tensor = Counting(0, 0).tensor
    assert side.refused > 0
    assert len(end.came) + side.refused == PACKETS
    bodies = {body for _, _, body, _ in end.came}
    assert bodies <= {tensor[i * ELEMENTS : (i + 1) * ELEMENTS].tobytes() for i in range(PACKETS)}
    _, end, _ = met(LinkSettings(corrupted=1.0, unnoticed=1.0, flips_anything=True))
    bodies = {body for _, _, body, _ in end.came}
    assert not bodies <= {tensor[i * ELEMENTS : (i + 1) * ELEMENTS].tobytes() for i in range(PACKETS)}


def test_control_bytes_come_in_order_cut_anywhere() -> None:
    data = bytes(range(256)) * 4
    _, end, _ = met(control=ControlSettings(chunk_bytes=20, jitter_ns=MILLISECOND), data=data)
    assert end.control == data
    assert len(set(end.chunks)) > 10


def test_control_waits_for_a_dead_path_and_for_a_frozen_host() -> None:
    data = bytes(range(256)) * 4
    frozen = HostSettings(frozen=((0, 500_000), (MILLISECOND, 10 * MILLISECOND)))
    settings = ControlSettings(chunk_bytes=9, jitter_ns=300_000, dead=((0, 600_000),))
    _, end, _ = met(control=settings, host=frozen, data=data)
    assert end.control == data
    assert not any(MILLISECOND <= at < 10 * MILLISECOND for at, *_ in end.came)
    assert sorted(sequences(end)) == list(range(PACKETS))


def test_a_broken_channel_is_told_once_and_carries_nothing_more() -> None:
    _, end, _ = met(control=ControlSettings(breaks_ns=0, delay_ns=10), data=bytes(1000))
    assert len(end.ended) == 1
    assert end.control == b""


def test_a_full_buffer_loses() -> None:
    frozen = HostSettings(frozen=((0, 100 * MILLISECOND),), buffer_datagrams=50)
    _, end, _ = met(host=frozen)
    assert len(end.came) == 50


def test_one_seed_one_trace() -> None:
    link = LinkSettings(loss=0.1, duplicated=0.1, reordered=0.2, reorder_ns=MILLISECOND)
    first, one, _ = met(link, data=bytes(100))
    again, same, _ = met(link, data=bytes(100))
    other, _, _ = met(link, data=bytes(100), seed=2)
    assert first.trace == again.trace
    assert one.came == same.came
    different = [met(link, data=bytes(100), seed=seed)[1].came for seed in (1, 2, 3)]
    assert different[0] != different[1] != different[2]
    assert other.now_ns > 0


def test_an_injected_datagram_with_another_token_is_refused() -> None:
    network = VirtualNetwork(1)
    ends = Counting(1, 2, packets=0), Counting(2, 1, packets=0)
    _, side = network.join(("a", "b"), ends, ({}, {}), ControlSettings(), (HostSettings(), HostSettings()))
    header = np.zeros(1, HEADER_DTYPE)
    for token in (2, 3):
        header["flow_token"] = token
        network.inject(side, header.tobytes())
    network.inject(side, b"short")
    network.run(SECOND)
    assert len(ends[1].came) + side.refused == 3
    assert len(ends[1].came) in (1, 2)


def test_an_end_without_rest_is_caught() -> None:
    network = VirtualNetwork(1)
    ends = Restless(1, 2, packets=0), Counting(2, 1, packets=0)
    network.join(("a", "b"), ends, ({}, {}), ControlSettings(), (HostSettings(), HostSettings()))
    with pytest.raises(LoopError, match="does not come to rest"):
        network.run(SECOND)
