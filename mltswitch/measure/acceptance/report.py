"""The result of an acceptance test, and what it says about the open items of a device's capabilities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mltswitch.capabilities import Unverified
from mltswitch.measure.acceptance.checks import Check, Question
from mltswitch.targets import targets

SETTLED_BY: Final[Mapping[str, tuple[Question, ...]]] = {
    "red-per-packet": (Question.MARKED_ABOVE, Question.DROPPED_ABOVE, Question.MARKS_BEGIN),
    "queue-length": (Question.MARKS_BEGIN, Question.MARKED_ABOVE, Question.KEPT_BELOW),
    "strict-order": (Question.ORDER,),
}
"""The end of an unverified item's ID → the questions that settle it, on targets that say so.

On other targets such an item says more than these checks see, and stays open whatever they find.
"""

REQUIRED: Final = (Question.MARKED_ABOVE, Question.DROPPED_ABOVE)
"""The questions that must pass for every gradient class: without both, nothing is accepted."""


class Verdict(StrEnum):
    """The verdict on all checks, in one word."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """No check failed, but a required one was not answered."""


@dataclass(frozen=True, slots=True)
class AcceptanceResult:
    """What was tested, where, and the answer of every check."""

    switch: str
    port: str
    platform: str
    hardware: str
    receiver: str
    senders: tuple[str, ...]
    rate_bps: int
    packet_bytes: int
    seconds: float
    """Time on the wire in seconds, of all runs together."""
    noise_seconds: float
    """Spread in seconds of the empty path's delay, in the worst run."""
    late_seconds: float
    """How many seconds the slowest sender fell behind its schedule."""
    checks: tuple[Check, ...]
    settled: tuple[Unverified, ...]
    """Open items of the device's capabilities that these checks prove, on this port."""
    still_open: tuple[Unverified, ...]
    """Open items of the device's capabilities that these checks do not settle."""

    @property
    def verdict(self) -> Verdict:
        """Failed if a check failed; accepted if none did and all required ones passed; else inconclusive."""
        if any(check.holds is False for check in self.checks):
            return Verdict.FAILED
        asked = {check.question for check in self.checks}
        return Verdict.INCONCLUSIVE if self.missing or not asked >= set(REQUIRED) else Verdict.ACCEPTED

    @property
    def missing(self) -> tuple[Check, ...]:
        """The required checks that were not answered, and without which there is no verdict."""
        return tuple(check for check in self.checks if check.question in REQUIRED and check.holds is None)


def open_items(
    unverified: Sequence[Unverified], checks: Sequence[Check]
) -> tuple[tuple[Unverified, ...], tuple[Unverified, ...]]:
    """(settled, still open) items: one is settled if each of its questions passed and none failed."""
    settled = tuple(item for item in unverified if _is_settled(item, checks))
    return settled, tuple(item for item in unverified if item not in settled)


def _is_settled(item: Unverified, checks: Sequence[Check]) -> bool:
    platform, _, name = item.id.partition(".")
    target = targets().get(platform)
    questions = SETTLED_BY[name] if target and name in target.settled_by_acceptance else ()
    answers = [{check.holds for check in checks if check.question is question} for question in questions]
    return bool(answers) and all(True in found and False not in found for found in answers)
