"""Our headers as a receiver reads them, by their definition: what tests compare switches and agents with."""

from typing import NamedTuple

from mltswitch.errors import MltswitchError
from mltswitch.wire import SOURCE_ROUTE_MAXIMUM_HOPS, SourceRoute
from mltswitch.wire.fields import Header
from mltswitch.wire.headers import AGENT, AGENT_VERSION, HOP, SOURCE_ROUTE, SOURCE_ROUTE_VERSION

Received = bytes | bytearray | memoryview


class WireFormatError(MltswitchError):
    """Bytes that came from the network are no packet of ours."""


def decode_fields(header: Header, data: Received, offset_bytes: int = 0) -> tuple[int, ...]:
    """The numbers of one header, in its order; raises WireFormatError where the data ends early."""
    part = data[offset_bytes : offset_bytes + header.size_bytes]
    if len(part) < header.size_bytes:
        raise WireFormatError(
            f"{len(part)} bytes", where=header.title.lower(), expected=f"{header.size_bytes} bytes or more"
        )
    word, size_bits = int.from_bytes(part, "big"), 8 * header.size_bytes
    return tuple(
        word >> size_bits - offset_bits - field.bits & field.maximum
        for offset_bits, field in header.with_offsets()
    )


class AgentHeader(NamedTuple):
    """All fields of the agent header but its version."""

    kind: int
    flags: int
    element_type: int
    flow_token: int
    tensor: int
    round: int
    layer: int
    path: int
    sequence: int
    element_offset: int
    sent_nanoseconds: int

    def encode(self) -> bytes:
        return AGENT.encode((AGENT_VERSION, *self))

    @classmethod
    def decode(cls, data: Received) -> "AgentHeader":
        """The header that a UDP payload begins with; raises WireFormatError."""
        version, *numbers = decode_fields(AGENT, data)
        if version != AGENT_VERSION:
            raise WireFormatError(f"version {version}", where="agent header", expected=f"{AGENT_VERSION}")
        return cls(*numbers)


def source_route(data: Received) -> SourceRoute:
    """The route that the data begins with; raises WireFormatError."""
    version, _, ether_type = decode_fields(SOURCE_ROUTE, data)
    if version != SOURCE_ROUTE_VERSION:
        raise WireFormatError(f"version {version}", where="source route", expected=f"{SOURCE_ROUTE_VERSION}")
    return SourceRoute(hops(data, SOURCE_ROUTE.size_bytes), ether_type)


def hops(data: Received, offset_bytes: int) -> tuple[int, ...]:
    """The ports of the stack of hops that begins there; raises WireFormatError where none is the last."""
    ports: list[int] = []
    last = 0
    while not last:
        if len(ports) == SOURCE_ROUTE_MAXIMUM_HOPS:
            raise WireFormatError("no hop is the last", where="source route")
        last, port = decode_fields(HOP, data, offset_bytes + len(ports) * HOP.size_bytes)
        ports.append(port)
    return tuple(ports)
