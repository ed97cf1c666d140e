"""Links that lose packets between two given times, and paths that are left out once that is noticed."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from mltswitch.documents import SparseDocument
from mltswitch.errors import UserInputError, did_you_mean
from mltswitch.network.fabric import Network
from mltswitch.network.units import PICOSECONDS, Seconds
from mltswitch.plan import Topology

if TYPE_CHECKING:
    from mltswitch.network.world import World


class Fault(SparseDocument):
    """A link, with all its parallels, that loses packets in both directions for some time."""

    link: tuple[str, str]
    """The names of both ends: switches, or a switch and a host."""
    from_seconds: Seconds = Field(alias="from")
    to_seconds: Seconds = Field(alias="to")
    loss: float = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    """Share of packets that are lost as they reach the link's end; 1: the link is dead."""
    detected_after_seconds: Seconds | None = Field(default=None, alias="detected_after")
    """After this time paths over the link are left out, until it is back; by default never."""

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.to_seconds <= self.from_seconds:
            raise ValueError(f"to: {self.to_seconds:g} s is not after from: {self.from_seconds:g} s")
        return self

    @property
    def times_picoseconds(self) -> tuple[int, int, int | None]:
        """When it begins, ends, and is noticed (None: never)."""
        begins, ends = round(self.from_seconds * PICOSECONDS), round(self.to_seconds * PICOSECONDS)
        if self.detected_after_seconds is None:
            return begins, ends, None
        noticed = begins + round(self.detected_after_seconds * PICOSECONDS)
        return begins, ends, noticed if noticed < ends else None


def check_faults(faults: Sequence[Fault], topology: Topology) -> None:
    """Raise UserInputError where the fabric has no such link."""
    hosts = {host.name: host.leaf for host in topology.hosts}
    for place, fault in enumerate(faults):
        where = f"faults[{place}].link"
        for name in fault.link:
            if name not in topology.by_name and name not in hosts:
                raise UserInputError(
                    f"the fabric has no {name!r}{did_you_mean(name, [*topology.by_name, *hosts])}",
                    where=where,
                )
        if not any(
            _joins(fault, switch.name, port.peer) for switch in topology.switches for port in switch.ports
        ):
            raise UserInputError(f"no link joins {fault.link[0]} and {fault.link[1]}", where=where)


def _joins(fault: Fault, one: str, other: str) -> bool:
    return fault.link in ((one, other), (other, one))


def _ports(fault: Fault, network: Network) -> list[int]:
    """The sending ports of both directions."""
    leaves = {host.name: host.leaf for host in network.topology.hosts}
    own = [port.name for port in network.ports[: network.hosts]]
    hosts = [number for number, name in enumerate(own) if _joins(fault, name, leaves[name])]
    ends = [(switch.name, port) for switch in network.topology.switches for port in switch.ports]
    return hosts + [
        number for number, (name, port) in enumerate(ends, network.hosts) if _joins(fault, name, port.peer)
    ]


def change_times(faults: Iterable[Fault]) -> list[int]:
    """When something changes, in picoseconds, in order."""
    return sorted({time for fault in faults for time in fault.times_picoseconds if time is not None})


def apply_faults(world: "World", faults: Sequence[Fault], now: int) -> None:
    """Make links as they are from now on, and steer flows by the paths that are known to work."""
    network = world.network
    always = np.array([port.loss for port in network.ports])
    arrive = np.ones(len(always))
    avoided: set[int] = set()
    for fault in faults:
        begins, ends, noticed = fault.times_picoseconds
        ports = _ports(fault, network)
        if begins <= now < ends:
            arrive[ports] *= 1.0 - fault.loss
            if noticed is not None and noticed <= now:
                avoided.update(ports)
    world.tables["ports"]["loss"] = always + (1.0 - always) * (1.0 - arrive)
    if any(fault.detected_after_seconds is not None for fault in faults):
        _steer(world, avoided)


def _steer(world: "World", avoided: set[int]) -> None:
    """Give every flow the ways that avoid these ports; all of its ways where none does.

    Packets under way keep theirs: ways stay where they are in the table, and new ones are added behind it.
    A flow with one path leaves it only where that is to be avoided.
    """
    hops: list[int] = world.tables["hops"]["port"].tolist()
    flows = world.flows
    rows: dict[tuple[int, int, int], tuple[list[int], int]] = {}
    for number, ends in enumerate(zip(flows["source"].tolist(), flows["destination"].tolist(), strict=True)):
        for back, (path, paths) in enumerate((("path", "paths"), ("back", "backs"))):
            ways = first, count, stride = world.network.ways(*ends[:: -1 if back else 1])
            if ways not in rows:
                places = [first + stride * way for way in range(count)]
                left = [
                    place for place in places if avoided.isdisjoint(hops[place : place + stride])
                ] or places
                rows[ways] = left, first if left == places else len(hops)
                if left != places:
                    hops += [port for place in left for port in hops[place : place + stride]]
            left, row = rows[ways]
            if not world.spraying:
                own = first + stride * int(world.hashes[number, back] % count)
                row = own if own in left else left[int(world.hashes[number, back]) % len(left)]
            flows[path][number], flows[paths][number] = row, len(left) if world.spraying else 1
    world.replace("hops", np.array(hops, np.int32).view(world.tables["hops"].dtype))
