"""What the target takes as a line, beside what the compiled program takes."""

import re
from collections.abc import Callable

import pytest
from google.protobuf import text_format
from p4.config.v1 import p4info_pb2

from mltswitch.p4.messages import schema_of
from mltswitch.p4.program import FOLDER, MAIN_SOURCE, P4INFO_FILE
from mltswitch.p4.schema import MatchKind
from mltswitch.targets.bmv2.capabilities import MAXIMUM_GROUPS
from mltswitch.targets.bmv2.entries import TABLES, parse_entry

SCHEMA = schema_of(text_format.Parse((FOLDER / P4INFO_FILE).read_text(), p4info_pb2.P4Info()))
MAC_BITS = 48


def takes_exactly(check: Callable[[str], bool], bits: int) -> bool:
    """Every number of that many bits, and none that is wider; a MAC address is no number."""
    if bits == MAC_BITS:
        return check("ff:ff:ff:ff:ff:ff") and not check("0")
    return check("0") and check(str((1 << bits) - 1)) and not check(str(1 << bits))


@pytest.mark.parametrize("name", TABLES)
def test_the_fields_are_as_wide_as_those_of_the_program(name: str) -> None:
    table, compiled = TABLES[name], SCHEMA.tables[name]
    assert len(table.key) == len(compiled.fields)
    for check, field in zip(table.key, compiled.fields, strict=True):
        if field.kind is MatchKind.EXACT:
            assert takes_exactly(check, field.bits), field.name
    assert set(table.actions) <= set(compiled.actions)
    for action, checks in table.actions.items():
        for check, parameter in zip(checks, compiled.actions[action].parameters, strict=True):
            assert takes_exactly(check, parameter.bits), (action, parameter.name)


def test_groups_end_where_the_register_of_the_program_does() -> None:
    found = re.search(r"^#define GROUPS (\d+)$", (FOLDER / MAIN_SOURCE).read_text(), re.MULTILINE)
    assert found is not None
    assert int(found[1]) == MAXIMUM_GROUPS


@pytest.mark.parametrize(
    "line",
    [
        "table_add ipv4_routes share_flows 10.10.0.0/16 => 255",
        "table_add ipv6_routes share_packets fd00::/48 => 255",
        "table_add groups forward 255 => 1 2 510",
    ],
)
def test_the_last_group_is_taken(line: str) -> None:
    entry = parse_entry(line)
    assert entry is not None
    assert entry.added == line
    assert parse_entry(line.replace("255", "256", 1)) is None
