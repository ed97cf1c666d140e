"""Reading a configuration file; whatever is wrong in it is one line in the words of who wrote it.

The libraries that parse and check know YAML and types of Python. Here stands what their problems mean in a
file of fields, and in which line.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mltswitch.documents import parse_yaml, read_text, validate
from mltswitch.errors import UserInputError
from mltswitch.hostagent.configuration.document import (
    AgentDocument,
    ListedClasses,
    SprayingDocument,
    TcpDocument,
)

SHOWN_CHARACTERS: Final = 60
"""Of one value or name in an error."""
PEERS: Final = "peers."
KEY: Final = "[key]"
"""How a problem with the name of a field is marked."""
NOT_YAML: Final = "not valid YAML: "
EXAMPLE: Final = "fields, one a line, such as `name: host1`"
PARTS: Final[Mapping[str, type[BaseModel]]] = {
    "classes": ListedClasses,
    "spraying": SprayingDocument,
    "tcp": TcpDocument,
}
PROBLEMS: Final = (
    ("tab character", "a tab", "spaces before a field"),
    ("cannot start any token", "no value begins with this character", "quotes around the value"),
    (
        "mapping values are not allowed",
        "no field begins here",
        "fields below each other, and quotes around a value with a colon",
    ),
    ("unexpected end of stream", "a quotation mark is not closed", "the same mark at the end of the text"),
    ("expected ',' or ']'", "a bracket is not closed", "]"),
    ("expected ',' or '}'", "a brace is not closed", "}"),
    ("expected ':'", "neither a field nor a value", EXAMPLE),
    ("expected key", "no field begins here", "fields of one part equally far to the right"),
    ("expected <block end>", "no field begins here", "fields of one part equally far to the right"),
    ("block sequence entries", "no list begins here", "a list in brackets, or below its field"),
    ("'-' indicator", "no entry of the list", "`- ` before each entry, equally far to the right"),
    ("unhashable key", "a list or fields instead of a name", EXAMPLE),
    ("expected <document start>", "no field begins here", "fields of one part equally far to the right"),
    ("another document", "a second file begins here", "one, without a line `---` or `...` in it"),
    ("expected node content", "no value begins here", "a value, or the end of what is open"),
    ("incompatible YAML", "a version of YAML that is not read", "no line that begins with %"),
    ("escape character", "no character is written so", "\\\\ for one \\"),
    ("must be in", "a date that no calendar has", "quotes around the value"),
    ("is out of range", "a date that no calendar has", "quotes around the value"),
    ("invalid literal", "a number without digits", "quotes around the value"),
    ("unacceptable character", "a control character", "text"),
    ("control characters", "a control character", "text"),
)
"""Words of libyaml, or of PyYAML; what they mean, and what was expected."""
UNPRINTABLE: Final = re.compile("[^\t\r\n -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What YAML takes nowhere."""
EXPONENT: Final = re.compile(r"[-+]?[\d.]+[eE][-+]?\d+")
TEXT_TAG: Final = "tag:yaml.org,2002:str"
BOUNDS: Final = {
    "ge": ("small", "{} or more"),
    "gt": ("small", "more than {}"),
    "le": ("large", "{} or less"),
    "lt": ("large", "less than {}"),
}
"""Which end of its range a value is beyond, and what that is."""
TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "finite_number": "one that is finite",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "fields of its own",
    "model": "fields of its own",
}
"""By the beginnings of the names of problems."""
KINDS: Final[tuple[tuple[type, str], ...]] = (
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
    (list, "a list"),
    (tuple, "a list"),
    (dict, "fields"),
)
"""What a value is to who wrote it."""
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Source:
    """Where fields come from, as errors name it."""

    name: str
    read: Callable[[], str] | None = None
    """Has its text, where it is a file; None: there are no lines."""

    def place(self, field: str) -> str:
        """Of a field, `tcp.streams` or `line_rate, queue` say; with the line where it stands in the text."""
        text = None if self.read is None else self.read()
        for one in field.split(", "):
            # Names of peers may have dots.
            parts = one.split(".", 1 if one.startswith(PEERS) else -1)
            place = _at(self.name, text, tuple(parts))
            if place != self.name:
                return f"{place}: {field}"
        return f"{self.name}: {field}"


def read_document(path: Path) -> AgentDocument:
    """Of a file; raises UserInputError naming file, line and field."""
    where = str(path)
    text = read_text(path)
    try:
        data = parse_yaml(text, where=where, is_expanded=True)
    except UserInputError as error:
        if error.where == where:  # the library says no line
            found = UNPRINTABLE.search(text)
            line = _line_of_no_value(text) if found is None else len(text[: found.end()].splitlines())
            error.where = where if line is None else f"{where}:{line}"
        raise _in_plain_words(error) from None
    return _checked(data, where, text)


def checked_document(data: Any, *, where: str) -> AgentDocument:
    """Of fields that stand in no file, or not in one alone; raises UserInputError naming the field."""
    return _checked(data, where, None)


def _checked(data: Any, where: str, text: str | None) -> AgentDocument:
    if not isinstance(data, dict):
        kind = "is empty" if data is None else f"is {_kind(data)}"
        raise UserInputError(kind, where=where, expected=EXAMPLE)
    try:
        return validate(data, AgentDocument, where=where)
    except UserInputError as error:
        problem = error
    try:
        AgentDocument.model_validate(data)
    except ValidationError as error:
        # A field that nobody knows explains the one that is missing.
        problems = sorted(
            error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden"
        )
        raise _first_problem(problems, where, text) from None
    problem.where = Source(where, None if text is None else lambda: text).place(
        problem.where.removeprefix(f"{where}: ")
    )
    raise problem


