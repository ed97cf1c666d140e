"""Several workloads at once, each on hosts of its own or on the same ones."""

from dataclasses import astuple, replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mltswitch.documents import SparseDocument
from mltswitch.errors import UserInputError
from mltswitch.network.units import PICOSECONDS, Seconds
from mltswitch.network.workloads.background import Background
from mltswitch.network.workloads.base import Extent, Stage, Work
from mltswitch.network.workloads.chakra import Chakra
from mltswitch.network.workloads.incast import Incast
from mltswitch.network.workloads.parameter_server import ParameterServer
from mltswitch.network.workloads.permutation import Permutation
from mltswitch.network.workloads.ring import Ring
from mltswitch.network.workloads.tree import Tree

MOST_HOSTS = 100_000
Single = Annotated[
    Incast | Permutation | ParameterServer | Ring | Tree | Chakra | Background, Field(discriminator="kind")
]


def _numbers(value: Any) -> Any:
    """Numbers out of numbers and ranges such as `0-17`."""
    hosts: list[int] = []
    for entry in value if isinstance(value, list | tuple) else [value]:
        first, _, last = str(entry).partition("-")
        if isinstance(entry, bool) or not (first.isdecimal() and (last or first).isdecimal()):
            raise ValueError(f"{entry!r:.40} is no host's number, and no range of them such as 0-17")
        if not int(first) <= int(last or first) < MOST_HOSTS:
            raise ValueError(f"{entry!r:.40} falls, or goes beyond {MOST_HOSTS - 1}")
        hosts += range(int(first), int(last or first) + 1)
        if len(hosts) > MOST_HOSTS:
            break
    if len(set(hosts)) < len(hosts):  # also where there are more than there can be
        raise ValueError("one stands twice")
    return hosts


class Part(SparseDocument):
    """One workload of several."""

    hosts: Annotated[tuple[int, ...], BeforeValidator(_numbers, json_schema_input_type=list[int | str])] = (
        Field(default=(), max_length=MOST_HOSTS)
    )
    """On these hosts, by number or as ranges (`0-17`), in this order; by default on all."""
    start_seconds: Seconds = Field(default=0.0, alias="start")
    workload: Single


class Mix(SparseDocument):
    """Several workloads at once; in the tables each is called by its kind and place, such as `ring-1`."""

    kind: Literal["mix"]
    parts: tuple[Part, ...] = Field(min_length=1, max_length=1000)

    def extent(self, stage: Stage) -> Extent:
        """The sum of the parts; raises UserInputError naming the part that does not fit."""
        parts = []
        for place, part in enumerate(self.parts):
            where, highest = f"workload.parts[{place}]", max(part.hosts, default=0)
            if highest >= stage.hosts:
                expected = f"0 to {stage.hosts - 1}"
                raise UserInputError(f"there is no host {highest}", where=f"{where}.hosts", expected=expected)
            try:
                extent = part.workload.extent(stage.of(part.hosts, stage.random))
            except UserInputError as error:
                if error.where.startswith("workload"):
                    error.where = f"{where}.{error.where}"
                raise
            latest = part.start_seconds + extent.last_start_seconds
            parts.append(replace(extent, last_start_seconds=latest))
        flows, sizes, largest, last, steps = zip(*map(astuple, parts), strict=True)
        return Extent(sum(flows), sum(sizes), max(largest), max(last), sum(steps))

    def flows(self, stage: Stage) -> Work:
        """All parts, each of which draws its own random numbers."""
        work, randoms = Work(), stage.random.spawn(len(self.parts))
        for place, (part, random) in enumerate(zip(self.parts, randoms, strict=True)):
            made = part.workload.flows(stage.of(part.hosts, random))
            hosts, name = part.hosts or range(stage.hosts), f"{part.workload.kind}-{place}"
            work.add(made, hosts, round(part.start_seconds * PICOSECONDS), name)
        return work
