"""Runs an acceptance test from its first packet to its result: runs, counters, judgements."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from mltswitch.deploy import Session
from mltswitch.errors import DeviceError
from mltswitch.measure.acceptance.checks import Check, Question, TestedClass
from mltswitch.measure.acceptance.competition import (
    judge_cap,
    judge_control,
    judge_host_control,
    judge_order,
    judge_share,
)
from mltswitch.measure.acceptance.judge import COUNTED, judge_class, judge_counters
from mltswitch.measure.acceptance.place import Place
from mltswitch.measure.acceptance.report import AcceptanceResult, open_items
from mltswitch.measure.counters import ask_counters
from mltswitch.measure.hosts import DisturbedRunError, Hosts
from mltswitch.measure.observe import Trace, observe
from mltswitch.measure.runs import background_run, cap_run, control_run, order_run, threshold_run
from mltswitch.measure.schedule import Run, run_seconds
from mltswitch.targets import Target
from mltswitch.targets.base import EgressCounters
from mltswitch.units import format_seconds

MEASUREMENTS: Final = 3
"""How many runs a check must fail to count as failed; after one that passes, no further run is made."""
ATTEMPTS: Final = 3
"""How often a run is tried until no host paused in it."""
AGAIN_SECONDS: Final = 0.04
"""Seconds behind its schedule from which a sender's run is repeated."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """The source of the device's counters."""

    session: Session | None
    why_not: str = ""
    """Why the device cannot be asked for counters; empty where it can."""
    target: Target | None = field(kw_only=True)
    """The target whose commands and answers are used; None: the device cannot be asked."""


def accept(place: Place, hosts: Hosts, counters: DeviceCounters, progress: Progress) -> AcceptanceResult:
    """Run every test of the port; raises MachineError when a host fails, DeviceError when the device does."""
    return _Acceptance(place, hosts, counters, progress).result()


class _Acceptance:
    def __init__(self, place: Place, hosts: Hosts, counters: DeviceCounters, progress: Progress) -> None:
        self._place = place
        self._port = place.tested
        self._hosts = hosts
        self._counters = counters
        self._progress = progress
        self._gradients = [queue.class_index for queue in place.gradients]
        self._standing_bytes = sum(queue.standing_bytes for queue in place.gradients)
        self._noise = self._late = self._seconds = 0.0

    def result(self) -> AcceptanceResult:
        place = self._place
        checks: list[Check] = []
        for queue in place.gradients:
            checks += self._thresholds(queue)
        for upper, lower in pairwise(place.gradients):
            checks += self._order(upper, lower)
        if place.gradients:
            for control in place.controls:
                checks += (*self._control(control), *self._cap(control))
            checks += self._background()
        settled, left = open_items(place.unverified, checks)
        return AcceptanceResult(
            switch=place.switch,
            port=place.port,
            platform=place.platform,
            hardware=place.hardware,
            receiver=place.receiver,
            senders=place.senders,
            rate_bps=self._port.rate_bps,
            packet_bytes=self._port.packet_bytes,
            seconds=self._seconds,
            noise_seconds=self._noise,
            late_seconds=self._late,
            checks=tuple(checks),
            settled=settled,
            still_open=left,
        )

    def _thresholds(self, queue: TestedClass) -> tuple[Check, ...]:
        threshold = queue.ecn_threshold_bytes or 0
        run = threshold_run(self._port, queue.class_index, threshold, queue.standing_bytes)
        counted: list[EgressCounters | str] = []

        def judge(trace: Trace) -> tuple[Check, ...]:
            counters = judge_counters(trace, queue, counted[-1], self._count(queue))
            return (*judge_class(trace, queue, self._port), counters)

        what = f"thresholds of {queue.traffic_class}"
        return self._ask(what, run, judge, lambda: counted.append(self._count(queue)))

    def _count(self, queue: TestedClass) -> EgressCounters | str:
        """The queue's counters, or why there are none."""
        session, target = self._counters.session, self._counters.target
        if session is None or target is None or target.counters is None:
            return self._counters.why_not
        time.sleep(target.counters.poll_seconds)
        spot = self._place.port, queue.queue
        try:
            counters = ask_counters(target, session.ask, [spot]).get(spot, EgressCounters())
        except DeviceError as error:
            return str(error)
        if all(getattr(counters, field) is None for field in COUNTED):
            return f"port {spot[0]}: the chip does not count marks or drops of queue {queue.queue}"
        return counters

    def _order(self, upper: TestedClass, lower: TestedClass) -> tuple[Check, ...]:
        standing = (upper.standing_bytes, lower.standing_bytes)
        run = order_run(self._port, upper.class_index, lower.class_index, standing)
        what = f"order of {upper.traffic_class} and {lower.traffic_class}"
        return self._ask(what, run, lambda trace: (judge_order(trace, upper, lower, self._port),))

    def _control(self, control: TestedClass) -> tuple[Check, ...]:
        index, maximum = control.class_index, control.maximum_bps
        run = control_run(self._port, index, self._gradients, self._standing_bytes, maximum)
        what = f"{control.traffic_class} under overload"
        return self._ask(what, run, lambda trace: (judge_control(trace, control, self._port),))

    def _cap(self, control: TestedClass) -> tuple[Check, ...]:
        name, maximum = control.traffic_class, control.maximum_bps
        asked = Check(Question.CAPPED, name)
        if maximum is None:
            return (asked.unanswered("the device holds no queue to a rate"),)
        if not self._port.burst_senders:
            return (
                asked.unanswered(
                    "no host that sends stands right behind the device, and switches before it hold control"
                ),
            )
        run = cap_run(self._port, control.class_index, self._gradients, maximum, control.limit_bytes)
        return self._ask(
            f"cap of {name}", run, lambda trace: (judge_cap(trace, control, maximum, self._port),)
        )

    def _background(self) -> list[Check]:
        """Background's share, and network control from hosts: one run tells both."""
        last, hosts, senders = (
            self._place.background,
            self._place.host_control,
            self._place.host_control_senders,
        )
        checks: list[Check] = []
        if last.minimum_bps is None:
            asked = Check(Question.SHARE, last.traffic_class)
            checks.append(asked.unanswered("the device guarantees no share of the port to the last queue"))
        if hosts is not None and not senders:
            asked = Check(Question.HOST_CONTROL, hosts.traffic_class)
            why_not = "no host that sends stands right behind the device"
            if self._port.burst_senders:
                why_not = "the device has one map for all ports, so hosts are believed"
            checks.append(asked.unanswered(why_not))
            hosts = None
        if last.minimum_bps is None and hosts is None:
            return checks
        run = background_run(
            self._port,
            last.class_index,
            last.minimum_bps,
            None if hosts is None else hosts.class_index,
            senders,
            self._gradients,
            self._standing_bytes + (last.limit_bytes or 0),
        )

        def judge(trace: Trace) -> tuple[Check, ...]:
            judged = []
            if last.minimum_bps is not None:
                judged.append(judge_share(trace, last, last.minimum_bps, self._port))
            if hosts is not None:
                judged.append(judge_host_control(trace, hosts, last, self._port))
            return tuple(judged)

        return [*checks, *self._ask(f"{last.traffic_class} under overload", run, judge)]

    def _ask(
        self,
        what: str,
        run: Run,
        judge: Callable[[Trace], tuple[Check, ...]],
        before: Callable[[], None] | None = None,
    ) -> tuple[Check, ...]:
        """What a run tells; another run where a check failed or the hosts spoilt it: one may be bad luck."""
        rounds: list[tuple[Check, ...]] = []
        while len(rounds) < MEASUREMENTS:
            trace = self._observe(what, run, before)
            paused = _paused(trace)
            judged = judge(trace)
            rounds.append(
                tuple(check.excused(f"{paused} in every run") for check in judged) if paused else judged
            )
            settled = tuple(settle(answers) for answers in zip(*rounds, strict=True))
            doubtful = [check.question for check in settled if check.holds is False or check.is_disturbed]
            if paused or not doubtful:
                break
            if len(rounds) < MEASUREMENTS:
                self._say(f"{what}: {', '.join(doubtful)}? Once more")
        return settled

    def _observe(self, what: str, run: Run, before: Callable[[], None] | None) -> Trace:
        """One run, again where a host paused: then the queue emptied, and the run says less than it could."""
        for attempt in range(1, ATTEMPTS + 1):
            self._say(f"{what}, {run_seconds(run):.1f} s")
            if before is not None:
                before()
            self._seconds += run_seconds(run)
            try:
                trace = observe(self._hosts.exchange(run))
                paused = _paused(trace)
            except DisturbedRunError as error:
                if attempt == ATTEMPTS:
                    raise
                paused = str(error)
            if not paused or attempt == ATTEMPTS:
                break
            self._say(f"{what}: {paused}, once more")
        self._noise = max(self._noise, trace.noise_seconds)
        self._late = max(self._late, trace.late_seconds)
        return trace

    def _say(self, text: str) -> None:
        self._progress(f"{self._place.switch} {self._place.port}: {text}")


def settle(answers: Sequence[Check]) -> Check:
    """One check from several runs: passed where one passed, failed where two or more failed, or the only one.

    A switch that does the wrong thing does it in every run; a host that is busy for a moment is not.
    """
    for number, answer in enumerate(answers, 1):
        if answer.holds:
            return replace(answer, measured=number)
    failed = [answer for answer in answers if answer.holds is False]
    if len(failed) > 1 or len(answers) == 1:
        return replace((failed or answers)[-1], measured=len(answers))
    unanswered = [answer for answer in answers if answer.holds is None]
    return replace(unanswered[-1], measured=len(answers) if failed or unanswered[-1].is_disturbed else 1)


def _paused(trace: Trace) -> str:
    """What a host did that spoils this run; empty where nothing did."""
    if trace.late_seconds > AGAIN_SECONDS:
        return f"a sender paused for {format_seconds(trace.late_seconds)}"
    return ""
