"""How an agent names its paths on the wire: one type for each way to do it (docs/agent-paths.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mltswitch.wire import ETHERTYPE_IPV4, SourceRoute

SEGMENT_HEADER_BYTES: Final = 8
SEGMENT_BYTES: Final = 16
"""RFC 8754, section 2; the destination is a segment, too."""


def segment_header_bytes(segments: int) -> int:
    """Length of a segment routing header with so many segments before the destination; 0 without any."""
    return SEGMENT_HEADER_BYTES + SEGMENT_BYTES * (segments + 1) if segments else 0


@dataclass(frozen=True, slots=True)
class ByAddress:
    """A destination address a path: `alias`, `packet`, and `srv6` where routes of the host insert the header.

    One socket for all paths.
    """

    segments: int = 0
    """Mode `srv6`: how many the host's routes insert before the destination."""

    @property
    def header_bytes(self) -> int:
        """What a packet is longer on its way than IP and UDP make it."""
        return segment_header_bytes(self.segments)


@dataclass(frozen=True, slots=True)
class BySegments:
    """A socket a path, each with the segment list that all its packets carry: `srv6`, sticky."""

    segments: tuple[tuple[str, ...], ...]
    """IPv6 segments of each path, without the destination: the same to every peer."""

    def __post_init__(self) -> None:
        if not self.segments or not all(self.segments):
            raise ValueError("each path has segments")

    @property
    def header_bytes(self) -> int:
        """What a packet is longer on its way than IP and UDP make it, on the path with most segments."""
        return segment_header_bytes(max(map(len, self.segments)))


@dataclass(frozen=True, slots=True)
class BySourcePort:
    """A socket a path, each with a port of its own, which switches hash: `entropy`."""

    @property
    def header_bytes(self) -> int:
        """Nothing is added."""
        return 0


@dataclass(frozen=True, slots=True)
class BySourceRoute:
    """Whole Ethernet frames with the egress port of every switch: `p4`; needs CAP_NET_RAW, IPv4 alone.

    Raises ValueError for routes that no header can hold.
    """

    interface: str
    """That frames leave from."""
    gateway: str
    """MAC address that frames go to: the first switch's, or any other that is no group's."""
    routes: Mapping[str, tuple[tuple[int, ...], ...]]
    """Peer → for each path the egress ports of the switches, in order. A peer with one route has it on every
    path."""

    def __post_init__(self) -> None:
        if not self.routes or not all(self.routes.values()):
            raise ValueError("each peer has a source route")
        for routes in self.routes.values():
            for ports in routes:
                SourceRoute(ports, ETHERTYPE_IPV4)
        words = self.gateway.split(":")
        if len(words) != 6 or not all(len(word) == 2 and _is_hexadecimal(word) for word in words):
            raise ValueError(f"{self.gateway} is no MAC address")
        if int(words[0], 16) & 1:
            raise ValueError(f"{self.gateway} is the address of a group, which switches refuse")

    @property
    def header_bytes(self) -> int:
        """What a packet is longer on its way than IP and UDP make it, by the longest route."""
        longest = max((ports for routes in self.routes.values() for ports in routes), key=len)
        return SourceRoute(longest, ETHERTYPE_IPV4).size_bytes


Spray = ByAddress | BySegments | BySourcePort | BySourceRoute


def _is_hexadecimal(word: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in word)
