"""Play a scenario of the packet simulator: its files, its progress, its tables."""

import io
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import numpy as np

from mltswitch.app import Advance, Computing, Tell, naming
from mltswitch.documents import load_document, parse_yaml, read_text
from mltswitch.errors import MachineError, MltswitchError, UserInputError
from mltswitch.network.results import Columns, Comparison, Figure, Run, beside_plan, over_seeds
from mltswitch.network.scenario import LeafSpineNetwork, Play, Scenario
from mltswitch.network.simulation import Ground, check, is_engine_compiled, needing_numba, play_one
from mltswitch.network.switches import FromPlan
from mltswitch.network.transports.parameters import TRANSPORTS, MltAgent
from mltswitch.network.workloads import Mix, Workload
from mltswitch.network.workloads.distributions import SEGMENTS
from mltswitch.outputs import check_output, write_outputs
from mltswitch.plan import Fabric, Plan, Topology, load_plan, resolve_fabric
from mltswitch.profile import bundled_names
from mltswitch.sweep import (
    JOURNAL_SUFFIX,
    Cell,
    Journal,
    Rows,
    check_table,
    executor,
    open_journal,
    run_cells,
    write_columns,
)
from mltswitch.targets import hardware_capabilities
from mltswitch.units import format_seconds
from mltswitch.version import __version__

TABLES: Final = ("", ".queues", ".steps")
"""Before the ending of each table's name: of flows, of queues, of training steps where there are any."""
SNAPSHOT: Final = ".snapshot.npz"


@dataclass(frozen=True, slots=True)
class Played:
    """What one transport came to."""

    transport: str
    runs: tuple[Run, ...]
    figures: dict[str, Figure | None]
    beside_plan: tuple[Comparison, ...]
    """Of the first seed; empty where switches follow no plan."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """All runs of a scenario that ended."""

    scenario: Scenario
    played: tuple[Played, ...]
    missing_runs: int
    """Runs that Ctrl-C or SIGTERM left out."""
    outputs: tuple[Path, ...]
    ended_by: int = 0
    """Number of the signal that ended it, such as 2 for SIGINT; 0: none did."""


def load_scenario(
    path: Path, *, profile: str | None, transports: str | None, seeds: Sequence[int] | None
) -> tuple[Scenario, Path]:
    """A scenario from its file, or a push of a model over a plan; and the folder that its files lie in.

    Args:
        path: A scenario, or a plan together with `profile`.
        profile: Of the model that is pushed over the plan.
        transports: Names or titles with commas between them: of the scenario's, all plays that are called so;
            a name that it does not have is played with its defaults.
        seeds: In the place of the scenario's.
    """
    if _schema_of(path).startswith("mltswitch/plan/"):
        if profile is None:
            raise UserInputError(
                "a plan alone says not what is sent",
                where=str(path),
                hint="name a model: `--profile resnet50`",
            )
        workload = {"kind": "parameter-server", "profile": profile, "mapping": "sliced"}
        scenario = Scenario.model_validate(
            {
                "schema": "mltswitch/simulation/v1",
                "name": "plan",
                "fabric": path.name,
                "workload": workload,
                "transports": ["mlt"],
            }
        )
    else:
        if profile is not None:
            raise UserInputError("a scenario says itself what is sent", where="--profile")
        scenario = load_document(path, Scenario)
        scenario = scenario.model_copy(update={"workload": _beside(scenario.workload, path.parent)})
    if transports is not None:
        chosen: dict[str, Play] = {}
        for name in transports.split(","):
            chosen |= _plays(name, scenario)
        scenario = scenario.with_plays(chosen)
    if seeds:
        scenario = scenario.model_copy(update={"seeds": tuple(dict.fromkeys(seeds))})
    return scenario, path.parent


def _beside(workload: Workload, folder: Path) -> Workload:
    """A workload whose files lie in this folder, that of its scenario."""
    if isinstance(workload, Mix):
        parts = [
            part.model_copy(update={"workload": _beside(part.workload, folder)}) for part in workload.parts
        ]
        return workload.model_copy(update={"parts": tuple(parts)})
    named = {*bundled_names(), *SEGMENTS}
    given = {name: getattr(workload, name, None) for name in ("profile", "trace", "sizes")}
    return workload.model_copy(
        update={
            name: str(folder / value)
            for name, value in given.items()
            if value and value not in named and (name == "trace" or (folder / value).is_file())
        }
    )


def _plays(name: str, scenario: Scenario) -> dict[str, Play]:
    """The plays of a transport, or the one with this title; by title."""
    plays = dict(zip(scenario.titles, scenario.plays, strict=True))
    found = {title: play for title, play in plays.items() if name in (title, play.transport.name)}
    if found:
        return found
    if name not in TRANSPORTS:
        known = dict.fromkeys([*TRANSPORTS, *scenario.titles])
        raise UserInputError(
            f"{name!r} is no transport", where="--transport", expected=f"one of {', '.join(known)}"
        )
    return {name: Play.model_validate({"transport": {"name": name}})}


def _schema_of(path: Path) -> str:
    data = parse_yaml(read_text(path), where=str(path))
    return str(data.get("schema", "")) if isinstance(data, dict) else ""


def ground_of(scenario: Scenario, folder: Path) -> Ground:
    """The scenario's fabric, from its numbers or its file."""
    plan: Plan | None = None
    if isinstance(scenario.fabric, LeafSpineNetwork):
        fabric = scenario.fabric.fabric()
    else:
        path = folder / scenario.fabric
        if _schema_of(path).startswith("mltswitch/plan/"):
            plan = load_plan(path)
            fabric = plan.fabric
        else:
            with naming(path):
                fabric = resolve_fabric(load_document(path, Fabric), hardware_capabilities)
    buffer_bytes = scenario.buffer_bytes or fabric.ports.buffer_bytes
    if buffer_bytes is None and plan is not None:
        buffer_bytes = min(profile.buffer_bytes for profile in plan.port_profiles)
    return Ground(plan.topology if plan is not None else Topology(fabric), plan, buffer_bytes)


