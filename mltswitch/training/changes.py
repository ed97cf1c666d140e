"""Routes that change while a job runs: planned and offered by one rank, put into force (bound) by a ballot of
all.

Each rank tells the rates of the links into it. The lowest one plans anew with these, and offers routes that
pay. Each ballot says which offer every rank holds; where all hold the same one, it is bound: its sums are
those from the next step on. So all ranks know the same, no step waits, and no step has sums of
two versions. (NetStorm, section VI, lets ranks ask a coordinator: two may ask on both sides of a change.)

    rank holds        it hears                     then
    version v         parts of an offer            nothing yet
    version v         the last part, good routes   it says so in its ballots
    v and an offer    a ballot: all hold it        the offer is the version, from the next step on
    v and an offer    a newer offer                it holds that one
    v                 a fault, others have bound   their version, for every sum that begins anew
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor, Future
from typing import Any, Final, Protocol, runtime_checkable

from pydantic import Field

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.telemetry.events import LinkRate, LinksMeasured
from mltswitch.training.axes import NoSettings, Topology
from mltswitch.training.job import Job
from mltswitch.training.links import Arrival, Links
from mltswitch.units import NANOSECONDS

PART_CHARACTERS: Final = 600
"""Characters of the text of routes that one message carries."""
MOST_CHARACTERS: Final = 1 << 20
FASTER: Final = 2.0
"""A measured rate above this many times the fastest link's configured rate is not believed."""
RATES_A_WORD: Final = 30
NOTHING_BPS: Final = 1.0
LEAST_CHANGE: Final = 0.01
"""Share by which some rate must change before routes are planned again."""
PATIENCE_BALLOTS: Final = 4
"""Ballots after which an offer that not all ranks hold is made again, since a rank may lack it."""
NOTHING_HELD: Final = 1
"""Number in a ballot of a rank that holds no offer; 0 is a rank that takes no part in the ballot."""
MOST_NUMBER: Final = 1 << 20
Ends = tuple[int, int]
"""The ends of a link: the sending and the receiving rank."""


class UpdateSettings(NoSettings):
    """Settings that say when a job looks at its links, and what makes it change its routes."""

    update_seconds: float = Field(default=5.0, ge=0, le=3600)
    """Time between two plans for measured rates; 0: rates are never measured."""
    update_threshold: float = Field(default=0.1, ge=0, lt=1)
    """Share of the fullest link's time that new routes must save."""
    stale_after_seconds: float = Field(default=600.0, gt=0)
    """Age at which a measured rate is forgotten and the configured one counts again."""
    probe_bytes: int = Field(default=2_000_000, ge=1, strict=True)
    """Bytes that must have come over a link before its rate is measured (NetStorm's PROBE_CHUNK_SIZE)."""
    probe_pieces: int = Field(default=4, ge=1, strict=True)
    """The fewest pieces that these bytes must have come in (NetStorm's PROBE_CHUNK_NUM)."""


@runtime_checkable
class Changing(Topology, Protocol):
    """A topology whose routes may change while the job runs."""

    updates: UpdateSettings
    rates_bps: Mapping[Ends, float]
    """The configured rates of links between ranks, as they are known before the start."""
    names: Sequence[str]
    """Names of the ranks' hosts, in order of rank."""

    def planned(self, rates_bps: Mapping[Ends, float]) -> str:
        """Routes planned for other rates, as text. Raises MachineError, UserInputError."""

    def seconds_a_bit(self, rates_bps: Mapping[Ends, float], gone: Set[int]) -> float:
        """Seconds that the fullest link needs for each bit of the model under such rates, without the gone
        nodes."""

    def changed(self, text: str) -> "Changing":
        """This topology with the routes that a text lists, as ranks send them to each other.

        Raises UserInputError where the text lists no valid routes.
        """


def changing(topology: Topology) -> "Changing | None":
    """The topology if its routes may change while the job runs, else None."""
    return topology if isinstance(topology, Changing) and topology.updates.update_seconds > 0 else None


