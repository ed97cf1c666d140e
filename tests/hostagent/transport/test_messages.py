"""Control messages: there and back, however the stream is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.doctor.messages import PREAMBLE
from mltswitch.hostagent.transport.interfaces import Direction, TransferKey
from mltswitch.hostagent.transport.messages import (
    MAXIMUM_MARKED_PATHS,
    Bitmap,
    Cancel,
    Goodbye,
    Hello,
    Message,
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

Number = st.integers(0, (1 << 32) - 1)
Key = st.builds(TransferKey, Number, Number)
Text = st.text(st.characters(codec="ascii"), max_size=300)
Any = st.one_of(
    st.builds(Hello, st.binary(max_size=2000)),
    st.builds(
        Ready,
        Key,
        st.integers(0, 255),
        st.integers(0, (1 << 64) - 1),
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


def test_a_doctor_is_named() -> None:
    with pytest.raises(WireFormatError, match="mltswitch agent doctor speaks there"):
        list(MessageReader().messages(PREAMBLE))
