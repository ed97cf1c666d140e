"""Compile at the first call, and keep the machine code on disk until a source that it was made of changes."""

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

import numba

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_PACKAGE: Final = Path(__file__).parents[1]
_OWN_ROOM: Final = Path(__file__).parent.name


def jit(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function; where no folder for the cache can be written, every process compiles anew.

    numba's cache on disk notices a change in the file of the function alone, not in those that it calls. Here
    one key stands for all sources of the function's package, and of this one, whose functions others call.
    """
    try:
        compiled: Any = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        compiled = numba.njit(error_model="numpy")(function)
    else:
        # numba has no public way to say what a cached function depends on.
        compiled._cache._cache_file._source_stamp = source_key(_room_of(function.__module__))
    return cast("Callable[Parameters, Result]", compiled)


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether machine code of a function is at hand, in this process or on disk, or must be made first."""
    compiled: Any = function
    stored = getattr(compiled._cache, "_cache_file", None)  # a cache without a folder has none
    return bool(compiled.signatures or (stored and stored._load_index()))


def _room_of(module: str) -> Path:
    """The folder of a room; of a module elsewhere, a benchmark say, its file."""
    package, *inside = module.split(".")
    if package == _PACKAGE.name and len(inside) > 1:
        return _PACKAGE / inside[0]
    return Path(getattr(sys.modules[module], "__file__", None) or __file__)


@cache
def source_key(room: Path) -> str:
    """A hash of all sources of a room (a folder, or one file) and of this room."""
    key = hashlib.sha256()
    for place in dict.fromkeys((_PACKAGE / _OWN_ROOM, room)):
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        for file in files:
            key.update(f"{file.relative_to(place.parent)}\0".encode())
            key.update(hashlib.sha256(file.read_bytes()).digest())
    return key.hexdigest()
