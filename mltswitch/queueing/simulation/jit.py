"""numba's compiler behind a typed decorator."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def jit(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile at the first call; keep the machine code on disk where a folder can be written.

    Where none can (a read-only installation of a user without a home), every process compiles anew.
    """
    try:
        compiled = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        compiled = numba.njit(error_model="numpy")(function)
    return cast("Callable[Parameters, Result]", compiled)
