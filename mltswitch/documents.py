"""Reading and writing YAML and JSON documents; one clear line for whatever is wrong in them."""

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer
from pydantic_core import ErrorDetails

from mltswitch.errors import MOST_LISTED, UserInputError, did_you_mean
from mltswitch.inputs import note_input

MAXIMUM_DOCUMENT_BYTES: Final = 32 * 2**20
"""The most bytes of a document: three times the plan of 100,000 hosts; a larger file is refused."""
MAXIMUM_DEPTH: Final = 100
"""The deepest nesting of lists and mappings; the YAML library recurses, and crashes far above this."""
MAXIMUM_NODES: Final = 3_000_000
"""The most values of a document; those behind an alias are counted each time that it is used."""
MAXIMUM_DIGITS: Final = 40
"""Most digits of a whole number; Python neither prints nor divides one of some thousand digits."""
MAXIMUM_SHOWN_CHARACTERS: Final = 60
"""The most characters of one value or name that an error shows."""
UNPRINTABLE: Final = "has a line end, a control character or one that nobody sees"
MAXIMUM_LOCATED_CHARACTERS: Final = 2**20
"""The most characters of a document in which errors tell lines; in a longer one the search takes too long."""
PLAIN_WORDS: Final = tuple(
    (re.compile(words), plain)
    for words, plain in {
        r"^Value error, | after validation, not 0$": "",
        r", unable to (parse|interpret) .*|, got a number with .*": "",
        r"Extra inputs are not permitted": "is no field that is known here",
        r"Field required": "is missing",
        r"Input is not a valid": "is no",
        r"\b(Input|String|List|Tuple|Dictionary|Mapping|Set|Value|Decimal) should": "must",
        r"a valid integer": "a whole number",
        r"a valid string": "text",
        r"a valid number": "a number",
        r"a valid boolean": "true or false",
        r"a valid (list|tuple|set)": "a list",
        r"a valid dictionary.*|a dictionary.*": "a mapping of fields",
        r"match pattern": "match the pattern",
        r"greater than or equal to": "at least",
        r"less than or equal to": "at most",
        r"greater than": "more than",
        r"must be True$": "must be true",
        r"must be False$": "must be false",
    }.items()
)
"""Pydantic's words for an error → plain words for the author of the document."""
_KIND: Final = re.compile(r"mltswitch/([a-z-]+)/v[0-9]+")
"""Schema of a document: its kind, and which version of it."""
Document = TypeVar("Document", bound=BaseModel)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml, where PyYAML was built with it."""


class StrictDocument(BaseModel):
    """A part of a document, which is immutable and refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SparseDocument(StrictDocument):
    """A part of a document written without fields that have their defaults: older programs can read it."""

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
            if key_node.tag == "tag:yaml.org,2002:merge":
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


