"""Several workloads at once, each on hosts of its own or on the same ones."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

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
    if not isinstance(value, list | tuple):
        return value
    hosts: list[Any] = []
    for entry in value:
        first, dash, last = entry.partition("-") if isinstance(entry, str) else ("", "", "")
        if dash and first.isdecimal() and last.isdecimal() and 0 <= int(last) - int(first) < MOST_HOSTS:
            hosts += range(int(first), int(last) + 1)
        else:
            hosts.append(entry)
    return hosts


class Part(SparseDocument):
    """One workload of several."""

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
    """In the tables; by default its kind, and its place where there are several."""
    hosts: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        BeforeValidator(_numbers, json_schema_input_type=list[int | str]),
    ] = Field(default=(), max_length=MOST_HOSTS)
    """On these hosts, by number or as ranges (`0-17`), in this order; by default on all."""
    start_seconds: Seconds = Field(default=0.0, alias="start")
    workload: Single

    @model_validator(mode="after")
    def _are_distinct(self) -> Self:
        if len(set(self.hosts)) < len(self.hosts):
            raise ValueError("hosts: one stands twice")
        return self


class Mix(SparseDocument):
    """Several workloads at once."""

    kind: Literal["mix"]
    parts: tuple[Part, ...] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _are_distinct(self) -> Self:
        if len(set(self.names)) < len(self.parts):
            raise ValueError("parts: a name stands twice")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each part."""
        kinds = [part.workload.kind for part in self.parts]
        return tuple(
            part.name or (kind if kinds.count(kind) == 1 else f"{kind}-{place}")
            for place, (part, kind) in enumerate(zip(self.parts, kinds, strict=True))
        )

    def extent(self, stage: Stage) -> Extent:
        """The sum of the parts; raises UserInputError naming the part that does not fit."""
        parts = []
        for place, part in enumerate(self.parts):
            where = f"workload.parts[{place}]"
            if max(part.hosts, default=0) >= stage.hosts:
                raise UserInputError(
                    f"there is no host {max(part.hosts)}",
                    where=f"{where}.hosts",
                    expected=f"0 to {stage.hosts - 1}",
                )
            try:
                parts.append(part.workload.extent(stage.of(part.hosts, stage.random)))
            except UserInputError as error:
                if error.where.startswith("workload"):
                    error.where = f"{where}.{error.where}"
                raise
        return Extent(
            sum(each.flows for each in parts),
            sum(each.size_bytes for each in parts),
            max(each.largest_bytes for each in parts),
            max(
                part.start_seconds + each.last_start_seconds
                for part, each in zip(self.parts, parts, strict=True)
            ),
            sum(each.steps for each in parts),
        )

    def flows(self, stage: Stage) -> Work:
        """All parts, each of which draws its own random numbers."""
        work, randoms = Work(), stage.random.spawn(len(self.parts))
        for part, name, random in zip(self.parts, self.names, randoms, strict=True):
            made = part.workload.flows(stage.of(part.hosts, random))
            hosts = part.hosts or range(stage.hosts)
            work.add(made, hosts, round(part.start_seconds * PICOSECONDS), name)
        return work
