"""What a run has come to: a row for each flow, a row for each queue, and their summary."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.network.units import PICOSECONDS
from mltswitch.network.workloads import Work
from mltswitch.plan import Plan
from mltswitch.queueing.simulation.referee import student_quantile

if TYPE_CHECKING:
    from mltswitch.network.world import World

Columns = dict[str, NDArray[Any]]
FIGURES: Final = (
    "fct_mean_seconds",
    "fct_p99_seconds",
    "fct_max_seconds",
    "sent_over_needed",
    "most_link_load",
    "step_mean_seconds",
    "step_p99_seconds",
    "step_max_seconds",
)
"""Of a run's summary, those that have an interval over the seeds."""


BUSIEST_PORTS: Final = 5
"""Whose queues are kept over time."""


@dataclass(frozen=True, slots=True)
class ClassCount:
    """What became of the packets of one class in all queues of the switches."""

    traffic_class: str
    sent_unimportant: int
    sent_important: int
    dropped_unimportant: int
    dropped_important: int
    marked: int
    dropped_answers: int

    @property
    def loss_unimportant(self) -> float | None:
        """Share that did not arrive because of a switch; None: nothing was sent."""
        return self.dropped_unimportant / self.sent_unimportant if self.sent_unimportant else None

    @property
    def loss_important(self) -> float | None:
        """Share that did not arrive because of a switch; None: nothing was sent."""
        return self.dropped_important / self.sent_important if self.sent_important else None


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in a few figures."""

    flows: int
    open_flows: int
    duration_seconds: float
    fct_mean_seconds: float | None
    fct_p99_seconds: float | None
    fct_max_seconds: float | None
    sent_over_needed: float
    """Bytes of data that left the senders, over those of every packet once."""
    resent_packets: int
    marked_packets: int
    dropped_packets: int
    lost_packets: int
    """By links."""
    most_link_load: float
    """Of the busiest link, over the run."""
    hops: int
    """Packets sent by ports."""
    step_mean_seconds: float | None = None
    """Of training steps that have ended, over all workers and rounds; None: there are none."""
    step_p99_seconds: float | None = None
    step_max_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One transport with one seed."""

    transport: str
    seed: int
    summary: Summary
    classes: tuple[ClassCount, ...]
    flows: Columns
    queues: Columns
    steps: Columns
    """A row for each training step of each worker."""
    depths: Columns = field(default_factory=dict)
    """Time, and bytes that wait at each of the busiest ports by name; empty where nobody asked for them."""


def run_of(
    transport: str,
    seed: int,
    world: "World",
    flows: Work,
    broken_off_picoseconds: int | None = None,
) -> Run:
    """Read a world's tables.

    Args:
        transport: The play's title.
        seed: Of the run.
        world: As it came to its end.
        flows: What it was made of.
        broken_off_picoseconds: When the run was broken off; None: nothing was left to happen.
    """
    table, network = world.flows, world.network
    ended = world.now_picoseconds if broken_off_picoseconds is None else broken_off_picoseconds
    done = table["finish"] >= 0
    seconds = (table["finish"] - table["start"]) / PICOSECONDS
    names = np.array([port.name for port in network.ports], object)
    columns: Columns = {
        "transport": np.full(len(table), transport, object),
        "seed": np.full(len(table), seed),
        "flow": np.arange(len(table)),
        "source": names[table["source"]],
        "destination": names[table["destination"]],
        "label": np.array([flow.label for flow in flows], object),
        "traffic_class": np.array(network.switch_rules.classes, object)[table["queue"]],
        "size_bytes": table["size_bytes"].copy(),
        "start_picoseconds": table["start"].copy(),
        "end_picoseconds": table["finish"].copy(),
        "fct_seconds": np.where(done, seconds, np.nan),
        "packets": table["packets"].copy(),
        "sent_packets": table["sent_packets"].copy(),
        "sent_bytes": table["sent_bytes"].copy(),
        "resent_packets": table["resent_packets"].copy(),
        "marked_packets": table["marked_packets"].copy(),
        "dropped_packets": table["dropped_packets"].copy(),
    }
    steps = _steps(transport, seed, world, flows, names)
    header = int(world.tables["settings"]["header"][0])
    needed = int(table["size_bytes"].sum()) + int(table["packets"].sum()) * header
    ports = world.tables["ports"]
    sent_bytes = _sent_bytes(ports, ended)
    loads = sent_bytes * 8.0 * PICOSECONDS / max(ended, 1) / ports["bps"]
    summary = Summary(
        flows=len(table),
        open_flows=int((~done).sum()),
        duration_seconds=ended / PICOSECONDS,
        **{f"fct_{name}": value for name, value in _spread(columns["fct_seconds"]).items()},
        sent_over_needed=int(table["sent_bytes"].sum()) / needed if needed else 1.0,
        resent_packets=int(table["resent_packets"].sum()),
        marked_packets=int(table["marked_packets"].sum()),
        dropped_packets=int(table["dropped_packets"].sum()),
        lost_packets=int(ports["lost_packets"].sum()),
        most_link_load=float(loads.max()),
        hops=world.count("hop_count"),
        **{f"step_{name}": value for name, value in _spread(steps["step_seconds"]).items()},
    )
    queues = _queues(transport, seed, world, names, sent_bytes)
    queues["port_load"] = np.repeat(loads[network.hosts :], network.classes)
    return Run(transport, seed, summary, _classes(world), columns, queues, steps, _depths(world, names))


