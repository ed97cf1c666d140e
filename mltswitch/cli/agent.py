"""`mltswitch agent`: tensors between training hosts, and what the hosts need for it."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path as FilePath
from typing import Final

import click
from click.core import ParameterSource
from rich.console import RenderableType

from mltswitch.app.agent_bench import run_bench
from mltswitch.cli.agent_doctor import doctor
from mltswitch.cli.agent_options import option_name
from mltswitch.cli.agent_transfer import recv, send
from mltswitch.cli.command import argument, command, flag, group, option
from mltswitch.cli.options import FOLDER, PATH, SIZE, NumberRange
from mltswitch.cli.output import Answer, progress, progress_bar, table
from mltswitch.errors import UserInputError
from mltswitch.hostagent.security.keys import KeyFolder, make_keys
from mltswitch.hostagent.security.tls import CERTIFICATE_FILE, KEY_FILE
from mltswitch.hostagent.spraying import FIRST_SOURCE_PORT, LARGEST_FIRST_SOURCE_PORT, MOST_PATHS, Spraying
from mltswitch.hostagent.spraying.paths import Path, SegmentList, SourcePort, paths_between, setup_commands
from mltswitch.hostagent.transport.description import transports
from mltswitch.plan import load_plan
from mltswitch.units import format_ratio
from mltswitch.wire import SourceRoute

LEAST_BYTES, MOST_BYTES = 4, 1 << 30
DAYS: Final = click.IntRange(1, 3650)
OF_ONE_MODE: Final = {"sticky": "srv6", "source_ports": "entropy", "first_source_port": "entropy"}
"""Option → the only spray mode in which it means something."""


@command(
    "mltswitch agent keys host1 host2 -o job",
    "mltswitch agent keys --plan plan.yaml -o job",
    "mltswitch agent keys host1 --force -o job",
)
def keys(
    names: tuple[str, ...] = argument("[HOST]...", nargs=-1),
    plan_file: FilePath | None = option("Every host of this plan.", PATH, "--plan"),
    output: FilePath = option("The job's folder.", FOLDER, "-o", "--output", required=True),
    days: int = option(
        "Of hosts' certificates. Short: nothing revokes one.", DAYS, default=30, show_default=True
    ),
    authority_days: int = option(
        "Of the CA, where this makes one.", DAYS, "--ca-days", default=365, show_default=True
    ),
    force: bool = flag("New keys for hosts that have some. The CA stays."),
) -> Answer:
    """Make the keys with which the agents of one job know each other.

    The first call makes the job's CA in OUTPUT/ca. Each host gets a folder OUTPUT/hosts/HOST: copy it to that
    host, and to no other. Whoever has OUTPUT/ca/key.pem can be any host: keep OUTPUT/ca off the training
    hosts. A later call with more hosts adds them to the job.
    """
    planned = [host.name for host in load_plan(plan_file).topology.hosts] if plan_file else []
    made = make_keys(output, [*planned, *names], days=days, authority_days=authority_days, replace=force)
    authority, hosts = made.authority, made.hosts
    certificate, key = authority.folder / CERTIFICATE_FILE, authority.folder / KEY_FILE
    shown, *others = (asdict(each) | {"expires": each.expires.isoformat()} for each in (authority, *hosts))
    rows = [(each.name, each.folder, f"{each.expires:%Y-%m-%d %H:%M} UTC", _state(each)) for each in hosts]
    state = "new" if authority.is_new else "as before"
    return Answer(
        {"authority": shown | {"certificate": certificate, "key": key}, "hosts": others},
        (
            table("Copy each folder to its host", "host | folder | valid until | keys", rows),
            f"CA ({state}): {certificate}, valid until {authority.expires:%Y-%m-%d}",
        ),
        note=f"{key}: whoever has it can be any host; keep it off the training hosts",
    )


def _state(host: KeyFolder) -> str:
    left = (host.expires - datetime.now(UTC)) // timedelta(days=1)
    if host.is_new:
        return "new"
    return f"kept, {left} days left" if left >= 0 else "kept, expired (--force makes new ones)"


@command(
    "mltswitch agent paths --plan plan.yaml --from host1 --to host3",
    "mltswitch agent paths --plan plan.yaml --from host1 --to host3 --setup",
    "mltswitch agent paths --plan plan.yaml --from host1 --to host3 --json",
)
def paths(
    plan_file: FilePath = option(None, PATH, "--plan", required=True, metavar="PLAN"),
    source: str = option("The sender's name in the fabric.", None, "--from", required=True, metavar="HOST"),
    destination: str = option("The receiver.", None, "--to", required=True, metavar="HOST"),
    setup: bool = flag("Print what root does once on both hosts."),
    sticky: bool = flag("srv6: a header for each socket, no route for each address."),
    source_ports: int | None = option(
        "entropy: how many UDP source ports; by default 16, or 4 for each spine.",
        click.IntRange(1, MOST_PATHS),
    ),
    first_source_port: int = option(
        "entropy: the first of them.",
        click.IntRange(1, LARGEST_FIRST_SOURCE_PORT),
        default=FIRST_SOURCE_PORT,
        show_default=True,
    ),
) -> Answer:
    """Print the paths from one host to another. The plan's spray mode names them."""
    plan = load_plan(plan_file)
    given = click.get_current_context().get_parameter_source
    for parameter, mode in OF_ONE_MODE.items():
        if given(parameter) is ParameterSource.COMMANDLINE and plan.paths.mode != mode:
            what, expected = f"is of the spray mode {mode}", f"nothing: the plan's is {plan.paths.mode}"
            raise UserInputError(what, where=option_name(parameter), expected=expected)
    options = Spraying(sticky=sticky, source_ports=source_ports, first_source_port=first_source_port)
    found = paths_between(plan, source, destination, options)
    ends = ((source, destination), (destination, source))
    commands = {host: setup_commands(plan, host, peer, options) for host, peer in ends}
    names = ("number", "name", "source", "destination")
    shown = [{name: getattr(path, name) for name in names} | _way(path)[1] for path in found]
    data = {"mode": plan.paths.mode, "from": source, "to": destination, "paths": shown}
    if setup:
        lines = ("\n".join((f"# on {host}, once, from root:", *each)) for host, each in commands.items())
        return Answer(data | {"setup": commands}, lines)
    rows = [(path.number, path.name, path.source, path.destination, _way(path)[0]) for path in found]
    title = f"{source} to {destination}: {plan.paths.mode}"
    return Answer(data, (table(title, "path # | by way of | from | to | named by", rows),))


