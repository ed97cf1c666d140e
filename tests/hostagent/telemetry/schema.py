"""The tables of docs/agent-telemetry.md, made from the code.

`python -m tests.hostagent.telemetry.schema` writes them into the page.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from mltswitch.hostagent.telemetry import events
from mltswitch.hostagent.telemetry.events import AgentEvent, GradientsLeftOut, LinkRate
from mltswitch.hostagent.telemetry.metrics import PREFIX, AgentCollector
from mltswitch.hostagent.telemetry.trace import KINDS, EventsLeftOut, TraceStarted, event_name
from mltswitch.hostagent.transport.records import TransferStatistics
from tests.hostagent.telemetry.examples import Example, ended, learned

PAGE = Path(__file__).parents[3] / "docs" / "agent-telemetry.md"
EVENTS: list[type[AgentEvent]] = [*KINDS.values()]
JSON_NAMES = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
JSON_NAMES |= {TransferStatistics: "statistics", LinkRate: "links"}


def json_type(annotation: Any) -> str:
    if get_origin(annotation) is UnionType:
        return " \\| ".join(map(json_type, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return f"array of {json_type(get_args(annotation)[0])}"
    return JSON_NAMES[annotation]


def members(kind: type) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of fields and properties, as the source has them."""
    hints = get_type_hints(kind, {**vars(events), "TransferStatistics": TransferStatistics})
    (definition,) = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    for statement, following in zip(definition.body, [*definition.body[1:], ast.Pass()], strict=True):
        if isinstance(statement, ast.FunctionDef):
            result = get_type_hints(getattr(kind, statement.name).fget)["return"]
            yield statement.name, json_type(result), ast.get_docstring(statement) or ""
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            text = following.value.value if is_text else ""  # type: ignore[attr-defined]  # as `is_text` says
            yield statement.target.id, json_type(hints[statement.target.id]), str(text)


def table(kind: type, title: str) -> Iterator[str]:
    yield from (title, "", " ".join((inspect.getdoc(kind) or "").split()), "")
    rows = list(members(kind))
    if rows:
        yield from ("| field | type | meaning |", "|---|---|---|")
        for name, type_name, text in rows:
            yield f"| `{name}` | {type_name} | {' '.join(text.split()).replace('None', 'null')} |"
        yield ""


def event_tables() -> str:
    """All events, in the order of the code."""
    lines: list[str] = []
    kinds: list[type[AgentEvent]] = [TraceStarted, *EVENTS, EventsLeftOut]
    for kind in kinds:
        lines += table(kind, f"### `{event_name(kind)}`")
    parts = [*table(TransferStatistics, "### Statistics"), *table(LinkRate, "### Links")]
    return "\n".join([*lines, *parts])


def metric_table() -> str:
    """All families, in the order of a scrape."""
    example = Example()
    collector = AgentCollector(cast(Any, example))
    example.observe(collector)
    example.tell(ended(direction="receive"))
    left_out = partial(GradientsLeftOut, first_step=0, last_step=99, layer="conv1", layer_share=0.1)
    collector.observe(left_out(network_share=0.02, bound_share=0.01))
    collector.observe(learned())
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in collector.registry.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le", "version"})
        lines.append(
            f"| `{family.name.removeprefix(PREFIX)}{suffix}` | {family.type} | {', '.join(labels)}"
            f" | {family.documentation} |"
        )
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with its tables as they should be."""
    for name, text in (("events", event_tables()), ("metrics", metric_table())):
        begin, end = f"<!-- made from {name} -->\n\n", "\n<!-- end -->"
        first = page.index(begin) + len(begin)
        page = page[:first] + text + page[page.index(end, first) :]
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
