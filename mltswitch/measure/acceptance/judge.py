"""Judges, from the trace of one run, whether a class did what was expected; pure functions of numbers.

"Above S" is a packet that found more than S plus the tolerance waiting, and so did the packets of the
averaging window before it; "below" the same the other way round. The tolerance is two packets (one may be
in transmission, one in a shaper's hands), a twentieth of the threshold (the port's rate in packets is known
no better), and the spread of the empty path's delay. A threshold that is not twice its tolerance cannot be
judged from outside.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from mltswitch.measure.acceptance.checks import Check, Question, TestedClass
from mltswitch.measure.observe import Trace, best_split
from mltswitch.measure.runs import TestedPort
from mltswitch.measure.schedule import Bools, Floats
from mltswitch.targets.base import EgressCounters
from mltswitch.units import BITS_PER_BYTE, format_bps, format_bytes

RESOLUTION_PACKETS: Final = 2
RESOLUTION_SHARE: Final = 0.05
EXCEPTIONS: Final = 0.03
"""Share of packets that may be wrongly marked or dropped: a busy host delays some before it stamps them."""
FEWEST_PACKETS: Final = 20
"""The fewest packets of which a share says anything."""
RATE_SHARE: Final = 0.05
LEAST_BURST_SHARE: Final = 0.25
"""Share of the threshold S that bursts must have queued to prove anything."""
COUNTER_SHARE: Final = 0.03
COUNTER_PACKETS: Final = 5
"""Packets by which a counter may differ: other traffic of the class, losses on the way."""
COUNTED: Final = ("ce_marked_packets", "dropped_at_threshold_packets", "dropped_at_limit_packets")
"""Names of the counters of which the device must tell at least one for a check."""


def judge_class(trace: Trace, expected: TestedClass, port: TestedPort) -> tuple[Check, ...]:
    """All checks that one threshold run answers, except those of counters."""
    return tuple(_Judge(trace, expected, port).checks())


class _Judge:
    """The packets of a run, each with the queue that it found: waiting times as bytes.

    They are taken at the rate that was seen where the port was full, else at its planned one.
    """

    def __init__(self, trace: Trace, expected: TestedClass, port: TestedPort) -> None:
        self._trace = trace
        self._expected = expected
        self._port = port
        self._rate_bps = trace.of("fill").rate_bps(port.packet_bytes)
        is_near = self._rate_bps is not None and _is_near(self._rate_bps, port.rate_bps)
        rate = self._rate_bps if self._rate_bps is not None and is_near else port.rate_bps
        self._found = trace.wait_seconds * rate / BITS_PER_BYTE
        window = port.averaging_packets
        before = np.concatenate(
            [np.repeat(self._found[:1], window), self._found]
        )  # the first had none before
        windows = np.lib.stride_tricks.sliding_window_view(before, window + 1)
        self._highest, self._lowest = np.max(windows, axis=1), np.min(windows, axis=1)
        self._resolution_bytes = RESOLUTION_PACKETS * port.packet_bytes
        self._noise_bytes = trace.noise_seconds * rate / BITS_PER_BYTE
        self._loaded = np.isin(trace.phase, ("burst", "hold", "fill"))
        limit = expected.limit_bytes
        # Not believed are packets that seem to have met more than L: a host paused between stamp and sending.
        self._believable = self._loaded & (limit is None or self._found <= limit + self._tolerance(limit))
        # A pause of a machine makes waits longer, never shorter: where drops hold the queue at S, a packet
        # that rightly passed would look like one from above it.
        self._standing = self._believable & (trace.phase == "fill")

    def checks(self) -> Iterator[Check]:
        yield self._rate()
        threshold, limit = self._expected.ecn_threshold_bytes, self._expected.limit_bytes
        no_threshold, no_limit = "the plan gives this class no threshold", self._expected.why_no_limit
        for question, length, why_none, blocked, check in (
            (Question.BURST, threshold, no_threshold, None, self._burst),
            (Question.MARKS_BEGIN, threshold, no_threshold, self._too_close, self._marks_begin),
            (Question.MARKED_ABOVE, threshold, no_threshold, self._too_close, self._marked_above),
            (Question.KEPT_BELOW, threshold, no_threshold, self._too_short, self._kept_below),
            (Question.DROPPED_ABOVE, threshold, no_threshold, self._too_close, self._dropped_above),
            (Question.ECT_KEPT, limit, no_limit, self._too_short, self._kept_below),
            (Question.STANDS, limit, no_limit, self._too_short, self._stands),
        ):
            if length is None:
                yield self._ask(question).unanswered(why_none)
            else:
                yield (blocked(question, length) if blocked else None) or check(question, length)

    def _ask(self, question: Question, seen: str = "", expected: str = "") -> Check:
        return Check(question, self._expected.traffic_class, None, seen, expected)

    def _tolerance(self, length: int, *, is_quiet: bool = False) -> float:
        """How far from a length a queue must be to be told apart; `is_quiet`: were the path never busy."""
        tolerance = self._resolution_bytes + RESOLUTION_SHARE * length
        return tolerance if is_quiet else tolerance + self._noise_bytes

    def _too_short(self, question: Question, length: int) -> Check | None:
        near = self._tolerance(length)
        if length > 2 * near:
            return None
        name = "L" if question in (Question.ECT_KEPT, Question.STANDS) else "S"
        return self._ask(question).unanswered(
            f"{name} of {format_bytes(length)} is too short for delays that tell ± {_bytes(near)}",
            is_disturbed=length > 2 * self._tolerance(length, is_quiet=True),
        )

    def _too_close(self, question: Question, threshold: int) -> Check | None:
        short, limit = self._too_short(question, threshold), self._expected.limit_bytes
        near = self._tolerance(threshold)
        if short is not None or limit is None or limit - threshold > near:
            return short
        return self._ask(question).unanswered(
            f"L is only {format_bytes(limit - threshold)} above S; delays tell ± {_bytes(near)}",
            is_disturbed=limit - threshold > self._tolerance(threshold, is_quiet=True),
        )

    def _few(self, question: Question, count: int, kind: str) -> Check:
        is_noisy = self._noise_bytes > self._resolution_bytes
        asked = self._ask(question, f"{count} packets")
        return asked.unanswered(f"hardly any {kind}", is_disturbed=is_noisy)

    def _rate(self) -> Check:
        expected = f"{format_bps(self._port.rate_bps)} ± {RATE_SHARE:.0%}"
        if self._rate_bps is None:
            asked = self._ask(Question.RATE, "nothing came through", expected)
            return asked.answer(False, "the class is not served at all, or its packets go elsewhere")
        asked = self._ask(Question.RATE, format_bps(round(self._rate_bps, -3)), expected)
        return asked.answer(_is_near(self._rate_bps, self._port.rate_bps))

    def _burst(self, question: Question, threshold: int) -> Check:
        chosen = self._trace.phase == "burst"
        burst = self._trace.where(chosen)
        if not len(burst):
            is_short = threshold < 2 * self._port.packet_bytes
            return self._ask(question).unanswered(
                "S is shorter than two packets"
                if is_short
                else "no host that sends stands right behind the device"
            )
        lost, marked = int(np.sum(~burst.is_received)), int(np.sum(burst.is_marked))
        peak = float(np.max(self._found[chosen]))
        seen = f"{lost} lost, {marked} CE of {len(burst)}; up to {_bytes(peak)} queued"
        if not lost and not marked and peak < LEAST_BURST_SHARE * threshold:
            return self._ask(question, seen).unanswered(
                "the bursts hardly queued: the hosts send no faster than the port"
            )
        return self._ask(question, seen, "0 lost, 0 CE").answer(not lost and not marked)

    def _marks_begin(self, question: Question, threshold: int) -> Check:
        near = self._tolerance(threshold)
        expected = f"{format_bytes(threshold)} ± {_bytes(near)}"
        chosen = self._believable & self._trace.is_ect & self._trace.is_received
        marked, found = self._trace.is_marked[chosen], self._at_marking()[chosen]
        if np.sum(marked) < FEWEST_PACKETS:
            return self._ask(question, f"{int(np.sum(marked))} CE of {len(marked)}", expected).answer(
                False,
                "almost nothing is marked: ECN is off for this queue, S stands above what the queue "
                "reaches, or this class's packets do not get here",
            )
        split = best_split(found, marked)
        return self._ask(question, _bytes(split), expected).answer(abs(split - threshold) <= near)

    def _marked_above(self, question: Question, threshold: int) -> Check:
        trace, above = self._trace, threshold + self._tolerance(threshold)
        chosen = self._standing & trace.is_ect & trace.is_received
        chosen &= (self._at_marking() > above) & (self._lowest > above)
        count, marked = int(np.sum(chosen)), int(np.sum(trace.is_marked[chosen]))
        if count < FEWEST_PACKETS:
            return self._few(question, count, f"ECT packet was delivered from above {_bytes(above)}")
        asked = self._ask(
            question, f"{marked / count:.1%} CE of {count}", f"at least {1 - EXCEPTIONS:.0%} CE"
        )
        return asked.answer(count - marked <= EXCEPTIONS * count)

    def _kept_below(self, question: Question, length: int) -> Check:
        """Not-ECT packets are kept below S, ECT packets below L."""
        trace, below = self._trace, length - self._tolerance(length)
        is_ect = question is Question.ECT_KEPT
        chosen = self._loaded & (trace.is_ect == is_ect) & (self._highest < below)
        count, lost = int(np.sum(chosen)), int(np.sum(~trace.is_received[chosen]))
        if count < FEWEST_PACKETS:
            kind = "ECT" if is_ect else "Not-ECT"
            return self._few(question, count, f"{kind} packet met less than {_bytes(below)}")
        asked = self._ask(question, f"{lost / count:.1%} lost of {count}", f"at most {EXCEPTIONS:.0%} lost")
        return asked.answer(lost <= EXCEPTIONS * count)

    def _dropped_above(self, question: Question, threshold: int) -> Check:
        trace, above = self._trace, threshold + self._tolerance(threshold)
        chosen = self._standing & ~trace.is_ect & (self._lowest > above)
        count, passed = int(np.sum(chosen)), int(np.sum(trace.is_received[chosen]))
        held = self._settled((trace.phase == "hold") & ~trace.is_ect)
        held_bytes = float(np.median(held)) if len(held) >= FEWEST_PACKETS else 0.0
        if count < FEWEST_PACKETS and held_bytes <= above:
            return self._few(question, count, f"Not-ECT packet met more than {_bytes(above)}")
        asked = self._ask(
            question,
            f"{passed} delivered of {count}; drops hold the queue at {_bytes(held_bytes)}",
            f"at most {EXCEPTIONS:.0%} delivered; at most {_bytes(above)}",
        )
        return asked.answer(passed <= EXCEPTIONS * count and held_bytes <= above)

    def _stands(self, question: Question, limit: int) -> Check:
        near = self._tolerance(limit)
        expected = f"{format_bytes(limit)} ± {_bytes(near)}"
        found = self._settled((self._trace.phase == "fill") & self._trace.is_ect)
        if len(found) < FEWEST_PACKETS:
            asked = self._ask(question, f"{len(found)} packets came through", expected)
            return asked.answer(False, "the class is not served")
        standing = float(np.median(found))
        return self._ask(question, _bytes(standing), expected).answer(abs(standing - limit) <= near)

    def _settled(self, chosen: Bools) -> Floats:
        """What the later half of these packets found of those that came through."""
        found = self._found[chosen & self._trace.is_received]
        return found[len(found) // 2 :]

    def _at_marking(self) -> Floats:
        """Queue when the device decides on the mark: at arrival, or behind the packet when it leaves."""
        if self._port.marks_at == "enqueue":
            return self._found
        trace, known = self._trace, self._loaded
        behind = np.interp(trace.left_seconds, trace.time_seconds[known], self._found[known])
        return np.asarray(behind, dtype=np.float64)


def judge_counters(
    trace: Trace, expected: TestedClass, before: EgressCounters | str, after: EgressCounters | str
) -> Check:
    """Whether the device counted the marks and drops that the hosts saw; a text says why it was not read."""
    for unread in (before, after):
        if isinstance(unread, str):
            return Check(Question.COUNTERS, expected.traffic_class, None, "not read").unanswered(unread)
    pairs = [(getattr(before, field), getattr(after, field)) for field in COUNTED]
    counted_marked, early, full = (None if None in pair else pair[1] - pair[0] for pair in pairs)
    lost = int(np.sum(~trace.is_received))
    ect_lost = int(np.sum(~trace.is_received & trace.is_ect))
    marked = int(np.sum(trace.is_marked))
    # Of the ECT packets lost, those dropped at L were marked before, those dropped elsewhere were not.
    found = [("marked", counted_marked, marked, marked + ect_lost)]
    if early is None or full is None:
        found.append(("dropped at S", early, lost - ect_lost, lost - ect_lost))
    else:
        found.append(("dropped", early + full, lost, lost))
    read = [(what, count, least, most) for what, count, least, most in found if count is not None]
    asked = Check(
        Question.COUNTERS,
        expected.traffic_class,
        None,
        ", ".join(f"{what} {count:,}" for what, count, _, _ in read),
        ", ".join(
            f"{what} {least:,}" + (f" to {most:,}" if most > least else "") for what, _, least, most in read
        ),
    )
    return asked.answer(all(_within(count, least, most) for _, count, least, most in read))


def _within(counted: int, least: int, most: int) -> bool:
    slack = COUNTER_PACKETS + COUNTER_SHARE * most
    return least - slack <= counted <= most + slack


def _is_near(seen_bps: float, planned_bps: int) -> bool:
    return abs(seen_bps - planned_bps) <= RATE_SHARE * planned_bps


def _bytes(size: float) -> str:
    return format_bytes(round(size))
