"""Lines of BMv2's runtime CLI as P4Runtime's messages, and back; what is wrong in either is named."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2

from mltswitch.errors import DeviceError, UserInputError
from mltswitch.p4.entries import Schema, line_of, parse_line, parse_lines, schema_of
from mltswitch.p4.program import shipped_program
from mltswitch.p4.switch import pipeline_config
from tests.p4.schemas import schemas_and_lines

P4INFO = """
actions { preamble { id: 11 alias: "forward" }
  params { id: 1 name: "port" bitwidth: 9 } params { id: 2 name: "neighbour" bitwidth: 48 } }
actions { preamble { id: 12 alias: "set_limit" }
  params { id: 1 name: "limit" bitwidth: 32 } params { id: 2 name: "policed" bitwidth: 1 } }
actions { preamble { id: 13 alias: "discard" } }
actions { preamble { id: 14 alias: "forward" } params { id: 1 name: "port" bitwidth: 9 } }
actions { preamble { id: 15 alias: "set_both" annotations: '@action_restriction("low <= high")' }
  params { id: 1 name: "low" bitwidth: 32 } params { id: 2 name: "high" bitwidth: 32 } }
tables { preamble { id: 1 alias: "ipv4_routes" }
  match_fields { id: 1 name: "destination" bitwidth: 32 match_type: LPM }
  action_refs { id: 11 } action_refs { id: 13 } }
tables { preamble { id: 2 alias: "ipv6_routes" }
  match_fields { id: 1 name: "destination" bitwidth: 128 match_type: LPM } action_refs { id: 11 } }
tables { preamble { id: 3 alias: "queues" }
  match_fields { id: 1 name: "port" bitwidth: 9 match_type: EXACT }
  match_fields { id: 2 name: "queue" bitwidth: 3 match_type: EXACT }
  action_refs { id: 12 } action_refs { id: 15 } action_refs { id: 13 scope: DEFAULT_ONLY } }
tables { preamble { id: 4 alias: "groups" annotations: '@entry_restriction("group != 0")' }
  match_fields { id: 1 name: "group" bitwidth: 8 match_type: EXACT }
  action_refs { id: 14 } implementation_id: 9 }
tables { preamble { id: 5 alias: "of_another_kind" }
  match_fields { id: 1 name: "colour" bitwidth: 8 match_type: TERNARY } action_refs { id: 13 } }
