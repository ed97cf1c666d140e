"""What `agent send` and `agent recv` say to each other, do round after round, and print.

The sender announces its tensor by a message, JSON, before the first round. What the announcement asks for is
checked against the receiver's own limit before memory is made.
"""

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from math import prod
from statistics import median
from typing import Annotated, Any, Final, Literal, NoReturn, Self

import click
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mltswitch.cli import discard_output
from mltswitch.cli.agent_options import RunOptions, require_together
from mltswitch.cli.bars import progress_bar
from mltswitch.cli.numbers import parsed
from mltswitch.cli.output import console, last_words, print_json, progress, table
from mltswitch.errors import MltswitchError, printable
from mltswitch.hostagent import (
    Agent,
    AgentConfig,
    AgentError,
    TraceWriter,
    Transfer,
    TransferMismatchError,
    TransferStatistics,
    serve_metrics,
)
from mltswitch.hostagent.elements import MOST_ELEMENTS
from mltswitch.hostagent.endpoint import parse_endpoint
from mltswitch.hostagent.telemetry.events import Observer
from mltswitch.hostagent.telemetry.trace import plain
from mltswitch.units import format_ratio
from mltswitch.wire import ElementType

FIRST_ROUND: Final = 1
LEAVING_SECONDS: Final = 2.0
"""For open transfers to end once their peers have been told to go."""
MOST_ROUNDS: Final = 1_000_000
SIGNAL_EXIT_CODE: Final = 128
"""And the signal's number, as shells have it."""
TENSOR: Final = 0
"""The number that the tensor has at both ends."""
SUMS: Final = ("important_packets", "packets_resent", "packets_duplicate", "packets_marked")
"""Fields of TransferStatistics, for the columns that follow `packets`; `-`: what this end does not know."""
COLUMNS: Final = ("peer", "rounds #", "size [MB]", "median [ms]", "longest [ms]", "goodput [Gbit/s]",
                  "packets #", "important #", "sent again #", "twice #", "CE #", "missing #",
                  "result")  # fmt: skip


