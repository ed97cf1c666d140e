"""What became of tensors, as a table and as data."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, is_dataclass
from statistics import median
from typing import Any, Final, TypeVar

import click

from mltswitch.cli import discard_output
from mltswitch.cli.agent_options import reason_of
from mltswitch.cli.output import console, progress, table
from mltswitch.errors import MltswitchError, printable
from mltswitch.hostagent.announced import Announcement, ExchangeResult, RoundResult
from mltswitch.units import format_ratio

COMMON: Final = ("rounds #", "size [MB]", "median time [ms]", "longest [ms]", "goodput [Gbit/s]", "packets #")
SENT: Final = ("important #", "sent again #")
RECEIVED: Final = ("missing #", "important missing #", "CE #", "twice #")
MEGABYTE: Final = 1e6
BYTES_PER_GB: Final = 1e9

Result = TypeVar("Result")


def print_sent(result: ExchangeResult) -> None:
    """A line for each peer; sums over rounds, and medians of times."""
    rows = [
        (
            peer,
            *_common(rounds),
            _sum(rounds, "important_packets"),
            _sum(rounds, "packets_resent"),
            _end(rounds),
        )
        for peer, rounds in _by_peer(result.rounds)
    ]
    _print("Sent (measured)", ("peer", *COMMON, *SENT, "result"), rows, result)


def print_received(result: ExchangeResult) -> None:
    """A line for each peer; sums over rounds, and medians of times."""
    rows = [
        (
            peer,
            *_common(rounds),
            _missing(rounds),
            _important_missing(rounds),
            _sum(rounds, "packets_marked"),
            _sum(rounds, "packets_duplicate"),
            _end(rounds),
        )
        for peer, rounds in _by_peer(result.rounds)
    ]
    _print("Received (measured)", ("peer", *COMMON, *RECEIVED, "result"), rows, result)


def _print(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], result: ExchangeResult
) -> None:
    screen = console()
    # rich itself ends the process where nobody reads, with an exit code of its own.
    with screen.capture() as shown:
        screen.print(table(title, columns, rows))
        screen.print(_cost(result), markup=False)
    click.echo(shown.get(), nl=False)


def described(announced: Announcement | None) -> dict[str, object]:
    """A peer's tensor; None where it has not said what it sends."""
    return {
        field: None if announced is None else getattr(announced, field)
        for field in ("tensor", "element_type", "shape", "size_bytes")
    }


def line_of(error: BaseException | None) -> str | None:
    """As standard error has it, of what ended a run early; for `--json`."""
    if error is None:
        return None
    return str(error) if isinstance(error, MltswitchError) else reason_of(error)


def print_early(print_it: Callable[[Result], None], result: Result) -> None:
    """What a run that ends early has come to. Why it ends is more than that nobody takes this."""
    try:
        print_it(result)
    except OSError as error:
        discard_output()
        if not isinstance(error, BrokenPipeError):
            progress(f"standard output cannot be written: {error.strerror}")


def rounds_as_data(rounds: Iterable[RoundResult]) -> list[dict[str, object]]:
    """For `--json`."""
    return [
        {
            "round": entry.round_number,
            "error": None if entry.error is None else str(entry.error),
            "missing_packets": entry.missing_packets,
            "missing_elements": entry.missing_elements,
            "statistics": _statistics(entry),
        }
        for entry in rounds
    ]


def _statistics(entry: RoundResult) -> dict[str, object] | None:
    found = entry.statistics
    if found is None or not is_dataclass(found):
        return None
    return {**asdict(found), "goodput_bps": found.goodput_bps}


def by_peer(result: ExchangeResult) -> dict[str, list[RoundResult]]:
    """In the order of their first rounds."""
    return dict(_by_peer(result.rounds))


def _by_peer(rounds: Iterable[RoundResult]) -> list[tuple[str, list[RoundResult]]]:
    found: dict[str, list[RoundResult]] = {}
    for entry in rounds:
        found.setdefault(printable(entry.peer), []).append(entry)
    return list(found.items())


def _common(rounds: Sequence[RoundResult]) -> tuple[str, ...]:
    known = [entry.statistics for entry in rounds if entry.statistics is not None and entry.error is None]
    if not known:
        return (str(len(rounds)), "-", "-", "-", "-", "-")
    return (
        str(len(rounds)),
        f"{known[0].size_bytes / MEGABYTE:,.3g}",
        f"{median(entry.seconds for entry in known) * 1e3:.2f}",
        f"{max(entry.seconds for entry in known) * 1e3:.2f}",
        f"{median(entry.goodput_bps for entry in known) / 1e9:.3f}",
        f"{sum(entry.packets for entry in known):,}",
    )


def _sum(rounds: Sequence[RoundResult], field: str) -> str:
    values: list[Any] = [getattr(entry.statistics, field) for entry in rounds if entry.statistics is not None]
    known = [value for value in values if value is not None]
    return f"{sum(known):,}" if known else "-"


def _missing(rounds: Sequence[RoundResult]) -> str:
    packets = sum(entry.statistics.packets for entry in rounds if entry.statistics is not None)
    if not packets:
        return "-"
    missing = sum(entry.missing_packets for entry in rounds if entry.missing_packets is not None)
    return f"{missing:,} ({format_ratio(missing / packets)})" if packets and missing else "0"


def _important_missing(rounds: Sequence[RoundResult]) -> str:
    """The sender tells how many are important when it asks what is missing: not where nothing is."""
    if all(entry.statistics is None for entry in rounds):
        return "-"
    lost = 0
    for entry in rounds:
        found = entry.statistics
        if not entry.missing_packets or found is None:
            continue
        if found.important_packets is None or found.important_received is None:
            return "not told"
        lost += found.important_packets - found.important_received
    return f"{lost:,}"


def _end(rounds: Sequence[RoundResult]) -> str:
    error = next((entry.error for entry in rounds if entry.error is not None), None)
    if error is not None:
        return error.what
    known = [entry.statistics for entry in rounds if entry.statistics is not None]
    is_whole = all(found.packets_received >= found.packets for found in known)
    return "complete" if is_whole else "within the bound"


def _cost(result: ExchangeResult) -> str:
    known = [entry.statistics for entry in result.rounds if entry.statistics is not None]
    size_bytes = sum(entry.size_bytes for entry in known)
    if not size_bytes:
        return f"{result.seconds:.2f} s in all."
    return (
        f"{result.seconds:.2f} s in all; processor time of this end {result.cpu_seconds:.2f} s, "
        f"{result.cpu_seconds / size_bytes * BYTES_PER_GB:.2f} s for 10⁹ bytes."
    )
