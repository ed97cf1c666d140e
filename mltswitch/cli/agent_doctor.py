"""`mltswitch agent doctor`: what would hurt a job on this host, and on the paths to a peer."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from rich.console import RenderableType

from mltswitch.cli.agent_options import AgentOptions, require_together, require_way_out
from mltswitch.cli.command import JSON, command, flag, option
from mltswitch.cli.output import Answer, progress, table
from mltswitch.cli.strangers import Strangers
from mltswitch.errors import UserInputError, printable
from mltswitch.hostagent import Agent, AgentConfig, AgentError
from mltswitch.hostagent.doctor.examination import CHANNEL, Examiner
from mltswitch.hostagent.doctor.machine import machine_findings
from mltswitch.hostagent.doctor.report import Finding, Report, Status, worst
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.tagging.classes import Classes
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerLost
from mltswitch.wire.tos import CS6, CS7, DSCP_COUNT, Dscp

_EVER_SECONDS: Final = 1e9
WAIT_SECONDS: Final = 15.0
"""How many seconds to wait for a peer that is not there yet."""
_LEAVE_SECONDS: Final = 0.02


@command(
    "mltswitch agent doctor",
    "mltswitch agent doctor -c agent.yaml --listen",
    "mltswitch agent doctor -c agent.yaml --to host3",
    "mltswitch agent doctor --plaintext --address 10.0.1.1 --address 10.0.2.1 --to host3=10.0.0.2",
)
def doctor(
    options: AgentOptions,
    listen: str | None = option(
        "Be examined by peers; by default at the configuration's address.",
        metavar="ADDRESS[:PORT]",
        is_flag=False,
        flag_value="",
    ),
    once: bool = flag("With --listen: end after one examination."),
    to: str | None = option("Examine every path to this peer, and back.", metavar="HOST[=ADDRESS[:PORT]]"),
    dscp_text: str | None = option(
        "Code points to try, as 0-7,34, or 'all'; by default the configuration's, without one all but "
        "those of routing protocols.",
        None,
        "--dscp",
        metavar="LIST",
    ),
    as_json: bool = JSON,
) -> int:
    """Find out what would hurt a job, on this host or to a peer.

    Alone it looks at kernel, buffers, addresses, routes and keys of this host. With --listen on one host and
    --to on the other both send tensors over each path: which code points arrive as they were sent, whether
    full packets do, what is lost, how long a round trip takes. Exit code 3: this host is in disorder. Exit
    code 6: the way is.
    """
    if to is not None and listen is not None:
        raise UserInputError("--listen and --to exclude each other", expected="one of them on each host")
    require_together("once", "listen")
    require_together("dscp_text", "to")
    is_bare = options.config is options.plan is None
    settings = _settings(listen, to, options, is_bare=is_bare)
    points = _code_points(dscp_text, None if is_bare else settings.classes)
    machine = machine_findings(settings)
    report = Report(name=settings.name or "", machine=machine)
    if to is not None and not report.exit_code:
        peer = to.partition("=")[0]
        progress(f"examining {peer} at {settings.endpoint(peer)}")
        with Agent(settings) as agent:
            agent.channel(CHANNEL)
            agent.connect(peer, timeout_seconds=WAIT_SECONDS)
            report = Examiner(agent, peer, machine).report(points)
    Answer({"status": worst(report.findings), **asdict(report)}, _text(report)).print(as_json=as_json)
    if listen is not None and not report.exit_code:
        _listen(settings, machine, once=once)
    return report.exit_code


def _settings(listen: str | None, to: str | None, options: AgentOptions, *, is_bare: bool) -> AgentConfig:
    """Of this host; with the peer as the only one, and at ports that the host's agent does not use."""
    peer, is_placed, place = (to or "").partition("=")
    more: dict[str, Any] = {"listen": listen or None}
    if is_bare:  # nobody reads these here
        more |= {"line_rate": "100Gbps", "classes": {"control_dscp": 40, "gradient_dscp": [34]}}
    if is_placed:
        more["peers"] = {peer: place}
    settings = options.settings(names={"peers": "--to"} if is_placed else {}, **more)
    if to is None:
        return settings
    require_way_out(settings, peer, settings.endpoint(peer))  # raises where nobody says where that is
    here = str(Endpoint(settings.listen_at.address, 0))
    changes = {"peers": {peer: settings.peers[peer]}, "listen": here, "data_port": None}
    return settings.model_copy(update=changes)


def _code_points(text: str | None, classes: Classes | None) -> tuple[Dscp, ...]:
    if text is None:
        if classes is None:
            return tuple(point for point in range(DSCP_COUNT) if point not in {CS6, CS7})
        background = () if classes.background_dscp is None else (classes.background_dscp,)
        return tuple(sorted({classes.control_dscp, *classes.gradient_dscp, *background}))
    found: set[Dscp] = set()
    for part in (f"0-{DSCP_COUNT - 1}" if text == "all" else text).split(","):
        numbers = re.fullmatch(r"\s*([0-9]{1,2})(?:-([0-9]{1,2}))?\s*", part)
        points = range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1) if numbers else ()
        if not points or points[-1] >= DSCP_COUNT:
            raise UserInputError(
                f"{part[:20]!r} is no range of 0-63", where="--dscp", expected="0-7,34, say, or all"
            )
        found |= set(points)
    return tuple(sorted(found))


class _Refused(Strangers):
    """An observer that tells of whoever came and was not let in."""

    def observe(self, event: AgentEvent) -> None:
        if isinstance(event, PeerLost) and event.result not in {"peer_unreachable", "cancelled"}:
            self.tell(f"not examined: peer {event.peer}: {event.reason}")


def _listen(settings: AgentConfig, machine: tuple[Finding, ...], *, once: bool) -> None:
    strangers = _Refused()
    with Agent(settings, observers=[strangers]) as agent:
        agent.channel(CHANNEL)
        at = agent.listening_at
        progress(f"listening at {at}; there: mltswitch agent doctor --to {agent.name}={at}")
        while True:
            peer = agent.wait_for_any_peer(_EVER_SECONDS)
            try:
                Examiner(agent, peer, machine).serve()
            except AgentError as error:
                strangers.tell(f"not finished: {error}")
                agent.disconnect(peer, "is no doctor, or has asked nothing")
            else:
                progress(f"examined by {peer}")
                if once:
                    return
            while peer in agent.peers:
                time.sleep(_LEAVE_SECONDS)


def _text(report: Report) -> Iterator[RenderableType]:
    tables = [(f"Host {report.name}", report.machine)]
    if report.peer is not None:
        tables.append((f"Host {report.peer}, as it says itself", report.peer_machine))
    for path in report.paths:
        title = f"Path {path.path}, {path.sender} to {path.receiver}: {path.local} to {path.remote}"
        if path.round_trip_seconds is not None and path.least_round_trip_seconds is not None:
            least, usual = 1e3 * path.least_round_trip_seconds, 1e3 * path.round_trip_seconds
            title += f"; round trip {usual:.3f} ms, least {least:.3f} ms"
        tables.append((title, path.findings))
    for title, findings in tables:
        yield table(printable(title), " | examined | seen | what to do", map(_row, findings))
    counts = Counter(finding.status for finding in report.findings)
    yield f"Errors: {counts[Status.ERROR]}, warnings: {counts[Status.WARNING]}. All seen or measured now."


def _row(finding: Finding) -> tuple[str, ...]:
    mark = "ok" if finding.status is Status.OK else finding.status.upper()
    return mark, *map(printable, (finding.where, finding.what, finding.hint))
