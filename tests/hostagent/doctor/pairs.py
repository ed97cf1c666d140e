"""Two doctors in one process: one listens in a thread, the other examines."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from mltswitch.hostagent.control.channel import ChannelSettings
from mltswitch.hostagent.control.security import Plaintext, Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.doctor.addresses import address_findings
from mltswitch.hostagent.doctor.examination import PeerResult, connected, examine
from mltswitch.hostagent.doctor.examined import Answered, Examined, listening
from mltswitch.hostagent.doctor.findings import Finding, HostReport, Status
from mltswitch.hostagent.doctor.settings import DoctorSettings, LocalPath
from mltswitch.hostagent.doctor.verdicts import Report, judge

PATIENCE_SECONDS = 60.0
CHANNEL = ChannelSettings(dscp=40, handshake_limit_ns=60 * 10**9)
LOOSE = Plaintext(beyond_loopback=True)
HERE: Callable[[], AbstractContextManager[None]] = nullcontext


def settings_of(name: str, addresses: Sequence[str], **more: object) -> DoctorSettings:
    """Paths by address, at any port."""
    return DoctorSettings(
        name=name,
        paths=tuple(LocalPath(address, 0) for address in addresses),
        **more,  # type: ignore[arg-type]  # any of the settings
    )


@dataclass
class Listening:
    """The examined side; `answered` is filled as it serves."""

    at: Endpoint
    answered: list[Answered]
    thread: threading.Thread

    def wait(self) -> Answered:
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive(), "it still serves"
        return self.answered[-1]


@contextmanager
def served(
    settings: DoctorSettings,
    address: str,
    security: Security = LOOSE,
    *,
    entered: Callable[[], AbstractContextManager[None]] = HERE,
    times: int = 1,
) -> Iterator[Listening]:
    """One doctor that answers so many examiners."""
    with entered():
        findings = address_findings(settings)
        context = listening(Endpoint(address, 0), security, CHANNEL, settings, findings)
        examined = context.__enter__()
    answered: list[Answered] = []

    def serve(examined: Examined) -> None:
        with entered():
            for _ in range(times):
                one = examined.serve_one(PATIENCE_SECONDS)
                if one is not None:
                    answered.append(one)

    thread = threading.Thread(target=serve, args=(examined,), daemon=True)
    thread.start()
    try:
        yield Listening(examined.local, answered, thread)
    finally:
        thread.join(PATIENCE_SECONDS)
        context.__exit__(None, None, None)


def examined_by(
    settings: DoctorSettings,
    listener: Listening,
    security: Security = LOOSE,
    *,
    peer: str = "server",
    entered: Callable[[], AbstractContextManager[None]] = HERE,
) -> tuple[PeerResult, Report]:
    """What the other doctor finds."""
    with (
        entered(),
        connected(listener.at, peer, security, CHANNEL, source=_source(settings, listener.at)) as channel,
    ):
        result = examine(channel, settings)
        return result, judge(HostReport(settings.name, address_findings(settings)), result, settings)


def _source(settings: DoctorSettings, at: Endpoint) -> str | None:
    return settings.paths[0].address if at.ip.is_loopback else None


def path_findings(report: Report, *statuses: Status) -> dict[tuple[int, str], list[Finding]]:
    """By path and `there` or `back` (`both`: the path's own)."""
    found: dict[tuple[int, str], list[Finding]] = {}
    for path in report.paths:
        groups = {"both": path.findings} | {
            way: direction.findings for way, direction in zip(("there", "back"), path.directions, strict=True)
        }
        for way, findings in groups.items():
            chosen = [entry for entry in findings if entry.status in statuses]
            if chosen:
                found[path.number, way] = chosen
    return found


def problems(report: Report) -> dict[tuple[int, str], list[str]]:
    """Subjects of the problems alone."""
    return {
        place: [entry.subject for entry in entries]
        for place, entries in path_findings(report, Status.PROBLEM).items()
    }
