"""`mltswitch watch`: what the queues of the switches do, as it happens."""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from mltswitch.app.live import METRICS_PORT, PAGE_PORT, live
from mltswitch.cli.agent_options import require_together
from mltswitch.cli.command import command, flag, option
from mltswitch.cli.options import PATH, PLAN, Parsed
from mltswitch.cli.output import console, figure, plain, progress, table
from mltswitch.cli.switches import Chosen
from mltswitch.errors import DeviceError
from mltswitch.hostagent.endpoint import Endpoint, parse_endpoint
from mltswitch.measure.watch import QueueReading, Reading
from mltswitch.measure.watch import watch as watch_queues
from mltswitch.plan import load_plan
from mltswitch.units import format_bps

COLUMNS = "device | port | class | waiting [B] | dropped [1/s] | CE-marked [1/s] | sent # |"
TABLE_LINES = 6
"""Lines of the printed table besides its rows: title, head and frame."""


def _place(default_port: int) -> Parsed:
    """An address of this machine; `:9101` and `localhost:9101` are its loopback, `::` is all of IPv6."""

    def parse(text: str) -> Endpoint:
        if re.fullmatch(":[0-9]+", text):
            text = f"127.0.0.1{text}"
        return parse_endpoint(re.sub("^localhost(?=:|$)", "127.0.0.1", text), default_port)

    return Parsed("address", parse)


PAGE_PLACE: Final = _place(PAGE_PORT)
METRICS_PLACE: Final = _place(METRICS_PORT)


@command(
    "mltswitch watch plan.yaml -i inventories/lab",
    "mltswitch watch plan.yaml -i inventories/rack --limit 'leafs:!leaf3' --interval 10",
    "mltswitch watch plan.yaml -i inventories/lab --count 30 --json > queues.jsonl",
    "mltswitch watch plan.yaml -i inventories/lab --web --agents traces",
    "mltswitch watch plan.yaml -i inventories/lab --prometheus :9101",
)
def watch(
    *,
    plan_file: Path = PLAN,
    chosen: Chosen,
    interval: float = option(
        "Between two readings.", click.FloatRange(0.1), default=2.0, show_default=True, metavar="SECONDS"
    ),
    count: int | None = option("End after N readings.", click.IntRange(1), metavar="N"),
    web: Endpoint | None = option(
        f"Serve the picture as a page; 127.0.0.1:{PAGE_PORT}.",
        PAGE_PLACE,
        is_flag=False,
        flag_value=f"127.0.0.1:{PAGE_PORT}",
        metavar="[ADDRESS[:PORT]]",
    ),
    agents: tuple[Path, ...] = option(
        "Traces of a job's agents, or their folder, for the page.", PATH, multiple=True, metavar="TRACE"
    ),
    prometheus: Endpoint | None = option(
        f"Serve metrics there; port {METRICS_PORT}.", METRICS_PLACE, metavar="[ADDRESS]:PORT"
    ),
    open_metrics: bool = flag("Let --prometheus be beyond loopback: anybody may read."),
    as_json: bool = flag("Print one JSON object a reading, each on one line.", "--json"),
) -> int:
    """Show depth, drops, CE marks and rate of every queue of PLAN, the worst first. Ctrl-C ends it.

    Rates are those since the reading before, so the first one has none. A device that fails stands in the
    table with its error and is asked again. Changes nothing. Exits with 4 where the last reading has no
    answer at all.

    With --web the same is a page with a map of the fabric, with --prometheus it is metrics; then nothing is
    printed where standard output is no terminal. Addresses are of this machine alone unless another one is
    given; beyond it, the page's address holds a token.
    """
    require_together("agents", "web")
    require_together("open_metrics", "prometheus")
    last: list[Reading] = []

    def seen(readings: Iterable[Reading]) -> Iterator[Reading]:
        for reading in readings:
            last[:] = [reading]
            show(reading)
            yield reading

    plan, inventory = load_plan(plan_file), chosen.inventory()
    left_out, readings = watch_queues(
        plan, inventory, limit=chosen.limit, interval_seconds=interval, count=count
    )
    for line in left_out:
        progress(f"note: {line}")
    places = live(plan, page=web, metrics=prometheus, open_metrics=open_metrics, agents=agents, tell=progress)
    with closing(readings), suppress(KeyboardInterrupt), places as show:
        if as_json:
            for reading in seen(readings):
                click.echo(json.dumps(plain(reading), ensure_ascii=False))
        elif sys.stdout.isatty():
            _show(seen(readings))
        elif web or prometheus:
            for _ in seen(readings):
                pass
        else:
            for reading in seen(readings):
                click.echo("\n".join([*_lines(reading)]))
                sys.stdout.flush()
    is_mute = bool(last) and all(device.error for device in last[0].devices)
    return DeviceError.exit_code if is_mute else 0


def _show(readings: Iterable[Reading]) -> None:
    screen = console()
    with Live(console=screen, auto_refresh=False) as shown:
        for reading in readings:
            shown.update(_picture(reading, screen), refresh=True)


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
    rows = [(device.device, queue) for device, queue in reading.worst_first()]
    room = max(1, screen.height - len(errors) - TABLE_LINES - 1)
    made = table(f"Queues, {reading.at}", COLUMNS, (_cells(*row) for row in rows[:room]))
    more = [Text(f"and {len(rows) - room} more")] if len(rows) > room else []
    return Group(*errors, made, *more)


def _lines(reading: Reading) -> Iterator[str]:
    """The same for no terminal: a line for each queue that is not idle, or whose counters began anew."""
    for line in _errors(reading):
        yield f"{reading.at} {line}"
    busy = 0
    for answered, queue in reading.worst_first():
        device = answered.device
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
