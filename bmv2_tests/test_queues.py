"""Queues that really fill: strict priority, starvation, healing, and how far the thresholds are overshot."""

import time
from collections.abc import Callable
from itertools import takewhile

import pytest

from bmv2_tests.namespace import wait_until
from bmv2_tests.packets import (
    FRAME_BYTES,
    LIMIT_BYTES,
    THRESHOLD_BYTES,
    ipv4,
    is_barrier,
    number_of,
    selective_line,
)
from bmv2_tests.switch import QUEUE_DEPTH_PACKETS, AnySwitch, Bmv2, TooSlowError, patiently, real_only
from mltswitch.wire import Ecn

PORT = 2
HIGH, LOW = 7, 3
SIZE_BYTES = 1000
STANDSTILL, SLOW, FAST = "100bit", "500kbit", "10gbit"
"""A machine that is busy sends slower than it would, but faster than that."""
IN_FLIGHT_PACKETS = 600
"""More than what fits between a queue and the cable: BMv2's 128 for all ports, and the socket's buffer."""
WIDE = f"table_modify_match queues set_limit {PORT} {{}} => 4000000000 0 {FRAME_BYTES}"


def send(switch: Bmv2, queue: int, first: int, last: int, *, ecn: int = Ecn.ECT_0) -> None:
    """Packets of 1,000 bytes, numbered, to the port that is held up."""
    for number in range(first, last):
        switch.ends[1].send(ipv4(PORT, queue=queue, size_bytes=SIZE_BYTES, number=number, ecn=ecn))
        if number % 100 == 99:
            wait_for_decisions(switch)
    wait_for_decisions(switch)


def wait_for_decisions(switch: Bmv2) -> None:
    """Until all that was sent is queued or dropped: one is decided after the other, and a refused one last.

    That packets are counted as arrived would not do: they are decided after that. Nor would barriers: they
    pass the one transmit thread of BMv2, which the held port stops.
    """
    before = switch.refused().get("no_route", 0)
    switch.ends[1].send(ipv4(dst="192.0.2.1"))
    wait_until(lambda: switch.refused().get("no_route", 0) > before, "what was sent is decided")


def standing(switch: Bmv2, queue: int) -> int:
    """Waiting bytes once nothing leaves any more, because everything in front is full."""
    read: list[int] = [-1]

    def is_standing() -> bool:
        read.append(switch.waiting(PORT, queue))
        return len(read) > 20 and len(set(read[-20:])) == 1

    wait_until(is_standing, "the port stands still")
    return read[-1]


def outputs(switch: Bmv2, packets: int) -> list[tuple[int, int]]:
    """(queue, number) in the order in which they come, until there are so many."""
    came: list[bytes] = []

    def is_complete() -> bool:
        came.extend(frame for port, frame in switch.drain() if port == PORT and not is_barrier(frame))
        return len(came) >= packets

    wait_until(is_complete, f"{packets} packets come out")
    return [(frame[15] >> 2 >> 3, number_of(frame)) for frame in came]


@real_only
def test_priority_is_strict_under_overload(switch: Bmv2) -> None:
    """What waits in the high queue leaves before all that waits in the low one, whoever came first."""
    switch.control.write([WIDE.format(LOW), WIDE.format(HIGH)])
    switch.shape(PORT, STANDSTILL)
    try:
        send(switch, LOW, 0, 1500)
        waiting = standing(switch, LOW)
        send(switch, HIGH, 0, 500)
        # The low queue is starved from here on: nothing has left it, and its length says so.
        assert switch.waiting(PORT, LOW) == waiting
        assert switch.waiting(PORT, HIGH) == 500 * SIZE_BYTES
        switch.reshape(PORT, FAST)
        came = outputs(switch, 2000)
    finally:
        switch.unshape(PORT)
    before = list(takewhile(lambda entry: entry[0] == LOW, came))
    # What had left the low queue before stands in BMv2's transmit buffer and in the socket.
    assert waiting == (1500 - len(before)) * SIZE_BYTES
    assert 0 < len(before) < IN_FLIGHT_PACKETS
    assert came == [
        *((LOW, number) for number in range(len(before))),
        *((HIGH, number) for number in range(500)),
        *((LOW, number) for number in range(len(before), 1500)),
    ]
    assert switch.waiting(PORT, LOW) == switch.waiting(PORT, HIGH) == 0


