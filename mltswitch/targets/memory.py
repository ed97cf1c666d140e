"""A function that keeps its last result."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_Value = TypeVar("_Value")


def remembering_last(function: Callable[_P, _Value]) -> Callable[_P, _Value]:
    """The same function, which keeps its last result: a state is checked, rendered and parsed in one go.

    Positional arguments are compared, not hashed, which would often take as long as the function. Callers
    must not change the result.
    """
    last: tuple[tuple[Any, ...], _Value] | None = None

    @wraps(function)
    def remembered(*arguments: _P.args, **named: _P.kwargs) -> _Value:
        nonlocal last
        known = last  # another thread may replace it meanwhile
        if known is None or not all(a is b or a == b for a, b in zip(known[0], arguments, strict=True)):
            known = last = (arguments, function(*arguments, **named))
        return known[1]

    return remembered
