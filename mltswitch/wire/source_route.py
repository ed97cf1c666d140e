"""Encoding of the source-route header by the sending host."""

from dataclasses import dataclass

from mltswitch.wire.headers import HOP, SOURCE_ROUTE, SOURCE_ROUTE_MAXIMUM_HOPS, SOURCE_ROUTE_VERSION


@dataclass(frozen=True, slots=True)
class SourceRoute:
    """A path's egress ports, switch by switch; raises ValueError for a route that no header can hold."""

    ports: tuple[int, ...]
    ether_type: int
    """EtherType of the packet behind the route."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.ports) <= SOURCE_ROUTE_MAXIMUM_HOPS:
            raise ValueError(f"{len(self.ports)} hops; expected 1-{SOURCE_ROUTE_MAXIMUM_HOPS}")
        maximum = HOP.field("port").maximum
        if any(not 0 <= port <= maximum for port in self.ports):
            raise ValueError(f"a port of {self.ports} is outside 0-{maximum}")
        if self.ether_type not in {value.number for value in SOURCE_ROUTE.field("ether_type").values}:
            raise ValueError(f"EtherType 0x{self.ether_type:04x} cannot follow a source route")

    @property
    def size_bytes(self) -> int:
        """Length of the encoded route on the wire, in bytes."""
        return SOURCE_ROUTE.size_bytes + len(self.ports) * HOP.size_bytes

    def encode(self) -> bytes:
        """The encoded route: the bytes between EtherType 0x88B5 and the IP packet."""
        final = len(self.ports) - 1
        hops = (HOP.encode((number == final, port)) for number, port in enumerate(self.ports))
        return SOURCE_ROUTE.encode((SOURCE_ROUTE_VERSION, 0, self.ether_type)) + b"".join(hops)
