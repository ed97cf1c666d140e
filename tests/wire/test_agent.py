"""The agent header: round trips, boundaries of every field, and bytes from anybody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import MltswitchError
from mltswitch.wire import AGENT_HEADER_BYTES, AgentFlag, AgentHeader, AgentKind, ElementType, WireFormatError
from mltswitch.wire.codec import encode_fields
from mltswitch.wire.headers import AGENT, AGENT_VERSION

FIELDS = AGENT.fields[1:]
ZERO = AgentHeader(*(0 for _ in FIELDS))
any_header = st.builds(AgentHeader, *(st.integers(0, field.maximum) for field in FIELDS))


def test_an_example_by_hand() -> None:
    header = AgentHeader(
        kind=AgentKind.DATA,
        flags=AgentFlag.IMPORTANT | AgentFlag.AUTHENTICATED,
        element_type=ElementType.BFLOAT16,
        flow_token=0x1122334455667788,
        tensor=7,
        round=2,
        layer=3,
        path=0xABCD,
        sequence=5,
        element_offset=0x1000,
        sent_nanoseconds=1_000_000_000,
    )
    assert header.encode().hex(" ", 4) == (
        "02010903 11223344 55667788 00000007 00000002 0003abcd 00000005 00001000 00000000 3b9aca00"
    )


@given(any_header, st.binary(max_size=100))
def test_round_trip(header: AgentHeader, payload: bytes) -> None:
    encoded = header.encode()
    assert len(encoded) == AGENT_HEADER_BYTES
    assert encoded == encode_fields(AGENT, (AGENT_VERSION, *header))
    for received in (encoded + payload, bytearray(encoded + payload), memoryview(encoded + payload)):
        assert AgentHeader.decode(received) == header


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_boundaries_of_every_field(field: object) -> None:
    found = next(entry for entry in FIELDS if entry == field)
    for number in (0, 1, found.maximum - 1, found.maximum):
        header = ZERO._replace(**{found.name: number})
        assert AgentHeader.decode(header.encode()) == header
    for number in (-1, found.maximum + 1):
        with pytest.raises(ValueError, match="agent header"):
            ZERO._replace(**{found.name: number}).encode()


@given(st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda tail: b"\x02" + tail)))
def test_bytes_from_anybody(data: bytes) -> None:
    try:
        header = AgentHeader.decode(data)
    except WireFormatError as error:
        assert isinstance(error, MltswitchError)
        assert len(data) < AGENT_HEADER_BYTES or data[0] != AGENT_VERSION
        assert "agent header" in str(error)
    else:
        assert header.encode() == data[:AGENT_HEADER_BYTES]


@given(any_header, st.integers(0, AGENT_HEADER_BYTES - 1))
def test_cut_anywhere(header: AgentHeader, size: int) -> None:
    with pytest.raises(WireFormatError, match=rf"{size} bytes \(expected 40 bytes or more\)"):
        AgentHeader.decode(header.encode()[:size])


@pytest.mark.parametrize("version", [0, 1, 255])
def test_unknown_versions(version: int) -> None:
    with pytest.raises(WireFormatError, match=rf"version {version} \(expected 2\)"):
        AgentHeader.decode(bytes([version]) + ZERO.encode()[1:])
