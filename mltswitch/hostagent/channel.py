"""A channel: one transport towards every peer, with tensor and round numbers of its own."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar
from weakref import WeakSet

from mltswitch.errors import UserInputError
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.early_close import EarlyCloseSettings, Gather, History, changed
from mltswitch.hostagent.elements import memory_of
from mltswitch.hostagent.engine import Engine
from mltswitch.hostagent.errors import AgentError, CancelledError, DeadlineExceededError
from mltswitch.hostagent.spraying import MOST_BURST_PACKETS
from mltswitch.hostagent.tagging.classes import TwoQueues
from mltswitch.hostagent.tagging.policies import ImportancePolicy, policy_named
from mltswitch.hostagent.telemetry.events import TransferEnded, TransferPosted
from mltswitch.hostagent.transfer import CompletionQueue, Transfer
from mltswitch.hostagent.transport.description import Connection, transport_named, transports
from mltswitch.hostagent.transport.records import (
    AtDeadline,
    Direction,
    Moment,
    RateController,
    Receive,
    Send,
    StopRule,
)
from mltswitch.hostagent.waiting import LONGEST_SECONDS
from mltswitch.wire import CS6, CS7, ElementType

MOST_MESSAGE_BYTES: Final = 1024
LONGEST_DEADLINE_SECONDS: Final = 86_400.0 * 365
MOST_LAYER: Final = (1 << 16) - 1
MOST_NUMBER: Final = (1 << 32) - 1
MOST_PRIORITY: Final = (1 << 31) - 1
_RETRY_SECONDS: Final = 0.002
"""Until a peer that has too many messages to read is asked again."""
_Name = TypeVar("_Name", Moment, AtDeadline, StopRule)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """A tensor to be sent with `post_sends`; fields that are None take the agent's defaults."""

    data: object
    """The tensor: numpy array, torch CPU tensor or buffer; shared until completion, never copied."""
    tensor: int
    """Number by which both ends identify the tensor."""
    round_number: int = 0
    """Tells apart exchanges of the same tensor that may be in flight together."""
    layer: int | str = 0
    """The tensor's layer: number in forward order, or name in the profile; front layers leave first."""
    priority: int | None = None
    """Order among tensors that wait to be sent to one peer: the least leaves first; None: the layer."""
    traffic_class: str | None = None
    dscp: int | None = None
    """DSCP of the tensor's packets; None: that of its layer."""
    importance: ImportancePolicy | str | None = None
    """Which packets are important; None: as the defaults say, but all if the receiver may not miss any."""
    burst_packets: int | None = None
    """How many packets in a row share one path and one DSCP/ECN byte."""
    deadline_seconds: float | None = None
    deadline_from: str = Moment.POST
    element_type: ElementType | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveRequest:
    """Memory for a tensor to be received by `post_receives`; for None an agent's default is taken."""

    buffer: object
    tensor: int
    round_number: int = 0
    loss_bound: float | None = None
    """Largest share of the tensor's packets, and of its elements, that may be missing."""
    important_loss_bound: float | None = None
    """Largest share of the important packets that may be missing; None: the lesser of `loss_bound` and 0.01,
    or none under the stop rule `paper`. How many packets are important is known when the sender has sent
    all, and until then the bound is not met."""
    soft_seconds: float | None = None
    """Seconds after which meeting the loss bounds ends the receive, even if the sender has more to send."""
    deadline_seconds: float | None = None
    deadline_from: str = Moment.POST
    at_deadline: str = AtDeadline.FAIL
    stop: str | None = None
    """`patient`: ends when waiting for more would cost time; `paper`: as soon as the loss bound is met."""
    keep_missing: bool = False
    """Whether missing elements keep what the memory holds (for parameters) instead of becoming 0."""
    gather: Gather | None = None
    """The channel's gather to which the receive belongs; None: a gather of its own, if the transport can."""
    element_type: ElementType | str | None = None


