"""Traffic that is no training's: flows of random sizes between random hosts, at random times."""

from math import sqrt
from typing import Literal

import numpy as np
from pydantic import Field

from mltswitch.documents import SparseDocument
from mltswitch.network.units import PICOSECONDS, Seconds
from mltswitch.network.workloads.base import Extent, Flow, Stage, Work
from mltswitch.network.workloads.distributions import resolve_distribution


class Background(SparseDocument):
    """Flows that arrive as a Poisson process, from random hosts to random other ones."""

    kind: Literal["background"]
    load: float = Field(gt=0, lt=1, allow_inf_nan=False)
    """Bytes that arrive, without headers, as a share of what the hosts' links carry."""
    sizes: str = "web-search"
    """`web-search`, `data-mining`, or a file of rows with bytes and the share of flows that are no larger."""
    duration_seconds: Seconds = Field(gt=0, alias="duration")
    """Flows arrive for so long."""

    def extent(self, stage: Stage) -> Extent:
        """How much there is to send, at the most; raises UserInputError where the fabric is too small."""
        stage.need(2, "background flows")
        sizes, expected = resolve_distribution(self.sizes), self._expected(stage)
        flows = round(expected + 6 * sqrt(expected)) + 6
        return Extent(flows, round(flows * sizes.mean_bytes), sizes.largest_bytes, self.duration_seconds)

    def flows(self, stage: Stage) -> Work:
        """Hosts with faster links send more often, and to all others alike."""
        random, rates = stage.random, np.array(stage.rates_bps, float)
        count = int(random.poisson(self._expected(stage)))
        times = np.sort(random.random(count)) * self.duration_seconds * PICOSECONDS
        sources = random.choice(stage.hosts, count, p=rates / rates.sum())
        others = (sources + random.integers(1, stage.hosts, count)) % stage.hosts
        sizes = resolve_distribution(self.sizes).draw(random, count)
        columns = (column.tolist() for column in (sources, others, sizes, np.rint(times).astype(np.int64)))
        return Work(
            Flow(source, other, size, stage.background_class, time, "background")
            for source, other, size, time in zip(*columns, strict=True)
        )

    def _expected(self, stage: Stage) -> float:
        """How many flows arrive on average."""
        carried_bytes = sum(stage.rates_bps) / 8 * self.duration_seconds
        return self.load * carried_bytes / resolve_distribution(self.sizes).mean_bytes
