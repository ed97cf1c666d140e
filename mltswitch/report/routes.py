"""A page of routes: trees as pictures, and how busy an exchange keeps each link."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mltswitch.report.figure import Figure, axis, bars, scatter, significant
from mltswitch.report.legend import mark
from mltswitch.report.page import render_page
from mltswitch.report.palette import BLUE, GREY, PALE_BLUE, VERMILLION
from mltswitch.report.sections import Block, Section
from mltswitch.report.tables import Table

Tree = tuple[str, Mapping[str, str]]
"""A tree of nodes: the root, and the parent of each other node."""
BUSIEST: Final = 20
ROW_PIXELS: Final = 64
MOST_NAMED: Final = 40
"""The most nodes in a row of a picture that are drawn with their names."""


def routes_report(
    title: str, head: Iterable[tuple[str, str]], trees: Sequence[Tree], links: Sequence[tuple[str, float]]
) -> str:
    """The HTML page about routes: its trees as pictures, and the busiest links.

    Args:
        title: the page's title.
        head: names and values beneath the title.
        trees: the trees to draw.
        links: each with the share of the exchange's time in which it carries something; the busiest first.

    Raises MachineError without plotly.
    """
    return render_page(title, head, [_load_section(links), _tree_section(trees)])


def _load_section(links: Sequence[tuple[str, float]]) -> Section:
    ordered = sorted(busy for _, busy in links)
    percents = [significant(100 * busy) for busy in ordered]
    parts = [(number + 1) / len(ordered) for number in range(len(ordered))]
    cdf = scatter("lines", percents, parts, line={"color": BLUE, "shape": "hv", "width": 2.2})
    first = links[:BUSIEST]
    bar = bars((name for name, _ in first), (significant(100 * busy) for _, busy in first), BLUE)
    shares = Figure(
        "links",
        "How busy links are",
        "Share of links that are busy for at most so much of the exchange.",
        (cdf,),
        {"xaxis": axis("busy [%]", rangemode="tozero"), "yaxis": axis("share of links", range=[0, 1.02])},
    )
    busiest = Figure(
        "busiest",
        "The busiest links",
        "The busiest links and for how much of the exchange they carry something.",
        (bar,),
        {"xaxis": axis("busy [%]", rangemode="tozero"), "yaxis": axis("", autorange="reversed")},
        height_pixels=90 + 20 * len(first),
    )
    rows = tuple((name, f"{100 * busy:.1f}") for name, busy in links)
    table = Table("All links", ("link", "busy [%]"), rows)
    text = "Max-min fair flows, one exchange: all gradients up, all results down (simulated)."
    return Section("Links", text, (Block("", (shares, busiest), (table,)),), ())


def _tree_section(trees: Sequence[Tree]) -> Section:
    figures = tuple(_drawn(number, tree) for number, tree in enumerate(trees))
    legend = (
        mark("circle", VERMILLION, "root: sums are complete here", is_filled=True),
        mark("circle", BLUE, "adds up what its children send", is_filled=True),
        mark("circle", GREY, "sends its own", is_filled=True),
    )
    text = "Gradients go up the lines, and results down. Each node sends one sum, whatever is below it."
    return Section("Trees", text, (Block("", figures, ()),), legend)


def _drawn(number: int, tree: Tree) -> Figure:
    root, parents = tree
    children: dict[str, list[str]] = {}
    for node, parent in parents.items():
        children.setdefault(parent, []).append(node)
    places = _places(root, children)
    ends = [(places[node], places[parent]) for node, parent in parents.items()]
    across, down = ([each for pair in ends for each in (pair[0][at], pair[1][at], None)] for at in (0, 1))
    edges = scatter("lines", across, down, hoverinfo="skip", line={"color": PALE_BLUE, "width": 1.2})
    names = list(places)
    rows = [-places[name][1] for name in names]
    widest = max(map(rows.count, {*rows}))
    colours = [VERMILLION if name == root else BLUE if name in children else GREY for name in names]
    nodes = scatter(
        "markers+text" if widest <= MOST_NAMED else "markers",
        [places[name][0] for name in names],
        [places[name][1] for name in names],
        text=names,
        textposition="bottom center",
        textfont={"size": 9},
        hovertemplate="%{text}<extra></extra>",
        marker={"size": 9, "color": colours},
    )
    hidden = {"visible": False}
    return Figure(
        f"tree-{number}",
        f"Root {root}",
        f"The tree of root {root}.",
        (edges, nodes),
        {"xaxis": axis("", **hidden), "yaxis": axis("", range=[-max(rows) - 0.6, 0.4], **hidden)},
        height_pixels=80 + ROW_PIXELS * (int(max(rows)) + 1),
    )


def _places(root: str, children: Mapping[str, Sequence[str]]) -> dict[str, tuple[float, float]]:
    """Leaves side by side in the order of a walk, parents above the middle of their children."""
    order = [(root, 0)]
    for node, depth in order:
        order += [(child, depth + 1) for child in children.get(node, ())]
    depths, found = dict(order), dict[str, tuple[float, float]]()
    stack, column = [root], 0.0
    while stack:
        node = stack.pop()
        below = children.get(node, ())
        if not below:
            found[node] = column, -float(depths[node])
            column += 1
        stack += reversed(below)
    for node, depth in reversed(order):
        if node not in found:
            columns = [found[child][0] for child in children[node]]
            found[node] = (min(columns) + max(columns)) / 2, -float(depth)
    return {node: found[node] for node, _ in order}
