"""Spraying: the paths to a peer, what names them on the wire, and how bursts are divided."""

from ipaddress import IPv6Address
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt

from mltswitch.hostagent.endpoint import HostName
from mltswitch.hostagent.spraying.shares import Policy
from mltswitch.wire import ETHERTYPE_IPV4, SourceRoute

MOST_PATHS: Final = 64
"""Between two hosts (MLT_MOST_PATHS of the data plane)."""
FIRST_SOURCE_PORT: Final = 61_000
"""Of the mode `entropy`: Linux hands out 32768 to 60999 by itself (ip_local_port_range)."""
LARGEST_FIRST_SOURCE_PORT: Final = (1 << 16) - MOST_PATHS
LEAST_SOURCE_PORTS: Final = 16
MOST_BURST_PACKETS: Final = 64
"""Of one path (UDP_MAX_SEGMENTS of Linux before 6.9)."""


def _source_route(ports: tuple[int, ...]) -> tuple[int, ...]:
    return SourceRoute(ports, ETHERTYPE_IPV4).ports  # raises ValueError for one that no header holds


class Spraying(BaseModel):
    """How a path is named on the wire, and how bursts are divided among paths."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["alias", "srv6", "entropy", "p4"] | None = None
    """None: the plan's, else `alias`. Where the switches choose, it is `alias` with one address."""
    policy: Policy = Policy.ROUND_ROBIN
    source_ports: Annotated[int, Field(ge=1, le=MOST_PATHS, strict=True)] | None = None
    """`entropy`: how many, each a path with a socket of its own; by default 16, or the plan's."""
    first_source_port: int = Field(default=FIRST_SOURCE_PORT, ge=1, le=LARGEST_FIRST_SOURCE_PORT, strict=True)
    sticky: StrictBool = False
    """`srv6`: a header for each socket instead of a route of the host for each address."""
    segments: tuple[tuple[IPv6Address, ...], ...] = Field(default=(), max_length=MOST_PATHS)
    """`srv6`: of each path, without the destination."""
    interface: Annotated[str, Field(pattern=r"^[^\s/]{1,15}$")] | None = None
    """`p4`: that frames leave from."""
    gateway: Annotated[str, Field(pattern=r"^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$")] | None = None
    """`p4`: MAC address that frames go to."""
    routes: dict[HostName, tuple[Annotated[tuple[StrictInt, ...], AfterValidator(_source_route)], ...]] = {}
    """`p4`: for each path to a peer the egress ports of the switches; one route stands for every path."""

    @property
    def has_socket_per_path(self) -> bool:
        """Else one socket carries all paths."""
        return self.mode == "entropy" or (self.mode == "srv6" and self.sticky)

    @property
    def header_bytes(self) -> int:
        """What a packet is longer on its way than IP and UDP make it, on the longest path."""
        if self.mode == "srv6":
            return max((8 + 16 * (len(path) + 1) for path in self.segments), default=0)  # RFC 8754, section 2
        if self.mode == "p4":
            routes = (route for paths in self.routes.values() for route in paths)
            return max((SourceRoute(route, ETHERTYPE_IPV4).size_bytes for route in routes), default=0)
        return 0
