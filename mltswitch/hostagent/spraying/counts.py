"""What was sent on one path and what its acknowledgements say of it: under way, lost, delayed, marked.

An acknowledgement echoes the time of the newest packet that has arrived, and counts all that have. Packets
that were sent at that time or before and are not counted are missing. Some of them may still come: the
packets of one call share a time, and higher classes overtake lower ones. But what is lost stays missing, so
the least number missing that any later acknowledgement leaves is what was lost.

Packets that the network doubles are counted twice by the peer. What it counts beyond all that was sent was
doubled, and stands for no packet that is lost later. Doubled and lost packets of the same time cancel each
other out: counts do not tell them apart.

Whatever contradicts what was sent is counted and changes nothing. Nothing here grows with what a peer says.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from mltswitch.hostagent.spraying.settings import SprayingSettings

MAXIMUM_CALLS: Final = 4096
"""Times of sending that are remembered without an answer; older ones are given up."""
SETTLING_STEPS: Final = 8
"""Acknowledgements within this part of the settling time are looked at together."""
ROUND_TRIP_GAIN: Final = 1 / 8
"""Of the smoothed round trip (RFC 6298)."""
DEVIATION_GAIN: Final = 1 / 4
"""Of its mean deviation (RFC 6298)."""
_MODULO: Final = 1 << 32
_HALF: Final = 1 << 31


class Answer(StrEnum):
    """What an acknowledgement was."""

    NEW = "new"
    """It says something that was not known."""
    STALE = "stale"
    """Overtaken, or doubled by the network."""
    REFUSED = "refused"
    """It contradicts what was sent."""


class _Call(NamedTuple):
    """Packets and bytes are cumulative, with what was sent at this time."""

    sent_ns: int
    packets: int
    size_bytes: int


@dataclass(slots=True)
class _Step:
    """Of the acknowledgements of its time the one that leaves the least missing."""

    opened_ns: int
    packets: int
    missing: int


class PathCounts:
    """Of one path of one flow."""

    def __init__(self, settings: SprayingSettings) -> None:
        self._settings = settings
        self._calls: deque[_Call] = deque()
        """Not echoed yet; the first `_given_up_calls` of them are given up."""
        self._given_up_calls = 0
        self._steps: deque[_Step] = deque()
        self._echoed = _Call(-1, 0, 0)
        self._given_up = _Call(-1, 0, 0)
        self._received = 0
        """By the peer's count, without its modulus; more than was sent where the network doubles packets."""
        self._doubled = 0
        """Of them, as far as they are known to be no others."""
        self._received_raw = 0
        self._marked_raw = 0
        self._deviation_ns = 0.0
        self._next_step_ns = 0
        self._settled_missing = 0
        self.sent_packets = 0
        self.sent_bytes = 0
        self.in_flight_bytes = 0
        """Sent after what was echoed last, and not given up."""
        self.marked_packets = 0
        self.settled_packets = 0
        """Sent so long ago that those of them that are missing are lost."""
        self.round_trip_ns: float | None = None
        """Smoothed."""
        self.least_round_trip_ns: int | None = None
        self.refused = 0
        self.stale = 0

    @property
    def acknowledged_packets(self) -> int:
        """Arrived."""
        return self._received - self._doubled

    @property
    def settled_missing(self) -> int:
        """Of the settled packets."""
        return self._settled_missing

    @property
    def lost_packets(self) -> int:
        """Of the settled packets, and of those that were given up; fewer again where one comes late."""
        missing = self._settled_missing
        if self._given_up.packets > self._echoed.packets:
            missing = self._given_up.packets - self.acknowledged_packets
        return max(missing, 0)

    @property
    def waiting_since_ns(self) -> int | None:
        """When the oldest packets left for which no answer has come; None: all is answered."""
        return self._calls[0].sent_ns if self._calls else None

    @property
    def under_way_since_ns(self) -> int | None:
        """When the oldest packets left that are neither answered nor given up; None: there are none."""
        if self._given_up_calls < len(self._calls):
            return self._calls[self._given_up_calls].sent_ns
        return None

    @property
    def answer_ns(self) -> int:
        """Time within which an answer is expected: RFC 6298's time-out with a minimum of our own."""
        if self.round_trip_ns is None:
            return max(self._settings.answer_minimum_ns, self._settings.initial_round_trip_ns)
        return max(self._settings.answer_minimum_ns, round(self.round_trip_ns + 4 * self._deviation_ns))

    @property
    def loss_ns(self) -> int:
        """Time after which packets without an answer are given up, if other paths answer."""
        return max(self._settings.loss_minimum_ns, 3 * self.answer_ns)

    def sent(self, packets: int, size_bytes: int, now_ns: int) -> None:
        """Packets have left with `now_ns`, which never falls, in their headers."""
        self.sent_packets += packets
        self.sent_bytes += size_bytes
        self.in_flight_bytes += size_bytes
        if self._calls and self._calls[-1].sent_ns == now_ns and self._given_up_calls < len(self._calls):
            self._calls.pop()
        self._calls.append(_Call(now_ns, self.sent_packets, self.sent_bytes))
        if len(self._calls) > MAXIMUM_CALLS:
            if self._given_up_calls == 0:
                self._give_up_next()
            self._calls.popleft()
            self._given_up_calls -= 1

    def acknowledged(
        self, echoed_ns: int, received_packets: int, marked_packets: int, delay_ns: int, now_ns: int
    ) -> Answer:
        """Look at one acknowledgement; counts are cumulative modulo 2³²."""
        answer = self._look(echoed_ns, received_packets, marked_packets, now_ns)
        if answer is Answer.REFUSED:
            self.refused += 1
        elif answer is Answer.STALE:
            self.stale += 1
        else:
            if 0 < delay_ns <= now_ns - echoed_ns:
                self._measure(delay_ns)
            self._missing_now(now_ns)
        return answer

    def give_up(self, before_ns: int) -> None:
        """What left at this time or before is no longer under way."""
        since_ns = self.under_way_since_ns
        while since_ns is not None and since_ns <= before_ns:
            self._give_up_next()
            since_ns = self.under_way_since_ns

    def forget_round_trip(self) -> None:
        """The path may be another one when it is used again."""
        self.round_trip_ns = self.least_round_trip_ns = None

    def begin_anew(self) -> None:
        """A packet that left after all others has just been answered: what is missing now is lost."""
        self._steps.clear()
        self.settled_packets = self._echoed.packets
        self._settled_missing = max(self._echoed.packets - self.acknowledged_packets, 0)

    @property
    def _settling_ns(self) -> int:
        return max(self._settings.settle_minimum_ns, round(4 * (self.round_trip_ns or 0.0)))

    def _look(self, echoed_ns: int, received_packets: int, marked_packets: int, now_ns: int) -> Answer:
        oldest_ns = self._calls[0].sent_ns if self._calls else now_ns + 1
        found = bisect_right(self._calls, echoed_ns, key=_sent_ns) if echoed_ns >= oldest_ns else 0
        is_unanswered = found > 0 and self._calls[found - 1].sent_ns == echoed_ns
        if echoed_ns > now_ns or not (is_unanswered or echoed_ns <= self._echoed.sent_ns):
            return Answer.REFUSED
        if echoed_ns < self._echoed.sent_ns:
            return Answer.STALE
        more = (received_packets - self._received_raw) % _MODULO
        marked_more = (marked_packets - self._marked_raw) % _MODULO
        if not is_unanswered and (more == 0 or more >= _HALF):
            return Answer.STALE
        self._received_raw, self._marked_raw = received_packets, marked_packets
        if more >= _HALF or marked_more > more or self._received + more > 2 * self.sent_packets:
            # Counts never fall, what is marked has arrived, and the network at most doubles everything.
            # Either this count is wrong or one before it: from here on, differences count.
            return Answer.REFUSED
        self._received += more
        self._doubled = max(self._doubled, self._received - self.sent_packets)
        self.marked_packets += marked_more
        if found:
            for _ in range(found):
                self._echoed = self._calls.popleft()
            self._given_up_calls = max(self._given_up_calls - found, 0)
            self._count_under_way()
        return Answer.NEW

    def _measure(self, delay_ns: int) -> None:
        if self.least_round_trip_ns is None or delay_ns < self.least_round_trip_ns:
            self.least_round_trip_ns = delay_ns
        if self.round_trip_ns is None:
            self.round_trip_ns, self._deviation_ns = float(delay_ns), delay_ns / 2
            return
        difference_ns = delay_ns - self.round_trip_ns
        self._deviation_ns += DEVIATION_GAIN * (abs(difference_ns) - self._deviation_ns)
        self.round_trip_ns += ROUND_TRIP_GAIN * difference_ns

    def _missing_now(self, now_ns: int) -> None:
        packets, missing = self._echoed.packets, self._echoed.packets - self.acknowledged_packets
        if now_ns >= self._next_step_ns or not self._steps:
            self._next_step_ns = now_ns + self._settling_ns // SETTLING_STEPS
            self._steps.append(_Step(now_ns, packets, missing))
            self._settle(now_ns)
        elif missing <= self._steps[-1].missing:
            self._steps[-1].packets, self._steps[-1].missing = packets, missing

    def _settle(self, now_ns: int) -> None:
        before_ns = now_ns - self._settling_ns
        while self._steps and self._steps[0].opened_ns <= before_ns:
            least = min(step.missing for step in self._steps)
            self.settled_packets, self._settled_missing = self._steps.popleft().packets, max(least, 0)

    def _give_up_next(self) -> None:
        self._given_up = self._calls[self._given_up_calls]
        self._given_up_calls += 1
        self._count_under_way()

    def _count_under_way(self) -> None:
        self.in_flight_bytes = self.sent_bytes - max(self._echoed.size_bytes, self._given_up.size_bytes)


def _sent_ns(call: _Call) -> int:
    return call.sent_ns
