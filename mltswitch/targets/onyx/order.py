"""The order in which the lines of Onyx are entered, each of which takes effect at once.

Nothing between old and new may drop what neither of them would: first the queues get the more lenient of
both thresholds; then ports are no longer trusted, where they were; then packets are led to the queues; then
thresholds are tightened; then ports are trusted.

Nor may anything serve a packet after another that neither end serves first. service_order.py says how: which
queues become strict before the maps change and which after all else, and which code points move first. A
line moves all code points of a priority; where some of them move down and others up, it is two, unless all
service is weighted yet.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cached_property
from typing import Final

from mltswitch.targets.engine.facts import BIND, MAP, SERVICE, STRICT, TRUST
from mltswitch.targets.engine.line import Written
from mltswitch.targets.engine.order import Order, Placed
from mltswitch.targets.service_order import boundary

TRUSTED: Final = "L3"
UNTRUSTED: Final = "port"
TRUSTING: Final = frozenset({TRUSTED, "both"})
"""The values of a port's trust with which a packet's DSCP counts."""


class Phase(IntEnum):
    """The phases of a change, in the order in which their lines are entered."""

    LOOSEN = 0
    """Queues drop less than before, and settings change that move no packet to another queue."""
    SERVE_STRICT = 1
    """Queues become strict that may be so before code points move."""
    DISTRUST = 2
    """Ports stop trusting the DSCP of packets."""
    BIND = 3
    MAP = 4
    TIGHTEN = 5
    """Thresholds are set or lowered, so that queues drop more than before."""
    TRUST = 6
    SERVE_LAST = 7
    """The remaining queues become strict, or weighted again."""
    ROUTE = 8
    FORGET = 9
    """Settings that are not planned are undone."""


class ServiceOrder(Order):
    """The order of a change's lines that never serves packets in a wrong order while code points move."""

    @cached_property
    def _strict_queues(self) -> Mapping[str, set[int]]:
        return {
            port: {place[0] for (what, *place), value in own.items() if what == SERVICE and value == STRICT}
            for port, own in self.now.items()
        }

    @cached_property
    def _boundaries(self) -> Mapping[str, int]:
        """Port → the highest queue that is weighted until the end."""
        priorities = {0}  # what packets get that are not believed
        for own in self.now.values():
            if own.get((TRUST,)) in TRUSTING:
                priorities.update(value for fact, value in own.items() if fact[0] == MAP)
        boundaries: dict[str, int] = {}
        for port, own in self.then.items():
            if planned := {place[0] for what, *place in own if what == SERVICE}:
                strict = self._strict_queues[port]
                occupied = {self.now[port][BIND, priority] for priority in priorities}
                # Where all service is weighted nobody loses by waiting for strict service.
                is_weighted = not strict & occupied
                boundaries[port] = max(planned) if is_weighted else boundary(strict, occupied, planned, ())
        return boundaries

    def place(self, port: str, written: Written) -> Iterator[Placed]:
        """The moment at which a line is entered; one that moves code points up and down is split into two."""
        fact, new = written.facts[0]
        if fact[0] == SERVICE:
            is_late = new != STRICT or fact[1] <= self._boundaries[port]
            yield (Phase.SERVE_LAST if is_late else Phase.SERVE_STRICT, 0, -fact[1]), written
        elif fact[0] == MAP and any(self._strict_queues.values()):
            now = self.now[port]
            down = tuple(entry for entry in written.facts if now[entry[0]] > new)
            up = tuple(entry for entry in written.facts if now[entry[0]] < new)
            for direction, moving, rank in ((0, down, new), (1, up, -new)):
                if moving:
                    line = self.sheet.write(written.line, moving) if down and up else written
                    yield (Phase.MAP, direction, rank), line
        else:
            yield from super().place(port, written)