def parse_yaml(text: str, *, where: str) -> Any:
    """Plain Python data from YAML (of which JSON is a part); raises UserInputError with line and column.

    An alias counts as the values that it stands for, for readers follow every one: a loop of aliases is
    refused, and so are aliases that multiply to too many values.
    """
    try:
        _check_shape(text)
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506  (a subclass of the safe loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        is_tab = mark is not None and text[mark.index : mark.index + 1] == "\t"
        problem = "a tab; indent with spaces" if is_tab else error.problem
        raise UserInputError(f"not valid YAML: {problem}", where=place) from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserInputError(f"not valid YAML: {error}", where=where) from None


def _check_shape(text: str) -> None:
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
            if event.anchor not in finished:
                raise _refusal("an alias stands before the end of what it names", event)
            size, anchor = finished[event.anchor], None
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


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading bytes; raises UserInputError where that is impossible."""
    try:
        # a pipe without a writer must not block the opening
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UserInputError("is no regular file", where=str(path))
        with os.fdopen(descriptor, "rb") as stream:
            yield stream
    except BrokenPipeError:  # of whoever is told how far the reading is
        raise
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path)) from None


def read_text(path: Path) -> str:
    """Text of a regular file; raises UserInputError when it is missing, unreadable, too large or no text."""
    with open_regular(path) as stream:
        note_input(stream.fileno())
        content = stream.read(MAXIMUM_DOCUMENT_BYTES + 1)
    if len(content) > MAXIMUM_DOCUMENT_BYTES:
        raise UserInputError(f"larger than {MAXIMUM_DOCUMENT_BYTES} bytes", where=str(path))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise UserInputError("is not UTF-8 text", where=str(path)) from None


def load_document(path: Path, model: type[Document]) -> Document:
    """One checked document from a YAML or JSON file; raises UserInputError naming file, line and field."""
    text = read_text(path)
    return validate(parse_yaml(text, where=str(path)), model, where=str(path), text=text)


def validate(data: Any, model: type[Document], *, where: str, text: str | None = None) -> Document:
    """`data` as a checked document; raises UserInputError listing the fields that are wrong.

    With `text`, from which `data` was read, each field is named with its line.
    """
    if not isinstance(data, dict):
        raise UserInputError(
            "is empty" if data is None else "is not a mapping of fields",
            where=where,
            expected=f"a {model.__name__} document",
        )
    if hidden := list(_unprintable(data)):
        raise _refused(where, text, hidden, lambda _: UNPRINTABLE)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        wrong = _by_field(error.errors(include_url=False), data)
    _check_kind(data, model, where)
    raise _refused(where, text, list(wrong), lambda field: _problem(wrong[field], field, data, model))


def _check_kind(data: dict[str, Any], model: type[BaseModel], where: str) -> None:
    """Raise UserInputError, one line, for a document of another kind: all of its fields would be wrong."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    schema = get_args(fields["schema"].annotation)[0] if "schema" in fields else ""
    kind, given = _KIND.fullmatch(schema), _KIND.fullmatch(str(data.get("schema")))
    required = {name for name, field in fields.items() if field.is_required()}
    if given and not schema:
        what, schema = f"is {named_kind(given[1])}", f"none, as a {model.__name__} has"
    elif kind and given and kind[1] != given[1]:
        what = f"is {named_kind(given[1])}, not {named_kind(kind[1])}"
    elif kind and "schema" in required - data.keys() and not required & data.keys():
        what = f"is not {named_kind(kind[1])}"
    else:
        return
    raise UserInputError(what, where=where, expected=f"schema: {schema}")


def named_kind(kind: str) -> str:
    """A kind of document with its article: `a plan document`, `an agent document`."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} document"


_Field = tuple[str, ...]
"""Keys and indices from the root of a document to a value: `("hosts", "[3]", "name")`."""


def _refused(
    where: str, text: str | None, fields: Sequence[_Field], problem: Callable[[_Field], str]
) -> UserInputError:
    """The first field's problem as one line, and a line for each of the first fields."""
    shown = fields[:MOST_LISTED]
    places = [f"{where}{place}" for place in _places(shown, text)]
    lines = [f"{place}: {problem(field)}" for place, field in zip(places, shown, strict=True)]
    if len(fields) == 1:
        return UserInputError(problem(fields[0]), where=places[0])
    lines += [f"and {len(fields) - len(shown)} more"] if len(fields) > len(shown) else []
    return UserInputError(
        f"{problem(fields[0])} (and {len(fields) - 1} more)",
        where=places[0],
        listed=[f"{where}: {len(fields)} errors", *(f"  {line}" for line in lines)],
    )


def place_of(field: str, *, where: str, text: str) -> str:
    """A field of a document as errors name it: `agent.yaml:12: ports.rate`."""
    return where + next(_places([tuple(field.split("."))], text))


def _places(fields: Iterable[_Field], text: str | None) -> Iterator[str]:
    """`:12: ports.rate`: the line of each field, or of what should hold it, and the field's name."""
    root = None
    if text is not None and len(text) <= MAXIMUM_LOCATED_CHARACTERS:
        root = yaml.compose(text, Loader=_Loader)
    for field in fields:
        node, line = root, ""
        for part in field:
            if isinstance(node, yaml.MappingNode):
                at, node = next((pair for pair in node.value if pair[0].value == part), (None, None))
            elif isinstance(node, yaml.SequenceNode):
                number = int(part[1:-1])  # a validator may have made more of the list than stands there
                at = node = node.value[number] if number < len(node.value) else None
            else:
                at = node = None
            if at is not None:
                line = f":{at.start_mark.line + 1}"
        parts = (part if part.startswith("[") else f".{part[:MAXIMUM_SHOWN_CHARACTERS]}" for part in field)
        name = "".join(parts).removeprefix(".")
        yield f"{line}: {name}" if name else line


def _unprintable(data: Any) -> Iterator[_Field]:
    """Where a text has more than one line, or a character that steers a terminal or hides."""
    places: list[tuple[_Field, Any]] = [((), data)]
    while places:
        above, value = places.pop()
        if isinstance(value, str) and not value.isprintable():
            yield above
        if isinstance(value, Mapping):
            places += [((*above, str(key)), inner) for key, inner in value.items()]
            places += [((*above, key), key) for key in value if isinstance(key, str)]
        elif isinstance(value, list):
            places += [((*above, f"[{number}]"), inner) for number, inner in enumerate(value)]


def _by_field(problems: list[ErrorDetails], data: Any) -> dict[_Field, list[ErrorDetails]]:
    """What is wrong with each field; where it may be of several kinds, with the one that comes closest."""
    found: dict[_Field, list[ErrorDetails]] = {}
    # A field that nobody knows explains the one that is missing.
    for problem in sorted(problems, key=lambda problem: problem["type"] != "extra_forbidden"):
        found.setdefault(_field(problem, data), []).append(problem)
    above = {field[:length] for field in found for length in range(len(field))}
    return {field: same for field, same in found.items() if field not in above}


def _problem(problems: list[ErrorDetails], field: _Field, data: Any, model: type[BaseModel]) -> str:
    text = ", or: ".join(dict.fromkeys(plain_words(problem) for problem in problems))
    if problems[0]["type"] == "extra_forbidden":
        return text + _meant(field, data, model)
    given = problems[0]["input"]
    if isinstance(given, str | int | float) and _shown(given) not in text:
        text += f", not {_shown(given)}"
    return text


def _meant(field: _Field, data: Any, model: type[BaseModel]) -> str:
    """The field that somebody may have meant, of the part of the document whose other fields stand here."""
    for part in field[:-1]:
        data = data[int(part[1:-1])] if isinstance(data, list) else data.get(part, {})
    schema = model.model_json_schema()
    parts = [set(part.get("properties", ())) for part in (schema, *schema.get("$defs", {}).values())]
    known = max(parts, key=lambda names: len(names & {*data}))
    return did_you_mean(field[-1], known)


def plain_words(problem: ErrorDetails) -> str:
    """What is wrong with one value, in words that follow the name of its field."""
    if problem["type"] == "model_type":
        return "must be a mapping of fields"
    if problem["type"] == "union_tag_invalid":  # pydantic would quote all that stands there
        context = problem["ctx"]
        return f"{context['discriminator']} must be one of {context['expected_tags']}"
    message = problem["msg"]
    for words, plain in PLAIN_WORDS:
        message = words.sub(plain, message)
    return message


def _field(problem: ErrorDetails, data: Any) -> _Field:
    """The location as the document has it: pydantic adds the names of its own alternatives to it."""
    location = problem["loc"]
    parts: list[str] = []
    place = data
    for number, part in enumerate(location, start=1):
        if isinstance(place, Mapping) and part in place:
            place = place[part]
            parts.append(str(part))
        elif isinstance(place, list | tuple) and isinstance(part, int):
            place = place[part] if part < len(place) else None
            parts.append(f"[{part}]")
        elif problem["type"] == "missing" and number == len(location):
            parts.append(str(part))
    return tuple(parts)


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text[:MAXIMUM_SHOWN_CHARACTERS]


def dump_yaml(document: BaseModel) -> str:
    """Canonical YAML: fields in the model's order, so that the same document gives the same text."""
    data = document.model_dump(mode="json", by_alias=True)
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    return text


def sha256(document: BaseModel) -> str:
    """SHA-256 of a document's content, independent of formatting and comments in the file."""
    data = document.model_dump(mode="json", by_alias=True)
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
