"""The codec: everything that is said is heard, however it is cut; nothing else is, and nothing grows."""

import struct
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mltswitch.hostagent.doctor.datagrams import Datagram, Kind, decode
from mltswitch.hostagent.doctor.findings import Status
from mltswitch.hostagent.doctor.messages import (
    LEAST_PAYLOAD_BYTES,
    MAXIMUM_MESSAGE_BYTES,
    MAXIMUM_RUN_DATAGRAMS,
    PREAMBLE,
    Decoder,
    Expect,
    Findings,
    Finish,
    Finished,
    Hello,
    Message,
    PathEnd,
    PathSeen,
    PathSent,
    Ready,
    Refuse,
    RefusedSize,
    Run,
    Seen,
    Sent,
    ToldFinding,
    Transmit,
    cut,
    encode,
)
from mltswitch.hostagent.errors import PeerRefusedError, ProtocolViolationError

RUN = Run(number=3, paths=(0, 2), traffic_bytes=(0, 255), payload_bytes=(64, 1472), copies=2, is_echoed=True)
REFUSED = RefusedSize(payload_bytes=1472, error=90, count=2)
MESSAGES: list[Message] = [
    Hello(
        name="host1",
        token=f"{0x123456789ABCDEF:016x}",
        paths=(
            PathEnd(address="10.0.0.1", port=1, mtu_bytes=1500),
            PathEnd(address="fd00::1", port=2, mtu_bytes=9000),
        ),
    ),
    Findings(findings=(ToldFinding(subject="clock", status=Status.OK, seen="runs", remedy="none"),)),
    Expect(run=RUN),
    Transmit(run=RUN),
    Ready(number=3),
    Sent(number=3, paths=(PathSent(path=0, sent=8, refused=(REFUSED,)),)),
    Seen(
        number=3,
        paths=(
            PathSeen(path=0, arrived=8, doubled=1, misdirected=0, traffic_bytes=((0, 0, 4), (255, 0, 4)),
                     sizes=((64, 4), (1472, 4)), dropped_by_host=0),
        ),
    ),
    Finish(),
    Finished(elapsed_ns=10**9, clock_change_ns=-5, ignored_datagrams=1),
    Refuse(reason="no"),
]  # fmt: skip
STREAM = PREAMBLE + b"".join(map(encode, MESSAGES))


@settings(max_examples=60)
@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
@example(list(range(len(STREAM))))
def test_messages_arrive_however_they_are_cut(cuts: list[int]) -> None:
    decoder = Decoder("peer")
    places = [0, *sorted(cuts), len(STREAM)]
    heard = [message for first, last in pairwise(places) for message in decoder.feed(STREAM[first:last])]
    assert heard == MESSAGES


@settings(max_examples=300)
@given(st.binary(max_size=400), st.booleans())
def test_anything_else_is_an_error_and_no_crash(data: bytes, is_greeted: bool) -> None:
    try:
        Decoder("peer").feed((PREAMBLE if is_greeted else b"") + data)
    except (PeerRefusedError, ProtocolViolationError):
        pass
    else:
        # Too short to be judged: the beginning of a preamble, or of a message.
        assert (
            len(data) < 4 or int.from_bytes(data[:4], "big") > len(data) - 4 or PREAMBLE.startswith(data[:8])
        )


@settings(max_examples=300)
@given(st.integers(0, len(STREAM) - 1), st.integers(1, 255))
def test_a_changed_byte_is_heard_as_an_error_or_a_message(place: int, change: int) -> None:
    changed = bytearray(STREAM)
    changed[place] ^= change
    try:
        heard = Decoder("peer").feed(bytes(changed))
    except (PeerRefusedError, ProtocolViolationError):
        return
    assert len(heard) <= len(MESSAGES)


def test_what_is_too_long_is_refused_before_it_has_come() -> None:
    with pytest.raises(ProtocolViolationError, match="a message of"):
        Decoder("peer").feed(PREAMBLE + struct.pack("!I", MAXIMUM_MESSAGE_BYTES + 1))


def test_an_agent_and_another_release_are_told_apart() -> None:
    with pytest.raises(PeerRefusedError, match="is an agent, and no doctor: start mltswitch agent doctor"):
        Decoder("peer").feed(b"\x00")
    with pytest.raises(PeerRefusedError, match=r"is neither .* something else, which says '220 mail.*\\\\r"):
        Decoder("peer").feed(b"220 mail\r\n\x1b[2J")
    with pytest.raises(PeerRefusedError, match="speaks version 7, ours 1"):
        Decoder("peer").feed(PREAMBLE[:-2] + b"\x00\x07")


def test_what_a_peer_says_steers_no_terminal() -> None:
    body = encode(Refuse(reason="x")).replace(b'"x"', b'"\\u001b[2J\\nboo"')
    (heard,) = Decoder("peer").feed(PREAMBLE + (len(body) - 4).to_bytes(4, "big") + body[4:])
    assert isinstance(heard, Refuse)
    assert heard.reason == "\\x1b[2J\\nboo"


def test_whatever_is_cut_is_heard() -> None:
    said = Refuse(reason=cut("\x1b" * 1000))
    assert Decoder("peer").feed(PREAMBLE + encode(said)) == [said]


@pytest.mark.parametrize(
    "change",
    [
        {"copies": MAXIMUM_RUN_DATAGRAMS // 8 + 1},
        {"copies": 500, "payload_bytes": (65_507,)},
        {"copies": 0},
        {"paths": (1, 1)},
        {"paths": ()},
        {"paths": (64,)},
        {"traffic_bytes": (256,)},
        {"payload_bytes": (LEAST_PAYLOAD_BYTES - 1,)},
        {"payload_bytes": (65_508,)},
        {"number": 0},
        {"number": "3"},
        {"surprise": 1},
    ],
)
def test_runs_are_bounded(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Run.model_validate(RUN.model_dump() | change)


@settings(max_examples=60)
@given(
    st.sampled_from(Kind),
    st.integers(0, 255),
    st.integers(0, 63),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**63),
    st.integers(LEAST_PAYLOAD_BYTES, 1500),
)
def test_datagrams(
    kind: Kind, byte: int, path: int, token: int, number: int, time_ns: int, size: int
) -> None:
    datagram = Datagram(kind, byte, path, token, number, number, time_ns, time_ns, time_ns)
    data = datagram.encode(size)
    assert len(data) == size
    assert decode(data, token) == datagram
    assert decode(data, token ^ 1) is None
    assert decode(data[: LEAST_PAYLOAD_BYTES - 1], token) is None


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_no_garbage_is_a_datagram(data: bytes) -> None:
    assert decode(data, 0) is None or data.startswith(b"mltd\x01")
