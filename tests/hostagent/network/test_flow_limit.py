"""No more messages wait in the kernel for one path than fq keeps, whatever the policy draws."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from mltswitch.hostagent.network.departures import Departures
from mltswitch.hostagent.network.flow_limit import FLOW_MESSAGES, FLOW_PACKETS, FlowLimit
from mltswitch.hostagent.network.outgoing import (
    Refusal,
    SendCounters,
    cut_for_segmentation,
    overhead_bytes,
    rest_of,
)
from mltswitch.hostagent.spraying.settings import Policy, SprayingSettings
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.spraying.standing import Reason
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_SEGMENTS, Bursts, Datagram
from mltswitch.hostagent.transport.pacing import Pacer
from tests.hostagent.network.bursts import bursts_of

FLOW_LIMIT: Final = 100
"""fq's (tc-fq(8))."""
PATHS: Final = 8
RATE_BPS: Final = 10e9
BODY_BYTES: Final = 1_000
HEADER_BYTES: Final = 42
SLACK_NS: Final = 2_000_000
STEP_NS: Final = 50_000
STEPS: Final = 60


class FairQueue:
    """fq by a clock of the test's: what one path has waiting, and what is dropped."""

    def __init__(self, *, is_segmenting: bool, takes_packets: int = 1 << 30) -> None:
        """`takes_packets`: at once."""
        self.counters = SendCounters()
        self.blocked_socket = None
        self.now_ns = 0
        self.departures = Departures(lambda: RATE_BPS, HEADER_BYTES, lambda: self.now_ns)
        self.waiting: list[list[int]] = [[] for _ in range(PATHS)]
        """Times at which messages leave."""
        self.most = 0
        self._segmenting = np.full(PATHS, is_segmenting)
        self._takes_packets = takes_packets

    def send(self, bursts: Bursts) -> int:
        cut = cut_for_segmentation(bursts, self._segmenting[bursts.paths])
        count = int(np.searchsorted(cut.starts, self._takes_packets, side="right")) - 1
        payload_bytes = np.add.reduceat(bursts.payload_bytes, cut.starts[:-1])
        payload_bytes += cut.packets * overhead_bytes(bursts)
        times = self.departures.plan(payload_bytes, cut.packets)
        count = min(count, cut.count)
        self.departures.left(count)
        for path, time_ns in zip(cut.paths[:count].tolist(), times[:count].tolist(), strict=True):
            self.waiting[path] = [entry for entry in self.waiting[path] if entry > self.now_ns] + [time_ns]
            self.most = max(self.most, len(self.waiting[path]))
        return int(cut.starts[count])

    def send_datagrams(self, datagrams: Sequence[Datagram]) -> int:
        return len(datagrams)

    def refusals(self) -> tuple[Refusal, ...]:
        return ()