def _in_plain_words(error: UserInputError) -> UserInputError:
    problem = error.what.removeprefix(NOT_YAML)
    for words, what, expected in PROBLEMS:
        if words in problem:
            return UserInputError(what, where=error.where, expected=expected)
    return UserInputError(problem, where=error.where)


def _first_problem(problems: list[ErrorDetails], where: str, text: str | None) -> UserInputError:
    problem = problems[0]
    if problem["type"] == "invalid_key" and text is not None:
        above = problem["loc"][:-1]
        line, name = _nameless(text, above)
        field = ".".join(map(str, (*above, name)))
        what = f"{name} is no name of a field"
        return UserInputError(what, where=f"{where}:{line}: {field}", expected="text")
    # What is wrong of several fields begins with the name of one.
    place = problem["loc"] or tuple(_told(problem)[0].split(" ", 1)[:1])
    where = _at(where, text, place)
    parts = [str(part)[:SHOWN_CHARACTERS] for part in problem["loc"] if part != KEY]
    what, expected = _told(problem)
    places = {entry["loc"] for entry in problems}
    # A list whose entries are wrong seems too short, too: it is no other field.
    within = {place[:length] for place in places for length in range(len(place))}
    others = len(places - within - {problem["loc"]})
    hint = f"{others} more {'fields are' if others > 1 else 'field is'} wrong" if others else ""
    field = ".".join(parts)
    return UserInputError(what, where=f"{where}: {field}" if field else where, expected=expected, hint=hint)


def _told(problem: ErrorDetails) -> tuple[str, str]:
    """What is wrong, and what was expected."""
    value, context = problem["input"], problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            told = "there is no such field", _alike(problem["loc"])
        case "missing":
            told = "is missing", ""
        case "value_error":  # one of ours, which says all
            told = problem["msg"].removeprefix("Value error, "), ""
        case "invalid_key":
            told = f"{_shown(value)} is no name of a field", "text"
        case "enum" | "literal_error":
            told = f"{_shown(value)} is not understood", str(context["expected"]).replace("'", "")
        case "too_short" | "string_too_short":
            told = "is empty", f"{context['min_length']} or more"
        case "too_long" | "string_too_long":
            told = "is too long", f"{context['max_length']} or fewer"
        case "string_pattern_mismatch":
            told = f"{_shown(value)} is no name that the kernel has", "small letters, digits and _"
        case _:
            told = _told_of_a_value(problem["type"], value, context)
    return told


def _told_of_a_value(kind: str, value: object, context: Mapping[str, Any]) -> tuple[str, str]:
    """It is out of bounds, or of another type."""
    for bound, (size, words) in BOUNDS.items():
        if bound in context:
            return f"{_shown(value)} is too {size}", words.format(f"{context[bound]:.12g}")
    if kind.startswith("int") and isinstance(value, str) and EXPONENT.fullmatch(value):
        return f"{_shown(value)} is no whole number", "digits alone"
    expected = next((words for begin, words in TYPES.items() if kind.startswith(begin)), "another value")
    is_shown = isinstance(value, str | int | float) and not isinstance(value, bool)
    return f"{_shown(value)} is {_kind(value)}" if is_shown else f"is {_kind(value)}", expected


def _alike(location: tuple[int | str, ...]) -> str:
    """Of the fields that could be meant, or of all that a part of the file has."""
    part = PARTS.get(str(location[0])) if len(location) > 1 else AgentDocument
    names = [field.alias or name for name, field in part.model_fields.items()] if part else []
    alike = get_close_matches(str(location[-1]), names, n=1)
    return ", ".join(alike or names)


def _kind(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    return next((words for kind, words in KINDS if isinstance(value, kind)), "a date")


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return _kind(value)
    return (str(value) if isinstance(value, date) else repr(value))[:SHOWN_CHARACTERS]


def _at(where: str, text: str | None, location: tuple[int | str, ...]) -> str:
    """With the line, where it is known."""
    line = None if text is None else _line(text, location)
    return where if line is None else f"{where}:{line}"


def _nameless(text: str, location: tuple[int | str, ...]) -> tuple[int, str]:
    """Of a part of the file: the line and the text of what stands there for a name and is none."""
    node: Any = yaml.compose(text, Loader=_Loader)
    for part in location:
        node = next(inner for name, (_, inner) in _below(node) if name == str(part))
    key = next(key for key, _ in node.value if key.tag != TEXT_TAG)
    return key.start_mark.line + 1, key.value[:SHOWN_CHARACTERS] or "nothing"


def _line(text: str, location: tuple[int | str, ...]) -> int | None:
    """In which line the field stands, or, where it is missing, what it is missing from."""
    node = yaml.compose(text, Loader=_Loader)
    line = None
    for part in location:
        found = next((place for name, place in _below(node) if name == str(part)), None)
        if found is None:
            break
        line, node = found
    return line


def _line_of_no_value(text: str) -> int | None:
    """Of the first that is written like a date or a number, and is none."""
    loader = _Loader(text)
    try:
        nodes = [loader.get_single_node()]
    except yaml.YAMLError:  # it is something else
        return None
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.ScalarNode):
            try:
                loader.construct_object(node)
            except ValueError:
                return int(node.start_mark.line) + 1
        elif isinstance(node, yaml.MappingNode):
            nodes += [inner for pair in reversed(node.value) for inner in reversed(pair)]
        elif isinstance(node, yaml.SequenceNode):
            nodes += reversed(node.value)
    return None


def _below(node: Any) -> Iterator[tuple[str, tuple[int, Any]]]:
    """Fields of a mapping, or numbers of a list's entries; their lines, and what stands there."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield str(key.value), (key.start_mark.line + 1, value)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield str(number), (value.start_mark.line + 1, value)
