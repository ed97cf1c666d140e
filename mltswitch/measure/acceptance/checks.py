"""What an acceptance test asks, and how an answer looks."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from mltswitch.capabilities import AlphaLimit, BytesLimit, Limit


class Question(StrEnum):
    """What is checked; the wording is that of the table."""

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


@dataclass(frozen=True, slots=True)
class Check:
    """One question about one class, and its answer."""

    question: Question
    traffic_class: str
    holds: bool | None
    """None: not checked, and `explanation` says why."""
    seen: str
    expected: str
    explanation: str = ""
    """What a failure means, or why there is no answer; empty where it passed."""
    measured: int = 1
    """Runs that were asked until one answered like this."""
    is_disturbed: bool = False
    """No answer, and the hosts are to blame: they paused, or sent too little. Another run may give one."""

    def excused(self, reason: str) -> "Check":
        """The same, but a failure is none: the hosts may be what failed."""
        if self.holds is not False:
            return self
        return replace(self, holds=None, explanation=reason, is_disturbed=True)

    @property
    def result(self) -> str:
        """As it is printed."""
        return {True: "pass", False: "FAIL", None: "not checked"}[self.holds]


@dataclass(frozen=True, slots=True)
class ExpectedQueue:
    """One gradient class of the port as the device can express the plan."""

    traffic_class: str
    class_index: int
    dscp: int
    queue: int
    """The hardware's number."""
    ecn_threshold_bytes: int | None
    limit: Limit
    standing_bytes: int
    """Queue that an overload by ECT should reach at least: L, or where there is none, well above S."""

    @property
    def limit_bytes(self) -> int | None:
        """L; None where the device's limit is no length."""
        return self.limit.size_bytes if isinstance(self.limit, BytesLimit) else None

    @property
    def why_no_limit(self) -> str:
        """Why L cannot be checked."""
        if isinstance(self.limit, AlphaLimit):
            return f"the device has no limit in bytes, but {self.limit} of what its pool has free"
        return "the device has no limit in bytes"


@dataclass(frozen=True, slots=True)
class ControlClass:
    """A class that gradients must not touch."""

    traffic_class: str
    class_index: int
    dscp: int
    maximum_bps: int | None
    """What the device lets it have; None: the port's rate."""
    limit_bytes: int | None = None
    """What of it can wait; None: no length is known."""


@dataclass(frozen=True, slots=True)
class BackgroundClass:
    """The class that is served last."""

    traffic_class: str
    class_index: int
    dscp: int
    share_bps: int | None
    """What it gets however much waits in other classes; None: nothing."""
    limit_bytes: int | None
    """What of it can wait; None: no length is known."""


@dataclass(frozen=True, slots=True)
class HostControl:
    """Network control that hosts send, which is none of theirs."""

    traffic_class: str
    class_index: int
    dscp: int
    senders: tuple[int, ...]
    """Senders right behind the device from whose ports it leads to background; empty: none."""
    why_not: str = ""
    """Why nobody can send it."""


@dataclass(frozen=True, slots=True)
class ExpectedPort:
    """The port under test."""

    rate_bps: int
    packet_bytes: int
    marks_at: Literal["enqueue", "dequeue"]
    averaging_packets: int
