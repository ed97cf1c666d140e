"""The tables beneath the report's pictures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mltswitch.plan import Plan, Prediction
from mltswitch.report.headroom import Bound, Headroom, error_of, loss_of
from mltswitch.report.margins import PERCENT, break_text
from mltswitch.report.ports import PortGroup
from mltswitch.report.sweep import SIMULATE, Sweep, origin
from mltswitch.report.thresholds import free_bytes, limit_bytes
from mltswitch.units import BITS_PER_BYTE, format_seconds

Row = tuple[str, ...]
FIGURES: Final = ("loss unimportant", "loss important", "mean delay", "p99 delay")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the report, with cells as text."""

    title: str
    columns: Row
    rows: tuple[Row, ...]
    is_open: bool = False
    is_words: bool = False
    """Whether cells are words, aligned to the left; else numbers, aligned to the right."""


def figure(value: float | None, digits: int = 3) -> str:
    """A number as text, or a dash for None."""
    return "-" if value is None else f"{value:.{digits}g}"


def threshold_table(group: PortGroup) -> Table:
    """A table of the ECN threshold S, the limit L and the predictions for each queue at the planned load."""
    profile = group.profile
    how = origin(group.plan.provenance.queueing_model)
    rows = []
    for queue in profile.queues:
        threshold, found = queue.ecn_threshold_bytes, queue.prediction
        limit, length = limit_bytes(queue), profile.length_bytes(queue.limit)
        rows.append(
            (
                queue.traffic_class,
                "-" if threshold is None else f"{threshold:,}",
                "-" if threshold is None else f"{threshold / profile.packet_bytes:.4g}",
                format_seconds(threshold and threshold * BITS_PER_BYTE / profile.rate_bps),
                format_seconds(queue.delay_bound_seconds),
                f"{length:,}" if limit else f"{length:,} ({queue.limit})",
                f"{length / profile.packet_bytes:.4g}",
                f"{limit / profile.buffer_bytes:.1%}" if limit else "-",
                loss_text(found, is_important=False),
                loss_text(found, is_important=True),
                format_seconds(found.mean_delay_seconds if found else None),
                format_seconds(found.p99_delay_seconds if found else None),
            )
        )
    columns = (
        "class",
        "S [B]",
        "S [packets]",
        "S at the port's rate",
        "delay bound",
        "L [B]",
        "L [packets]",
        "L [share of buffer]",
        *(f"{name} ({how})" for name in FIGURES),
    )
    free = free_bytes(profile)
    rest = f"{free:,} B not assigned" if free >= 0 else "the limits share the buffer"
    if not any(map(limit_bytes, profile.queues)):
        rest = "which the chip's ports share"
    return Table(
        f"Numbers: thresholds in a buffer of {profile.buffer_bytes:,} B, {rest}", columns, tuple(rows)
    )


def loss_text(found: Prediction | None, *, is_important: bool) -> str:
    """A loss ratio, with its confidence interval where it was simulated."""
    if found is None:
        return "-"
    loss, error = loss_of(found, is_important), error_of(found, is_important)
    if error is None:
        return figure(loss)
    return f"{figure(loss)} ± {figure(error, 2)}" if loss else f"0 (≤ {figure(error, 2)})"


def loss_table(plan: Plan, sweep: Sweep) -> Table:
    """A table of the losses (unimportant / important) at every point of a sweep, by every model."""
    ticks = sorted({at for points in sweep.outcomes.values() for at, _ in points})
    found = [
        {at: outcome.predictions for at, outcome in points if outcome.predictions}
        for points in sweep.outcomes.values()
    ]
    rows = [
        (name, f"{at:g}", *(_losses(points[at][name]) if at in points else "-" for points in found))
        for name in (entry.name for entry in plan.gradient_classes)
        for at in ticks
    ]
    axis = "load" if sweep.axis == "load" else "burst [packets]"
    models = [origin(model) + " ± 95 %" * (model == SIMULATE) for model in sweep.outcomes]
    columns = ("class", axis, *models)
    return Table("Numbers: loss ratios, unimportant / important", columns, tuple(rows))


def _losses(found: Prediction) -> str:
    return " / ".join(loss_text(found, is_important=flag) for flag in (False, True))


def sensitivity_table(plan: Plan, bounds: Iterable[Bound]) -> Table:
    """Tolerance and operating point of each class."""
    how = origin(plan.provenance.queueing_model)
    predictions = {entry.traffic_class: entry for entry in plan.end_to_end}
    rows = []
    for bound in bounds:
        loss = loss_of(predictions[bound.traffic_class], bound.is_important)
        figures = bound.tolerance, loss, PERCENT * float(bound.curve(loss))
        rows.append((bound.traffic_class, bound.importance, *map(figure, figures)))
    columns = (
        "class",
        "importance",
        "tolerated end-to-end loss",
        f"end-to-end loss ({how})",
        f"extra rounds [%] ({how})",
    )
    return Table("Numbers: tolerance and operating point", columns, tuple(rows))


def headroom_table(found: dict[str, tuple[Headroom, ...]], axis: str) -> Table:
    """A table of where each model sees the bounds break, the plan's model first."""
    first = next(iter(found.values()))
    rows = [
        (
            entry.bound.traffic_class,
            entry.bound.importance,
            figure(entry.bound.port_loss),
            figure(entry.planned, 4),
            *(break_text(entries[number]) if entries else "-" for entries in found.values()),
            figure(entry.simulated_break, 4),
        )
        for number, entry in enumerate(first)
    ]
    columns = (
        "class",
        "importance",
        "tolerated loss per port",
        f"planned {axis}",
        *(origin(model) for model in found),
        "first point above (simulated)",
    )
    return Table(f"Numbers: {axis} headroom", columns, tuple(rows))
