"""Generates a Wireshark dissector in Lua from the definitions of the source-route and agent headers.

It uses the functions of "Wireshark's Lua API Reference Manual". In display filters the fields are called
`mlt_route.…`, `mlt_route.hop.…`, `mlt_agent.…`, `mlt_agent.acknowledgement.…`, `mlt_agent.piece.…` and
`mlt_agent.message.…`.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Final

from mltswitch.wire.fields import Field, Header, Value
from mltswitch.wire.headers import (
    ACKNOWLEDGEMENT,
    AGENT,
    AGENT_PORT,
    AGENT_VERSION,
    AUTHENTICATION_TAG_BYTES,
    ELEMENT_BYTES,
    ETHERTYPE_SOURCE_ROUTE,
    HOP,
    MESSAGE,
    PIECE,
    PIECE_PACKETS,
    SOURCE_ROUTE,
    SOURCE_ROUTE_MAXIMUM_HOPS,
    SOURCE_ROUTE_VERSION,
    AgentKind,
)
from mltswitch.wire.lua import DISSECTOR

PREFIXES: Final = {
    SOURCE_ROUTE.name: "mlt_route",
    HOP.name: "mlt_route.hop",
    AGENT.name: "mlt_agent",
    ACKNOWLEDGEMENT.name: "mlt_agent.acknowledgement",
    PIECE.name: "mlt_agent.piece",
    MESSAGE.name: "mlt_agent.message",
}
"""The display-filter prefix of each header's fields, such as `mlt_route`."""


def dissector_text() -> str:
    """The Lua source of the dissector, for Wireshark's folder of plug-ins."""
    return "\n".join(
        (
            "-- Wireshark dissector of MLT's source route and agent header.",
            "-- Made by `mltswitch wire dissector` from the headers' definition.",
            "",
            f"local ETHERTYPE_SOURCE_ROUTE = 0x{ETHERTYPE_SOURCE_ROUTE:04X}",
            f"local SOURCE_ROUTE_VERSION = {SOURCE_ROUTE_VERSION}",
            f"local MAXIMUM_HOPS = {SOURCE_ROUTE_MAXIMUM_HOPS}",
            f"local AGENT_PORT = {AGENT_PORT}",
            f"local AGENT_VERSION = {AGENT_VERSION}",
            f"local KIND_DATA = {AgentKind.DATA:d}",
            f"local KIND_ACKNOWLEDGEMENT = {AgentKind.ACKNOWLEDGEMENT:d}",
            f"local KIND_CONTROL = {AgentKind.CONTROL:d}",
            f"local KIND_SELECTIVE = {AgentKind.SELECTIVE:d}",
            f"local PIECE_PACKETS = {PIECE_PACKETS}",
            f"local TAG_BYTES = {AUTHENTICATION_TAG_BYTES}",
            f"local ELEMENT_BYTES = {_lua_table(ELEMENT_BYTES.items())}",
            f"local KINDS = {_named(AGENT.field('kind').values)}",
            *_header_table(SOURCE_ROUTE),
            *_header_table(HOP),
            f"local MESSAGES = {_named(MESSAGE.field('type').values)}",
            *_header_table(AGENT),
            *_header_table(ACKNOWLEDGEMENT),
            *_header_table(PIECE),
            *_header_table(MESSAGE),
            DISSECTOR,
        )
    )


def _header_table(header: Header) -> Iterator[str]:
    yield ""
    yield f"local {header.name}_header = {{"
    yield f"  bytes = {header.size_bytes},"
    yield "  fields = {"
    for offset_bits, field in header.with_offsets():
        first_byte, first_bit = divmod(offset_bits, 8)
        width_bytes = -(-(first_bit + field.bits) // 8)
        mask = field.maximum << 8 * width_bytes - first_bit - field.bits
        path = f"{PREFIXES[header.name]}.{field.name}"
        yield f"    {{ name = {_quoted(field.name)}, offset = {first_byte}, size = {width_bytes},"
        yield f"      first_bit = {first_bit}, bits = {field.bits},"
        yield f"      field = {_proto_field(path, field, width_bytes, mask)},"
        flags = "".join(f"\n        {_flag(path, flag, width_bytes)}," for flag in field.flags)
        yield f"      flags = {{{flags}}} }},"
    yield "  },"
    yield "}"


def _proto_field(path: str, field: Field, width_bytes: int, mask: int) -> str:
    name, meaning = _quoted(field.label), _quoted(field.meaning)
    if field.bits == 1:
        return f"ProtoField.bool({_quoted(path)}, {name}, {8 * width_bytes}, nil, 0x{mask:x}, {meaning})"
    base = "base.HEX" if field.is_hexadecimal else "base.DEC"
    values = _named(field.values) if field.values else "nil"
    is_whole = field.bits == 8 * width_bytes
    return (
        f"ProtoField.uint{8 * width_bytes}({_quoted(path)}, {name}, {base}, {values}, "
        f"{'nil' if is_whole else f'0x{mask:x}'}, {meaning})"
    )


def _flag(path: str, flag: Value, width_bytes: int) -> str:
    name, bits = flag.name, 8 * width_bytes
    label, meaning = _quoted(name.capitalize()), _quoted(flag.meaning)
    field = f'ProtoField.bool("{path}.{name}", {label}, {bits}, nil, 0x{flag.number:x}, {meaning})'
    return f"{{ name = {_quoted(name)}, bit = {bits - flag.number.bit_length()}, field = {field} }}"


def _named(values: Iterable[Value]) -> str:
    return _lua_table((value.number, _quoted(value.name)) for value in values)


def _lua_table(entries: Iterable[tuple[int, object]]) -> str:
    return f"{{ {', '.join(f'[{key:d}] = {value}' for key, value in entries)} }}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
