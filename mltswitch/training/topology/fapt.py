"""Trees between sites, planned by the rates of their links, and again when rates change (NetStorm).

The settings have the network, and a policy that makes trees of it; `tree` does the rest.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import Any, Final, Self

from pydantic import Field, ValidationError

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.fastest import disjoint_paths
from mltswitch.overlay.policies import route
from mltswitch.training.auxiliary import AuxiliarySettings, Path
from mltswitch.training.axes import settings_of
from mltswitch.training.changes import NOTHING_BPS, Ends, UpdateSettings, text_of
from mltswitch.training.job import Job
from mltswitch.training.topology.tree import JobRoutes, Tree, TreeSettings
from mltswitch.units import BITS_PER_BYTE

LEAST_IDLE: Final = 0.02
"""Share of a link's rate that counts as idle, however full its trees make it."""


class FaptSettings(UpdateSettings, AuxiliarySettings):
    """Settings of the topology `fapt`."""

    overlay: Overlay
    """The hosts of the job's ranks, linked with each other."""
    policy: str = "fapt"
    """Name of the policy that makes trees: `fapt`, `packed`, `mst` or another registered one."""
    policy_settings: dict[str, Any] = Field(default_factory=dict)
    fixed_roots: bool = False
    """Whether the trees' roots stay the same when routes change, as NetStorm's do, since they hold
    parameters."""
    routes: JobRoutes | None = None
    """Routes at the start, so that only ranks that plan need the extra `sim`; None: each rank plans them."""


