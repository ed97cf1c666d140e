"""MAC addresses by rule."""

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.wire.hardware_address import address_of, hardware_address


@given(st.ip_addresses(v=4))
def test_an_address_is_found_again(address: IPv4Address) -> None:
    mac = hardware_address(address)
    assert address_of(mac) == address
    first = int(mac[:2], 16)
    assert first & 2, "locally administered"
    assert not first & 1, "one station's"


@pytest.mark.parametrize(
    "mac", ["02:4e:0a:14:00:02", "02:4D:0a:14:00:02", "02:4d:0a:14:00", "02:4d:0a:14:00:02\n", ""]
)
def test_another_one_belongs_to_no_address(mac: str) -> None:
    assert address_of(mac) is None
