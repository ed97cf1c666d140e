"""Chakra execution traces of MLCommons (schema et_def.proto, version 0.0.4), one file a rank.

A file is a sequence of messages, each after its length: one about the trace, then its nodes. The few fields
that are played do not pay for a protobuf library. The JSON form of Chakra's converter has the same messages
one after the other, or in a list.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mltswitch.documents import open_regular
from mltswitch.errors import UserInputError
from mltswitch.inputs import note_input

SEND, RECEIVE, COLLECTIVE = 5, 6, 7
NODE_TYPES: Final = (
    "INVALID",
    "METADATA",
    "MEM_LOAD",
    "MEM_STORE",
    "COMP",
    "COMM_SEND",
    "COMM_RECV",
    "COMM_COLL",
)
"""By number; storage and the like, which later drafts of the schema have, are not played."""
MOST_BYTES: Final = 1 << 30
_BETWEEN: Final = re.compile(r"[,\s]*")
VERSIONS: Final = ("", "0.0.4")
"""Of the schema; some write none."""
_FIELDS: Final = {
    1: "id",
    2: "name",
    3: "type",
    4: "ctrlDeps",
    5: "dataDeps",
    7: "durationMicros",
    10: "attr",
}
_VALUES: Final = {7: "int32Val", 9: "int64Val", 11: "uint32Val", 13: "uint64Val", 29: "stringVal"}


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a trace: what a rank computes, sends, receives, or does together with others."""

    number: int
    name: str
    kind: int
    before: tuple[int, ...]
    """Numbers of the rank's nodes that must have ended."""
    microseconds: int
    attributes: dict[str, Any]


def read_trace(path: Path) -> list[Node]:
    """The nodes of a rank; raises UserInputError for a file that cannot be read, or is cut short."""
    nodes: dict[int, Node] = {}
    last = "the beginning"
    try:
        with open_regular(path) as stream:
            note_input(stream.fileno())
            data = stream.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UserInputError(f"larger than {MOST_BYTES} bytes", where=str(path))
        for message in _json(data.decode()) if path.suffix == ".json" else _binary(data):
            if "type" not in message and "id" not in message:  # it is about the trace
                if message.get("version", "") not in VERSIONS:
                    problem = f"version {message['version']!r:.40}"
                    raise UserInputError(problem, where=str(path), expected=VERSIONS[-1])
                continue
            node = _node(message)
            last = f"node {node.number}"
            if node.number in nodes:
                raise UserInputError(f"{last} stands twice", where=str(path))
            nodes[node.number] = node
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise UserInputError(f"is cut short, or no Chakra trace, after {last}", where=str(path)) from None
    for node in nodes.values():
        for missing in {*node.before} - {*nodes}:
            problem = f"node {node.number} waits for node {missing}, which is missing"
            raise UserInputError(problem, where=str(path))
    return [*nodes.values()]


def _node(message: dict[str, Any]) -> Node:
    kind, before = message.get("type", 0), [*message.get("ctrlDeps", []), *message.get("dataDeps", [])]
    number = NODE_TYPES.index(kind.removesuffix("_NODE")) if isinstance(kind, str) else int(kind)
    microseconds = int(message.get("durationMicros", 0))
    if not (0 <= number < len(NODE_TYPES) and 0 <= microseconds < 2**63):
        raise ValueError
    return Node(
        int(message.get("id", 0)),
        str(message.get("name", "")),
        number,
        tuple(dict.fromkeys(map(int, before))),
        microseconds,
        {
            each["name"]: value
            for each in message.get("attr", [])
            for name, value in each.items()
            if name in _VALUES.values()
        },
    )


def _json(text: str) -> Iterator[dict[str, Any]]:
    decoder, place = json.JSONDecoder(), 0
    text = text.strip().removeprefix("[").removesuffix("]")
    while (place := _BETWEEN.match(text, place).end()) < len(text):  # type: ignore[union-attr]  # it matches nothing, too
        message, place = decoder.raw_decode(text, place)
        yield message


def _binary(data: bytes) -> Iterator[dict[str, Any]]:
    """The messages with the JSON form's names."""
    place = 0
    while place < len(data):
        is_first, (size, begin) = place == 0, _varint(data, place)
        place = begin + size
        if size < 0 or place > len(data):
            raise ValueError
        message: dict[str, Any] = {"ctrlDeps": [], "dataDeps": [], "attr": []}
        for number, value in _fields(data[begin:place]):
            name = "version" if is_first and number == 1 else _FIELDS.get(number)
            if is_first and name != "version":
                continue
            if name == "attr":
                fields = {_VALUES.get(each, "name" if each == 1 else ""): got for each, got in _fields(value)}
                message[name].append({each: _text(got) for each, got in fields.items() if each})
            elif name in ("ctrlDeps", "dataDeps"):
                message[name] += _packed(value) if isinstance(value, bytes) else [value]
            elif name:
                message[name] = _text(value)
        yield message


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _packed(data: bytes) -> Iterator[int]:
    place = 0
    while place < len(data):
        value, place = _varint(data, place)
        yield value


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a message; raises ValueError where it is cut short."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key & 7 == 0:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(key & 7, -1)
        if key & 7 == 2:
            size, place = _varint(data, place)
        if size < 0 or place + size > len(data):
            raise ValueError
        yield key >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place] if place < len(data) else 255
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value - (1 << 64) if value >> 63 else value, place
    raise ValueError
