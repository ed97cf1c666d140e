"""The table of docs/fabric.md: every field of the fabric file, from the models and their docstrings."""

import ast
import inspect
import json
import re
import types
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mltswitch.plan import Fabric

UNITS = {
    "bytes": "B",
    "bps": "bit/s",
    "packets": "packets",
    "seconds": "s",
    "share": "of the port's rate",
    "load": "of the port's rate",
}
"""By the last word of a field's name in the models."""
EXAMPLES = {"buffer": "256kB", "rate": "25Gbps"}
NAMES = {"int": "number", "float": "number", "bool": "true or false", "str": "text", "IPv4Network": "prefix"}
NAMES |= {"IPv6Network": "IPv6 prefix", "IPv4Address": "address", "IPv4Interface": "address with length"}
Row = tuple[str, str, str, str]


def table(model: type[BaseModel] = Fabric) -> str:
    """Markdown: a section for each part of the file, a row for each field."""
    lines: list[str] = []
    places: dict[type[BaseModel], list[str]] = {}
    _collect(model, "", places)
    for part, paths in places.items():
        title = ", ".join(f"`{path}`" for path in paths if path) or "The file itself"
        lines += ["", f"### {title}", "", *_sentences(part), "", "| field | unit | default | meaning |"]
        lines += ["|---|---|---|---|", *(f"| {' | '.join(row)} |" for row in _rows(part))]
    return "\n".join(lines).strip() + "\n"


def _collect(model: type[BaseModel], path: str, places: dict[type[BaseModel], list[str]]) -> None:
    """Part → where it stands in the file; what is within a part that stands in several places, once."""
    places.setdefault(model, []).append(path)
    if len(places[model]) > 1:
        return
    for name, field in model.model_fields.items():
        origin = get_origin(field.annotation)
        many = "[]" if origin is tuple else ".*" if origin is dict else ""
        for inner in _models(field.annotation):
            _collect(inner, f"{path}.{field.alias or name}{many}".removeprefix("."), places)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return list(dict.fromkeys(model for part in get_args(annotation) for model in _models(part)))


def _sentences(model: type[BaseModel]) -> list[str]:
    return [line.strip() for line in (inspect.getdoc(model) or "").splitlines() if line.strip()]


def _rows(model: type[BaseModel]) -> Iterator[Row]:
    meanings: dict[str, str] = {}
    for ancestor in reversed(model.__mro__):
        if issubclass(ancestor, BaseModel) and ancestor.__module__.startswith("mltswitch."):
            meanings |= _docstrings(ancestor)
    for name, field in model.model_fields.items():
        unit = UNITS.get(name.rsplit("_", 1)[-1], _kind(field.annotation))
        if field.alias in EXAMPLES:
            unit += f", or `{EXAMPLES[field.alias]}`"
        yield f"`{field.alias or name}`", unit, _default(field), meanings.get(name, "")


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Field → the string below it."""
    (tree,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for entry, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(entry, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(entry.target, ast.Name)
            found[entry.target.id] = re.sub(r"\s+", " ", ast.literal_eval(below.value)).replace("|", "\\|")
    return found


def _kind(annotation: Any) -> str:
    """What stands there, where no unit says it."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if _models(annotation):
        return "see below"
    if inspect.isclass(annotation) and issubclass(annotation, StrEnum):
        origin, parts = Literal, tuple(annotation)
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType, Annotated):
        kinds = (_kind(part) for part in parts if part is not type(None) and _is_type(part))
        return " or ".join(dict.fromkeys(kinds))
    if origin is tuple:
        return f"list of {_kind(parts[0])}"
    if origin is dict:
        return f"mapping to {_kind(parts[1])}"
    return NAMES[annotation.__name__]


def _is_type(part: Any) -> bool:
    """Whether it is no constraint, such as those that Annotated carries."""
    return inspect.isclass(part) or get_origin(part) is not None


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value is PydanticUndefined:
        return "-"
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, tuple | dict):
        return f"`{json.dumps(value)}`" if value else "none"
    return f"`{json.dumps(value)}`" if not isinstance(value, str) else f"`{value}`"
