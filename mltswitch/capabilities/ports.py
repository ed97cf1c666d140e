"""The ports of a box and their names, from which cables are generated and with which they are compared."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final, NamedTuple

from pydantic import BeforeValidator, Field, StrictInt

from mltswitch.documents import SparseDocument
from mltswitch.units import parse_bps

Pattern = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9/_.-]*)?\{n\}[A-Za-z0-9/_.-]*(\{lane\})?$", max_length=24)
]
_NUMBER: Final = "(0|[1-9][0-9]{0,8})"


@dataclass(frozen=True, slots=True)
class PortGroup:
    """Equal ports of a box."""

    count: Annotated[StrictInt, Field(gt=0)]
    rate_bps: Annotated[int, BeforeValidator(parse_bps), Field(gt=0, validation_alias="rate")]


class PortPlace(NamedTuple):
    """The front-panel port, and lane, that a port's name stands for."""

    number: int
    """Number of the port on the front panel, from 0."""
    lane: int | None
    """Lane of a port that is broken out, from 0; None: the name is that of a whole port."""


class PortNumbering(SparseDocument):
    """How a device names its ports: `pattern` with `{n}` = first, first + step, ….

    The bounds make every generated name a port name of a fabric file.
    """

    pattern: Pattern
    first: int = Field(default=1, ge=0, le=10_000)
    step: int = Field(default=1, ge=1, le=1000)
    lanes: int = Field(default=1, ge=0, le=8)
    """Into so many ports one port can be broken out; 1: it cannot, or no source names the parts; 0: the ports
    are a machine's, of any rate, and taken as they are."""
    lane_pattern: Pattern | None = None
    """Name of a part, with `{n}` and `{lane}`; None: `pattern`, with the lane added to the port's number."""
    first_lane: int = Field(default=1, ge=0, le=1)
    skips_lanes: bool = False
    """Parts of several lanes have the number of their first lane; else parts are counted through."""
    full_breakout_ports: int = Field(default=1, ge=1, le=2)
    """Ports that one takes which is broken out into all its lanes; 2: the next one is switched off."""
    other_pattern: Pattern | None = None
    """Name of the ports behind the first group of the box, where they are named differently."""
    lag_pattern: Pattern | None = None
    """Name of a link aggregation group; None: no source, or a name that routes cannot use."""

    def name(self, index: int, lane: int = 0, breakout: int = 1) -> str:
        """Name of the port with this 0-based index, or of one of the parts into which it is broken out."""
        number = self.first + index * self.step
        if breakout == 1:
            return self.pattern.replace("{n}", str(number))
        lane *= self.lanes // breakout if self.skips_lanes else 1
        if self.lane_pattern is None:
            return self.pattern.replace("{n}", str(number + lane))
        return self.lane_pattern.replace("{n}", str(number)).replace("{lane}", str(self.first_lane + lane))

    def width(self, breakout: int) -> int:
        """How many front ports one takes that is broken out into so many parts; it begins at a multiple."""
        return self.full_breakout_ports if breakout == self.lanes else 1

    def place(self, name: str) -> PortPlace | None:
        """The port and lane with this name; None: no port of such a box is called so."""
        if self.lane_pattern is not None and (match := _expression(self.lane_pattern).fullmatch(name)):
            index, rest = divmod(int(match[1]) - self.first, self.step)
            lane = int(match[2]) - self.first_lane
            return PortPlace(index, lane) if index >= 0 and not rest and 0 <= lane < self.lanes else None
        if match := _expression(self.pattern).fullmatch(name):
            index, lane = divmod(int(match[1]) - self.first, self.step)
            if index < 0 or (lane and (self.lane_pattern is not None or lane >= self.lanes)):
                return None
            return PortPlace(index, lane or None)
        if self.other_pattern is not None and (match := _expression(self.other_pattern).fullmatch(name)):
            index = int(match[1]) - self.first
            return PortPlace(index, None) if index >= 0 else None
        return None


@lru_cache
def _expression(pattern: str) -> re.Pattern[str]:
    text = re.escape(pattern)
    return re.compile(text.replace(re.escape("{n}"), _NUMBER).replace(re.escape("{lane}"), "([0-9])"))
