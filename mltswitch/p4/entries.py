"""Table entries and meters as lines of BMv2's runtime CLI (`simple_switch_CLI`), typed by the program.

`table_add TABLE ACTION KEY… => PARAMETER…` and `meter_set_rates METER INDEX RATE:BURST RATE:BURST` are that
CLI's own. It changes and removes entries by a handle that P4Runtime does not tell; here they go by their key,
in the words of P4-Utils' API: `table_modify_match` (as `table_add`) and `table_delete_match TABLE KEY…`.
Behind the arrow of a table whose entries are shared by several members stand the parameters of all of them.
A line is read into the P4Runtime update that carries it out, and written from the entity that a switch tells.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final

from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2

from mltswitch.capabilities.meter_rate import rate_in, rate_kept, rate_text
from mltswitch.errors import DeviceError, UserInputError

VERBS: Final = {
    "table_add": p4runtime_pb2.Update.INSERT,
    "table_modify_match": p4runtime_pb2.Update.MODIFY,
    "table_delete_match": p4runtime_pb2.Update.DELETE,
}
METER_VERB: Final = "meter_set_rates"
MAC_BITS: Final = 48
IP_ADDRESSES: Final = {32: ipaddress.IPv4Address, 128: ipaddress.IPv6Address}
"""Width of a key's field in bits → the type of IP address by which its value is written."""
MAXIMUM_BURST_BYTES: Final = 2**32 - 1
"""The largest burst of a meter in bytes: BMv2's P4Runtime server refuses more."""
MAXIMUM_RATE_BYTES_PER_SECOND: Final = 2**40
"""The highest rate of a meter, 8.8 Tbit/s; far above, BMv2's conversion is no longer exact to the byte."""
_ARROW: Final = "=>"
_EXACT: Final = p4info_pb2.MatchField.EXACT
_KINDS: Final = {_EXACT, p4info_pb2.MatchField.LPM}
_RESTRICTION: Final = re.compile(r'@(?:entry|action)_restriction\("(\w+) (<=|!=) (\w+)"\)')
_NUMBER: Final = re.compile(r"[0-9]{1,39}|0x[0-9a-fA-F]{1,32}")
_MAC: Final = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_RATE: Final = re.compile(r"(?P<rate>[0-9]{1,13}(\.[0-9]{1,6})?):(?P<burst>[0-9]{1,10})")

Named = Mapping[str, Any]
"""Alias (the shortest unique name) → the P4Info message."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What a P4 program lets its controller set and read."""

    tables: Named
    """Tables whose keys are compared exactly or by their longest prefix, by alias."""
    meters: Named
    counters: Named
    actions: Mapping[int, Any]
    """Number by which tables and entries refer to an action → the action."""

    def actions_of(self, table: Any) -> Named:
        """The actions that entries of a table may have, by alias; default-only ones are left out."""
        allowed = (each for each in table.action_refs if each.scope != p4info_pb2.ActionRef.DEFAULT_ONLY)
        return _by_name(self.actions[each.id] for each in allowed)


def schema_of(p4info: Any) -> Schema:
    """The schema of a P4 program, from its P4Info."""
    return Schema(
        _by_name(
            each for each in p4info.tables if {field.match_type for field in each.match_fields} <= _KINDS
        ),
        _by_name(p4info.meters),
        _by_name(p4info.counters),
        {action.preamble.id: action for action in p4info.actions},
    )


def parse_lines(lines: Iterable[str], schema: Schema) -> list[Any]:
    """The updates that lines say, in order; raises UserInputError naming the first wrong line."""
    return [parse_line(line, schema, where=f"line {number}") for number, line in enumerate(lines, 1)]


def parse_line(line: str, schema: Schema, *, where: str = "") -> Any:
    """The P4Runtime update that one line says; raises UserInputError."""
    try:
        return _update(line.split(), schema)
    except UserInputError as error:
        error.what, error.where = f"{error.what}: {line!r}", where
        raise