class LayerTags:
    """The DSCPs of an agent's sends by layer; safe to use from several threads.

    Where two classes stand for many priorities, a send that begins or ends may change the DSCP of other open
    sends (MLT, appendix D).
    """

    def __init__(self, config: AgentConfig) -> None:
        self._config, self._two_queues = config, config.two_queues_of_classes()
        self._sends: defaultdict[int, WeakSet[Transfer]] = defaultdict(WeakSet)
        self._lock = Lock()
        """Of the two queues, until the open sends have their code points."""

    def dscp(self, layer: int) -> int:
        """The DSCP of a layer's next packets."""
        return self._config.dscp(layer) if self._two_queues is None else self._two_queues.dscp(layer)

    def began(self, transfer: Transfer, layer: int) -> None:
        """Record a posted send that has its layer's DSCP; the DSCP of other open sends may change."""
        if self._two_queues is not None:
            with self._lock:
                self._sends[layer].add(transfer)
                # its own too: another may have begun since its code point was asked for
                self._retag({layer, *self._two_queues.started(layer)})
            transfer.add_done_callback(partial(self._ended, self._two_queues, layer))

    def _ended(self, two_queues: TwoQueues, layer: int) -> None:
        with self._lock:
            self._retag(two_queues.finished(layer))

    def _retag(self, layers: Iterable[int]) -> None:
        for layer in layers:
            for transfer in list(self._sends[layer]):
                transfer.retag(self.dscp(layer))


