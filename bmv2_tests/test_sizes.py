"""Every table takes as many entries as the documents say, and counts them all out again."""

import re
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from bmv2_tests.packets import SWITCH_MAC, neighbour, own_address
from bmv2_tests.switch import Bmv2, real_only
from mltswitch.p4.program import Program, summary

DOCUMENT = Path(__file__).parent.parent / "docs" / "p4.md"
LINES: dict[str, Callable[[int], str]] = {
    "classes": lambda number: f"set_queue {number // 64} {SWITCH_MAC} {number % 64} => 1",
    "ports": lambda number: f"trust {number} {SWITCH_MAC} =>",
    "queues": lambda number: f"set_limit {number // 8} {number % 8} => 1000 0 1514",
    "ipv4_routes": lambda number: f"forward {IPv4Address(0x0A000000 + number)}/32 => 2",
    "ipv6_routes": lambda number: f"forward {IPv6Address(0xFD << 120 | number)}/128 => 2",
    "groups": lambda number: f"forward {number + 1} => 2 3 4",
    "neighbours": lambda number: f"set_neighbour {number} => {own_address(1)} {neighbour(1)}",
}


def documented_sizes() -> Iterator[tuple[str, int]]:
    """From the table of tables in docs/p4.md: name, and its last column."""
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|.*\| ([0-9,]+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    for names, size in rows:
        for name in re.findall(r"\w+", names):
            yield name, int(size.replace(",", ""))


def test_the_documents_name_every_table_and_its_size(program: Program) -> None:
    compiled = {table.name: table.size for table in summary(program).tables}
    assert dict(documented_sizes()) == compiled
    assert compiled.keys() == LINES.keys()


@real_only
@pytest.mark.parametrize(("table", "size"), list(documented_sizes()))
def test_a_table_takes_what_is_documented(switch: Bmv2, program: Program, table: str, size: int) -> None:
    switch.load(program)
    lines = [f"table_add {table} {LINES[table](number)}" for number in range(size)]
    switch.control.write(lines)
    assert sorted(switch.control.entries()) == sorted(lines)
