"""Packet headers: one definition of each field that hosts, switches and tests share."""

from mltswitch.wire.headers import (
    AGENT_HEADER_BYTES,
    AGENT_PORT,
    AUTHENTICATION_TAG_BYTES,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SOURCE_ROUTE,
    SOURCE_ROUTE_MAXIMUM_HOPS,
    AgentFlag,
    AgentKind,
    ElementType,
)
from mltswitch.wire.source_route import SourceRoute
from mltswitch.wire.tos import CS6, CS7, Dscp, Ecn, TrafficClassByte

__all__ = [
    "AGENT_HEADER_BYTES",
    "AGENT_PORT",
    "AUTHENTICATION_TAG_BYTES",
    "CS6",
    "CS7",
    "ETHERTYPE_IPV4",
    "ETHERTYPE_IPV6",
    "ETHERTYPE_SOURCE_ROUTE",
    "SOURCE_ROUTE_MAXIMUM_HOPS",
    "AgentFlag",
    "AgentKind",
    "Dscp",
    "Ecn",
    "ElementType",
    "SourceRoute",
    "TrafficClassByte",
]
