"""How a scenario writes times, rates and sizes, and the engine's unit of time."""

from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from mltswitch.units import parse_bps, parse_bytes

PICOSECONDS: Final = 10**12
"""Picoseconds in one second."""
Seconds = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
LONGEST_PICOSECONDS: Final = 1 << 62
"""The engine counts up to this time, 53 days, and no further."""
RateBps = Annotated[int, Field(gt=0), BeforeValidator(parse_bps, json_schema_input_type=int | str)]
SizeBytes = Annotated[int, Field(gt=0), BeforeValidator(parse_bytes, json_schema_input_type=int | str)]
