"""Chakra execution traces of MLCommons (schema et_def.proto, version 0.0.4), one file a rank.

A file is a sequence of messages, each after its length: first one about the trace, then its nodes. They are
read here field by field, for the few fields that are played do not pay for a protobuf library. The JSON form,
as Chakra's converter writes it, has the same messages one after the other, or in a list.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mltswitch.errors import UserInputError

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
NODE_TYPES: Final = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
    "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip
"""By number, as the schema has them."""
VERSIONS: Final = ("", "0.0.4")
"""Of the schema; some write none."""
MAXIMUM_BYTES: Final = 1 << 30
_NAMES: Final = {1: "id", 2: "name", 3: "type", 4: "ctrlDeps", 5: "dataDeps", 7: "durationMicros", 10: "attr"}
_VALUES: Final = {7: "int32Val", 9: "int64Val", 11: "uint32Val", 13: "uint64Val", 29: "stringVal"}


@dataclass(frozen=True, slots=True)
class Node:
    """What one rank does."""

    number: int
    name: str
    kind: int
    before: tuple[int, ...]
    """Numbers of the rank's nodes that must have ended."""
    microseconds: int
    attributes: dict[str, Any]


def read_trace(path: Path) -> list[Node]:
    """The nodes of a rank; raises UserInputError for a file that cannot be read, or is cut short."""
    try:
        if path.stat().st_size > MAXIMUM_BYTES:
            raise UserInputError(
                "is too large", where=str(path), expected=f"at most {MAXIMUM_BYTES >> 20} MiB"
            )
        data = path.read_bytes()
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    nodes: dict[int, Node] = {}
    last = "the beginning"
    try:
        for message in _json(data.decode()) if path.suffix == ".json" else _messages(data):
            node = _node(message)
            if node is None:
                continue
            last = f"node {node.number}"
            if node.number in nodes:
                raise UserInputError(f"{last} stands twice", where=str(path))
            nodes[node.number] = node
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserInputError(
            f"is cut short or no Chakra trace after {last}: {type(error).__name__}", where=str(path)
        ) from None
    for node in nodes.values():
        missing = next((each for each in node.before if each not in nodes), None)
        if missing is not None:
            raise UserInputError(
                f"node {node.number} waits for node {missing}, which is missing", where=str(path)
            )
    return [*nodes.values()]


def _json(text: str) -> Iterator[dict[str, Any]]:
    decoder, place = json.JSONDecoder(), 0
    text = text.strip().removeprefix("[").removesuffix("]")
    while (place := len(text) - len(text[place:].lstrip(", \r\n\t"))) < len(text):
        message, place = decoder.raw_decode(text, place)
        yield message


def _messages(data: bytes) -> Iterator[dict[str, Any]]:
    """The messages of a binary trace, with the JSON form's names."""
    place = 0
    while place < len(data):
        size, begin = _varint(data, place)
        if begin + size > len(data):
            raise ValueError
        message = data[begin : begin + size]
        if place:
            yield _message(message)
        else:
            yield {"version": dict(_fields(message)).get(1, b"").decode()}
        place = begin + size


def _message(data: bytes) -> dict[str, Any]:
    message: dict[str, Any] = {"ctrlDeps": [], "dataDeps": [], "attr": []}
    for number, value in _fields(data):
        name = _NAMES.get(number)
        if name == "attr":
            fields = dict(_fields(value))
            attribute = {_VALUES[each]: got for each, got in fields.items() if each in _VALUES}
            message["attr"].append({"name": fields[1].decode()} | attribute)
        elif name in ("ctrlDeps", "dataDeps") and isinstance(value, bytes):  # packed
            place = 0
            while place < len(value):
                each, place = _varint(value, place)
                message[name].append(each)
        elif name in ("ctrlDeps", "dataDeps"):
            message[name].append(value)
        elif name:
            message[name] = value
    return message


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a message; raises ValueError where it is cut short."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key & 7 == 0:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 2:
            size, place = _varint(data, place)
        if size is None or place + size > len(data):
            raise ValueError
        yield key >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70 and place < len(data):
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value - (1 << 64) if value >> 63 else value, place
    raise ValueError


def _node(message: dict[str, Any]) -> Node | None:
    if "type" not in message and "id" not in message:  # it is about the trace
        if message.get("version", "") not in VERSIONS:
            raise UserInputError(
                f"version {message['version']!r:.40}", where="workload.trace", expected=VERSIONS[-1]
            )
        return None
    kind = message.get("type", 0)
    attributes = {
        attribute["name"]: value
        for attribute in message.get("attr", [])
        for name, value in attribute.items()
        if name in _VALUES.values()
    }
    name = message.get("name", "")
    return Node(
        int(message.get("id", 0)),
        name if isinstance(name, str) else name.decode(),
        NODE_TYPES.index(kind) if isinstance(kind, str) else int(kind),
        tuple(dict.fromkeys(int(each) for key in ("ctrlDeps", "dataDeps") for each in message.get(key, []))),
        int(message.get("durationMicros", 0)),
        {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()},
    )
