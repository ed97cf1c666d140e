"""Any header, any numbers: encoded and decoded they are the same, and bits lie where the definition says."""

import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mltswitch.wire import WireFormatError
from mltswitch.wire.codec import decode_fields, encode_fields, struct_of
from mltswitch.wire.fields import Field, Header
from mltswitch.wire.headers import AGENT, HEADERS, HOP


@st.composite
def headers(draw: st.DrawFn) -> Header:
    """Any definition; a last field fills the byte."""
    widths = draw(st.lists(st.integers(1, 64), min_size=1, max_size=12))
    rest = -sum(widths) % 8
    fields = tuple(Field(f"f{n}", bits, "") for n, bits in enumerate([*widths, *([rest] if rest else [])]))
    return Header("any", "Any", "", fields)


def numbers_of(header: Header) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(
        *(st.one_of(st.sampled_from([0, f.maximum]), st.integers(0, f.maximum)) for f in header.fields)
    )


@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    header = data.draw(st.one_of(st.sampled_from(HEADERS), headers()))
    numbers = data.draw(numbers_of(header))
    before, after = data.draw(st.binary(max_size=9)), data.draw(st.binary(max_size=9))
    encoded = encode_fields(header, numbers)
    assert len(encoded) == header.size_bytes
    assert decode_fields(header, before + encoded + after, len(before)) == numbers


@given(st.data())
def test_bits_stand_in_network_order(data: st.DataObject) -> None:
    header = data.draw(headers())
    numbers = data.draw(numbers_of(header))
    text = "".join(f"{number:0{f.bits}b}" for f, number in zip(header.fields, numbers, strict=True))
    assert "".join(f"{byte:08b}" for byte in encode_fields(header, numbers)) == text


@given(numbers_of(AGENT))
def test_a_struct_says_the_same(numbers: tuple[int, ...]) -> None:
    assert struct_of(AGENT).pack(*numbers) == encode_fields(AGENT, numbers)
    assert struct_of(AGENT).size == struct.calcsize("!BBBBQIIHHIIQ")


def test_no_struct_has_fifteen_bits() -> None:
    with pytest.raises(ValueError, match="last, port"):
        struct_of(HOP)


@given(st.data())
def test_numbers_that_do_not_fit(data: st.DataObject) -> None:
    header = data.draw(st.sampled_from(HEADERS))
    numbers = list(data.draw(numbers_of(header)))
    place = data.draw(st.integers(0, len(numbers) - 1))
    field = header.fields[place]
    numbers[place] = data.draw(st.one_of(st.integers(max_value=-1), st.integers(min_value=field.maximum + 1)))
    with pytest.raises(ValueError, match=rf"{header.name}\.{field.name}: .* outside 0-{field.maximum}"):
        encode_fields(header, numbers)


def test_a_number_for_every_field() -> None:
    with pytest.raises(ValueError, match="shorter"):
        encode_fields(HOP, (1,))


@given(st.sampled_from(HEADERS), st.binary(max_size=50), st.integers(0, 60))
def test_short_data(header: Header, data: bytes, offset: int) -> None:
    assume(len(data) - offset < header.size_bytes)
    with pytest.raises(WireFormatError, match=f"expected {header.size_bytes} bytes"):
        decode_fields(header, data, offset)
