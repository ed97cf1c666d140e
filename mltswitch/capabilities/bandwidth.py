"""The two ways in which switches express a queue's guaranteed or maximum bandwidth: a rate, or percents."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class BitRate:
    """A bandwidth in bits a second, of frames as the device counts them."""

    bps: int

    def __str__(self) -> str:
        return f"{self.bps} bit/s"


@dataclass(frozen=True, slots=True)
class PortShare:
    """A bandwidth in percents of the port's rate."""

    percent: int

    def __str__(self) -> str:
        return f"{self.percent} %"


Bandwidth = BitRate | PortShare


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthCapability:
    """How a device expresses a guaranteed or maximum bandwidth of a queue, and in which steps."""

    kind: Literal["rate", "percent"]
    source: str
    step_bps: int = 1
    """Step of a rate in bit/s; percents are whole numbers."""
    minimum_bps: int = 1
    maximum_bps: int = 10**12

    def __str__(self) -> str:
        if self.kind == "percent":
            return "1 % to 100 %"
        return f"{self.minimum_bps} to {self.maximum_bps} bit/s in steps of {self.step_bps} bit/s"

    def has(self, bandwidth: Bandwidth) -> bool:
        """Whether the device can express this bandwidth exactly."""
        if isinstance(bandwidth, PortShare):
            return self.kind == "percent" and 1 <= bandwidth.percent <= 100
        in_range = self.minimum_bps <= bandwidth.bps <= self.maximum_bps
        return self.kind == "rate" and in_range and bandwidth.bps % self.step_bps == 0

    def at_least(self, share: float, port_bps: int) -> Bandwidth:
        """The lowest bandwidth of the device that is not below a share of the port."""
        return self._nearest(share, port_bps, upwards=True)

    def at_most(self, share: float, port_bps: int) -> Bandwidth:
        """The highest bandwidth, above zero, of the device that is not above a share of the port."""
        return self._nearest(share, port_bps, upwards=False)

    def _nearest(self, share: float, port_bps: int, *, upwards: bool) -> Bandwidth:
        if self.kind == "percent":
            return PortShare(min(max(_whole(share * 100, upwards=upwards), 1), 100))
        steps = _whole(share * port_bps / self.step_bps, upwards=upwards)
        least_bps = max(self.minimum_bps, self.step_bps)
        return BitRate(min(max(steps * self.step_bps, least_bps), self.maximum_bps))


def _whole(value: float, *, upwards: bool) -> int:
    """Rounded up or down, except for what is a whole number but for the arithmetic."""
    nearest = round(value)
    if abs(value - nearest) <= 1e-12 * max(1.0, abs(value)):
        return nearest
    return int(-(-value // 1)) if upwards else int(value // 1)