meters { preamble { id: 7 alias: "policers" } size: 4096 }
"""
SCHEMA = schema_of(text_format.Parse(P4INFO, p4info_pb2.P4Info()))


def delivered(line: str, schema: Schema = SCHEMA) -> Any:
    """The update of a line as it arrives at the other end."""
    return p4runtime_pb2.Update.FromString(parse_line(line, schema).SerializeToString())


def members_of(entry: Any) -> Any:
    return entry.action.action_profile_action_set.action_profile_actions


@pytest.mark.parametrize(
    ("line", "update"),
    [
        (
            "table_add ipv4_routes forward 10.101.0.0/16 => 3 02:4d:0a:14:00:02",
            r"""type: INSERT entity { table_entry { table_id: 1
                match { field_id: 1 lpm { value: "\x0a\x65\x00\x00" prefix_len: 16 } }
                action { action { action_id: 11 params { param_id: 1 value: "\x03" }
                    params { param_id: 2 value: "\x02\x4d\x0a\x14\x00\x02" } } } } }""",
        ),
        (
            "table_modify_match queues set_limit 1 6 => 48448 0",
            r"""type: MODIFY entity { table_entry { table_id: 3
                match { field_id: 1 exact { value: "\x01" } } match { field_id: 2 exact { value: "\x06" } }
                action { action { action_id: 12 params { param_id: 1 value: "\xbd\x40" }
                    params { param_id: 2 value: "\x00" } } } } }""",
        ),
        ("table_delete_match ipv4_routes 0.0.0.0/0", "type: DELETE entity { table_entry { table_id: 1 } }"),
        (
            "table_add ipv4_routes discard 0.0.0.0/0 =>",
            "type: INSERT entity { table_entry { table_id: 1 action { action { action_id: 13 } } } }",
        ),
        (
            "table_add groups forward 7 => 3 510",
            r"""type: INSERT entity { table_entry { table_id: 4 match { field_id: 1 exact { value: "\x07" } }
                action { action_profile_action_set {
                    action_profile_actions { weight: 1
                        action { action_id: 14 params { param_id: 1 value: "\x03" } } }
                    action_profile_actions { weight: 1
                        action { action_id: 14 params { param_id: 1 value: "\x01\xfe" } } } } } } }""",
        ),
        (
            "meter_set_rates policers 14 0.125:1514 1250:4294967295",
            """type: MODIFY entity { meter_entry { meter_id: 7 index { index: 14 }
                config { cir: 125000 cburst: 1514 pir: 1250000000 pburst: 4294967295 } } }""",
        ),
        (
            "meter_set_rates policers 0 0.000249:0 0.00025:0",  # BMv2 would tell 249 again as 248
            """type: MODIFY entity { meter_entry { meter_id: 7 index {} config { cir: 248 pir: 250 } } }""",
        ),
    ],
)
def test_what_a_line_has_the_switch_do(line: str, update: str) -> None:
    """In the shortest form of P4Runtime 1.3, sections 8.4, 9.1.1 and 9.2.3."""
    assert parse_line(line, SCHEMA) == text_format.Parse(update, p4runtime_pb2.Update())


@given(schemas_and_lines())
def test_every_line_reads_back_from_what_it_makes(drawn: tuple[Schema, str]) -> None:
    schema, line = drawn
    assert line_of(delivered(line, schema).entity, schema) == line


@given(schemas_and_lines().filter(lambda drawn: drawn[1].startswith("table_add")))
def test_an_entry_is_changed_and_removed_by_its_key(drawn: tuple[Schema, str]) -> None:
    schema, line = drawn
    added = delivered(line, schema)
    changed = delivered(line.replace("table_add", "table_modify_match", 1), schema)
    assert (changed.type, changed.entity) == (p4runtime_pb2.Update.MODIFY, added.entity)
    _, table, _, *key = line.partition(" =>")[0].split(" ")
    removed = delivered(" ".join(["table_delete_match", table, *key]), schema)
    assert removed.type == p4runtime_pb2.Update.DELETE
    added.entity.table_entry.ClearField("action")
    assert removed.entity == added.entity


@given(schemas_and_lines())
def test_values_are_in_the_shortest_form_and_a_prefix_of_nothing_is_left_out(
    drawn: tuple[Schema, str],
) -> None:
    """P4Runtime 1.3, sections 8.4 and 9.1.1."""
    entry = delivered(drawn[1], drawn[0]).entity.table_entry
    assert all(match.HasField("exact") or match.lpm.prefix_len for match in entry.match)
    values = [match.exact.value or match.lpm.value for match in entry.match]
    actions = [entry.action.action, *(each.action for each in members_of(entry))]
    values += [parameter.value for action in actions for parameter in action.params]
    assert all(value and (value == b"\0" or value[0]) for value in values)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_restricted_action_takes_just_what_it_may(low: int, high: int) -> None:
    line = f"table_add queues set_both 1 6 => {low} {high}"
    if low <= high:
        assert line_of(parse_line(line, SCHEMA).entity, SCHEMA) == line
    else:
        with pytest.raises(UserInputError, match=f"low is {low}, high is {high}") as raised:
            parse_line(line, SCHEMA)
        assert raised.value.expected == "low <= high"


def test_numbers_may_be_hexadecimal_and_space_is_free() -> None:
    line = "  table_add  ipv4_routes\tforward 10.101.0.0/16 => 0x3 0x024d0A140002 "
    assert line_of(parse_line(line, SCHEMA).entity, SCHEMA) == (
        "table_add ipv4_routes forward 10.101.0.0/16 => 3 02:4d:0a:14:00:02"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "is empty"),
        ("table_dump queues", "unknown command 'table_dump'"),
        ("set_queue_depth 16384", "unknown command 'set_queue_depth'"),
        ("table_add", "names no table"),
        ("table_add routes forward 10.0.0.0/8 => 1 0", "unknown table 'routes'"),
        ("table_add of_another_kind discard 1 =>", "unknown table 'of_another_kind'"),
        ("table_add queues", "names no action"),
        ("table_add queues discard 1 2 =>", "unknown action of queues 'discard'"),
        ("table_add queues forward 1 2 => 3 4", "unknown action of queues 'forward'"),
        ("table_add queues set_limit 1 2 3 4", "one => stands between key and parameters"),
        ("table_add queues set_limit 1 2 => 3 => 4", "one => stands between key and parameters"),
        ("table_add queues set_limit 1 => 3 1", "1 fields in the key of queues"),
        ("table_add queues set_limit 1 2 => 3", "1 parameters for set_limit"),
        ("table_add queues set_limit 512 2 => 3 1", "port is '512'"),
        ("table_add queues set_limit 1 8 => 3 1", "queue is '8'"),
        ("table_add queues set_limit 1 -1 => 3 1", "queue is '-1'"),
        ("table_add queues set_limit 1 2 => 4294967296 1", "limit is '4294967296'"),
        ("table_add queues set_limit 1 2 => 1_000 1", "limit is '1_000'"),
        ("table_add queues set_limit 1 2 => ٣ 1", "limit is '٣'"),
        ("table_add queues set_limit 1 2 => " + "9" * 5000 + " 1", "limit is"),
        ("table_add ipv4_routes forward 10.0.0.0 => 1 0", "has no prefix length"),
        ("table_add ipv4_routes forward 10.0.0.0/33 => 1 0", "has no prefix length"),
        ("table_add ipv4_routes forward 10.0.0/8 => 1 0", "is no IPv4 address"),
        ("table_add ipv4_routes forward 10.0.0.1/8 => 1 0", "has bits behind its prefix of 8"),
        ("table_add ipv6_routes forward fe80::%eth0/64 => 1 0", "destination is 'fe80::%eth0'"),
        ("table_add ipv6_routes forward 10.0.0.0/8 => 1 0", "is no IPv6 address"),
        ("table_add ipv4_routes forward 10.0.0.0/8 => 1 02:4d:0a:14:00", "neighbour is '02:4d:0a:14:00'"),
        ("table_add queues set_both 1 6 => 6 5", "low is 6, high is 5"),
        ("table_add groups forward 0 => 3", "group is 0"),
        ("table_delete_match groups 0", "group is 0"),
        ("table_modify_match groups forward 0 => 3", "group is 0"),
        ("table_add groups forward 7 =>", "0 parameters for forward"),
        ("table_add ipv4_routes discard 10.0.0.0/8 => 1", "1 parameters for discard"),
        ("table_add groups forward 7 => 3 512", "port is '512'"),
        ("table_delete_match queues 1", "1 fields in the key of queues"),
        ("meter_set_rates policers 1 1:1", "3 arguments"),
        ("meter_set_rates others 1 1:1 1:1", "unknown meter 'others'"),
        ("meter_set_rates policers 4096 1:1 1:1", "index is '4096'"),
        ("meter_set_rates policers 1 2:1 1:1", "the committed rate is above the peak rate"),
        ("meter_set_rates policers 1 1 1:1", "rate and burst are '1'"),
        ("meter_set_rates policers 1 0.0000001:1 1:1", "rate and burst are '0.0000001:1'"),
        ("meter_set_rates policers 1 1:4294967296 1:1", "rate and burst are '1:4294967296'"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(line: str, said: str) -> None:
    with pytest.raises(UserInputError) as raised:
        parse_lines(["table_add groups forward 7 => 3", line], SCHEMA)
    assert raised.value.where == "line 2"
    assert said in raised.value.what
    assert len(str(raised.value).splitlines()) == 1


@given(st.text())
def test_any_text_is_a_change_or_one_clear_line(text: str) -> None:
    try:
        parse_line(text, SCHEMA)
    except UserInputError as error:
        assert error.what


def test_the_program_restricts_what_it_cannot_do() -> None:
    schema = schema_of(pipeline_config(shipped_program()).p4info)
    assert schema.tables["groups"].implementation_id
    for line, broken in (
        ("table_add groups forward 0 => 1", "group != 0"),
        ("table_add queues set_threshold_and_limit 1 1 => 2 1 0 1", "ecn_threshold <= limit"),
    ):
        with pytest.raises(UserInputError) as raised:
            parse_line(line, schema)
        assert raised.value.expected == broken


UNKNOWN = p4runtime_pb2.Action(action_id=79)
QUEUE, GROUP = "table_add queues set_limit 1 6 => 48448 1", "table_add groups forward 7 => 3 4"


@pytest.mark.parametrize(
    ("line", "damage", "said"),
    [
        (QUEUE, lambda entry: setattr(entry, "table_id", 77), "the table 77, which its program"),
        (QUEUE, lambda entry: setattr(entry.action.action, "action_id", 78), "the unknown action 78"),
        (QUEUE, lambda entry: setattr(entry.action.action, "action_id", 13), "the unknown action 13"),
        (QUEUE, lambda entry: entry.action.action.params.pop(0), "without parameter limit"),
        (QUEUE, lambda entry: entry.match.pop(1), "without queue"),
        (
            GROUP,
            lambda entry: [each.action.CopyFrom(UNKNOWN) for each in members_of(entry)],
            "the unknown action 79",
        ),
        (GROUP, lambda entry: setattr(members_of(entry)[1].action, "action_id", 79), "several actions"),
        (GROUP, lambda entry: setattr(members_of(entry)[1], "weight", 3), "with weights"),
        (GROUP, lambda entry: members_of(entry)[1].action.params.pop(0), "without parameter port"),
        (
            GROUP,
            lambda entry: setattr(entry.action, "action_profile_group_id", 9),
            "that another controller made",
        ),
    ],
)
def test_an_entry_that_no_line_can_say_is_no_bug_of_ours(
    line: str, damage: Callable[[Any], object], said: str
) -> None:
    entity = delivered(line).entity
    damage(entity.table_entry)
    with pytest.raises(DeviceError, match=said):
        line_of(entity, SCHEMA)


def test_neither_is_a_meter_of_another_program() -> None:
    entity = delivered("meter_set_rates policers 1 1:1 1:1").entity
    entity.meter_entry.meter_id = 8
    with pytest.raises(DeviceError, match="a cell of the meter 8, which its program"):
        line_of(entity, SCHEMA)


def test_headers_of_the_controllers_packets_are_those_of_the_program() -> None:
    headers = pipeline_config(shipped_program()).p4info.controller_packet_metadata
    assert {
        header.preamble.name: [(field.id, field.name) for field in header.metadata] for header in headers
    } == {
        "packet_in": [(1, "ingress_port"), (2, "reason")],
        "packet_out": [(1, "egress_port"), (2, "reserved")],
    }
