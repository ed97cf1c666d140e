"""BMv2 knows ports by numbers, a fabric by names: the number is what the name ends with.

A state names them after their number, as its text does: `eth3`, whatever stood before the 3 in the fabric.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from mltswitch.errors import UnsupportedPlanError
from mltswitch.plan import trailing_number
from mltswitch.targets.bmv2.capabilities import CPU_PORT, PORTS, SIMPLE_SWITCH

STATE_NAME: Final = re.compile(r"eth(?:0|[1-9][0-9]{0,2})")
PORT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9/_.-]{0,31}")


@lru_cache(maxsize=1024)
def port_number(name: str) -> int:
    """The number at the end of a port's name: 3 of `eth3`, `s1-eth3` or `3`; raises UnsupportedPlanError."""
    number = trailing_number(name) if PORT_NAME.fullmatch(name) else None
    if number is None or number >= PORTS or number == CPU_PORT:
        raise UnsupportedPlanError(
            "does not end with the number of a port of BMv2",
            where=f"port {name}",
            expected=f"0 to {PORTS - 1}, but not {CPU_PORT}, such as eth3",
        )
    return number


def port_name(number: int) -> str:
    """The name in a state of the port with this number: `eth3` for 3."""
    return SIMPLE_SWITCH.port_numbering.pattern.format(n=number)


def numbered(names: Iterable[str]) -> dict[str, int]:
    """Port name → its number; raises UnsupportedPlanError where two ports would have one number."""
    owners: dict[int, str] = {}
    for name in names:
        if (number := port_number(name)) in owners:
            raise UnsupportedPlanError(
                f"is port {number} of BMv2, as {owners[number]} is", where=f"port {name}"
            )
        owners[number] = name
    return {name: number for number, name in owners.items()}
