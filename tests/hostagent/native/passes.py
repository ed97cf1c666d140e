"""With compiled passes and without, in one process."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mltswitch.hostagent import native

needs_passes = pytest.mark.skipif(
    native.PROBLEM == native.UNWANTED or shutil.which("cc") is None,
    reason=f"nobody wants compiled passes, or there is no C compiler: {native.PROBLEM}",
)


@contextmanager
def without_passes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "LIBRARY", None)
        yield