def _spread(seconds: NDArray[np.float64]) -> dict[str, Any]:
    """Mean, 99th percentile and maximum of times of what has ended."""
    times = seconds[~np.isnan(seconds)]
    if not len(times):
        return {"mean_seconds": None, "p99_seconds": None, "max_seconds": None}
    return {
        "mean_seconds": float(times.mean()),
        "p99_seconds": float(np.quantile(times, 0.99)),
        "max_seconds": float(times.max()),
    }


def _steps(transport: str, seed: int, world: "World", work: Work, names: NDArray[Any]) -> Columns:
    """Training steps: a host's first one begins with its job, each other one where the one before ends."""
    rounds = work.rounds
    finish = world.tables["steps"]["finish"]
    ends = np.array([finish[each.end] for each in rounds], np.int64)
    last: dict[tuple[str, int], int] = {}
    starts = np.zeros(len(rounds), np.int64)
    for place, each in enumerate(rounds):
        starts[place] = last.get((each.job, each.host), each.start_picoseconds)
        last[each.job, each.host] = int(ends[place])
    return {
        "transport": np.full(len(rounds), transport, object),
        "seed": np.full(len(rounds), seed),
        "job": np.array([each.job for each in rounds], object),
        "host": names[[each.host for each in rounds]] if rounds else np.array([], object),
        "round": np.array([each.number for each in rounds], np.int64),
        "start_picoseconds": starts,
        "end_picoseconds": ends,
        "step_seconds": np.where(ends >= 0, (ends - starts) / PICOSECONDS, np.nan),
    }


def _depths(world: "World", names: NDArray[Any]) -> Columns:
    """The samples of the ports of switches at which most bytes waited at once."""
    samples = world.depths
    if not len(samples):
        return {}
    most = samples[:, 1:].max(axis=0)
    most[: world.network.hosts] = -1
    busiest = np.argsort(-most, kind="stable")[:BUSIEST_PORTS]
    times = {"time_seconds": samples[:, 0] / PICOSECONDS}
    return times | {str(names[port]): samples[:, 1 + port].copy() for port in busiest if most[port] > 0}


def _sent_bytes(ports: Any, time_picoseconds: int) -> NDArray[np.float64]:
    """What each port has sent, without what comes after a time of the packet that is on its way then."""
    left = np.maximum(ports["free"] - time_picoseconds, 0) / PICOSECONDS * ports["bps"] / 8
    return np.asarray(ports["sent_bytes"] - left, np.float64)


def _by_class(world: "World") -> Any:
    return world.tables["queues"].reshape(-1, world.network.classes)


def _classes(world: "World") -> tuple[ClassCount, ...]:
    queues, hosts = _by_class(world), world.network.hosts
    sent = queues["offered"][:hosts].sum(axis=0)
    dropped = queues["dropped"][hosts:].sum(axis=0)
    marked = queues["marked"][hosts:].sum(axis=0)
    return tuple(
        ClassCount(
            name,
            *(
                int(value)
                for value in (*sent[place][:2], *dropped[place][:2], marked[place], dropped[place][2])
            ),
        )
        for place, name in enumerate(world.network.switch_rules.classes)
    )


def _queues(
    transport: str, seed: int, world: "World", names: NDArray[Any], sent_bytes: NDArray[np.float64]
) -> Columns:
    """Queues of the switches."""
    network = world.network
    queues = world.tables["queues"][network.hosts * network.classes :]
    count = len(queues)
    ports = np.repeat(np.arange(network.hosts, len(network.ports)), network.classes)
    return {
        "transport": np.full(count, transport, object),
        "seed": np.full(count, seed),
        "port": names[ports],
        "traffic_class": np.array(network.switch_rules.classes * (len(names) - network.hosts), object),
        "offered_unimportant_packets": queues["offered"][:, 0].copy(),
        "offered_important_packets": queues["offered"][:, 1].copy(),
        "offered_answer_packets": queues["offered"][:, 2].copy(),
        "dropped_unimportant_packets": queues["dropped"][:, 0].copy(),
        "dropped_important_packets": queues["dropped"][:, 1].copy(),
        "dropped_answer_packets": queues["dropped"][:, 2].copy(),
        "marked_packets": queues["marked"].copy(),
        "longest_bytes": queues["peak"].copy(),
        "port_sent_bytes": np.rint(sent_bytes[ports]).astype(np.int64),
    }


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure over all seeds, and half the width of its 95 % confidence interval (None: one seed)."""

    mean: float
    half_width: float | None


def over_seeds(runs: Sequence[Run]) -> dict[str, Figure | None]:
    """The figures of one transport's runs, by Student's t; None where a run has no such figure."""
    figures: dict[str, Figure | None] = {}
    for name in FIGURES:
        values = [getattr(run.summary, name) for run in runs]
        figures[name] = None if None in values else figure_of([float(value) for value in values])
    return figures


def figure_of(values: Sequence[float]) -> Figure:
    """The mean of some values, and its interval."""
    count = len(values)
    if count == 1:
        return Figure(values[0], None)
    error = float(np.std(values, ddof=1)) / sqrt(count)
    return Figure(float(np.mean(values)), student_quantile(count - 1) * error)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Loss of one class from end to end, as the plan predicts it and as it was simulated."""

    traffic_class: str
    predicted_unimportant: float
    simulated_unimportant: float | None
    predicted_important: float
    simulated_important: float | None


def beside_plan(plan: Plan, run: Run) -> tuple[Comparison, ...]:
    """The plan's own predictions, at its planned load, beside a run over its switches."""
    simulated = {each.traffic_class: each for each in run.classes}
    return tuple(
        Comparison(
            each.traffic_class,
            each.loss_unimportant,
            simulated[each.traffic_class].loss_unimportant,
            each.loss_important,
            simulated[each.traffic_class].loss_important,
        )
        for each in plan.end_to_end
        if each.traffic_class in simulated
    )