def simulated_network(
    scenario: Scenario,
    folder: Path,
    *,
    output: Path | None,
    computing: Computing,
    state: Path | None = None,
    report: Path | None = None,
) -> Simulation:
    """Play every transport with every seed; Ctrl-C and SIGTERM keep the runs that have ended.

    Args:
        scenario: What is played.
        folder: In which the scenario's files lie.
        output: A table of flows; one of queues lies beside it.
        computing: Where runs are played.
        state: A folder of snapshots, from which the same scenario goes on.
        report: A page; with it queues are sampled over time.

    Raises:
        MachineError: The workload needs more memory than there is, or a package is missing.
        UserInputError: The scenario cannot be played, an output not be written, or `state` is of another.
    """
    outputs = [output.with_suffix(f"{name}{output.suffix}") for name in TABLES] if output else []
    for path in outputs:
        check_table(path)
    if report is not None:
        from mltswitch.report import plotly_script

        check_output(report)
        plotly_script()  # before anything that takes long
    ground = ground_of(scenario, folder)
    wanted: list[Cell] = [(title, seed) for title in scenario.titles for seed in scenario.seeds]
    processes = 1 if computing.scheduler else min(computing.processes, len(wanted))
    check(scenario, ground, at_once=processes)
    if not is_engine_compiled():
        computing.tell("compiling the simulator, once after an installation: about half a minute")
    runs, play = _Runs(computing.tell, len(wanted)), _Play(scenario, ground, report is not None)
    failure: MltswitchError | None = None
    ended_by = 0
    try:
        ended_by = _play_all(play, wanted, runs, state, computing, processes)
    except MltswitchError as error:
        if not runs.finished:
            raise
        failure = error
        computing.tell(f"{len(runs.finished)} of {len(wanted)} runs ended before one failed, and are kept")
    ended = [runs.finished[cell][0]["run"] for cell in wanted if cell in runs.finished]
    if ended_by:
        computing.tell(f"interrupted: {len(ended)} of {len(wanted)} runs have ended, and are kept")
    if not ended:
        outputs = []
    elif not any(len(run.steps["round"]) for run in ended):
        outputs = outputs[:2]
    for path, tables in zip(
        outputs, zip(*((run.flows, run.queues, run.steps) for run in ended), strict=True), strict=False
    ):
        write_columns(path, _joined(tables))
    played = _played(scenario, ground, ended)
    if report is not None and ended:
        write_outputs([(report, simulation_page(scenario.name, played))])
        outputs.append(report)
    if failure is not None:
        raise failure
    return Simulation(scenario, played, len(wanted) - len(ended), tuple(outputs), ended_by)


def _play_all(
    play: "_Play", wanted: list[Cell], runs: "_Runs", state: Path | None, computing: Computing, processes: int
) -> int:
    """Play what is wanted; returns the number of the signal that ended it, or 0."""
    ended_by = list[int]()
    with ExitStack() as stack:
        if state is not None:
            play = _with_state(stack, play, state, restart=computing.restart)
            if any(isinstance(each.transport, MltAgent) for each in play.scenario.plays):
                computing.tell("of `law: compiled` nobody can take a snapshot: its runs are played anew")
        stack.enter_context(_until_interrupted(ended_by))
        pool = stack.enter_context(executor(processes, computing.scheduler))
        advance = stack.enter_context(computing.bar())
        if pool is None:
            play = replace(play, advance=advance)

        def show() -> None:
            if pool is not None:
                advance("runs", len(runs.finished), len(wanted))

        run_cells(play, wanted, runs, pool, show)
    return next(iter(ended_by), 0)