def _way(path: Path) -> tuple[str, dict[str, object]]:
    """What names a path on the wire, for people and for programs."""
    match path.way:
        case SegmentList(segments, is_sticky):
            whose = "header of the socket" if is_sticky else "route of the host"
            text = f"segments {', '.join(map(str, segments))} ({whose})"
            return text, {"segments": segments, "is_sticky": is_sticky}
        case SourceRoute(ports):
            return f"egress ports {', '.join(map(str, ports))}", {"egress_ports": ports}
        case SourcePort(port):
            return f"UDP source port {port}", {"source_port": port}
    return "destination address", {}


@command()
def bench(
    seconds: float = option("For all streams; by default 10.", NumberRange(1, 3600), default=10.0),
    size_bytes: int = option("Of one tensor; by default 25MB.", SIZE, "--size", default="25MB"),
    mtu_bytes: int = option("By default 1500.", click.IntRange(576, 65_536), "--mtu", default=1500),
    wanted: tuple[str, ...] = option(
        "Some; by default all.", click.Choice(list(transports())), "--transport", multiple=True
    ),
) -> Answer:
    """Measure the agent on this machine.

    Both ends are in one process, over loopback, without privileges. Whole tensors of float32 in bursts of n
    packets, with a tag on each datagram, and over TCP. There is no network: compare with other runs of this
    command.
    """
    if not LEAST_BYTES <= size_bytes <= MOST_BYTES:
        raise UserInputError(f"{size_bytes} bytes", where="--size", expected=f"{LEAST_BYTES} to {MOST_BYTES}")
    progress(f"measuring for about {seconds:g} s")
    elements = size_bytes // 4
    with progress_bar() as advance:
        streams = run_bench(
            elements=elements, mtu_bytes=mtu_bytes, seconds=seconds, advance=advance, wanted=wanted
        )

    def text() -> Iterator[RenderableType]:
        rows = [
            (
                entry.transport,
                entry.burst_packets or ("most" if transports()[entry.transport].sends_datagrams else "-"),
                "yes" if entry.authenticate else "no",
                entry.tensors,
                f"{entry.goodput_bps / 1e9:.2f}",
                f"{entry.cpu_seconds_per_gb:.2f}",
                format_ratio(entry.resent_share),
            )
            for entry in streams
        ]
        title = f"Tensors of {4 * elements / 1e6:g} MB over loopback, MTU {mtu_bytes} (measured)"
        columns = "transport | n # | tags | tensors # | goodput [Gbit/s] | CPU [s/GB] | sent again #"
        yield table(title, columns, rows)
        yield "Processor time is of both ends, which share this machine."

    return Answer({"size_bytes": 4 * elements, "mtu_bytes": mtu_bytes, "streams": streams}, text())


agent = group(
    "agent",
    "Send and receive tensors; keys of a job, and the paths between its hosts.",
    *(keys, paths, recv, send, bench, doctor),
    examples=(
        "mltswitch agent recv -o copy.npy",
        "mltswitch agent send gradients.npy --to receiver=127.0.0.1",
    ),
)
