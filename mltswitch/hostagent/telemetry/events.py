"""Events that observers are told. Times are of the host's monotonic clock, `time.monotonic_ns()`."""

from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Protocol

from mltswitch.hostagent.transport.records import TransferStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """Base class of all events of an agent."""

    time_ns: int = field(default_factory=monotonic_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStarted(AgentEvent):
    """The observer is told from here on."""

    agent: str
    addresses: tuple[str, ...]
    """Local ones of the data, one a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnded(AgentEvent):
    """The agent was closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(AgentEvent):
    """What the user should know about this machine."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConnected(AgentEvent):
    """The handshake is done."""

    peer: str
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLost(AgentEvent):
    """The connection is over, or there never was one."""

    peer: str
    """Its address where it has not told its name."""
    result: str
    """Type of the error: `peer_unreachable`, say."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPosted(AgentEvent):
    """The user has given a tensor, or memory for one."""

    peer: str
    channel: str
    tensor: int
    round_number: int
    direction: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferEnded(AgentEvent):
    """A transfer has completed."""

    peer: str
    channel: str
    tensor: int
    round_number: int
    direction: str
    result: str
    """`completed`, or the type of the error: `deadline_exceeded`, say."""
    reason: str
    """Of the error; empty where there is none."""
    statistics: TransferStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class PathChanged(AgentEvent):
    """A path's state changed."""

    peer: str
    channel: str
    path: int
    state: str
    """`used`, `dead` or `gray`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketsRefused(AgentEvent):
    """The kernel would not send on a path."""

    peer: str
    channel: str
    path: int
    error: str
    """Name of the errno: `EMSGSIZE`, say."""
    packets: int
    """That it refused at once; of several, each is sent by itself for a while."""
    interface: str
    """By which the kernel sends to the peer's address now; empty: it has no route."""
    mtu_bytes: int
    """Of the interface; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsLeftOut(AgentEvent):
    """What loss bounds left out of the sums of a training job's steps, over all ranks."""

    first_step: int
    last_step: int
    network_share: float
    """Of all ranks' gradients in these steps, what the network has lost."""
    bound_share: float
    """What was no longer waited for, because the bound allows it."""
    layer: str
    """The layer that is without most, for its size; empty: nothing is left out."""
    layer_share: float
    """Share of that layer's gradients that is missing, 0 to 1."""

    @property
    def text(self) -> str:
        """The steps, the share without, its causes and the worst layer, as one line for a log."""
        share = self.network_share + self.bound_share
        worst = f"; most in layer {self.layer}, {self.layer_share:.2%}" if self.layer else ""
        how = f"{self.network_share:.2%} by the network, {self.bound_share:.2%} by the bound"
        return f"steps {self.first_step}-{self.last_step}: sums are without {share:.2%}: {how}{worst}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRate:
    """The rate of one direction of a link between two nodes of a training job."""

    source: str
    """Name of the node that sends."""
    target: str
    """Name of the node that receives, and measures."""
    said_bps: float
    """As the job's settings have it."""
    measured_bps: float | None
    """What the target has measured last; None: nothing yet."""
    measured_ns: int
    """When this node heard of that, by the same clock as `time_ns`; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksMeasured(AgentEvent):
    """What a rank of a job over the topology `fapt` has learned of links and routes since it told last."""

    version: int
    """Number of the routes that are bound: 1 at the start, more after each change."""
    refused: int
    """How many rates and routes of others this rank has not believed."""
    problem: str
    """Why it cannot plan, or what it does not believe; empty: nothing."""
    links: tuple[LinkRate, ...]
    """Those with new figures; in the first event of a job all of them."""


class Observer(Protocol):
    """Observer of an agent's events, called in its thread: be quick. One that raises is told nothing more."""

    def observe(self, event: AgentEvent) -> None:
        """Called with each event; must not block, but may put the event into a queue."""
        ...
