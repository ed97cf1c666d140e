"""The questions of an acceptance test, and the form of their answers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from mltswitch.capabilities import AlphaLimit, BytesLimit, Limit


class Question(StrEnum):
    """A question of the acceptance test, worded as in the printed table."""

    RATE = "the port sends at its rate"
    BURST = "a burst below S passes untouched"
    MARKS_BEGIN = "marks begin at S"
    MARKED_ABOVE = "ECT above S comes out CE"
    KEPT_BELOW = "no Not-ECT is lost below S"
    DROPPED_ABOVE = "Not-ECT is dropped above S"
    ECT_KEPT = "no ECT is lost below L"
    STANDS = "the queue stands at L"
    COUNTERS = "the device's counters agree"
    ORDER = "strict order"
    CONTROL = "control is untouched"
    CAPPED = "control is held to its cap"
    SHARE = "background gets its share"
    HOST_CONTROL = "network control of hosts is background"


FAILURES: Final[Mapping[Question, str]] = {
    Question.RATE: "the overload does not meet this port's queue, or the port's rate is another one: a link "
    "that came up slower, a shaper, or another bottleneck on the way",
    Question.BURST: "packets are marked or dropped although fewer than S are queued: S stands too low, the "
    "length is averaged over earlier traffic, or other traffic crosses the port",
    Question.MARKS_BEGIN: "marking begins at another queue length than planned: S is another one, or the "
    "length is averaged over more packets than the capability says",
    Question.MARKED_ABOVE: "packets pass a queue longer than S without a mark: S stands higher, ECN is off, "
    "or marks come with a probability below one",
    Question.KEPT_BELOW: "Not-ECT packets are lost from a queue shorter than S: S stands lower, the length "
    "is averaged, or they are lost on the way to this port",
    Question.DROPPED_ABOVE: "Not-ECT packets pass a queue longer than S: the device marks but does not drop "
    "what cannot be marked (no RED drop, `nodrop`), or S stands higher",
    Question.ECT_KEPT: "ECN-capable packets are dropped before the queue is full: L stands lower, the shared "
    "buffer ends earlier, or the device drops at S instead of marking",
    Question.STANDS: "an overload by ECT packets alone fills the queue to another length: L is another one, "
    "the shared buffer ends earlier, or ECT packets are dropped at S",
    Question.COUNTERS: "the device counts other packets than the hosts saw: another queue of the port serves "
    "this class, packets are lost elsewhere, or other traffic crosses the port",
    Question.CONTROL: "control traffic suffers from gradients: its queue is not above theirs, its DSCP is "
    "not believed on the way, or the shared buffer is full before it comes",
    Question.CAPPED: "control takes more than its cap: its queue has no shaper, or another rate, and whoever "
    "sends so much control starves the gradients",
    Question.SHARE: "gradients starve background: its queue has no guaranteed share, or a smaller one",
}
"""Question → what a failure means, where that does not depend on what failed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One question about one class, and its answer."""

    question: Question
    traffic_class: str
    holds: bool | None = None
    """Whether the answer is yes; None: it was not checked, and `explanation` says why."""
    seen: str = ""
    expected: str = ""
    explanation: str = ""
    """What the failure means, or why there is no answer; empty where the check passed."""
    measured: int = 1
    """How many runs were made until one answered like this."""
    is_disturbed: bool = False
    """Whether there is no answer because hosts paused or sent too little; another run may give one."""

    def answer(self, holds: bool, failure: str = "") -> "Check":
        """This check as passed or failed; `failure`, or else `FAILURES`, says what a failure means."""
        return replace(
            self, holds=bool(holds), explanation="" if holds else failure or FAILURES[self.question]
        )

    def unanswered(self, reason: str, *, is_disturbed: bool = False) -> "Check":
        """This check as not answered, and why."""
        return replace(self, explanation=reason, is_disturbed=is_disturbed)

    def excused(self, reason: str) -> "Check":
        """This check, but a failure becomes no answer, because the hosts may be what failed."""
        if self.holds is not False:
            return self
        return replace(self, holds=None, explanation=reason, is_disturbed=True)

    @property
    def result(self) -> str:
        """The result as it is printed: `pass`, `FAIL` or `not checked`."""
        return {True: "pass", False: "FAIL", None: "not checked"}[self.holds]


@dataclass(frozen=True, slots=True)
class TestedClass:
    """One traffic class of the port under test, as the device can express the plan."""

    __test__ = False  # pytest takes every Test… for its own
    traffic_class: str
    class_index: int
    dscp: int
    queue: int
    """Number of the hardware queue."""
    limit: Limit
    standing_bytes: int
    """Bytes that an overload by ECT packets should queue at least: the limit L, or without a limit, well
    above S.
    """
    ecn_threshold_bytes: int | None = None
    maximum_bps: int | None = None
    """The device's bandwidth limit of the class in bit/s; None: the port's rate."""
    minimum_bps: int | None = None
    """The bandwidth guaranteed to the class in bit/s however much waits in others; None: none."""

    @property
    def limit_bytes(self) -> int | None:
        """The queue limit L in bytes; None where the device's limit is no length."""
        return self.limit.size_bytes if isinstance(self.limit, BytesLimit) else None

    @property
    def why_no_limit(self) -> str:
        """Why the limit L cannot be checked."""
        if isinstance(self.limit, AlphaLimit):
            return f"the device has no limit in bytes, but {self.limit} of what its pool has free"
        return "the device has no limit in bytes"
