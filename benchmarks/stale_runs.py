"""Random runs of caches along trees in virtual time, whose pulls are counted out."""

from dataclasses import replace
from typing import Final

import numpy as np

from mltswitch.training.axes import Elements, Network
from mltswitch.training.caches import shape_of
from mltswitch.training.job import make_job
from mltswitch.training.virtual_caches import VirtualCaches

PAUSE_SECONDS: Final = 0.05
"""On average."""


def play(seed: int) -> int:
    """One random run: how many pulls and ends are wrong."""
    random = np.random.default_rng(seed)
    world, staleness, clocks = (int(random.integers(*span)) for span in ((1, 9), (0, 5), (1, 9)))
    job = make_job(
        [("front", 40), ("back", 30)],
        world=world,
        servers=int(random.integers(0, 4)),
        element_type="float64",
        topology=str(random.choice(["tree", "tree", "star"])),
        piece_bytes=160,
    )
    if job.topology == "tree":
        settings = {
            "in_degree": int(random.integers(1, 4)),
            "placement": str(random.choice(["spread", "fixed"])),
        }
        job = replace(job, topology_settings=settings)
    network = Network(float(random.choice([1e6, 1e8])), float(random.choice([1e-5, 1e-2])))
    base, wrong = clocks + 1, 0

    def compute(rank: int, clock: int, values: Elements) -> tuple[float, Elements]:
        nonlocal wrong
        for value in {int(value) for value in values}:
            counts = [value // base**other % base for other in range(world)]
            own = counts.pop(rank)
            wrong += own != clock or min(counts, default=clock) < clock - staleness or value >= base**world
        pause = random.exponential(PAUSE_SECONDS) * random.choice([1.0, 1.0, 20.0])
        return float(pause), np.full(job.elements, float(base**rank))

    report = VirtualCaches(job, shape_of(job), network, np.zeros(job.elements), staleness).run(
        clocks, compute
    )
    whole = float(sum(clocks * base**rank for rank in range(world)))
    return wrong + sum(bool((values != whole).any()) for values in report.values.values())
