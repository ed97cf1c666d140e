"""What an examination says: findings about a host, and about each path in each direction."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    WARNING = "warning"
    """The job works, slower or less exactly than it could."""
    PROBLEM = "problem"
    """The job fails, or the network does not do what the plan rests on."""


_SEVERITY = {Status.OK: 0, Status.WARNING: 1, Status.PROBLEM: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One question and its answer."""

    subject: str
    status: Status
    seen: str
    """Measured or read on the machine, never assumed."""
    meaning: str = ""
    """For a job; empty where there is nothing to say."""
    remedy: str = ""
    """What to do; empty where there is nothing to do."""


@dataclass(frozen=True, slots=True)
class HostReport:
    """One end."""

    name: str
    findings: tuple[Finding, ...]


def worst(findings: Iterable[Finding]) -> Status:
    """Of all of them; ok where there are none."""
    return max((finding.status for finding in findings), key=_SEVERITY.__getitem__, default=Status.OK)