class Channel:
    """A channel of one agent, open with every peer that declares it; safe to use from several threads."""

    def __init__(self, engine: Engine, tags: LayerTags, name: str, transport: str) -> None:
        self._engine, self._config, self._tags = engine, engine.config, tags
        self.name: Final = name
        self.transport: Final = transport
        self._description = transport_named(transport)
        self.history: Final = History()
        """What the rounds of its gathers have taken."""
        self._burst_packets = engine.config.burst
        self.examines_paths = False
        """For the doctor: code points of routing protocols are sent, too."""

    def post_send(self, peer: str, data: object, *, tensor: int, **options: Any) -> Transfer:
        """Send a tensor, which leaves when the peer has posted memory for it.

        Args:
            peer: name of a connected peer.
            data: the tensor, as described at `SendRequest`.
            tensor: number of the tensor.
            **options: fields of `SendRequest`, and `completions`, a queue that gets the completion.

        Raises UserInputError for what cannot be sent, AgentError where the peer is not connected.
        """
        completions = options.pop("completions", None)
        return self.post_sends(peer, [SendRequest(data=data, tensor=tensor, **options)], completions)[0]

    def post_receive(self, peer: str, buffer: object, *, tensor: int, **options: Any) -> Transfer:
        """Receive a tensor into memory.

        Args:
            peer: name of a connected peer.
            buffer: the memory, as described at `ReceiveRequest`.
            tensor: number of the tensor.
            **options: fields of `ReceiveRequest`, and `completions`, a queue that gets the completion.

        Raises UserInputError for what cannot be received, AgentError where the peer is not connected.
        """
        completions = options.pop("completions", None)
        request = ReceiveRequest(buffer=buffer, tensor=tensor, **options)
        return self.post_receives(peer, [request], completions)[0]

    def post_sends(
        self, peer: str, requests: Sequence[SendRequest], completions: CompletionQueue | None = None
    ) -> list[Transfer]:
        """Send many tensors in one post (a bucket): all transfers begin, or none."""
        checked = [self._send(request) for request in requests]
        transfers = self._post(peer, Direction.SEND, checked, completions)
        for transfer, request, send in zip(transfers, requests, checked, strict=True):
            if request.dscp is None and request.traffic_class is None:
                self._tags.began(transfer, send.layer)
        return transfers

    def post_receives(
        self, peer: str, requests: Sequence[ReceiveRequest], completions: CompletionQueue | None = None
    ) -> list[Transfer]:
        """Receive many tensors in one post: all transfers begin, or none."""
        checked: list[tuple[Receive, Gather | None]] = []
        try:
            checked.extend(self._receive(peer, request) for request in requests)
            receives = [receive for receive, _ in checked]
            transfers = self._post(peer, Direction.RECEIVE, receives, completions)
        except BaseException:
            for receive, gather in checked:
                if gather is not None:
                    gather.withdraw(peer, receive)
            raise
        for transfer, (_, gather) in zip(transfers, checked, strict=True):
            if gather is not None:
                transfer.add_done_callback(partial(_tell, gather, transfer))
        return transfers

    @property
    def closes_early(self) -> bool:
        """Whether the channel's transport can close receives early, so that they may be in a gather."""
        return self._description.closes_early

    def gather(
        self,
        *,
        percentage: float | None = None,
        least_percentage: float = 0.0,
        slack_seconds: float | None = None,
        estimator: str | None = None,
        rounds_per_epoch: int | None = None,
    ) -> Gather:
        """Receives of one round that close early together (LTP, section III-B), if the transport can.

        Args:
            percentage: share of each peer's bytes that is enough between its threshold LT and the
                deadline; at least 1 minus the loss bound of every receive in the gather.
            least_percentage: lower limit of `percentage`, whether it comes from the file or from this call.
            slack_seconds: time from the longest LT of the peers to the deadline.
            estimator: how LT is estimated, `quantile` or `paper`.
            rounds_per_epoch: number of rounds after which the estimator `paper` begins anew.

        Arguments that are None come from the transport's section of the agent's file. Raises UserInputError.
        """
        settings = self._config.section(self.transport)
        if not isinstance(settings, EarlyCloseSettings):
            known = [name for name, entry in transports().items() if entry.closes_early]
            problem = f"channel {self.name} is over {self.transport}, which closes nothing early"
            raise UserInputError(problem, where="gather", expected=f"a channel over {', '.join(known)}")
        given = {
            "percentage": percentage,
            "slack_seconds": slack_seconds,
            "estimator": estimator,
            "rounds_per_epoch": rounds_per_epoch,
        }
        chosen = changed(settings, given)
        raised = max(chosen.percentage, _share("least_percentage", least_percentage))
        return Gather(self.history, chosen.model_copy(update={"percentage": raised}))

    def wait_for_peers(self, peers: Sequence[str], timeout_seconds: float = 60.0) -> None:
        """Wait until the channel is open with all these peers; raises AgentError naming one that lacks it."""
        until = time.monotonic() + timeout_seconds
        for peer in peers:
            self._engine.connection(peer, self.name, max(0.0, until - time.monotonic()))

    def send_message(self, peer: str, message: bytes, timeout_seconds: float = 10.0) -> None:
        """Send a small message to a peer: reliable and in order, while both stay connected.

        Raises DeadlineExceededError if the peer reads no messages, AgentError if it is gone.
        """
        if not isinstance(message, bytes):
            raise UserInputError(f"is of type {type(message).__name__}", where="message", expected="bytes")
        if not 0 < len(message) <= MOST_MESSAGE_BYTES:
            raise UserInputError(
                f"has {len(message)} bytes", where="message", expected=f"1 to {MOST_MESSAGE_BYTES}"
            )
        connection = self._engine.connection(peer, self.name, timeout_seconds)
        until = time.monotonic() + timeout_seconds
        while not connection.send_message(message):
            if time.monotonic() > until:
                raise DeadlineExceededError("reads no messages", peer=peer)
            self._engine.check_wait()
            time.sleep(_RETRY_SECONDS)

    def call_on_message(self, call: Callable[[str], object] | None) -> None:
        """Have `call` called in the agent's thread with the peer of each message to receive; None: stop."""
        if call is None:
            self._engine.readers.pop(self.name, None)
        else:
            self._engine.readers[self.name] = call

    def receive_message(self, peer: str, timeout_seconds: float = 10.0) -> bytes:
        """The peer's next message, including those that it sent before it left, until it is connected anew.

        Raises DeadlineExceededError if none comes in time, AgentError if the peer is gone and all are read.
        """
        engine = self._engine
        engine.check_wait()
        until = time.monotonic() + timeout_seconds
        with engine.peers.changed:
            left = engine.peers.left(peer, self.name)
            connection = left or engine.connection(peer, self.name, timeout_seconds)
            while (message := connection.take_message()) is None:
                if engine.peers.connections.get((peer, self.name)) is not connection:
                    connection = engine.connection(peer, self.name, 0.0)  # raises, unless it is a new one
                    continue
                if time.monotonic() >= until:
                    raise DeadlineExceededError(
                        f"has sent no message within {timeout_seconds:g} s", peer=peer
                    )
                engine.peers.changed.wait(min(LONGEST_SECONDS, max(0.0, until - time.monotonic())))
        return message

    def set_rate(
        self, peer: str, *, cap_bps: float | None = None, controller: RateController | None = None
    ) -> None:
        """Change how fast this end sends to a connected peer.

        Args:
            peer: name of a connected peer.
            cap_bps: highest rate in bit/s; None: as configured.
            controller: decides the rate from samples of the flow; None: the configured rate control.

        Raises UserInputError where the agent does not control the transport's rate (`tcp`), AgentError.
        """
        if cap_bps is not None and not 0 < cap_bps < float("inf"):
            raise UserInputError(f"{cap_bps!r:.60} is no rate", where="cap_bps", expected="bit/s, above 0")
        self.connection(peer).set_rate(cap_bps, controller)

    def connection(self, peer: str) -> Connection:
        """The transport's connection with a peer; raises AgentError where the peer is not connected."""
        return self._engine.connection(peer, self.name, 0.0)

    def _post(
        self, peer: str, direction: Direction, requests: Sequence[Any], completions: CompletionQueue | None
    ) -> list[Transfer]:
        if not requests:
            raise UserInputError("has no tensors", where="post", expected="1 or more")
        engine = self._engine
        try:
            seconds = min(request.deadline_ns for request in requests) / 1e9
            connection = engine.connection(peer, self.name, seconds)
        except AgentError as error:
            raise error.of_transfer(requests[0].tensor, requests[0].round_number) from None
        for request in requests if engine.hears(TransferPosted) else ():
            engine.tell(
                TransferPosted(
                    peer=peer,
                    channel=self.name,
                    tensor=request.tensor,
                    round_number=request.round_number,
                    direction=direction.value,
                    size_bytes=len(request.memory.data),
                )
            )
        post = connection.post_sends if direction is Direction.SEND else connection.post_receives
        transfers = [Transfer(engine, peer, self.name, ticket, completions) for ticket in post(requests)]
        if completions is not None or engine.hears(TransferEnded):
            for transfer in transfers:
                transfer.watch()
        return transfers

    def _send(self, request: SendRequest) -> Send:
        config, defaults = self._config, self._config.defaults
        layer = config.layer_number(request.layer)
        if request.dscp is not None:
            dscp = _whole("dscp", request.dscp, 63)
            if dscp in {CS6, CS7} and not self.examines_paths:
                raise UserInputError(f"{dscp} belongs to routing protocols (RFC 4594)", where="dscp")
        elif request.traffic_class is not None:
            dscp = config.dscp_of_class(request.traffic_class)
        else:
            dscp = self._tags.dscp(layer)
        priority = request.priority
        burst = self._burst_packets if request.burst_packets is None else request.burst_packets
        importance = defaults.importance if request.importance is None else request.importance
        if request.importance is None and "importance" not in defaults.model_fields_set:
            importance = self._description.importance or importance
        return Send(
            memory=memory_of(request.data, element_type=request.element_type),
            tensor=_whole("tensor", request.tensor, MOST_NUMBER),
            round_number=_whole("round_number", request.round_number, MOST_NUMBER),
            layer=min(layer, MOST_LAYER),
            priority=_whole("priority", layer if priority is None else priority, MOST_PRIORITY),
            dscp=dscp,
            importance=policy_named(importance),
            important_if_whole=request.importance is None,
            burst_packets=_whole("burst_packets", burst, MOST_BURST_PACKETS),
            deadline_ns=self._deadline_ns(request.deadline_seconds),
            deadline_from=_named("deadline_from", request.deadline_from, Moment),
        )

    def _deadline_ns(self, seconds: float | None) -> int:
        default = self._config.defaults.deadline_seconds
        return _nanoseconds("deadline_seconds", default if seconds is None else seconds)

    def _receive(self, peer: str, request: ReceiveRequest) -> tuple[Receive, Gather | None]:
        defaults = self._config.defaults
        loss = defaults.loss_bound if request.loss_bound is None else request.loss_bound
        loss = _share("loss_bound", loss)
        stop = _named("stop", defaults.stop if request.stop is None else request.stop, StopRule)
        important = request.important_loss_bound
        closes_early = self._description.closes_early
        if important is None and closes_early:  # critical packets always arrive
            important = defaults.important_loss_bound or 0.0
        elif important is None and stop is StopRule.PAPER:  # its rule has one bound
            important = 1.0 if defaults.important_loss_bound is None else defaults.important_loss_bound
        elif important is None:
            important = defaults.important_bound(loss)
        receive = Receive(
            memory=memory_of(request.buffer, writable=True, element_type=request.element_type),
            tensor=_whole("tensor", request.tensor, MOST_NUMBER),
            round_number=_whole("round_number", request.round_number, MOST_NUMBER),
            loss_bound=loss,
            important_loss_bound=_share("important_loss_bound", important),
            soft_ns=0 if request.soft_seconds is None else _nanoseconds("soft_seconds", request.soft_seconds),
            deadline_ns=self._deadline_ns(request.deadline_seconds),
            deadline_from=_named("deadline_from", request.deadline_from, Moment),
            at_deadline=_named("at_deadline", request.at_deadline, AtDeadline),
            stop=stop,
            keep_missing=bool(request.keep_missing),
        )
        gather = request.gather
        if gather is not None and not gather.belongs_to(self.history):
            raise UserInputError(
                f"is not of channel {self.name} of agent {self._engine.name}",
                where="gather",
                expected="one that its `gather` has made",
            )
        if gather is None and closes_early and loss > 0:
            settings = self._config.section(self.transport)
            gather = Gather(self.history, settings, is_alone=True)
        if gather is None:
            return receive, None
        return replace(receive, closing=gather.rule(peer, receive)), gather


