"""The DSCP/ECN byte of a data packet: the one place where class and importance become bits.

DSCP tells the traffic class. ECN tells the importance (MLT, section 5.2): switches mark an ECN-capable packet
where they drop others. An important packet is sent ECT(0), an unimportant one Not-ECT.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.hostagent.values import integer, shown
from mltswitch.wire import CS6, CS7, Dscp, Ecn, TrafficClassByte
from mltswitch.wire.tos import DSCP_COUNT

_ECN_BITS: Final = np.uint8(3)


def tos(dscp: Dscp, important: bool) -> int:
    """The byte to send with; raises UserInputError for a code point that no tensor may travel with."""
    return int(TrafficClassByte(checked_dscp(dscp), Ecn.ECT_0 if important else Ecn.NOT_ECT))


def tos_bytes(dscp: Dscp, important: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The same of many packets or bursts, in the shape of `important`."""
    return np.where(important, np.uint8(tos(dscp, important=True)), np.uint8(tos(dscp, important=False)))


def is_important(byte: int) -> bool:
    """Whether a switch takes a packet with this byte for important; raises ValueError outside 0-255."""
    return TrafficClassByte.from_int(byte).ecn.is_capable


def are_important(tos_sent: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The same of many packets or bursts, in the shape of their bytes."""
    return np.not_equal(np.bitwise_and(tos_sent, _ECN_BITS), np.uint8(Ecn.NOT_ECT))


def congestion_marked(tos_received: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which packets a switch has marked (CE), in the shape of their bytes."""
    return np.equal(np.bitwise_and(tos_received, _ECN_BITS), np.uint8(Ecn.CE))


def is_congestion_marked(byte: int) -> bool:
    """The same of one packet."""
    return byte & int(_ECN_BITS) == Ecn.CE


def checked_dscp(dscp: Dscp) -> Dscp:
    """The code point itself; raises UserInputError where no tensor may travel with it."""
    number = integer(dscp)
    if number is None or not 0 <= number < DSCP_COUNT:
        raise UserInputError(f"there is no DSCP {shown(dscp)}", where="dscp", expected=f"0-{DSCP_COUNT - 1}")
    if dscp in (CS6, CS7):
        raise UserInputError(
            f"DSCP {dscp} belongs to routing protocols (RFC 4594)",
            where="dscp",
            hint="take a code point of a gradient class of the plan",
        )
    return dscp
