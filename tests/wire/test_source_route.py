"""The source route: round trips, boundaries, and bytes from anybody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.wire import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SOURCE_ROUTE,
    SOURCE_ROUTE_MAXIMUM_HOPS,
    SourceRoute,
    WireFormatError,
)

ports = st.one_of(st.sampled_from([0, 1, 2**15 - 1]), st.integers(0, 2**15 - 1))
any_route = st.builds(
    SourceRoute,
    st.lists(ports, min_size=1, max_size=SOURCE_ROUTE_MAXIMUM_HOPS).map(tuple),
    st.sampled_from([ETHERTYPE_IPV4, ETHERTYPE_IPV6]),
)


def test_an_example_by_hand() -> None:
    assert SourceRoute((3, 0x7FFF), ETHERTYPE_IPV6).encode().hex(" ", 2) == "0100 86dd 0003 ffff"


@given(any_route, st.binary(max_size=40))
def test_round_trip(route: SourceRoute, packet: bytes) -> None:
    encoded = route.encode()
    assert len(encoded) == route.size_bytes == 4 + 2 * len(route.ports)
    assert SourceRoute.decode(encoded + packet) == route


@given(any_route, st.integers(1, 255))
def test_what_is_reserved_is_not_looked_at(route: SourceRoute, reserved: int) -> None:
    encoded = route.encode()
    assert encoded[1] == 0
    assert SourceRoute.decode(encoded[:1] + bytes([reserved]) + encoded[2:]) == route


@given(any_route, st.data())
def test_cut_anywhere(route: SourceRoute, data: st.DataObject) -> None:
    encoded = route.encode()
    with pytest.raises(WireFormatError, match="bytes or more"):
        SourceRoute.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(
    st.one_of(
        st.binary(max_size=30),
        st.binary(max_size=30).map(lambda tail: b"\x01\x00\x08\x00" + tail),
        st.binary(max_size=9).map(lambda tail: b"\x01\x00\x86\xdd" + b"\x00\x05" * 6 + tail),
    )
)
def test_bytes_from_anybody(data: bytes) -> None:
    try:
        route = SourceRoute.decode(data)
    except WireFormatError as error:
        assert "source route" in str(error) or "hop" in str(error)
    else:
        assert route.encode()[2:] == data[2 : route.size_bytes]


def test_no_hop_is_the_last() -> None:
    head = b"\x01\x00\x08\x00"
    with pytest.raises(WireFormatError, match=r"no hop is the last \(expected 8 hops or fewer\)"):
        SourceRoute.decode(head + b"\x00\x01" * 9)
    assert len(SourceRoute.decode(head + b"\x00\x01" * 7 + b"\x80\x01").ports) == 8


@pytest.mark.parametrize("version", [0, 2, 255])
def test_unknown_versions(version: int) -> None:
    with pytest.raises(WireFormatError, match=rf"version {version} \(expected 1\)"):
        SourceRoute.decode(bytes([version]) + SourceRoute((1,), ETHERTYPE_IPV4).encode()[1:])


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
