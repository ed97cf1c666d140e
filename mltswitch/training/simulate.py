"""Simulates steps of a model's training in virtual time, with the same nodes that production uses.

    found = simulate(bundled_profile("resnet50"), Network(10e9, 50e-6), [0.5] * 8, synchronization="osp")

Real numbers cross the network, but few: all layers have about ELEMENTS elements together, each one at least,
and links, pieces and slices are as much smaller, so that flows take as long as before. Not in proportion are
neighbours too small for pieces of their own, which share one of up to its full size, and ballots, some 0.1 %
of the model. Processors take no time, and no packet is lost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.profile import ModelProfile
from mltswitch.training.axes import Elements, Network, Stage, axes_of, topologies
from mltswitch.training.fabric import FabricNetwork
from mltswitch.training.job import ELEMENT_BYTES, PIECE_BYTES, Job, OptimizerRule, make_job
from mltswitch.training.synchronization.osp import OspSettings
from mltswitch.training.virtual import VirtualJob

ELEMENTS: Final = 100_000
PIECES: Final = 96
"""About how many pieces a large model is cut into here; production has more, but each costs simulation
time."""
WARM_UP: Final = 10
"""Steps before times count; `osp` needs them until its share of late sums is steady."""
STEPS: Final = 10
FORWARD_CLASSES: Final = 8
"""Gradient classes where forward passes wait layer by layer: as many queues as most chips have."""
OSP: Final = {"growth": "none", "steps_per_epoch": 2, "slice_bytes": OspSettings().slice_bytes}
"""Default settings of `osp`, by which all that fits is exchanged late, and soon, as when the loss has
fallen."""


def forward_gain(compute_seconds: float, backward_share: float, exchange_seconds: float) -> float:
    """The most that layer-by-layer forward passes can gain: a hook's step time over theirs.

    Layers are infinitely thin and alike. A hook's step is the forward pass and then the longer one of
    backward pass and exchange; the other's is the longer one of computing and exchange. With a backward pass
    of two thirds the gain is highest, 4/3, where both take equally long.
    """
    forward_seconds = compute_seconds * (1 - backward_share)
    hook_seconds = forward_seconds + max(compute_seconds * backward_share, exchange_seconds)
    return hook_seconds / max(compute_seconds, exchange_seconds)


class Span(NamedTuple):
    """A part of the timeline: what one rank does from one time to another."""

    rank: int
    activity: str
    """What the rank does: `computing`; `waiting` for what the next step needs (RS); `passing`: a forward pass
    that computes and waits, layer by layer; `later`: late sums are exchanged (ICS)."""
    begin_seconds: float
    """Start of the span, from the beginning of the timeline."""
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Simulated:
    """Figures of a job's steps when they have become steady, as means over ranks."""

    synchronization: str
    forward: bool
    """Whether forward passes wait layer by layer."""
    step_seconds: float
    """Mean duration of a step; the harmonic mean, where ranks are not equally fast."""
    synchronization_seconds: float
    """Duration of a step beyond that of computing."""
    samples_per_second: float
    """Samples that all ranks together train with in a second."""
    later_share: float
    """Share of the model that is exchanged while the next step computes."""
    timeline_seconds: float
    """Length of the timeline: the last step of the rank that finishes first."""
    timeline: tuple[Span, ...]


def scaled_job(
    profile: ModelProfile,
    *,
    synchronization: str = "bsp",
    topology: str = "star",
    servers: int | None = None,
    piece_bytes: float | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Job, float]:
    """A job of a smaller model with the same proportions, and its elements over those of the model.

    Arguments are those of `make_job` for the model as it is. There is one server, where the topology has any;
    pieces are those of production, or larger, about PIECES; `settings` come beside OSP. Raises UserInputError
    as `make_job` and `axes_of` do.
    """
    share = min(1.0, ELEMENTS / profile.total_parameters)
    layers = [(layer.name, max(1, round(layer.parameters * share))) for layer in profile.layers]
    elements = sum(count for _, count in layers)
    share = elements / profile.total_parameters
    scaled = {**(OSP if synchronization == "osp" else {}), **(settings or {})}
    for name in ("slice_bytes", "link_bps"):
        if isinstance(size := scaled.get(name), int | float) and size >= 1:
            scaled[name] = max(1, round(size * share))
    piece_bytes = piece_bytes or max(PIECE_BYTES, elements / share * ELEMENT_BYTES["float32"] / PIECES)
    if servers is None:
        servers = int(topology in topologies() and topologies()[topology].has_servers)
    options |= {"synchronization": synchronization, "topology": topology, "servers": servers}
    options |= {
        "piece_bytes": max(1, round(piece_bytes * share)),
        "settings": scaled,
        "deadline_seconds": 1e6,
    }
    job = make_job(layers, optimizer=OptimizerRule("SGD", ({"lr": 0.1},), ((elements, 0),)), **options)
    axes_of(job)
    return job, share


