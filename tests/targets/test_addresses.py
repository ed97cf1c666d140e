"""Addresses are read and written as `ipaddress` does it, whatever the text."""

from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.targets.addresses import address_text, ipv4_address, ipv4_network, network_text

NUMBERS = st.integers(0, 2**32 - 1)
LENGTHS = st.integers(0, 32)
ALMOST = st.text(alphabet="0123456789./ x-+_\u0663\x00\n", max_size=20)
"""Signs of an address, and such as one or the other reader might let pass."""
OCTETS = st.lists(
    st.sampled_from(["0", "00", "01", "1", "10", "255", "256", "0x1", "", " 1", "1_0"]), max_size=5
)
MASKS = st.one_of(
    st.integers(-1, 33).map(str),
    NUMBERS.map(lambda number: str(IPv4Address(number))),
    LENGTHS.map(lambda length: str(IPv4Network((0, length)).netmask)),
    LENGTHS.map(lambda length: str(IPv4Network((0, length)).hostmask)),
    st.sampled_from(["", "08", "+8", "8/8", "\u0663", "255.255.0"]),
)
ADDRESSES = st.one_of(
    NUMBERS.map(lambda number: str(IPv4Address(number))), OCTETS.map(".".join), ALMOST, st.text()
)


def outcome(read: Callable[[], object]) -> tuple[object, ...]:
    """The value, or the kind of error and what it says."""
    try:
        return (read(),)
    except ValueError as error:
        return (type(error), str(error))


@given(ADDRESSES)
def test_an_address_is_read_as_the_standard_library_reads_it(text: str) -> None:
    assert outcome(lambda: ipv4_address(text)) == outcome(lambda: IPv4Address(text))


@given(ADDRESSES, MASKS, st.booleans())
def test_a_prefix_is_read_as_the_standard_library_reads_it(address: str, mask: str, strict: bool) -> None:
    for text in (address, f"{address}/{mask}"):
        found = outcome(lambda text=text: ipv4_network(text, strict=strict))  # type: ignore[misc]  # bound now
        assert found == outcome(lambda text=text: IPv4Network(text, strict))  # type: ignore[misc]  # bound now


@given(NUMBERS, LENGTHS)
def test_texts_are_those_of_the_standard_library(number: int, length: int) -> None:
    address, network = IPv4Address(number), IPv4Network((number, length), strict=False)
    assert address_text(address) == str(address)
    assert network_text(network) == str(network)
    assert ipv4_network(network_text(network)) == network
    assert ipv4_address(address_text(address)) == address


@pytest.mark.parametrize(
    "text", ["10.0.0.01", "10.0.0", "10.0.0.1\n", "10.0.0.1\x00", "\u0661.0.0.1", "\ud800", "0x1.1.1.1"]
)
def test_no_other_form_of_an_address_is_taken(text: str) -> None:
    with pytest.raises(AddressValueError):
        ipv4_address(text)
    with pytest.raises(AddressValueError):
        ipv4_network(f"{text}/32")


def test_host_bits_are_refused_or_dropped() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.1/24 has host bits set"):
        ipv4_network("10.0.0.1/24")
    assert ipv4_network("10.0.0.1/255.255.255.0", strict=False) == IPv4Network("10.0.0.0/24")
