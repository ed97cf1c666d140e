"""Changes as P4Runtime's messages, and back."""

import pytest
from hypothesis import given
from p4.v1 import p4runtime_pb2

from mltswitch.capabilities.meter_rate import rate_kept
from mltswitch.errors import DeviceError
from mltswitch.p4.entries import Change, EntryChange, MeterChange, Verb
from mltswitch.p4.messages import entry_of, meter_of, update_of
from mltswitch.p4.schema import MatchKind, Schema
from tests.p4.schemas import schemas_and_changes
from tests.p4.test_entries import SCHEMA


def delivered(change: Change) -> p4runtime_pb2.Update:
    """The message as it arrives at the other end."""
    return p4runtime_pb2.Update.FromString(update_of(change).SerializeToString())


@given(schemas_and_changes())
def test_an_entry_that_was_added_is_read_as_the_change_that_added_it(drawn: tuple[Schema, Change]) -> None:
    schema, change = drawn
    update = delivered(change)
    if isinstance(change, MeterChange):
        assert update.type == p4runtime_pb2.Update.MODIFY
        found = meter_of(update.entity.meter_entry, schema)
        assert found is not None
        assert (found.meter, found.index) == (change.meter, change.index)
        assert found.committed.burst_bytes == change.committed.burst_bytes
        assert found.peak.bytes_per_second == rate_kept(change.peak.bytes_per_second)
    elif change.verb is Verb.DELETE:
        assert update.type == p4runtime_pb2.Update.DELETE
        assert not update.entity.table_entry.HasField("action")
    else:
        expected = EntryChange(Verb.ADD, change.table, change.key, change.action, change.parameters)
        assert entry_of(update.entity.table_entry, schema) == expected


@given(schemas_and_changes())
def test_values_are_in_the_shortest_form_and_a_prefix_of_nothing_is_left_out(
    drawn: tuple[Schema, Change],
) -> None:
    """P4Runtime 1.3, sections 8.4 and 9.1.1."""
    change = drawn[1]
    entry = delivered(change).entity.table_entry
    if isinstance(change, EntryChange):
        kinds = [field.kind for field in change.table.fields]
        left_out = sum(
            kind is MatchKind.LPM and match.prefix_bits == 0
            for match, kind in zip(change.key, kinds, strict=True)
        )
        assert len(entry.match) == len(change.key) - left_out
    values = [match.exact.value or match.lpm.value for match in entry.match]
    values += [parameter.value for parameter in entry.action.action.params]
    assert all(value and (value == b"\0" or value[0]) for value in values)


def entry(text: str) -> p4runtime_pb2.TableEntry:
    from mltswitch.p4.entries import parse_line

    return delivered(parse_line(text, SCHEMA)).entity.table_entry


def test_an_entry_of_an_unknown_table_is_no_bug_of_ours() -> None:
    wrong = entry("table_add queues set_limit 1 6 => 48448 1")
    wrong.table_id = 77
    with pytest.raises(DeviceError, match="the table 77"):
        entry_of(wrong, SCHEMA)


def test_neither_is_an_unknown_action() -> None:
    wrong = entry("table_add queues set_limit 1 6 => 48448 1")
    wrong.action.action.action_id = 78
    with pytest.raises(DeviceError, match="the unknown action 78"):
        entry_of(wrong, SCHEMA)


def test_nor_a_missing_value() -> None:
    wrong = entry("table_add queues set_limit 1 6 => 48448 1")
    del wrong.action.action.params[0]
    with pytest.raises(DeviceError, match="without parameter 1"):
        entry_of(wrong, SCHEMA)
    del wrong.match[1]
    with pytest.raises(DeviceError, match="without queue"):
        entry_of(wrong, SCHEMA)
