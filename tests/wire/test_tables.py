"""docs/wire-format.md: its tables come from the definition, and its prose names the same numbers."""

from pathlib import Path

import pytest

from mltswitch.wire.fields import Field
from mltswitch.wire.headers import AGENT_PORT, ETHERTYPE_SOURCE_ROUTE, HEADERS, SOURCE_ROUTE_MAXIMUM_HOPS
from mltswitch.wire.tables import bytes_text, header_tables, number_text, with_current_tables

PAGE = Path(__file__).parents[2] / "docs" / "wire-format.md"


@pytest.mark.parametrize(
    ("offset_bits", "bits", "text"),
    [
        (0, 8, "0"),
        (32, 64, "4-11"),
        (0, 1, "0, bit 0"),
        (1, 15, "0-1, bits 1-15"),
        (10, 3, "1, bits 2-4"),
    ],
)
def test_where_a_field_lies(offset_bits: int, bits: int, text: str) -> None:
    assert bytes_text(offset_bits, Field("f", bits, "")) == text


def test_numbers_as_people_read_them() -> None:
    assert number_text(Field("f", 16, "", is_hexadecimal=True), 0x800) == "0x0800"
    assert number_text(Field("f", 8, ""), 12) == "12"


def test_the_page_has_every_header() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for header in HEADERS:
        assert header_tables(header) in page
        assert all(f"| `{field.name}` |" in header_tables(header) for field in header.fields)
    for number in (
        f"0x{ETHERTYPE_SOURCE_ROUTE:04X}",
        str(AGENT_PORT),
        f"1 to {SOURCE_ROUTE_MAXIMUM_HOPS} hops",
    ):
        assert number in page


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    made = with_current_tables("before\n<!-- made from hop -->\nold\n<!-- end -->\nafter\n")
    assert made.startswith("before\n<!-- made from hop -->\n\n| bytes |")
    assert made.endswith("|\n\n<!-- end -->\nafter\n")
    assert "old" not in made
    assert with_current_tables(made) == made
    with pytest.raises(KeyError, match="nothing"):
        with_current_tables("<!-- made from nothing -->\n<!-- end -->\n")
