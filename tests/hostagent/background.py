"""Something that happens at the same time: its result is asked for, or it is waited for, later."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import pytest

PATIENCE_SECONDS = 60.0

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@contextmanager
def in_background(
    function: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Iterator[Callable[[], Result]]:
    """Call it in a thread; what is yielded waits for it and returns, or raises, what it did."""
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(function, *arguments, **named)
        yield lambda: future.result(PATIENCE_SECONDS)


def is_run_again(item: pytest.Item) -> bool:
    """Whether this test has failed before (pytest-rerunfailures): what it saw then must not be kept."""
    return getattr(item, "execution_count", 1) > 1


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)
