"""The result of an acceptance test, and what it says about a capability's open questions."""

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

Elsewhere such an item says more than these checks see, and stays open whatever they find.
"""

REQUIRED: Final = (Question.MARKED_ABOVE, Question.DROPPED_ABOVE)
"""What a plan rests on: without both of every gradient class nothing is accepted."""


class Verdict(StrEnum):
    """All that was asked, in one word."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """Nothing failed, but what a plan rests on was not seen."""


@dataclass(frozen=True, slots=True)
class AcceptanceResult:
    """What was tested, where, and every answer."""

    switch: str
    port: str
    platform: str
    hardware: str
    receiver: str
    senders: tuple[str, ...]
    rate_bps: int
    packet_bytes: int
    seconds: float
    """Time on the wire, all runs together."""
    noise_seconds: float
    """Spread of the empty path's delay, in the worst run."""
    late_seconds: float
    """How far the slowest sender fell behind its schedule."""
    checks: tuple[Check, ...]
    settled: tuple[Unverified, ...]
    """Items of the capability's `unverified` that these checks prove, on this port."""
    still_open: tuple[Unverified, ...]
    """The others."""

    @property
    def verdict(self) -> Verdict:
        """Failed where one check did; accepted where none did, and both that are required passed for each
        gradient class."""
        if any(check.holds is False for check in self.checks):
            return Verdict.FAILED
        asked = {check.question for check in self.checks}
        return Verdict.INCONCLUSIVE if self.missing or not asked >= set(REQUIRED) else Verdict.ACCEPTED

    @property
    def missing(self) -> tuple[Check, ...]:
        """What would have to be checked for a verdict, and was not."""
        return tuple(check for check in self.checks if check.question in REQUIRED and check.holds is None)


def open_items(
    unverified: Sequence[Unverified], checks: Sequence[Check]
) -> tuple[tuple[Unverified, ...], tuple[Unverified, ...]]:
    """(settled, still open): settled is what each question that bears on it passed, and none failed."""
    settled = tuple(item for item in unverified if _is_settled(item, checks))
    return settled, tuple(item for item in unverified if item not in settled)


def _is_settled(item: Unverified, checks: Sequence[Check]) -> bool:
    platform, _, name = item.id.partition(".")
    target = targets().get(platform)
    questions = SETTLED_BY[name] if target and name in target.settled_by_acceptance else ()
    answers = [{check.holds for check in checks if check.question is question} for question in questions]
    return bool(answers) and all(True in found and False not in found for found in answers)
