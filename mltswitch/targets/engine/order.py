"""The order in which lines are entered where each takes effect at once.

Nothing between old and new may drop what neither of them would: first the queues get the more lenient of
both thresholds; then ports are no longer trusted, where they were; then packets are led to the queues; then
thresholds are tightened; then ports are trusted. A phase covers all ports before the next begins, because
packets that one port classifies leave through the others.

Nor may anything serve a packet after another that neither end serves first. service_order.py says how: which
queues become strict before the maps change and which after all else, and which code points move first. A
line moves all code points of a priority; where some of them move down and others up, it is two, unless all
service is weighted yet.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mltswitch.targets.engine.facts import BIND, MAP, SERVICE, STRICT, TRUST, Facts, PortFacts
from mltswitch.targets.engine.line import Phase, Sheet, Written
from mltswitch.targets.service_order import boundary


class Moment(NamedTuple):
    """When a line is entered; the lesser is earlier, and equal ones keep the order of the file."""

    phase: Phase
    direction: int = 0
    """Of code points: those that move down come before those that move up."""
    rank: int = 0


@dataclass(frozen=True, slots=True)
class ServiceOrder:
    """How ports serve their queues while code points move."""

    boundaries: Mapping[str, int]
    """Port → the highest queue that is weighted until the end."""
    anything_is_strict: bool
    """Whether some queue of some port is strict, so that it matters which code point moves first."""

    @classmethod
    def between(cls, now: Facts, then: Facts, trusting: Collection[str]) -> "ServiceOrder":
        """The order for a change, where ports with a trust in `trusting` believe the DSCP of packets."""
        strict_queues = {
            port: {place[0] for (what, *place), value in own.items() if what == SERVICE and value == STRICT}
            for port, own in now.items()
        }
        priorities = {0}  # what packets get that are not believed
        for own in now.values():
            if own.get((TRUST,)) in trusting:
                priorities.update(value for fact, value in own.items() if fact[0] == MAP)
        boundaries: dict[str, int] = {}
        for port, own in then.items():
            if planned := {place[0] for what, *place in own if what == SERVICE}:
                strict, occupied = strict_queues[port], {now[port][BIND, priority] for priority in priorities}
                # Where all service is weighted nobody loses by waiting for strict service.
                is_weighted = not strict & occupied
                boundaries[port] = max(planned) if is_weighted else boundary(strict, occupied, planned, ())
        return cls(boundaries, any(strict_queues.values()))

    def place(
        self, port: str, written: Written, now: PortFacts, sheet: Sheet
    ) -> Iterator[tuple[Moment, str]]:
        """When the line is entered; code points that move down and those that move up have a line each."""
        fact, new = written.facts[0]
        if fact[0] == SERVICE:
            is_late = new != STRICT or fact[1] <= self.boundaries[port]
            yield Moment(Phase.SERVE_LAST if is_late else Phase.SERVE_STRICT, 0, -fact[1]), written.text
        elif fact[0] == MAP and self.anything_is_strict:
            down = tuple(entry for entry in written.facts if now[entry[0]] > new)
            up = tuple(entry for entry in written.facts if now[entry[0]] < new)
            for direction, moving, rank in ((0, down, new), (1, up, -new)):
                if moving:
                    line = sheet.write(written.line, moving) if down and up else written
                    yield Moment(Phase.MAP, direction, rank), line.text
        else:
            phase = written.line.phase
            yield Moment(phase if isinstance(phase, Phase) else phase(now.get(fact), new)), written.text
