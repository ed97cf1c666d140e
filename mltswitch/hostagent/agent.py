"""The library: post tensors to peers and memory for theirs, and be told what became of them.

    with Agent(AgentConfig.load("agent.yaml")) as agent:
        agent.connect("host3")
        sent = agent.post_send("host3", gradients, tensor=7, round_number=step, layer=7)
        sent.wait()

A posted tensor's memory is shared with the library until its completion: do not write what is being sent, do
not read what is being received.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from mltswitch.errors import UserInputError
from mltswitch.hostagent.channel import Channel, LayerTags, ReceiveRequest, SendRequest
from mltswitch.hostagent.config import DEFAULT_CHANNEL, AgentConfig
from mltswitch.hostagent.early_close import Gather
from mltswitch.hostagent.elements import check_byte_order
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.engine import STOP_SECONDS, Engine
from mltswitch.hostagent.errors import DeadlineExceededError, PeerUnreachableError
from mltswitch.hostagent.protocol.frames import text
from mltswitch.hostagent.telemetry.events import AgentEvent, AgentStarted, Observer
from mltswitch.hostagent.telemetry.snapshot import AgentSnapshot
from mltswitch.hostagent.telemetry.trace import KINDS, TraceWriter
from mltswitch.hostagent.transfer import CompletionQueue, Transfer
from mltswitch.hostagent.transport.records import Completion


class Agent:
    """One host's end of all its transfers; safe to use from several threads.

    Args:
        config: without one, an agent on loopback for trying out.
        admit: why a peer that calls is refused, by its name, in the agent's thread; None or an empty text: it
            is not. Whom this agent calls itself needs no leave.
        observers: are told what happens, from the beginning.

    Raises UserInputError, or MachineError where this machine lacks something.
    """

    def __init__(
        self,
        config: AgentConfig | None = None,
        *,
        admit: Callable[[str], str | None] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        check_byte_order()
        self.config: Final = (config or AgentConfig()).resolved(Path())
        self.completions: Final = CompletionQueue()
        """Told of the posts that name it."""
        self.name: Final = self.config.own_name
        self._tags = LayerTags(self.config)
        self._started_ns = time.monotonic_ns()
        self._trace: TraceWriter | None = None
        self._channels: dict[str, Channel] = {}
        self.engine: Final = Engine(self.config, self.name, self.config.identity(), admit, tuple(observers))
        """For channels and the doctor, not for users."""
        self.engine.start(self.config.listen_at)
        try:
            if self.config.trace is not None:
                self._trace = TraceWriter(Path(self.config.trace.folder) / f"{self.name}.jsonl")
                self.observe(self._trace, *(KINDS[name] for name in self.config.trace.events))
            for name, transport in {DEFAULT_CHANNEL: self.config.transport, **self.config.channels}.items():
                self.channel(name, transport=transport)
        except BaseException:
            self.close()
            raise
        self.engine.tell(AgentStarted(agent=self.name, addresses=self.config.addresses))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know about this machine."""
        return tuple(self.engine.warnings)

    @property
    def listening_at(self) -> Endpoint:
        """Where peers connect to."""
        return self.engine.listening_at

    @property
    def peers(self) -> tuple[str, ...]:
        """Who is connected."""
        return tuple(self.engine.peers.sessions)

    @property
    def default(self) -> Channel:
        """The channel that every agent has."""
        return self._channels[DEFAULT_CHANNEL]

    def channel(self, name: str, *, transport: str | None = None) -> Channel:
        """A channel by its name, declared where it is new; both ends declare it.

        Args:
            name: letters, digits and `_.:-`.
            transport: None: the one that it has, `mlt` where it is new.

        Raises UserInputError for another transport than it has.
        """
        found = self._channels.get(name)
        if found is None or transport not in {None, found.transport}:
            self.engine.run(self.engine.declare(name, transport or "mlt"), STOP_SECONDS)
            found = self._channels.setdefault(
                name, Channel(self.engine, self._tags, name, transport or "mlt")
            )
        return found

    def connect(
        self, peer: str, remote: Endpoint | str | None = None, *, timeout_seconds: float = 60.0
    ) -> None:
        """Connect with a peer; waits for one that is not there yet. Either end may call, or both.

        Args:
            peer: its name.
            remote: where it listens; without it the configuration says so.
            timeout_seconds: for all attempts together.

        Raises AgentError with the reason of the last attempt, UserInputError.
        """
        if peer == self.name:
            raise UserInputError("is this agent itself", where=f"peer {peer}", expected="another name")
        self.engine.connect(peer, self.config.endpoint(peer, remote), timeout_seconds)

    def wait_for_peers(
        self, names: Iterable[str], timeout_seconds: float = 60.0, *, or_left: bool = False
    ) -> None:
        """Until all of them are connected; raises DeadlineExceededError naming those that are not.

        With `or_left` one that has been connected before, and has left, is waited for no longer.
        """
        engine, wanted = self.engine, set(names)

        def missing_of() -> set[str]:
            return wanted - engine.peers.sessions.keys() - (engine.peers.lost.keys() if or_left else set())

        self._wait(lambda: not missing_of(), timeout_seconds)
        missing = sorted(missing_of())
        if missing:
            raise DeadlineExceededError(
                f"not connected within {timeout_seconds:g} s", peer=", ".join(missing[:8])
            )

    def wait_for_any_peer(self, timeout_seconds: float = 60.0) -> str:
        """The name of one that is connected; raises DeadlineExceededError."""
        self._wait(lambda: bool(self.engine.peers.sessions), timeout_seconds)
        for name in self.peers:
            return name
        raise DeadlineExceededError(f"nobody has connected within {timeout_seconds:g} s")

    def disconnect(self, peer: str, reason: str = "done") -> None:
        """Say goodbye to a peer, soon: what is open with it fails, here and there."""
        self.engine.disconnect(peer, text(reason))

    def close(self) -> None:
        """Say goodbye to all; what is open fails."""
        self.engine.stop()
        self.completions.close()
        if self._trace is not None:
            self._trace.close()

    def post_send(self, peer: str, data: object, *, tensor: int, **options: Any) -> Transfer:
        """On the default channel: see `Channel.post_send`."""
        return self.default.post_send(peer, data, tensor=tensor, **options)

    def post_receive(self, peer: str, buffer: object, *, tensor: int, **options: Any) -> Transfer:
        """On the default channel: see `Channel.post_receive`."""
        return self.default.post_receive(peer, buffer, tensor=tensor, **options)

    def gather(self, **options: Any) -> Gather:
        """On the default channel: see `Channel.gather`."""
        return self.default.gather(**options)

    def post_sends(
        self, peer: str, requests: Sequence[SendRequest], completions: CompletionQueue | None = None
    ) -> list[Transfer]:
        """On the default channel: see `Channel.post_sends`."""
        return self.default.post_sends(peer, requests, completions)

    def post_receives(
        self, peer: str, requests: Sequence[ReceiveRequest], completions: CompletionQueue | None = None
    ) -> list[Transfer]:
        """On the default channel: see `Channel.post_receives`."""
        return self.default.post_receives(peer, requests, completions)

    def send_message(self, peer: str, message: bytes, timeout_seconds: float = 10.0) -> None:
        """On the default channel: see `Channel.send_message`."""
        self.default.send_message(peer, message, timeout_seconds)

    def receive_message(self, peer: str, timeout_seconds: float = 10.0) -> bytes:
        """On the default channel: see `Channel.receive_message`."""
        return self.default.receive_message(peer, timeout_seconds)

    def poll(self, timeout_seconds: float = 0.0) -> Completion | None:
        """The next completion of the agent's own queue; None where none came in time."""
        return self.completions.poll(timeout_seconds)

    def observe(self, observer: Observer, *kinds: type[AgentEvent]) -> None:
        """Tell it from now on what happens.

        Args:
            observer: is told in the agent's own thread.
            kinds: of events that it wants; none: all. Whoever hears of transfers makes small ones dearer.
        """
        self.engine.observe(observer, kinds or (AgentEvent,))

    def stop_observing(self, observer: Observer) -> None:
        """Tell it nothing more."""
        self.engine.stop_observing(observer)

    def snapshot(self) -> AgentSnapshot:
        """What has been counted until now; raises AgentError after `close`."""
        if self.engine.is_closed:
            raise PeerUnreachableError("the agent is closed")
        peers: dict[str, dict[str, Any]] = {name: {} for name in self.peers}
        for (peer, channel), connection in list(self.engine.peers.connections.items()):
            peers.setdefault(peer, {})[channel] = connection.snapshot()
        return AgentSnapshot(
            name=self.name,
            started_ns=self._started_ns,
            peers=peers,
            ended=self.engine.ended.read(),
            data_plane=self.engine.counters(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, is_so: Callable[[], bool], timeout_seconds: float) -> None:
        self.engine.check_wait()
        with self.engine.peers.changed:
            self.engine.wait_for_change(lambda: is_so() or self.engine.is_closed, timeout_seconds)
        if self.engine.is_closed:
            raise PeerUnreachableError("the agent is closed")
