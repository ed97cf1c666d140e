"""Two hosts with a cable between them."""

from collections.abc import Iterator

import pytest

from tests.hostagent.namespaces import TwoHosts, can_make_namespaces, two_hosts


@pytest.fixture(scope="module")
def cabled() -> Iterator[TwoHosts]:
    """Two namespaces; needs root."""
    if not can_make_namespaces():
        pytest.skip("network namespaces need root")
    with two_hosts() as hosts:
        yield hosts
