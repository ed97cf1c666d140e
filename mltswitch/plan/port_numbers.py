"""Some switches know ports by numbers, a fabric by names: the number is what the name ends with."""

import re
from typing import Final

_DIGITS: Final = re.compile(r"[0-9]+\Z")


def trailing_number(name: str) -> int | None:
    """3 of `eth3`, `s1-eth3` or `3`; None: the name ends with no digit."""
    digits = _DIGITS.search(name)
    return None if digits is None else int(digits[0])
