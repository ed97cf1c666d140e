"""`mltswitch traffic`: what a capture or queue counters say of each class."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from mltswitch.cli.command import argument, command, group, option
from mltswitch.cli.options import PATH, output_file, parsed
from mltswitch.cli.output import Answer, figure, stderr_console, table
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
    "class | DSCP | packets # | load # | unimportant # | tagged per | bursts # | burst [packets] | sizes | "
    "rate / port # | gap [µs]"
)
FIT_COLUMNS: Final = (
    "class | index of dispersion # | of independent bursts # | KS gaps to exponential # | p # | "
    "KS sizes to fixed # | to geometric #"
)


DISTANCES: Final = {
    "gap_distance": ".3f",
    "gap_p_value": ".2g",
    "fixed_size_distance": ".3f",
    "geometric_size_distance": ".3f",
}
"""Name of a fit's distance figure → how it is printed."""


@command(
    "mltswitch traffic fit port.pcap --rate 10Gbps",
    "mltswitch traffic fit port.pcapng --plan plan.yaml --port-role leaf-down -o traffic.yaml",
    "mltswitch traffic fit counters.csv --rate 10Gbps --mtu 1500 --json",
)
def fit(
    file: Path = argument(None, PATH),
    rate: str | None = option("The port's rate, as 10Gbps; else the plan's, with --port-role."),
    mtu: str | None = option("Size of a full packet without its link header; else the largest frame's."),
    gap: str = option(
        "The largest spacing within a burst, in seconds, or auto.", default=AUTO, show_default=True
    ),
    plan_file: Path | None = option("Sort DSCPs into the classes of this plan.", PATH, "--plan"),
    port_role: str | None = option(
        "Rate and packets of this port.", click.Choice([role.value for role in PortRole])
    ),
    output: Path | None = output_file("Write the fit here."),
) -> Answer:
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
    return Answer(made, (*_text(made), *([f"Written: {output}"] if output is not None else ())))


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


def _text(made: Traffic) -> Iterator[RenderableType]:
    """The fit as a table, a verdict per class and the notes; from counters bursts are estimated."""
    source = made.source
    kind = "estimated" if source.kind == "counters" else "measured"
    what = "packets are measured, bursts estimated" if kind == "estimated" else "all figures are measured"
    yield (
        f"{source.packets:,} packets in {source.duration_seconds:.6g} s, for a port of "
        f"{format_bps(made.rate_bps)} and packets of {made.packet_bytes:,} B; {what}."
    )
    yield table(f"Traffic ({kind})", TRAFFIC_COLUMNS, map(_traffic_row, made.classes))
    yield table(f"Fit ({kind})", FIT_COLUMNS, map(_fit_row, made.classes))
    yield from (f"{entry.name}: {entry.verdict}" for entry in made.classes)
    yield from (f"note: {note}" for note in made.notes)


def _traffic_row(entry: ClassTraffic) -> tuple[str | None, ...]:
    return (
        entry.name,
        " ".join(map(str, entry.dscp)) or "-",
        f"{entry.packets:,}",
        f"{entry.load:.4g}",
        None if entry.unimportant_share is None else format_ratio(entry.unimportant_share),
        None if entry.importance_correlation is None else entry.importance,
        figure(entry.bursts, ","),
        f"{entry.mean_burst_packets:.4g}",
        None if entry.fit is None else entry.fit.sizes,
        figure(entry.source_rate_ratio),
        figure(entry.gap_seconds, factor=1e6),
    )


def _fit_row(entry: ClassTraffic) -> tuple[str, ...]:
    return (
        entry.name,
        figure(entry.index_of_dispersion),
        figure(entry.independent_index),
        *(figure(getattr(entry.fit, name, None), form) for name, form in DISTANCES.items()),
    )


traffic = group(
    "traffic",
    "Arrival processes from captures and queue counters.",
    fit,
    examples=("mltswitch traffic fit port.pcap --rate 10Gbps",),
)
