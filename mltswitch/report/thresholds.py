"""Pictures of the thresholds of each queue and of how they divide a port's buffer."""

from typing import Final

from mltswitch.capabilities import BytesLimit
from mltswitch.plan import Plan, PortProfile, QueueSettings
from mltswitch.report.figure import Figure, Part, axis
from mltswitch.report.palette import BLUE, GREY, MUTED, PALE_BLUE, PAPER
from mltswitch.report.ports import PortGroup

KILOBYTE: Final = 1000
ROW_PIXELS: Final = 34
SPACE: Final = "\u00a0"
"""Between a bar and its text; a plain one is cut off."""
LEAST_SEGMENT: Final = 0.005
"""Of the buffer: what is left over is drawn from here on."""


def threshold_figures(group: PortGroup, name: str) -> tuple[Figure, ...]:
    """S and L per queue, and the split of the buffer."""
    return (_queues(group, f"{name}-queues"), _split(group, f"{name}-split"))


def kilobytes(size_bytes: int) -> float:
    """Decimal kilobytes, as the fabric file counts."""
    return size_bytes / KILOBYTE


def limit_bytes(queue: QueueSettings) -> int:
    """L; 0 where it is no number of bytes."""
    return queue.limit.size_bytes if isinstance(queue.limit, BytesLimit) else 0


def _queues(group: PortGroup, name: str) -> Figure:
    profile = group.profile
    names = [queue.traffic_class for queue in profile.queues]
    thresholds = [kilobytes(queue.ecn_threshold_bytes or 0) for queue in profile.queues]
    limits = [kilobytes(limit_bytes(queue)) for queue in profile.queues]
    marking = [queue.ecn_threshold_bytes is not None for queue in profile.queues]
    above = [
        limit - threshold if marks else 0.0
        for limit, threshold, marks in zip(limits, thresholds, marking, strict=True)
    ]
    plain = [0.0 if marks else limit for limit, marks in zip(limits, marking, strict=True)]
    traces = (
        _bars(names, thresholds, BLUE, "below S: everything is let in"),
        _bars(names, above, PALE_BLUE, "S to L: important packets marked, unimportant dropped"),
        _bars(names, plain, GREY, "up to L: everything is let in"),
        {
            "type": "scatter",
            "mode": "text",
            "x": limits,
            "y": names,
            "text": [f"{SPACE}{_row_text(queue, f'<br>{SPACE}')}" for queue in profile.queues],
            "textposition": "middle right",
            "textfont": {"size": 11},
            "hoverinfo": "skip",
            "cliponaxis": False,
        },
    )
    spoken = "; ".join(f"{queue.traffic_class}: {_row_text(queue)}" for queue in profile.queues)
    return Figure(
        name,
        "Thresholds of each queue",
        f"Thresholds of the queues of {group.title}, in order of service. {spoken}.",
        traces,
        {
            "xaxis": axis("waiting bytes [kB]", range=[0, 1.45 * max([*limits, 1.0])]),
            "yaxis": axis("", autorange="reversed", showgrid=False),
        },
        height_pixels=70 + ROW_PIXELS * len(names),
        layout={"barmode": "stack", "bargap": 0.35},
    )


def _bars(names: list[str], sizes: list[float], colour: str, meaning: str) -> Part:
    return {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": [round(size, 3) for size in sizes],
        "marker": {"color": colour},
        "name": meaning,
        "hovertemplate": f"%{{y}}<br>{meaning}<br>%{{x:.4g}} kB<extra></extra>",
    }


def _row_text(queue: QueueSettings, between: str = ", ") -> str:
    limit = f"{kilobytes(limit_bytes(queue)):.4g} kB" if limit_bytes(queue) else str(queue.limit)
    threshold = queue.ecn_threshold_bytes
    if threshold is None:
        return f"L {limit}"
    if threshold == limit_bytes(queue):
        return f"S = L {limit}"
    return f"S {kilobytes(threshold):.4g} kB{between}L {limit}"


def _split(group: PortGroup, name: str) -> Figure:
    profile = group.profile
    traces: list[Part] = []
    for queue in profile.queues:
        size = kilobytes(limit_bytes(queue))
        if size:
            gradient = queue.ecn_threshold_bytes is not None
            traces.append(_segment(queue.traffic_class, size, BLUE if gradient else GREY, profile))
    free = kilobytes(free_bytes(profile)) if any(map(limit_bytes, profile.queues)) else 0.0
    if free > LEAST_SEGMENT * kilobytes(profile.buffer_bytes):
        traces.append(_segment("not assigned", free, "rgba(0,0,0,0)", profile))
    parts = "; ".join(f"{trace['name']} {trace['x'][0]:.4g} kB" for trace in traces)
    return Figure(
        name,
        "Buffer split",
        f"Buffer of {kilobytes(profile.buffer_bytes):.4g} kB of {group.title}. {parts}.",
        tuple(traces),
        {
            "xaxis": axis("limits L within the port's buffer [kB]", range=[0, _split_end(profile)]),
            "yaxis": axis("", showticklabels=False, showgrid=False),
        },
        height_pixels=118,
        layout={"barmode": "stack", "bargap": 0.1, "uniformtext": {"mode": "hide", "minsize": 9}},
    )


def free_bytes(profile: PortProfile) -> int:
    """What no limit claims; below 0 where queues share the buffer."""
    return profile.buffer_bytes - sum(limit_bytes(queue) for queue in profile.queues)


def _split_end(profile: PortProfile) -> float:
    return kilobytes(max(profile.buffer_bytes, profile.buffer_bytes - free_bytes(profile))) * 1.01


def _segment(name: str, size_kilobytes: float, colour: str, profile: PortProfile) -> Part:
    share = size_kilobytes / kilobytes(profile.buffer_bytes)
    is_free = colour.startswith("rgba")
    return {
        "type": "bar",
        "orientation": "h",
        "y": ["buffer"],
        "x": [round(size_kilobytes, 3)],
        "name": name,
        "marker": {"color": colour, "line": {"color": MUTED if is_free else PAPER, "width": 1.5}},
        "text": f"{name}<br>{share:.0%}",
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"color": "@ink" if is_free else "#ffffff", "size": 11},
        "hovertemplate": f"{name}<br>%{{x:.4g}} kB, {share:.1%} of the buffer<extra></extra>",
    }


def order_of_service(plan: Plan) -> str:
    """For the head of the page."""
    return " > ".join(entry.name for entry in plan.classes)
