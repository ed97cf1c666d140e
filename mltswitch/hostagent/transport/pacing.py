"""When bytes may leave at a given rate: a bucket of credit that never holds more than a moment's worth."""

from math import ceil
from typing import Final

from mltswitch.units import BITS_PER_BYTE

NANOSECONDS: Final = 10**9
SLACK_NS: Final = 250_000
"""A process wakes up so late, often; what it could not send meanwhile may still leave."""
LEAST_CREDIT_BYTES: Final = 64 * 1024
"""One segmentation-offload burst: UDP takes no longer payload."""


class Pacer:
    """Credit in bytes, growing at the rate in force; sending may leave a debt, which is paid off first.

    Over any stretch of time, no more leaves than the rate allows, the largest credit and the last sending.
    """

    def __init__(
        self, now_ns: int, *, least_credit_bytes: int = LEAST_CREDIT_BYTES, slack_ns: int = SLACK_NS
    ) -> None:
        """The credit grows to `least_credit_bytes`, or to what the rate moves in `slack_ns`, if more."""
        self._least_credit_bytes = least_credit_bytes
        self._slack_ns = slack_ns
        self._credit_bytes = float(least_credit_bytes)
        self._updated_ns = now_ns

    def may_leave_bytes(self, rate_bps: float, now_ns: int) -> int:
        """Credit now; 0 while there is a debt. The rate counts from the last call until now."""
        elapsed_ns = max(0, now_ns - self._updated_ns)
        self._updated_ns = max(now_ns, self._updated_ns)
        bytes_per_ns = rate_bps / BITS_PER_BYTE / NANOSECONDS
        most_bytes = max(self._least_credit_bytes, bytes_per_ns * self._slack_ns)
        self._credit_bytes = min(self._credit_bytes + bytes_per_ns * elapsed_ns, most_bytes)
        return max(0, int(self._credit_bytes))

    def left(self, size_bytes: int) -> None:
        """So many have left, whether there was credit for all of them or not."""
        self._credit_bytes -= size_bytes

    def next_ns(self, rate_bps: float, now_ns: int, wanted_bytes: int = 1) -> int:
        """When so many may leave (or as many as the bucket holds); `now_ns` if they may already."""
        self.may_leave_bytes(rate_bps, now_ns)
        bytes_per_ns = rate_bps / BITS_PER_BYTE / NANOSECONDS
        most_bytes = max(self._least_credit_bytes, bytes_per_ns * self._slack_ns)
        missing_bytes = min(wanted_bytes, most_bytes) - self._credit_bytes
        return now_ns if missing_bytes <= 0 else now_ns + ceil(missing_bytes / bytes_per_ns)
