"""Credit in virtual time: receivers divide what their port takes in; who sends or grants more is cut."""

from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent.dataplane.binding import lib
from tests.hostagent.dataplane.ends import MILLISECOND, SECOND, Ends, completion, gradients
from tests.hostagent.dataplane.star import Star

FAST, ROUND_TRIP_NS = 100e6, MILLISECOND // 5
REPAIRS = [lib.MLT_IN_PASSES, lib.MLT_AT_ONCE]
GRANTED, SPENT = slice(12, 16), slice(28, 32)
"""Where a datagram says what may have been sent, and what has been."""
DATA, ACKNOWLEDGEMENT, CONTROL, SELECTIVE = 1, 2, 4, 5


def star(senders: int = 8, buffer_bytes: int = 100_000, **options: Any) -> Star:
    return Star(
        senders,
        options.pop("rate_bps", FAST),
        options.pop("round_trip_ns", ROUND_TRIP_NS),
        buffer_bytes,
        burst_packets=0,
        control=lib.MLT_CREDIT,
        **options,
    )


def longest(network: Star, size_bytes: int, rounds: int) -> tuple[float, int]:
    """The worst round over what the link needs, and packets that were sent again."""
    found = [network.gather(size_bytes) for _ in range(rounds)]
    limit = network.limit_seconds(size_bytes)
    resent = sum(each.resent for one in found for each in one)
    return max(each.seconds for one in found for each in one) / limit, resent


@pytest.mark.parametrize("repair", REPAIRS)
def test_an_incast_takes_as_long_as_the_link_needs_and_loses_nothing(repair: int) -> None:
    assert longest(star(repair=repair), 128_000, 6) < (1.02, 1)


def test_an_incast_through_ports_of_sixteen_packets() -> None:
    ratio, resent = longest(star(3, 24_000, rate_bps=20e6), 400_000, 3)
    assert (ratio < 1.02, resent) == (True, 0)
    assert longest(star(16, 24_000), 64_000, 6)[0] < 1.15


def test_losses_of_the_link_itself_slow_nobody_down() -> None:
    assert longest(star(loss=0.01, repair=lib.MLT_IN_PASSES), 128_000, 6)[0] < 1.1
    assert longest(star(loss=0.01), 128_000, 6)[0] < 1.25
    far = star(loss=0.01, rate_bps=800e6, round_trip_ns=2 * MILLISECOND, buffer_bytes=1_000_000)
    assert longest(far, 1_000_000, 2)[0] < 1.3


