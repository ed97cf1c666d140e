"""The laws of every synchronization over every topology, built in or registered by others, in virtual time."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from benchmarks.training_campaign import broken, play, scenario
from mltswitch.errors import UserInputError
from mltswitch.training import axes
from mltswitch.training.axes import Network, axes_of, synchronizations, topologies
from mltswitch.training.job import make_job
from mltswitch.training.virtual import HungError, VirtualJob
from tests.training import strangers

FAULTS = ("", "kill", "cut", "never", "slow", "mismatch")
SYNCHRONIZATIONS = ("bsp", "window", "stages")
TOPOLOGIES = ("star", "ring", "tree-2", "tree-3")


@dataclass
class Entry:
    """An entry point of another package."""

    point: Any

    def load(self) -> Any:
        return self.point


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `strangers` has, as another package would register it."""
    points = {
        "mltswitch.topologies": strangers.TOPOLOGIES,
        "mltswitch.synchronizations": (*strangers.JOINT, *strangers.ALONE),
    }
    monkeypatch.setattr(axes, "entry_points", lambda group: [Entry(point) for point in points[group]])
    synchronizations.cache_clear()
    topologies.cache_clear()
    yield
    synchronizations.cache_clear()
    topologies.cache_clear()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("synchronization", SYNCHRONIZATIONS)
def test_no_law_is_broken(synchronization: str, topology: str, fault: str) -> None:
    for seed in range(6):
        case = scenario(seed, synchronization=synchronization, topology=topology, fault=fault)
        assert not broken(case), f"seed {seed}"
