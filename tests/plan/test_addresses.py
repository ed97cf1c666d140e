from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.plan.addresses import address_at, prefix_at

NUMBERS = st.integers(0, 2**32 - 1)


@given(NUMBERS, st.integers(0, 32))
def test_they_are_what_ipaddress_makes_and_one_object(number: int, length: int) -> None:
    first = number >> (32 - length) << (32 - length)
    assert address_at(number) == IPv4Address(number)
    assert prefix_at(first, length) == IPv4Network((first, length))
    assert address_at(number) is address_at(number)
    assert prefix_at(first, length) is prefix_at(first, length)


def test_refused() -> None:
    for number, length in ((1, 24), (2**32, 32), (0, 33), (-1, 32)):
        with pytest.raises(ValueError, match=r"."):
            prefix_at(number, length)
    with pytest.raises(ValueError, match=r"."):
        address_at(2**32)
