"""Spraying: the paths to a peer, how they are named on the wire, and how bursts are divided among them."""

from ipaddress import IPv6Address
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt

from mltswitch.hostagent.endpoint import HostName
from mltswitch.hostagent.spraying.shares import Policy
from mltswitch.wire import ETHERTYPE_IPV4, SourceRoute

MOST_PATHS: Final = 64
"""The most paths between two hosts (MLT_MOST_PATHS of the data plane)."""
FIRST_SOURCE_PORT: Final = 61_000
"""Default first UDP port of the mode `entropy`, above those that Linux hands out (ip_local_port_range)."""
LARGEST_FIRST_SOURCE_PORT: Final = (1 << 16) - MOST_PATHS
LEAST_SOURCE_PORTS: Final = 16
MOST_BURST_PACKETS: Final = 64
"""The most packets of a burst on one path (UDP_MAX_SEGMENTS of Linux before 6.9)."""


def _source_route(ports: tuple[int, ...]) -> tuple[int, ...]:
    return SourceRoute(ports, ETHERTYPE_IPV4).ports  # raises ValueError for one that no header holds


class Spraying(BaseModel):
    """Settings of spraying: how a path is named on the wire, and how bursts are divided among paths."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["alias", "srv6", "entropy", "p4"] | None = None
    """How paths are named; None: the plan's mode, or `alias` (one address where switches choose paths)."""
    policy: Policy = Policy.ROUND_ROBIN
    source_ports: Annotated[int, Field(ge=1, le=MOST_PATHS, strict=True)] | None = None
    """Number of UDP source ports in mode `entropy`, one socket and path each; None: the plan's, else 16."""
    first_source_port: int = Field(default=FIRST_SOURCE_PORT, ge=1, le=LARGEST_FIRST_SOURCE_PORT, strict=True)
    sticky: StrictBool = False
    """In mode `srv6`, whether each socket inserts the header instead of a host route for each address."""
    segments: tuple[tuple[IPv6Address, ...], ...] = Field(default=(), max_length=MOST_PATHS)
    """In mode `srv6`, the segments of each path, without the destination."""
    interface: Annotated[str, Field(pattern=r"^[^\s/]{1,15}$")] | None = None
    """In mode `p4`, the interface from which frames leave."""
    gateway: Annotated[str, Field(pattern=r"^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$")] | None = None
    """In mode `p4`, the MAC address to which frames are sent."""
    routes: dict[HostName, tuple[Annotated[tuple[StrictInt, ...], AfterValidator(_source_route)], ...]] = {}
    """In mode `p4`, the switches' egress ports on each path to a peer; one route stands for every path."""

    @property
    def has_socket_per_path(self) -> bool:
        """Whether each path has a socket of its own, rather than one socket for all paths."""
        return self.mode == "entropy" or (self.mode == "srv6" and self.sticky)

    @property
    def header_bytes(self) -> int:
        """Bytes that the path's name adds to a packet beyond IP and UDP headers, on the longest path."""
        if self.mode == "srv6":
            return max((8 + 16 * (len(path) + 1) for path in self.segments), default=0)  # RFC 8754, section 2
        if self.mode == "p4":
            routes = (route for paths in self.routes.values() for route in paths)
            return max((SourceRoute(route, ETHERTYPE_IPV4).size_bytes for route in routes), default=0)
        return 0
