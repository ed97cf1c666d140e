"""Some hundred scenarios, and the seeds that have found something."""

import os
from collections import Counter

import pytest

from mltswitch.hostagent import native
from mltswitch.hostagent.transport import connection
from tests.hostagent.virtual.campaign import play, tally
from tests.hostagent.virtual.play import Play
from tests.hostagent.virtual.scenario import scenario

SCENARIOS = int(os.environ.get("MLTSWITCH_CAMPAIGN_SCENARIOS", "500"))
PARTS = 5


@pytest.mark.parametrize("part", range(PARTS))
def test_everything_holds_in_scenarios_from_the_first_seeds(part: int) -> None:
    first, last = SCENARIOS * part // PARTS, SCENARIOS * (part + 1) // PARTS
    found = tally(range(first, last))
    assert not found.failures, "\n".join(
        f"python -m benchmarks.agent_campaign --replay {failure.seed}  # {failure.what}"
        for failure in found.failures
    )
    assert found.scenarios == last - first
    assert found.complete > found.scenarios / 2
    assert found.incomplete_within_bound > 0
    assert found.refused > 0
    assert len(found.kinds) == 3


def test_the_scenarios_reach_every_end() -> None:
    errors: Counter[str] = tally(range(300)).errors
    assert {
        "CancelledError",
        "DeadlineExceededError",
        "PeerUnreachableError",
        "TransferMismatchError",
    } <= set(errors)


def test_one_seed_one_trace() -> None:
    assert [play(seed).trace for seed in range(20)] == [play(seed).trace for seed in range(20)]


@pytest.mark.parametrize("few", [0, 10**9])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_it_is_all_the_same_whether_datagrams_are_read_compiled_or_together_or_one_by_one(
    is_compiled: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last byte that either end sends, and its time."""
    seeds = range(60)
    usual = [Play(scenario(seed)).run().trace for seed in seeds]
    monkeypatch.setattr(connection, "FEW_DATAGRAMS", few)
    if not is_compiled:
        monkeypatch.setattr(native, "LIBRARY", None)
    assert [Play(scenario(seed)).run().trace for seed in seeds] == usual
