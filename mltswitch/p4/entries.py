"""Table entries and meters as lines of BMv2's runtime CLI (`simple_switch_CLI`), typed by the program.

`table_add TABLE ACTION KEY… => PARAMETER…` and `meter_set_rates METER INDEX RATE:BURST RATE:BURST` are that
CLI's own. It changes and removes entries by a handle that P4Runtime does not tell; here they go by their key,
in the words of P4-Utils' API: `table_modify_match` (as `table_add`) and `table_delete_match TABLE KEY…`.
Behind the arrow of a table whose entries are shared by several members stand the parameters of all of them.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from typing import Final, TypeVar

from mltswitch.capabilities.meter_rate import rate_in, rate_text
from mltswitch.errors import UserInputError
from mltswitch.p4.schema import Action, CellArray, MatchField, MatchKind, Restriction, Schema, Table

MAC_BITS: Final = 48
IPV4_BITS: Final = 32
IPV6_BITS: Final = 128
MAXIMUM_BURST_BYTES: Final = 2**32 - 1
"""P4Runtime's server of BMv2 refuses more."""
MAXIMUM_RATE_BYTES_PER_SECOND: Final = 2**40
"""8.8 Tbit/s. Far above, BMv2's conversion is no longer exact to the byte."""
_ARROW: Final = "=>"

_NUMBER: Final = re.compile(r"[0-9]{1,39}|0x[0-9a-fA-F]{1,32}")
_MAC: Final = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_RATE: Final = re.compile(r"(?P<rate>[0-9]{1,13}(\.[0-9]{1,6})?):(?P<burst>[0-9]{1,10})")

_Found = TypeVar("_Found")


class Verb(StrEnum):
    """What a line does to an entry."""

    ADD = "table_add"
    MODIFY = "table_modify_match"
    DELETE = "table_delete_match"


METER_VERB: Final = "meter_set_rates"


@dataclass(frozen=True, slots=True)
class Match:
    """One field of an entry's key."""

    value: int
    prefix_bits: int
    """All bits of the field where it is matched exactly."""


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One table entry, and what to do with it."""

    verb: Verb
    table: Table
    key: tuple[Match, ...]
    action: Action | None = None
    """None: it is deleted."""
    parameters: tuple[int, ...] = ()
    """Of one member after the other, where the table is shared."""


@dataclass(frozen=True, slots=True)
class Rate:
    """One of a meter's two token buckets (RFC 2698)."""

    bytes_per_second: int
    burst_bytes: int


@dataclass(frozen=True, slots=True)
class MeterChange:
    """The rates of one meter cell."""

    meter: CellArray
    index: int
    committed: Rate
    peak: Rate


Change = EntryChange | MeterChange


class BatchRefusedError(Exception):
    """A switch refused some changes of a batch."""

    def __init__(self, reasons: Sequence[str | None]) -> None:
        super().__init__("a batch was refused")
        self.reasons = tuple(reasons)
        """One for each change, in order; None: it took effect."""


class _LineError(Exception):
    def __init__(self, problem: str, expected: str = "") -> None:
        super().__init__(problem)
        self.problem, self.expected = problem, expected


def parse_lines(lines: Iterable[str], schema: Schema) -> tuple[Change, ...]:
    """The changes that lines say, in order; raises UserInputError naming the first wrong line."""
    return tuple(parse_line(line, schema, where=f"line {number}") for number, line in enumerate(lines, 1))


def parse_line(line: str, schema: Schema, *, where: str = "") -> Change:
    """The change that one line says; raises UserInputError."""
    try:
        return _parse(line.split(), schema)
    except _LineError as error:
        raise UserInputError(f"{error.problem}: {line!r}", where=where, expected=error.expected) from None


def format_change(change: Change) -> str:
    """The line of a change: `parse_line` of it is the same change."""
    if isinstance(change, MeterChange):
        rates = (
            f"{rate_text(rate.bytes_per_second)}:{rate.burst_bytes}"
            for rate in (change.committed, change.peak)
        )
        return " ".join((METER_VERB, change.meter.name, str(change.index), *rates))
    key = [_match_text(match, field) for match, field in zip(change.key, change.table.fields, strict=True)]
    if change.action is None:
        return " ".join((change.verb, change.table.name, *key))
    parameters = [
        _value_text(value, parameter.bits)
        for value, parameter in zip(change.parameters, cycle(change.action.parameters), strict=False)
    ]
    return " ".join((change.verb, change.table.name, change.action.name, *key, _ARROW, *parameters))