class Fapt(Tree):
    """The topology `fapt`: registered without a job, and made from a job's settings by `of`."""

    name = "fapt"
    has_servers = False

    def of(self, job: Job) -> Self:
        """The topology with a job's trees; raises UserInputError for wrong settings, MachineError without
        networkx."""
        found = type(self)(job)
        chosen = found._chosen
        if len(chosen.overlay.ranks) != job.world or chosen.overlay.servers or job.colocated is not None:
            ranks, servers = len(chosen.overlay.ranks), len(chosen.overlay.servers)
            problem = (
                f"has {ranks} ranks and {servers} servers, the job {job.world} ranks that serve each other"
            )
            raise UserInputError(problem, where="topology.fapt.overlay")
        if not found.rates_bps and job.world > 1:
            problem = "has no links between hosts with ranks"
            raise UserInputError(problem, where="topology.fapt.overlay", hint="take tree behind switches")
        if chosen.update_seconds and job.synchronization != "bsp":
            problem = f"{job.synchronization}: routes change under bsp alone"
            raise UserInputError(problem, where="topology.fapt.update_seconds", expected="0")
        if chosen.fixed_roots and chosen.policy != "fapt":
            problem = f"{chosen.policy} chooses no roots"
            raise UserInputError(problem, where="topology.fapt.fixed_roots", expected="policy fapt")
        if chosen.auxiliary != "none" and job.synchronization != "bsp":
            problem = f"{job.synchronization}: pieces take other paths under bsp alone"
            raise UserInputError(problem, where="topology.fapt.auxiliary", expected="none")
        if chosen.routes is None:
            found.take(found.planned(found.rates_bps))
        else:
            found.take(text_of(chosen.routes.model_dump(mode="json")))
        return found

    @cached_property
    def _chosen(self) -> FaptSettings:
        return settings_of(self._configured, FaptSettings, axis="topology")

    def take(self, text: str) -> None:
        """Use the routes in this JSON text from now on; raises UserInputError where they are unusable."""
        try:
            routes = JobRoutes.model_validate(json.loads(text))
        except (ValidationError, ValueError):
            raise UserInputError("are none", where="topology.fapt.routes") from None
        self.__dict__["_settings"] = TreeSettings(routes=routes)
        for _, up, down in self.branches:
            for source, target in (*up.items(), *((parent, child) for child, parent in down.items())):
                if (source, target) not in self.rates_bps:
                    problem = f"rank {source} sends to rank {target}, and no link goes there"
                    raise UserInputError(problem, where="topology.fapt.routes")

    def without(self, job: Job, gone: Set[int], *, is_star: bool) -> Self:
        """The topology with trees of the nodes that are left, made from routes and from settings alike."""
        found = super().without(job, gone, is_star=is_star)
        found.__dict__["_settings"] = TreeSettings()  # its trees are no longer those of settings
        return found

    # As `Changing`

    @property
    def updates(self) -> UpdateSettings:
        """The settings that say when the job looks at its links, and what makes it change its routes."""
        return self._chosen

    @cached_property
    def _ranks(self) -> Mapping[str, int]:
        """Numbers of the ranks by the names of their hosts."""
        return {node.name: rank for rank, node in enumerate(self._chosen.overlay.ranks)}

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the ranks' hosts, in order of rank."""
        return [*self._ranks]

    @cached_property
    def rates_bps(self) -> Mapping[Ends, float]:
        """The rates of the overlay's links between two hosts with ranks."""
        return {
            (self._ranks[link.source], self._ranks[link.target]): float(link.rate_bps)
            for link in self._chosen.overlay.links
            if link.source in self._ranks and link.target in self._ranks
        }

    def _with(self, rates_bps: Mapping[Ends, float]) -> Overlay:
        overlay, links = self._chosen.overlay, []
        for link in overlay.links:
            ends = self._ranks.get(link.source, -1), self._ranks.get(link.target, -1)
            links.append(link.model_copy(update={"rate_bps": round(rates_bps.get(ends, link.rate_bps)) or 1}))
        return overlay.model_copy(update={"links": tuple(links)})

    def planned(self, rates_bps: Mapping[Ends, float]) -> str:
        """Routes that the policy makes for other rates, as text; raises MachineError, UserInputError."""
        job, chosen = self._configured, self._chosen
        exchange = Exchange(float(job.elements * job.wire_bytes * BITS_PER_BYTE), len(job.pieces))
        settings = dict(chosen.policy_settings)
        if chosen.fixed_roots and "_settings" in self.__dict__:
            settings["roots"] = sorted({self.names[each.root] for each in self.branches})
        found = route(self._with(rates_bps), chosen.policy, settings, exchange)
        return text_of(found.topology_settings["routes"])

    def seconds_a_bit(self, rates_bps: Mapping[Ends, float], gone: Set[int]) -> float:
        """Seconds that the fullest link needs for each bit of the model, without the gone nodes; a missing
        link counts as nearly stopped."""
        return max(self._seconds(rates_bps, gone).values(), default=0.0)

    def _seconds(self, rates_bps: Mapping[Ends, float], gone: Set[int]) -> Mapping[Ends, float]:
        """That each link needs for a bit of the model."""
        job = self._configured
        left = self.without(job, gone, is_star=False) if gone else self
        shares = [0.0] * len(left.branches)
        for branch, piece in zip(left.branch_of, job.pieces, strict=False):
            shares[branch] += piece.count / job.elements
        loads: defaultdict[Ends, float] = defaultdict(float)
        for (_, up, down), share in zip(left.branches, shares, strict=True):
            for child, parent in up.items():
                loads[child, parent] += share
            for child, parent in down.items():
                loads[parent, child] += share
        return {ends: load / rates_bps.get(ends, NOTHING_BPS) for ends, load in loads.items()}

    # As `Detouring`

    @property
    def auxiliary(self) -> AuxiliarySettings:
        """The settings that say when pieces leave along an auxiliary path instead of their own link."""
        return self._chosen

    def paths(self, source: int, target: int, rates_bps: Mapping[Ends, float]) -> Sequence[Path]:
        """Paths between two nodes without common inner nodes, the fastest first, except for the direct
        link."""
        return disjoint_paths(rates_bps, source, target)

    def idle_bps(self, rates_bps: Mapping[Ends, float], gone: Set[int]) -> Mapping[Ends, float]:
        """The rate that pieces leave idle on each link while they cross the fullest one; never zero."""
        needed = self._seconds(rates_bps, gone)
        seconds = {ends: each for ends, each in needed.items() if ends in rates_bps}
        fullest = max(seconds.values(), default=0.0)
        return {
            ends: bps * max(LEAST_IDLE, 1 - seconds.get(ends, 0.0) / fullest if fullest else 1.0)
            for ends, bps in rates_bps.items()
        }

    @property
    def digest(self) -> str:
        """A digest of the routes, which ranks that have planned for themselves compare."""
        return hashlib.sha256(repr(self.branches).encode()).hexdigest()[:16]

    def changed(self, text: str) -> Self:
        """The same topology with the routes of this text; raises UserInputError for a text that is none."""
        found = type(self)(self._configured)
        found.take(text)
        return found


TOPOLOGY: Final[Any] = Fapt()
