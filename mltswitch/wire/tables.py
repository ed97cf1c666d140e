"""Generates the tables of docs/wire-format.md: each header byte by byte, and its named values."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from mltswitch.wire.fields import Field, Header, Value
from mltswitch.wire.headers import HEADERS

_BLOCK: Final = re.compile(r"(?<=<!-- made from )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def with_current_tables(page: str) -> str:
    """The page with a header's table regenerated between each `<!-- made from HEADER -->` and `<!-- end -->`.

    Raises KeyError for a header that does not exist.
    """
    headers = {header.name: header for header in HEADERS}
    return _BLOCK.sub(lambda match: f"{match[1]}{match[2]}\n{header_tables(headers[match[1]])}\n", page)


def header_tables(header: Header) -> str:
    """Markdown: the fields of one header, then the values or flags of each field that has some."""
    return "\n".join("".join(lines) for lines in _tables(header))


def bytes_text(offset_bits: int, field: Field) -> str:
    """The bytes of a header that a field fills, from 0, with bits (0 first) where fields share a byte."""
    first, first_bit = divmod(offset_bits, 8)
    last, last_bit = divmod(offset_bits + field.bits - 1, 8)
    whole = f"{first}" if first == last else f"{first}-{last}"
    if (first_bit, last_bit) == (0, 7):
        return whole
    if field.bits == 1:
        return f"{whole}, bit {first_bit}"
    return f"{whole}, bits {first_bit}-{first_bit + field.bits - 1}"


def number_text(field: Field, number: int) -> str:
    """A value of the field as it is shown to people, in base 10 or 16."""
    return f"0x{number:0{-(-field.bits // 4)}x}" if field.is_hexadecimal else str(number)


def _tables(header: Header) -> Iterator[Iterable[str]]:
    rows = [
        (bytes_text(offset, field), field.bits, f"`{field.name}`", field.meaning)
        for offset, field in header.with_offsets()
    ]
    yield _table(("bytes", "bits", "field", "meaning"), rows)
    for field in header.fields:
        if field.values:
            yield _table((f"`{field.name}`", "name", "meaning"), _named_rows(field, field.values))
        if field.flags:
            yield _table((f"bit of `{field.name}`", "name", "meaning"), _named_rows(field, field.flags))


def _named_rows(field: Field, values: Iterable[Value]) -> Iterator[tuple[object, ...]]:
    return ((number_text(field, value.number), value.name, value.meaning) for value in values)


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    head = list(columns)
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |\n"
