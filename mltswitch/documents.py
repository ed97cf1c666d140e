"""Reading and writing YAML and JSON documents; one clear line for whatever is wrong in them."""

import hashlib
import json
import os
import tempfile
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from mltswitch.errors import UserInputError

MAXIMUM_DOCUMENT_BYTES: Final = 64 * 2**20
"""More than the plan of the largest fabric needs; what is larger is no document of ours."""

Document = TypeVar("Document", bound=BaseModel)


class _StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml may be absent
    """Safe YAML that refuses a key given twice, where YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} stands twice", key_node.start_mark
                    )
                seen.add(key)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def parse_yaml(text: str, *, where: str) -> Any:
    """Plain Python data from YAML (of which JSON is a part); raises UserInputError with line and column."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506  (a subclass of the safe loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise UserInputError(f"not valid YAML: {error.problem}", where=place) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserInputError(f"not valid YAML: {error}", where=where) from None


def read_text(path: Path) -> str:
    """Text of a file; raises UserInputError when it is missing, unreadable, too large or no text."""
    try:
        if path.stat().st_size > MAXIMUM_DOCUMENT_BYTES:
            raise UserInputError(f"larger than {MAXIMUM_DOCUMENT_BYTES} bytes", where=str(path))
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise UserInputError("is not UTF-8 text", where=str(path)) from None


def load_document(path: Path, model: type[Document]) -> Document:
    """One checked document from a YAML or JSON file; raises UserInputError naming file and field."""
    return validate(parse_yaml(read_text(path), where=str(path)), model, where=str(path))


def validate(data: Any, model: type[Document], *, where: str) -> Document:
    """`data` as a checked document; raises UserInputError naming the first field that is wrong."""
    if not isinstance(data, dict):
        raise UserInputError(
            "is not a mapping of fields", where=where, expected=f"a {model.__name__} document"
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UserInputError(_first_problem(error), where=_field(error, where)) from None


def _field(error: ValidationError, where: str) -> str:
    location = ".".join(str(part) for part in error.errors()[0]["loc"])
    return f"{where}: {location}" if location else where


def _first_problem(error: ValidationError) -> str:
    problems = error.errors()
    text = problems[0]["msg"].removeprefix("Value error, ")
    given = problems[0]["input"]
    if isinstance(given, str | int | float) and not isinstance(given, bool) and repr(given)[:60] not in text:
        text += f", not {repr(given)[:60]}"
    return text if len(problems) == 1 else f"{text} (and {len(problems) - 1} more)"


def dump_yaml(document: BaseModel) -> str:
    """Canonical YAML: fields in the model's order, so that the same document gives the same text."""
    data = document.model_dump(mode="json", by_alias=True)
    return yaml.safe_dump(data, sort_keys=False, width=110, allow_unicode=True)


def sha256(document: BaseModel) -> str:
    """Hash of the content, independent of formatting and comments in the file."""
    data = document.model_dump(mode="json", by_alias=True)
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write the whole file or nothing; raises UserInputError when the folder cannot be written."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        Path(temporary).unlink(missing_ok=True)
