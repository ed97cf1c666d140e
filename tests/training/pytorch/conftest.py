"""Living ranks for the tests of each module."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def ranks(request: pytest.FixtureRequest) -> Iterator[Any]:
    """As many as the module's LIVING says, else two, whose tensors are on a device."""
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    from tests.training.pytorch.ranks import living

    yield from living(getattr(request.module, "LIVING", 2), request.param)
