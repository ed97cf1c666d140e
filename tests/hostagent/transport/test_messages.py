"""Control messages: there and back, however the stream is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.doctor.messages import PREAMBLE
from mltswitch.hostagent.errors import ProtocolViolationError
from mltswitch.hostagent.transport.interfaces import Direction, TransferKey
from mltswitch.hostagent.transport.messages import (
    MAXIMUM_MARKED_PATHS,
    Bitmap,
    Cancel,
    Goodbye,
    Hello,
    Message,
    MessageKind,
    MessageReader,
    Ping,
    Pong,
    Probe,
    Ready,
    Reason,
    Stop,
    Stopped,
    encode_message,
)
from mltswitch.wire import WireFormatError
from tests.hostagent.transport.ends import connection

Number = st.integers(0, (1 << 32) - 1)
Key = st.builds(TransferKey, Number, Number)
Text = st.text(st.characters(codec="ascii"), max_size=300)
Any = st.one_of(
    st.builds(Hello, st.binary(max_size=2000)),
    st.builds(
        Ready,
        Key,
        st.integers(0, 255),
        st.integers(1, 1 << 32),
        st.floats(0, 1, exclude_max=True),
        st.none() | st.floats(0, 1),
    ),
    st.builds(
        Probe,
        Key,
        Number,
        Number,
        st.lists(st.integers(0, (1 << 16) - 1), max_size=MAXIMUM_MARKED_PATHS).map(tuple),
    ),
    st.builds(Bitmap, Key, Number, st.binary(max_size=500)),
    st.builds(Stop, Key, Number, Number),
    st.builds(Stopped, Key, Number, Number),
    st.builds(Cancel, Key, st.sampled_from(Direction), st.sampled_from(Reason), Text),
    st.builds(Ping, st.integers(0, (1 << 64) - 1)),
    st.builds(Pong, st.integers(0, (1 << 64) - 1)),
    st.builds(Goodbye, Text),
)


@given(st.lists(Any, max_size=6), st.data())
def test_there_and_back_however_it_is_cut(messages: list[Message], data: st.DataObject) -> None:
    stream = b"".join(map(encode_message, messages))
    reader, found = MessageReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += list(reader.messages(stream[:size]))
        stream = stream[size:]
    assert found == messages
    assert reader.waiting_bytes == 0


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"\xff\xff\xff\xff\x08", "control message ping: 4294967295 bytes"),
        (b"\x00\x00\x00\x00\x08", "0 bytes"),
        (b"220 mail.example ESMTP", r"^no agent speaks there: it says '220 mail\.example ESM' first$"),
        (encode_message(Ping(1)) + b"\x00\x00\x00\x02\x63", "control message: kind 99"),
        (b"\x00\x00\x00\x02\x08\x00", "body of a control message: 1 bytes"),
    ],
)
def test_a_length_is_refused_before_its_body_is_waited_for(start: bytes, message: str) -> None:
    with pytest.raises(WireFormatError, match=message):
        list(MessageReader().messages(start))


HELLO = encode_message(Hello(b"{}"))
HEAD_BYTES = 5


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        (MessageKind.BITMAP, 1 + Bitmap.maximum_bytes),
        (MessageKind.PING, 1 + Ping.maximum_bytes),
        (MessageKind.PROBE, 1 + Probe.maximum_bytes),
        (MessageKind.CANCEL, 0xFFFF_FFFF),
    ],
)
def test_before_a_hello_nothing_else_is_waited_for(kind: MessageKind, length: int) -> None:
    head = length.to_bytes(4, "big") + bytes([kind])
    reader = MessageReader(is_greeted=False)
    assert not list(reader.messages(head[:-1]))
    with pytest.raises(ProtocolViolationError, match=f"hello comes first, not {kind.name.lower()}"):
        list(reader.messages(head[-1:]))
    assert reader.waiting_bytes == HEAD_BYTES


def test_a_stranger_makes_us_keep_no_more_than_a_hello() -> None:
    reader = MessageReader(is_greeted=False)
    longest = encode_message(Hello(bytes(Hello.maximum_bytes)))
    assert not list(reader.messages(longest[:-1]))
    assert reader.waiting_bytes == HEAD_BYTES + Hello.maximum_bytes - 1
    assert list(reader.messages(longest[-1:])) == [Hello(bytes(Hello.maximum_bytes))]
    head = (2 + Hello.maximum_bytes).to_bytes(4, "big") + bytes([MessageKind.HELLO])
    with pytest.raises(WireFormatError, match="at most 65537"):
        list(MessageReader(is_greeted=False).messages(head))


def test_after_the_hello_all_else_is_read() -> None:
    bitmap = Bitmap(TransferKey(1, 2), 3, b"x")
    found = list(MessageReader(is_greeted=False).messages(HELLO + encode_message(bitmap)))
    assert found == [Hello(b"{}"), bitmap]


def test_who_is_refused_before_a_hello_is_told_why() -> None:
    refused = Goodbye("is connected already")
    assert list(MessageReader(is_greeted=False).messages(encode_message(refused))) == [refused]


def test_a_connection_keeps_no_bitmap_of_a_peer_that_has_not_said_hello() -> None:
    one = connection(1)
    one.control_received(encode_message(Bitmap(TransferKey(1, 1), 1, bytes(100)))[:HEAD_BYTES], 1)
    assert one.is_over
    said = b"".join(iter(one.control_to_send, b""))
    assert Goodbye("protocol violation: hello comes first, not bitmap") in MessageReader().messages(said)


def test_a_doctor_is_named() -> None:
    with pytest.raises(WireFormatError, match="mltswitch agent doctor speaks there"):
        list(MessageReader().messages(PREAMBLE))