def drawn(sprayer: PathSprayer, packets: int, burst_packets: int, now_ns: int) -> Bursts:
    """As a connection draws them; the last burst may be shorter."""
    count = -(-packets // burst_packets)
    paths: NDArray[np.int64] = sprayer.choose(count, now_ns)
    tensor = np.zeros(packets * BODY_BYTES, np.uint8)
    return bursts_of(tensor, BODY_BYTES, [burst_packets], paths.tolist())


def sprayer_of(policy: Policy, seed: int, in_use: int) -> PathSprayer:
    sprayer = PathSprayer(PATHS, SprayingSettings(policy=policy), seed=seed)
    for path in range(in_use, PATHS):
        assert sprayer._leave(path, Reason.DEAD, 1)
    return sprayer


def play(queue: FairQueue, sprayer: PathSprayer, burst_packets: int, *, is_limited: bool = True) -> int:
    """Packets sent as the engine sends them: by credit, and what is not taken first, a little later."""
    limit = FlowLimit(
        queue,
        queue.departures,
        PATHS,
        lambda path: bool(queue._segmenting[path]),
        lambda: queue.now_ns,
    )
    pacer = Pacer(0, slack_ns=SLACK_NS, path_credit_bytes=FLOW_PACKETS * BODY_BYTES)
    rest: Bursts | None = None
    sent = 0
    for step in range(STEPS):
        queue.now_ns = step * STEP_NS
        while True:
            bursts = rest
            if bursts is None:
                pacer.spread(sprayer.largest_share)
                credit = pacer.may_leave_bytes(RATE_BPS, queue.now_ns)
                if not credit:
                    break
                packets = -(-max(1, credit // (BODY_BYTES + HEADER_BYTES)) // burst_packets) * burst_packets
                bursts = drawn(sprayer, packets, burst_packets, queue.now_ns)
                pacer.left(packets * (BODY_BYTES + HEADER_BYTES))
            taken = (limit if is_limited else queue).send(bursts)
            sent += taken
            rest = rest_of(bursts, taken) if taken < bursts.packet_count else None
            if rest is not None:
                break
    return sent


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("in_use", [1, 2, 5, 8])
@pytest.mark.parametrize(
    ("burst_packets", "is_segmenting"), [(1, True), (64, True), (16, False), (64, False)]
)
def test_no_path_has_more_waiting_than_fq_keeps(
    policy: Policy, in_use: int, burst_packets: int, is_segmenting: bool
) -> None:
    for seed in range(10):
        queue = FairQueue(is_segmenting=is_segmenting)
        sent = play(queue, sprayer_of(policy, seed, in_use), burst_packets)
        assert queue.most <= FLOW_MESSAGES < FLOW_LIMIT
        assert sent > 1000, "and it goes on"


@pytest.mark.parametrize("policy", list(Policy))
def test_without_the_limit_fq_would_drop_some(policy: Policy) -> None:
    """The average of a policy says nothing of one credit."""
    most = 0
    for seed in range(10):
        queue = FairQueue(is_segmenting=False)
        play(queue, sprayer_of(policy, seed, PATHS), 64, is_limited=False)
        most = max(most, queue.most)
    assert most > FLOW_LIMIT


@pytest.mark.parametrize("seed", range(10))
def test_a_path_that_is_left_takes_its_room_with_it(seed: int) -> None:
    """What waits was spread over all of them."""
    queue, sprayer = FairQueue(is_segmenting=True), PathSprayer(PATHS, seed=seed)
    limit = FlowLimit(queue, queue.departures, PATHS, lambda _: True, lambda: queue.now_ns)
    first = drawn(sprayer, PATHS * FLOW_PACKETS, 1, 0)
    assert limit.send(first) == first.packet_count
    for path in range(1, PATHS):
        assert sprayer._leave(path, Reason.DEAD, 1)
    assert limit.send(drawn(sprayer, FLOW_PACKETS, 1, 0)) == FLOW_MESSAGES - FLOW_PACKETS


def test_room_comes_back_as_messages_leave() -> None:
    queue = FairQueue(is_segmenting=True)
    limit = FlowLimit(queue, queue.departures, PATHS, lambda _: True, lambda: queue.now_ns)
    tensor = np.zeros(1000 * BODY_BYTES, np.uint8)
    bursts = bursts_of(tensor, BODY_BYTES, [1], [3])
    assert limit.send(bursts) == FLOW_MESSAGES
    rest = rest_of(bursts, FLOW_MESSAGES)
    assert limit.send(rest) == 0
    assert limit.blocked_socket is None
    for gone in (1, 1, 10):
        queue.now_ns = int(limit._gone_ns[gone - 1])
        assert limit.send(rest) == gone
        rest = rest_of(rest, gone)
    assert limit.waiting().tolist() == [0, 0, 0, FLOW_MESSAGES, 0, 0, 0, 0]
    queue.now_ns = queue.departures.free_ns
    assert not limit.waiting().any()


def test_what_the_kernel_does_not_take_does_not_count() -> None:
    queue = FairQueue(is_segmenting=True, takes_packets=10)
    limit = FlowLimit(queue, queue.departures, PATHS, lambda _: True, lambda: queue.now_ns)
    bursts = bursts_of(np.zeros(50 * BODY_BYTES, np.uint8), BODY_BYTES, [1], [0, 1])
    assert limit.send(bursts) == 10
    assert limit.waiting().tolist()[:2] == [5, 5]


def test_a_burst_always_finds_room_on_an_empty_path() -> None:
    assert UDP_MAXIMUM_SEGMENTS <= FLOW_MESSAGES
