"""The sections of the report, each a few pictures and the numbers beneath them."""

from collections.abc import Iterator
from dataclasses import dataclass

from mltswitch.plan import Plan
from mltswitch.report.figure import Figure
from mltswitch.report.headroom import Bound, headrooms, sees
from mltswitch.report.legend import (
    LegendEntry,
    headroom_legend,
    loss_legend,
    sensitivity_legend,
    threshold_legend,
)
from mltswitch.report.losses import loss_figures
from mltswitch.report.margins import headroom_figure, sensitivity_figures
from mltswitch.report.ports import PortGroup
from mltswitch.report.sweep import ANALYTIC_MODELS, AXES, SIMULATE, Axis, Sweep, origin
from mltswitch.report.tables import Table, headroom_table, loss_table, sensitivity_table, threshold_table
from mltswitch.report.thresholds import threshold_figures


@dataclass(frozen=True, slots=True)
class Block:
    """Pictures and tables of one kind of port."""

    title: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the report: one question, with the pictures and tables that answer it."""

    title: str
    text: str
    blocks: tuple[Block, ...]
    legend: tuple[LegendEntry, ...] = ()


def threshold_section(plan: Plan, groups: tuple[PortGroup, ...]) -> Section:
    """The section on the ECN threshold S and the limit L of every queue."""
    order = (entry.name for entry in plan.classes)
    blocks = tuple(
        Block(
            group.heading,
            threshold_figures(group, f"thresholds-{number}"),
            (threshold_table(group),),
            is_wide=True,
        )
        for number, group in enumerate(groups)
    )
    return Section(
        "1 · Thresholds and buffer",
        f"Waiting bytes at which a queue acts, as planned. Order of service: {' > '.join(order)}.",
        blocks,
        threshold_legend(),
    )


def loss_sections(
    plan: Plan, groups: tuple[PortGroup, ...], sweeps: list[dict[Axis, Sweep]], limits: tuple[Bound, ...]
) -> Iterator[Section]:
    """The sections on loss against load and loss against burst size."""
    traffic = plan.fabric.traffic
    texts = {
        "load": (
            "2 · Loss against load",
            "Loss ratio of one port as its gradients offer more or less; burst size as planned: "
            f"{traffic.burst_packets}.",
        ),
        "burst_packets": (
            "3 · Loss against burst size",
            "Loss ratio of one port at the planned load, as senders emit longer or shorter bursts.",
        ),
    }
    tail = " Lines are predicted, points simulated. Dotted: what the layers of the class tolerate, per port."
    for axis in AXES:
        title, text = texts[axis]
        blocks = tuple(
            Block(
                group.heading,
                loss_figures(plan, found[axis], limits, f"{axis.split('_')[0]}-{number}"),
                (loss_table(plan, found[axis]),),
                tuple(f"{model}: {reason}" for model, reason in found[axis].reasons().items()),
            )
            for number, (group, found) in enumerate(zip(groups, sweeps, strict=True))
        )
        answering = tuple(
            model
            for model in (*ANALYTIC_MODELS, SIMULATE)
            if any(outcome.predictions for found in sweeps for _, outcome in found[axis].outcomes[model])
        )
        yield Section(title, text + tail, blocks, loss_legend(answering))


def sensitivity_section(plan: Plan, limits: tuple[Bound, ...]) -> Section:
    """The section on where the operating point lies on the curves of extra rounds."""
    block = Block("", sensitivity_figures(plan, limits), (sensitivity_table(plan, limits),))
    return Section(
        "4 · Sensitivity",
        f"Extra training rounds against the end-to-end loss of a class, over {plan.hops} queues. "
        f"Tolerances: {plan.provenance.sensitivity}",
        (block,),
        sensitivity_legend(plan.provenance.queueing_model),
    )


def headroom_section(
    plan: Plan, groups: tuple[PortGroup, ...], sweeps: list[dict[Axis, Sweep]], limits: tuple[Bound, ...]
) -> Section:
    """The section on how far load and burst size can move before a bound breaks."""
    blocks = tuple(
        _headroom_block(plan, group, found, limits, f"headroom-{number}")
        for number, (group, found) in enumerate(zip(groups, sweeps, strict=True))
    )
    return Section(
        "5 · Headroom",
        "How far load and burst size can move, one at a time, before a class loses more than its layers "
        f"tolerate without an extra round: the bound p, counted over {plan.hops} equal ports. As "
        f"{origin(plan.provenance.queueing_model)}, interpolated between the points of the sweeps above.",
        blocks,
        headroom_legend(),
    )


def _headroom_block(
    plan: Plan, group: PortGroup, sweeps: dict[Axis, Sweep], limits: tuple[Bound, ...], name: str
) -> Block:
    own = plan.provenance.queueing_model
    models = (own, *(model for model in ANALYTIC_MODELS if model != own))
    figures: list[Figure] = []
    tables: list[Table] = []
    warnings: list[str] = []
    for axis in AXES:
        word = "load" if axis == "load" else "burst"
        found = {model: headrooms(sweeps[axis], model, limits) for model in models}
        if not found[own]:
            warnings.append(f"{word}: {own} says nothing of this port")
            continue
        if not sees(sweeps[axis], own):
            warnings.append(
                f"{own} does not see the {word}: its losses are the same at every point. Trust the simulated "
                "points instead."
            )
        figures.append(headroom_figure(found[own], axis, own, f"{name}-{word}"))
        tables.append(headroom_table(found, word))
    return Block(group.heading, tuple(figures), tuple(tables), tuple(warnings))


def note_section(plan: Plan) -> Section:
    """The section with the plan's notes."""
    rows = (*(("warning", text) for text in plan.warnings), *(("note", text) for text in plan.notes))
    table = Table(
        "What a reader of the thresholds should know",
        ("kind", "text"),
        rows or (("note", "nothing to note"),),
        is_open=True,
        is_words=True,
    )
    return Section("6 · Notes and warnings", "As the plan has them.", (Block("", tables=(table,)),))