@pytest.mark.parametrize("told", [10.0, 0.1, 0.0])
@pytest.mark.parametrize("senders", [1, 8])
def test_a_port_of_another_rate_than_the_file_says_is_learned(told: float, senders: int) -> None:
    network = star(senders, 1_000_000, round_trip_ns=2 * MILLISECOND, told_bps=told * FAST)
    began_ns = network.now_ns
    while network.now_ns < began_ns + SECOND:
        network.gather(1_000_000 // senders)
    network.deepest_bytes = 0
    ratio, resent = longest(network, 1_000_000 // senders, 4)
    assert ratio < 1.15
    assert resent == 0
    assert network.deepest_bytes < FAST / 8 * 20e-3


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_grants_take_no_more_than_the_share_of_the_port(share: float) -> None:
    """And nobody takes the share for the port's rate."""
    network = star(4)
    longest(network, 250_000, 1)
    network.planes[0].set_share(share)
    for _ in range(3):
        assert 0.75 / share <= longest(network, 250_000, 1)[0] <= 1.25 / share
    assert network.planes[0].port().bps == FAST
    assert network.planes[0].port().arrived_bytes >= 4 * 4 * 250_000
    network.planes[0].set_share(1.0)
    longest(network, 250_000, 1)
    assert longest(network, 250_000, 2)[0] <= 1.15


@pytest.mark.parametrize("told", [1.5, 2.0, 2.8])
def test_marks_tell_of_a_queue_that_is_not_the_ports(told: float) -> None:
    """A core that carries less than the port, by less than what is taken for another port's rate."""
    network = star(8, 24_000, told_bps=told * FAST, marked_bytes=12_000)
    began_ns = network.now_ns
    while network.now_ns < began_ns + SECOND:
        network.gather(125_000)
    ratio, resent = longest(network, 125_000, 4)
    packets = 4 * 8 * 125_000 / 1432
    assert ratio < 1.1
    assert resent < 0.045 * packets


def test_a_pause_between_rounds_is_no_round_trip() -> None:
    network = star(round_trip_ns=2 * MILLISECOND)
    assert longest(network, 128_000, 2)[0] < 1.1
    for pause_ns in (300 * MILLISECOND, 3 * SECOND, 30 * SECOND):
        network.now_ns += pause_ns
        assert longest(network, 128_000, 1)[0] < 1.1


@pytest.mark.parametrize("senders", [1, 4])
def test_a_port_that_nobody_knows_is_felt_for(senders: int) -> None:
    network = star(senders, 150_000, rate_bps=1e9, round_trip_ns=100_000, told_bps=0.0)
    ratio, resent = longest(network, 6_000_000 // senders, 1)
    assert ratio < 1.1
    assert resent < 0.2 * 4200


def _share_of(ends: Ends, links: int, *, layers: tuple[int, ...], stop: int) -> list[int]:
    """A tensor over each link; packets that have arrived of each when `stop` have of all."""
    data = gradients(400_000)
    received = []
    for link in range(links):
        target = np.zeros_like(data)
        received.append(ends.post(data, target, link=link, layer=layers[link], priority=layers[link])[1])

    def arrived() -> list[int]:
        return [ends.planes[1].result(transfer).arrived_packets for transfer in received]

    ends.run(lambda: sum(arrived()) >= stop)
    return arrived()


def _narrow(ends: Ends) -> None:
    """All that goes to end 1 passes a link of 100 Mbit/s."""
    free_ns = 0.0

    def carry(end: int, output: Any, datagram: bytes) -> bool:
        nonlocal free_ns
        if end == 1:
            return True
        free_ns = max(free_ns, ends.now_ns) + len(datagram) * 8 * SECOND / FAST
        ends.fly(int(free_ns) - ends.now_ns + ends.delay_ns, end, output, datagram)
        return False

    ends.carry = carry


def test_flows_of_one_layer_are_equal_and_front_layers_go_first() -> None:
    ends = Ends(links=4, has_credit=True)
    _narrow(ends)
    shares = _share_of(ends, 4, layers=(1, 1, 1, 1), stop=3200)
    assert max(shares) <= 1.15 * min(shares)
    ends = Ends(links=3, has_credit=True)
    _narrow(ends)
    front, *others = _share_of(ends, 3, layers=(0, 5, 5), stop=800)
    assert front >= 0.8 * 800
    assert all(others)  # none starves


def test_a_grant_that_is_lost_is_asked_for() -> None:
    ends = Ends(has_credit=True)
    data, answers = gradients(200_000), 0

    def carry(end: int, _: Any, datagram: bytes) -> bool:
        nonlocal answers
        answers += end == 1 and datagram[1] in {ACKNOWLEDGEMENT, SELECTIVE}
        return not (end == 1 and 4 < answers < 12)

    ends.carry = carry
    target = np.zeros_like(data)
    sent, received = ends.both(*ends.post(data, target))
    assert (sent.status, received.status) == (lib.MLT_OK, lib.MLT_OK)
    assert (target == data).all()


def test_grants_that_are_late_or_doubled_say_nothing_new() -> None:
    ends = Ends(has_credit=True)
    data, delay = gradients(400_000), 0

    def carry(end: int, output: Any, datagram: bytes) -> bool:
        nonlocal delay
        if end == 1:
            delay = (delay + 7) % 23
            ends.fly(ends.delay_ns + delay * 40_000, end, output, datagram)
        return True

    ends.carry = carry
    target = np.zeros_like(data)
    _, received = ends.both(*ends.post(data, target))
    assert (received.status, (target == data).all()) == (lib.MLT_OK, True)
    assert ends.planes[1].flow_statistics(ends.tokens[1]).ungranted == 0


def _at(ends: Ends, place: slice, kinds: set[int], value: int | None, *, sender: int) -> None:
    """Datagrams of an end say that value instead; without one they say what the last one did, for ever."""
    first: bytes | None = None

    def carry(end: int, output: Any, datagram: bytes) -> bool:
        nonlocal first
        if end != sender or datagram[1] not in kinds:
            return True
        first = first or datagram[place]
        said = first if value is None else value.to_bytes(4, "big")
        ends.fly(ends.delay_ns, end, output, datagram[: place.start] + said + datagram[place.stop :])
        return False

    ends.carry = carry


def test_who_sends_without_a_grant_is_counted_and_cut() -> None:
    ends = Ends(has_credit=True)
    _at(ends, SPENT, {DATA}, (1 << 31) - 1, sender=0)
    data = gradients(50_000)
    sent, received = ends.both(
        *ends.post(data, np.zeros_like(data), policy=completion(hard_ns=SECOND), deadline_ns=2 * SECOND)
    )
    assert received.status == lib.MLT_DEADLINE
    assert (received.arrived_packets, sent.status) == (0, lib.MLT_PEER_DEADLINE)
    statistics = ends.planes[1].flow_statistics(ends.tokens[1])
    assert statistics.ungranted == statistics.refused > 0


def test_who_grants_without_measure_is_counted_and_cut() -> None:
    ends = Ends(has_credit=True)
    _at(ends, GRANTED, {ACKNOWLEDGEMENT, CONTROL}, (1 << 31) - 1, sender=1)
    ends.send(gradients(4_000_000))
    ends.receive(np.zeros(4_000_000, np.float32))
    ends.run(lambda: ends.planes[0].flow_statistics(ends.tokens[0]).overgranted > 0)
    assert ends.planes[0].flow_statistics(ends.tokens[0]).in_flight_bytes <= 2 << 20


def test_a_peer_that_grants_no_more_is_named_by_the_deadline() -> None:
    ends = Ends(has_credit=True)
    _at(ends, GRANTED, {ACKNOWLEDGEMENT, CONTROL}, None, sender=1)
    data = gradients(4_000_000)
    sent, _ = ends.post(data, np.zeros_like(data), deadline_ns=SECOND)
    ends.run(lambda: ends.planes[0].wait(sent, 0) is not None)
    result = ends.planes[0].result(sent)
    assert result.status == lib.MLT_DEADLINE
    assert "the peer grants nothing more" in ends.planes[0].text(result)
