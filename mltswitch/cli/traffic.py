"""`mltswitch traffic`: what a capture or queue counters say of each class."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from mltswitch.cli.numbers import parsed
from mltswitch.cli.output import console, json_option, print_json, stderr_console, table
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.inputs import note_input
from mltswitch.outputs import check_output, write_outputs
from mltswitch.plan import ClassKind, Plan, PortProfile, load_plan
from mltswitch.plan.topology_document import PortRole
from mltswitch.traffic.capture import Progress as OnProgress
from mltswitch.traffic.document import ClassTraffic, Traffic
from mltswitch.traffic.fit import Classes, FitSettings
from mltswitch.traffic.sources import fit_traffic
from mltswitch.units import format_bps, format_ratio, frame_bytes, parse_bps, parse_bytes

AUTO: Final = "auto"
TRAFFIC_COLUMNS: Final = (
    "class",
    "DSCP",
    "packets #",
    "load #",
    "unimportant #",
    "tagged per",
    "bursts #",
    "burst [packets]",
    "sizes",
    "rate / port #",
    "gap [µs]",
)
FIT_COLUMNS: Final = (
    "class",
    "index of dispersion #",
    "of independent bursts #",
    "KS gaps to exponential #",
    "p #",
    "KS sizes to fixed #",
    "to geometric #",
)


@click.group(epilog="\b\nExample:\n  mltswitch traffic fit port.pcap --rate 10Gbps")
def traffic() -> None:
    """Arrival processes from captures and queue counters."""


@traffic.command(
    epilog="\b\nExamples:\n"
    "  mltswitch traffic fit port.pcap --rate 10Gbps\n"
    "  mltswitch traffic fit port.pcapng --plan plan.yaml --port-role leaf-down -o traffic.yaml\n"
    "  mltswitch traffic fit counters.csv --rate 10Gbps --mtu 1500 --json"
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rate", help="The port's rate, as 10Gbps; else the plan's, with --port-role.")
@click.option("--mtu", help="Size of a full packet without its link header; else the largest frame's.")
@click.option(
    "--gap", default=AUTO, show_default=True, help="The largest spacing within a burst, in seconds, or auto."
)
@click.option(
    "--plan", "plan_file", type=click.Path(path_type=Path), help="Sort DSCPs into the classes of this plan."
)
@click.option(
    "--port-role", type=click.Choice([role.value for role in PortRole]), help="Rate and packets of this port."
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the fit here.")
@json_option
def fit(
    file: Path,
    rate: str | None,
    mtu: str | None,
    gap: str,
    plan_file: Path | None,
    port_role: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Fit arrivals to FILE. It is pcap, pcapng, or queue counters (CSV, JSON lines)."""
    plan = None if plan_file is None else load_plan(plan_file)
    note_input(file)
    if output is not None:
        check_output(output)
    settings = _settings(rate, mtu, gap, plan, port_role)
    with _progress_of(file) as on_progress:
        made = fit_traffic(file, settings, on_progress)
    if output is not None:
        write_outputs([(output, dump_yaml(made))])
    if as_json:
        print_json(made)
        return
    print_traffic(made)
    if output is not None:
        click.echo(f"Written: {output}")


def _settings(
    rate: str | None, mtu: str | None, gap: str, plan: Plan | None, port_role: str | None
) -> FitSettings:
    profile = _profile(plan, port_role, needs_one=rate is None)
    if rate is not None:
        rate_bps = _option("--rate", parse_bps, rate)
    elif profile is not None:
        rate_bps = profile.rate_bps
    else:
        raise UserInputError("is missing", where="--rate", expected="as 10Gbps, or --plan with --port-role")
    if mtu is not None:
        packet_bytes: int | None = frame_bytes(_option("--mtu", parse_bytes, mtu))
    else:
        packet_bytes = None if profile is None else profile.packet_bytes
    return FitSettings(
        rate_bps=rate_bps,
        packet_bytes=packet_bytes,
        gap_seconds=_gap_seconds(gap),
        classes=Classes() if plan is None else _classes(plan),
    )


