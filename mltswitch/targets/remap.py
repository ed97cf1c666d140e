"""One DSCP map for a whole switch, and the code points that ports of hosts send to background instead.

Where the map belongs to the switch, a port's own classification can still be another: a policy on its
entrance moves a few code points. States name every port's code points; this says which of both a port has.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.state import PortState


@dataclass(frozen=True, slots=True)
class Remap:
    """Code points that lead to `queue` on some ports, whatever the switch's map says."""

    dscps: tuple[int, ...]
    """Ascending."""
    queue: int

    def applied(self, queue_of: Sequence[int]) -> tuple[int, ...]:
        """DSCP → queue on these ports, from the switch's map."""
        moved = set(self.dscps)
        return tuple(self.queue if dscp in moved else queue for dscp, queue in enumerate(queue_of))


@dataclass(frozen=True, slots=True)
class SwitchMap:
    """The map of a switch, and the ports that depart from it."""

    dscps: Mapping[int, tuple[int, ...]]
    """Queue → code points, in the order of service."""
    remap: Remap | None = None
    remapped: frozenset[str] = frozenset()
    """Names of the ports where `remap` holds."""


def code_points(queue_of: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Queue → its code points, ascending, from the queue of each code point; queues without one left out."""
    found: dict[int, list[int]] = {}
    for dscp, queue in enumerate(queue_of):
        found.setdefault(queue, []).append(dscp)
    return {queue: tuple(dscps) for queue, dscps in found.items()}


def lossless_queues(
    possible: Iterable[int], configured: Collection[int], queue_of: Iterable[int]
) -> tuple[int, ...]:
    """Of the possible ones those to which a map leads although no line of the file configures them."""
    led = set(queue_of)
    return tuple(queue for queue in possible if queue in led and queue not in configured)


def switch_map(ports: Sequence[PortState], system: str) -> SwitchMap:
    """Map and departures; raises UnsupportedPlanError where ports want more than a map and one departure."""
    wanted: dict[tuple[tuple[int, tuple[int, ...]], ...], list[str]] = {}
    for queues, alike in groupby(ports, lambda port: port.queues):
        classification = tuple((queue.queue, queue.dscps) for queue in queues)
        wanted.setdefault(classification, []).extend(port.name for port in alike)
    if len(wanted) < 2:
        return SwitchMap(dict(next(iter(wanted), ())))
    (first, _), (second, second_ports), *more = wanted.items()
    if not more:
        for base, other in ((first, second), (second, first)):
            remap = _departure(base, other)
            if remap is not None:
                return SwitchMap(dict(base), remap, frozenset(wanted[other]))
    raise UnsupportedPlanError(
        f"{system} has one DSCP map for all ports of a switch; some may send a few code points to background "
        "instead, the same on each",
        where=f"port {second_ports[0]}",
        expected=f"the code points of port {ports[0].name}",
    )


def _departure(
    base: tuple[tuple[int, tuple[int, ...]], ...], other: tuple[tuple[int, tuple[int, ...]], ...]
) -> Remap | None:
    """What has to move to background to get from `base` to `other`; None where that is not all."""
    background = other[-1][0] if other else None
    old, new = _by_dscp(base), _by_dscp(other)
    if (
        background is None
        or [queue for queue, _ in base] != [queue for queue, _ in other]
        or set(old) != set(new)
    ):
        return None
    moved = tuple(sorted(dscp for dscp in old if old[dscp] != new[dscp]))
    return Remap(moved, background) if {new[dscp] for dscp in moved} == {background} else None


def _by_dscp(queues: tuple[tuple[int, tuple[int, ...]], ...]) -> dict[int, int]:
    return {dscp: queue for queue, dscps in queues for dscp in dscps}
