"""`mltswitch watch`: what the queues of the switches do, as it happens."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from mltswitch.cli.output import console, plain, progress, table
from mltswitch.cli.render import inventory_options, opened
from mltswitch.errors import DeviceError
from mltswitch.measure.watch import QueueReading, Reading
from mltswitch.measure.watch import watch as watch_queues
from mltswitch.plan import load_plan
from mltswitch.units import format_bps

COLUMNS = ("device", "port", "class", "waiting [B]", "dropped [1/s]", "CE-marked [1/s]", "sent #", "")
TABLE_LINES = 6
"""Of the table beside its rows: title, head and frame."""


@click.command(
    epilog="\b\nExamples:\n  mltswitch watch plan.yaml -i inventories/lab\n"
    "  mltswitch watch plan.yaml -i inventories/rack --limit 'leafs:!leaf3' --interval 10\n"
    "  mltswitch watch plan.yaml -i inventories/lab --count 30 --json > queues.jsonl"
)
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="PLAN")
@inventory_options
@click.option(
    "--interval",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    help="Between two readings.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N readings.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a reading, each on one line.")
def watch(
    plan_file: Path,
    inventory_paths: tuple[Path, ...],
    limit: str | None,
    strict: bool,
    interval: float,
    count: int | None,
    as_json: bool,
) -> int:
    """Show depth, drops, CE marks and rate of every queue of PLAN, the worst first. Ctrl-C ends it.

    Rates are those since the reading before, so the first one has none. A device that fails stands in the
    table with its error and is asked again. Changes nothing. Exits with 4 where the last reading has no
    answer at all.
    """
    last: list[Reading] = []

    def seen(readings: Iterable[Reading]) -> Iterator[Reading]:
        for reading in readings:
            last[:] = [reading]
            yield reading

    plan, inventory = load_plan(plan_file), opened(inventory_paths, limit, strict)
    left_out, readings = watch_queues(plan, inventory, limit=limit, interval_seconds=interval, count=count)
    for line in left_out:
        progress(f"note: {line}")
    with closing(readings), suppress(KeyboardInterrupt):
        if as_json:
            for reading in seen(readings):
                click.echo(json.dumps(plain(reading), ensure_ascii=False))
        elif sys.stdout.isatty():
            _show(seen(readings))
        else:
            for reading in seen(readings):
                click.echo("\n".join([*_lines(reading)]))
                sys.stdout.flush()
    is_mute = bool(last) and all(device.error for device in last[0].devices)
    return DeviceError.exit_code if is_mute else 0


def _show(readings: Iterable[Reading]) -> None:
    screen = console()
    with Live(console=screen, auto_refresh=False) as live:
        for reading in readings:
            live.update(_picture(reading, screen), refresh=True)


def _worst_first(reading: Reading) -> list[tuple[str, QueueReading]]:
    def badness(row: tuple[str, QueueReading]) -> tuple[float, float, int, float]:
        queue = row[1]
        depth = queue.counters.depth_bytes or 0
        return (
            -(queue.dropped_per_second or 0),
            -(queue.ce_marked_per_second or 0),
            -depth,
            -(queue.sent_bps or 0),
        )

    return sorted(((each.device, queue) for each in reading.devices for queue in each.queues), key=badness)


def _cells(device: str, queue: QueueReading) -> tuple[str, ...]:
    return (
        device,
        queue.port,
        queue.traffic_class or f"queue {queue.queue}",
        _number(queue.counters.depth_bytes),
        _number(queue.dropped_per_second),
        _number(queue.ce_marked_per_second),
        _sent(queue),
        "restarted" if queue.restarted else "",
    )


def _sent(queue: QueueReading) -> str:
    if queue.sent_bps is not None:
        return format_bps(queue.sent_bps)
    return "-" if queue.admitted_per_second is None else f"- ({queue.admitted_per_second:,.0f}/s let in)"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _errors(reading: Reading) -> Iterator[str]:
    return (each.error for each in reading.devices if each.error)


def _picture(reading: Reading, screen: Console) -> RenderableType:
    """As many rows as the terminal has lines for, one line each; devices without an answer stand above."""
    errors = [Text(line, style="red", no_wrap=True, overflow="ellipsis") for line in _errors(reading)]
    rows = _worst_first(reading)
    room = max(1, screen.height - len(errors) - TABLE_LINES - 1)
    made = table(f"Queues, {reading.at}", COLUMNS, (_cells(*row) for row in rows[:room]))
    more = [Text(f"and {len(rows) - room} more")] if len(rows) > room else []
    return Group(*errors, made, *more)


def _lines(reading: Reading) -> Iterator[str]:
    """The same for no terminal: a line for each queue that is not idle, or whose counters began anew."""
    for line in _errors(reading):
        yield f"{reading.at} {line}"
    busy = 0
    for device, queue in _worst_first(reading):
        depth, rates = queue.counters.depth_bytes, (queue.dropped_per_second, queue.ce_marked_per_second)
        if depth or any(rates) or queue.sent_bps or queue.admitted_per_second or queue.restarted:
            busy += 1
            *place, waiting, dropped, marked, sent, restarted = _cells(device, queue)
            text = f"{waiting} B wait, {dropped} dropped/s, {marked} CE/s, sent {sent}"
            yield f"{reading.at} {' '.join(place)}: {text}{', ' + restarted if restarted else ''}"
    unread = sum(bool(each.error) for each in reading.devices)
    if unread:
        yield f"{reading.at} {unread} of {len(reading.devices)} devices could not be read"
    if not busy and unread < len(reading.devices):
        yield f"{reading.at} {sum(len(each.queues) for each in reading.devices)} queues, all idle"
