"""Reading and writing YAML and JSON documents; one clear line for whatever is wrong in them."""

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer
from pydantic_core import ErrorDetails

from mltswitch.errors import UserInputError

MAXIMUM_DOCUMENT_BYTES: Final = 64 * 2**20
"""More than the plan of the largest fabric needs; what is larger is no document of ours."""
MAXIMUM_DEPTH: Final = 100
"""Lists and mappings inside each other; the YAML library recurses, and crashes far above this."""
MAXIMUM_NODES: Final = 5_000_000
"""Values of a document, those behind an alias counted each time that it is used."""
MAXIMUM_DIGITS: Final = 40
"""Of a whole number; Python neither prints nor divides one of some thousand digits."""
MAXIMUM_SHOWN_CHARACTERS: Final = 60
"""Of one value or name in an error."""
MERGE_TAG: Final = "tag:yaml.org,2002:merge"

Document = TypeVar("Document", bound=BaseModel)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml, where PyYAML was built with it."""


class SparseDocument(BaseModel):
    """A part of a document written without what has its default: short, and older programs read it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name, field in type(self).model_fields.items():
            if not field.is_required() and getattr(self, name) == field.default:
                written.pop(name, None)
                written.pop(field.alias or name, None)
        return written


class _StrictLoader(_Loader):  # type: ignore[misc]  # chosen at run time
    """Safe YAML that refuses a key given twice, where YAML would silently keep the last, and merge keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE_TAG:
                raise _refusal("the merge key << is not read, write the fields out", key_node)
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise _refusal(f"the key {_shown(key)} stands twice", key_node)
                seen.add(key)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping

    def construct_whole_number(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > MAXIMUM_DIGITS:
            raise _refusal(f"a number of more than {MAXIMUM_DIGITS} digits", node)
        number: int = super().construct_yaml_int(node)
        return number


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_whole_number)


def parse_yaml(text: str, *, where: str, is_expanded: bool = False) -> Any:
    """Plain Python data from YAML (of which JSON is a part); raises UserInputError with line and column.

    With `is_expanded`, an alias counts as what it names, for readers that follow every one: a loop, or
    aliases that multiply to too many values, are refused.
    """
    try:
        _check_shape(text, is_expanded=is_expanded)
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506  (a subclass of the safe loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise UserInputError(f"not valid YAML: {error.problem}", where=place) from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserInputError(f"not valid YAML: {error}", where=where) from None


def _check_shape(text: str, *, is_expanded: bool) -> None:
    """Refuse depth, size, loops and tags on the flat stream of events, before anything recurses over it."""
    sizes = [0]
    anchors: list[str | None] = [None]
    finished: dict[str | None, int] = {}
    for event in yaml.parse(text, Loader=_Loader):
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _refusal(f"the tag {_shown(tag)} is not read", event)
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.append(1)
            anchors.append(event.anchor)
            if len(sizes) > MAXIMUM_DEPTH:
                raise _refusal(f"more than {MAXIMUM_DEPTH} levels deep", event)
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            size, anchor = sizes.pop(), anchors.pop()
        elif isinstance(event, yaml.ScalarEvent):
            size, anchor = 1, event.anchor
        elif isinstance(event, yaml.AliasEvent):
            if is_expanded and event.anchor not in finished:
                raise _refusal("an alias stands before the end of what it names", event)
            size, anchor = finished[event.anchor] if is_expanded else 1, None
        else:
            continue
        if anchor is not None:
            finished[anchor] = size
        sizes[-1] += size
        if sizes[-1] > MAXIMUM_NODES:
            raise _refusal(f"more than {MAXIMUM_NODES} values", event)


def _refusal(problem: str, at: yaml.Event | yaml.Node) -> yaml.MarkedYAMLError:
    mark: Any = at.start_mark  # libyaml has a class of its own for it
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def read_text(path: Path) -> str:
    """Text of a regular file; raises UserInputError when it is missing, unreadable, too large or no text."""
    try:
        # a pipe without a writer must not block the opening
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UserInputError("is no regular file", where=str(path))
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                content = stream.read(MAXIMUM_DOCUMENT_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if len(content) > MAXIMUM_DOCUMENT_BYTES:
        raise UserInputError(f"larger than {MAXIMUM_DOCUMENT_BYTES} bytes", where=str(path))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise UserInputError("is not UTF-8 text", where=str(path)) from None


def load_document(path: Path, model: type[Document]) -> Document:
    """One checked document from a YAML or JSON file; raises UserInputError naming file and field."""
    data = parse_yaml(read_text(path), where=str(path), is_expanded=True)
    return validate(data, model, where=str(path))


def validate(data: Any, model: type[Document], *, where: str) -> Document:
    """`data` as a checked document; raises UserInputError naming the first field that is wrong."""
    if not isinstance(data, dict):
        raise UserInputError(
            "is not a mapping of fields", where=where, expected=f"a {model.__name__} document"
        )
    _refuse_unprintable(data, where)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _first_problem(error.errors(include_url=False), data, where) from None


def _refuse_unprintable(data: Any, where: str) -> None:
    """No text of a document has more than one line, or a character that steers a terminal or hides."""
    places: list[tuple[tuple[object, ...], Any]] = [((), data)]
    while places:
        above, value = places.pop()
        if isinstance(value, str) and not value.isprintable():
            name = ".".join(str(part)[:MAXIMUM_SHOWN_CHARACTERS] for part in above)
            raise UserInputError(
                "has a line end, a control character or one that nobody sees", where=f"{where}: {name}"
            )
        if isinstance(value, Mapping):
            places += [((*above, key), key) for key in value if isinstance(key, str)]
            places += [((*above, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            places += [((*above, number), inner) for number, inner in enumerate(value)]


def _first_problem(problems: list[ErrorDetails], data: Any, where: str) -> UserInputError:
    """The first field's problem; where a field may be of several kinds, of the kind that comes closest."""
    # A field that nobody knows explains the one that is missing.
    problems = sorted(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    fields = [_field(problem, data) for problem in problems]
    same = [field for field in fields if field[: len(fields[0])] == fields[0]]
    field = max(same, key=len)
    texts = [_message(problem) for problem, other in zip(problems, fields, strict=True) if other == field]
    text = ", or: ".join(dict.fromkeys(texts))
    given = next(problem["input"] for problem, other in zip(problems, fields, strict=True) if other == field)
    if isinstance(given, str | int | float) and not isinstance(given, bool) and _shown(given) not in text:
        text += f", not {_shown(given)}"
    others = len({*fields} - {*same})
    name = ".".join(part[:MAXIMUM_SHOWN_CHARACTERS] for part in field)
    return UserInputError(
        f"{text} (and {others} more)" if others else text, where=f"{where}: {name}" if name else where
    )


def _message(problem: ErrorDetails) -> str:
    if problem["type"] == "model_type":
        return "Input should be a mapping of fields"
    if problem["type"] == "union_tag_invalid":  # pydantic would quote all that stands there
        context = problem["ctx"]
        return f"{context['discriminator']} should be one of {context['expected_tags']}"
    return problem["msg"].removeprefix("Value error, ")


def _field(problem: ErrorDetails, data: Any) -> tuple[str, ...]:
    """The location as the document has it: pydantic adds the names of its own alternatives to it."""
    location = problem["loc"]
    parts: list[str] = []
    place = data
    for number, part in enumerate(location, start=1):
        if isinstance(place, Mapping) and part in place:
            place = place[part]
        elif isinstance(place, list | tuple) and isinstance(part, int):
            place = place[part] if part < len(place) else None
        elif not (problem["type"] == "missing" and number == len(location)):
            continue
        parts.append(str(part))
    return tuple(parts)


def _shown(value: object) -> str:
    return repr(value)[:MAXIMUM_SHOWN_CHARACTERS]


def dump_yaml(document: BaseModel) -> str:
    """Canonical YAML: fields in the model's order, so that the same document gives the same text."""
    data = document.model_dump(mode="json", by_alias=True)
    return yaml.safe_dump(data, sort_keys=False, width=110, allow_unicode=True)


def sha256(document: BaseModel) -> str:
    """Hash of the content, independent of formatting and comments in the file."""
    data = document.model_dump(mode="json", by_alias=True)
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write the whole file or nothing; raises UserInputError when it cannot be written."""
    write_together([(path, text)])


def write_together(files: Iterable[tuple[Path, str]]) -> None:
    """Write all files or none: every text is on the disk before the first one takes its place.

    A link is followed, and an old file keeps its permissions. A text is asked for when the one before is
    on the disk, so that no more than one need be held; an error of whoever makes them leaves no file, too.

    Raises:
        UserInputError: naming the file that cannot be written, or that is no regular file.
    """
    paths: list[Path] = []
    staged: list[tuple[Path, Path]] = []
    try:
        for path, text in files:
            paths.append(path)
            with _writing(path):
                target = Path(os.path.realpath(path))
                temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
                permissions = _permissions(path, target)
                with temporary.open("x", encoding="utf-8") as stream:
                    staged.append((temporary, target))
                    stream.write(text)
                    if permissions is not None:
                        os.fchmod(stream.fileno(), permissions)
                    stream.flush()
                    os.fsync(stream.fileno())
        for path, (temporary, target) in zip(paths, staged, strict=True):
            with _writing(path):
                temporary.replace(target)
    finally:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None


def _permissions(path: Path, target: Path) -> int | None:
    """Of the file that stands there; None when there is none yet."""
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise UserInputError("is no regular file", where=str(path))
    return stat.S_IMODE(mode)
