"""Changes as P4Runtime's messages, and back."""

import pytest
from hypothesis import given
from p4.v1 import p4runtime_pb2

from mltswitch.capabilities.meter_rate import rate_kept
from mltswitch.errors import DeviceError
from mltswitch.p4.entries import Change, EntryChange, MeterChange, Verb, parse_line
from mltswitch.p4.messages import (
    PacketIn,
    entry_of,
    fill_packet_out,
    meter_of,
    packet_in_of,
    pipeline_config,
    schema_of,
    update_of,
)
from mltswitch.p4.program import shipped_program
from mltswitch.p4.schema import MatchKind, Restriction, Schema
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
    actions = [entry.action.action, *(each.action for each in members_of(entry))]
    values += [parameter.value for action in actions for parameter in action.params]
    assert all(value and (value == b"\0" or value[0]) for value in values)


def members_of(entry: p4runtime_pb2.TableEntry) -> list[p4runtime_pb2.ActionProfileAction]:
    return list(entry.action.action_profile_action_set.action_profile_actions)


def test_an_entry_of_several_members_is_one_set_of_actions() -> None:
    """P4Runtime 1.3, section 9.2.3: one-shot action selector programming."""
    members = members_of(entry("table_add groups forward 7 => 3 4 510"))
    assert [member.weight for member in members] == [1, 1, 1]
    assert [member.action.params[0].value for member in members] == [b"\x03", b"\x04", b"\x01\xfe"]


def test_a_group_that_another_controller_made_is_no_bug_of_ours() -> None:
    wrong = entry("table_add groups forward 7 => 3")
    wrong.action.action_profile_group_id = 9
    with pytest.raises(DeviceError, match="that another controller made"):
        entry_of(wrong, SCHEMA)


def test_restrictions_are_read_from_annotations() -> None:
    schema = schema_of(pipeline_config(shipped_program()).p4info)
    assert schema.tables["groups"].restrictions == (Restriction("group", "!=", "0"),)
    assert schema.tables["groups"].is_shared
    [found] = schema.tables["queues"].actions["set_threshold_and_limit"].restrictions
    assert str(found) == "ecn_threshold <= limit"


def test_packets_go_out_and_come_in_with_their_headers() -> None:
    message = p4runtime_pb2.PacketOut()
    fill_packet_out(message, b"frame", 300)
    assert message.payload == b"frame"
    assert [(each.metadata_id, each.value) for each in message.metadata] == [(1, b"\x01\x2c"), (2, b"\x00")]
    message = p4runtime_pb2.PacketIn(payload=b"other")
    message.metadata.add(metadata_id=1, value=b"\x01\x2c")
    message.metadata.add(metadata_id=2, value=b"\x05")
    assert packet_in_of(message) == PacketIn(b"other", 300, 5)


def test_their_headers_are_those_of_the_program() -> None:
    headers = pipeline_config(shipped_program()).p4info.controller_packet_metadata
    assert {
        header.preamble.name: [(field.id, field.name) for field in header.metadata] for header in headers
    } == {
        "packet_in": [(1, "ingress_port"), (2, "reason")],
        "packet_out": [(1, "egress_port"), (2, "reserved")],
    }


def entry(text: str) -> p4runtime_pb2.TableEntry:
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
    wrong = entry("table_add groups forward 7 => 3 4")
    for member in members_of(wrong):
        member.action.action_id = 79
    with pytest.raises(DeviceError, match="the unknown action 79"):
        entry_of(wrong, SCHEMA)


def test_nor_a_group_that_no_line_can_say() -> None:
    wrong = entry("table_add groups forward 7 => 3 4")
    members_of(wrong)[1].action.action_id = 79
    with pytest.raises(DeviceError, match="weights or several actions"):
        entry_of(wrong, SCHEMA)
    wrong = entry("table_add groups forward 7 => 3 4")
    members_of(wrong)[1].weight = 3
    with pytest.raises(DeviceError, match="weights or several actions"):
        entry_of(wrong, SCHEMA)


def test_nor_a_missing_value() -> None:
    wrong = entry("table_add queues set_limit 1 6 => 48448 1")
    del wrong.action.action.params[0]
    with pytest.raises(DeviceError, match="without parameter limit"):
        entry_of(wrong, SCHEMA)
    wrong = entry("table_add queues set_limit 1 6 => 48448 1")
    del wrong.match[1]
    with pytest.raises(DeviceError, match="without queue"):
        entry_of(wrong, SCHEMA)
    wrong = entry("table_add groups forward 7 => 3 4")
    del members_of(wrong)[1].action.params[0]
    with pytest.raises(DeviceError, match="without parameter port"):
        entry_of(wrong, SCHEMA)
