"""For claims about what a shared machine measured, and for nothing else: logic is right the first time.

A machine on which other work runs pauses hosts, switches and clocks for milliseconds. A measurement that met
such a moment says nothing about the switch; what is wrong with a switch is wrong each time. So a claim about
rates, losses or delays may be measured anew, a bounded number of times, and must hold once.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from mltswitch.errors import MachineError

MEASUREMENTS: Final = 3
Result = TypeVar("Result")


def measured(measure: Callable[[], Result], holds: Callable[[Result], bool]) -> Result:
    """The first of three measurements of which the claim holds; where it never does, the last one.

    The caller asserts on it. Hosts that were too slow to measure at all (MachineError) have used one up; the
    last time that is raised.
    """
    for _ in range(MEASUREMENTS - 1):
        try:
            found = measure()
        except MachineError:
            continue
        if holds(found):
            return found
    return measure()
