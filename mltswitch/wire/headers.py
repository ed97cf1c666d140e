"""The source-route and agent headers, the source of codecs, P4, Wireshark, scapy and docs/wire-format.md.

**Source route**: the path of a packet through P4 switches, between Ethernet (or one 802.1Q tag) and IP. Its
EtherType is the first of the two that IEEE Std 802 sets aside for experiments within one administration; it
must not leave the fabric. **Agent**: what a host agent puts before each piece of a tensor, in UDP.
"""

from collections.abc import Mapping
from enum import IntEnum, IntFlag
from typing import Any, Final

from mltswitch.wire.fields import Field, Header, Value

ETHERTYPE_SOURCE_ROUTE: Final = 0x88B5
"""EtherType of the source-route header: Local Experimental EtherType 1 (IEEE Std 802)."""
ETHERTYPE_IPV4: Final = 0x0800
ETHERTYPE_IPV6: Final = 0x86DD
SOURCE_ROUTE_VERSION: Final = 1
SOURCE_ROUTE_MAXIMUM_HOPS: Final = 8

AGENT_PORT: Final = 18515
"""UDP destination port of packets between host agents.

IANA assigns it to no service (its neighbour 18516/udp is taken), and it lies below the ports that Linux
hands out by itself. RDMA's perftest listens there on TCP, which does not meet UDP.
"""
AGENT_VERSION: Final = 2
PIECE_PACKETS: Final = 128
"""How many packets of a tensor one piece of an acknowledgement bitmap covers."""
AUTHENTICATION_TAG_BYTES: Final = 16
"""Length in bytes of a packet's authentication tag: AES-128-GMAC (NIST SP 800-38D)."""


class AgentKind(IntEnum):
    """Kinds of agent packets, as numbered in the agent header."""

    DATA = 1
    ACKNOWLEDGEMENT = 2
    PROBE = 3
    CONTROL = 4
    SELECTIVE = 5


class AgentFlag(IntFlag):
    """Bits of the agent header's flags."""

    IMPORTANT = 1
    LAST = 2
    RETRANSMISSION = 4
    AUTHENTICATED = 8


class ControlMessage(IntEnum):
    """Types of the messages that agents' control packets carry."""

    READY = 1
    STATUS_REQUEST = 2
    BITMAP = 3
    STOP = 4
    STOPPED = 5
    CANCEL = 6
    USER = 7
    USER_CREDIT = 8
    REGISTER = 11


class ElementType(IntEnum):
    """Data types of a tensor's elements, as numbered on the wire."""

    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    FLOAT64 = 4
    INT8 = 5
    INT16 = 6
    INT32 = 7
    INT64 = 8
    BYTES = 9
    """Bytes of any meaning, or elements of a type that has no number in this enumeration."""

    @property
    def size_bytes(self) -> int:
        """Size of one element in bytes."""
        return ELEMENT_BYTES[self]


ELEMENT_BYTES: Final = {
    ElementType.FLOAT32: 4,
    ElementType.FLOAT16: 2,
    ElementType.BFLOAT16: 2,
    ElementType.FLOAT64: 8,
    ElementType.INT8: 1,
    ElementType.INT16: 2,
    ElementType.INT32: 4,
    ElementType.INT64: 8,
    ElementType.BYTES: 1,
}


def _named(meanings: Mapping[Any, str]) -> tuple[Value, ...]:
    return tuple(Value(int(member), member.name.lower(), text) for member, text in meanings.items())


SOURCE_ROUTE: Final = Header(
    name="source_route",
    title="Source route",
    meaning="before the stack of hops",
    fields=(
        Field("version", 8, f"{SOURCE_ROUTE_VERSION}; switches drop what has another"),
        Field("reserved", 8, "sent as 0, not looked at"),
        Field(
            "ether_type",
            16,
            "EtherType of what follows the last hop; the switch that pops that hop restores it",
            values=(
                Value(ETHERTYPE_IPV4, "ipv4", "an IPv4 packet"),
                Value(ETHERTYPE_IPV6, "ipv6", "an IPv6 packet"),
            ),
            is_hexadecimal=True,
        ),
    ),
)

HOP: Final = Header(
    name="hop",
    title="Hop",
    meaning=f"1 to {SOURCE_ROUTE_MAXIMUM_HOPS} of them, in the order of the switches",
    fields=(
        Field("last", 1, "1 on the last hop of the stack, 0 on those before it"),
        Field("port", 15, "egress port of the switch that pops this hop"),
    ),
)

