"""All 256 values of the DSCP/ECN byte."""

import pytest

from mltswitch.wire import Ecn, TrafficClassByte


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_survives(byte: int) -> None:
    split = TrafficClassByte.from_int(byte)
    assert int(split) == byte
    assert (split.dscp, split.ecn) == (byte // 4, byte % 4)


def test_capable_code_points() -> None:
    assert [code for code in Ecn if code.is_capable] == [Ecn.ECT_1, Ecn.ECT_0, Ecn.CE]


@pytest.mark.parametrize("byte", [-1, 256])
def test_more_than_a_byte(byte: int) -> None:
    with pytest.raises(ValueError, match="not one byte"):
        TrafficClassByte.from_int(byte)


def test_dscp_has_six_bits() -> None:
    with pytest.raises(ValueError, match="outside 0-63"):
        TrafficClassByte(64, Ecn.NOT_ECT)