class Changes:
    """What one rank knows of links and routes: rates, offered routes, and the version in force."""

    def __init__(self, job: Job, number: int, topology: Changing) -> None:
        self._job, self._number = job, number
        self.topology: Changing = topology
        """That of the version that is bound."""
        self.version = NOTHING_HELD
        self.held = NOTHING_HELD
        """Number of the newest offer that this rank has, for its ballots."""
        self._offers: dict[int, Changing] = {}
        self._parts: defaultdict[int, dict[int, str]] = defaultdict(dict)
        self.links: Final = Links(topology.updates.probe_bytes, topology.updates.probe_pieces)
        self.measured: dict[Ends, tuple[float, int]] = {}
        """What ranks have told: bit/s, and when it was heard, in ns."""
        self.refused = 0
        """Rates and routes that no rank of this job tells."""
        self.problem = ""
        """What its user should know: why it cannot plan, or what it does not believe."""
        self._untold = {*topology.rates_bps}
        """Links whose figures `take_learned` has not given yet."""
        self._told = 0, 0, ""
        """Version, refused and problem of its last event."""
        self._due_ns = self._ballots = self._highest = 0
        """Ballots since the last offer; and the highest number in the last one."""
        self._planned_for: Mapping[Ends, float] = topology.rates_bps
        self.executor: Executor | None = None
        """That plans, while the node goes on; None: it plans at once."""
        self._plan: Future[tuple[str, Changing | None]] | None = None

    def is_due(self, now_ns: int) -> bool:
        """Whether it is time to look at the rates."""
        return now_ns >= self._due_ns

    def words(
        self, so_far: Iterable[Arrival], now_ns: int, *, is_first: bool, gone: Set[int] = frozenset()
    ) -> Iterator[dict[str, Any]]:
        """Messages to all nodes now: rates measured here, and at the first rank that is left, new routes."""
        self._due_ns = now_ns + round(self.topology.updates.update_seconds * NANOSECONDS)
        rates = [
            (source, round(bps))
            for source, bps in self.links.rates_bps(so_far).items()
            if (source, self._number)
            in self.topology.rates_bps  # trees of before a fault have gone along links
        ]
        self._note(self._number, rates, now_ns)
        for first in range(0, len(rates), RATES_A_WORD):
            yield {"rates": rates[first : first + RATES_A_WORD]}
        if is_first and self.measured:
            yield from self._offer(now_ns, gone)

    def _offer(self, now_ns: int, gone: Set[int]) -> Iterator[dict[str, Any]]:
        rates = self.rates_bps(now_ns)
        # who is gone forwards nothing
        rates |= {ends: NOTHING_BPS for ends in rates if not gone.isdisjoint(ends)}
        if self._plan is None and self._has_moved(rates):
            self._planned_for = rates
            if self.executor is not None:
                self._plan = self.executor.submit(self._planned, rates)
            else:
                self._plan = Future()
                self._plan.set_result(self._planned(rates))
        if self._plan is None or not self._plan.done():
            return
        (text, other), self._plan = self._plan.result(), None
        newest = self.topology if self._is_stuck else self._offers.get(self.held, self.topology)
        if other is None or self._saved(other, newest, rates, gone) < self.topology.updates.update_threshold:
            return
        # numbers of two ranks that plan one after the other are never the same
        number = (max(self.held, self._highest) // self._job.world + 1) * self._job.world + self._number
        if number >= MOST_NUMBER:
            self.problem = f"routes have been offered {number // self._job.world} times"
            return
        self._hold(number, other)
        count = -(-len(text) // PART_CHARACTERS)
        for part in range(count):
            piece = text[part * PART_CHARACTERS : (part + 1) * PART_CHARACTERS]
            yield {"offer": number, "part": part, "of": count, "routes": piece}

    def _planned(self, rates: Mapping[Ends, float]) -> tuple[str, Changing | None]:
        try:
            text = self.topology.planned(rates)
            return text, self.topology.changed(text)
        except (MachineError, UserInputError) as error:
            self.problem = str(error)
            return "", None

    def _has_moved(self, rates: Mapping[Ends, float]) -> bool:
        """Whether a rate is other than when this rank planned last, or an offer of it has come to nothing."""
        least = max(self.topology.updates.update_threshold / 2, LEAST_CHANGE)
        moved = any(abs(bps / self._planned_for[ends] - 1) > least for ends, bps in rates.items())
        return moved or self._is_stuck

    @property
    def _is_stuck(self) -> bool:
        return self.held > self.version and self._ballots >= PATIENCE_BALLOTS

    @staticmethod
    def _saved(other: Changing, newest: Changing, rates: Mapping[Ends, float], gone: Set[int]) -> float:
        before = newest.seconds_a_bit(rates, gone)
        return 1 - other.seconds_a_bit(rates, gone) / before if before else 0.0  # of one that is left alone

    def rates_bps(self, now_ns: int) -> dict[Ends, float]:
        """The rates of all links: those measured lately, else the configured ones."""
        since_ns = now_ns - self.topology.updates.stale_after_seconds * NANOSECONDS
        fresh = {ends: bps for ends, (bps, at_ns) in self.measured.items() if at_ns >= since_ns}
        return {**self.topology.rates_bps, **fresh}

    def take_learned(self) -> LinksMeasured | None:
        """What this rank has learned about links since the last call, as an event; None: nothing."""
        state = self.version, self.refused, self.problem
        if state == self._told and not self._untold:
            return None
        names, links = self.topology.names, []
        for source, target in sorted(self._untold):
            bps, at_ns = self.measured.get((source, target), (None, 0))
            said = self.topology.rates_bps[source, target]
            ends = {"source": names[source], "target": names[target]}
            links.append(LinkRate(**ends, said_bps=said, measured_bps=bps, measured_ns=at_ns))
        self._untold.clear()
        self._told = state
        version, refused, problem = state
        return LinksMeasured(version=version, refused=refused, problem=problem, links=tuple(links))

    def hear(self, peer: int, said: Mapping[str, Any], now_ns: int, *, is_first: bool) -> None:
        """Take another rank's message; `is_first`: that rank is the one that plans. Raises as `Node` does."""
        if "rates" in said:
            self._note(peer, said["rates"], now_ns)
        elif is_first:
            self._take_part(said)

    def _note(self, target: int, rates: Sequence[Sequence[Any]], now_ns: int) -> None:
        """A rank tells only of links into itself."""
        most = FASTER * max(self.topology.rates_bps.values())
        for source, bps in rates:
            ends = int(source), target
            if ends in self.topology.rates_bps and math.isfinite(bps) and 0 < bps <= most:
                self.measured[ends] = float(bps), now_ns
                self._untold.add(ends)
            else:
                self.refused += 1
                told = f"rank {target} measures {bps:g} bit/s from rank {source}"
                self.problem = self.problem or f"{told}, and no link of the overlay can be so"

    def _take_part(self, said: Mapping[str, Any]) -> None:
        number, part, count = (int(said[name]) for name in ("offer", "part", "of"))
        if (
            not self.held < number < MOST_NUMBER
            or not 0 <= part < count <= MOST_CHARACTERS // PART_CHARACTERS
        ):
            self.refused += 1
            return
        for other in [other for other in self._parts if other != number]:
            del self._parts[other]
        parts = self._parts[number]
        parts[part] = str(said["routes"])[:PART_CHARACTERS]
        if len(parts) < count:
            return
        text = "".join(parts[each] for each in sorted(self._parts.pop(number)))
        try:
            self._hold(number, self.topology.changed(text))
        except UserInputError:
            self.refused += 1

    def _hold(self, number: int, topology: Changing) -> None:
        self._offers[number] = topology
        self.held, self._ballots = number, 0

    def counted(self, held: Sequence[int]) -> bool:
        """Read from a ballot which offer each rank holds; returns whether all hold the same one, which is
        then in force."""
        self._ballots += 1
        told = {number for number in held if number}
        self._highest = max(self._highest, *held)
        if len(told) != 1 or max(told) not in self._offers:  # this rank may hold a newer one by now
            return False
        self.bind(max(told))
        return True

    def knows(self, version: int) -> bool:
        """Whether this rank has the routes of a version, or of an older one."""
        return version <= self.version or version in self._offers

    def bind(self, version: int) -> None:
        """Put this version of the routes into force, and forget older offers."""
        if version > self.version:
            self.version, self.topology = version, self._offers[version]
            self._offers = {number: each for number, each in self._offers.items() if number > version}

    def without(self, gone: frozenset[int]) -> Topology:
        """The topology of the version in force, for the nodes that are left."""
        topology: Any = self.topology
        found: Topology = topology.without(self._job, gone, is_star=False) if gone else topology
        return found


def text_of(settings: Mapping[str, Any]) -> str:
    """The settings of routes as the text that `Changing.changed` takes and that messages carry in parts."""
    return json.dumps(settings, separators=(",", ":"))
