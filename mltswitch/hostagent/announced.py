"""Tensors whose size and type the sender announces, for ends that have agreed on nothing but an address.

The announcement is a small tensor itself, sent whole before the first round: JSON, in bytes of fixed number,
so that the receiver can post memory for it without knowing anything. What it asks for is checked against
the receiver's own limit before memory is made.
"""

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mltswitch.errors import UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.completions import Completion, CompletionQueue, Transfer
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    PeerRefusedError,
    PeerUnreachableError,
    TransferMismatchError,
)
from mltswitch.hostagent.tensor.bitmap import missing_elements
from mltswitch.hostagent.tensor.elements import view_of
from mltswitch.hostagent.tensor.layout import MAXIMUM_ELEMENTS
from mltswitch.hostagent.transport.interfaces import ImportancePolicy, TransferStatistics
from mltswitch.units import format_bytes
from mltswitch.wire import Dscp, ElementType

ANNOUNCEMENT_TENSOR: Final = 0xFFFF_FFFF
"""The number that announcements have; no other tensor should."""
ANNOUNCEMENT_BYTES: Final = 1024
FIRST_ROUND: Final = 1
MAXIMUM_ROUNDS: Final = 1_000_000
MAXIMUM_DIMENSIONS: Final = 32
MAXIMUM_NUMBER: Final = 0xFFFF_FFFE
RETRY_SECONDS: Final = 0.25
REFUSED_RETRY_SECONDS: Final = 1.0
"""A peer that refuses may tell of it each time."""
_NUMPY_TYPES: Final = {
    ElementType.FLOAT32: np.float32,
    ElementType.FLOAT16: np.float16,
    ElementType.BFLOAT16: np.uint16,
    ElementType.FLOAT64: np.float64,
    ElementType.INT8: np.int8,
}
"""What numpy itself has no name for is kept as its bits."""


class Announcement(BaseModel):
    """What will be sent; what later versions add is not looked at."""

    model_config = ConfigDict(frozen=True, strict=True)

    version: Literal[1] = 1
    tensor: int = Field(ge=0, le=MAXIMUM_NUMBER)
    rounds: int = Field(ge=1, le=MAXIMUM_ROUNDS)
    element_type: Literal["float32", "float16", "bfloat16", "float64", "int8"]
    shape: tuple[int, ...] = Field(max_length=MAXIMUM_DIMENSIONS)

    @classmethod
    def of(cls, data: NDArray[Any], element_type: ElementType, *, tensor: int, rounds: int) -> Self:
        """Of an array that is about to be sent."""
        name: Any = element_type.name.lower()
        return cls(tensor=tensor, rounds=rounds, element_type=name, shape=data.shape)

    @property
    def type(self) -> ElementType:
        """Of the elements."""
        return ElementType[self.element_type.upper()]

    @property
    def size_bytes(self) -> int:
        """Of the tensor."""
        return prod(self.shape) * self.type.size_bytes

    def encoded(self) -> NDArray[np.int8]:
        """As it travels."""
        text = self.model_dump_json().encode()
        if len(text) > ANNOUNCEMENT_BYTES:
            raise UserInputError(
                f"a shape of {len(self.shape)} dimensions cannot be announced", where="tensor"
            )
        return np.frombuffer(text.ljust(ANNOUNCEMENT_BYTES), np.int8)

    @classmethod
    def decoded(cls, data: NDArray[np.int8], peer: str) -> Self:
        """Raises TransferMismatchError for what announces nothing that can be received."""
        try:
            found = cls.model_validate_json(data.tobytes())
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            problem = f"{place}: {first['msg']}" if place else "is not JSON"
            raise TransferMismatchError(
                f"its announcement cannot be used: {problem}",
                peer=peer,
                tensor=ANNOUNCEMENT_TENSOR,
                round_number=FIRST_ROUND,
            ) from None
        if min(found.shape, default=1) < 1 or prod(found.shape) > MAXIMUM_ELEMENTS:
            raise TransferMismatchError("announces a tensor of impossible size", peer=peer)
        return found

    def empty(self) -> NDArray[Any]:
        """Memory for it, zeroed."""
        return np.zeros(self.shape, _NUMPY_TYPES[self.type])


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What became of one round with one peer."""

    peer: str
    round_number: int
    error: AgentError | None
    statistics: TransferStatistics | None
    missing_packets: int | None = None
    """At the receiver."""
    missing_elements: int | None = None
    """At the receiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeResult:
    """Of all rounds with all peers."""

    rounds: tuple[RoundResult, ...]
    seconds: float
    """From the first post to the last completion."""
    cpu_seconds: float
    """Of this process, all threads, meanwhile."""

    @property
    def error(self) -> AgentError | None:
        """The first that happened."""
        return next((entry.error for entry in self.rounds if entry.error is not None), None)


