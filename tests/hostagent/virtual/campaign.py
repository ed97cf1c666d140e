"""Many scenarios, each from its own seed; a failure is a seed and what did not hold."""

import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.hostagent.virtual.play import Outcome, Play
from tests.hostagent.virtual.scenario import scenario


@dataclass(frozen=True, slots=True)
class Failure:
    """One scenario in which something did not hold."""

    seed: int
    kind: str
    what: str
    """The last line of the traceback."""
    where: str
    """The rest of it."""


@dataclass(slots=True)
class Tally:
    """What many scenarios came to."""

    scenarios: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    complete: int = 0
    incomplete_within_bound: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    datagrams: int = 0
    refused: int = 0
    lost_connections: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Take another's scenarios to these."""
        self.scenarios += other.scenarios
        self.kinds += other.kinds
        self.complete += other.complete
        self.incomplete_within_bound += other.incomplete_within_bound
        self.errors += other.errors
        self.datagrams += other.datagrams
        self.refused += other.refused
        self.lost_connections += other.lost_connections
        self.failures += other.failures


def play(seed: int) -> Outcome:
    """Play the scenario of a seed; raises what does not hold."""
    return Play(scenario(seed)).run()


def tally(seeds: Iterable[int]) -> Tally:
    """Play them all; a failure does not end the others."""
    found = Tally()
    for seed in seeds:
        drawn = scenario(seed)
        found.scenarios += 1
        found.kinds[drawn.kind] += 1
        try:
            outcome = Play(drawn).run()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
            *where, what = traceback.format_exception(error)
            found.failures.append(Failure(seed, drawn.kind, what.strip(), "".join(where)))
            continue
        found.complete += outcome.complete
        found.incomplete_within_bound += outcome.incomplete_within_bound
        found.errors += outcome.errors
        found.datagrams += outcome.datagrams
        found.refused += outcome.refused
        found.lost_connections += outcome.lost_connections
    return found
