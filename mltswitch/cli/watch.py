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

from mltswitch.cli.command import command, flag, option
from mltswitch.cli.options import PLAN
from mltswitch.cli.output import console, figure, plain, progress, table
from mltswitch.cli.switches import Chosen
from mltswitch.errors import DeviceError
from mltswitch.measure.watch import QueueReading, Reading
from mltswitch.measure.watch import watch as watch_queues
from mltswitch.plan import load_plan
from mltswitch.units import format_bps

COLUMNS = "device | port | class | waiting [B] | dropped [1/s] | CE-marked [1/s] | sent # |"
TABLE_LINES = 6
"""Lines of the printed table besides its rows: title, head and frame."""


@command(
    "mltswitch watch plan.yaml -i inventories/lab",
    "mltswitch watch plan.yaml -i inventories/rack --limit 'leafs:!leaf3' --interval 10",
    "mltswitch watch plan.yaml -i inventories/lab --count 30 --json > queues.jsonl",
)
def watch(
    *,
    plan_file: Path = PLAN,
    chosen: Chosen,
    interval: float = option(
        "Between two readings.", click.FloatRange(0.1), default=2.0, show_default=True, metavar="SECONDS"
    ),
    count: int | None = option("End after N readings.", click.IntRange(1), metavar="N"),
    as_json: bool = flag("Print one JSON object a reading, each on one line.", "--json"),
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

    plan, inventory = load_plan(plan_file), chosen.inventory()
    left_out, readings = watch_queues(
        plan, inventory, limit=chosen.limit, interval_seconds=interval, count=count
    )
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
        figure(queue.counters.depth_bytes, ",.0f"),
        figure(queue.dropped_per_second, ",.0f"),
        figure(queue.ce_marked_per_second, ",.0f"),
        _sent(queue),
        "restarted" if queue.restarted else "",
    )


def _sent(queue: QueueReading) -> str:
    if queue.sent_bps is not None:
        return format_bps(queue.sent_bps)
    return "-" if queue.admitted_per_second is None else f"- ({queue.admitted_per_second:,.0f}/s let in)"


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
