"""Many priorities in two queues: only the foremost unfinished layers use the high class.

Where switches leave few queues to gradients, two emulate many (MLT, appendix D): at any time it is enough to
privilege what is needed first.
"""

from bisect import bisect_right, insort
from functools import partial
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
        self._started: list[int] = []
        """Layer of each transfer that is on its way, in order. Every change is one call of the interpreter's
        own, so that neither threads nor signal handlers see half of one."""

    def started(self, layer: int) -> None:
        """A transfer of this layer (one of its tensors, to one peer) has been posted."""
        insort(self._started, layer)

    def finished(self, layer: int) -> None:
        """A transfer of this layer has ended, however; raises ValueError where none had started."""
        try:
            self._started.remove(layer)
        except ValueError:
            raise ValueError(f"layer {layer} has ended more often than it has started") from None

    def dscp(self, layer: int) -> Dscp:
        """High where fewer than `foremost` unfinished layers lie before this one."""
        started, place = self._started.copy(), 0
        for _ in range(self._foremost):
            if place == len(started) or started[place] >= layer:
                return self.high
            place = bisect_right(started, started[place])
        return self.low

    def of_layer(self, layer: int) -> DscpSource:
        """`dscp` of this layer, to be asked again and again."""
        return partial(self.dscp, layer)
