"""Agents for the tests of the core."""

from collections.abc import Iterator

import pytest

from mltswitch.hostagent import Agent
from tests.hostagent.ends import Make, joined, opening


@pytest.fixture
def make() -> Iterator[Make]:
    with opening() as one:
        yield one


@pytest.fixture
def pair(make: Make, request: pytest.FixtureRequest) -> tuple[Agent, Agent]:
    """A sender and a receiver, connected, over a transport that a test may name by indirect parameters."""
    return joined(make, transport=getattr(request, "param", "mlt"))


@pytest.fixture(scope="module")
def lasting_pair() -> Iterator[tuple[Agent, Agent]]:
    """The same two for all tests of a file; packets as on a cable."""
    with opening() as one:
        yield joined(one, mtu_bytes=1500)
