from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numba
import pytest

from mltswitch.queueing import jit


def test_without_a_folder_for_the_cache_it_compiles_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere_to_write(**options: Any) -> Callable[..., Any]:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)  # type: ignore[no-any-return]

    monkeypatch.setattr(jit, "numba", SimpleNamespace(njit=nowhere_to_write))

    def double(value: int) -> int:
        return 2 * value

    assert jit.jit(double)(21) == 42
