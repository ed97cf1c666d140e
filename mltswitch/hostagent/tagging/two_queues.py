"""Many priorities in two queues: only the foremost unfinished layers use the high class.

Where switches leave few queues to gradients, two emulate many (MLT, appendix D): at any time it is enough to
privilege what is needed first.
"""

from bisect import bisect_left, insort
from collections import Counter
from functools import partial
from threading import Lock
from typing import Final, Protocol

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging.tos import checked_dscp
from mltswitch.hostagent.values import integer, shown
from mltswitch.wire import Dscp

FOREMOST: Final = 1


class DscpSource(Protocol):
    """Asked for each chunk of packets."""

    def __call__(self) -> Dscp:
        """The code point to send with now."""
        ...


class TwoQueues:
    """Knows which layers a host is still sending; safe to use from several threads.

    Args:
        high: code point of the class that is served first.
        low: that of the other.
        foremost: how many unfinished layers use the high class at a time, 1 or more.
    """

    def __init__(self, high: Dscp, low: Dscp, foremost: int = FOREMOST) -> None:
        number = integer(foremost)
        if number is None or number < 1:
            raise UserInputError(f"{shown(foremost)} foremost layers", where="foremost", expected="1 or more")
        if high == low:
            raise UserInputError(f"both queues have DSCP {high}", where="low", expected="two code points")
        self.high: Final = checked_dscp(high)
        self.low: Final = checked_dscp(low)
        self._foremost = number
        self._lock = Lock()
        self._unfinished: list[int] = []
        self._transfers: Counter[int] = Counter()

    def started(self, layer: int) -> None:
        """A transfer of this layer (one of its tensors, to one peer) has been posted."""
        with self._lock:
            if not self._transfers[layer]:
                insort(self._unfinished, layer)
            self._transfers[layer] += 1

    def finished(self, layer: int) -> None:
        """A transfer of this layer has ended, however; raises ValueError where none had started."""
        with self._lock:
            if not self._transfers[layer]:
                raise ValueError(f"layer {layer} has ended more often than it has started")
            self._transfers[layer] -= 1
            if not self._transfers[layer]:
                del self._transfers[layer]
                del self._unfinished[bisect_left(self._unfinished, layer)]

    def dscp(self, layer: int) -> Dscp:
        """High where fewer than `foremost` unfinished layers lie before this one."""
        with self._lock:
            return self.high if bisect_left(self._unfinished, layer) < self._foremost else self.low

    def of_layer(self, layer: int) -> DscpSource:
        """`dscp` of this layer, to be asked again and again."""
        return partial(self.dscp, layer)
