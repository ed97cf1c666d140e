"""The tables of docs/agent-telemetry.md, made from the code.

`python -m tests.hostagent.telemetry.schema` writes them into the page.
"""

import ast
import dataclasses
import inspect
import types
from collections.abc import Iterator
from enum import EnumType, StrEnum
from pathlib import Path
from textwrap import dedent
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from mltswitch.hostagent.spraying.standing import PathCondition
from mltswitch.hostagent.telemetry.events import EVENTS
from mltswitch.hostagent.telemetry.metrics import PREFIX, AgentCollector
from mltswitch.hostagent.telemetry.snapshot import (
    AgentSnapshot,
    PathCounters,
    PeerCounters,
    PeerSnapshot,
    PeerState,
)
from mltswitch.hostagent.telemetry.trace import EventsLeftOut, TraceStarted
from mltswitch.hostagent.telemetry.transfers import TransferCounts
from mltswitch.hostagent.transport.interfaces import ClassStatistics, TransferStatistics

PAGE = Path(__file__).parents[3] / "docs" / "agent-telemetry.md"
NESTED = {
    TransferStatistics: "statistics",
    ClassStatistics: "class statistics",
    PathCondition: "path condition",
}
JSON_NAMES = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


def json_type(annotation: Any) -> str:
    if annotation in JSON_NAMES:
        return JSON_NAMES[annotation]
    if annotation in NESTED:
        return NESTED[annotation]
    if isinstance(annotation, EnumType):
        return " \\| ".join(f'"{member}"' for member in cast(type[StrEnum], annotation))
    if get_origin(annotation) in {Union, types.UnionType}:
        return " \\| ".join(map(json_type, get_args(annotation)))
    assert get_origin(annotation) is tuple, annotation
    return f"array of {json_type(get_args(annotation)[0])}"


def field_texts(kind: type) -> dict[str, str]:
    """What stands below each field in the source."""
    (definition,) = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for statement, following in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            text = following.value.value if is_text else ""  # type: ignore[union-attr]  # as `is_text` says
            texts[statement.target.id] = " ".join(str(text).split())
    return texts


def fields_table(kind: type) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    hints, texts = get_type_hints(kind), field_texts(kind)
    for field in dataclasses.fields(kind):
        if field.name != "time_ns":
            text = texts[field.name].replace("|", "\\|").replace("None", "null")
            yield f"| `{field.name}` | {json_type(hints[field.name])} | {text} |"


def events() -> str:
    """All events, in the order of the code."""
    lines: list[str] = []
    for kind in (TraceStarted, *EVENTS, EventsLeftOut):
        lines += [f"### `{kind.name}`", "", " ".join((inspect.getdoc(kind) or "").split()), ""]
        if len(dataclasses.fields(kind)) > 1:
            lines += [*fields_table(kind), ""]
    for nested, title in NESTED.items():
        lines += [f"### {title.capitalize()}", "", " ".join((inspect.getdoc(nested) or "").split()), ""]
        lines += [*fields_table(nested), ""]
    return "\n".join(lines[:-1]) + "\n"


def metrics() -> str:
    """All families, in the order of a scrape."""
    counters = PeerCounters(paths={0: PathCounters()})
    conditions = (PathCondition(0, next(iter(get_type_hints(PathCondition)["state"])), 1.0, 1.0, 0.0),)
    peer = PeerSnapshot("host", counters, PeerState(paths=conditions))
    snapshot = AgentSnapshot("agent", 0, (peer,), (), 0)
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for family in AgentCollector(lambda: snapshot, TransferCounts()).collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = getattr(family, "_labelnames", ())
        lines.append(
            f"| `{family.name.removeprefix(PREFIX)}{suffix}` | {family.type} | {', '.join(labels)}"
            f" | {family.documentation} |"
        )
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with its tables as they should be."""
    for name, text in (("events", events()), ("metrics", metrics())):
        begin, end = f"<!-- made from {name} -->\n\n", "\n<!-- end -->"
        first = page.index(begin) + len(begin)
        page = page[:first] + text + page[page.index(end, first) :]
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
