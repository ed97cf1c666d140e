"""Play a figure of a paper in every reading, and lay what comes out beside what the paper prints."""

import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from pydantic import RootModel

from mltswitch.app import Bar, Tell
from mltswitch.app.simulated_network import ground_of
from mltswitch.documents import dump_yaml
from mltswitch.network.reproduction import Reproduction
from mltswitch.network.results import Figure, Summary, figure_of
from mltswitch.network.scenario import Scenario
from mltswitch.network.simulation import check, play_one
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
    """Runs that Ctrl-C left out."""


@dataclass(frozen=True, slots=True)
class _Run:
    case: Case
    place: int
    """Of the transport."""
    seed: int


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
    write_outputs(texts)
    return tuple(path for path, _ in texts)


def reproduced_network(
    reproduction: Reproduction, scenarios: dict[Case, Scenario], *, processes: int, tell: Tell, bar: Bar
) -> Reproduced:
    """Play the scenarios; Ctrl-C keeps the runs that have ended.

    Raises:
        KeyboardInterrupt: no run has ended yet.
    """
    wanted: dict[str, list[_Run]] = {}
    for case, scenario in scenarios.items():
        for place in range(len(scenario.plays)):
            for seed in scenario.seeds:
                wanted.setdefault(_identity(scenario, place, seed), []).append(_Run(case, place, seed))
    found: dict[_Run, Summary] = {}
    try:
        with bar() as advance, _results([runs[0] for runs in wanted.values()], scenarios, processes) as ended:
            for count, (run, summary) in enumerate(ended, 1):
                same = wanted[_identity(scenarios[run.case], run.place, run.seed)]
                found |= dict.fromkeys(same, summary)
                advance(reproduction.name, count, len(wanted))
    except KeyboardInterrupt:
        if not found:
            raise
        tell(f"interrupted: {len(found)} of {sum(map(len, wanted.values()))} runs have ended, and are kept")
    cells: list[Cell] = []
    compared: list[Compared] = []
    for case, scenario in scenarios.items():
        by_title = {
            title: {seed: found[run] for seed in scenario.seeds if (run := _Run(case, place, seed)) in found}
            for place, title in enumerate(scenario.titles)
        }
        cells += [_cell(case, title, runs) for title, runs in by_title.items() if runs]
        compared += _compared(reproduction, case, by_title)
    return Reproduced(
        reproduction, tuple(cells), tuple(compared), sum(map(len, wanted.values())) - len(found)
    )


def _identity(scenario: Scenario, place: int, seed: int) -> str:
    """The same for runs of which each byte is the same: readings often change one transport alone."""
    return repr(scenario.model_copy(update={"name": "", "plays": (scenario.plays[place],), "seeds": (seed,)}))


@contextmanager
def _results(
    wanted: Sequence[_Run], scenarios: dict[Case, Scenario], processes: int
) -> Iterator[Iterator[tuple[_Run, Summary]]]:
    """The runs with their summaries, as they end."""
    if processes == 1:
        yield ((run, _summary(scenarios[run.case], run)) for run in wanted)
        return
    # Ctrl-C ends workers at once, without a word.
    pool = ProcessPoolExecutor(
        processes, get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_DFL)
    )
    try:
        futures = {pool.submit(_summary, scenarios[run.case], run): run for run in wanted}
        yield ((futures[each], each.result()) for each in as_completed(futures))
    finally:
        pool.shutdown(cancel_futures=True)


def _summary(scenario: Scenario, run: _Run) -> Summary:
    ground = ground_of(scenario, HERE)
    return play_one(scenario, ground, run.place, run.seed, lambda _done, _flows: None).summary


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
