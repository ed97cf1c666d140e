"""Our headers as scapy layers, made from their definition and bound to Ethernet, 802.1Q and UDP.

`Ether() / SourceRoute() / Hop(port=3) / Hop(port=1) / IP() / UDP() / Agent(tensor=7) / payload`: whatever is
not given follows from the definition and from the layers behind (`last`, `ether_type`); whatever is given is
sent, right or wrong.
"""

from typing import Any, ClassVar

from scapy.fields import BitEnumField, BitField, FlagsField
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw, bind_layers

from mltswitch.wire import (
    AGENT_PORT,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SOURCE_ROUTE,
    AgentKind,
    ElementType,
)
from mltswitch.wire.fields import Field, Header
from mltswitch.wire.headers import AGENT, AGENT_VERSION, HOP, SOURCE_ROUTE, SOURCE_ROUTE_VERSION

CARRIED = {IP: ETHERTYPE_IPV4, IPv6: ETHERTYPE_IPV6}
"""Layer behind a source route → its EtherType."""


def fields_of(header: Header, **defaults: int | None) -> list[Any]:
    """scapy's fields of a header; 0 is sent for those without a default."""
    return [_field(field, defaults.get(field.name, 0)) for field in header.fields]


def _field(field: Field, default: int | None) -> Any:
    if field.flags:
        names = {flag.number: flag.name for flag in field.flags}
        return FlagsField(field.name, default, field.bits, names)
    if field.values:
        names = {value.number: value.name for value in field.values}
        return BitEnumField(field.name, default, field.bits, names)
    return BitField(field.name, default, field.bits)


class Hop(Packet):
    """One hop; `last` is 1 where no other hop follows."""

    name = HOP.title
    fields_desc: ClassVar[list[Any]] = fields_of(HOP, last=None)

    def self_build(self) -> bytes:
        if self.last is not None:
            return super().self_build()
        complete = self.copy()
        complete.last = int(not isinstance(self.payload, Hop))
        return complete.self_build()

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        if not self.last:
            return Hop
        below: Any = self.underlayer
        while isinstance(below, Hop):
            below = below.underlayer
        ether_type = below.ether_type if isinstance(below, SourceRoute) else None
        return next((layer for layer, number in CARRIED.items() if number == ether_type), Raw)


class SourceRoute(Packet):
    """What stands before the hops; `ether_type` is that of the layer behind them."""

    name = SOURCE_ROUTE.title
    fields_desc: ClassVar[list[Any]] = fields_of(SOURCE_ROUTE, version=SOURCE_ROUTE_VERSION, ether_type=None)

    def self_build(self) -> bytes:
        if self.ether_type is not None:
            return super().self_build()
        behind: Any = self.payload
        while isinstance(behind, Hop):
            behind = behind.payload
        complete = self.copy()
        complete.ether_type = CARRIED.get(type(behind), 0)
        return complete.self_build()

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        return Hop


class Agent(Packet):
    """The header of host agents; the payload is raw bytes."""

    name = AGENT.title
    fields_desc: ClassVar[list[Any]] = fields_of(
        AGENT, version=AGENT_VERSION, kind=AgentKind.DATA, element_type=ElementType.FLOAT32
    )


bind_layers(Ether, SourceRoute, type=ETHERTYPE_SOURCE_ROUTE)
bind_layers(Dot1Q, SourceRoute, type=ETHERTYPE_SOURCE_ROUTE)
bind_layers(UDP, Agent, dport=AGENT_PORT)
