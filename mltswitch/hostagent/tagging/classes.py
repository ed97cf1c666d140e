"""The DSCP that a tensor travels with: by its layer, or by the class that its owner names."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from functools import cache
from heapq import nsmallest
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from mltswitch.errors import UserInputError, printable
from mltswitch.wire import CS6, CS7, Dscp

MOST_LAYERS: Final = 65_536
"""The most layers of a model: a layer's number has 16 bits in the agent header."""


def _not_of_routing(number: int) -> int:
    if number in {CS6, CS7}:
        raise ValueError(f"{number} belongs to routing protocols (RFC 4594)")
    return number


TensorDscp = Annotated[int, Field(ge=0, le=63, strict=True), AfterValidator(_not_of_routing)]
LayerNumber = Annotated[int, Field(ge=0, lt=MOST_LAYERS, strict=True)]


class JobPlace(BaseModel):
    """The place of one job among several that share a fabric; each has gradient classes of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(ge=0, strict=True)
    """Number of the job, from 0; switches serve all classes of a job before those of the next."""
    of: int = Field(ge=1, le=62, strict=True)
    """How many jobs share the fabric."""

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if self.number >= self.of:
            raise ValueError(f"{self.of} jobs have the numbers 0 to {self.of - 1}")
        return self


class Classes(BaseModel):
    """The DSCPs of the fabric's classes, and the layers that each class carries."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    control_dscp: TensorDscp
    """DSCP of control channels and of what goes back to senders."""
    gradient_dscp: tuple[TensorDscp, ...] = Field(min_length=1, max_length=62)
    """DSCPs of the classes gradient-0, gradient-1, …, the first of which carries the front layers."""
    background_dscp: TensorDscp | None = None
    layers: int | None = Field(default=None, ge=1, le=MOST_LAYERS, strict=True)
    """Number L of layers; class i · P // L of P classes carries layer i, unless `first_layers` is given."""
    first_layers: tuple[LayerNumber, ...] | None = None
    """The first layer of each gradient class, in rising order from 0; None: layers are divided evenly."""
    names: dict[str, LayerNumber] = {}
    """Numbers of layers by name, that of the layer or of a tensor in it."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        numbers = (self.control_dscp, *self.gradient_dscp)
        if len(set(numbers)) < len(numbers) and set(numbers) != {0}:
            raise ValueError("a code point stands for two classes")
        first = self.first_layers
        if first is not None and (
            len(first) != len(self.gradient_dscp) or [0, *sorted(set(first))[1:]] != [*first]
        ):
            raise ValueError("first_layers has a number for each of gradient_dscp, rising from 0")
        return self

    def of_job(self, job: JobPlace) -> Self:
        """The classes of one job alone, among which its layers are divided evenly; raises UserInputError."""
        points, each = self.gradient_dscp, len(self.gradient_dscp) // job.of
        if not each:
            problem = f"{job.of} jobs, and the switches have {len(points)} gradient classes"
            hint = "plan more classes, or let jobs of one place share theirs"
            raise UserInputError(problem, where="job.of", expected=f"at most {len(points)}", hint=hint)
        first = len(points) - each * (job.of - job.number)  # what is left over, the first job has
        own = points[first if job.number else 0 : first + each]
        return self.model_copy(update={"gradient_dscp": own, "first_layers": None})

    def layer_number(self, layer: int | str) -> int:
        """Number of a layer, from 0 in forward order; raises UserInputError for an unknown layer."""
        if isinstance(layer, str):
            if printable(layer) in self.names:  # as profiles have names, in which torch allows anything
                return self.names[printable(layer)]
            hint = "" if self.names else "names need a plan and its profile; give its number"
            raise UserInputError(f"there is no layer or tensor {layer[:60]!r}", where="layer", hint=hint)
        most = (self.layers or MOST_LAYERS) - 1
        if not 0 <= layer <= most:
            raise UserInputError(f"there is no layer {layer}", where="layer", expected=f"0-{most}")
        return int(layer)

    def of_layer(self, layer: int | str) -> Dscp:
        """DSCP of a layer, given by number, by name or by a tensor in it; raises UserInputError."""
        number, points = self.layer_number(layer), self.gradient_dscp
        if self.first_layers is not None:
            return points[bisect_right(self.first_layers, number) - 1]
        if self.layers is not None or len(points) == 1:
            return points[number * len(points) // (self.layers or MOST_LAYERS)]
        raise UserInputError(
            f"which of {len(points)} classes carries layer {number}?",
            where="classes.layers",
            expected="the number of the model's layers",
            hint="or name the class",
        )

    def of_class(self, name: str) -> Dscp:
        """DSCP of a class, by its name; raises UserInputError if tensors may not use the class."""
        known = _by_name(self.gradient_dscp, self.background_dscp)
        if name in known:
            return known[name]
        problem = f"tensors cannot travel in class {name[:60]!r}"
        raise UserInputError(problem, where="traffic_class", expected=", ".join(known))


@cache
def _by_name(gradient_dscp: tuple[Dscp, ...], background_dscp: Dscp | None) -> Mapping[str, Dscp]:
    found = {f"gradient-{number}": dscp for number, dscp in enumerate(gradient_dscp)}
    return found if background_dscp is None else found | {"background": background_dscp}


class TwoQueues:
    """Many priorities in two queues: the foremost unfinished layers have the high one (MLT, appendix D).

    Not thread-safe: a caller of `started` or `finished` holds a lock until the open sends of the returned
    layers have their new DSCP.

    Args:
        high: DSCP of the class that is served first.
        low: DSCP of the other class.
        foremost: how many unfinished layers use the high class at a time, 1 or more.
    """

    def __init__(self, high: Dscp, low: Dscp, foremost: int = 1) -> None:
        self.high: Final = high
        self.low: Final = low
        self._foremost: Final = foremost
        self._transfers: Final[Counter[int]] = Counter()
        """Of each layer that is on its way."""

    def started(self, layer: int) -> frozenset[int]:
        """A transfer of this layer has been posted; returns the other layers whose code point has changed."""
        return self._counted(layer, 1)

    def finished(self, layer: int) -> frozenset[int]:
        """A transfer of this layer has ended, however; returns the layers whose code point has changed."""
        return self._counted(layer, -1)

    def dscp(self, layer: int) -> Dscp:
        """DSCP of a layer: high if fewer than `foremost` unfinished layers lie before it."""
        before = sum(unfinished < layer for unfinished in self._transfers)
        return self.high if before < self._foremost else self.low

    def _counted(self, layer: int, change: int) -> frozenset[int]:
        before = nsmallest(self._foremost, self._transfers)
        self._transfers[layer] += change
        if not self._transfers[layer]:
            del self._transfers[layer]
        after = nsmallest(self._foremost, self._transfers)
        return frozenset({*before} ^ {*after}) - {layer}
