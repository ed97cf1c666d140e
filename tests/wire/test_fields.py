"""Definitions that cannot be right are refused where they are written."""

import pytest

from mltswitch.wire.fields import Field, Header, Value

TWO_NAMES = (Value(1, "one", ""), Value(1, "uno", ""))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"bits": 0}, "0 bits"),
        ({"bits": 65}, "65 bits"),
        ({"bits": 8, "values": TWO_NAMES}, "two names"),
        ({"bits": 2, "values": (Value(4, "four", ""),)}, "does not fit into 2 bits"),
        ({"bits": 8, "values": (Value(-1, "less", ""),)}, "does not fit"),
        ({"bits": 8, "flags": (Value(3, "both", ""),)}, "a flag is one bit"),
        ({"bits": 8, "flags": (Value(0, "none", ""),)}, "a flag is one bit"),
        ({"bits": 8, "flags": (Value(256, "far", ""),)}, "does not fit"),
    ],
)
def test_a_field_refuses(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Field("kind", meaning="", **arguments)  # type: ignore[arg-type]  # each case gives another one


def test_a_header_refuses() -> None:
    with pytest.raises(ValueError, match="whole bytes"):
        Header("h", "H", "", (Field("a", 7, ""),))
    with pytest.raises(ValueError, match="stands twice"):
        Header("h", "H", "", (Field("a", 4, ""), Field("a", 4, "")))


def test_offsets_and_sizes() -> None:
    header = Header("h", "H", "", (Field("a", 1, ""), Field("long_name", 15, ""), Field("c", 64, "")))
    assert header.size_bytes == 10
    assert [(offset, field.name) for offset, field in header.with_offsets()] == [
        (0, "a"),
        (1, "long_name"),
        (16, "c"),
    ]
    assert header.field("c").maximum == 2**64 - 1
    assert header.field("long_name").label == "Long name"
    with pytest.raises(KeyError, match="no field d"):
        header.field("d")