def _option(name: str, parse: Any, text: str) -> int:
    value: int = parsed(name, parse, text)
    if value <= 0:
        raise UserInputError(f"{text[:40]!r} is out of range", where=name, expected="more than 0")
    return value


def _gap_seconds(text: str) -> float | None:
    if text == AUTO:
        return None
    try:
        gap = float(text)
    except ValueError:
        gap = -1.0
    if not 0 <= gap < 1e6:
        raise UserInputError(
            f"{text[:40]!r} cannot be used", where="--gap", expected="seconds, as 5e-6, or auto"
        )
    return gap


def _profile(plan: Plan | None, port_role: str | None, *, needs_one: bool) -> PortProfile | None:
    """The plan's port of this role; where several platforms have one, they must agree on what we read."""
    if plan is None or port_role is None:
        return None
    found = [profile for profile in plan.port_profiles if profile.role == port_role]
    if not found:
        raise UserInputError(f"the plan has no port {port_role}", where="--port-role")
    if needs_one and len({(profile.rate_bps, profile.packet_bytes) for profile in found}) > 1:
        raise UserInputError(
            f"the plan has {port_role} ports of several rates or packets",
            where="--port-role",
            expected="--rate",
        )
    return found[0]


def _classes(plan: Plan) -> Classes:
    background = next(entry.name for entry in plan.classes if entry.kind is ClassKind.BACKGROUND)
    return Classes(
        names=tuple(entry.name for entry in plan.classes),
        by_dscp={dscp: entry.name for entry in plan.classes for dscp in entry.dscp},
        other=background,
    )


@contextmanager
def _progress_of(file: Path) -> Iterator[OnProgress | None]:
    """A bar on the terminal while the file is read; nothing where there is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    columns = ("reading", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr_console(), transient=True) as bar:
        task = bar.add_task("", total=file.stat().st_size if file.is_file() else None)
        yield lambda read: bar.update(task, completed=read)


def print_traffic(made: Traffic) -> None:
    """The fit as a table, a verdict per class and the notes; from counters bursts are estimated."""
    source = made.source
    kind = "estimated" if source.kind == "counters" else "measured"
    what = "packets are measured, bursts estimated" if kind == "estimated" else "all figures are measured"
    click.echo(
        f"{source.packets:,} packets in {source.duration_seconds:.6g} s, for a port of "
        f"{format_bps(made.rate_bps)} and packets of {made.packet_bytes:,} B; {what}."
    )
    screen = console()
    screen.print(table(f"Traffic ({kind})", TRAFFIC_COLUMNS, map(_traffic_row, made.classes)))
    screen.print(table(f"Fit ({kind})", FIT_COLUMNS, map(_fit_row, made.classes)))
    for entry in made.classes:
        click.echo(f"{entry.name}: {entry.verdict}")
    for note in made.notes:
        click.echo(f"note: {note}")


def _traffic_row(entry: ClassTraffic) -> tuple[str, ...]:
    return (
        entry.name,
        " ".join(map(str, entry.dscp)) or "-",
        f"{entry.packets:,}",
        f"{entry.load:.4g}",
        "-" if entry.unimportant_share is None else format_ratio(entry.unimportant_share),
        "-" if entry.importance_correlation is None else entry.importance,
        "-" if entry.bursts is None else f"{entry.bursts:,}",
        f"{entry.mean_burst_packets:.4g}",
        "-" if entry.fit is None else entry.fit.sizes,
        _figure(entry.source_rate_ratio),
        _figure(None if entry.gap_seconds is None else entry.gap_seconds * 1e6),
    )


def _fit_row(entry: ClassTraffic) -> tuple[str, ...]:
    fitted = entry.fit
    distances: tuple[str, ...] = ("-", "-", "-", "-")
    if fitted is not None:
        distances = (
            f"{fitted.gap_distance:.3f}",
            f"{fitted.gap_p_value:.2g}",
            f"{fitted.fixed_size_distance:.3f}",
            f"{fitted.geometric_size_distance:.3f}",
        )
    return (
        entry.name,
        _figure(entry.index_of_dispersion),
        _figure(entry.independent_index),
        *distances,
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
