"""What became of tensors, as a table and as data."""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.cli import discard_output
from mltswitch.cli.agent_options import reason_of
from mltswitch.cli.output import console, print_json, progress, table
from mltswitch.errors import MltswitchError, printable
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.announced import (
    ANNOUNCEMENT_TENSOR,
    Advance,
    Announcement,
    ExchangeResult,
    Keep,
    RoundResult,
    cpu_seconds,
)
from mltswitch.hostagent.completions import Completion, CompletionQueue
from mltswitch.hostagent.tensor.bitmap import missing_elements
from mltswitch.units import format_ratio

COMMON: Final = ("rounds #", "size [MB]", "median time [ms]", "longest [ms]", "goodput [Gbit/s]", "packets #")
SENT: Final = ("important #", "sent again #")
RECEIVED: Final = ("missing #", "important missing #", "CE #", "twice #")
MEGABYTE: Final = 1e6
BYTES_PER_GB: Final = 1e9


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
    console().print(table("Sent (measured)", ("peer", *COMMON, *SENT, "result"), rows))
    console().print(_cost(result), markup=False)


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
    console().print(table("Received (measured)", ("peer", *COMMON, *RECEIVED, "result"), rows))
    console().print(_cost(result), markup=False)


@dataclass(frozen=True, slots=True)
class Described:
    """A peer's tensor; None where it is not known."""

    tensor: int | None = None
    element_type: str | None = None
    shape: tuple[int, ...] | None = None
    size_bytes: int | None = None


def described(announced: Announcement) -> Described:
    """All of it is known."""
    return Described(announced.tensor, announced.element_type, announced.shape, announced.size_bytes)


class _Waiting(CompletionQueue):
    """Completions that are looked at before they are taken: whoever is interrupted between loses none."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: deque[Completion] = deque()

    def add(self, completion: Completion) -> None:
        self.entries.append(completion)


class EndedRounds:
    """What has ended until now, for the case that the rest never does."""

    def __init__(self, agent: Agent, peers: Sequence[str]) -> None:
        """`peers`: connected ones."""
        self.tensors = {peer: Described() for peer in peers}
        self._waiting = agent.completions = _Waiting()
        self._rounds: dict[tuple[str, int], RoundResult] = {}
        self._started, self._cpu_seconds = time.monotonic(), cpu_seconds()

    def noting(self, advance: Advance) -> Advance:
        """The same, and takes what has been completed: the agent's queue grows as long as nobody does."""

        def noted(what: str, done: int, total: int) -> None:
            self._note()
            advance(what, done, total)

        return noted

    def keeping(self, keep: Keep) -> Keep:
        """The same, and looks at what has arrived."""

        def kept(peer: str, number: int, data: NDArray[Any]) -> None:
            self.tensors[peer] = replace(self.tensors[peer], shape=data.shape)
            keep(peer, number, data)

        return kept

    def until_now(self) -> ExchangeResult:
        """Time and processor time are from the connection on."""
        self._note()
        return ExchangeResult(
            rounds=tuple(self._rounds.values()),
            seconds=time.monotonic() - self._started,
            cpu_seconds=cpu_seconds() - self._cpu_seconds,
        )

    def _note(self) -> None:
        while self._waiting.entries:
            completion = self._waiting.entries[0]
            known = self.tensors.get(completion.peer)
            if completion.tensor != ANNOUNCEMENT_TENSOR and known is not None:
                layout = completion.layout
                self._rounds[completion.peer, completion.round_number] = _round_of(completion)
                self.tensors[completion.peer] = Described(
                    completion.tensor,
                    known.element_type if layout is None else layout.element_type.name.lower(),
                    known.shape,
                    known.size_bytes if layout is None else layout.size_bytes,
                )
            self._waiting.entries.popleft()


def _round_of(completion: Completion) -> RoundResult:
    missing = elements = None
    if completion.received is not None and completion.layout is not None:
        missing = int(np.count_nonzero(~completion.received))
        ranges = missing_elements(completion.received, completion.layout)
        elements = int((ranges[:, 1] - ranges[:, 0]).sum())
    return RoundResult(
        peer=completion.peer,
        round_number=completion.round_number,
        error=completion.error,
        statistics=completion.statistics,
        missing_packets=missing,
        missing_elements=elements,
    )


def line_of(error: BaseException | None) -> str | None:
    """As standard error has it, of what ended a run early; for `--json`."""
    if error is None:
        return None
    return str(error) if isinstance(error, MltswitchError) else reason_of(error)


def print_early(document: dict[str, object]) -> None:
    """What a run that ends early has come to. Why it ends is more than that nobody takes this."""
    try:
        print_json(document)
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
    missing = sum(entry.missing_packets for entry in rounds if entry.missing_packets is not None)
    return f"{missing:,} ({format_ratio(missing / packets)})" if packets and missing else "0"


def _important_missing(rounds: Sequence[RoundResult]) -> str:
    """The sender tells how many are important when it asks what is missing: not where nothing is."""
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
