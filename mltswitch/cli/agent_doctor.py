"""`mltswitch agent doctor`: what would hurt a job on this host, and on the paths to a peer."""

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from mltswitch.cli.agent_options import configuration_of, document_of, require_together
from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.cli.strangers import Strangers
from mltswitch.errors import UserInputError, VerificationError
from mltswitch.hostagent.configuration import AgentConfiguration, AgentDocument
from mltswitch.hostagent.configuration.build import EXAMPLE_CLASSES, LOOPBACK_RATE_BPS
from mltswitch.hostagent.control.certificates import now_utc
from mltswitch.hostagent.control.channel import ChannelSettings
from mltswitch.hostagent.control.identity import host_name_problem
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.doctor.addresses import address_findings
from mltswitch.hostagent.doctor.examination import Direction, connected, examine
from mltswitch.hostagent.doctor.examined import Examined, listening
from mltswitch.hostagent.doctor.findings import Finding, HostReport, Status
from mltswitch.hostagent.doctor.keys import keys_finding
from mltswitch.hostagent.doctor.machine import machine_findings
from mltswitch.hostagent.doctor.settings import ALL_DSCP, DoctorSettings, paths_of
from mltswitch.hostagent.doctor.verdicts import PathReport, Report, judge, ranges
from mltswitch.hostagent.network.features import egress
from mltswitch.plan import ClassKind, Plan, load_plan
from mltswitch.wire import AGENT_PORT

NAMELESS: Final = "this-host"
"""Where neither a configuration nor the machine has a name that a certificate could carry."""
UNNAMED_PEER: Final = "unnamed"
ALL: Final = "all"
MARKS: Final = {Status.OK: "ok", Status.WARNING: "WARNING", Status.PROBLEM: "PROBLEM"}
HOST_COLUMNS: Final = ("", "examined", "seen", "meaning, and what to do")
PATH_COLUMNS: Final = ("", "direction", "examined", "seen", "meaning, and what to do")


