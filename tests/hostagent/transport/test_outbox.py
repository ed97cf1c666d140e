"""How much leaves at once, and how much of it is important."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from mltswitch.hostagent.datapaths import PeerPaths
from mltswitch.hostagent.network.flow_limit import FLOW_PACKETS
from mltswitch.hostagent.network.outgoing import Output
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.spraying.standing import Reason
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.transport.datagrams import Bursts
from mltswitch.hostagent.transport.pacing import CALM_SLACK_NS, SLACK_NS
from mltswitch.hostagent.transport.rate import RateSettings, Timely
from mltswitch.hostagent.transport.sharing import SharedRate
from mltswitch.wire import AgentFlag
from tests.hostagent.transport.ends import connection, incoming, outgoing, talk, tensor

RATE_BPS = 4e9
"""Moves half a megabyte in 1.1 ms: the test's connections have a window of one."""
LEAST_BYTES = 65_536
PACKET_BYTES = 1_500 + 14
PACKETS = 3_000
NO_OUTPUT = cast("Output", None)


class EveryOther:
    """Each second packet is important."""

    def mark(self, tensor: TensorView, layout: PacketLayout) -> "EveryOther":
        return self

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        return np.equal(np.arange(first, last) % 2, 0)


def left_at_once(rate: Timely, *, is_shared: bool = False) -> Bursts:
    """What leaves first after a second without anything."""
    sender, receiver = connection(1, rate=rate), connection(2)
    if is_shared:
        sender.share_rate(SharedRate(2 * RATE_BPS, 0).share())
    elements = tensor(PACKETS * 1_432 // 4)
    sender.send(outgoing(5, tensor=elements, policy=EveryOther()), 1)
    receiver.receive(replace(incoming(5), tensor=elements), 1)
    talk(sender, receiver)
    bursts = sender.bursts(10**9, 10 * PACKETS)
    assert bursts is not None
    return bursts


def measured(round_trips_ns: list[int]) -> Timely:
    rate = Timely(replace(RateSettings.for_network(RATE_BPS, queue_bytes=0), learns_base=False))
    for number, round_trip_ns in enumerate(round_trips_ns):
        for _ in range(rate.settings.samples):
            rate.acknowledged(round_trip_ns, (number + 1) * 10**8)
    return rate


def important_share(bursts: Bursts) -> float:
    """Of the packets."""
    return float(np.mean((bursts.headers["flags"] & AgentFlag.IMPORTANT) != 0))


def calm() -> Timely:
    rate = measured([1_000, 1_000, 1_000])
    assert rate.is_highest
    return rate


def test_more_leaves_at_once_while_round_trips_do_not_slow_the_flow_down() -> None:
    packets = left_at_once(calm()).packet_count
    most_bytes = CALM_SLACK_NS * RATE_BPS / 8e9
    assert 0.9 * most_bytes < packets * PACKET_BYTES <= most_bytes


def test_a_flow_that_knows_nothing_yet_is_not_calm() -> None:
    rate = measured([])
    assert rate.rate_bps == RATE_BPS
    assert left_at_once(rate).packet_count * PACKET_BYTES <= SLACK_NS * RATE_BPS / 8e9


def test_other_peers_slow_a_flow_down() -> None:
    bursts = left_at_once(calm(), is_shared=True)
    assert bursts.packet_count * PACKET_BYTES <= SLACK_NS * RATE_BPS / 8e9
    assert 0.4 < important_share(bursts) < 0.6


def test_both_kinds_leave_at_once_where_round_trips_slow_the_flow_down() -> None:
    rate = measured([1_000, 50_000_000, 50_000_000, 50_000_000, 1_000])
    assert not rate.is_highest
    bursts = left_at_once(rate)
    assert bursts.packet_count * PACKET_BYTES <= max(SLACK_NS * rate.rate_bps / 8e9, LEAST_BYTES)
    assert 0.4 < important_share(bursts) < 0.6


@pytest.mark.parametrize("in_use", [1, 2, 3, 4])
def test_where_the_kernel_keeps_packets_no_path_gets_more_than_its_flow_holds(in_use: int) -> None:
    """fq drops what is too much for one flow, so paths that are out of use make no room for others."""
    sender, receiver = connection(1, paths=4), connection(2, paths=4)
    pacer = PeerPaths(NO_OUTPUT, FLOW_PACKETS * 1_472).pacer(0)
    assert pacer is not None
    sender.pace(pacer)
    elements = tensor(PACKETS * 1_432 // 4)
    sender.send(outgoing(5, tensor=elements), 1)
    receiver.receive(replace(incoming(5), tensor=elements), 1)
    talk(sender, receiver)
    sprayer = sender.sprayer
    assert isinstance(sprayer, PathSprayer)
    for path in range(in_use, 4):
        assert sprayer._leave(path, Reason.DEAD, 1)
    bursts = sender.bursts(10**9, 10 * PACKETS)
    assert bursts is not None
    packets = np.bincount(bursts.headers["path"], minlength=4).tolist()
    assert packets[in_use:] == [0] * (4 - in_use)
    assert 0.9 * FLOW_PACKETS < min(packets[:in_use]) <= max(packets[:in_use]) <= FLOW_PACKETS


@pytest.mark.parametrize("loss_bound", [0.01, 0.1])
@pytest.mark.parametrize("burst_packets", [1, 44])
def test_what_a_receiver_does_without_is_unimportant(loss_bound: float, burst_packets: int) -> None:
    """It has enough before it has heard all, if nothing is lost."""
    sender, receiver = connection(1), connection(2)
    elements = tensor(600 * 1_432 // 4)
    sender.send(outgoing(5, tensor=elements, policy=EveryOther(), burst_packets=burst_packets), 1)
    receiver.receive(replace(incoming(5), tensor=elements, loss_bound=loss_bound), 1)
    talk(sender, receiver)
    found: list[bool] = []
    now_ns = 10**9
    while len(found) < 600:
        bursts = sender.bursts(now_ns, 100)
        now_ns += 10**7
        if bursts is not None:
            found += ((bursts.headers["flags"] & AgentFlag.IMPORTANT) != 0).tolist()
    missing = int(loss_bound * 600)
    assert not any(found[-missing:])
    if loss_bound < 0.1:
        assert 0.4 < np.mean(found[:300]) < 0.6  # the others stay mixed
