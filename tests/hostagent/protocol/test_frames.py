"""Frames of the control channel: whatever is written can be read, and whatever comes is read or refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.errors import ProtocolViolationError
from mltswitch.hostagent.protocol.frames import (
    MOST_FRAME_BYTES,
    ChannelOffer,
    Frame,
    Goodbye,
    Hello,
    OpenChannel,
    TransportFrame,
    body_bytes,
    decoded,
    encoded,
    is_channel_name,
    text,
)

OFFER = ChannelOffer(transport="mlt", parameters={"key": "secret", "token": 2**63, "deep": [1, {"x": None}]})
FRAMES: list[Frame] = [
    Hello(
        versions=(1, 2), name="worker", software="x 1", capabilities=("a", "b"), channels={"default": OFFER}
    ),
    OpenChannel(name="weights:1", offer=OFFER),
    TransportFrame(channel="default", body={"ready": [1, 2]}),
    Goodbye(code="busy", reason="Grüße"),
    Goodbye(),
]


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_comes_back(frame: Frame) -> None:
    whole = encoded(frame)
    assert body_bytes(whole[:4]) == len(whole) - 4
    assert decoded(whole[4:]) == frame
    assert "secret" not in repr(frame)


@pytest.mark.parametrize("size", [0, MOST_FRAME_BYTES + 1, 2**32 - 1])
def test_lengths_that_cannot_be(size: int) -> None:
    with pytest.raises(ProtocolViolationError, match=f"{size} bytes"):
        body_bytes(size.to_bytes(4, "big"))
    assert body_bytes((100).to_bytes(4, "big"), 100) == 100


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"7" * 5000, "no JSON|without a type"),
        (b"null", "without a type"),
        (b'{"type": null}', "without a type"),
        (b'{"type": "hello"}', "type hello.versions: "),
        (b'{"type": "goodbye", "reason": 5}', "type goodbye.reason: "),
        (
            b'{"type": "hello", "versions": [2], "name": "a", "channels": {"\\u001b": 1}}',
            r"hello.channels.\?",
        ),
        (
            b'{"type": "channel", "name": "a b", "offer": {"transport": "mlt", "parameters": {}}}',
            "channel.name",
        ),
        (b'{"type": "goodbye", "reason": "' + b"x" * 301 + b'"}', "goodbye.reason"),
    ],
)
def test_what_is_no_frame(body: bytes, message: str) -> None:
    with pytest.raises(ProtocolViolationError, match=message) as raised:
        decoded(body)
    assert str(raised.value).isprintable()


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        frame = decoded(body)
    except ProtocolViolationError:
        return
    assert frame is None or decoded(encoded(frame)[4:]) == frame


@given(st.text(max_size=400))
def test_reasons_fit_into_a_frame(reason: str) -> None:
    said = text(reason)
    assert said.isprintable()
    assert len(said) <= 300
    assert decoded(encoded(Goodbye(reason=said))[4:]) == Goodbye(reason=said)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("default", True), ("a.b_c:1-2", True), ("", False), ("-a", False), ("a\n", False), ("ä", False)],
)
def test_names_of_channels(name: str, is_one: bool) -> None:
    assert is_channel_name(name) is is_one
    body: dict[str, Any] = {"name": name, "offer": OFFER}
    if is_one:
        assert OpenChannel(**body).name == name
