"""How one host's agent is set up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from math import inf
from types import MappingProxyType, UnionType
from typing import Final

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.hostagent.arguments import agent_name, endpoint_given
from mltswitch.hostagent.control.security import Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.spraying.modes import ByAddress, BySegments, BySourcePort, BySourceRoute, Spray
from mltswitch.hostagent.spraying.settings import SprayingSettings
from mltswitch.hostagent.tagging.two_queues import TwoQueues
from mltswitch.hostagent.tcp.settings import TcpSettings
from mltswitch.hostagent.telemetry.events import Observer
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_PAYLOAD_BYTES
from mltswitch.hostagent.transport.hello import LEAST_PAYLOAD_BYTES, MAXIMUM_PATHS
from mltswitch.hostagent.transport.rate import RateSettings
from mltswitch.hostagent.transport.settings import ConnectionSettings, Transport
from mltswitch.hostagent.values import (
    check_numbers,
    check_types,
    choice,
    in_order,
    real,
    shown,
    whole_number,
)
from mltswitch.wire import AGENT_PORT, Dscp
from mltswitch.wire.tos import DSCP_COUNT

DEFAULT_PAYLOAD_BYTES: Final = 1_472
"""Of UDP over IPv4 in Ethernet's 1,500 bytes."""
DEFAULT_NAP_SECONDS: Final = 0.001
DEFAULT_BUFFER_BYTES: Final = 32 << 20
MOST_PEERS: Final = 3840
"""A listener keeps more channels by 256, those of strangers."""
LONGEST_NAP_SECONDS: Final = 1.0
"""Timers wait meanwhile."""
LARGEST_PORT: Final = 65_535
_LARGEST_INTEGER: Final = (1 << 31) - 1
"""Of the kernel's options."""
_WHOLE_NUMBERS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "control_dscp": (0, DSCP_COUNT - 1),
        "data_port": (0, LARGEST_PORT),
        "payload_bytes": (LEAST_PAYLOAD_BYTES, UDP_MAXIMUM_PAYLOAD_BYTES),
        "buffer_bytes": (1, _LARGEST_INTEGER),
        "expected_peers": (1, _LARGEST_INTEGER),
        "maximum_peers": (1, MOST_PEERS),
    }
)
_TYPES: Final[Mapping[str, type | UnionType]] = MappingProxyType(
    {
        "security": Security,
        "rate": RateSettings,
        "spray": Spray,
        "two_queues": TwoQueues | None,
        "authenticate": bool,
        "tcp": TcpSettings,
        "connection": ConnectionSettings,
        "spraying": SprayingSettings,
        "catch_reuse": bool,
    }
)
_BROADCAST: Final = IPv4Address("255.255.255.255")
_ONE_OR_MORE: Final = ("handshake_ns", "least_chunk_packets", "maximum_tensors")
"""Of a connection's settings, where with 0 nothing would ever be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Of one agent; what is not given suits one data centre.

    Raises ValueError for contradictions, UserInputError for what is of another type than its field, no
    address of one host, no name that peers accept, or no number that can work.
    """

    name: str
    """This host's, as its certificate says it; 1 to 255 letters."""
    addresses: tuple[str, ...]
    """Local addresses of the data, one a path, up to 256; a list becomes a tuple."""
    security: Security
    rate: RateSettings
    """Per peer."""
    control_dscp: Dscp
    """Of the plan's control class."""
    listen: Endpoint | None = None
    """Where peers reach the control channel; None: they do not, we connect to them."""
    data_port: int = AGENT_PORT
    """0: any free one, which peers are told."""
    spray: Spray = field(default_factory=ByAddress)
    """How paths are named. With a socket for each path they have the ports `data_port`, `data_port` + 1, …;
    source ports and source routes begin at one address, named once for each path."""
    payload_bytes: int = DEFAULT_PAYLOAD_BYTES
    """Longest UDP payload that the path carries, 64 to 65,507; less where an interface's MTU leaves less."""
    total_rate_bps: float | None = None
    """For all peers together, who share it evenly; None: each has its own rate alone."""
    two_queues: TwoQueues | None = None
    """Gives their code points to tensors that are posted without one, by what is on its way."""
    authenticate: bool = False
    """A tag on every datagram."""
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    """Of each socket, in each direction, as far as the kernel grants it."""
    expected_peers: int = 1
    """Who may send at the same time: each gets its part of the receive buffer."""
    nap_seconds: float = DEFAULT_NAP_SECONDS
    """Rest at most so long while many packets arrive, so that the next batch is worth its calls; 0: none. Up
    to 1."""
    transport: Transport = Transport.MLT
    """How tensors cross; a peer that uses another one is refused. Its name will do, too."""
    tcp: TcpSettings = field(default_factory=TcpSettings)
    """Of that transport."""
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    spraying: SprayingSettings = field(default_factory=SprayingSettings)
    catch_reuse: bool = False
    """Find out whether a tensor changed while it was being sent; reads it twice."""
    admit: Callable[[str], str | None] | None = None
    """Asked for each peer that calls, by its name, in the agent's thread: why it is refused; None, or an
    empty text: it is not. A peer that we call ourselves needs no leave."""
    maximum_peers: int = 1024
    """Connected at once, up to 3,840; more are refused, for each takes memory here."""
    observers: tuple[Observer, ...] = ()
    """Are told what the agent does, from its beginning; `Agent.observe` adds others. A list becomes a
    tuple."""

    def address_of_version(self, version: int) -> str | None:
        """The first address of this version of IP, if there is one."""
        found = (address for address in self.addresses if Endpoint(address, 0).ip.version == version)
        return next(found, None)

    def __post_init__(self) -> None:
        for name in ("authenticate", "catch_reuse"):
            if isinstance(getattr(self, name), np.bool_):  # as numbers may be numpy's
                object.__setattr__(self, name, bool(getattr(self, name)))
        check_types(self, _TYPES)
        object.__setattr__(self, "transport", choice("transport", self.transport, Transport))
        if self.listen is not None:
            endpoint_given("listen", self.listen)
        self._check_addresses()
        self._check_name_and_numbers()
        self._check_observers()
        if self.admit is not None and not callable(self.admit):
            raise ValueError("`admit` is a function of a peer's name")
        if isinstance(self.spray, BySourcePort | BySourceRoute) and len(set(self.addresses)) > 1:
            raise ValueError(
                "paths by source port or source route have one address, named once for each path"
            )
        if isinstance(self.spray, BySegments) and len(self.spray.segments) != len(self.addresses):
            raise ValueError(f"{len(self.spray.segments)} segment lists of {len(self.addresses)} paths")
        if isinstance(self.spray, BySourceRoute) and ":" in self.addresses[0]:
            raise ValueError("source routes stand before IPv4")
        if self.transport is Transport.TCP and not (
            isinstance(self.spray, ByAddress) and self.total_rate_bps is None
        ):
            raise ValueError("over TCP there is no spraying, and no rate but the kernel's")
        if self.per_path_sockets and self.data_port + len(self.addresses) - 1 > LARGEST_PORT:
            raise ValueError(
                f"{len(self.addresses)} paths have ports from {self.data_port} on, beyond {LARGEST_PORT}"
            )

    def _check_addresses(self) -> None:
        addresses = in_order("addresses", self.addresses)
        object.__setattr__(self, "addresses", addresses)
        if not addresses:
            raise ValueError("an agent needs an address")
        if len(addresses) > MAXIMUM_PATHS:
            raise UserInputError(
                f"{len(addresses)} of them", where="addresses", expected=f"{MAXIMUM_PATHS} or fewer"
            )
        for address in addresses:
            if not isinstance(address, str):
                raise UserInputError(
                    f"{shown(address)} is no address", where="addresses", expected="IP addresses, as text"
                )
            found = Endpoint(address, 0).ip
            if found.is_unspecified:
                raise ValueError(f"{address} means all networks of this machine; expected one address a path")
            if found.is_multicast or found == _BROADCAST:
                raise UserInputError(
                    f"{shown(address)} means several hosts",
                    where="addresses",
                    expected="addresses of this host",
                )

    def _check_observers(self) -> None:
        observers = in_order("observers", self.observers)
        object.__setattr__(self, "observers", observers)
        for observer in observers:
            if not callable(getattr(observer, "observe", None)):
                raise UserInputError(
                    f"{shown(observer)} cannot be told", where="observers", expected="what has `observe`"
                )

    def _check_name_and_numbers(self) -> None:
        """What the engine, the kernel and the peer, who hears some of it in our HELLO, take for granted."""
        object.__setattr__(self, "name", agent_name("name", self.name))
        for name, (least, most) in _WHOLE_NUMBERS.items():
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least, most))
        nap = real(self.nap_seconds)
        if nap is None or not 0 <= nap <= LONGEST_NAP_SECONDS:
            raise UserInputError(
                f"{shown(self.nap_seconds)} is no rest",
                where="nap_seconds",
                expected=f"seconds, 0 to {LONGEST_NAP_SECONDS:g}",
            )
        rate = None if self.total_rate_bps is None else real(self.total_rate_bps)
        if self.total_rate_bps is not None and (rate is None or not 0 < rate < inf):
            raise ValueError(
                f"a rate of {shown(self.total_rate_bps)} bit/s for all peers; expected more than 0"
            )
        for name in ("rate", "tcp", "connection", "spraying", "spray"):
            check_numbers(name, getattr(self, name), _ONE_OR_MORE)

    @property
    def per_path_sockets(self) -> bool:
        """Whether each path has a socket of its own."""
        return isinstance(self.spray, BySegments | BySourcePort)

    @property
    def segments(self) -> tuple[tuple[str, ...], ...]:
        """IPv6 segments that each path's socket names (mode `srv6`, sticky); else none."""
        return self.spray.segments if isinstance(self.spray, BySegments) else ()
