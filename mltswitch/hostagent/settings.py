"""How one host's agent is set up."""

from dataclasses import dataclass, field
from typing import Final

from mltswitch.hostagent.control.security import Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.spraying.settings import SprayingSettings
from mltswitch.hostagent.transport.rate import RateSettings
from mltswitch.hostagent.transport.settings import ConnectionSettings
from mltswitch.wire import AGENT_PORT, Dscp

DEFAULT_PAYLOAD_BYTES: Final = 1_472
"""Of UDP over IPv4 in Ethernet's 1,500 bytes."""
TRUE_SIZE_FACTOR: Final = 4
"""Bytes of a receive buffer, as the kernel counts them, over the payload that it surely holds: lone packets
are charged with the memory that they lie in."""
DEFAULT_NAP_SECONDS: Final = 0.0003
DEFAULT_BUFFER_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Of one agent; what is not given suits one data centre. Raises ValueError for contradictions."""

    name: str
    """This host's, as its certificate says it."""
    addresses: tuple[str, ...]
    """Local addresses of the data, one a path."""
    security: Security
    rate: RateSettings
    """Per peer."""
    control_dscp: Dscp
    """Of the plan's control class."""
    listen: Endpoint | None = None
    """Where peers reach the control channel; None: they do not, we connect to them."""
    data_port: int = AGENT_PORT
    """0: any free one, which peers are told."""
    per_path_sockets: bool = False
    """One socket, with a port of its own, for each entry of `addresses` (mode `entropy`)."""
    segments: tuple[tuple[str, ...], ...] = ()
    """IPv6 segments of each path, for sticky headers (mode `srv6`); with `per_path_sockets` alone."""
    payload_bytes: int = DEFAULT_PAYLOAD_BYTES
    """Longest UDP payload that the path carries."""
    authenticate: bool = False
    """A tag on every datagram."""
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    """Of each socket, in each direction, as far as the kernel grants it."""
    expected_peers: int = 1
    """Who may send at the same time: each gets its part of the receive buffer."""
    nap_seconds: float = DEFAULT_NAP_SECONDS
    """Rest while many packets arrive, so that the next batch is worth its calls; 0: none."""
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    spraying: SprayingSettings = field(default_factory=SprayingSettings)
    catch_reuse: bool = False
    """Find out whether a tensor changed while it was being sent; reads it twice."""

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ValueError("an agent needs an address")
        if self.per_path_sockets and len(set(self.addresses)) > 1:
            raise ValueError("sockets that are a path each have one address, named once for each path")
        if self.segments and not (self.per_path_sockets and len(self.segments) == len(self.addresses)):
            raise ValueError("segments need a socket for each path, and each path has some")
