"""One DSCP map for a whole switch, and the code points that ports of hosts send to background instead.

Where the map belongs to the switch, a port's own classification can still be another: a policy on its
entrance moves a few code points. States name every port's code points; this module finds map and policies
from them. Such a policy can also rewrite what it moves, so that no later switch believes it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.state import PortState, SwitchState, every_dscp_but

HOST_POLICY: Final = "mltswitch-host"
"""Name of the policy on trusted ports of hosts, for the DSCPs that a host may not use."""
UNTRUSTED_POLICY: Final = "mltswitch-untrusted"
"""Name of the policy on ports that are not trusted, for every packet."""
POLICIES: Final = (HOST_POLICY, UNTRUSTED_POLICY)


@dataclass(frozen=True, slots=True)
class Remap:
    """Code points that lead to `queue` on some ports, whatever the switch's map says."""

    dscps: tuple[int, ...]
    """The DSCPs that the policy moves, ascending."""
    queue: int

    def applied(self, queue_of: Sequence[int]) -> tuple[int, ...]:
        """The queue of each DSCP (index) on these ports, from that of the switch's map."""
        moved = set(self.dscps)
        return tuple(self.queue if dscp in moved else queue for dscp, queue in enumerate(queue_of))


@dataclass(frozen=True, slots=True)
class Entrance:
    """What a policy on a port's entrance does with packets."""

    dscps: tuple[int, ...] | None
    """The DSCPs that the policy concerns, ascending; None: all."""
    queue: int
    """Number of the queue that those packets get."""
    dscp: int | None
    """The DSCP to which the policy rewrites packets; None: they keep their own."""

    @property
    def rewritten(self) -> tuple[int, ...]:
        """The DSCPs that packets may not keep, because the policy rewrites them."""
        if self.dscp is None:
            return ()
        return every_dscp_but(self.dscp) if self.dscps is None else self.dscps

    def applied(self, queue_of: Sequence[int]) -> Sequence[int]:
        """The queue of each DSCP (index) on a port with this policy, from that of the switch's map.

        On a port that is not trusted, it is the queue that the DSCP would have if the port were.
        """
        return queue_of if self.dscps is None else Remap(self.dscps, self.queue).applied(queue_of)

    def faults(self, background: int, background_dscp: int) -> Iterator[str]:
        """Properties of the policy that no plan asks for and a port's state cannot say, a sentence each."""
        if self.dscps is None and self.queue != background:
            yield f"leads to queue {self.queue}"
        if self.dscp not in {None, background_dscp}:
            yield f"sets DSCP {self.dscp}"


def policy_of(port: PortState) -> str:
    """Name of the policy that a planned port has where a policy rewrites code points; empty: none."""
    if not port.rewritten:
        return ""
    return HOST_POLICY if port.trusted else UNTRUSTED_POLICY


def dscp_set_by(entrances: Iterable[Entrance | None]) -> int:
    """The DSCP to which these policies rewrite packets, that of background."""
    return min((each.dscp for each in entrances if each and each.dscp is not None), default=0)


@dataclass(frozen=True, slots=True)
class SwitchMap:
    """The DSCP map of a switch, and the ports that depart from it."""

    dscps: Mapping[int, tuple[int, ...]]
    """Queue → its DSCPs, in the order of service."""
    remap: Remap | None = None
    remapped: frozenset[str] = frozenset()
    """Names of the ports where `remap` holds."""

    def moved(self, queue_of: Sequence[int], queue: int) -> tuple[int, ...]:
        """The DSCPs that `queue_of`, the present map, leads to this queue and the new map elsewhere."""
        kept = self.dscps.get(queue, ())
        return tuple(dscp for dscp, led_to in enumerate(queue_of) if led_to == queue and dscp not in kept)


def code_points(queue_of: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Queue → its DSCPs, ascending, from the queue of each DSCP; queues without one are left out."""
    found: dict[int, list[int]] = {}
    for dscp, queue in enumerate(queue_of):
        found.setdefault(queue, []).append(dscp)
    return {queue: tuple(dscps) for queue, dscps in found.items()}


def lossless_queues(
    possible: Iterable[int], configured: Collection[int], queue_of: Iterable[int]
) -> tuple[int, ...]:
    """Those of the possible queues to which the map leads although no line of the file configures them."""
    led = set(queue_of)
    return tuple(queue for queue in possible if queue in led and queue not in configured)


def switch_map(ports: Sequence[PortState], system: str) -> SwitchMap:
    """The map of a switch, and the ports that depart from it in one same way; raises UnsupportedPlanError."""
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


def rewriting_map(state: SwitchState, system: str) -> SwitchMap:
    """The map of a switch whose policies rewrite what they move, also where the map itself would move it.

    Raises UnsupportedPlanError where a port rewrites anything else: an untrusted port must rewrite all code
    points or none, a trusted one those that it sends to background instead.
    """
    own = switch_map(state.ports, system)
    rewriting = [port for port in state.ports if port.trusted and port.rewritten]
    if own.remap is None and rewriting:
        dscps, last = rewriting[0].rewritten, rewriting[0].queues[-1]
        if set(dscps).issubset(last.dscps):
            names = frozenset(port.name for port in rewriting)
            own = replace(own, remap=Remap(dscps, last.queue), remapped=names)
    everything = every_dscp_but(state.background_dscp)
    for port in state.ports:
        moved = own.remap.dscps if own.remap and port.name in own.remapped else ()
        fits = port.rewritten == moved if port.trusted else not moved and port.rewritten in {(), everything}
        if not fits:
            raise UnsupportedPlanError(
                f"{system} rewrites what a port sends to background instead, or all where it is not trusted",
                where=f"port {port.name}",
                expected=f"code points made background's: {moved or 'none'}",
            )
    return own


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
