"""`mltswitch agent bench`: what tensors cost on this machine."""

from typing import Final

import click

from mltswitch.cli.bars import progress_bar
from mltswitch.cli.numbers import SIZE, NumberRange
from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.errors import UserInputError
from mltswitch.hostagent.bench import run_bench
from mltswitch.hostagent.transport.description import transports
from mltswitch.units import format_ratio

LEAST_BYTES, MOST_BYTES = 4, 1 << 30
COLUMNS: Final = ("transport", "n #", "tags", "tensors #", "goodput [Gbit/s]", "CPU [s/GB]", "sent again #")


@click.command
@click.option("--seconds", type=NumberRange(1, 3600), default=10.0, help="For all streams; by default 10.")
@click.option("--size", "size_bytes", default="25MB", **SIZE, help="Of one tensor; by default 25MB.")
@click.option("--mtu", "mtu_bytes", type=click.IntRange(576, 65_536), default=1500, help="By default 1500.")
@click.option(
    "--transport",
    "wanted",
    multiple=True,
    type=click.Choice(list(transports())),
    help="Some; by default all.",
)
@json_option
def bench(seconds: float, size_bytes: int, mtu_bytes: int, wanted: tuple[str, ...], as_json: bool) -> None:
    """Measure the agent on this machine.

    Both ends are in one process, over loopback, without privileges. Whole tensors of float32 in bursts of n
    packets, with a tag on each datagram, and over TCP. There is no network: compare with other runs of this
    command.
    """
    if not LEAST_BYTES <= size_bytes <= MOST_BYTES:
        raise UserInputError(f"{size_bytes} bytes", where="--size", expected=f"{LEAST_BYTES} to {MOST_BYTES}")
    progress(f"measuring for about {seconds:g} s")
    with progress_bar() as advance:
        streams = run_bench(
            elements=size_bytes // 4, mtu_bytes=mtu_bytes, seconds=seconds, advance=advance, wanted=wanted
        )
    size_bytes -= size_bytes % 4  # whole elements
    if as_json:
        print_json({"size_bytes": size_bytes, "mtu_bytes": mtu_bytes, "streams": streams})
        return
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
    title = f"Tensors of {size_bytes / 1e6:g} MB over loopback, MTU {mtu_bytes} (measured)"
    console().print(table(title, COLUMNS, rows))
    click.echo("Processor time is of both ends, which share this machine.")
