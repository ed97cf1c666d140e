"""Between the changes of `entries` and P4Runtime's messages, and from P4Info to a `Schema`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import text_format
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2

from mltswitch.capabilities.meter_rate import rate_kept
from mltswitch.errors import DeviceError
from mltswitch.p4.entries import Change, EntryChange, Match, MeterChange, Rate, Verb
from mltswitch.p4.program import Program
from mltswitch.p4.schema import (
    Action,
    CellArray,
    MatchField,
    MatchKind,
    Parameter,
    Restriction,
    Schema,
    Table,
)

_RESTRICTION: Final = re.compile(r'@(?:entry|action)_restriction\("(\w+) (<=|!=) (\w+)"\)')
_UPDATE_TYPES: Final = {
    Verb.ADD: p4runtime_pb2.Update.INSERT,
    Verb.MODIFY: p4runtime_pb2.Update.MODIFY,
    Verb.DELETE: p4runtime_pb2.Update.DELETE,
}
_MATCH_KINDS: Final = {
    p4info_pb2.MatchField.EXACT: MatchKind.EXACT,
    p4info_pb2.MatchField.LPM: MatchKind.LPM,
}


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A packet that the switch gave to its controller."""

    frame: bytes
    ingress_port: int
    reason: int
    """A number of refusals.p4."""


def packet_in_of(packet: Any) -> PacketIn:
    """From P4Runtime's message; fields of headers.p4 are numbered in their order."""
    values = {field.metadata_id: _int_of(field.value) for field in packet.metadata}
    return PacketIn(bytes(packet.payload), values.get(1, 0), values.get(2, 0))


def fill_packet_out(packet: Any, frame: bytes, port: int) -> None:
    """Make a message of P4Runtime say: send this by that port."""
    packet.payload = frame
    packet.metadata.add(metadata_id=1, value=_bytes_of(port))
    packet.metadata.add(metadata_id=2, value=_bytes_of(0))


def pipeline_config(program: Program) -> Any:
    """A program as the ForwardingPipelineConfig to load."""
    config = p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=program.device_config)
    text_format.Parse(program.p4info_text, config.p4info)
    config.cookie.cookie = program.cookie
    return config


def schema_of(p4info: Any) -> Schema:
    """What a program lets a controller set. Tables with keys of other kinds than ours are left out."""
    actions = {action.preamble.id: _action(action) for action in p4info.actions}
    tables = (
        _table(table, actions)
        for table in p4info.tables
        if all(field.match_type in _MATCH_KINDS for field in table.match_fields)
    )
    return Schema(
        tables={table.name: table for table in tables},
        meters=_cell_arrays(p4info.meters),
        counters=_cell_arrays(p4info.counters),
    )


def update_of(change: Change) -> Any:
    """A change as an update of a WriteRequest."""
    if isinstance(change, MeterChange):
        return _meter_update(change)
    update = p4runtime_pb2.Update(type=_UPDATE_TYPES[change.verb])
    entry = update.entity.table_entry
    entry.table_id = change.table.identifier
    for match, field in zip(change.key, change.table.fields, strict=True):
        _add_match(entry, match, field)
    if change.action is None:
        return update
    for values in _batched(change.parameters, len(change.action.parameters)):
        if change.table.is_shared:
            action = entry.action.action_profile_action_set.action_profile_actions.add(weight=1).action
        else:
            action = entry.action.action
        action.action_id = change.action.identifier
        for value, parameter in zip(values, change.action.parameters, strict=True):
            action.params.add(param_id=parameter.identifier, value=_bytes_of(value))
    return update


def entry_of(entry: Any, schema: Schema) -> EntryChange:
    """A TableEntry as the line that makes it; raises DeviceError where it is not of this program."""
    table = next((table for table in schema.tables.values() if table.identifier == entry.table_id), None)
    found = {match.field_id: match for match in entry.match}
    if table is None:
        raise DeviceError(f"returned an entry of the table {entry.table_id}, which its program does not have")
    members = [entry.action.action]
    if table.is_shared:
        shares = entry.action.action_profile_action_set.action_profile_actions
        if len({each.action.action_id for each in shares}) > 1 or any(each.weight != 1 for each in shares):
            raise DeviceError(f"returned an entry of {table.name} with weights or several actions")
        members = [each.action for each in shares]
    action: Action | None = None
    parameters: list[int] = []
    for member in members:
        action = next((each for each in table.actions.values() if each.identifier == member.action_id), None)
        if action is None:
            raise DeviceError(f"returned an entry of {table.name} with the unknown action {member.action_id}")
        values = {parameter.param_id: _int_of(parameter.value) for parameter in member.params}
        missing = [each.name for each in action.parameters if each.identifier not in values]
        if missing:
            raise DeviceError(f"returned an entry of {table.name} without parameter {missing[0]}")
        parameters += [values[parameter.identifier] for parameter in action.parameters]
    if action is None:
        raise DeviceError(
            f"returned an entry of {table.name} that another controller made, with a group of its own"
        )
    key = tuple(_match_of(found.get(field.identifier), field) for field in table.fields)
    return EntryChange(Verb.ADD, table, key, action, tuple(parameters))


