"""A port of a fabric decides as the port of the loss models does."""

import pytest

from benchmarks.network_port import CASES, FATES, compare


@pytest.mark.parametrize("name", CASES)
def test_the_same_arrivals_meet_the_same_verdicts(name: str) -> None:
    found = compare(name, 30_000, seed=2)
    assert found["differences"] == 0
    assert found["mark"] > 300
    assert sum(found[fate] for fate in FATES[2:]) > 300
