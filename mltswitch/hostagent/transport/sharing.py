"""One rate for all peers of an agent together: each that has something to send gets an equal part of it."""

from math import ceil
from typing import Final

from mltswitch.hostagent.transport.pacing import LEAST_CREDIT_BYTES, SLACK_NS
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS


class SharedRate:
    """Credit in bytes, handed out evenly to the shares that ask for it, as it grows.

    A share that may not use its part (its own rate is lower, or its window is full) keeps a moment's worth
    and leaves the rest to the others: max-min fairness. Nothing is handed to shares that have nothing to
    send, but a debt is paid off first in any case. Over any stretch of time, no more leaves than the rate
    allows, the credit that the shares hold, and the last sending of each.
    """

    def __init__(self, rate_bps: float, now_ns: int, *, least_credit_bytes: int = LEAST_CREDIT_BYTES) -> None:
        """Raises ValueError for a rate of 0 or less."""
        if not rate_bps > 0:
            raise ValueError(f"a rate of {rate_bps} bit/s for all peers; expected more than 0")
        self.rate_bps: Final = rate_bps
        self._bytes_per_ns = rate_bps / BITS_PER_BYTE / NANOSECONDS
        self._most_bytes = max(float(least_credit_bytes), self._bytes_per_ns * SLACK_NS)
        self._spare_bytes = self._most_bytes
        self._updated_ns = now_ns
        self._shares: list[Share] = []

    def share(self) -> "Share":
        """Of one more peer."""
        made = Share(self)
        self._shares.append(made)
        return made

    # For shares

    def hand_out(self, now_ns: int) -> None:
        """What has grown since the last call goes to those that want it; what none of them takes is kept."""
        elapsed_ns = max(0, now_ns - self._updated_ns)
        self._updated_ns = max(now_ns, self._updated_ns)
        self._spare_bytes += self._bytes_per_ns * elapsed_ns
        while self._spare_bytes > 0:
            open_shares = [entry for entry in self._shares if entry.takes_bytes(self._most_bytes) > 0]
            if not open_shares:
                break
            part = self._spare_bytes / len(open_shares)
            taken = [min(part, entry.takes_bytes(self._most_bytes)) for entry in open_shares]
            for entry, size_bytes in zip(open_shares, taken, strict=True):
                entry.credit_bytes += size_bytes
            self._spare_bytes -= sum(taken)
            if min(taken) == part:  # nobody was full
                self._spare_bytes = 0.0
        self._spare_bytes = min(self._spare_bytes, self._most_bytes)

    def wait_ns(self, missing_bytes: float) -> int:
        """How long one share waits for so many at the most, while all that want some get them."""
        takers = sum(entry.takes_bytes(self._most_bytes) > 0 for entry in self._shares)
        return ceil(missing_bytes * max(1, takers) / self._bytes_per_ns)

    def give_back(self, size_bytes: float) -> None:
        """Credit that a share has no use for."""
        self._spare_bytes = min(self._spare_bytes + size_bytes, self._most_bytes)

    def remove(self, share: "Share") -> None:
        """It gets nothing any more."""
        if share in self._shares:
            self._shares.remove(share)


class Share:
    """One peer's part of a `SharedRate`."""

    def __init__(self, rate: SharedRate) -> None:
        self._rate = rate
        self._wants = False
        self.credit_bytes = 0.0

    def may_leave_bytes(self, now_ns: int) -> int:
        """Credit now; 0 while there is a debt, or others are before us. From now on we want some."""
        self._wants = True
        self._rate.hand_out(now_ns)
        return max(0, int(self.credit_bytes))

    def left(self, size_bytes: int) -> None:
        """So many have left, whether there was credit for all of them or not."""
        self.credit_bytes -= size_bytes

    def next_ns(self, now_ns: int) -> int:
        """When a byte may leave, if nobody rests meanwhile; `now_ns` if it may already."""
        missing_bytes = 1 - self.credit_bytes
        return now_ns if missing_bytes <= 0 else now_ns + self._rate.wait_ns(missing_bytes)

    def rest(self) -> None:
        """There is nothing to send: the credit is the others'."""
        if self._wants:
            self._wants = False
            if self.credit_bytes > 0:
                self._rate.give_back(self.credit_bytes)
                self.credit_bytes = 0.0

    def leave(self) -> None:
        """The peer is gone."""
        self.rest()
        self._rate.remove(self)

    def takes_bytes(self, most_bytes: float) -> float:
        """How much more it may hold: for `SharedRate`."""
        return (most_bytes if self._wants else 0.0) - self.credit_bytes
