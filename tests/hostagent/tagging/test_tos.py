"""All 256 values of the DSCP/ECN byte, from the sender's side and from the receiver's."""

from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging import (
    are_important,
    checked_dscp,
    congestion_marked,
    is_congestion_marked,
    is_important,
    tos,
    tos_bytes,
)
from mltswitch.wire import CS6, CS7, Ecn, TrafficClassByte

USABLE = [dscp for dscp in range(64) if dscp not in (CS6, CS7)]


@pytest.mark.parametrize("byte", range(256))
def test_every_byte(byte: int) -> None:
    dscp, ecn = divmod(byte, 4)
    assert is_important(byte) == (ecn != 0)
    assert are_important(np.array([byte], np.uint8)).tolist() == [ecn != 0]
    assert congestion_marked(np.array([byte], np.uint8)).tolist() == [ecn == 3]
    assert is_congestion_marked(byte) == (ecn == 3)
    sendable = dscp in USABLE and ecn in (0, 2)
    sent = [tos(dscp, important=flag) for flag in (False, True)] if dscp in USABLE else []
    assert (byte in sent) == sendable


@pytest.mark.parametrize("dscp", USABLE)
def test_every_code_point(dscp: int) -> None:
    assert checked_dscp(dscp) == dscp
    for important in (False, True):
        byte = tos(dscp, important)
        assert byte == dscp << 2 | (2 if important else 0)
        assert TrafficClassByte.from_int(byte).dscp == dscp
        assert is_important(byte) == important
    flags = np.array([[True, False], [False, True]])
    assert tos_bytes(dscp, flags).tolist() == [[tos(dscp, flag) for flag in row] for row in flags.tolist()]
    assert tos_bytes(dscp, flags).dtype == np.uint8


@pytest.mark.parametrize("dscp", [CS6, CS7])
def test_code_points_of_routing_protocols(dscp: int) -> None:
    with pytest.raises(UserInputError, match=f"DSCP {dscp} belongs to routing protocols"):
        tos(dscp, important=True)
    with pytest.raises(UserInputError, match=f"DSCP {dscp} belongs to routing protocols"):
        checked_dscp(dscp)


@pytest.mark.parametrize("dscp", [-1, 64, 255, "x", None, True, 34.0])
def test_code_points_that_are_none(dscp: Any) -> None:
    with pytest.raises(UserInputError, match=f"no DSCP {dscp!r} .expected 0-63"):
        tos_bytes(dscp, np.ones(1, np.bool_))


def test_bytes_that_are_none() -> None:
    with pytest.raises(ValueError, match="not one byte"):
        is_important(256)


def test_a_sender_never_claims_congestion() -> None:
    sent = {Ecn(tos(dscp, flag) & 3) for dscp in USABLE for flag in (False, True)}
    assert sent == {Ecn.NOT_ECT, Ecn.ECT_0}