class Progress(CompletionQueue):
    """What has come of an exchange until now: all that is known where the rest never does.

    Transfers complete here, and lie here until they are looked at: whoever is interrupted between loses none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.announced: dict[str, Announcement] = {}
        self._rounds: dict[tuple[str, int], RoundResult] = {}
        self._waiting: dict[tuple[str, int], Completion] = {}
        self.begin()

    def begin(self) -> None:
        """Times are from here on."""
        self._started, self._cpu_seconds = time.monotonic(), cpu_seconds()

    def add(self, completion: Completion) -> None:
        """A round has ended."""
        self._waiting[completion.peer, completion.round_number] = completion

    def note(self, result: RoundResult) -> None:
        """A round's completion has been looked at, or there is none."""
        key = result.peer, result.round_number
        self._rounds[key] = result
        self._waiting.pop(key, None)

    def until_now(self) -> ExchangeResult:
        """All rounds that have ended."""
        for completion in list(self._waiting.values()):
            self.note(_result_of(completion))
        return ExchangeResult(
            rounds=tuple(self._rounds.values()),
            seconds=time.monotonic() - self._started,
            cpu_seconds=cpu_seconds() - self._cpu_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """How a tensor is sent."""

    dscp: Dscp | None
    """None: as the agent's two queues have it."""
    layer: int = 0
    policy: ImportancePolicy | str = "magnitude"
    burst_packets: int
    rounds: int = 1
    tensor: int = 0
    deadline_seconds: float
    """Of each round."""
    element_type: ElementType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOptions:
    """What is received, and how well."""

    maximum_bytes: int
    """Of memory that a peer may ask for."""
    loss_bound: float = 0.0
    important_loss_bound: float | None = None
    keep_missing: bool = False
    deadline_seconds: float
    """Of each round; of the first one from the announcement on."""
    keep_last: bool = False
    """Of several rounds, the last complete one stays in memory while the next one comes: twice the memory."""


Advance = Callable[[str, int, int], None]
"""What is going on, steps done, steps in all."""
Keep = Callable[[str, int, NDArray[Any]], None]
"""Given a peer's name, a round and what has arrived; the array is written again by the next round, or, where
the last one is kept, not before the next one is complete."""


def connect_patiently(agent: Agent, peers: Sequence[tuple[str, Endpoint]], wait_seconds: float) -> None:
    """Connect to all of them, again and again while they are not there, or have no room yet.

    Raises AgentError of the last try; at once of one that refuses us for good.
    """
    end = time.monotonic() + wait_seconds
    for name, endpoint in peers:
        while True:
            try:
                agent.connect(name, endpoint, max(RETRY_SECONDS, end - time.monotonic()))
                break
            except (PeerUnreachableError, PeerRefusedError) as error:
                pause = RETRY_SECONDS
                if isinstance(error, PeerRefusedError):
                    if error.is_lasting:
                        raise
                    pause = REFUSED_RETRY_SECONDS
                if time.monotonic() + pause >= end:
                    raise
                time.sleep(pause)


def send_announced(
    agent: Agent,
    peers: Sequence[str],
    data: NDArray[Any],
    options: SendOptions,
    advance: Advance,
    progress: Progress | None = None,
) -> ExchangeResult:
    """Announce a tensor to connected peers, and send it to all of them, round after round.

    A round begins when the one before has ended with every peer; a peer that failed is left out from then on.
    Raises UserInputError for data that cannot be sent, and AgentError where a peer does not take the
    announcement. `progress`: a new one, for who wants to know what was sent before an error.
    """
    progress = progress or Progress()
    view = view_of(data, writable=False, element_type=options.element_type)
    announcement = Announcement.of(data, view.element_type, tensor=options.tensor, rounds=options.rounds)
    encoded = announcement.encoded()
    for transfer in [
        agent.post_send(
            peer,
            encoded,
            tensor=ANNOUNCEMENT_TENSOR,
            round_number=FIRST_ROUND,
            dscp=options.dscp,
            layer=options.layer,
            policy="all",
            deadline_seconds=options.deadline_seconds,
            completions=CompletionQueue(),
        )
        for peer in peers
    ]:
        try:
            transfer.wait()
        except AgentError as error:  # whoever reads it knows nothing of this tensor
            raise type(error)(error.what, peer=error.peer) from None

    def post(peer: str, round_number: int) -> Transfer:
        return agent.post_send(
            peer,
            data,
            tensor=options.tensor,
            round_number=round_number,
            dscp=options.dscp,
            layer=options.layer,
            policy=options.policy,
            burst_packets=options.burst_packets,
            deadline_seconds=options.deadline_seconds,
            element_type=options.element_type,
            completions=progress,
        )

    rounds = dict.fromkeys(peers, options.rounds)
    return _exchange(rounds, post, lambda *_: None, advance, "sent", progress)


def hear_announcements(
    agent: Agent, peers: Sequence[str], deadline_seconds: float, progress: Progress
) -> list[AgentError]:
    """Learn from connected peers what they will send; returns the errors of those that did not say it, each
    with its peer's name."""
    memory = {peer: np.zeros(ANNOUNCEMENT_BYTES, np.int8) for peer in peers}
    posted = {
        peer: agent.post_recv(
            peer,
            buffer,
            tensor=ANNOUNCEMENT_TENSOR,
            round_number=FIRST_ROUND,
            deadline_seconds=deadline_seconds,
            completions=CompletionQueue(),
        )
        for peer, buffer in memory.items()
    }
    failed: list[AgentError] = []
    for peer, transfer in posted.items():
        progress.announced.pop(peer, None)
        try:
            transfer.wait()
            progress.announced[peer] = Announcement.decoded(memory[peer], peer)
        except AgentError as error:
            failed.append(error)
    return failed


def receive_announced(
    agent: Agent,
    peers: Sequence[str],
    options: ReceiveOptions,
    keep: Keep,
    advance: Advance,
    progress: Progress | None = None,
) -> tuple[dict[str, Announcement], ExchangeResult]:
    """Receive what connected peers announce; `keep` is called after each round that is complete.

    Where it is interrupted, or the agent fails, `keep` has been called for every round that was complete. A
    peer whose tensor finds no room, in this host's memory or in what the options allow all of them together,
    fails in its first round, and alone: it is told why.
    Raises AgentError where an announcement does not come or the agent fails. `progress`: a new one, or one of
    `hear_announcements`; also for who wants to know what had arrived before an error.
    """
    progress = progress or Progress()
    unheard = [peer for peer in peers if peer not in progress.announced]
    failed = hear_announcements(agent, unheard, options.deadline_seconds, progress)
    if failed:
        raise failed[0]
    announced = {peer: progress.announced[peer] for peer in peers}
    copies = {peer: 2 if options.keep_last and entry.rounds > 1 else 1 for peer, entry in announced.items()}
    buffers: dict[str, list[NDArray[Any]]] = {}
    room_bytes = options.maximum_bytes
    for peer, announcement in announced.items():
        try:
            if announcement.size_bytes * copies[peer] > room_bytes:
                raise _no_room(options.maximum_bytes)
            buffers[peer] = [announcement.empty() for _ in range(copies[peer])]
        except MemoryError as error:
            problem = _without_memory(peer, announcement, copies[peer], str(error))
            progress.note(RoundResult(peer=peer, round_number=FIRST_ROUND, error=problem, statistics=None))
            agent.disconnect(peer, problem.what)
        else:
            room_bytes -= announcement.size_bytes * copies[peer]

    def buffer(peer: str, round_number: int) -> NDArray[Any]:
        return buffers[peer][round_number % copies[peer]]

    def post(peer: str, round_number: int) -> Transfer:
        memory = buffer(peer, round_number)
        if options.keep_missing and copies[peer] > 1 and round_number > FIRST_ROUND:
            np.copyto(memory, buffer(peer, round_number - 1))
        return agent.post_recv(
            peer,
            memory,
            tensor=announced[peer].tensor,
            round_number=round_number,
            loss_bound=options.loss_bound,
            important_loss_bound=options.important_loss_bound,
            keep_missing=options.keep_missing,
            deadline_seconds=options.deadline_seconds,
            element_type=announced[peer].type,
            completions=progress,
        )

    result = _exchange(
        {peer: announced[peer].rounds for peer in buffers},
        post,
        lambda peer, number: keep(peer, number, buffer(peer, number)),
        advance,
        "received",
        progress,
    )
    return announced, result


def _no_room(maximum_bytes: int) -> MemoryError:
    return MemoryError(f"{format_bytes(maximum_bytes)} may be used in all")


def _without_memory(peer: str, announcement: Announcement, copies: int, reason: str) -> CancelledError:
    return CancelledError(
        f"no memory for {format_bytes(copies * announcement.size_bytes)}, "
        + ("two copies of the tensor" if copies > 1 else "the tensor")
        + f" that was announced: {reason}",
        peer=peer,
        tensor=announcement.tensor,
        round_number=FIRST_ROUND,
    )


def _exchange(
    rounds: dict[str, int],
    post: Callable[[str, int], Transfer],
    completed: Callable[[str, int], None],
    advance: Advance,
    done_word: str,
    progress: Progress,
) -> ExchangeResult:
    left = dict(rounds)
    done, total = 0, sum(rounds.values())
    progress.begin()
    for number in range(FIRST_ROUND, FIRST_ROUND + max(rounds.values(), default=0)):
        waiting: dict[str, Transfer] = {}
        try:
            for peer, most in left.items():
                if number < FIRST_ROUND + most:
                    waiting[peer] = post(peer, number)
            for peer, transfer in list(waiting.items()):
                error = _ended(transfer, progress)
                if error is None:
                    completed(peer, number)
                else:
                    del left[peer]
                del waiting[peer]
                done += 1
                advance(f"rounds {done_word}", done, total)
        except (AgentError, KeyboardInterrupt, SystemExit):
            for peer, transfer in waiting.items():
                if transfer.completion is not None and transfer.completion.error is None:
                    completed(peer, number)
            raise
    return progress.until_now()


def _ended(transfer: Transfer, progress: Progress) -> AgentError | None:
    """Waits for it."""
    try:
        completion = transfer.wait()
    except AgentError as error:
        ended = transfer.completion
        if ended is None:  # the waiting itself has failed
            raise
        progress.note(_result_of(ended))
        return error
    progress.note(_result_of(completion))
    return None


def _result_of(completion: Completion) -> RoundResult:
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


def cpu_seconds() -> float:
    """User and system time of this process until now, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
