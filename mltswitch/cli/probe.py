"""Prints a probe's result."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from mltswitch.cli.output import figure, table
from mltswitch.measure import ClassLoss, LoadResult, ProbeResult, Verdict
from mltswitch.units import format_bps, format_ratio, format_seconds

MARKS: Final = {True: "ok  ", False: "FAIL", None: "n/a "}
"""Whether a promise held → the word that begins its verdict; n/a: the figures cannot tell."""
GREATEST_RATIO: Final = 1000


def probe_text(result: ProbeResult, verdicts: Sequence[Verdict]) -> Iterator[RenderableType]:
    """The printed result of a probe: thresholds as seen, losses at each load, and verdicts."""
    yield Text(
        f"Port {result.port}, {format_bps(result.rate_bps)}, packets of {result.packet_bytes} B; idle delay "
        f"{format_seconds(result.idle_delay_seconds)}. Losses and delays are measured unless they say "
        f"predicted (loss model '{result.model}', for what was sent); waits are delays above the idle one."
    )
    if result.behind_seconds:
        yield Text(
            f"Under overload packets wait {format_seconds(result.behind_seconds)} more, behind the queues in "
            "one line for all classes. Waits and queue lengths are without it, delays with it."
        )
    rows = [
        (
            ramp.traffic_class,
            f"{ramp.ecn_threshold_bytes:,}",
            figure(ramp.drop_seen_bytes, ","),
            figure(ramp.mark_seen_bytes, ","),
            f"{ramp.limit_bytes:,}",
            figure(ramp.full_seen_bytes, ","),
        )
        for ramp in result.ramps
    ]
    columns = (
        "class | S planned [B] | Not-ECT dropped above [B] | ECT marked above [B] | L planned [B] | "
        "all dropped at [B]"
    )
    yield table("Thresholds seen from outside", columns, rows)
    yield from map(_load_table, result.loads)
    for verdict in verdicts:
        yield f"{MARKS[verdict.holds]} {verdict.promise}: {verdict.figures}"


def _load_table(load: LoadResult) -> Group:
    rows = [
        (
            entry.traffic_class,
            "important" if entry.is_important else "unimportant",
            f"{entry.sent:,}",
            f"{entry.ce_marked:,}",
            f"{entry.lost:,}",
            _measured_loss(entry),
            format_ratio(entry.predicted_loss),
            _measured_over_predicted(entry),
            format_seconds(entry.wait_p50_seconds),
            format_seconds(entry.predicted_wait_p50_seconds),
            format_seconds(entry.delay_p99_seconds),
        )
        for entry in load.classes
    ]
    return table(
        f"Load {load.load:g} of the port rate, bursts of {load.burst_packets}, {load.duration_seconds:g} s, "
        f"senders at most {format_seconds(load.late_seconds)} late",
        "class | importance | sent # | CE # | lost # | loss measured # | predicted # | ratio # | "
        "p50 wait # | predicted # | p99 delay #",
        rows,
    )


def _measured_loss(entry: ClassLoss) -> str:
    """With its 95 % interval: runs are short, and losses come in clusters."""
    if entry.loss is None or entry.loss_half_width is None:
        return "-"
    return f"{entry.loss:.2%} ± {entry.loss_half_width:.2%}"


def _measured_over_predicted(entry: ClassLoss) -> str:
    if not entry.loss or not entry.predicted_loss:
        return "-"
    ratio = entry.loss / entry.predicted_loss
    return f"{ratio:.2f}" if ratio < GREATEST_RATIO else f"> {GREATEST_RATIO}"
