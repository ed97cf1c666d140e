"""The agent header and the source route: round trips, boundaries, and bytes from anybody."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.wire import (
    AGENT_HEADER_BYTES,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SOURCE_ROUTE,
    SOURCE_ROUTE_MAXIMUM_HOPS,
    AgentFlag,
    AgentHeader,
    AgentKind,
    ElementType,
    SourceRoute,
    WireFormatError,
)
from mltswitch.wire.codec import encode_fields
from mltswitch.wire.fields import Field
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
ANYBODYS = st.builds(
    bytes.__add__,
    st.sampled_from([b"", b"\x02", b"\x01\x00\x08\x00", b"\x01\x00\x86\xdd" + b"\x00\x05" * 6]),
    st.binary(max_size=60),
)


@pytest.mark.parametrize(("header", "expected"), EXAMPLES)
def test_an_example_by_hand(header: AgentHeader | SourceRoute, expected: str) -> None:
    assert header.encode() == bytes.fromhex(expected)


@given(st.one_of(any_header, any_route), st.binary(max_size=100))
def test_round_trip(header: AgentHeader | SourceRoute, payload: bytes) -> None:
    encoded = header.encode()
    if isinstance(header, AgentHeader):
        assert len(encoded) == AGENT_HEADER_BYTES
        assert encoded == encode_fields(AGENT, (AGENT_VERSION, *header))
    else:
        assert len(encoded) == header.size_bytes == 4 + 2 * len(header.ports)
    for received in (encoded + payload, bytearray(encoded + payload), memoryview(encoded + payload)):
        assert type(header).decode(received) == header


@given(st.one_of(any_header, any_route), st.data())
def test_cut_anywhere(header: AgentHeader | SourceRoute, data: st.DataObject) -> None:
    encoded = header.encode()
    with pytest.raises(WireFormatError, match="bytes or more"):
        type(header).decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@pytest.mark.parametrize("kind", [AgentHeader, SourceRoute])
@given(data=ANYBODYS)
def test_bytes_from_anybody(kind: Any, data: bytes) -> None:
    try:
        header = kind.decode(data)
    except WireFormatError as error:
        assert any(name in str(error) for name in ("agent header", "source route", "hop"))
        assert kind is SourceRoute or len(data) < AGENT_HEADER_BYTES or data[0] != AGENT_VERSION
    else:  # of a route the second byte is reserved
        encoded, skipped = header.encode(), 2 * (kind is SourceRoute)
        assert encoded[skipped:] == data[skipped : len(encoded)]


@pytest.mark.parametrize(
    ("header", "expected", "versions"),
    [(ZERO, 2, (0, 1, 255)), (SourceRoute((1,), ETHERTYPE_IPV4), 1, (0, 2, 255))],
)
def test_unknown_versions(header: Any, expected: int, versions: tuple[int, ...]) -> None:
    for version in versions:
        with pytest.raises(WireFormatError, match=rf"version {version} \(expected {expected}\)"):
            type(header).decode(bytes([version]) + header.encode()[1:])


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_boundaries_of_every_field(field: Field) -> None:
    for number in (0, 1, field.maximum - 1, field.maximum):
        header = ZERO._replace(**{field.name: number})
        assert AgentHeader.decode(header.encode()) == header
    for number in (-1, field.maximum + 1):
        with pytest.raises(ValueError, match="agent header"):
            ZERO._replace(**{field.name: number}).encode()


@given(any_route, st.integers(1, 255))
def test_what_is_reserved_is_not_looked_at(route: SourceRoute, reserved: int) -> None:
    encoded = route.encode()
    assert encoded[1] == 0
    assert SourceRoute.decode(encoded[:1] + bytes([reserved]) + encoded[2:]) == route


def test_no_hop_is_the_last() -> None:
    head = b"\x01\x00\x08\x00"
    with pytest.raises(WireFormatError, match=r"no hop is the last \(expected 8 hops or fewer\)"):
        SourceRoute.decode(head + b"\x00\x01" * 9)
    assert len(SourceRoute.decode(head + b"\x00\x01" * 7 + b"\x80\x01").ports) == 8


@pytest.mark.parametrize("ether_type", [0, ETHERTYPE_SOURCE_ROUTE, 0xFFFF])
def test_only_ip_follows(ether_type: int) -> None:
    with pytest.raises(WireFormatError, match=rf"EtherType 0x{ether_type:04x} \(expected IPv4 or IPv6\)"):
        SourceRoute.decode(b"\x01\x00" + ether_type.to_bytes(2, "big") + b"\x80\x01")
    with pytest.raises(ValueError, match="cannot follow"):
        SourceRoute((1,), ether_type)


@pytest.mark.parametrize("ports", [(), (1,) * 9, (-1,), (2**15,)])
def test_routes_that_no_header_holds(ports: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected 1-8|outside 0-32767"):
        SourceRoute(ports, ETHERTYPE_IPV4)
