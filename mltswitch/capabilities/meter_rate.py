"""Rates of BMv2's meters: their text, and which of them P4Runtime reads back as they were set."""

from decimal import Decimal
from typing import Final

BYTES_PER_MICROSECOND: Final = 10**6
"""BMv2's unit of a rate, one byte per microsecond, in bytes per second."""


def rate_kept(bytes_per_second: int) -> int:
    """The highest rate, not above the given one, that BMv2 reads back as it was set; 0 and 1 are kept.

    It keeps bytes per microsecond as a floating-point number and cuts the fraction off when it is read
    (PI/src/direct_res_spec.cpp in behavioral-model): 249 would be read back as 248. About one rate in a
    hundred is affected, sometimes several in a row.
    """
    rate = bytes_per_second
    while int(rate / BYTES_PER_MICROSECOND * BYTES_PER_MICROSECOND) != rate:
        rate -= 1
    return rate


def rate_text(bytes_per_second: int) -> str:
    """A rate as BMv2's command line has it, in bytes per microsecond."""
    whole, rest = divmod(bytes_per_second, BYTES_PER_MICROSECOND)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".")


def rate_in(text: str) -> int:
    """The bytes per second in BMv2's text of a rate, which has at most six decimals."""
    return int(Decimal(text) * BYTES_PER_MICROSECOND)
