"""The bytes of data connections: there and back, and as the page has them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.tcp.frames import (
    FRAME,
    FRAME_HEADER_BYTES,
    OPENING,
    OPENING_BYTES,
    FrameHeader,
    encode_opening,
    is_for,
    is_genuine,
    is_whole,
)
from mltswitch.hostagent.transport.interfaces import TransferKey
from mltswitch.wire import WireFormatError
from mltswitch.wire.tables import header_tables

PAGE = Path(__file__).parents[3] / "docs" / "wire-format.md"
Number = st.integers(0, (1 << 32) - 1)
Token = st.integers(0, (1 << 64) - 1)
Key = st.none() | st.binary(min_size=32, max_size=32)


def test_the_page_has_both_headers() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for header in (OPENING, FRAME):
        assert header_tables(header) in page


@given(st.builds(FrameHeader, st.builds(TransferKey, Number, Number), Token, Number))
def test_headers_there_and_back(header: FrameHeader) -> None:
    encoded = header.encode()
    assert len(encoded) == FRAME_HEADER_BYTES
    assert FrameHeader.decode(encoded) == header
    assert FrameHeader.decode(memoryview(encoded)) == header


def test_a_header_byte_by_byte() -> None:
    header = FrameHeader(TransferKey(0x01020304, 0x05060708), 0x090A0B0C0D0E0F10, 0x11121314)
    assert header.encode() == bytes(range(1, 21))


def test_an_opening_byte_by_byte() -> None:
    assert encode_opening(0x0102030405060708, None) == bytes([1, 0, 0, 0, *range(1, 9)]) + bytes(16)


@given(Token, Token, Key, Key)
def test_an_opening_is_for_one_token_and_of_one_key(
    token: int, other: int, key: bytes | None, false: bytes | None
) -> None:
    opening = encode_opening(token, key)
    assert len(opening) == OPENING_BYTES
    assert is_for(opening, token)
    assert is_for(opening, other) == (token == other)
    assert is_genuine(opening, key)
    assert is_genuine(opening, false) == (key == false)


@given(Token, st.binary(min_size=32, max_size=32), st.integers(0, 8 * OPENING_BYTES - 1))
def test_no_bit_of_an_opening_may_change(token: int, key: bytes, bit: int) -> None:
    changed = bytearray(encode_opening(token, key))
    changed[bit // 8] ^= 1 << bit % 8
    assert not (is_for(bytes(changed), token) and is_genuine(bytes(changed), key))


def test_end_marks() -> None:
    assert is_whole(1)
    assert not is_whole(0)
    with pytest.raises(WireFormatError, match="end mark 255"):
        is_whole(255)