@click.command(
    epilog="\b\nExamples:\n  mltswitch agent doctor\n"
    "  mltswitch agent doctor -c agent.yaml\n"
    "  mltswitch agent doctor -c agent.yaml --listen 10.10.0.10\n"
    "  mltswitch agent doctor -c agent.yaml --peer host3\n"
    "  mltswitch agent doctor --plaintext --address 10.0.1.1 --address 10.0.2.1 --peer 10.0.0.2:18515"
)
@click.option(
    "-c",
    "--config",
    "config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="This host's agent; options go before it.",
)
@click.option("--name", metavar="HOST", help="Of this host; by default as its certificate says.")
@click.option("--plan", type=click.Path(path_type=Path), help="Take paths and code points from it.")
@click.option("--keys", type=click.Path(path_type=Path), metavar="FOLDER", help="This host's keys.")
@click.option("--plaintext", is_flag=True, help="No keys, and yet beyond loopback: a laboratory of your own.")
@click.option("--address", "addresses", multiple=True, metavar="IP", help="Of the data, one a path.")
@click.option("--mtu", "mtu_bytes", type=int, metavar="BYTES", help="Longest packet that the job sends.")
@click.option(
    "--data-port",
    type=click.IntRange(0, 65535),
    help=f"UDP, of this host; 0: any. By default {AGENT_PORT} with --listen, any with --peer.",
)
@click.option(
    "--listen",
    metavar="ADDRESS[:PORT]",
    is_flag=False,
    flag_value="",
    help="Be examined by peers; by default at the configuration's address.",
)
@click.option("--once", is_flag=True, help="With --listen: end after one examination.")
@click.option(
    "--peer",
    metavar="HOST[=ADDRESS[:PORT]]",
    help="Examine this peer, at this address or name, and every path.",
)
@click.option(
    "--dscp",
    "dscp_text",
    metavar="LIST",
    help="Code points to try, as 0-7,34, or 'all'; by default the plan's, without a plan all 64.",
)
@json_option
def doctor(
    config: Path | None,
    data_port: int | None,
    listen: str | None,
    once: bool,
    peer: str | None,
    dscp_text: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Find out what would hurt a job: on this host, or on the paths between it and a peer.

    Alone it looks at the kernel, buffers, clock and addresses of this host. With --listen on one host and
    --peer on the other it sends datagrams on each path, both ways: which code points arrive as they were
    sent, how long a packet may be, what is lost, how long a round trip takes. A few thousand datagrams and
    some seconds; no agent needs to run. Exit code 5: there is a problem.
    """
    if peer is not None and listen is not None:
        raise UserInputError("--listen and --peer exclude each other", expected="one of them on each host")
    if once and listen is None:
        raise UserInputError("--once goes with --listen")
    require_together("dscp_text", ["peer"])
    require_together("data_port", ["listen", "peer"])
    document = _document(config, options, data_port, listen, peer)
    configuration = configuration_of(document, config, _machine_name())
    examined = None if peer is None else _peer(configuration, peer)
    if examined is not None and _is_nowhere(document):
        # Not said where the data leaves: where the kernel would send to the peer from.
        source = egress(examined[1].address).source
        document = document.model_copy(update={"addresses": (source,)})
        configuration = configuration_of(document, config, _machine_name())
    settings = _settings(configuration, document, dscp_text, is_alone=peer is None and listen is None)
    own = HostReport(
        settings.name,
        (
            *machine_findings(settings),
            keys_finding(configuration.settings.security, now_utc()),
            *address_findings(settings),
        ),
    )
    channel_settings = ChannelSettings(dscp=configuration.settings.control_dscp)
    if listen is not None:
        local = configuration.settings.listen
        if local is None:
            raise UserInputError("where?", where="--listen", expected="ADDRESS[:PORT]")
        report = Report(own, None, ())
        _show(report, as_json=as_json)
        strangers = Strangers()
        with listening(
            local,
            configuration.settings.security,
            channel_settings,
            settings,
            own.findings,
            refused=lambda error: strangers.tell(f"not examined: {error}"),
        ) as listener:
            _serve(listener, strangers, once=once)
    elif examined is not None:
        name, remote = examined
        progress(f"examining {name} at {remote}")
        with connected(
            remote, name, configuration.settings.security, channel_settings, source=_source(settings, remote)
        ) as channel:
            report = judge(own, examine(channel, settings), settings)
        _show(report, as_json=as_json)
    else:
        report = Report(own, None, ())
        _show(report, as_json=as_json)
    return VerificationError.exit_code if report.status is Status.PROBLEM else 0


def _machine_name() -> str:
    name = socket.gethostname()
    return NAMELESS if host_name_problem(name) else name


def _document(
    config: Path | None, options: dict[str, Any], data_port: int | None, listen: str | None, peer: str | None
) -> AgentDocument:
    document = document_of(config, data_port=data_port, listen=listen or None, **options)
    changes: dict[str, object] = {}
    if document.data_port is None and peer is not None and document.plan is None:
        changes["data_port"] = 0  # the ports of the file stay this host's agent's
    if listen == "" and document.listen is None and document.plan is None and document.addresses:
        changes["listen"] = f"[{document.addresses[0]}]:{AGENT_PORT}"
    if document.plan is None:  # what nobody reads here need not be given
        changes["line_rate_bps"] = document.line_rate_bps or LOOPBACK_RATE_BPS
        changes["classes"] = document.classes or EXAMPLE_CLASSES
    return document.model_copy(update=changes)


def _is_nowhere(document: AgentDocument) -> bool:
    """Neither a plan nor anybody says which addresses this host has."""
    return document.plan is None and document.addresses is None and document.listen is None


def _settings(
    configuration: AgentConfiguration, document: AgentDocument, dscp_text: str | None, *, is_alone: bool
) -> DoctorSettings:
    agent = configuration.settings
    plan = None if document.plan is None else load_plan(Path(document.plan))
    return DoctorSettings(
        name=agent.name,
        paths=() if is_alone and _is_nowhere(document) else paths_of(agent),
        mode="" if plan is None else plan.paths.mode,
        payload_bytes=agent.payload_bytes,
        buffer_bytes=agent.buffer_bytes,
        dscp=_code_points(dscp_text, plan),
    )


def _code_points(text: str | None, plan: Plan | None) -> tuple[int, ...]:
    if text is None:
        if plan is None:
            return ALL_DSCP
        classes = [entry for entry in plan.classes if entry.kind is not ClassKind.NETWORK_CONTROL]
        return tuple(sorted({dscp for entry in classes for dscp in entry.dscp}))
    if text == ALL:
        return ALL_DSCP
    found: set[int] = set()
    for part in text.split(","):
        first, separator, last = part.strip().partition("-")
        numbers = [first, last] if separator else [first]
        if not all(number.isascii() and number.isdigit() and len(number) <= 2 for number in numbers):
            raise UserInputError(
                f"{part[:20]!r} is not understood", where="--dscp", expected="a list such as 0-7,34, or 'all'"
            )
        points = range(int(numbers[0]), int(numbers[-1]) + 1)
        if not points or points[-1] not in ALL_DSCP:
            raise UserInputError(f"{part[:20]!r} is no range of 0-63", where="--dscp")
        found |= set(points)
    return tuple(sorted(found))


def _peer(configuration: AgentConfiguration, text: str) -> tuple[str, Endpoint]:
    """Name and address; in plain text the name may be missing."""
    name, separator, place = text.partition("=")
    where = f"--peer {text[:60]}"
    if separator:
        return name, configuration.endpoint(place, where=where)
    if isinstance(configuration.settings.security, Plaintext) and name not in configuration.peers:
        return UNNAMED_PEER, configuration.endpoint(name, where=where)
    return name, configuration.peer(name)


def _source(settings: DoctorSettings, remote: Endpoint) -> str | None:
    """Loopback has many addresses, and a peer there should see ours; elsewhere routes decide."""
    return settings.paths[0].address if settings.paths and remote.ip.is_loopback else None


def _serve(examined: Examined, strangers: Strangers, *, once: bool) -> None:
    progress(f"listening at {examined.local}; on the other host: mltswitch agent doctor --peer …")
    while True:
        answered = examined.serve_one()
        if answered is None:
            continue
        if answered.error is not None:
            strangers.tell(f"not finished: {answered.error}")
            continue
        progress(f"examined by {answered.examiner}: {answered.sent_datagrams:,} datagrams sent to it")
        if once:
            return


# Printing


def _show(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_data(report))
        return
    screen = console()
    for host, title in ((report.host, "Host {}"), (report.peer, "Host {}, as it says itself")):
        if host is not None:
            screen.print(table(title.format(host.name), HOST_COLUMNS, map(_row, host.findings)))
    for path in report.paths:
        title = f"Path {path.number}: {path.local} and {path.remote}"
        screen.print(table(title, PATH_COLUMNS, _path_rows(path)))
    counts = {status: sum(entry.status is status for entry in _findings(report)) for status in Status}
    click.echo(
        f"Problems: {counts[Status.PROBLEM]}, warnings: {counts[Status.WARNING]}. All seen or measured now."
    )


def _row(finding: Finding) -> tuple[str, str, str, str]:
    advice = ". ".join(f"{text[0].upper()}{text[1:]}" for text in (finding.meaning, finding.remedy) if text)
    return MARKS[finding.status], finding.subject, finding.seen, advice


def _path_rows(path: PathReport) -> Iterable[tuple[str, ...]]:
    for finding in path.findings:
        mark, *rest = _row(finding)
        yield mark, "both", *rest
    for way, direction in zip(("there", "back"), path.directions, strict=True):
        for finding in direction.findings:
            mark, *rest = _row(finding)
            yield mark, way, *rest


def _findings(report: Report) -> Iterable[Finding]:
    for host in (report.host, report.peer):
        if host is not None:
            yield from host.findings
    for path in report.paths:
        yield from path.every_finding


def _as_data(report: Report) -> dict[str, object]:
    return {
        "status": report.status,
        "host": report.host,
        "peer": report.peer,
        "paths": [
            {
                "number": path.number,
                "local": path.local,
                "remote": path.remote,
                "round_trip_minimum_seconds": _seconds(path.round_trip_minimum_ns),
                "round_trip_median_seconds": _seconds(path.round_trip_median_ns),
                "findings": path.findings,
                "directions": [
                    {
                        "sender": direction.sender,
                        "receiver": direction.receiver,
                        "findings": direction.findings,
                        "measured": _measured(direction.measured),
                    }
                    for direction in path.directions
                ],
            }
            for path in report.paths
        ],
    }


def _measured(direction: Direction) -> dict[str, object]:
    return {
        "is_alive": direction.is_alive,
        "is_examined": not direction.is_withheld,
        "dscp_sent": ranges(sorted({byte >> 2 for byte in direction.sent})),
        "traffic_bytes": [
            {"sent": sent, "received": received, "datagrams": count}
            for (sent, received), count in sorted(direction.received.items())
        ],
        "payload_limit_bytes": direction.payload_limit_bytes or None,
        "loss_sent": direction.loss_sent,
        "loss_arrived": direction.loss_arrived,
        "loss_payload_bytes": direction.loss_payload_bytes or None,
        "doubled": direction.doubled,
        "misdirected": direction.misdirected,
        "dropped_by_receiver": direction.dropped_by_host,
    }


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9
