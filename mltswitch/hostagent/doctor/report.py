"""What the doctor says: findings about a machine, and about each path one way."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from mltswitch.errors import MachineError
from mltswitch.hostagent.errors import AgentError


class Status(StrEnum):
    """From good to bad."""

    OK = "ok"
    WARNING = "warning"
    """A job works, slower or less exactly than it could."""
    ERROR = "error"
    """A job fails, or the network does not do what the plan rests on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One question and its answer, as it was seen."""

    status: Status
    where: str
    what: str
    hint: str = ""
    """What to do; empty where there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathReport:
    """One path, from the host that sends to the one that receives."""

    path: int
    sender: str
    receiver: str
    local: str
    """Address of the sender."""
    remote: str
    longest_packet_bytes: int
    """With the IP header; 0: none has arrived."""
    sent_packets: int
    lost_packets: int
    """Of full packets of one class."""
    round_trip_seconds: float | None
    least_round_trip_seconds: float | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Of this host, and where there is a peer, of it and the paths between both."""

    name: str
    machine: tuple[Finding, ...]
    peer: str | None = None
    peer_machine: tuple[Finding, ...] = ()
    """As the peer says itself."""
    paths: tuple[PathReport, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All."""
        return (*self.machine, *self.peer_machine, *(found for path in self.paths for found in path.findings))

    @property
    def exit_code(self) -> int:
        """A machine in disorder goes before a way that is."""
        if worst(self.machine) is Status.ERROR:
            return MachineError.exit_code
        return AgentError.exit_code if worst(self.findings) is Status.ERROR else 0


def worst(findings: Iterable[Finding]) -> Status:
    """Of all of them; ok where there are none."""
    return max((finding.status for finding in findings), key=list(Status).index, default=Status.OK)
