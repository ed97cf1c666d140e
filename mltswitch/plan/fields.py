"""What the parts of a fabric file have in common: their base, and values checked by pattern or range."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mltswitch.units import parse_bps, parse_bytes

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
PortName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9/_.-]{0,31}$")]
PortReference = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}:[A-Za-z0-9][A-Za-z0-9/_.-]{0,31}$")
]
DscpValue = Annotated[int, Field(ge=0, le=63)]
RateBps = Annotated[int, BeforeValidator(parse_bps), Field(gt=0)]
SizeBytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]
LimitPackets = Annotated[int, Field(ge=1, le=1_000_000)]
BurstPackets = Annotated[int, Field(ge=1, le=1024)]
DelaySeconds = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]


class Document(BaseModel):
    """A part of a document: frozen, and without fields that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
