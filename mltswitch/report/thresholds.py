"""Pictures of the thresholds of each queue and of how they divide a port's buffer."""

from typing import Final

from mltswitch.capabilities import AlphaLimit, BytesLimit
from mltswitch.plan import PortProfile, QueueSettings
from mltswitch.report.figure import Figure, Part, axis, bars, scatter, vertical_line, with_lines
from mltswitch.report.palette import BLUE, GREY, INK, MUTED, PALE_BLUE, PAPER
from mltswitch.report.ports import PortGroup

KILOBYTE: Final = 1000
ROW_PIXELS: Final = 34
SPACE: Final = "\u00a0"
"""No-break space between a bar and its text; an ordinary space would be cut off."""
LEAST_SEGMENT: Final = 0.005
"""Least share of the buffer from which the unused part is drawn."""


def threshold_figures(group: PortGroup, name: str) -> tuple[Figure, ...]:
    """Pictures of the ECN threshold S and the limit L of each queue, and of the split of the buffer where
    limits in bytes divide it.
    """
    queues = _queues(group, f"{name}-queues")
    is_divided = any(map(limit_bytes, group.profile.queues))
    return (queues, _split(group, f"{name}-split")) if is_divided else (queues,)


def kilobytes(size_bytes: float) -> float:
    """A size in decimal kilobytes, the unit of the fabric file."""
    return size_bytes / KILOBYTE


def kilobyte_text(size_bytes: float) -> str:
    """A size as text, such as `12.11 kB` or `1,562 kB`: four digits, or whole kilobytes."""
    size = kilobytes(size_bytes)
    return f"{size:,.0f} kB" if size >= KILOBYTE else f"{size:.4g} kB"


def limit_bytes(queue: QueueSettings) -> int:
    """The limit L of a queue in bytes; 0 where the limit is no number of bytes."""
    return queue.limit.size_bytes if isinstance(queue.limit, BytesLimit) else 0


def _queues(group: PortGroup, name: str) -> Figure:
    profile = group.profile
    names = [queue.traffic_class for queue in profile.queues]
    thresholds = [kilobytes(queue.ecn_threshold_bytes or 0) for queue in profile.queues]
    lengths = [kilobytes(profile.length_bytes(queue.limit)) for queue in profile.queues]
    tops = list(map(max, lengths, thresholds))
    # An alpha may let queues that do not mark grow far beyond the others: their bars end with the picture.
    end = 1.45 * max(
        top
        for queue, top in zip(profile.queues, tops, strict=True)
        if queue.ecn_threshold_bytes or limit_bytes(queue)
    )
    limits = [min(length, end) for length in lengths]
    marking = [queue.ecn_threshold_bytes is not None for queue in profile.queues]
    above = [
        max(0.0, limit - threshold) if marks else 0.0
        for limit, threshold, marks in zip(limits, thresholds, marking, strict=True)
    ]
    plain = [0.0 if marks else limit for limit, marks in zip(limits, marking, strict=True)]
    traces = (
        _bars(names, thresholds, BLUE, "below S: everything is let in"),
        _bars(names, above, PALE_BLUE, "S to L: important packets marked, unimportant dropped"),
        _bars(names, plain, GREY, "up to L: everything is let in"),
        scatter(
            "text",
            [top if length <= end else 0.0 for top, length in zip(tops, lengths, strict=True)],
            names,
            text=[f"{SPACE}{_row_text(profile, queue, f'<br>{SPACE}')}" for queue in profile.queues],
            textposition="middle right",
            textfont={"size": 11, "color": [INK if length <= end else PAPER for length in lengths]},
            hoverinfo="skip",
            cliponaxis=False,
        ),
    )
    spoken = "; ".join(f"{queue.traffic_class}: {_row_text(profile, queue)}" for queue in profile.queues)
    crowded = profile.crowded_bytes
    layout: Part = {"barmode": "stack", "bargap": 0.35}
    if crowded:
        text = f"all ports busy: {kilobyte_text(crowded)}"
        layout |= with_lines(vertical_line(kilobytes(crowded), text))
        spoken += f"; with all ports busy a queue gets {kilobyte_text(crowded)}"
    return Figure(
        name,
        "Thresholds of each queue",
        f"Thresholds of the queues of {group.title}, in order of service. {spoken}.",
        traces,
        {
            "xaxis": axis("waiting bytes [kB]", range=[0, end]),
            "yaxis": axis("", autorange="reversed", showgrid=False),
        },
        height_pixels=70 + ROW_PIXELS * len(names),
        layout=layout,
    )


def _bars(names: list[str], sizes: list[float], colour: str, meaning: str) -> Part:
    hover = f"%{{y}}<br>{meaning}<br>%{{x:,.4~r}} kB<extra></extra>"
    return bars(names, [round(size, 3) for size in sizes], colour, name=meaning, hovertemplate=hover)


def _row_text(profile: PortProfile, queue: QueueSettings, between: str = ", ") -> str:
    limit, threshold = kilobyte_text(profile.length_bytes(queue.limit)), queue.ecn_threshold_bytes
    if not limit_bytes(queue):
        limit = f"{limit} ({queue.limit if isinstance(queue.limit, AlphaLimit) else 'what the port gets'})"
    if threshold is None:
        return f"L {limit}"
    if threshold == limit_bytes(queue):
        return f"S = L {limit}"
    return f"S {kilobyte_text(threshold)}{between}L {limit}"


def _split(group: PortGroup, name: str) -> Figure:
    profile = group.profile
    traces: list[Part] = []
    for queue in profile.queues:
        size = kilobytes(limit_bytes(queue))
        if size:
            gradient = queue.ecn_threshold_bytes is not None
            traces.append(_segment(queue.traffic_class, size, BLUE if gradient else GREY, profile))
    free = kilobytes(free_bytes(profile))
    whole = max(profile.buffer_bytes, profile.buffer_bytes - free_bytes(profile))
    if free > LEAST_SEGMENT * kilobytes(profile.buffer_bytes):
        traces.append(_segment("not assigned", free, "rgba(0,0,0,0)", profile))
    parts = "; ".join(f"{trace['name']} {kilobyte_text(trace['x'][0] * KILOBYTE)}" for trace in traces)
    return Figure(
        name,
        "Buffer split",
        f"Buffer of {kilobyte_text(profile.buffer_bytes)} of {group.title}. {parts}.",
        tuple(traces),
        {
            "xaxis": axis("limits L within the port's buffer [kB]", range=[0, 1.01 * kilobytes(whole)]),
            "yaxis": axis("", showticklabels=False, showgrid=False),
        },
        height_pixels=118,
        layout={"barmode": "stack", "bargap": 0.1, "uniformtext": {"mode": "hide", "minsize": 9}},
    )


def free_bytes(profile: PortProfile) -> int:
    """The part of the buffer that no queue's limit claims; negative where queues share the buffer."""
    return profile.buffer_bytes - sum(limit_bytes(queue) for queue in profile.queues)


def _segment(name: str, size_kilobytes: float, colour: str, profile: PortProfile) -> Part:
    share = size_kilobytes / kilobytes(profile.buffer_bytes)
    is_free = colour.startswith("rgba")
    return bars(
        ["buffer"],
        [round(size_kilobytes, 3)],
        colour,
        name=name,
        marker={"color": colour, "line": {"color": MUTED if is_free else PAPER, "width": 1.5}},
        text=f"{name}<br>{share:.0%}",
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": INK if is_free else "#ffffff", "size": 11},
        hovertemplate=f"{name}<br>%{{x:,.4~r}} kB, {share:.1%} of the buffer<extra></extra>",
    )