def line_of(entity: Any, schema: Schema) -> str:
    """The line that adds an entry or sets a meter; raises DeviceError for what no line can express."""
    if entity.HasField("meter_entry"):
        cell, config = entity.meter_entry, entity.meter_entry.config
        rates = ((config.cir, config.cburst), (config.pir, config.pburst))
        meter = _numbered(cell.meter_id, schema.meters, "a cell of the meter").preamble.alias
        texts = (f"{rate_text(rate)}:{burst}" for rate, burst in rates)
        return " ".join((METER_VERB, meter, str(cell.index.index), *texts))
    entry = entity.table_entry
    table = table_of(entry, schema)
    fields = zip(key_of(entry, table), table.match_fields, strict=True)
    action, values = action_of(entry, schema)
    parameters = zip(values, cycle(action.params), strict=False)
    return " ".join(
        (
            "table_add",
            table.preamble.alias,
            action.preamble.alias,
            *(_match_text(value, prefix_bits, field) for (value, prefix_bits), field in fields),
            _ARROW,
            *(_value_text(value, parameter.bitwidth) for value, parameter in parameters),
        )
    )


def table_of(entry: Any, schema: Schema) -> Any:
    """The table of an entry; raises DeviceError where the program has none of its number."""
    return _numbered(entry.table_id, schema.tables, "an entry of the table")


def key_of(entry: Any, table: Any) -> tuple[tuple[int, int], ...]:
    """The value and the prefix length of each field of an entry's key; raises DeviceError where one lacks."""
    given = {match.field_id: match for match in entry.match}
    key = []
    for field in table.match_fields:
        match = given.get(field.id)
        if field.match_type == _EXACT:
            if match is None:
                raise DeviceError(f"returned an entry without {field.name}")
            key.append((int_of(match.exact.value), field.bitwidth))
        else:  # P4Runtime, 9.1.1: what matches everything is left out
            key.append((int_of(match.lpm.value), match.lpm.prefix_len) if match is not None else (0, 0))
    return tuple(key)


def action_of(entry: Any, schema: Schema) -> tuple[Any, tuple[int, ...]]:
    """The action of an entry and its parameters, those of one member of a group after the other's.

    Raises DeviceError for what no line can express.
    """
    table = table_of(entry, schema)
    returned = f"returned an entry of {table.preamble.alias}"
    members = [entry.action.action]
    if table.implementation_id:
        shares = entry.action.action_profile_action_set.action_profile_actions
        if not shares:
            raise DeviceError(f"{returned} that another controller made, with a group of its own")
        if len({each.action.action_id for each in shares}) > 1 or any(each.weight != 1 for each in shares):
            raise DeviceError(f"{returned} with weights or several actions")
        members = [each.action for each in shares]
    number = members[0].action_id
    action = next((each for each in schema.actions_of(table).values() if each.preamble.id == number), None)
    if action is None:
        raise DeviceError(f"{returned} with the unknown action {number}")
    values: list[int] = []
    for member in members:
        given = {parameter.param_id: int_of(parameter.value) for parameter in member.params}
        if missing := [each.name for each in action.params if each.id not in given]:
            raise DeviceError(f"{returned} without parameter {missing[0]}")
        values += [given[parameter.id] for parameter in action.params]
    return action, tuple(values)


