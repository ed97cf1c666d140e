"""The DSCP/ECN byte of IPv4 (TOS) and IPv6 (traffic class): RFC 2474 and RFC 3168."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

Dscp = int
"""Differentiated services code point, 0 to 63."""

DSCP_COUNT: Final = 64
CS6: Final[Dscp] = 48
"""Network control: routing protocols (RFC 4594, section 3.2)."""
CS7: Final[Dscp] = 56
"""Reserved for network control (RFC 4594, section 3.1)."""


def every_dscp_but(dscp: Dscp) -> tuple[Dscp, ...]:
    """The other 63 code points, which a port that is not trusted rewrites to that of background traffic."""
    return tuple(other for other in range(DSCP_COUNT) if other != dscp)


class Ecn(IntEnum):
    """The four ECN code points of RFC 3168, section 5."""

    NOT_ECT = 0
    ECT_1 = 1
    ECT_0 = 2
    CE = 3

    @property
    def is_capable(self) -> bool:
        """Whether a switch may mark the packet instead of dropping it: an *important* packet."""
        return self is not Ecn.NOT_ECT


@dataclass(frozen=True, slots=True)
class TrafficClassByte:
    """One byte: DSCP in the upper six bits, ECN in the lower two."""

    dscp: Dscp
    ecn: Ecn

    def __post_init__(self) -> None:
        if not 0 <= self.dscp < DSCP_COUNT:
            raise ValueError(f"DSCP {self.dscp} is outside 0-63")

    def __int__(self) -> int:
        return self.dscp << 2 | self.ecn

    @classmethod
    def from_int(cls, byte: int) -> "TrafficClassByte":
        """Split a received byte into DSCP and ECN; raises ValueError outside 0-255."""
        if not 0 <= byte <= 255:
            raise ValueError(f"{byte} is not one byte")
        return cls(byte >> 2, Ecn(byte & 3))
