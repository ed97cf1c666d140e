"""Judgements: what a trace of one run says about what was expected. Pure functions of numbers.

"Above S" is a packet that found more than S plus the tolerance waiting, and so did the packets of the
averaging window before it; "below" the same the other way round. The tolerance is two packets (one may be
in transmission, one in a shaper's hands), a twentieth of the threshold (the port's rate in packets is known
no better), and the spread of the empty path's delay. A threshold that is not twice its tolerance cannot be
judged from outside.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mltswitch.measure.acceptance.checks import Check, ExpectedPort, ExpectedQueue, Question
from mltswitch.measure.acceptance.observe import Bools, Floats, Trace
from mltswitch.units import BITS_PER_BYTE, format_bps, format_bytes

RESOLUTION_PACKETS: Final = 2
RESOLUTION_SHARE: Final = 0.05
EXCEPTIONS: Final = 0.03
"""Share of packets that may stand on the wrong side: a busy host delays some before it stamps them."""
FEWEST_PACKETS: Final = 20
"""Below this a share says nothing."""
RATE_SHARE: Final = 0.05
LEAST_BURST_SHARE: Final = 0.25
"""Of S, that bursts must have queued to prove anything."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Packets of a run, each with the queue that it found, in bytes."""

    trace: Trace
    found_bytes: Floats
    highest_bytes: Floats
    """Greatest queue over the averaging window that ends with the packet."""
    lowest_bytes: Floats
    resolution_bytes: float
    """Of any length: the packets that may be elsewhere than in the queue."""
    noise_bytes: float
    """What the spread of the empty path's delay adds to it."""

    def tolerance_bytes(self, threshold_bytes: int) -> float:
        """How far from a threshold a queue must be to be told apart from it."""
        return self.quiet_tolerance_bytes(threshold_bytes) + self.noise_bytes

    def quiet_tolerance_bytes(self, threshold_bytes: int) -> float:
        """The same, were the hosts and the path never busy."""
        return self.resolution_bytes + RESOLUTION_SHARE * threshold_bytes


def queue_of(trace: Trace, port: ExpectedPort) -> Queue:
    """Waiting times as bytes, at the rate that was seen where the port was full, else at its planned one."""
    seen = trace.of("fill").rate_bps(port.packet_bytes)
    rate = seen if seen is not None and _is_near(seen, port.rate_bps) else port.rate_bps
    found = trace.wait_seconds * rate / BITS_PER_BYTE
    noise_bytes = trace.noise_seconds * rate / BITS_PER_BYTE
    window = port.averaging_packets + 1
    return Queue(
        trace,
        found,
        np.max(_windows(found, window), axis=1, initial=0.0),
        np.min(_windows(found, window), axis=1, initial=np.inf),
        RESOLUTION_PACKETS * port.packet_bytes,
        noise_bytes,
    )


def judge_class(trace: Trace, expected: ExpectedQueue, port: ExpectedPort) -> tuple[Check, ...]:
    """Everything that one threshold run tells, but for the counters."""
    return tuple(_Judge(queue_of(trace, port), expected, port).checks())


