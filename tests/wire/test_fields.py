"""The definitions are sound, and numbers lie on the wire where they say."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmv2_tests.received import WireFormatError, decode_fields
from mltswitch.wire.fields import Field, Header
from mltswitch.wire.headers import AGENT, HEADERS, HOP

MAXIMUM_FIELD_BITS = 64
"""The widest number that P4 targets, Wireshark and `struct` all read as one."""


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_a_definition_is_sound(header: Header) -> None:
    names = [field.name for field in header.fields]
    assert len({*names}) == len(names)
    assert 8 * header.size_bytes == sum(field.bits for field in header.fields)
    for offset_bits, field in header.with_offsets():
        assert 1 <= field.bits <= MAXIMUM_FIELD_BITS
        assert -(-(offset_bits % 8 + field.bits) // 8) in {1, 2, 3, 4, 8}  # bytes that Wireshark reads as one
        numbers = [value.number for value in (*field.values, *field.flags)]
        assert len({*numbers}) == len(numbers)
        assert all(0 <= number <= field.maximum for number in numbers)
        assert all(flag.number.bit_count() == 1 for flag in field.flags)


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
def test_bits_stand_in_network_order(data: st.DataObject) -> None:
    header = data.draw(st.one_of(st.sampled_from(HEADERS), headers()))
    numbers = data.draw(numbers_of(header))
    encoded = header.encode(numbers)
    text = "".join(f"{number:0{f.bits}b}" for f, number in zip(header.fields, numbers, strict=True))
    assert "".join(f"{byte:08b}" for byte in encoded) == text
    assert decode_fields(header, b"before" + encoded + b"after", len(b"before")) == numbers
    with pytest.raises(WireFormatError, match=f"expected {header.size_bytes} bytes"):
        decode_fields(header, encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(numbers_of(AGENT))
def test_a_struct_says_the_same(numbers: tuple[int, ...]) -> None:
    assert struct.pack("!BBBBQIIHHIIQ", *numbers) == AGENT.encode(numbers)


@given(st.data())
def test_numbers_that_do_not_fit(data: st.DataObject) -> None:
    header = data.draw(st.sampled_from(HEADERS))
    numbers = list(data.draw(numbers_of(header)))
    place = data.draw(st.integers(0, len(numbers) - 1))
    field = header.fields[place]
    numbers[place] = data.draw(st.one_of(st.integers(max_value=-1), st.integers(min_value=field.maximum + 1)))
    with pytest.raises(ValueError, match=rf"{header.name}\.{field.name}: .* outside 0-{field.maximum}"):
        header.encode(numbers)


def test_a_number_for_every_field() -> None:
    with pytest.raises(ValueError, match="shorter"):
        HOP.encode((1,))


def test_offsets_and_labels() -> None:
    header = Header("h", "H", "", (Field("a", 1, ""), Field("long_name", 15, ""), Field("c", 64, "")))
    assert [(at, field.label) for at, field in header.with_offsets()] == [
        (0, "A"),
        (1, "Long name"),
        (16, "C"),
    ]
    assert header.field("c").maximum == 2**64 - 1