class Announcement(BaseModel):
    """What will be sent; what later versions add is not looked at."""

    model_config = ConfigDict(frozen=True)

    version: Literal[2] = 2
    rounds: int = Field(ge=1, le=MOST_ROUNDS)
    element_type: Literal[tuple(entry.name.lower() for entry in ElementType)]  # type: ignore[valid-type]
    dtype: str = Field(pattern=r"^[<|][biufc](1|2|4|8|16)$")
    """As numpy writes it; what numpy has no name for travels as the bits that stand for it."""
    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(max_length=32)

    @property
    def size_bytes(self) -> int:
        """Of the tensor."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @classmethod
    def decoded(cls, message: bytes, peer: str) -> Self:
        """Raises TransferMismatchError for what announces nothing that can be received."""
        try:
            found = cls.model_validate_json(message)
            count, rest = divmod(found.size_bytes, ElementType[found.element_type.upper()].size_bytes)
            problem = "impossible size" if rest or count > MOST_ELEMENTS else ""
        except (ValidationError, TypeError) as error:
            problem = " ".join(str(error).split()[:40])
        if problem:
            raise TransferMismatchError(f"its announcement cannot be used: {problem}", peer=peer)
        return found


@dataclass(frozen=True, slots=True)
class Round:
    """What became of one round with one peer."""

    round: int
    error: AgentError | None
    missing_packets: int | None = None
    missing_elements: int | None = None
    statistics: TransferStatistics | None = None

    @classmethod
    def of(cls, transfer: Transfer) -> Self:
        """One that has ended."""
        found = transfer.completion
        assert found is not None  # noqa: S101  (see above)
        packets, elements = int((~found.arrived).sum()), sum(end - first for first, end in found.missing)
        return cls(transfer.round_number, found.error, packets, elements, found.statistics)


@dataclass(kw_only=True, eq=False)
class Exchange(ABC):
    """A tensor, round after round, with each peer; a round begins when the one before has ended with all."""

    settings: AgentConfig
    options: RunOptions
    agent: Agent = field(init=False)
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    _waiting: dict[str, Transfer] = field(default_factory=dict)
    _began: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()))
    """By both clocks."""

    @abstractmethod
    def begin(self) -> Mapping[str, int]:
        """Find peers, and say or hear what comes; the number of rounds with each."""

    @abstractmethod
    def post(self, peer: str, number: int) -> Transfer:
        """Begin a peer's round."""

    @abstractmethod
    def completed(self, peer: str, number: int) -> None:
        """A round is complete; told of once more where that is interrupted."""

    def end(self) -> None:  # noqa: B027  (a sender has nothing left to do)
        """No round is left: all are over, or the run ends early. The agent is still open."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """For `--json`, with what it has of each peer beside its rounds; empty until peers are there."""

    def run(self, **more: Any) -> None:
        """All of it, by an agent that is given `more`; prints what came of it, and raises the first error."""
        # A signal ends as an error does: peers are told, no part of a file stays, the last line says why.
        told: list[BaseException] = []

        def end(number: int, _frame: object) -> NoReturn:
            is_interrupt = number == signal.SIGINT
            told.append(KeyboardInterrupt() if is_interrupt else SystemExit(SIGNAL_EXIT_CODE + number))
            raise told[-1]

        is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as of what a shell does behind
        numbers = (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, end) for number in numbers}
        try:
            with ExitStack() as stack:
                self.agent = self._opened(stack, **more)
                try:
                    self._all_rounds(self.begin())
                except BaseException as error:
                    self._leave(error)
                    raise
                finally:
                    self.end()
        except BaseException as caught:
            # whatever a library has made of it, where it fell into that
            ending = told[0] if told else caught
            if not isinstance(ending, MltswitchError | KeyboardInterrupt | SystemExit):
                raise
            for peer, transfer in self._waiting.items():  # ended by now: the agent is closed
                self.note(peer, Round.of(transfer))
            try:
                self._print(ending)
            except OSError:  # why a run ends early is more than that nobody takes what it has come to
                discard_output()
            if isinstance(ending, SystemExit) and ending.code == SIGNAL_EXIT_CODE + signal.SIGTERM:
                last_words("mltswitch: told to end (SIGTERM)")
            raise ending from None
        finally:
            for number in numbers:
                signal.signal(number, before[number])
        failed = [rounds[-1] for rounds in self.rounds.values() if rounds[-1].error is not None]
        first = min(failed, key=lambda entry: entry.round).error if failed else None
        self._print(first)
        if first is not None:
            raise first

    def _opened(self, stack: ExitStack, *, observers: Sequence[Observer] = (), **more: Any) -> Agent:
        """An agent with trace and metrics, which end with the stack."""
        options = self.options
        require_together("open_metrics", "metrics")
        parse = partial(parse_endpoint, default_port=0)
        endpoint = None if options.metrics is None else parsed("--metrics", parse, options.metrics)
        if options.trace is not None:
            observers = (*observers, stack.enter_context(TraceWriter(options.trace)))
        agent = stack.enter_context(Agent(self.settings, observers=observers, **more))
        if endpoint is not None:
            server = serve_metrics(agent, endpoint, beyond_loopback=options.open_metrics)
            progress(f"metrics at http://{stack.enter_context(server)}/metrics")
        for text in agent.warnings:
            progress(f"warning: {text}")
        return agent

    def note(self, peer: str, result: Round) -> None:
        """A round has ended, or cannot begin."""
        if all(entry.round != result.round for entry in self.rounds.setdefault(peer, [])[-1:]):
            self.rounds[peer].append(result)

    def _all_rounds(self, left: Mapping[str, int]) -> None:
        left = dict(left)
        done, total = 0, sum(left.values())
        self._began = time.monotonic(), time.process_time()
        with progress_bar() as advance:
            for number in range(FIRST_ROUND, FIRST_ROUND + max(left.values(), default=0)):
                for peer in [peer for peer, most in left.items() if number < FIRST_ROUND + most]:
                    try:
                        self._waiting[peer] = self.post(peer, number)
                    except AgentError as error:  # it is not connected any more
                        self.note(peer, Round(number, error))
                        del left[peer]
                for peer in list(self._waiting):
                    if not self._is_complete(peer):
                        del left[peer]
                    done += 1
                    advance("rounds", done, total)

    def _leave(self, error: BaseException) -> None:
        """Tell peers why the run ends early, and take what completes meanwhile; after that nothing does."""
        for peer in self.agent.peers:
            self.agent.disconnect(peer, reason_of(error))
        until = time.monotonic() + LEAVING_SECONDS
        while self.agent.peers and time.monotonic() < until:  # else they hear that the agent was closed
            time.sleep(0.005)
        for peer, transfer in self._waiting.items():
            with suppress(AgentError):
                transfer.wait(LEAVING_SECONDS)
                self.completed(peer, transfer.round_number)

    def _is_complete(self, peer: str) -> bool:
        transfer = self._waiting[peer]
        try:
            transfer.wait()
        except AgentError:
            if transfer.completion is None:  # the waiting itself has failed
                raise
        else:
            self.completed(peer, transfer.round_number)
        self.note(peer, Round.of(transfer))
        del self._waiting[peer]
        return self.rounds[peer][-1].error is None

    def _print(self, error: BaseException | None) -> None:
        seconds, cpu_seconds = time.monotonic() - self._began[0], time.process_time() - self._began[1]
        document = self.described()
        if not self.options.as_json and self.rounds:
            screen = console()
            # rich itself ends the process where nobody reads, with an exit code of its own.
            with screen.capture() as shown:
                rows = [(printable(peer), *_row(rounds)) for peer, rounds in self.rounds.items()]
                screen.print(table("Rounds (measured)", COLUMNS, rows))
            click.echo(f"{shown.get()}{seconds:.2f} s in all, of a processor here {cpu_seconds:.2f} s.")
            for others in self.rounds.values():
                if others[-1].error not in {None, error}:
                    last_words(f"failed: {others[-1].error}")
        elif self.options.as_json and document:
            peers = [
                {"peer": peer, **more, "rounds": [plain(entry) for entry in self.rounds.get(peer, [])]}
                for peer, more in document["peers"].items()
            ]
            text = str(error) if isinstance(error, MltswitchError) else error and reason_of(error)
            times = {"seconds": seconds, "cpu_seconds": cpu_seconds}
            print_json({"name": self.settings.name, **document, **times, "error": text, "peers": peers})


def _row(rounds: Sequence[Round]) -> tuple[str, ...]:
    """Sums over a peer's rounds, and medians of times."""
    known = [entry.statistics for entry in rounds if entry.statistics is not None]
    whole = [entry.statistics for entry in rounds if entry.statistics is not None and entry.error is None]
    is_failed = any(entry.error is not None for entry in rounds)
    packets, lost = sum(found.packets for found in known), sum(entry.missing_packets or 0 for entry in rounds)
    times = ("-", "-", "-", "-")
    if whole:
        seconds, goodput = [found.seconds for found in whole], median(found.goodput_bps for found in whole)
        size = f"{whole[0].size_bytes / 1e6:,.3g}"
        times = (size, f"{median(seconds) * 1e3:.2f}", f"{max(seconds) * 1e3:.2f}", f"{goodput / 1e9:.3f}")
    sums = []
    for name in SUMS:
        values = [value for found in known if (value := getattr(found, name)) is not None]
        sums.append(f"{sum(values):,}" if values else "-")
    share = f"{lost:,} ({format_ratio(lost / packets)})" if lost and packets else "0"
    result = "failed" if is_failed else "within the bound" if lost else "complete"
    return (str(len(rounds)), *times, f"{packets:,}", *sums, share, result)


def reason_of(error: BaseException) -> str:
    """Why a run has ended early, for others: names of this host's files are not among it."""
    if isinstance(error, AgentError):
        return str(error)
    if isinstance(error, MltswitchError):
        return f"{error.what} (expected {error.expected})" if error.expected else error.what
    if isinstance(error, SystemExit):
        return "it was told to end"
    return "it was interrupted" if isinstance(error, KeyboardInterrupt) else "it failed"
