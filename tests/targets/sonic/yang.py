"""SONiC's own YANG models as a judge: whether a configuration is valid.

The models describe CONFIG_DB by a convention (sonic-buildimage, src/sonic-yang-models/doc): module
sonic-x has a container sonic-x, in it a container for each table, in it a list for each form of key, whose
keys are the parts of the database's key; a map is a list whose entries hold a list of the table's name. What
follows reads that from the models themselves, so a new table needs no line here.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from yangson import DataModel

from mltswitch.targets.sonic.database import Database, Entry
from tests.targets.yang import DATA, data_model, refusal_by


def refusal(database: Database) -> str | None:
    """Why the models refuse a configuration; None where it is valid. A table without model is not judged."""
    return refusal_by(_model(), _document(database))


def tables() -> frozenset[str]:
    """Tables that the models describe."""
    return frozenset(_places())


@cache
def _model() -> DataModel:
    return data_model((DATA / "sonic-yang").glob("*.yang"), "sonic-")


@cache
def _places() -> dict[str, Any]:
    """Table → its schema node."""
    return {
        table.name: table
        for module in _model().schema.children
        for table in module.children
        if table.name.isupper() or table.name.replace("_", "").isupper()
    }


def _document(database: Database) -> dict[str, Any]:
    """RFC 7951, the tables with a model."""
    document: dict[str, Any] = {}
    for name, entries in database.items():
        table = _places().get(name)
        if table is None:
            continue
        module = f"{table.parent.ns}:{table.parent.name}"
        document.setdefault(module, {})[name] = _table(table, entries)
    return document


def _table(table: Any, entries: Mapping[str, Entry]) -> dict[str, Any]:
    contents: dict[str, Any] = {}
    lists = {len(child.keys): child for child in reversed(table.children) if hasattr(child, "keys")}
    containers = {child.name: child for child in table.children if not hasattr(child, "keys")}
    for key, fields in entries.items():
        parts = key.split("|")
        if key in containers:
            contents[key] = dict(_leaves(containers[key], fields))
        elif len(parts) in lists:
            row = lists[len(parts)]
            keyed = dict(zip((name for name, _ in row.keys), parts, strict=True))
            contents.setdefault(row.name, []).append(dict(_leaves(row, keyed)) | _row(table, row, fields))
        else:
            contents[key] = {}
    return contents


def _row(table: Any, row: Any, fields: Entry) -> dict[str, Any]:
    pairs = next((child for child in row.children if child.name == table.name), None)
    if pairs is None:
        return dict(_leaves(row, fields))
    key, _ = pairs.keys[0]
    value = next(leaf.name for leaf in pairs.children if leaf.name != key)
    return {pairs.name: [dict(_leaves(pairs, {key: name, value: text})) for name, text in fields.items()]}


def _leaves(node: Any, fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        leaf = next((child for child in node.children if child.name == name), None)
        yield name, value if leaf is None or not isinstance(value, str) else _raw(leaf.type, value)


def _raw(kind: Any, text: str) -> Any:
    """Text as RFC 7951 writes it for a type; what the type refuses is left as it is, for the judge."""
    parsed = kind.parse_value(text)
    return text if parsed is None else kind.to_raw(parsed)
