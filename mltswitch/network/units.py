"""How a scenario writes times, rates and sizes, and the engine's unit of time."""

from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from mltswitch.units import parse_bps, parse_bytes

PICOSECONDS: Final = 10**12
"""Picoseconds in one second."""
LONGEST_PICOSECONDS: Final = 1 << 62
"""The engine counts up to this time, 53 days, and no further."""
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_seconds(value: object) -> object:
    """Seconds of a text such as `1.5ms`; a number stands for seconds. Raises ValueError."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    number = text.rstrip("nuµms")
    try:
        return round(float(number) * _UNITS[text[len(number) :].replace("\u03bc", "µ")], 15)
    except (ValueError, KeyError):
        raise ValueError(f"{value[:40]!r} is no time, write for example 1.5ms or 0.0015") from None


Seconds = Annotated[
    float,
    Field(ge=0, le=1000, allow_inf_nan=False),
    BeforeValidator(parse_seconds, json_schema_input_type=float | str),
]
RateBps = Annotated[int, Field(gt=0), BeforeValidator(parse_bps, json_schema_input_type=int | str)]
SizeBytes = Annotated[int, Field(gt=0), BeforeValidator(parse_bytes, json_schema_input_type=int | str)]
