"""A function that keeps its last result."""

from collections.abc import Callable
from functools import wraps
from operator import eq
from typing import TypeVar

_Argument = TypeVar("_Argument")
_Value = TypeVar("_Value")


def remembering_last(
    function: Callable[[_Argument], _Value], same: Callable[[_Argument, _Argument], bool] = eq
) -> Callable[[_Argument], _Value]:
    """The same function, which keeps its last result: a state is checked, rendered and parsed in one go.

    Arguments are compared by `same`, not hashed, which would take as long as many a result. Nobody may change
    the result.
    """
    last: tuple[_Argument, _Value] | None = None

    @wraps(function)
    def remembered(argument: _Argument) -> _Value:
        nonlocal last
        known = last  # another thread may replace it meanwhile
        if known is None or not (known[0] is argument or same(known[0], argument)):
            known = last = (argument, function(argument))
        return known[1]

    return remembered
