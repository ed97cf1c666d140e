"""Bytes without sense, a few; `python -m benchmarks.agent_campaign --fuzz N` does more."""

from random import Random

import pytest

from tests.hostagent.virtual.footprint import footprint
from tests.hostagent.virtual.fuzz import fuzz
from tests.hostagent.virtual.mutations import mutated


@pytest.mark.parametrize("seed", range(3))
def test_what_reads_bytes_takes_anything(seed: int) -> None:
    found = fuzz(seed, 3000)
    assert not found.failures, "\n".join(failure.where + failure.what for failure in found.failures)
    assert sum(found.inputs.values()) >= 3000
    assert all(found.refused[name] for name in ("messages", "hello", "headers", "bitmaps")), found.refused


def test_mutations_change() -> None:
    random = Random(1)  # noqa: S311  (no secret)
    data = bytes(range(60))
    assert sum(mutated(random, data) != data for _ in range(100)) > 80


def test_the_footprint_counts_what_is_held() -> None:
    class Holder:
        def __init__(self, size: int) -> None:
            self.held = [bytes(1000) + bytes([place % 256]) for place in range(size)]

    small, large = footprint(Holder(1)), footprint(Holder(101))
    assert large[0] - small[0] == 100
    assert 100_000 < large[1] - small[1] < 120_000
