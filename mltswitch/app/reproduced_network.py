"""Play a figure of a paper in every reading, and lay what comes out beside what the paper prints."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import RootModel

from mltswitch.app import Computing
from mltswitch.app.simulated_network import ground_of, made_folder, simulated_network
from mltswitch.documents import dump_yaml
from mltswitch.network.reproduction import Reproduction
from mltswitch.network.results import Figure, Summary, figure_of
from mltswitch.network.scenario import Play, Scenario
from mltswitch.network.simulation import check
from mltswitch.outputs import write_outputs

HERE: Final = Path()
"""The scenarios of a bundled figure name no file."""
QUANTITIES: Final = {"mean": "fct_mean_seconds", "tail": "fct_p99_seconds", "max": "fct_max_seconds"}
"""What is compared: `tail` is the 99th percentile; a paper that says tail may mean the maximum."""


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario out of a figure."""

    reading: str
    point: str
    hosts: int


@dataclass(frozen=True, slots=True)
class Cell:
    """What one transport came to, over all seeds that ended."""

    case: Case
    transport: str
    seeds: int
    times: dict[str, Figure | None]
    """Seconds, by the names of QUANTITIES; None where flows stayed open."""
    sent_over_needed: float
    open_flows: int


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of the paper, and what was simulated."""

    case: Case
    figure: str
    simulated: Figure
    """Over seeds, each compared with itself."""
    printed: float | None
    is_reproduced: bool | None
    """None: the figure has no bounds."""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """All that was played of a figure."""

    reproduction: Reproduction
    cells: tuple[Cell, ...]
    compared: tuple[Compared, ...]
    missing_runs: int
    """Runs that Ctrl-C or SIGTERM left out; one that readings share counts for each."""
    ended_by: int = 0
    """Number of the signal that ended it, such as 2 for SIGINT; 0: none did."""


def scenarios_of(
    reproduction: Reproduction,
    *,
    readings: Sequence[str],
    points: Sequence[str],
    hosts: Sequence[int],
    seeds: Sequence[int],
) -> dict[Case, Scenario]:
    """The scenarios of a figure; no choice of points or sizes stands for all, of readings for the first.

    Raises:
        UserInputError: A name is unknown, or a scenario cannot be played.
    """
    made = {}
    for reading in readings or (next(iter(reproduction.readings)),):
        for point in points or reproduction.points:
            for size in hosts or reproduction.hosts:
                scenario = reproduction.scenario_of(reading, point, size)
                if seeds:
                    scenario = scenario.model_copy(update={"seeds": tuple(dict.fromkeys(seeds))})
                check(scenario, ground_of(scenario, HERE))
                made[Case(reading, point, size)] = scenario
    return made


def write_scenarios(reproduction: Reproduction, cases: Iterable[Case], folder: Path) -> tuple[Path, ...]:
    """Write scenarios as files that `mltswitch simulate` plays, to be read and changed."""
    documents = [reproduction.document_of(case.reading, case.point, case.hosts) for case in cases]
    texts = [(folder / f"{each['name']}.yaml", dump_yaml(RootModel(each))) for each in documents]
    made_folder(folder)
    write_outputs(texts)
    return tuple(path for path, _ in texts)


def reproduced_network(
    reproduction: Reproduction,
    scenarios: dict[Case, Scenario],
    *,
    computing: Computing,
    state: Path | None = None,
) -> Reproduced:
    """Play the scenarios one after the other; Ctrl-C and SIGTERM keep the runs that have ended.

    Readings often change one transport alone: what several have in common is played once.

    Args:
        reproduction: The figure.
        scenarios: By their cases.
        computing: Where runs are played.
        state: A folder, in which each scenario keeps its snapshots in one of its own.

    Raises:
        MachineError: A workload needs more memory than there is, or a package is missing.
        UserInputError: `state` cannot be used, or is of other scenarios.
    """
    if state is not None:
        made_folder(state)
    found: dict[str, dict[int, Summary]] = {}
    ended_by = 0
    for scenario in scenarios.values():
        plays = dict(zip(scenario.titles, scenario.plays, strict=True))
        left = {title: play for title, play in plays.items() if _identity(scenario, play) not in found}
        if not left:
            continue
        computing.tell(f"{scenario.name}: {', '.join(left)}")
        folder = None if state is None else state / scenario.name
        simulation = simulated_network(
            scenario.with_plays(left), HERE, output=None, computing=computing, state=folder
        )
        for each in simulation.played:
            summaries = {run.seed: run.summary for run in each.runs}
            found[_identity(scenario, left[each.transport])] = summaries
        if ended_by := simulation.ended_by:
            break
    cells: list[Cell] = []
    compared: list[Compared] = []
    missing = 0
    for case, scenario in scenarios.items():
        by_title = {
            title: found.get(_identity(scenario, play), {})
            for title, play in zip(scenario.titles, scenario.plays, strict=True)
        }
        missing += sum(len(scenario.seeds) - len(runs) for runs in by_title.values())
        cells += [_cell(case, title, runs) for title, runs in by_title.items() if runs]
        compared += _compared(reproduction, case, by_title)
    return Reproduced(reproduction, tuple(cells), tuple(compared), missing, ended_by)


def _identity(scenario: Scenario, play: Play) -> str:
    """The same for plays of which each byte is the same, seed by seed."""
    return repr(scenario.model_copy(update={"name": "", "plays": (play,)}))


def _cell(case: Case, title: str, runs: dict[int, Summary]) -> Cell:
    return Cell(
        case,
        title,
        len(runs),
        {name: _over(getattr(run, field) for run in runs.values()) for name, field in QUANTITIES.items()},
        sum(run.sent_over_needed for run in runs.values()) / len(runs),
        sum(run.open_flows for run in runs.values()),
    )


def _over(values: Iterable[float | None]) -> Figure | None:
    known = list(values)
    return figure_of([value for value in known if value is not None]) if known and None not in known else None


def _compared(
    reproduction: Reproduction, case: Case, by_title: dict[str, dict[int, Summary]]
) -> Iterator[Compared]:
    """The compared transport's times over those of each other one, less 1, seed by seed; and milliseconds,
    where the paper prints them.
    """
    printed = reproduction.paper.get(case.point, {})
    own = by_title.get(reproduction.compared, {})

    def compared(name: str, values: list[float]) -> Compared:
        simulated, bounds = figure_of(values), reproduction.reproduced.get(name)
        fits = None if bounds is None else bounds[0] <= simulated.mean <= bounds[1]
        return Compared(case, name, simulated, printed.get(name), fits)

    for title, runs in by_title.items():
        for quantity, field in QUANTITIES.items():
            values = [1e3 * getattr(run, field) for run in runs.values() if not run.open_flows]
            if values and (name := f"{quantity}_ms_{title}") in printed:
                yield compared(name, values)
        if title == reproduction.compared:
            continue
        for quantity, field in QUANTITIES.items():
            ratios = [
                getattr(own[seed], field) / getattr(run, field) - 1
                for seed, run in runs.items()
                if seed in own and not own[seed].open_flows + run.open_flows
            ]
            if ratios:
                yield compared(f"{quantity}_vs_{title}", ratios)