@dataclass(frozen=True)
class _Play:
    """Plays one run, in this process or another one."""

    scenario: Scenario
    ground: Ground
    has_depths: bool
    advance: Advance | None = None
    state: Path | None = None
    digests: tuple[str, ...] = ()
    """Of each play, where there is a state."""

    def __call__(self, cell: Cell) -> Rows:
        """The run of a title and a seed."""
        title, seed = str(cell[0]), int(cell[1] or 0)
        place = self.scenario.titles.index(title)
        told = _nobody if self.advance is None else partial(self.advance, f"{title}, seed {seed}")
        snapshot = None
        if self.state is not None:
            digest = self.digests[place]
            name = f"{title.replace(' ', '-')}-{seed}-{digest[:16]}{SNAPSHOT}"
            snapshot = self.state / name, f"{digest} {seed}"
        given = (self.scenario, self.ground, place, seed, told)
        return [{"run": play_one(*given, snapshot=snapshot, has_depths=self.has_depths)}]


def _nobody(_done: int, _flows: int) -> None:
    """Other processes tell nobody how far they are."""


class _Runs(Journal):
    """Runs that have ended, each told as it does."""

    def __init__(self, tell: Tell, count: int) -> None:
        super().__init__(io.StringIO(), {})
        self._tell = tell
        self._count = count

    def add(self, cell: Cell, rows: Rows) -> None:
        """Keep a run that has ended."""
        self.finished[cell] = rows
        run: Run = rows[0]["run"]
        if self._count > 1:
            times = (run.summary.fct_mean_seconds, run.summary.fct_p99_seconds, run.summary.fct_max_seconds)
            mean, tail, last = map(format_seconds, times)
            self._tell(
                f"{run.transport}, seed {run.seed}: mean {mean}, p99 {tail}, max {last} "
                f"({len(self.finished)} of {self._count} runs)"
            )


def _with_state(stack: ExitStack, play: _Play, state: Path, *, restart: bool) -> _Play:
    """Have snapshots kept in a folder, which is this scenario's alone."""
    with needing_numba():
        from mltswitch.network.snapshot import UNDER_WAY, digests
    common, by_play = digests(play.scenario, play.ground, has_depths=play.has_depths)
    made_folder(state)
    path = state / f"runs{JOURNAL_SUFFIX}"
    journal = stack.enter_context(open_journal(path, common, restart=restart, of="simulation"))
    if not journal.finished:  # without a cell it would not stay, and the folder be nobody's
        journal.add((play.scenario.name,), [])
    for rest in (*state.glob(f"{UNDER_WAY}*"), *(state.glob(f"*{SNAPSHOT}") if restart else ())):
        rest.unlink()
    return replace(play, state=state.resolve(), digests=tuple(by_play))


def made_folder(folder: Path) -> None:
    """Make a folder where there is none; raises UserInputError where that is impossible."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserInputError(f"cannot be made: {error.strerror}", where=str(folder)) from None


@contextmanager
def _until_interrupted(ended_by: list[int]) -> Iterator[None]:
    """Leave the body at Ctrl-C or SIGTERM, and note which."""

    def end(number: int, _frame: object) -> NoReturn:
        ended_by[:] = [number]
        raise KeyboardInterrupt

    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        ended_by[:] = ended_by or [signal.SIGINT]
    except MachineError:
        if not ended_by:  # else a signal for the whole group has ended the other processes, too
            raise
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _joined(tables: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _played(scenario: Scenario, ground: Ground, runs: Sequence[Run]) -> tuple[Played, ...]:
    played = []
    for play, title in zip(scenario.plays, scenario.titles, strict=True):
        own = tuple(run for run in runs if run.transport == title)
        if own:
            follows = ground.plan is not None and isinstance(play.switch_document, FromPlan)
            beside = beside_plan(ground.plan, own[0]) if follows and ground.plan is not None else ()
            played.append(Played(title, own, over_seeds(own), beside))
    return tuple(played)


def simulation_page(name: str, played: Sequence[Played]) -> str:
    """The report's page of all runs that ended."""
    from mltswitch.report import SimulatedPlay, simulation_report

    plays = []
    for each in played:
        times = np.concatenate([run.flows["fct_seconds"] for run in each.runs])
        first = each.runs[0]
        classes = first.queues["traffic_class"]
        one_each = classes == classes[0]
        depths = dict(first.depths)
        plays.append(
            SimulatedPlay(
                each.transport,
                np.sort(times[~np.isnan(times)]),
                depths.pop("time_seconds", np.zeros(0)),
                depths,
                dict(zip(first.queues["port"][one_each], first.queues["port_load"][one_each], strict=True)),
                tuple(
                    (
                        row.traffic_class,
                        row.predicted_unimportant,
                        row.simulated_unimportant,
                        row.predicted_important,
                        row.simulated_important,
                    )
                    for row in each.beside_plan
                ),
                tuple(str(run.seed) for run in each.runs),
            )
        )
    return simulation_report(f"{name}: simulated", __version__, plays)