def _tell(gather: Gather, transfer: Transfer) -> None:
    ended = transfer.completion
    if ended is not None and isinstance(ended.error, CancelledError) and not ended.statistics.first_ns:
        gather.left(transfer.peer, ended.statistics.size_bytes)
    else:
        gather.ended(transfer.peer, None if ended is None or ended.error else ended.statistics)


def _whole(name: str, value: Any, most: int) -> int:
    try:
        number = value.__index__()  # numpy's integers, too; no floats
    except (AttributeError, TypeError):
        number = -1
    if isinstance(value, bool) or not 0 <= number <= most:
        raise UserInputError(f"{value!r:.60} is no such number", where=name, expected=f"0 to {most}")
    return int(number)


def _share(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UserInputError(f"{value!r:.60} is no share", where=name, expected="0 to 1")
    return float(value)


def _nanoseconds(name: str, seconds: Any) -> int:
    if not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_DEADLINE_SECONDS:
        raise UserInputError(
            f"{seconds!r:.60} is no time", where=name, expected="seconds, above 0 and below a year"
        )
    return max(1, round(seconds * 1e9))


def _named(name: str, value: Any, kind: type[_Name]) -> _Name:
    try:
        return kind(value)
    except ValueError:
        raise UserInputError(f"{value!r:.60} is unknown", where=name, expected=", ".join(kind)) from None
