"""The definition against what was agreed on, written out a second time."""

import re
from pathlib import Path

import numpy as np
import pytest

import mltswitch.hostagent
from bmv2_tests.received import AgentHeader
from mltswitch.wire import ElementType
from mltswitch.wire.fields import Header
from mltswitch.wire.headers import (
    AGENT,
    AGENT_PORT,
    AUTHENTICATION_TAG_BYTES,
    ETHERTYPE_SOURCE_ROUTE,
    HEADERS,
    PIECE,
    PIECE_PACKETS,
    SOURCE_ROUTE_MAXIMUM_HOPS,
)

AGREED = {
    "source_route": [("version", 0, 8), ("reserved", 8, 8), ("ether_type", 16, 16)],
    "hop": [("last", 0, 1), ("port", 1, 15)],
    "agent": [
        ("version", 0, 8),
        ("kind", 8, 8),
        ("flags", 16, 8),
        ("element_type", 24, 8),
        ("flow_token", 32, 64),
        ("tensor", 96, 32),
        ("round", 128, 32),
        ("layer", 160, 16),
        ("path", 176, 16),
        ("sequence", 192, 32),
        ("element_offset", 224, 32),
        ("sent_nanoseconds", 256, 64),
    ],
    "acknowledgement": [
        ("echoed_nanoseconds", 0, 64),
        ("held_nanoseconds", 64, 32),
        ("received_packets", 96, 32),
        ("marked_packets", 128, 32),
    ],
    "piece": [
        ("tensor", 0, 32),
        ("round", 32, 32),
        ("number", 64, 32),
        ("first_bits", 96, 64),
        ("last_bits", 160, 64),
    ],
    "message": [("type", 0, 8), ("flags", 8, 8), ("length", 16, 16)],
}


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_every_field_is_where_it_was_agreed(header: Header) -> None:
    assert [(f.name, offset, f.bits) for offset, f in header.with_offsets()] == AGREED[header.name]


def test_pieces_are_those_of_the_data_plane() -> None:
    text = (Path(mltswitch.hostagent.__path__[0]) / "dataplane" / "wire.h").read_text(encoding="utf-8")
    numbers = {
        name: int(number) for name, number in re.findall(r"^    PIECE_(\w+) = (\d+),", text, re.MULTILINE)
    }
    offsets = {field.name: offset_bits // 8 for offset_bits, field in PIECE.with_offsets()}
    assert numbers == {
        "TENSOR_OFFSET": offsets["tensor"],
        "ROUND_OFFSET": offsets["round"],
        "NUMBER_OFFSET": offsets["number"],
        "BITS_OFFSET": offsets["first_bits"],
        "PACKETS": PIECE_PACKETS,
        "BYTES": PIECE.size_bytes,
    }
    assert PIECE.field("first_bits").bits + PIECE.field("last_bits").bits == PIECE_PACKETS


def test_constants() -> None:
    assert (ETHERTYPE_SOURCE_ROUTE, SOURCE_ROUTE_MAXIMUM_HOPS) == (0x88B5, 8)
    assert (AGENT_PORT, AGENT.size_bytes, AUTHENTICATION_TAG_BYTES) == (18515, 40, 16)


def test_named_numbers() -> None:
    def names(field: str) -> dict[int, str]:
        found = AGENT.field(field)
        return {value.number: value.name for value in (*found.values, *found.flags)}

    assert names("kind") == {1: "data", 2: "acknowledgement", 3: "probe", 4: "control", 5: "selective"}
    assert names("flags") == {1: "important", 2: "last", 4: "retransmission", 8: "authenticated"}
    assert names("element_type") == {
        1: "float32",
        2: "float16",
        3: "bfloat16",
        4: "float64",
        5: "int8",
        6: "int16",
        7: "int32",
        8: "int64",
        9: "bytes",
    }


@pytest.mark.parametrize("element_type", ElementType)
def test_sizes_of_elements(element_type: ElementType) -> None:
    if element_type is ElementType.BFLOAT16:
        assert element_type.size_bytes == 2, "numpy has no bfloat16"
    else:
        name = {ElementType.BYTES: "uint8"}.get(element_type, element_type.name.lower())
        assert element_type.size_bytes == np.dtype(name).itemsize


def test_the_tuple_has_the_fields_of_the_definition() -> None:
    assert ("version", *AgentHeader._fields) == tuple(field.name for field in AGENT.fields)
