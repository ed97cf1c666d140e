"""Chooses the path of each burst, leaves out dead and grey paths: transport.interfaces.Sprayer.

**Who counts what.** `sent` gets the time that the packets' headers carry; what leaves at another time is
another call. A path that `probes_due` names counts as sent one packet of an agent header at that time: its
caller sends it, and does not report it by `sent`. The receiver counts probes like any packet.

**The peer's clock of answers.** Silence of one path means something only while the peer is seen to answer
at all: a process that sleeps is silent on every path, and its paths do not wake at the same instant. So
silence is measured by a clock that advances with each answer on any path, by the time since the last answer
but never by more than `answer_minimum_ns`. It stands still while no path answers. When a path is silent,
the probe that asks it goes to another one, too, so that the clock advances whether or not there is other
traffic.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.spraying.counts import Answer, PathCounts
from mltswitch.hostagent.spraying.grey import GreyTest
from mltswitch.hostagent.spraying.policies import by_delay, by_loss, sequencer_for
from mltswitch.hostagent.spraying.settings import Policy, SprayingSettings
from mltswitch.hostagent.spraying.standing import PathCondition, PathEvent, Reason, Standing, State
from mltswitch.wire import AGENT_HEADER_BYTES

MAXIMUM_EVENTS: Final = 1024
"""Kept until they are taken; then the oldest are forgotten."""
DEFAULT_SETTINGS: Final = SprayingSettings()
_STRETCHES: Final = 2
"""Of the clock of answers, before the silence of one path is loss: one may have begun before it."""
_DOUBLINGS: Final = 20
"""Of the distance of probes, which has a limit in time besides."""


@dataclass(frozen=True, slots=True)
class PathStatistics:
    """Of one path, since the connection began; probes count as packets."""

    path: int
    state: State
    sent_packets: int
    sent_bytes: int
    acknowledged_packets: int
    lost_packets: int
    """Missing for so long that they are lost; what left in the last moments is not among them yet."""
    marked_packets: int
    """Arrived with CE."""
    round_trip_ns: float | None
    """Smoothed, without the time that the peer held acknowledgements; None: never measured."""
    least_round_trip_ns: int | None
    """Since the path was last left; None: not measured."""
    loss_share: float | None
    """Of the last blocks of packets; None: too few were sent."""
    refused_acknowledgements: int
    """They contradicted what was sent."""
    stale_acknowledgements: int
    times_left: int
    times_returned: int

    @property
    def marked_share(self) -> float:
        """Of what arrived."""
        return self.marked_packets / self.acknowledged_packets if self.acknowledged_packets else 0.0


class _Watch:
    """How long one path has been silent."""

    __slots__ = ("answered_ns", "heard_clock_ns", "heard_ns", "next_ns", "probes", "waited_ns")

    def __init__(self) -> None:
        self.heard_ns = 0
        """When it answered, or something was sent that waits for an answer, whichever was last."""
        self.heard_clock_ns = 0
        """The same by the clock of answers."""
        self.probes = 0
        """Asked since then."""
        self.next_ns = 0
        """When to ask; 0: `heard_ns` decides."""
        self.answered_ns = -1
        """When it answered last."""
        self.waited_ns = 0
        """How long the oldest packet had waited for that answer; 0 where the path was not in use."""

    def hear(self, now_ns: int, clock_ns: int) -> None:
        self.heard_ns, self.heard_clock_ns = now_ns, clock_ns
        self.probes = self.next_ns = 0


class PathSprayer:
    """All paths to one peer; raises ValueError for fewer than one."""

    def __init__(
        self, paths: int, settings: SprayingSettings = DEFAULT_SETTINGS, *, seed: int | None = None
    ) -> None:
        """`seed` of the random order: another one for each connection, or all senders meet on one path."""
        if paths < 1:
            raise ValueError(f"{paths} paths; expected 1 or more")
        self._settings = settings
        self._counts = [PathCounts(settings) for _ in range(paths)]
        self._standings = [Standing(settings) for _ in range(paths)]
        self._watches = [_Watch() for _ in range(paths)]
        self._grey = GreyTest(paths, settings)
        self._sequencer = sequencer_for(settings.policy, np.random.default_rng(seed))
        self._is_weighted = settings.policy in {Policy.LEAST_DELAY, Policy.LEAST_LOSS}
        self._weights_ns: int | None = None
        """When the shares were computed; None: they have to be."""
        self._largest_share: float | None = None
        """None: it has to be computed."""
        self._clock_ns = 0
        self._heard_ns = 0
        """When any path answered last."""
        self._in_flight_bytes = 0
        self._due: set[int] = set()
        self._next_look_ns: int | None = None
        self._patience_ns = 0
        self._events: deque[PathEvent] = deque(maxlen=MAXIMUM_EVENTS)
        self.unknown_paths = 0
        """Acknowledgements of paths that do not exist."""

    def choose(self, bursts: int, now_ns: int) -> NDArray[np.int64]:
        """A path number for each of so many bursts, shape (bursts,)."""
        self._look_if_due(now_ns)
        if self._weights_ns is None or (
            self._is_weighted and now_ns - self._weights_ns >= self._settings.weights_ns
        ):
            self._sequencer.share(self._shares())
            self._weights_ns, self._largest_share = now_ns, None
        return self._sequencer.draw(bursts)

    @property
    def largest_share(self) -> float:
        """Of the bursts, of the path that gets most of them, on average: 1 where only one is in use."""
        if self._largest_share is None:
            shares = self._shares()
            self._largest_share = float(shares.max() / shares.sum())
        return self._largest_share

    def sent(
        self, paths: NDArray[np.int64], packets: NDArray[np.int64], size_bytes: NDArray[np.int64], now_ns: int
    ) -> None:
        """Bursts have left: their paths, packets and bytes on the wire, each of shape (bursts,)."""
        count = len(self._counts)
        # A double holds these sums exactly.
        by_path = np.bincount(paths, weights=packets, minlength=count)
        bytes_by_path = np.bincount(paths, weights=size_bytes, minlength=count)
        for path in np.flatnonzero(by_path).tolist():
            self._sent_on(path, int(by_path[path]), int(bytes_by_path[path]), now_ns)

    def acknowledged(
        self,
        path: int,
        echoed_ns: int,
        received_packets: int,
        marked_packets: int,
        delay_ns: int,
        now_ns: int,
    ) -> None:
        """An acknowledgement of one path; what contradicts what was sent is counted, and changes nothing."""
        if not 0 <= path < len(self._counts):
            self.unknown_paths += 1
            return
        counts, watch = self._counts[path], self._watches[path]
        settled, missing = counts.settled_packets, counts.settled_missing
        since_ns = counts.waiting_since_ns
        under_way_bytes = counts.in_flight_bytes
        answer = counts.acknowledged(echoed_ns, received_packets, marked_packets, delay_ns, now_ns)
        if answer is not Answer.NEW:
            return
        self._in_flight_bytes += counts.in_flight_bytes - under_way_bytes
        if now_ns > self._heard_ns:
            self._clock_ns += min(now_ns - self._heard_ns, self._settings.answer_minimum_ns)
            self._heard_ns = now_ns
        watch.hear(now_ns, self._clock_ns)
        watch.answered_ns = now_ns
        standing = self._standings[path]
        watch.waited_ns = now_ns - since_ns if standing.is_in_use and since_ns is not None else 0
        if standing.state is State.LEFT:
            if standing.answered(echoed_ns, now_ns):
                self._return(path, Reason.ANSWERS, now_ns)
            else:
                self._look_by(standing.next_probe_ns)
        elif counts.settled_packets != settled:
            self._compare(path, counts.settled_packets - settled, counts.settled_missing - missing, now_ns)
        self._look_if_due(now_ns)

    @property
    def in_flight_bytes(self) -> int:
        """Sent, and neither older than what was last acknowledged on their path nor given up."""
        return self._in_flight_bytes

    def probes_due(self, now_ns: int) -> tuple[int, ...]:
        """Paths that should be sent a probe now; each counts as sent with this call."""
        self._look_if_due(now_ns)
        due = tuple(sorted(self._due))
        self._due.clear()
        for path in due:
            self._sent_on(path, 1, AGENT_HEADER_BYTES, now_ns)
            standing = self._standings[path]
            if not standing.is_in_use:
                standing.probe(now_ns, self._counts[path].answer_ns)
                self._look_by(standing.next_probe_ns)
        return due

    def next_timer_ns(self) -> int | None:
        """When `probes_due` should be asked although nothing happens; None: never."""
        return 0 if self._due else self._next_look_ns

    def take_events(self) -> tuple[PathEvent, ...]:
        """Changes of state since the last call, oldest first."""
        events = tuple(self._events)
        self._events.clear()
        return events

    def conditions(self) -> tuple[PathCondition, ...]:
        """Of each path, in short."""
        entries = zip(self._counts, self._standings, strict=True)
        return tuple(
            PathCondition(
                path,
                standing.state,
                _seconds(counts.round_trip_ns),
                _seconds(counts.least_round_trip_ns),
                self._grey.loss_share(path),
            )
            for path, (counts, standing) in enumerate(entries)
        )

    def statistics(self) -> tuple[PathStatistics, ...]:
        """Of each path."""
        return tuple(
            PathStatistics(
                path=path,
                state=standing.state,
                sent_packets=counts.sent_packets,
                sent_bytes=counts.sent_bytes,
                acknowledged_packets=counts.acknowledged_packets,
                lost_packets=counts.lost_packets,
                marked_packets=counts.marked_packets,
                round_trip_ns=counts.round_trip_ns,
                least_round_trip_ns=counts.least_round_trip_ns,
                loss_share=self._grey.loss_share(path),
                refused_acknowledgements=counts.refused,
                stale_acknowledgements=counts.stale,
                times_left=standing.times_left,
                times_returned=standing.times_returned,
            )
            for path, (counts, standing) in enumerate(zip(self._counts, self._standings, strict=True))
        )

    def _sent_on(self, path: int, packets: int, size_bytes: int, now_ns: int) -> None:
        counts = self._counts[path]
        if counts.waiting_since_ns is None:
            self._watches[path].hear(now_ns, self._clock_ns)
            self._look_by(now_ns + counts.answer_ns)
        under_way_bytes = counts.in_flight_bytes
        counts.sent(packets, size_bytes, now_ns)
        self._in_flight_bytes += counts.in_flight_bytes - under_way_bytes

    def _shares(self) -> NDArray[np.float64]:
        in_use = [path for path, standing in enumerate(self._standings) if standing.is_in_use]
        match self._settings.policy:
            case Policy.LEAST_DELAY:
                of_them = by_delay([self._counts[path].round_trip_ns for path in in_use], self._settings)
            case Policy.LEAST_LOSS:
                of_them = by_loss([self._grey.loss_share(path) for path in in_use], self._settings)
            case _:
                of_them = np.ones(len(in_use))
        shares = np.zeros(len(self._standings))
        for path, share in zip(in_use, of_them.tolist(), strict=True):
            is_trusted = self._standings[path].state is State.ACTIVE
            shares[path] = share if is_trusted else share * self._settings.probation_share
        return shares

    def _compare(self, path: int, packets: int, lost: int, now_ns: int) -> None:
        verdicts = self._grey.settled(path, packets, lost)
        for sound in verdicts.sound:
            if self._standings[sound].state is State.PROBATION:
                self._change(sound, Reason.PROVED, now_ns)
        for grey in verdicts.grey:
            if any(other != grey and standing.is_in_use for other, standing in enumerate(self._standings)):
                self._leave(grey, Reason.GREY, now_ns)

    def _look_by(self, time_ns: int) -> None:
        if self._next_look_ns is None or time_ns < self._next_look_ns:
            self._next_look_ns = time_ns

    def _look_if_due(self, now_ns: int) -> None:
        if self._next_look_ns is None or now_ns < self._next_look_ns:
            return
        self._next_look_ns = None
        self._patience_ns = self._common_patience_ns()
        for path in range(len(self._counts)):
            for time_ns in self._look_at(path, now_ns):
                self._look_by(time_ns)

    def _look_at(self, path: int, now_ns: int) -> Iterator[int]:
        """Do what is due on a path; yields when to look again."""
        counts, standing = self._counts[path], self._standings[path]
        if counts.under_way_since_ns is not None:
            yield self._give_up(path, now_ns)
        if standing.is_in_use and counts.waiting_since_ns is not None:
            self._ask(path, now_ns)
        if standing.is_in_use and counts.waiting_since_ns is not None:
            watch = self._watches[path]
            yield watch.next_ns or watch.heard_ns + self._answer_ns(path)
        if not standing.is_in_use:
            if now_ns >= standing.next_probe_ns:
                self._due.add(path)
            else:
                yield standing.next_probe_ns

    def _answer_ns(self, path: int) -> int:
        """Time within which a path should answer."""
        return max(self._counts[path].answer_ns, self._patience_ns)

    def _common_patience_ns(self) -> int:
        """Longest time that a packet waited for the last answer of a path in use: a peer that is busy reads
        one path after the other, and those that it has not come to are no worse."""
        return max(
            watch.waited_ns
            for watch, standing in zip(self._watches, self._standings, strict=True)
            if standing.is_in_use
        )

    def _give_up(self, path: int, now_ns: int) -> int:
        """Packets that have been under way for too long; returns when to look again."""
        counts, watch = self._counts[path], self._watches[path]
        under_way_bytes = counts.in_flight_bytes
        answered_ns = self._clock_ns - watch.heard_clock_ns
        if answered_ns >= _STRETCHES * self._settings.answer_minimum_ns:
            counts.give_up(now_ns - counts.loss_ns)
        if now_ns - watch.heard_ns >= self._settings.stall_ns:
            counts.give_up(now_ns - self._settings.stall_ns)
        self._in_flight_bytes += counts.in_flight_bytes - under_way_bytes
        since_ns = counts.under_way_since_ns
        again_ns = now_ns + self._settings.answer_minimum_ns
        return again_ns if since_ns is None else max(since_ns + counts.loss_ns, again_ns)

    def _ask(self, path: int, now_ns: int) -> None:
        """A silent path gets a probe, and after some without an answer it is dead."""
        watch, settings = self._watches[path], self._settings
        answer_ns = self._answer_ns(path)
        if now_ns < (watch.next_ns or watch.heard_ns + answer_ns):
            return
        answered_ns = self._clock_ns - watch.heard_clock_ns
        if (
            watch.probes >= settings.dead_probes
            and now_ns - watch.heard_ns >= settings.dead_probes * answer_ns
            and answered_ns >= settings.dead_probes * settings.answer_minimum_ns
            and self._leave(path, Reason.DEAD, now_ns)
        ):
            return
        waits_ns = answer_ns << min(max(watch.probes + 1 - settings.dead_probes, 0), _DOUBLINGS)
        watch.next_ns = now_ns + min(waits_ns, max(settings.probe_maximum_ns, answer_ns))
        watch.probes += 1
        self._due.add(path)
        others = [
            other
            for other, standing in enumerate(self._standings)
            if standing.is_in_use and self._watches[other].probes == 0
        ]
        if others:
            self._due.add(max(others, key=lambda other: self._watches[other].answered_ns))

    def _leave(self, path: int, reason: Reason, now_ns: int) -> bool:
        """Whether there is another path to use instead."""
        if not any(other != path and standing.is_in_use for other, standing in enumerate(self._standings)):
            newest = max(range(len(self._watches)), key=lambda other: self._watches[other].answered_ns)
            if self._watches[newest].answered_ns <= self._watches[path].heard_ns:
                return False
            self._return(newest, Reason.NEEDED, now_ns)
        self._change(path, reason, now_ns)
        self._grey.leave(path)
        self._counts[path].forget_round_trip()
        self._look_by(self._standings[path].next_probe_ns)
        return True

    def _return(self, path: int, reason: Reason, now_ns: int) -> None:
        self._change(path, reason, now_ns)
        self._counts[path].begin_anew()
        self._grey.come_back(path)
        self._watches[path].hear(now_ns, self._clock_ns)

    def _change(self, path: int, reason: Reason, now_ns: int) -> None:
        state = self._standings[path].change(reason, now_ns)
        self._weights_ns = self._largest_share = None
        self._events.append(PathEvent(path, state, reason, now_ns))


def _seconds(time_ns: float | None) -> float | None:
    return None if time_ns is None else time_ns / 1e9