def bytes_of(value: int) -> bytes:
    """The shortest big-endian byte string of a number (P4Runtime, 8.4), which every server accepts."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def int_of(value: bytes) -> int:
    """The number in a big-endian byte string."""
    return int.from_bytes(value, "big")


def _by_name(messages: Iterable[Any]) -> Named:
    return {message.preamble.alias: message for message in messages}


def _numbered(number: int, messages: Named, what: str) -> Any:
    for message in messages.values():
        if message.preamble.id == number:
            return message
    raise DeviceError(f"returned {what} {number}, which its program does not have")


def _update(words: Sequence[str], schema: Schema) -> Any:
    if not words:
        raise UserInputError("is empty")
    verb, *arguments = words
    if verb == METER_VERB:
        return _meter_update(arguments, schema)
    if verb not in VERBS:
        raise UserInputError(
            f"unknown command {verb!r}", expected=f"one of {', '.join([*VERBS, METER_VERB])}"
        )
    if not arguments:
        raise UserInputError("names no table")
    table = _named(arguments[0], schema.tables, "table")
    update = p4runtime_pb2.Update(type=VERBS[verb])
    entry, key = update.entity.table_entry, arguments[1:]
    entry.table_id = table.preamble.id
    if update.type != p4runtime_pb2.Update.DELETE:
        if not key:
            raise UserInputError("names no action")
        action = _named(key[0], schema.actions_of(table), f"action of {table.preamble.alias}")
        if key.count(_ARROW) != 1:
            raise UserInputError("one => stands between key and parameters")
        arrow = key.index(_ARROW)
        _add_actions(entry, table, action, key[arrow + 1 :])
        key = key[1:arrow]
    _add_key(entry, table, key)
    return update


def _add_actions(entry: Any, table: Any, action: Any, texts: Sequence[str]) -> None:
    """Have an entry do this: once, or once for each member that shares it."""
    names, each = [parameter.name for parameter in action.params], len(action.params)
    is_shared = table.implementation_id != 0
    if (not texts or len(texts) % each) if is_shared and each else len(texts) != each:
        raise UserInputError(
            f"{len(texts)} parameters for {action.preamble.alias}",
            expected=f"{' '.join(names) or 'none'}{' …' * is_shared}",
        )
    parameters = zip(texts, cycle(action.params), strict=False)
    values = [_value_in(text, parameter.bitwidth, parameter.name) for text, parameter in parameters]
    for first in range(0, len(values) or 1, each or 1):
        member = dict(zip(names, values[first : first + each], strict=True))
        _check(action, member)
        if is_shared:
            made = entry.action.action_profile_action_set.action_profile_actions.add(weight=1).action
        else:
            made = entry.action.action
        made.action_id = action.preamble.id
        for parameter in action.params:
            made.params.add(param_id=parameter.id, value=bytes_of(member[parameter.name]))


def _add_key(entry: Any, table: Any, texts: Sequence[str]) -> None:
    fields = table.match_fields
    if len(texts) != len(fields):
        raise UserInputError(
            f"{len(texts)} fields in the key of {table.preamble.alias}",
            expected=" ".join(field.name for field in fields),
        )
    key = [_match_in(text, field) for text, field in zip(texts, fields, strict=True)]
    _check(table, {field.name: value for (value, _), field in zip(key, fields, strict=True)})
    for (value, prefix_bits), field in zip(key, fields, strict=True):
        if field.match_type == _EXACT:
            entry.match.add(field_id=field.id).exact.value = bytes_of(value)
        elif prefix_bits > 0:  # P4Runtime, 9.1.1: what matches everything is left out
            lpm = entry.match.add(field_id=field.id).lpm
            lpm.value, lpm.prefix_len = bytes_of(value), prefix_bits


def _check(owner: Any, values: Mapping[str, int]) -> None:
    """Raise UserInputError where values break a restriction that stands at their table or action."""
    for found in filter(None, map(_RESTRICTION.fullmatch, owner.preamble.annotations)):
        left, operator, right = found.groups()
        low, high = values[left], values[right] if right in values else int(right)
        if not (low <= high if operator == "<=" else low != high):
            shown = ", ".join(f"{name} is {values[name]}" for name in (left, right) if name in values)
            raise UserInputError(shown, expected=f"{left} {operator} {right}")


def _match_in(text: str, field: Any) -> tuple[int, int]:
    """A field's value and its prefix length: all bits of the field where it is matched exactly."""
    bits, name = field.bitwidth, field.name
    if field.match_type == _EXACT:
        return _value_in(text, bits, name), bits
    address, slash, length = text.partition("/")
    if not slash or not re.fullmatch(r"[0-9]{1,3}", length) or int(length) > bits:
        raise UserInputError(f"{name} has no prefix length", expected=f"ADDRESS/0 … ADDRESS/{bits}")
    if bits in IP_ADDRESSES and (bits == 32 or "%" not in address):
        try:
            value = int(IP_ADDRESSES[bits](address))
        except ipaddress.AddressValueError:
            raise UserInputError(f"{name} is no {IP_ADDRESSES[bits].__name__[:4]} address") from None
    else:
        value = _value_in(address, bits, name)
    if value & ((1 << (bits - int(length))) - 1):
        raise UserInputError(f"{name} has bits behind its prefix of {length}")
    return value, int(length)