@real_only
def test_a_starved_queue_decides_by_its_true_length(switch: Bmv2) -> None:
    """Its depth does not freeze: it fills to S, then to L, while not one packet of it leaves."""
    switch.control.write([WIDE.format(HIGH)])
    switch.shape(PORT, STANDSTILL)
    try:
        send(switch, HIGH, 0, 1500)
        assert standing(switch, HIGH) > 0
        send(switch, LOW, 0, 20, ecn=Ecn.NOT_ECT)
        assert switch.counts(PORT, LOW)["forwarded_unmarked"] == THRESHOLD_BYTES // SIZE_BYTES
        assert switch.counts(PORT, LOW)["dropped_unimportant"] == 20 - THRESHOLD_BYTES // SIZE_BYTES
        send(switch, LOW, 20, 40, ecn=Ecn.ECT_1)
        counts = switch.counts(PORT, LOW)
        assert counts["forwarded_marked"] == (LIMIT_BYTES - THRESHOLD_BYTES) // SIZE_BYTES
        assert counts["dropped_limit"] == 20 - counts["forwarded_marked"]
        assert switch.waiting(PORT, LOW) == LIMIT_BYTES
        switch.reshape(PORT, FAST)
        came = outputs(switch, 1500 + LIMIT_BYTES // SIZE_BYTES)
    finally:
        switch.unshape(PORT)
    assert [number for queue, number in came if queue == LOW] == [0, 1, 2, 20, 21, 22]
    assert [queue for queue, _ in came][-6:] == [LOW] * 6


@pytest.mark.parametrize("depth", [1, 4])
def test_the_count_heals_when_bmv2_itself_drops(switch: AnySwitch, depth: int) -> None:
    """A queue that is less deep than L loses packets behind our back; once it is idle, nothing waits."""
    came = patiently(lambda: overflow(switch, depth))
    assert came == depth - 1  # the plug takes a place
    assert switch.waiting(PORT, 5) >= THRESHOLD_BYTES
    assert takes_unimportant_packets_when_idle(switch)
    assert switch.waiting(PORT, 5) == 0


def takes_unimportant_packets_when_idle(switch: AnySwitch) -> bool:
    """Whether one is forwarded after the pause (IDLE_MICROSECONDS in mlt.p4)."""
    switch.sleep(1.1)
    return len(switch.exchange(ipv4(PORT))) == 1


@real_only
def test_a_queue_with_one_packet_left_is_not_empty(switch: Bmv2) -> None:
    assert not overlooks_the_last_packet(switch)


def overlooks_the_last_packet(switch: Bmv2) -> bool:
    """Whether a packet that another one left behind is taken for gone after the pause."""
    return patiently(lambda: _overlooks_the_last_packet(switch))


def _overlooks_the_last_packet(switch: Bmv2) -> bool:
    """Of three packets at one a second the second one has left; then the port stands still."""
    low = selective_line("table_modify_match", PORT, LOW, SIZE_BYTES // 2)
    switch.control.write([low, WIDE.format(HIGH)])
    switch.cli.run(f"set_queue_rate 1 {PORT} {LOW}")
    try:
        time.sleep(1.1)
        send(switch, LOW, 0, 3, ecn=Ecn.ECT_0)
        wait_until(lambda: switch.waiting(PORT, LOW) == SIZE_BYTES, "the second one has left")
        left = time.monotonic()
        switch.shape(PORT, STANDSTILL)
        send(switch, HIGH, 0, IN_FLIGHT_PACKETS)
        time.sleep(max(0.0, left + 1.2 - time.monotonic()))
        if switch.waiting(PORT, LOW) != SIZE_BYTES:
            raise TooSlowError
        before = switch.counts(PORT, LOW)
        send(switch, LOW, 3, 4, ecn=Ecn.NOT_ECT)
        return switch.counts(PORT, LOW)["dropped_unimportant"] == before["dropped_unimportant"]
    finally:
        switch.cli.run(f"set_queue_rate 0 {PORT} {LOW}")
        switch.unshape(PORT)
        wait_until(lambda: switch.waiting(PORT, HIGH) + switch.waiting(PORT, LOW) == 0, "all is out")
        switch.drain()


@real_only
def test_a_packet_that_was_on_its_way_when_the_queue_ran_empty_counts(switch: Bmv2) -> None:
    assert not any(overlooks_a_packet_on_its_way(switch) for _ in range(4))


def overlooks_a_packet_on_its_way(switch: Bmv2) -> bool:
    """Whether the second of two packets is taken for gone, that came before the first one had left.

    It is queued later, since packets to another port stand between them.
    """
    switch.control.write([selective_line("table_modify_match", PORT, LOW, SIZE_BYTES // 2)])
    switch.cli.run(f"set_queue_rate 1 {PORT} {LOW}")
    try:
        time.sleep(1.1)
        burst = [
            ipv4(PORT, queue=LOW, size_bytes=SIZE_BYTES, number=number, ecn=Ecn.ECT_0) for number in (0, 1)
        ]
        for frame in (burst[0], *[ipv4(3, queue=0)] * 10, burst[1]):
            switch.ends[1].send(frame)
        wait_for_decisions(switch)
        before = switch.counts(PORT, LOW)
        time.sleep(0.1)
        send(switch, LOW, 3, 4, ecn=Ecn.NOT_ECT)
        return switch.counts(PORT, LOW)["dropped_unimportant"] == before["dropped_unimportant"]
    finally:
        switch.cli.run(f"set_queue_rate 0 {PORT} {LOW}")
        wait_until(lambda: switch.waiting(PORT, LOW) == 0, "the queue is empty again")


OVERFLOWING_BYTES = 480
"""Twelve of them stay below L; what BMv2 loses of them is more than S."""


def overflow(switch: AnySwitch, depth: int) -> int:
    """Packets that come of 12 that are sent into a queue of that depth, which is held."""
    switch.cli.run(f"set_queue_depth {depth} {PORT} 5")
    try:
        with switch.held([(PORT, 5)]) as hold:
            switch.set_waiting(PORT, 5, 0)
            for number in range(12):
                switch.ends[1].send(ipv4(PORT, size_bytes=OVERFLOWING_BYTES, number=number, ecn=Ecn.ECT_0))
            hold.settle()
            assert switch.waiting(PORT, 5) == 12 * OVERFLOWING_BYTES < LIMIT_BYTES
            hold.settle()
            came = hold.release()
    finally:
        switch.cli.run(f"set_queue_depth {QUEUE_DEPTH_PACKETS} {PORT} 5")
    return len(came)


@pytest.mark.parametrize("waiting", [1, THRESHOLD_BYTES, LIMIT_BYTES - 1])
def test_the_count_heals_when_the_queue_is_idle(switch: AnySwitch, waiting: int) -> None:
    """Whatever the count was, the ticket of the packet that leaves sets it to 0."""
    switch.set_waiting(PORT, 5, waiting)
    assert len(switch.exchange(ipv4(PORT, ecn=Ecn.ECT_0))) == 1
    assert switch.waiting(PORT, 5) == 0


@real_only
def test_under_overload_the_queue_stays_below_the_limit_and_a_packet(
    switch: Bmv2, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Packets leave while others come; the length is read again and again."""
    sizes = [64 + 7 * number % 1437 for number in range(3000)]
    frames = [
        ipv4(PORT, size_bytes=size_bytes, number=number, ecn=Ecn.ECT_0 if number % 2 else Ecn.NOT_ECT)
        for number, size_bytes in enumerate(sizes)
    ]
    switch.shape(PORT, SLOW)
    longest = 0
    try:
        for first in range(0, 3000, 20):
            for number in range(first, first + 20):
                switch.ends[1].send(frames[number])
            longest = max(longest, switch.waiting(PORT, 5))
            wait_for_decisions(switch)
        switch.reshape(PORT, FAST)
        counts = switch.counts(PORT, 5)
        came = outputs(switch, counts["forwarded_unmarked"] + counts["forwarded_marked"])
    finally:
        switch.unshape(PORT)
    record_testsuite_property("overshoot_bytes", longest - LIMIT_BYTES)
    assert LIMIT_BYTES <= longest < LIMIT_BYTES + max(sizes)
    assert counts["arrived"] == 3000
    assert len(came) == counts["forwarded_unmarked"] + counts["forwarded_marked"]
    assert min(counts.values()) > 0
    assert switch.waiting(PORT, 5) == 0
    assert switch.tickets(PORT, 5)[0] == sum(sizes[number] for _, number in came)
