"""The agent header and the source route: examples by hand, round trips, and routes that cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmv2_tests.received import AgentHeader, source_route
from mltswitch.wire import (
    AGENT_HEADER_BYTES,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SOURCE_ROUTE,
    SOURCE_ROUTE_MAXIMUM_HOPS,
    AgentFlag,
    AgentKind,
    ElementType,
    SourceRoute,
)
from mltswitch.wire.headers import AGENT, AGENT_VERSION

FIELDS = AGENT.fields[1:]
ZERO = AgentHeader(*(0 for _ in FIELDS))
any_header = st.builds(AgentHeader, *(st.integers(0, field.maximum) for field in FIELDS))
any_route = st.builds(
    SourceRoute,
    st.lists(
        st.one_of(st.sampled_from([0, 1, 2**15 - 1]), st.integers(0, 2**15 - 1)),
        min_size=1,
        max_size=SOURCE_ROUTE_MAXIMUM_HOPS,
    ).map(tuple),
    st.sampled_from([ETHERTYPE_IPV4, ETHERTYPE_IPV6]),
)
EXAMPLES: list[tuple[AgentHeader | SourceRoute, str]] = [
    (
        AgentHeader(
            kind=AgentKind.DATA,
            flags=AgentFlag.IMPORTANT | AgentFlag.AUTHENTICATED,
            element_type=ElementType.BFLOAT16,
            flow_token=0x1122334455667788,
            tensor=7,
            round=2,
            layer=3,
            path=0xABCD,
            sequence=5,
            element_offset=0x1000,
            sent_nanoseconds=1_000_000_000,
        ),
        "02010903 11223344 55667788 00000007 00000002 0003abcd 00000005 00001000 00000000 3b9aca00",
    ),
    (SourceRoute((3, 0x7FFF), ETHERTYPE_IPV6), "010086dd 0003ffff"),
]


@pytest.mark.parametrize(("header", "expected"), EXAMPLES)
def test_an_example_by_hand(header: AgentHeader | SourceRoute, expected: str) -> None:
    assert header.encode() == bytes.fromhex(expected)


@given(st.one_of(any_header, any_route), st.binary(max_size=100))
def test_round_trip(header: AgentHeader | SourceRoute, payload: bytes) -> None:
    encoded = header.encode()
    if isinstance(header, AgentHeader):
        assert len(encoded) == AGENT_HEADER_BYTES
        assert encoded == AGENT.encode((AGENT_VERSION, *header))
    else:
        assert len(encoded) == header.size_bytes == 4 + 2 * len(header.ports)
    decode = AgentHeader.decode if isinstance(header, AgentHeader) else source_route
    assert decode(encoded + payload) == header


@pytest.mark.parametrize("ether_type", [0, ETHERTYPE_SOURCE_ROUTE, 0xFFFF])
def test_only_ip_follows(ether_type: int) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        SourceRoute((1,), ether_type)


@pytest.mark.parametrize("ports", [(), (1,) * 9, (-1,), (2**15,)])
def test_routes_that_no_header_holds(ports: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected 1-8|outside 0-32767"):
        SourceRoute(ports, ETHERTYPE_IPV4)
