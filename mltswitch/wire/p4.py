"""Generates mltswitch/p4/wire.p4: the source-route header as P4-16 header types and constants."""

from collections.abc import Iterator

from mltswitch.wire.fields import Header
from mltswitch.wire.headers import (
    ETHERTYPE_SOURCE_ROUTE,
    HOP,
    SOURCE_ROUTE,
    SOURCE_ROUTE_MAXIMUM_HOPS,
    SOURCE_ROUTE_VERSION,
)


def p4_text() -> str:
    """The text of mltswitch/p4/wire.p4, which P4 programs include."""
    return "\n".join(
        (
            "// SPDX-License-Identifier: Apache-2.0",
            "// Made from mltswitch/wire/headers.py: change that, then run `make golden`.",
            "#ifndef MLTSWITCH_WIRE_P4",
            "#define MLTSWITCH_WIRE_P4",
            "",
            "// A macro, so that the preprocessor can use it, too.",
            f"#define SOURCE_ROUTE_MAXIMUM_HOPS {SOURCE_ROUTE_MAXIMUM_HOPS}",
            "",
            f"const bit<16> ETHERTYPE_SOURCE_ROUTE = 0x{ETHERTYPE_SOURCE_ROUTE:04X};",
            f"const bit<8> SOURCE_ROUTE_VERSION = {SOURCE_ROUTE_VERSION};",
            *_header_type(SOURCE_ROUTE),
            *_header_type(HOP),
            "",
            "#endif",
            "",
        )
    )


def _header_type(header: Header) -> Iterator[str]:
    yield ""
    yield f"// {header.title}: {header.meaning}."
    yield f"header {header.name}_t {{"
    for field in header.fields:
        yield f"    bit<{field.bits}> {field.name};  // {field.meaning}"
    yield "}"
