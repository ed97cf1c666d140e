"""The form of `hardware.yaml`: every figure with its source, or null with what was looked for."""

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from mltswitch.capabilities.limits import LARGEST_EXPONENT
from mltswitch.capabilities.ports import PortGroup

Value = TypeVar("Value")
_Text = Annotated[str, Field(min_length=1)]
_Count = Annotated[StrictInt, Field(gt=0)]
_Exponent = Annotated[StrictInt, Field(ge=-LARGEST_EXPONENT, le=LARGEST_EXPONENT)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FigureEntry(_Part, Generic[Value]):
    """A value and its source, or null and what was searched in vain."""

    value: Value | None
    source: _Text | None = None
    looked_for: _Text | None = None

    @model_validator(mode="after")
    def _is_sourced(self) -> "FigureEntry[Value]":
        if self.value is None and (self.looked_for is None or self.source is not None):
            raise ValueError(
                "a figure that is null has no source, and says in looked_for where one was sought"
            )
        if self.value is not None and (self.source is None or self.looked_for is not None):
            raise ValueError("a figure with a value has a source, and no looked_for")
        return self


class ChipEntry(_Part):
    """The figures of a switch chip."""

    description: _Text
    unicast_queues: FigureEntry[_Count]
    cell_bytes: FigureEntry[_Count]
    threshold_step_cells: FigureEntry[_Count]
    buffer_bytes: FigureEntry[_Count]
    buffer_parts: FigureEntry[_Count]
    largest_pool_bytes: FigureEntry[_Count]
    separate_thresholds: FigureEntry[StrictBool]
    instantaneous_length: FigureEntry[StrictBool]
    averaging_weight: FigureEntry[StrictBool]
    drops_not_capable: FigureEntry[StrictBool]
    marks_at: FigureEntry[Literal["enqueue", "dequeue"]]


class BoxEntry(_Part):
    """The figures of a box (switch model) with one such chip."""

    chip: _Text
    description: _Text
    ports: FigureEntry[Annotated[tuple[PortGroup, ...], Field(min_length=1)]]
    port_share_bytes: FigureEntry[_Count]
    lossy_pool_bytes: FigureEntry[_Count]
    lossy_alpha_exponent: FigureEntry[_Exponent]


class SystemEntry(_Part):
    """The figures of what a switch OS lets users configure."""

    separate_thresholds: FigureEntry[StrictBool]
    averaging_weight: FigureEntry[StrictBool]


class HardwareDocument(_Part):
    """The whole document with the hardware figures."""

    schema_version: Literal["mltswitch/hardware/v1"] = Field(alias="schema")
    sources: dict[str, _Text]
    chips: dict[str, ChipEntry]
    boxes: dict[str, BoxEntry]
    systems: dict[str, SystemEntry]
    fastpath_scale_bytes: dict[str, FigureEntry[_Count]]
