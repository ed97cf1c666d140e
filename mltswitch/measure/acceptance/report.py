"""The result of an acceptance test, and what it says about a capability's open questions."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mltswitch.measure.acceptance.checks import Check, Question

SETTLED_BY: Final = (
    (
        re.compile(r".*\bmarks ECN-capable packets and drops the others above the threshold( \(.*\))?"),
        (Question.MARKED_ABOVE, Question.DROPPED_ABOVE, Question.MARKS_BEGIN),
    ),
    (
        re.compile(r".*\bat the threshold every ECN-capable packet is marked and every other one dropped"),
        (Question.MARKED_ABOVE, Question.DROPPED_ABOVE, Question.MARKS_BEGIN),
    ),
    (
        re.compile(r".*\b(the switch acts on )?the instantaneous queue length( by default)?"),
        (Question.MARKS_BEGIN, Question.MARKED_ABOVE, Question.KEPT_BELOW),
    ),
    (
        re.compile(r"[^:,]*\bstrict[^:,]*: the higher (queue )?number is served first"),
        (Question.ORDER,),
    ),
)
"""Open sentences of the capabilities (the whole of one must match) → the questions that settle it.

A sentence that says more than these checks see stays open, whatever they find.
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
    settled: tuple[str, ...]
    """Sentences of the capability's `unverified` that these checks prove, on this port."""
    still_open: tuple[str, ...]
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


def open_sentences(
    unverified: Sequence[str], checks: Sequence[Check]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(settled, still open): settled is what each question that bears on it passed, and none failed."""
    settled = tuple(sentence for sentence in unverified if _is_settled(sentence, checks))
    return settled, tuple(sentence for sentence in unverified if sentence not in settled)


def _is_settled(sentence: str, checks: Sequence[Check]) -> bool:
    for pattern, questions in SETTLED_BY:
        if pattern.fullmatch(sentence):
            answers = {
                question: {check.holds for check in checks if check.question is question}
                for question in questions
            }
            return all(True in found and False not in found for found in answers.values())
    return False
