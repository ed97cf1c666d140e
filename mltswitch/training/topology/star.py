"""Parameter servers: each piece has one node that adds up all ranks' gradients and sends the sum to all.

That node is a server of its own, or one rank for all pieces, or each rank for its share.
"""

from collections.abc import Set
from typing import Self

from mltswitch.overlay.trees import star
from mltswitch.training.axes import Action, Needs, Network, NoSettings, Step, settings_of
from mltswitch.training.job import Job
from mltswitch.training.topology.tree import Branches, Tree
from mltswitch.units import BITS_PER_BYTE


class Star:
    """The registered topology `star`; pieces are dealt in turn to servers, or to the ranks."""

    name = "star"
    offers = Needs(lone_pushes=True, stale_pushes=True)
    counts_arrivals = True
    has_servers = True

    def of(self, job: Job) -> Self:
        """This topology, equal for every job; raises UserInputError for any setting."""
        settings_of(job, NoSettings, axis="topology")
        return self

    def root(self, job: Job, piece: int) -> int:
        """The number of the node that adds up a piece."""
        if job.colocated is not None:
            return job.colocated
        return job.world + piece % job.servers if job.servers else piece % job.world

    def schedule(self, job: Job, piece: int, node: int, origin: int | None = None) -> tuple[Step, ...]:
        """A node's steps for a piece; the root adds in the order of ranks, so that equal gradients give equal
        sums."""
        root = self.root(job, piece)
        ranks = range(job.world) if origin is None else (origin,)
        if node != root:
            if node not in ranks:
                return ()
            pull = Step(Action.RECEIVE, root, is_result=True)
            return Step(Action.SEND, root), pull, Step(Action.RESULT, after=(1,))
        others = [rank for rank in ranks if rank != root]
        steps = [Step(Action.RECEIVE, rank) for rank in others]
        received = {step.peer: number for number, step in enumerate(steps)}
        before: tuple[int, ...] = ()
        for rank in ranks:
            after = before if rank == root else (*before, received[rank])
            before = (len(steps),)
            steps.append(Step(Action.ADD, None if rank == root else rank, after, ranks=(rank,)))
        result = (len(steps),)
        steps.append(Step(Action.RESULT, after=before))
        return (*steps, *(Step(Action.SEND, rank, result, is_result=True) for rank in others))

    def without(self, job: Job, gone: Set[int], *, is_star: bool) -> Tree:
        """Trees of one hop between the nodes that are left; pieces of a gone root go to the next one."""
        found = Tree(job)
        roots = [self.root(job, piece) for piece in range(len(job.pieces) + 1)]
        order = sorted({*roots})
        found.branch_of = tuple(order.index(root) for root in roots)
        found.branches = tuple(Branches(root, star(root, job.world), star(root, job.world)) for root in order)
        return found.without(job, gone, is_star=is_star)

    def lossy_hops(self, job: Job) -> int:  # noqa: ARG002
        """How many hops may lose gradients on their way into a sum: one, from each rank to the root."""
        return 1

    def seconds(self, job: Job, network: Network) -> float:
        """Estimated time: the busiest link carries all other ranks' gradients, then as many results the other
        way."""
        size_bits = job.elements * job.wire_bytes * BITS_PER_BYTE
        if job.servers:
            carried_bits = 2 * size_bits * job.world / job.servers
        elif job.colocated is not None:
            carried_bits = 2 * size_bits * (job.world - 1)
        else:
            carried_bits = 2 * size_bits * (job.world - 1) / job.world
        return carried_bits / network.link_bps + 2 * network.latency_seconds


TOPOLOGY = Star()
