"""A tensor between two agents, round after round: what sender and receiver have in common.

The sender announces its tensor by a message, JSON, before the first round. What the announcement asks for is
checked against the receiver's own limit before memory is made.
"""

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mltswitch.app import Bar, Tell
from mltswitch.errors import MltswitchError
from mltswitch.hostagent import (
    Agent,
    AgentConfig,
    AgentError,
    Endpoint,
    TraceWriter,
    Transfer,
    TransferMismatchError,
    TransferStatistics,
    serve_metrics,
)
from mltswitch.hostagent.elements import MOST_ELEMENTS
from mltswitch.hostagent.telemetry.events import Observer
from mltswitch.wire import ElementType

FIRST_ROUND: Final = 1
LEAVING_SECONDS: Final = 2.0
"""Seconds to wait until open transfers end, once their peers have been told to leave."""
MOST_ROUNDS: Final = 1_000_000
SIGNAL_EXIT_CODE: Final = 128
"""Exit code after a signal, to which the signal's number is added, as shells do."""
TENSOR: Final = 0
"""The number that the tensor has at both ends."""


class Announcement(BaseModel):
    """The announcement of a tensor by its sender; fields of later versions are ignored."""

    model_config = ConfigDict(frozen=True)

    version: Literal[2] = 2
    rounds: int = Field(ge=1, le=MOST_ROUNDS)
    element_type: Literal[tuple(entry.name.lower() for entry in ElementType)]  # type: ignore[valid-type]
    dtype: str = Field(pattern=r"^[<|][biufc](1|2|4|8|16)$")
    """The element type as numpy writes it; a type unknown to numpy is sent as integers of the same bits."""
    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(max_length=32)

    @property
    def size_bytes(self) -> int:
        """Bytes of the announced tensor."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    @classmethod
    def decoded(cls, message: bytes, peer: str) -> Self:
        """The announcement in a message; raises TransferMismatchError for what cannot be received."""
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
    """The result of one round of transfers with one peer."""

    round: int
    error: AgentError | None
    missing_packets: int | None = None
    missing_elements: int | None = None
    statistics: TransferStatistics | None = None

    @classmethod
    def of(cls, transfer: Transfer) -> Self:
        """The result of a transfer that has ended."""
        found = transfer.completion
        assert found is not None  # noqa: S101  (see above)
        packets, elements = int((~found.arrived).sum()), sum(end - first for first, end in found.missing)
        return cls(transfer.round_number, found.error, packets, elements, found.statistics)


@dataclass(frozen=True, kw_only=True)
class Run:
    """How an agent runs for one exchange, and who is told of its progress."""

    settings: AgentConfig
    wait_seconds: float
    """Seconds to wait for peers."""
    deadline_seconds: float | None
    """Time limit in seconds of each round; None: no limit."""
    metrics: Endpoint | None = None
    beyond_loopback: bool = False
    """Whether metrics may be served to other machines."""
    trace: Path | None = None
    tell: Tell
    """Called with lines about work under way."""
    bar: Bar
    """Shows progress: how many rounds are done, of how many."""


@dataclass(kw_only=True, eq=False)
class Exchange(ABC):
    """The exchange of a tensor with peers in rounds, each of which begins when all have ended the last."""

    options: Run
    show: Callable[["Exchange", BaseException | None], None]
    """Called once at the end, with the error if there is one."""
    agent: Agent = field(init=False)
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    is_over: bool = False
    """Whether every round has ended; a run that ends early leaves some."""
    _waiting: dict[str, Transfer] = field(default_factory=dict)
    _began: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()))
    """By both clocks."""

    @abstractmethod
    def begin(self) -> Mapping[str, int]:
        """Find the peers, and send or receive announcements; returns the number of rounds with each peer."""

    @abstractmethod
    def post(self, peer: str, number: int) -> Transfer:
        """Begin a peer's round."""

    @abstractmethod
    def completed(self, peer: str, number: int) -> None:
        """Called when a round with a peer is complete; called again if it was interrupted."""

    def end(self) -> None:  # noqa: B027  (a sender has nothing left to do)
        """Called when no round is left: all are over, or the run ends early. The agent is still open."""

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What the printed document says besides the rounds, of each peer, too; empty before any is there."""

    @property
    def seconds(self) -> tuple[float, float]:
        """How long the exchange has run since its first round began: wall-clock and processor seconds."""
        return time.monotonic() - self._began[0], time.process_time() - self._began[1]

    def run(self, **more: Any) -> None:
        """Run the whole exchange with a new agent, opened with the arguments `more`, and show its result.

        Raises the first error.
        """
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
            self.show(self, ending)
            raise ending from None
        finally:
            for number in numbers:
                signal.signal(number, before[number])
        failed = [rounds[-1] for rounds in self.rounds.values() if rounds[-1].error is not None]
        first = min(failed, key=lambda entry: entry.round).error if failed else None
        self.is_over = True
        self.show(self, first)
        if first is not None:
            raise first

    def _opened(self, stack: ExitStack, *, observers: Sequence[Observer] = (), **more: Any) -> Agent:
        """An agent with trace and metrics, which end with the stack."""
        options = self.options
        if options.trace is not None:
            observers = (*observers, stack.enter_context(TraceWriter(options.trace)))
        agent = stack.enter_context(Agent(options.settings, observers=observers, **more))
        if options.metrics is not None:
            server = serve_metrics(agent, options.metrics, beyond_loopback=options.beyond_loopback)
            options.tell(f"metrics at http://{stack.enter_context(server)}/metrics")
        for text in agent.warnings:
            options.tell(f"warning: {text}")
        return agent

    def note(self, peer: str, result: Round) -> None:
        """Record the result of a round with a peer that has ended, or cannot begin."""
        if all(entry.round != result.round for entry in self.rounds.setdefault(peer, [])[-1:]):
            self.rounds[peer].append(result)

    def _all_rounds(self, left: Mapping[str, int]) -> None:
        left = dict(left)
        done, total = 0, sum(left.values())
        self._began = time.monotonic(), time.process_time()
        with self.options.bar() as advance:
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


def reason_of(error: BaseException) -> str:
    """Why a run has ended early, as told to peers, without names of this host's files."""
    if isinstance(error, AgentError):
        return str(error)
    if isinstance(error, MltswitchError):
        return f"{error.what} (expected {error.expected})" if error.expected else error.what
    if isinstance(error, SystemExit):
        return "it was told to end"
    return "it was interrupted" if isinstance(error, KeyboardInterrupt) else "it failed"
