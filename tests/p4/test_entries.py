"""Lines of BMv2's runtime CLI: what is written is read back, and what is wrong is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.p4.entries import (
    Change,
    EntryChange,
    Match,
    MeterChange,
    Rate,
    Verb,
    format_change,
    parse_line,
    parse_lines,
)
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
from tests.p4.schemas import schemas_and_changes

FORWARD = Action(1, "forward", (Parameter(1, "port", 9), Parameter(2, "neighbour", 48)))
LIMIT = Action(2, "set_limit", (Parameter(1, "limit", 32), Parameter(2, "policed", 1)))
DISCARD = Action(3, "discard", ())
MEMBER = Action(4, "forward", (Parameter(1, "port", 9),))
BOTH = Action(
    5,
    "set_both",
    (Parameter(1, "low", 32), Parameter(2, "high", 32)),
    (Restriction("low", "<=", "high"),),
)
ROUTES4 = Table(
    1,
    "ipv4_routes",
    (MatchField(1, "destination", 32, MatchKind.LPM),),
    {"forward": FORWARD, "discard": DISCARD},
    4096,
)
ROUTES6 = Table(
    2, "ipv6_routes", (MatchField(1, "destination", 128, MatchKind.LPM),), {"forward": FORWARD}, 4096
)
QUEUES = Table(
    3,
    "queues",
    (MatchField(1, "port", 9, MatchKind.EXACT), MatchField(2, "queue", 3, MatchKind.EXACT)),
    {"set_limit": LIMIT, "set_both": BOTH},
    4096,
)
GROUPS = Table(
    4,
    "groups",
    (MatchField(1, "group", 8, MatchKind.EXACT),),
    {"forward": MEMBER},
    255,
    (Restriction("group", "!=", "0"),),
    is_shared=True,
)
SCHEMA = Schema(
    tables={table.name: table for table in (ROUTES4, ROUTES6, QUEUES, GROUPS)},
    meters={"policers": CellArray(1, "policers", 4096)},
    counters={},
)
NEIGHBOUR = 0x024D0A140002


@pytest.mark.parametrize(
    ("line", "change"),
    [
        (
            "table_add ipv4_routes forward 10.101.0.0/16 => 3 02:4d:0a:14:00:02",
            EntryChange(Verb.ADD, ROUTES4, (Match(0x0A650000, 16),), FORWARD, (3, NEIGHBOUR)),
        ),
        (
            "table_add ipv6_routes forward 2001:db8::/32 => 511 ff:ff:ff:ff:ff:ff",
            EntryChange(Verb.ADD, ROUTES6, (Match(0x20010DB8 << 96, 32),), FORWARD, (511, 2**48 - 1)),
        ),
        (
            "table_modify_match queues set_limit 1 6 => 48448 1",
            EntryChange(Verb.MODIFY, QUEUES, (Match(1, 9), Match(6, 3)), LIMIT, (48448, 1)),
        ),
        ("table_delete_match ipv4_routes 0.0.0.0/0", EntryChange(Verb.DELETE, ROUTES4, (Match(0, 0),))),
        (
            "table_add ipv4_routes discard 10.0.0.0/8 =>",
            EntryChange(Verb.ADD, ROUTES4, (Match(0x0A000000, 8),), DISCARD),
        ),
        (
            "table_add groups forward 7 => 3 4 510",
            EntryChange(Verb.ADD, GROUPS, (Match(7, 8),), MEMBER, (3, 4, 510)),
        ),
        (
            "table_add queues set_both 1 6 => 5 5",
            EntryChange(Verb.ADD, QUEUES, (Match(1, 9), Match(6, 3)), BOTH, (5, 5)),
        ),
        (
            "meter_set_rates policers 14 0.125:1514 0.125:1514",
            MeterChange(SCHEMA.meters["policers"], 14, Rate(125_000, 1514), Rate(125_000, 1514)),
        ),
        (
            "meter_set_rates policers 0 12:0 1250.000001:4294967295",
            MeterChange(SCHEMA.meters["policers"], 0, Rate(12 * 10**6, 0), Rate(1_250_000_001, 2**32 - 1)),
        ),
    ],
)
def test_the_language_of_the_switch(line: str, change: Change) -> None:
    assert parse_line(line, SCHEMA) == change
    assert format_change(change) == line


@given(schemas_and_changes())
def test_every_change_reads_back_from_its_line(drawn: tuple[Schema, Change]) -> None:
    schema, change = drawn
    assert parse_line(format_change(change), schema) == change


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_restricted_action_takes_just_what_it_may(low: int, high: int) -> None:
    line = f"table_add queues set_both 1 6 => {low} {high}"
    if low <= high:
        assert format_change(parse_line(line, SCHEMA)) == line
    else:
        with pytest.raises(UserInputError, match=f"low is {low}, high is {high}") as raised:
            parse_line(line, SCHEMA)
        assert raised.value.expected == "low <= high"


def test_numbers_may_be_hexadecimal_and_space_is_free() -> None:
    line = "  table_add  ipv4_routes\tforward 10.101.0.0/16 => 0x3 0x024d0A140002 "
    assert format_change(parse_line(line, SCHEMA)) == (
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
        ("table_add queues", "names no action"),
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
