"""The source route as hosts write it and tests read it."""

from dataclasses import dataclass

from mltswitch.wire.codec import Received, WireFormatError, decode_fields, encode_fields
from mltswitch.wire.headers import HOP, SOURCE_ROUTE, SOURCE_ROUTE_MAXIMUM_HOPS, SOURCE_ROUTE_VERSION


@dataclass(frozen=True, slots=True)
class SourceRoute:
    """Egress ports in the order of the switches; raises ValueError for a route that no header can hold."""

    ports: tuple[int, ...]
    ether_type: int
    """EtherType of the packet behind the route."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.ports) <= SOURCE_ROUTE_MAXIMUM_HOPS:
            raise ValueError(f"{len(self.ports)} hops; expected 1-{SOURCE_ROUTE_MAXIMUM_HOPS}")
        maximum = HOP.field("port").maximum
        if any(not 0 <= port <= maximum for port in self.ports):
            raise ValueError(f"a port of {self.ports} is outside 0-{maximum}")
        if not _is_carried(self.ether_type):
            raise ValueError(f"EtherType 0x{self.ether_type:04x} cannot follow a source route")

    @property
    def size_bytes(self) -> int:
        """Length on the wire."""
        return SOURCE_ROUTE.size_bytes + len(self.ports) * HOP.size_bytes

    def encode(self) -> bytes:
        """The bytes between EtherType 0x88B5 and the IP packet."""
        final = len(self.ports) - 1
        hops = (encode_fields(HOP, (number == final, port)) for number, port in enumerate(self.ports))
        return encode_fields(SOURCE_ROUTE, (SOURCE_ROUTE_VERSION, 0, self.ether_type)) + b"".join(hops)

    @classmethod
    def decode(cls, data: Received) -> "SourceRoute":
        """The route that the data begins with.

        Raises WireFormatError where the data ends early, the version or the EtherType is unknown, or the hop
        numbered `SOURCE_ROUTE_MAXIMUM_HOPS` is not the last.
        """
        version, _, ether_type = decode_fields(SOURCE_ROUTE, data)
        if version != SOURCE_ROUTE_VERSION:
            raise WireFormatError(
                f"version {version}", where="source route", expected=f"{SOURCE_ROUTE_VERSION}"
            )
        if not _is_carried(ether_type):
            raise WireFormatError(
                f"EtherType 0x{ether_type:04x}", where="source route", expected="IPv4 or IPv6"
            )
        ports = []
        for number in range(SOURCE_ROUTE_MAXIMUM_HOPS):
            last, port = decode_fields(HOP, data, SOURCE_ROUTE.size_bytes + number * HOP.size_bytes)
            ports.append(port)
            if last:
                return cls(tuple(ports), ether_type)
        raise WireFormatError(
            "no hop is the last", where="source route", expected=f"{SOURCE_ROUTE_MAXIMUM_HOPS} hops or fewer"
        )


def _is_carried(ether_type: int) -> bool:
    return any(value.number == ether_type for value in SOURCE_ROUTE.field("ether_type").values)
