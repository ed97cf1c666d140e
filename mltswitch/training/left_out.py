"""Reports what loss bounds left out at all nodes: each tells its counts when the first rank asks.

Messages carry the counts and not the ballot, which only some synchronizations have, and no server.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from mltswitch.hostagent.telemetry.events import GradientsLeftOut
from mltswitch.training.addition import Loss
from mltswitch.training.job import Job

MOST_LAYERS: Final = 30
"""The most layers that a node reports, those with the most missing elements, since messages are short."""


class LeftOut:
    """Counts of the elements that loss bounds left out at this node, and those reported by the other
    nodes."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._layers: Counter[int] = Counter()
        """Elements without, once for each rank whose they are, by layer; since the last report."""
        self._cut = 0
        """How many of those were no longer waited for."""
        self._first = self._end = 0
        """Steps of the report that is being made: the first, and one beyond the last."""
        self._told = 0
        self._said: dict[int, tuple[int, int, Counter[int]]] = {}
        """What each node has told: elements in all, those not waited for, and by layer."""

    def count(self, loss: Loss) -> None:
        """Count one loss at this node."""
        elements = loss.elements * len(loss.ranks)
        self._layers[self._job.pieces[loss.total.piece].layer] += elements
        self._cut += elements * loss.is_cut

    def is_due(self, steps: int) -> bool:
        """Whether the first rank asks all nodes for a report after this number of steps."""
        return self._job.loss_bound > 0 and self._job.report_every > 0 and not steps % self._job.report_every

    def has_told(self, end: int) -> bool:
        """Whether this node has already told its part of the report that ends before step `end`, as another
        rank may ask again."""
        return end <= self._told

    def enter(self, step: int) -> None:
        """Note that this node entered the job in this step, so that reports on earlier steps do not concern
        it."""
        self._first = self._end = self._told = step // (self._job.report_every or 1) * self._job.report_every

    def told(self, end: int) -> list[object]:
        """This node's part of the report on the steps before `end`, as a message."""
        self._told = end
        said = [end, self._layers.total(), self._cut, self._layers.most_common(MOST_LAYERS)]
        self._layers, self._cut = Counter(), 0
        return said

    def heard(self, node: int, said: Sequence[object], nodes: Collection[int]) -> GradientsLeftOut | None:
        """Take another node's part of a report; returns the report when all these nodes have told theirs,
        else None. Raises ValueError, TypeError or LookupError for an impossible message."""
        end, total, cut, layers = said
        if not isinstance(end, int) or not isinstance(total, int) or not isinstance(cut, int):
            raise TypeError("no numbers")
        if end > self._end:
            self._first, self._end, self._said = self._end, end, {}
        if end < self._end:
            return None
        self._said[node] = total, cut, Counter({int(layer): int(n) for layer, n in layers})  # type: ignore[attr-defined]  # raises
        if not self._said.keys() >= {*nodes}:
            return None
        sizes: Counter[int] = Counter()
        for piece in self._job.pieces:
            sizes[piece.layer] += piece.count
        ranks = sum(node < self._job.world for node in nodes) * (self._end - self._first)
        shares = {
            layer: count / sizes[layer] / ranks
            for layer, count in sum((by for _, _, by in self._said.values()), Counter[int]()).items()
        }
        worst = max(shares, key=lambda layer: shares[layer], default=-1)
        cut = sum(cut for _, cut, _ in self._said.values())
        total = sum(total for total, _, _ in self._said.values())
        return GradientsLeftOut(
            first_step=self._first,
            last_step=self._end - 1,
            network_share=(total - cut) / self._job.elements / ranks,
            bound_share=cut / self._job.elements / ranks,
            layer=self._job.layers[worst].name if shares else "",
            layer_share=shares.get(worst, 0.0),
        )