AGENT: Final = Header(
    name="agent",
    title="Agent header",
    meaning="at the start of the UDP payload",
    fields=(
        Field("version", 8, f"{AGENT_VERSION}; receivers drop what has another"),
        Field(
            "kind",
            8,
            "what the packet is; receivers drop kinds that they do not know",
            values=_named(
                {
                    AgentKind.DATA: "elements of a tensor follow",
                    AgentKind.ACKNOWLEDGEMENT: "what has arrived",
                    AgentKind.PROBE: "asks for an answer, to measure a path or to end what was sent on it",
                    AgentKind.CONTROL: "messages about transfers, or what has arrived of them",
                    AgentKind.SELECTIVE: "what has arrived, and which packets these are",
                }
            ),
        ),
        Field(
            "flags",
            8,
            "bits; those without a name are sent as 0 and not looked at",
            flags=_named(
                {
                    AgentFlag.IMPORTANT: "sent ECN-capable, so that switches mark it where they drop others",
                    AgentFlag.LAST: "the last packet of the tensor in this round",
                    AgentFlag.RETRANSMISSION: "has been sent before",
                    AgentFlag.AUTHENTICATED: f"a {AUTHENTICATION_TAG_BYTES}-byte tag follows the payload",
                }
            ),
            is_hexadecimal=True,
        ),
        Field(
            "element_type",
            8,
            "type of the tensor's elements",
            values=_named({entry: f"{size * 8} bits" for entry, size in ELEMENT_BYTES.items()}),
        ),
        Field("flow_token", 64, "random number of the flow, from its set-up", is_hexadecimal=True),
        Field("tensor", 32, "number of the tensor within the flow"),
        Field("round", 32, "training step, or another exchange of the same tensor"),
        Field("layer", 16, "number of the layer that the tensor belongs to, in forward order"),
        Field("path", 16, "number of the path that the sender chose"),
        Field("sequence", 32, "number of the packet within the tensor"),
        Field("element_offset", 32, "the tensor's element that comes first in this packet, in elements"),
        Field(
            "sent_nanoseconds",
            64,
            "when it was sent, by the sender's monotonic clock; each packet of a flow has a higher one",
        ),
    ),
)

AGENT_HEADER_BYTES: Final = AGENT.size_bytes

ACKNOWLEDGEMENT: Final = Header(
    name="acknowledgement",
    title="Acknowledgement",
    meaning="behind the agent header of an acknowledgement of either kind, whose `path` it speaks of",
    fields=(
        Field(
            "echoed_nanoseconds",
            64,
            "`sent_nanoseconds` of the packet that was sent last among those that have arrived on this path",
        ),
        Field("held_nanoseconds", 32, "time between that packet's arrival and this acknowledgement"),
        Field(
            "received_packets", 32, "packets that have arrived on this path since the flow began, modulo 2³²"
        ),
        Field("marked_packets", 32, "those of them that carried CE, modulo 2³²"),
    ),
)

PIECE: Final = Header(
    name="piece",
    title="Piece of a bitmap",
    meaning="behind the acknowledgement in a selective one, as many as there are",
    fields=(
        Field("tensor", 32, "number of the tensor within the flow"),
        Field("round", 32, "of the tensor"),
        Field("number", 32, f"of the piece: its first packet is number · {PIECE_PACKETS}"),
        Field("first_bits", 64, "a bit for each of its first 64 packets, as in bitmaps", is_hexadecimal=True),
        Field("last_bits", 64, "the same of its last 64 packets", is_hexadecimal=True),
    ),
)

MESSAGE: Final = Header(
    name="message",
    title="Control message",
    meaning="behind the agent header of a control packet, any number of them, each before its body",
    fields=(
        Field(
            "type",
            8,
            "what it says",
            values=_named(
                {
                    ControlMessage.READY: "the receiver has memory for a tensor",
                    ControlMessage.STATUS_REQUEST: "the sender has ended a pass, and asks what has arrived",
                    ControlMessage.BITMAP: "a piece of what has arrived",
                    ControlMessage.STOP: "the receiver has ended",
                    ControlMessage.STOPPED: "the sender knows that, and sends no more",
                    ControlMessage.CANCEL: "either end has given up",
                    ControlMessage.USER: "bytes of the user's",
                    ControlMessage.USER_CREDIT: "how many such bytes may have been sent in all",
                    ControlMessage.REGISTER: "the count of important packets, and what the network bears",
                }
            ),
        ),
        Field(
            "flags",
            8,
            "bits; those without a name are sent as 0 and not looked at",
            flags=(Value(1, "required", "a receiver that does not know the type ends the flow"),),
            is_hexadecimal=True,
        ),
        Field("length", 16, "of the body, in bytes"),
    ),
)

HEADERS: Final = (SOURCE_ROUTE, HOP, AGENT, ACKNOWLEDGEMENT, PIECE, MESSAGE)
