"""The host agent as a library: post tensors to peers, and memory for theirs, and wait for their completion.

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
    """The host agent: sends tensors to peers and receives theirs; safe to use from several threads.

    Args:
        config: the agent's settings; None: an agent on loopback for trying out.
        admit: called in the agent's thread with the name of a peer that calls; returns why it is refused, or
            None or an empty text to accept it. Peers that this agent calls itself are not checked.
        observers: observers that are told of the agent's events from the beginning.

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
        """Warnings about this machine's fitness for the agent, as texts for the user."""
        return tuple(self.engine.warnings)

    @property
    def listening_at(self) -> Endpoint:
        """Address and port at which the agent accepts control connections."""
        return self.engine.listening_at

    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the peers that are connected now."""
        return tuple(self.engine.peers.sessions)

    @property
    def default(self) -> Channel:
        """The channel `default`, which every agent has."""
        return self._channels[DEFAULT_CHANNEL]

    def channel(self, name: str, *, transport: str | None = None) -> Channel:
        """The channel of this name, declared if it is new; it opens where both ends declare it.

        Args:
            name: letters, digits and `_.:-`.
            transport: name of its transport; None: the one that the channel has, `mlt` if it is new.

        Raises UserInputError for another transport than the channel has.
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
        """Connect with a peer, waiting if it is not there yet; either end may call, or both.

        Args:
            peer: name of the peer.
            remote: where the peer listens; None: as the configuration says.
            timeout_seconds: limit of all attempts together.

        Raises AgentError with the reason of the last attempt, UserInputError.
        """
        if peer == self.name:
            raise UserInputError("is this agent itself", where=f"peer {peer}", expected="another name")
        self.engine.connect(peer, self.config.endpoint(peer, remote), timeout_seconds)

    def wait_for_peers(
        self, names: Iterable[str], timeout_seconds: float = 60.0, *, or_left: bool = False
    ) -> None:
        """Wait until these peers are connected; raises DeadlineExceededError naming those that are not.

        With `or_left` a peer that was connected and has left is no longer waited for.
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
        """Wait until any peer is connected and return its name; raises DeadlineExceededError."""
        self._wait(lambda: bool(self.engine.peers.sessions), timeout_seconds)
        for name in self.peers:
            return name
        raise DeadlineExceededError(f"nobody has connected within {timeout_seconds:g} s")

    def disconnect(self, peer: str, reason: str = "done") -> None:
        """Say goodbye to a peer, soon: all open transfers with it fail, here and at the peer."""
        self.engine.disconnect(peer, text(reason))

    def close(self) -> None:
        """Say goodbye to all; what is open fails."""
        self.engine.stop()
        self.completions.close()
        if self._trace is not None:
            self._trace.close()

    def post_send(self, peer: str, data: object, *, tensor: int, **options: Any) -> Transfer:
        """Send a tensor on the default channel; see `Channel.post_send`."""
        return self.default.post_send(peer, data, tensor=tensor, **options)

    def post_receive(self, peer: str, buffer: object, *, tensor: int, **options: Any) -> Transfer:
        """Receive a tensor on the default channel; see `Channel.post_receive`."""
        return self.default.post_receive(peer, buffer, tensor=tensor, **options)

    def gather(self, **options: Any) -> Gather:
        """A group of receives on the default channel that close early together; see `Channel.gather`."""
        return self.default.gather(**options)

    def post_sends(
        self, peer: str, requests: Sequence[SendRequest], completions: CompletionQueue | None = None
    ) -> list[Transfer]:
        """Send many tensors on the default channel; see `Channel.post_sends`."""
        return self.default.post_sends(peer, requests, completions)

    def post_receives(
        self, peer: str, requests: Sequence[ReceiveRequest], completions: CompletionQueue | None = None
    ) -> list[Transfer]:
        """Receive many tensors on the default channel; see `Channel.post_receives`."""
        return self.default.post_receives(peer, requests, completions)

    def send_message(self, peer: str, message: bytes, timeout_seconds: float = 10.0) -> None:
        """Send a small message on the default channel; see `Channel.send_message`."""
        self.default.send_message(peer, message, timeout_seconds)

    def receive_message(self, peer: str, timeout_seconds: float = 10.0) -> bytes:
        """Receive a peer's message on the default channel; see `Channel.receive_message`."""
        return self.default.receive_message(peer, timeout_seconds)

    def poll(self, timeout_seconds: float = 0.0) -> Completion | None:
        """The next completion of a transfer posted without a queue of its own; None if none comes in time."""
        return self.completions.poll(timeout_seconds)

    def observe(self, observer: Observer, *kinds: type[AgentEvent]) -> None:
        """Tell an observer of the agent's events from now on.

        Args:
            observer: the observer, called in the agent's own thread.
            kinds: types of the events that it wants; none: all. Observing transfers makes small ones slower.
        """
        self.engine.observe(observer, kinds or (AgentEvent,))

    def stop_observing(self, observer: Observer) -> None:
        """Tell this observer of no further events."""
        self.engine.stop_observing(observer)

    def snapshot(self) -> AgentSnapshot:
        """The agent's counters as they are now; raises AgentError after `close`."""
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
