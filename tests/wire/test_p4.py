"""The P4 file: header types and constants under the names that the P4 program uses."""

import re

import pytest

from mltswitch.wire.fields import Field, Header
from mltswitch.wire.headers import HOP, SOURCE_ROUTE
from mltswitch.wire.p4 import p4_text


@pytest.mark.parametrize("header", [SOURCE_ROUTE, HOP], ids=["source_route", "hop"])
def test_header_types(header: Header) -> None:
    body = re.search(rf"^header {header.name}_t {{$(.*?)^}}$", p4_text(), re.MULTILINE | re.DOTALL)
    assert body is not None
    found = re.findall(r"^ {4}bit<(\d+)> (\w+);", body[1], re.MULTILINE)
    assert [(int(bits), name) for bits, name in found] == [(f.bits, f.name) for f in header.fields]


def test_constants() -> None:
    text = p4_text()
    assert "\n#define SOURCE_ROUTE_MAXIMUM_HOPS 8\n" in text
    assert "\nconst bit<16> ETHERTYPE_SOURCE_ROUTE = 0x88B5;\n" in text
    assert "\nconst bit<8> SOURCE_ROUTE_VERSION = 1;\n" in text


def test_meanings_end_with_their_line() -> None:
    def texts(field: Field) -> list[str]:
        return [field.meaning, *(value.meaning for value in (*field.values, *field.flags))]

    assert all("\n" not in text for h in (SOURCE_ROUTE, HOP) for f in h.fields for text in texts(f))