@dataclass(frozen=True, slots=True)
class _Judge:
    queue: Queue
    expected: ExpectedQueue
    port: ExpectedPort

    def checks(self) -> Iterator[Check]:
        yield self._rate()
        threshold, limit = self.expected.ecn_threshold_bytes, self.expected.limit_bytes
        if threshold is None:
            for question in (
                Question.BURST,
                Question.MARKS_BEGIN,
                Question.MARKED_ABOVE,
                Question.KEPT_BELOW,
                Question.DROPPED_ABOVE,
            ):
                yield self._open(question, "", "the plan gives this class no threshold")
        else:
            yield self._burst(threshold)
            yield self._marks_begin(threshold)
            yield self._marked_above(threshold)
            yield self._kept_below(threshold)
            yield self._dropped_above(threshold)
        if limit is None:
            for question in (Question.ECT_KEPT, Question.STANDS):
                yield self._open(question, "", self.expected.why_no_limit)
        else:
            yield self._ect_kept(limit)
            yield self._stands(limit)

    def _rate(self) -> Check:
        seen = self.queue.trace.of("fill").rate_bps(self.port.packet_bytes)
        expected = f"{format_bps(self.port.rate_bps)} ± {RATE_SHARE:.0%}"
        if seen is None:
            return self._answer(
                Question.RATE,
                False,
                "nothing came through",
                expected,
                "the class is not served at all, or its packets go elsewhere",
            )
        return self._answer(
            Question.RATE,
            _is_near(seen, self.port.rate_bps),
            format_bps(round(seen, -3)),
            expected,
            "the overload does not meet this port's queue, or the port's rate is another one: a link that "
            "came up slower, a shaper, or another bottleneck on the way",
        )

    def _burst(self, threshold: int) -> Check:
        chosen = self.queue.trace.phase == "burst"
        burst = self.queue.trace.where(chosen)
        if not len(burst):
            reason = (
                "S is shorter than two packets"
                if threshold < 2 * self.port.packet_bytes
                else "no host that sends stands right behind the device"
            )
            return self._open(Question.BURST, "", reason)
        lost, marked = int(np.sum(~burst.is_received)), int(np.sum(burst.is_marked))
        peak = float(np.max(self.queue.found_bytes[chosen]))
        seen = f"{lost} lost, {marked} CE of {len(burst)}; up to {_bytes(peak)} queued"
        expected = "0 lost, 0 CE"
        if not lost and not marked and peak < LEAST_BURST_SHARE * threshold:
            return self._open(
                Question.BURST, seen, "the bursts hardly queued: the hosts send no faster than the port"
            )
        return self._answer(
            Question.BURST,
            not lost and not marked,
            seen,
            expected,
            "packets are marked or dropped although fewer than S are queued: S stands too low, the length "
            "is averaged over earlier traffic, or other traffic crosses the port",
        )

    def _marks_begin(self, threshold: int) -> Check:
        near = self.queue.tolerance_bytes(threshold)
        expected = f"{format_bytes(threshold)} ± {_bytes(near)}"
        blocked = self._too_close(Question.MARKS_BEGIN, threshold)
        if blocked is not None:
            return blocked
        chosen = self._believable() & self.queue.trace.is_ect & self.queue.trace.is_received
        marked = self.queue.trace.is_marked[chosen]
        found = self._at_marking()[chosen]
        if np.sum(marked) < FEWEST_PACKETS:
            return self._answer(
                Question.MARKS_BEGIN,
                False,
                f"{int(np.sum(marked))} CE of {len(marked)}",
                expected,
                "almost nothing is marked: ECN is off for this queue, S stands above what the queue "
                "reaches, or this class's packets do not get here",
            )
        split = best_split(found, marked)
        return self._answer(
            Question.MARKS_BEGIN,
            abs(split - threshold) <= near,
            _bytes(split),
            expected,
            "marking begins at another queue length than planned: S is another one, or the length is "
            "averaged over more packets than the capability says",
        )

    def _marked_above(self, threshold: int) -> Check:
        blocked = self._too_close(Question.MARKED_ABOVE, threshold)
        expected = f"at least {1 - EXCEPTIONS:.0%} CE"
        if blocked is not None:
            return blocked
        trace, above = self.queue.trace, threshold + self.queue.tolerance_bytes(threshold)
        chosen = self._standing() & trace.is_ect & trace.is_received
        chosen &= (self._at_marking() > above) & (self.queue.lowest_bytes > above)
        count, marked = int(np.sum(chosen)), int(np.sum(trace.is_marked[chosen]))
        if count < FEWEST_PACKETS:
            return self._few(
                Question.MARKED_ABOVE, count, f"ECT packet was delivered from above {_bytes(above)}"
            )
        return self._answer(
            Question.MARKED_ABOVE,
            count - marked <= EXCEPTIONS * count,
            f"{marked / count:.1%} CE of {count}",
            expected,
            "packets pass a queue longer than S without a mark: S stands higher, ECN is off, or marks come "
            "with a probability below one",
        )

    def _kept_below(self, threshold: int) -> Check:
        blocked = self._too_short(Question.KEPT_BELOW, threshold, "S")
        expected = f"at most {EXCEPTIONS:.0%} lost"
        if blocked is not None:
            return blocked
        trace, below = self.queue.trace, threshold - self.queue.tolerance_bytes(threshold)
        chosen = self._loaded() & ~trace.is_ect & (self.queue.highest_bytes < below)
        return self._share_lost(
            Question.KEPT_BELOW,
            chosen,
            f"Not-ECT packet met less than {_bytes(below)}",
            expected,
            "Not-ECT packets are lost from a queue shorter than S: S stands lower, the length is averaged, "
            "or they are lost on the way to this port",
        )

    def _dropped_above(self, threshold: int) -> Check:
        blocked = self._too_close(Question.DROPPED_ABOVE, threshold)
        if blocked is not None:
            return blocked
        trace, above = self.queue.trace, threshold + self.queue.tolerance_bytes(threshold)
        expected = f"at most {EXCEPTIONS:.0%} delivered; at most {_bytes(above)}"
        chosen = self._standing() & ~trace.is_ect & (self.queue.lowest_bytes > above)
        count, passed = int(np.sum(chosen)), int(np.sum(trace.is_received[chosen]))
        held = self._held_bytes()
        if count < FEWEST_PACKETS and held <= above:
            return self._few(Question.DROPPED_ABOVE, count, f"Not-ECT packet met more than {_bytes(above)}")
        return self._answer(
            Question.DROPPED_ABOVE,
            passed <= EXCEPTIONS * count and held <= above,
            f"{passed} delivered of {count}; drops hold the queue at {_bytes(held)}",
            expected,
            "Not-ECT packets pass a queue longer than S: the device marks but does not drop what cannot be "
            "marked (no RED drop, `nodrop`), or S stands higher",
        )

    def _ect_kept(self, limit: int) -> Check:
        blocked = self._too_short(Question.ECT_KEPT, limit, "L")
        expected = f"at most {EXCEPTIONS:.0%} lost"
        if blocked is not None:
            return blocked
        trace, below = self.queue.trace, limit - self.queue.tolerance_bytes(limit)
        chosen = self._loaded() & trace.is_ect & (self.queue.highest_bytes < below)
        return self._share_lost(
            Question.ECT_KEPT,
            chosen,
            f"ECT packet met less than {_bytes(below)}",
            expected,
            "ECN-capable packets are dropped before the queue is full: L stands lower, the shared buffer "
            "ends earlier, or the device drops at S instead of marking",
        )

    def _stands(self, limit: int) -> Check:
        near = self.queue.tolerance_bytes(limit)
        expected = f"{format_bytes(limit)} ± {_bytes(near)}"
        blocked = self._too_short(Question.STANDS, limit, "L")
        if blocked is not None:
            return blocked
        trace = self.queue.trace
        fill = (trace.phase == "fill") & trace.is_ect & trace.is_received
        found = self.queue.found_bytes[fill]
        found = found[len(found) // 2 :]
        if len(found) < FEWEST_PACKETS:
            return self._answer(
                Question.STANDS,
                False,
                f"{len(found)} packets came through",
                expected,
                "the class is not served",
            )
        standing = float(np.median(found))
        return self._answer(
            Question.STANDS,
            abs(standing - limit) <= near,
            _bytes(standing),
            expected,
            "an overload by ECT packets alone fills the queue to another length: L is another one, the "
            "shared buffer ends earlier, or ECT packets are dropped at S",
        )

    def _loaded(self) -> Bools:
        return np.isin(self.queue.trace.phase, ("burst", "hold", "fill"))

    def _believable(self) -> Bools:
        """Without packets that seem to have met more than L: a host stood still between stamp and sending."""
        limit = self.expected.limit_bytes
        if limit is None:
            return self._loaded()
        return self._loaded() & (self.queue.found_bytes <= limit + self.queue.tolerance_bytes(limit))

    def _standing(self) -> Bools:
        """Of these, those of the overload that fills the queue beyond S.

        A pause of a machine makes waits longer, never shorter: where drops hold the queue at S, a packet that
        rightly passed would look like one from above it.
        """
        return self._believable() & np.isin(self.queue.trace.phase, ("fill",))

    def _held_bytes(self) -> float:
        """Median queue of the Not-ECT packets that pass while drops of others hold it; 0: too few pass."""
        trace = self.queue.trace
        found = self.queue.found_bytes[(trace.phase == "hold") & ~trace.is_ect & trace.is_received]
        found = found[len(found) // 2 :]
        return float(np.median(found)) if len(found) >= FEWEST_PACKETS else 0.0

    def _at_marking(self) -> Floats:
        """Queue when the device decides on the mark: at arrival, or behind the packet when it leaves."""
        if self.port.marks_at == "enqueue":
            return self.queue.found_bytes
        trace = self.queue.trace
        known = self._loaded()
        behind = np.interp(
            trace.time_seconds + trace.wait_seconds, trace.time_seconds[known], self.queue.found_bytes[known]
        )
        return np.asarray(behind, dtype=np.float64)

    def _too_short(self, question: Question, threshold: int, name: str) -> Check | None:
        near = self.queue.tolerance_bytes(threshold)
        if threshold > 2 * near:
            return None
        return self._open(
            question,
            "",
            f"{name} of {format_bytes(threshold)} is too short for delays that tell ± {_bytes(near)}",
            is_disturbed=threshold > 2 * self.queue.quiet_tolerance_bytes(threshold),
        )

    def _too_close(self, question: Question, threshold: int) -> Check | None:
        short = self._too_short(question, threshold, "S")
        limit = self.expected.limit_bytes
        near = self.queue.tolerance_bytes(threshold)
        if short is not None or limit is None or limit - threshold > near:
            return short
        return self._open(
            question,
            "",
            f"L is only {format_bytes(limit - threshold)} above S; delays tell ± {_bytes(near)}",
            is_disturbed=limit - threshold > self.queue.quiet_tolerance_bytes(threshold),
        )

    def _share_lost(
        self, question: Question, chosen: Bools, kind: str, expected: str, explanation: str
    ) -> Check:
        count, lost = int(np.sum(chosen)), int(np.sum(~self.queue.trace.is_received[chosen]))
        if count < FEWEST_PACKETS:
            return self._few(question, count, kind)
        return self._answer(
            question, lost <= EXCEPTIONS * count, f"{lost / count:.1%} lost of {count}", expected, explanation
        )

    def _few(self, question: Question, count: int, kind: str) -> Check:
        is_noisy = self.queue.noise_bytes > self.queue.resolution_bytes
        return self._open(question, f"{count} packets", f"hardly any {kind}", is_disturbed=is_noisy)

    def _open(self, question: Question, seen: str, reason: str, *, is_disturbed: bool = False) -> Check:
        name = self.expected.traffic_class
        return Check(question, name, None, seen, "", reason, is_disturbed=is_disturbed)

    def _answer(self, question: Question, holds: bool, seen: str, expected: str, explanation: str) -> Check:
        return Check(
            question, self.expected.traffic_class, bool(holds), seen, expected, "" if holds else explanation
        )


def best_split(found: Floats, marked: Bools) -> float:
    """The length that separates unmarked from marked packets with the fewest exceptions."""
    order = np.argsort(found, kind="stable")
    marks_below = np.concatenate([[0], np.cumsum(marked[order])])
    unmarked_above = np.sum(~marked) - np.concatenate([[0], np.cumsum(~marked[order])])
    cut = int((marks_below + unmarked_above).argmin())
    return float(found[order][min(cut, len(found) - 1)])


def _windows(values: Floats, length: int) -> Floats:
    """For each packet the queues that it and those before it found; the first had none before it."""
    before = np.concatenate([np.repeat(values[:1], length - 1), values])
    return np.lib.stride_tricks.sliding_window_view(before, length)


def _is_near(seen_bps: float, planned_bps: int) -> bool:
    return abs(seen_bps - planned_bps) <= RATE_SHARE * planned_bps


def _bytes(size: float) -> str:
    return format_bytes(round(size))
