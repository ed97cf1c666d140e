"""Ring all-reduce: a piece goes once around, each rank adds to it, then once more as the result."""

from typing import Self

from mltswitch.training.axes import Action, Needs, Network, NoSettings, Step, settings_of
from mltswitch.training.job import Job
from mltswitch.units import BITS_PER_BYTE


class Ring:
    """The registered topology `ring`; pieces begin at the ranks in turn, so that all links carry alike."""

    name = "ring"
    offers = Needs()
    counts_arrivals = False
    has_servers = False

    def of(self, job: Job) -> Self:
        """This topology, equal for every job; raises UserInputError for any setting."""
        settings_of(job, NoSettings, axis="topology")
        return self

    def schedule(
        self,
        job: Job,
        piece: int,
        node: int,
        origin: int | None = None,  # noqa: ARG002
    ) -> tuple[Step, ...]:
        """A rank's steps for a piece, by its position in the ring counted from where the piece begins."""
        world = job.world
        if world == 1:
            return Step(Action.ADD, ranks=(0,)), Step(Action.RESULT, after=(0,))
        place = (node - piece) % world
        before, behind = (node - 1) % world, (node + 1) % world
        if place == 0:
            steps = [Step(Action.SEND, behind)]
        else:
            ranks = tuple((piece + earlier) % world for earlier in range(place))
            steps = [
                Step(Action.RECEIVE, before),
                Step(Action.ADD, before, (0,), ranks=ranks),
                Step(Action.ADD, after=(1,), ranks=(node,)),
            ]
        if place == world - 1:
            steps += [Step(Action.RESULT, after=(2,)), Step(Action.SEND, behind, (3,), is_result=True)]
            return tuple(steps)
        if place:
            steps.append(Step(Action.SEND, behind, (2,)))
        received = len(steps)
        steps += [Step(Action.RECEIVE, before, is_result=True), Step(Action.RESULT, after=(received,))]
        if place < world - 2:
            steps.append(Step(Action.SEND, behind, (received,), is_result=True))
        return tuple(steps)

    def lossy_hops(self, job: Job) -> int:
        """Number of hops of the first rank's gradients, which pass all other ranks."""
        return max(1, job.world - 1)

    def seconds(self, job: Job, network: Network) -> float:
        """Estimated time: each link carries 2 (n - 1) / n of the model, and the last piece passes 2 (n - 1)
        links."""
        hops = 2 * (job.world - 1)
        size_bits = job.elements * job.wire_bytes * BITS_PER_BYTE
        return hops * (size_bits / job.world / network.link_bps + network.latency_seconds)


TOPOLOGY = Ring()