def _value_in(text: str, bits: int, name: str) -> int:
    if bits == MAC_BITS and _MAC.fullmatch(text):
        return int(text.replace(":", ""), 16)
    value = _number_in(text)
    if value is None or value >> bits:
        expected = "a MAC address" if bits == MAC_BITS else f"0 … {2**bits - 1}"
        raise UserInputError(f"{name} is {text!r}", expected=expected)
    return value


def _number_in(text: str) -> int | None:
    """A decimal or hexadecimal number; None where the text is none."""
    return int(text, 16 if text.startswith("0x") else 10) if _NUMBER.fullmatch(text) else None


def _meter_update(arguments: Sequence[str], schema: Schema) -> Any:
    if len(arguments) != 4:
        raise UserInputError(f"{len(arguments)} arguments", expected="METER INDEX RATE:BURST RATE:BURST")
    name, index, committed, peak = arguments
    meter = _named(name, schema.meters, "meter")
    cell = _number_in(index)
    if cell is None or cell >= meter.size:
        raise UserInputError(f"index is {index!r}", expected=f"0 … {meter.size - 1}")
    (cir, cburst), (pir, pburst) = _rate_in(committed), _rate_in(peak)
    if cir > pir:
        raise UserInputError("the committed rate is above the peak rate")
    update = p4runtime_pb2.Update(type=p4runtime_pb2.Update.MODIFY)
    entry = update.entity.meter_entry
    entry.meter_id, entry.index.index = meter.preamble.id, cell
    entry.config.cir, entry.config.cburst = rate_kept(cir), cburst
    entry.config.pir, entry.config.pburst = rate_kept(pir), pburst
    return update


def _rate_in(text: str) -> tuple[int, int]:
    """The bytes per second and the burst of one of a meter's two token buckets (RFC 2698)."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise UserInputError(
            f"rate and burst are {text!r}", expected="bytes per microsecond (6 decimals):bytes"
        )
    rate, burst = rate_in(found["rate"]), int(found["burst"])
    if rate > MAXIMUM_RATE_BYTES_PER_SECOND or burst > MAXIMUM_BURST_BYTES:
        raise UserInputError(
            f"rate and burst are {text!r}",
            expected=f"at most {MAXIMUM_RATE_BYTES_PER_SECOND} bytes per second "
            f"and {MAXIMUM_BURST_BYTES} bytes",
        )
    return rate, burst


def _named(name: str, messages: Named, what: str) -> Any:
    if name not in messages:
        raise UserInputError(f"unknown {what} {name!r}", expected=f"one of {', '.join(messages) or 'none'}")
    return messages[name]


def _match_text(value: int, prefix_bits: int, field: Any) -> str:
    if field.match_type == _EXACT:
        return _value_text(value, field.bitwidth)
    address = IP_ADDRESSES.get(field.bitwidth)
    return f"{_value_text(value, field.bitwidth) if address is None else address(value)}/{prefix_bits}"


def _value_text(value: int, bits: int) -> str:
    return value.to_bytes(6, "big").hex(":") if bits == MAC_BITS else str(value)
