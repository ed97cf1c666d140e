"""When bytes may leave at a given rate: a bucket of credit that never holds more than a moment's worth."""

from math import ceil, inf
from typing import Final

from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

SLACK_NS: Final = 250_000
"""A process wakes up so late, often; what it could not send meanwhile may still leave."""
CALM_SLACK_NS: Final = 1_100_000
"""Credit of a flow at its highest rate may be so much: more at once is less work for each packet."""
MOST_CREDIT_BYTES: Final = 16_000_000
"""However fast: what is copied at once makes everybody else wait."""
LEAST_CREDIT_BYTES: Final = 64 * 1024
"""One segmentation-offload burst: UDP takes no longer payload."""
PAUSE_NS: Final = 1_000_000
"""Credit that is used up is given again after so long: a process that wakes for every packet of a slow flow
does nothing else."""
REFILL_NS: Final = 5_000_000
"""Between two refillings at least: 64 KiB each make 100 Mbit/s, whatever a peer says is missing."""
LUMP_BYTES: Final = 6_000
"""Four packets of Ethernet: the slowest flows wait for so much,"""
LUMP_PAUSES: Final = 8
"""but no longer than this many pauses."""

_ROUNDING_BYTES: Final = 1e-6
"""Sums of fractions fall short of what they should be."""


class Pacer:
    """Credit in bytes, growing at the rate in force; sending may leave a debt, which is paid off first.

    Over any stretch of time, no more leaves than the rate allows, the largest credit, the last sending, and
    the least credit for each refilling. Once the credit is used up, none is given before `pause_ns` has made
    some (of slow flows a few times that, until a lump of packets may leave), or the bucket is full.
    """

    def __init__(
        self,
        now_ns: int,
        *,
        least_credit_bytes: int = LEAST_CREDIT_BYTES,
        slack_ns: int = SLACK_NS,
        calm_slack_ns: int = CALM_SLACK_NS,
        pause_ns: int = PAUSE_NS,
        most_credit_bytes: float = MOST_CREDIT_BYTES,
        path_credit_bytes: float = inf,
    ) -> None:
        """The credit grows to `least_credit_bytes`, or to what the rate moves in `slack_ns` (or
        `calm_slack_ns`), if more, but never above `most_credit_bytes`, nor above `path_credit_bytes` on
        the path that gets most, on average (`spread`)."""
        self._least_credit_bytes = least_credit_bytes
        self._slack_ns = self._usual_slack_ns = slack_ns
        self._calm_slack_ns = max(calm_slack_ns, slack_ns)
        self._pause_ns = pause_ns
        self._is_pausing = False
        self._most_credit_bytes = min(most_credit_bytes, path_credit_bytes)
        self._limits_bytes = most_credit_bytes, path_credit_bytes
        self._credit_bytes = float(min(least_credit_bytes, self._most_credit_bytes))
        self._updated_ns = now_ns
        self._refilled_ns: int | None = None

    def calm(self, *, is_calm: bool) -> None:
        """Whether the rate is as high as it can be: nothing slows the flow down."""
        self._slack_ns = self._calm_slack_ns if is_calm else self._usual_slack_ns

    def spread(self, largest_share: float) -> None:
        """How much of what leaves one path gets, on average; all of it until this is said."""
        most_bytes, path_bytes = self._limits_bytes
        self._most_credit_bytes = min(most_bytes, path_bytes / largest_share)

    def may_leave_bytes(self, rate_bps: float, now_ns: int) -> int:
        """Credit now; 0 while there is a debt or a pause. The rate counts from the last call until now."""
        elapsed_ns = max(0, now_ns - self._updated_ns)
        self._updated_ns = max(now_ns, self._updated_ns)
        bytes_per_ns = rate_bps / BITS_PER_BYTE / NANOSECONDS
        most_bytes = self._largest_bytes(bytes_per_ns)
        self._credit_bytes = min(self._credit_bytes + bytes_per_ns * elapsed_ns, most_bytes)
        rounded_bytes = self._credit_bytes + _ROUNDING_BYTES
        self._is_pausing &= rounded_bytes < self._enough_bytes(bytes_per_ns)
        return 0 if self._is_pausing else max(0, int(rounded_bytes))

    def left(self, size_bytes: int) -> None:
        """So many have left, whether there was credit for all of them or not."""
        self._credit_bytes -= size_bytes
        self._is_pausing |= self._credit_bytes < 1

    def refill(self, now_ns: int) -> None:
        """Let a flow begin anew: what is sent again may leave at once, as far as the least credit goes, and
        pays off debts. Nothing where that was not long ago, whoever asks for it."""
        if self._refilled_ns is not None and now_ns - self._refilled_ns < REFILL_NS:
            return
        self._refilled_ns = now_ns
        least_bytes = float(min(self._least_credit_bytes, self._most_credit_bytes))
        self._credit_bytes = max(self._credit_bytes, min(self._credit_bytes + least_bytes, least_bytes))
        self._is_pausing &= self._credit_bytes < 1

    def next_ns(self, rate_bps: float, now_ns: int) -> int:
        """When some may leave; `now_ns` if they may already."""
        if self.may_leave_bytes(rate_bps, now_ns):
            return now_ns
        bytes_per_ns = rate_bps / BITS_PER_BYTE / NANOSECONDS
        missing_bytes = self._enough_bytes(bytes_per_ns) - self._credit_bytes
        return now_ns + max(1, ceil(missing_bytes / bytes_per_ns))

    def _enough_bytes(self, bytes_per_ns: float) -> float:
        """Ends a pause."""
        pause_bytes = bytes_per_ns * self._pause_ns
        lump_bytes = min(float(LUMP_BYTES), LUMP_PAUSES * pause_bytes)
        return min(max(1.0, pause_bytes, lump_bytes), self._largest_bytes(bytes_per_ns))

    def _largest_bytes(self, bytes_per_ns: float) -> float:
        return min(max(self._least_credit_bytes, bytes_per_ns * self._slack_ns), self._most_credit_bytes)
