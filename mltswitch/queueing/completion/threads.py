"""The matrices here are small: threads of the linear algebra library would only wait for each other."""

from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> Any:
    return ThreadpoolController()


def one_thread() -> Any:
    """Context in which BLAS and LAPACK use one thread."""
    return _controller().limit(limits=1, user_api="blas")
