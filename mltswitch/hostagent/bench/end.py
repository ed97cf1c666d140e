"""One end of the bench: a process with one agent, which obeys the other end of a pipe."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MltswitchError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.announced import cpu_seconds
from mltswitch.hostagent.configuration import AgentDocument, configured
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import DeadlineExceededError
from mltswitch.hostagent.tagging import policy_named
from mltswitch.hostagent.tensor.elements import view_of
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.transport.settings import ConnectionSettings

PATIENCE_SECONDS: Final = 60.0
DSCP: Final = 34
IN_FLIGHT: Final = 3
"""Tensors on their way at a time: the next is ready when one has ended, as in training."""
TAGGINGS: Final = 5


@dataclass(frozen=True, slots=True)
class Open:
    """Close the agent that is open, if any, and open one; answered by the Endpoint that it listens at."""

    document: dict[str, Any]
    """An AgentDocument."""


@dataclass(frozen=True, slots=True)
class Connect:
    """To a peer; answered by the seconds that it took, and the processor time."""

    peer: str
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Stream:
    """Send or receive so many tensors; answered by StreamFigures."""

    peer: str
    is_sender: bool
    size_bytes: int
    tensors: int
    first_round: int
    burst_packets: int
    policy: str


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """Of one end."""

    seconds: float
    cpu_seconds: float
    packets_sent: int
    packets_resent: int


@dataclass(frozen=True, slots=True)
class Tag:
    """Tag a tensor that goes nowhere; answered by seconds of processor time."""

    size_bytes: int
    payload_bytes: int
    policy: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Answered by the processor time of this process until now, in seconds."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer where something went wrong: what, for the user."""

    what: str


Command = Open | Connect | Stream | Tag | Usage


def serve(pipe: Pipe) -> None:
    """Obey until the pipe is closed; the process's main function."""
    with ExitStack() as agents:
        end = _End(agents)
        while True:
            try:
                command = pipe.recv()
                answer = _answer(end, command)
                pipe.send(answer)
            except (EOFError, ConnectionError):  # the parent has ended
                return


def _answer(end: "_End", command: Command) -> object:
    try:
        return end.obey(command)
    except MltswitchError as error:
        return Failed(str(error))


class _End:
    def __init__(self, agents: ExitStack) -> None:
        self._agents = agents
        self._agent: Agent | None = None
        self._tensors: dict[tuple[int, int], NDArray[np.float32]] = {}

    def obey(self, command: Command) -> object:
        match command:
            case Open():
                return self._open(command)
            case Connect():
                started, cpu = time.monotonic(), cpu_seconds()
                self._running.connect(command.peer, command.endpoint, PATIENCE_SECONDS)
                return time.monotonic() - started, cpu_seconds() - cpu
            case Stream():
                return self._stream(command)
            case Tag():
                return self._tag(command)
            case Usage():
                return cpu_seconds()

    @property
    def _running(self) -> Agent:
        assert self._agent is not None  # noqa: S101  (the first command opens it)
        return self._agent

    def _open(self, command: Open) -> Endpoint | None:
        self._agents.close()
        document = AgentDocument.model_validate(command.document)
        configuration = configured(document, folder=Path(), where="bench")
        self._agent = self._agents.enter_context(Agent(configuration.settings))
        return self._agent.listening_at

    def _stream(self, command: Stream) -> StreamFigures:
        agent = self._running
        agent.wait_for_peers([command.peer], PATIENCE_SECONDS)
        for slot in range(IN_FLIGHT):  # memory is touched before the clock starts
            self._tensor(slot, command.size_bytes)
        post: Callable[[int, int], object] = (
            (lambda slot, number: self._send(command, slot, number))
            if command.is_sender
            else (lambda slot, number: self._receive(command, slot, number))
        )
        started, cpu = time.monotonic(), cpu_seconds()
        posted = min(IN_FLIGHT, command.tensors)
        rounds = dict.fromkeys(range(IN_FLIGHT), command.first_round)
        for slot in range(posted):
            post(slot, command.first_round)
        sent = resent = 0
        for _ in range(command.tensors):
            done = agent.poll(PATIENCE_SECONDS)
            if done is None:
                raise DeadlineExceededError(f"no tensor for {PATIENCE_SECONDS:g} s", peer=command.peer)
            if done.error is not None:
                raise done.error
            if done.statistics is not None:
                sent += done.statistics.packets_sent
                resent += done.statistics.packets_resent
            if posted < command.tensors:
                posted += 1
                rounds[done.tensor] += 1
                post(done.tensor, rounds[done.tensor])
        return StreamFigures(time.monotonic() - started, cpu_seconds() - cpu, sent, resent)

    def _send(self, command: Stream, slot: int, number: int) -> None:
        self._running.post_send(
            command.peer,
            self._tensor(slot, command.size_bytes),
            tensor=slot,
            round_number=number,
            dscp=DSCP,
            policy=command.policy,
            burst_packets=command.burst_packets,
            deadline_seconds=PATIENCE_SECONDS,
        )

    def _receive(self, command: Stream, slot: int, number: int) -> None:
        self._running.post_recv(
            command.peer,
            self._tensor(slot, command.size_bytes),
            tensor=slot,
            round_number=number,
            deadline_seconds=PATIENCE_SECONDS,
        )

    def _tensor(self, slot: int, size_bytes: int) -> NDArray[np.float32]:
        key = slot, size_bytes
        if key not in self._tensors:
            self._tensors[key] = np.random.default_rng(slot).standard_normal(size_bytes // 4, np.float32)
        return self._tensors[key]

    def _tag(self, command: Tag) -> float:
        view = view_of(self._tensor(0, command.size_bytes), writable=False)
        layout = PacketLayout.fitting(view.element_type, command.size_bytes // 4, command.payload_bytes)
        policy = policy_named(command.policy)
        chunk_packets = ConnectionSettings().chunk_packets
        measured = []
        for _ in range(TAGGINGS):
            started = time.thread_time()
            marking = policy.mark(view, layout)
            for first in range(0, layout.packet_count, chunk_packets):
                marking.important(first, min(first + chunk_packets, layout.packet_count))
            measured.append(time.thread_time() - started)
        return median(measured)
