"""`mltswitch agent bench`: what tensors cost on this machine."""

from typing import Final

import click

from mltswitch.cli.bars import progress_bar
from mltswitch.cli.numbers import NumberRange
from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.errors import UserInputError
from mltswitch.hostagent.bench import BenchResult, run_bench
from mltswitch.hostagent.bench.run import HandshakeResult
from mltswitch.units import format_ratio, parse_bytes

DEFAULT_SECONDS: Final = 10.0
DEFAULT_SIZE: Final = "25MB"
LEAST_BYTES: Final = 4
MOST_BYTES: Final = 1 << 30
MEGABYTE: Final = 1e6
COLUMNS: Final = (
    "transport",
    "n #",
    "importance",
    "datagram tags",
    "tensors #",
    "goodput [Gbit/s]",
    "sender CPU [s/GB]",
    "receiver CPU [s/GB]",
    "sent again #",
)


@click.command(
    epilog="\b\nExamples:\n  mltswitch agent bench\n  mltswitch agent bench --mtu 9000 --seconds 30 --json"
)
@click.option(
    "--seconds",
    type=NumberRange(1, 3600),
    default=DEFAULT_SECONDS,
    show_default=True,
    help="For all of it; more where they do not suffice.",
)
@click.option("--size", default=DEFAULT_SIZE, show_default=True, metavar="SIZE", help="Of one tensor.")
@click.option(
    "--mtu", "mtu_bytes", type=click.IntRange(576, 65_536), default=1500, show_default=True, help="In bytes."
)
@json_option
def bench(seconds: float, size: str, mtu_bytes: int, as_json: bool) -> None:
    """Measure the agent on this machine: two processes, over loopback, without privileges.

    Whole tensors of float32 in bursts of n packets, what tags cost, and what a connection costs. Both ends
    share this machine's processors, and there is no network card: compare with other runs of this command.
    """
    try:
        size_bytes = parse_bytes(size)
    except ValueError as error:
        raise UserInputError(str(error), where="--size") from None
    if not LEAST_BYTES <= size_bytes <= MOST_BYTES:
        raise UserInputError(
            f"{size_bytes} bytes", where="--size", expected=f"{LEAST_BYTES}-{MOST_BYTES} bytes"
        )
    progress(f"measuring for about {seconds:g} s")
    with progress_bar() as advance:
        result = run_bench(size_bytes=size_bytes, mtu_bytes=mtu_bytes, seconds=seconds, advance=advance)
    if as_json:
        print_json(result)
    else:
        _print(result)


def _print(result: BenchResult) -> None:
    rows = [
        (
            entry.transport,
            entry.burst_packets or "-",
            entry.policy,
            "yes" if entry.authenticate else "no",
            entry.tensors,
            f"{entry.goodput_bps / 1e9:.2f}",
            f"{entry.sender_cpu_seconds_per_gb:.2f}",
            f"{entry.receiver_cpu_seconds_per_gb:.2f}",
            format_ratio(entry.resent_share),
        )
        for entry in result.streams
    ]
    title = (
        f"Tensors of {result.size_bytes / MEGABYTE:g} MB over loopback, packets of MTU {result.mtu_bytes} "
        "(measured)"
    )
    console().print(table(title, COLUMNS, rows))
    each = result.tagging_seconds
    click.echo(f"Tagging by magnitude: {each * 1e3:.2f} ms of processor time for each tensor.")
    click.echo(f"Connection in plain text: {_handshake(result.plain_handshake)}.")
    if result.tls_handshake is not None:
        click.echo(f"Connection with TLS 1.3: {_handshake(result.tls_handshake)}.")
    else:
        click.echo(f"Connection with TLS 1.3: not measured: {result.why_no_tls}")
    click.echo(
        f"Of this machine alone: both ends share its {result.processors} processors; Linux {result.kernel}. "
        f"{result.seconds:.1f} s."
    )


def _handshake(found: HandshakeResult) -> str:
    return (
        f"{found.seconds * 1e3:.1f} ms; processor time {found.connecting_cpu_seconds * 1e3:.1f} ms where it "
        f"begins, {found.accepting_cpu_seconds * 1e3:.1f} ms where it arrives"
    )
