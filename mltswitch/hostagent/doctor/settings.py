"""What an examination is about: the paths of this host, and what its job wants of them."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.settings import DEFAULT_BUFFER_BYTES, DEFAULT_PAYLOAD_BYTES, AgentSettings
from mltswitch.hostagent.spraying.modes import ByAddress, BySourceRoute, segment_header_bytes
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_PAYLOAD_BYTES
from mltswitch.wire import AGENT_PORT
from mltswitch.wire.internet import ip_udp_bytes
from mltswitch.wire.tos import DSCP_COUNT

ALL_DSCP: Final = tuple(range(DSCP_COUNT))
SEGMENTS_MODE: Final = "srv6"
SOURCE_ROUTE_MODE: Final = "p4"
MAXIMUM_PATHS: Final = 64
"""As many as an agent sprays over to one peer; each has a socket here."""


@dataclass(frozen=True, slots=True)
class LocalPath:
    """This host's end of a path; its place in the list is the path's number."""

    address: str
    port: int = AGENT_PORT
    """Local UDP port; 0: any."""
    segments: tuple[str, ...] = ()
    """IPv6 segments that the socket's header names (mode `srv6`), without the peer's own."""
    inserted_bytes: int = 0
    """Of headers that the host's own routes insert (mode `srv6`)."""

    @property
    def header_bytes(self) -> int:
        """What a packet has beside its UDP payload: IP, UDP and the segments."""
        return ip_udp_bytes(self.address) + segment_header_bytes(len(self.segments)) + self.inserted_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSettings:
    """Of one end; raises UserInputError for what no agent could run with."""

    name: str
    paths: tuple[LocalPath, ...] = ()
    mode: str = ""
    """The plan's spray mode; empty: not known."""
    payload_bytes: int = DEFAULT_PAYLOAD_BYTES
    """UDP payload that the job sends."""
    buffer_bytes: int = DEFAULT_BUFFER_BYTES
    """Socket buffer that the job wants."""
    dscp: tuple[int, ...] = ALL_DSCP
    """Examined on every path."""

    def __post_init__(self) -> None:
        """Nothing here is asked of the machine."""
        if not 1 <= self.payload_bytes <= UDP_MAXIMUM_PAYLOAD_BYTES:
            raise UserInputError(
                f"{self.payload_bytes} bytes of payload", expected=f"1-{UDP_MAXIMUM_PAYLOAD_BYTES}"
            )
        if len(self.paths) > MAXIMUM_PATHS:
            raise UserInputError(f"{len(self.paths)} paths", expected=f"{MAXIMUM_PATHS} or fewer")
        if not self.dscp or not set(self.dscp) <= set(ALL_DSCP):
            raise UserInputError("cannot be examined", where="dscp", expected=f"some of 0-{DSCP_COUNT - 1}")
        for path in self.paths:
            try:
                ip_address(path.address)
            except ValueError as error:
                raise UserInputError(str(error), where="local address") from None


def paths_of(settings: AgentSettings) -> tuple[LocalPath, ...]:
    """An agent's ends of its paths, with the ports and headers that it would open.

    Source routes are in frames that no datagram of ours is in: of such paths there is one, by the address.
    """
    if isinstance(settings.spray, BySourceRoute):
        return (LocalPath(settings.addresses[0], settings.data_port),)
    inserted_bytes = settings.spray.header_bytes if isinstance(settings.spray, ByAddress) else 0
    segments = settings.segments or ((),) * len(settings.addresses)
    spread = settings.per_path_sockets and settings.data_port > 0
    return tuple(
        LocalPath(address, settings.data_port + (number if spread else 0), segments[number], inserted_bytes)
        for number, address in enumerate(settings.addresses)
    )