def simulate(
    profile: ModelProfile,
    network: Network | FabricNetwork,
    compute_seconds: Sequence[float],
    *,
    batch: int = 1,
    steps: int = STEPS,
    warm_up: int = WARM_UP,
    backward_share: float = 0.0,
    forward: bool = False,
    classes: int | None = None,
    advance: Callable[[int], None] = lambda _step: None,
    **options: Any,
) -> Simulated:
    """Run a job in virtual time and measure its last steps; which elements are important is random.

    Args:
        compute_seconds: computing time of each rank in a step.
        batch: samples in a step of a rank.
        steps: number of steps that are measured.
        warm_up: number of steps before them.
        backward_share: last part of computing, in which gradients become ready; 0: all at its end.
        forward: whether a forward pass waits layer by layer, as `MltForward` does (`bsp` only).
        classes: number of gradient classes, front layers first; None: FORWARD_CLASSES with `forward`, else 1.
        advance: called with the step when rank 0 begins it.
        options: those of `scaled_job`, which raises UserInputError.
    """
    world, last = len(compute_seconds), warm_up + steps
    job, share = scaled_job(profile, world=world, **options)
    ones = np.ones(job.elements, job.element_type)
    small = network.scaled(share)
    if isinstance(small, FabricNetwork):
        small.check(job)
    if forward and job.synchronization != "bsp":
        raise UserInputError(f"{job.synchronization} has no step that waits", where="forward", expected="bsp")
    virtual = VirtualJob(
        job,
        small,
        parameters=ones,
        backward_share=backward_share,
        waits_by_piece=forward,
        classes=classes or (FORWARD_CLASSES if forward else 1),
        in_turn=isinstance(small, FabricNetwork),
    )
    importance = np.random.default_rng(0).random(len(job.pieces)) * [piece.count for piece in job.pieces]
    begun, shares = [list[float]() for _ in range(world)], list[float]()
    ended: dict[tuple[int, int, Stage], float] = {}

    def gradients(rank: int, step: int) -> Elements:
        member = virtual.nodes[rank].member
        assert member is not None, "a server computes nothing"  # noqa: S101
        member.weighed({piece: importance[piece] for piece in range(rank, len(importance), world)})
        begun[rank].append(virtual.now_seconds)
        virtual.report.results.pop((rank, step - 3 - member.lag), None)
        if rank == 0:
            advance(step)
            shares.append(sum(job.pieces[piece].count for piece in member.later(step)) / job.elements)
        return ones

    virtual.arrived = lambda rank, step, total: ended.update({(rank, step, total.stage): virtual.now_seconds})
    report = virtual.run(
        last + 1, gradients, lambda rank, _: compute_seconds[rank], lambda _, step: 1 / (1 + step)
    )
    for error in report.errors.values():
        raise error
    since, until = (min(times[step] for times in begun) for step in (warm_up, last))
    counts = [np.diff(np.interp((since, until), times, range(last + 1)))[0] for times in begun]
    rates = [float(count) / (until - since) for count in counts]
    since = next(times[last - 1] for times in begun if times[last] == until)
    computing = backward_share if forward else 1.0  # from when gradients are asked for
    timeline = [
        Span(rank, activity, max(begin, since) - since, min(end, until) - since)
        for rank, times in enumerate(begun)
        for step in range(last)
        for computed in [times[step] + compute_seconds[rank] * computing]
        for activity, begin, end in (
            ("computing", times[step], computed),
            ("passing" if forward else "waiting", computed, times[step + 1]),
            ("later", times[step + 1], ended.get((rank, step, Stage.LATER), 0.0)),
        )
        if max(begin, since) < min(end, until)
    ]
    rate, waiting = sum(rates), fmean(1 / rate for rate in rates) - fmean(compute_seconds)
    figures = world / rate, waiting, batch * rate, fmean(shares[warm_up:last]), until - since
    return Simulated(job.synchronization, forward, *figures, tuple(timeline))