def meter_of(entry: Any, schema: Schema) -> MeterChange | None:
    """A MeterEntry as the line that sets it; None where it has no rates, so that every packet is green."""
    if not entry.HasField("config"):
        return None
    meter = next((meter for meter in schema.meters.values() if meter.identifier == entry.meter_id), None)
    if meter is None:
        raise DeviceError(f"returned a cell of the meter {entry.meter_id}, which its program does not have")
    config = entry.config
    return MeterChange(
        meter, entry.index.index, Rate(config.cir, config.cburst), Rate(config.pir, config.pburst)
    )


def counter_of(entry: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """A CounterEntry: its counter and index, its packets and bytes."""
    return (entry.counter_id, entry.index.index), (entry.data.packet_count, entry.data.byte_count)


def table_request(table: Table) -> Any:
    """The entity that asks for all entries of a table."""
    entity = p4runtime_pb2.Entity()
    entity.table_entry.table_id = table.identifier
    return entity


def meter_request(meter: CellArray) -> Any:
    """The entity that asks for all cells of a meter."""
    entity = p4runtime_pb2.Entity()
    entity.meter_entry.meter_id = meter.identifier
    return entity


def counter_request(counter: int, index: int) -> Any:
    """The entity that asks for one cell of a counter."""
    entity = p4runtime_pb2.Entity()
    entity.counter_entry.counter_id, entity.counter_entry.index.index = counter, index
    return entity


def _action(action: Any) -> Action:
    return Action(
        action.preamble.id,
        action.preamble.alias,
        tuple(Parameter(parameter.id, parameter.name, parameter.bitwidth) for parameter in action.params),
        _restrictions(action.preamble),
    )


def _restrictions(preamble: Any) -> tuple[Restriction, ...]:
    found = map(_RESTRICTION.fullmatch, preamble.annotations)
    return tuple(Restriction(*match.groups()) for match in found if match)


def _table(table: Any, actions: Mapping[int, Action]) -> Table:
    usable = (
        actions[reference.id]
        for reference in table.action_refs
        if reference.scope != p4info_pb2.ActionRef.DEFAULT_ONLY
    )
    return Table(
        table.preamble.id,
        table.preamble.alias,
        tuple(
            MatchField(field.id, field.name, field.bitwidth, _MATCH_KINDS[field.match_type])
            for field in table.match_fields
        ),
        {action.name: action for action in usable},
        table.size,
        _restrictions(table.preamble),
        table.implementation_id != 0,
    )


def _cell_arrays(arrays: Any) -> dict[str, CellArray]:
    return {
        array.preamble.alias: CellArray(array.preamble.id, array.preamble.alias, array.size)
        for array in arrays
    }


def _add_match(entry: Any, match: Match, field: MatchField) -> None:
    if field.kind is MatchKind.EXACT:
        entry.match.add(field_id=field.identifier).exact.value = _bytes_of(match.value)
    elif match.prefix_bits > 0:  # P4Runtime, 9.1.1: what matches everything is left out
        lpm = entry.match.add(field_id=field.identifier).lpm
        lpm.value, lpm.prefix_len = _bytes_of(match.value), match.prefix_bits


def _match_of(match: Any, field: MatchField) -> Match:
    if match is None:
        if field.kind is MatchKind.EXACT:
            raise DeviceError(f"returned an entry without {field.name}")
        return Match(0, 0)
    if field.kind is MatchKind.EXACT:
        return Match(_int_of(match.exact.value), field.bits)
    return Match(_int_of(match.lpm.value), match.lpm.prefix_len)


def _meter_update(change: MeterChange) -> Any:
    update = p4runtime_pb2.Update(type=p4runtime_pb2.Update.MODIFY)
    entry = update.entity.meter_entry
    entry.meter_id, entry.index.index = change.meter.identifier, change.index
    entry.config.cir = rate_kept(change.committed.bytes_per_second)
    entry.config.cburst = change.committed.burst_bytes
    entry.config.pir = rate_kept(change.peak.bytes_per_second)
    entry.config.pburst = change.peak.burst_bytes
    return update


def _bytes_of(value: int) -> bytes:
    """The shortest string of bytes (P4Runtime, 8.4), which every server accepts."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def _int_of(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _batched(values: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (values[first : first + size] for first in range(0, max(len(values), 1), max(size, 1)))