def sort_key(change: EntryChange) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Orders entries by table and key, numbers as numbers."""
    return change.table.name, tuple((match.value, match.prefix_bits) for match in change.key)


def _parse(words: Sequence[str], schema: Schema) -> Change:
    if not words:
        raise _LineError("is empty")
    verb, *arguments = words
    if verb == METER_VERB:
        return _parse_meter(arguments, schema)
    if verb not in set(Verb):
        raise _LineError(f"unknown command {verb!r}", f"one of {', '.join([*Verb, METER_VERB])}")
    if not arguments:
        raise _LineError("names no table")
    table = _named(arguments[0], schema.tables, "table")
    if verb == Verb.DELETE:
        return EntryChange(Verb.DELETE, table, _parse_key(arguments[1:], table))
    return _parse_entry(Verb(verb), table, arguments[1:])


def _parse_entry(verb: Verb, table: Table, arguments: Sequence[str]) -> EntryChange:
    if not arguments:
        raise _LineError("names no action")
    action = _named(arguments[0], table.actions, f"action of {table.name}")
    if arguments.count(_ARROW) != 1:
        raise _LineError("one => stands between key and parameters")
    arrow = arguments.index(_ARROW)
    values = arguments[arrow + 1 :]
    each = len(action.parameters)
    is_shared = table.is_shared and each
    if (not values or len(values) % each) if is_shared else len(values) != each:
        expected = " ".join(parameter.name for parameter in action.parameters) or "none"
        raise _LineError(
            f"{len(values)} parameters for {action.name}", f"{expected}{' …' if table.is_shared else ''}"
        )
    found = tuple(
        _parse_value(text, parameter.bits, parameter.name)
        for text, parameter in zip(values, cycle(action.parameters), strict=False)
    )
    names = [parameter.name for parameter in action.parameters]
    for first in range(0, len(found), each or 1):
        _check(action.restrictions, dict(zip(names, found[first : first + each], strict=True)))
    return EntryChange(verb, table, _parse_key(arguments[1:arrow], table), action, found)


def _check(restrictions: Iterable[Restriction], values: Mapping[str, int]) -> None:
    for restriction in restrictions:
        if not restriction.holds(values):
            shown = ", ".join(
                f"{name} is {value}" for name, value in values.items() if name in str(restriction)
            )
            raise _LineError(shown, str(restriction))


def _parse_key(texts: Sequence[str], table: Table) -> tuple[Match, ...]:
    if len(texts) != len(table.fields):
        names = " ".join(field.name for field in table.fields)
        raise _LineError(f"{len(texts)} fields in the key of {table.name}", names)
    key = tuple(_parse_match(text, field) for text, field in zip(texts, table.fields, strict=True))
    _check(
        table.restrictions, {field.name: match.value for match, field in zip(key, table.fields, strict=True)}
    )
    return key


def _parse_match(text: str, field: MatchField) -> Match:
    if field.kind is MatchKind.EXACT:
        return Match(_parse_value(text, field.bits, field.name), field.bits)
    address, slash, length = text.partition("/")
    if not slash or not re.fullmatch(r"[0-9]{1,3}", length) or int(length) > field.bits:
        raise _LineError(f"{field.name} has no prefix length", f"ADDRESS/0 … ADDRESS/{field.bits}")
    value, prefix_bits = _parse_prefix_value(address, field), int(length)
    if value & ((1 << (field.bits - prefix_bits)) - 1):
        raise _LineError(f"{field.name} has bits behind its prefix of {prefix_bits}")
    return Match(value, prefix_bits)


def _parse_prefix_value(text: str, field: MatchField) -> int:
    try:
        if field.bits == IPV4_BITS:
            return int(ipaddress.IPv4Address(text))
        if field.bits == IPV6_BITS and "%" not in text:
            return int(ipaddress.IPv6Address(text))
    except ipaddress.AddressValueError:
        version = 4 if field.bits == IPV4_BITS else 6
        raise _LineError(f"{field.name} is no IPv{version} address") from None
    return _parse_value(text, field.bits, field.name)


def _parse_value(text: str, bits: int, name: str) -> int:
    if bits == MAC_BITS and _MAC.fullmatch(text):
        return int(text.replace(":", ""), 16)
    value = _parse_number(text)
    if value is None or value >> bits:
        expected = "a MAC address" if bits == MAC_BITS else f"0 … {2**bits - 1}"
        raise _LineError(f"{name} is {text!r}", expected)
    return value


def _parse_number(text: str) -> int | None:
    """None: it is no number."""
    if not _NUMBER.fullmatch(text):
        return None
    return int(text, 16 if text.startswith("0x") else 10)


def _parse_meter(arguments: Sequence[str], schema: Schema) -> MeterChange:
    if len(arguments) != 4:
        raise _LineError(f"{len(arguments)} arguments", "METER INDEX RATE:BURST RATE:BURST")
    name, index, committed, peak = arguments
    meter = _named(name, schema.meters, "meter")
    cell = _parse_number(index)
    if cell is None or cell >= meter.size:
        raise _LineError(f"index is {index!r}", f"0 … {meter.size - 1}")
    rates = _parse_rate(committed), _parse_rate(peak)
    if rates[0].bytes_per_second > rates[1].bytes_per_second:
        raise _LineError("the committed rate is above the peak rate")
    return MeterChange(meter, cell, *rates)


def _parse_rate(text: str) -> Rate:
    found = _RATE.fullmatch(text)
    if found is None:
        raise _LineError(f"rate and burst are {text!r}", "bytes per microsecond (6 decimals):bytes")
    rate = Rate(rate_in(found["rate"]), int(found["burst"]))
    if rate.bytes_per_second > MAXIMUM_RATE_BYTES_PER_SECOND or rate.burst_bytes > MAXIMUM_BURST_BYTES:
        raise _LineError(
            f"rate and burst are {text!r}",
            f"at most {MAXIMUM_RATE_BYTES_PER_SECOND} bytes per second and {MAXIMUM_BURST_BYTES} bytes",
        )
    return rate


def _named(name: str, found: Mapping[str, _Found], what: str) -> _Found:
    try:
        return found[name]
    except KeyError:
        raise _LineError(f"unknown {what} {name!r}", f"one of {', '.join(found) or 'none'}") from None


def _match_text(match: Match, field: MatchField) -> str:
    if field.kind is MatchKind.EXACT:
        return _value_text(match.value, field.bits)
    if field.bits == IPV4_BITS:
        return f"{ipaddress.IPv4Address(match.value)}/{match.prefix_bits}"
    if field.bits == IPV6_BITS:
        return f"{ipaddress.IPv6Address(match.value)}/{match.prefix_bits}"
    return f"{_value_text(match.value, field.bits)}/{match.prefix_bits}"


def _value_text(value: int, bits: int) -> str:
    return value.to_bytes(6, "big").hex(":") if bits == MAC_BITS else str(value)
