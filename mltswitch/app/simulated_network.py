"""Play a scenario of the packet simulator: its files, its progress, its tables."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from mltswitch.app import Bar, Tell, naming
from mltswitch.documents import load_document, parse_yaml, read_text
from mltswitch.errors import UserInputError
from mltswitch.network.results import Columns, Comparison, Figure, Run, beside_plan, over_seeds
from mltswitch.network.scenario import LeafSpineNetwork, Play, Scenario
from mltswitch.network.simulation import Ground, check, play_one
from mltswitch.network.switches import FromPlan
from mltswitch.network.transports.parameters import TRANSPORTS
from mltswitch.plan import Fabric, Plan, Topology, load_plan, resolve_fabric
from mltswitch.sweep import check_table, write_columns
from mltswitch.targets import hardware_capabilities

TABLES: Final = ("", ".queues", ".steps")
"""Before the ending of each table's name: of flows, of queues, of training steps where there are any."""


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
    """Runs that Ctrl-C left out."""
    outputs: tuple[Path, ...]


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
    if transports is not None:
        chosen: dict[str, Play] = {}
        for name in transports.split(","):
            chosen |= _plays(name, scenario)
        scenario = scenario.with_plays(chosen)
    if seeds:
        scenario = scenario.model_copy(update={"seeds": tuple(dict.fromkeys(seeds))})
    return scenario, path.parent


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
    scenario: Scenario, folder: Path, *, output: Path | None, tell: Tell, bar: Bar
) -> Simulation:
    """Play every transport with every seed; Ctrl-C keeps the runs that have ended.

    Raises:
        KeyboardInterrupt: no run has ended yet.
        UserInputError: The scenario cannot be played, or an output cannot be written.
    """
    outputs = [output.with_suffix(f"{name}{output.suffix}") for name in TABLES] if output else []
    for path in outputs:
        check_table(path)
    ground = ground_of(scenario, folder)
    check(scenario, ground)
    wanted = [(place, seed) for place in range(len(scenario.plays)) for seed in scenario.seeds]
    runs: list[Run] = []
    with _kept_at_interrupt(runs, wanted, tell), bar() as advance:
        for place, seed in wanted:
            title = f"{scenario.titles[place]}, seed {seed}"
            runs.append(play_one(scenario, ground, place, seed, partial(advance, title)))
    if not any(len(run.steps["round"]) for run in runs):
        outputs = outputs[:2]
    for path, tables in zip(
        outputs, zip(*((run.flows, run.queues, run.steps) for run in runs), strict=True), strict=False
    ):
        write_columns(path, _joined(tables))
    return Simulation(scenario, _played(scenario, ground, runs), len(wanted) - len(runs), tuple(outputs))


@contextmanager
def _kept_at_interrupt(runs: list[Run], wanted: Sequence[object], tell: Tell) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if not runs:
            raise
        tell(f"interrupted: {len(runs)} of {len(wanted)} runs have ended, and are kept")


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
