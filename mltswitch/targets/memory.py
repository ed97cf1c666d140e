"""A function that keeps its last result."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

_Argument = TypeVar("_Argument")
_Value = TypeVar("_Value")


def remembering_last(function: Callable[[_Argument], _Value]) -> Callable[[_Argument], _Value]:
    """The same function, which keeps its last result: a state is checked, rendered and parsed in one go.

    Arguments are compared, not hashed, which would take as long as many a result. Nobody may change that.
    """
    last: tuple[_Argument, _Value] | None = None

    @wraps(function)
    def remembered(argument: _Argument) -> _Value:
        nonlocal last
        known = last  # another thread may replace it meanwhile
        if known is None or not (known[0] is argument or known[0] == argument):
            known = last = (argument, function(argument))
        return known[1]

    return remembered
