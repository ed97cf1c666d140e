"""The engine of line targets, on a sheet of four lines that no switch has."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from mltswitch.targets.base import FileError
from mltswitch.targets.engine.entry import EntryForm
from mltswitch.targets.engine.facts import Fact
from mltswitch.targets.engine.line import Line, Use, Word, Written
from mltswitch.targets.engine.order import Order, Placed, ordered_lines
from mltswitch.targets.engine.parse import facts_of_lines, parse, running_line
from mltswitch.targets.engine.sheet import Block, Sheet
from mltswitch.targets.onyx.sheet import SHEET as ONYX

NUMBERS = Word(
    "[0-9]+(?: [0-9]+)*", lambda text: tuple(map(int, text.split())), lambda ns: " ".join(map(str, ns))
)
SHEET = Sheet(
    words={
        "port": Word("[a-z]"),
        "number": Word("[0-9]+", int, holds=int),
        "numbers": NUMBERS,
        "size": Word("[0-9]+", lambda text: int(text) * 1000, lambda size: str(size // 1000), int),
        "color": Word("red|green"),
        "words": Word(".*"),
    },
    lines=(
        Line("size", "queue {@number} from {size} to {last=size}"),
        Line("size", "no queue {@number} from"),
        Line("color", "paint {@numbers*} {color}", undo="no paint {@numbers}"),
        Line("color", "paint {@numbers*} {words}", use=Use.SHOWN),
        Line("name", "name {words}", of_switch=True),
        Line("name", "no name", of_switch=True, use=Use.FOREIGN),
    ),
    blocks=(
        Block(frozenset({"color"}), "\n! paint {port}"),
        Block(frozenset({"size"}), "\n! queues {port}"),
        Block(frozenset({"name"}), "\n! switch"),
    ),
    of_port="port {port}: ",
    comment=re.compile("!.*|"),
    preamble="begin",
)
OWN: Mapping[tuple[Any, ...], Any] = {
    ("size", 3): 7000,
    ("color", 1): "red",
    ("color", 5): "green",
    ("color", 2): "red",
    ("size", 4): None,
}
FACTS = {"b": OWN, "": {("name",): "leaf"}, "a": OWN}
TEXT = """begin

! paint b
port b: paint 1 2 red
port b: paint 5 green

! paint a
port a: paint 1 2 red
port a: paint 5 green

! queues b
port b: queue 3 from 7 to 7
port b: no queue 4 from

! queues a
port a: queue 3 from 7 to 7
port a: no queue 4 from

! switch
name leaf
"""


def test_facts_are_written_in_blocks_and_read_back() -> None:
    assert SHEET.text(FACTS) == TEXT
    lines = parse(SHEET, TEXT)
    for line in lines:
        assert line.written
        assert TEXT.split("\n")[line.number - 1] == line.text
        assert SHEET.entered(line.port, line.written) == ((), line.text)
    assert facts_of_lines(lines) == FACTS


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("port a: queue 3 from 7 to 8", "size and last differ"),
        ("port a: paint 1 blue", "not a line that mltswitch writes"),
        ("port a: name leaf", "not a line that mltswitch writes"),
        ("queue 3 from 7 to 7", "not a line that mltswitch writes"),
        ("no name", "not a line that mltswitch writes"),
    ],
)
def test_a_line_outside_the_sheet_is_an_error_with_its_number(line: str, problem: str) -> None:
    with pytest.raises(FileError) as caught:
        parse(SHEET, f"{TEXT}{line}\n")
    assert [(each.number, str(each)) for each in caught.value.errors] == [(21, f"{problem}: {line!r}")]


def test_values_that_no_plan_has_are_told_in_the_words_of_the_device() -> None:
    assert SHEET.report(("color", (1,)), "red") == ""
    assert SHEET.report(("color", (1,)), "blue") == "paint 1 blue"
    assert SHEET.report(("name",), None) == "no name"
    undo = SHEET.undo(("color", (1,)), "red")
    assert undo
    assert undo.text == "no paint 1"
    assert SHEET.undo(("size", 3), 7000) is None


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        (198 * 1024, "traffic-class 6 {} both minimum-absolute 198 maximum-absolute 198"),
        (("red", "relative", 5, 9), "traffic-class 6 {} red minimum-relative 5 maximum-relative 9"),
        (None, "no traffic-class 6 {}"),
    ],
)
def test_every_threshold_of_onyx_has_a_line(threshold: object, words: str) -> None:
    line = ONYX.line_for("threshold", threshold)
    assert ONYX.write(line, ((("threshold", 6), threshold),)).text == words.format("congestion-control")


def _with_modes(leave: str) -> Sheet:
    """A sheet with modes that end by a line, or by the next one of an outer mode."""
    return Sheet(
        words={
            "port": Word("[a-z]"),
            "number": Word("[0-9]+", int, holds=int),
            "weight": Word("[1-9]", int, holds=int),
            "name": Word("[a-z]+"),
        },
        lines=(
            Line("weight", "weight {weight}", modes=("queue {@number}",)),
            Line("on", "no shutdown", value=True),
            Line("list", "list {@name}", of_switch=True, undo="no list {@name}", undo_phase=2),
            Line(
                "entry",
                "permit {@number} of {name=name}",
                of_switch=True,
                modes=("list {@name}", "entries"),
                undo="no permit {@number}",
                phase=1,
            ),
            Line("name", "name {name}", of_switch=True),
        ),
        blocks=(
            Block(frozenset({"weight"})),
            Block(frozenset({"list", "entry"}), "! lists"),
            Block(frozenset({"on"})),
            Block(frozenset({"name"}), "! names", is_always_there=True),
        ),
        comment=re.compile(" *!.*|"),
        port_mode="interface {port}",
        leave=leave,
        indentation=" ",
        end_of_mode="" if leave else "!",
    )


MODAL_FACTS: Mapping[str, Mapping[tuple[Any, ...], Any]] = {
    "a": {("weight", 3): 7, ("weight", 4): 9, ("on",): True},
    "": {("list", "x"): None, ("entry", "x", 5): None, ("entry", "x", 6): None},
    "b": {("weight", 3): 7},
}
LEFT_TEXT = """interface a
 queue 3
  weight 7
 exit
 queue 4
  weight 9
 exit
exit
interface b
 queue 3
  weight 7
 exit
exit
! lists
list x
 entries
  permit 5 of x
  permit 6 of x
 exit
exit
interface a
 no shutdown
exit
! names
"""
MODAL_TEXT = LEFT_TEXT.replace(" exit\n", "").replace("exit\n", "!\n")


@pytest.mark.parametrize(("leave", "text"), [("", MODAL_TEXT), ("exit", LEFT_TEXT)])
def test_modes_are_opened_and_left(leave: str, text: str) -> None:
    sheet = _with_modes(leave)
    assert sheet.text(MODAL_FACTS) == text
    lines = parse(sheet, text)
    assert facts_of_lines(lines) == MODAL_FACTS
    (entry,) = (line for line in lines if line.text == "permit 6 of x")
    assert entry.modes == ("list x", "entries")
    assert {line.port for line in lines if line.modes == ("interface b", "queue 3")} == {"b"}


@pytest.mark.parametrize(
    ("leave", "added", "problem"),
    [
        ("", "interface a\n queue 3\n   weight 7\n", "not indented as its place asks: '   weight 7'"),
        ("", "interface a\n weight 7\n", "not a line that mltswitch writes: ' weight 7'"),
        ("", "list x\n entries\n  permit 5 of y\n", "name and name differ: '  permit 5 of y'"),
        ("exit", "interface a\n queue 3\n exit\nexit\n", "a mode without a line: ' exit'"),
        ("exit", "interface a\n no shutdown\n", "'interface a' is not left: ''"),
    ],
)
def test_a_line_in_a_wrong_mode_is_an_error(leave: str, added: str, problem: str) -> None:
    with pytest.raises(FileError) as caught:
        parse(_with_modes(leave), added)
    assert str(caught.value.errors[0]) == problem.removesuffix(": ''")


def test_an_object_that_is_taken_back_takes_its_lines_with_it() -> None:
    sheet = _with_modes("exit")
    then = {"a": MODAL_FACTS["a"], "": {("name",): "leaf"}, "b": {("weight", 3): 8}}
    assert ordered_lines(Order(sheet, MODAL_FACTS, then)) == [
        (("interface b", "queue 3"), "weight 8"),
        ((), "name leaf"),
        ((), "no list x"),
    ]
    back = ordered_lines(Order(sheet, then, MODAL_FACTS))
    assert [text for _, text in sheet.with_modes(back)] == [
        *("interface b", "queue 3", "weight 7", "exit", "exit"),
        *("list x", "entries", "permit 5 of x", "permit 6 of x", "exit", "exit"),
    ]


def test_a_paragraph_holds_the_lines_of_some_objects() -> None:
    sheet = _with_modes("")
    whats = frozenset({"list", "entry"})
    blocks = tuple(Block(whats, f"! {name}", places=frozenset({name})) for name in ("y", "x"))
    facts = {
        "": {(what, name, *number): None for name in "xy" for what, *number in (("list",), ("entry", 5))}
    }
    assert replace(sheet, blocks=blocks).text(facts) == (
        "! y\nlist y\n entries\n  permit 5 of y\n!\n! x\nlist x\n entries\n  permit 5 of x\n!\n"
    )


RUNNING = Sheet(
    words={
        "port": Word("[a-z]"),
        "queue": Word("[0-9]+", int, holds=int),
        "number": Word("[0-9]+", int, holds=int),
        "range": Word("[0-9]+-[0-9]+"),
        "words": Word(".*"),
    },
    lines=(
        Line("size", "size {number} {last=number}", modes=("queue {@queue}",)),
        Line("size", "size {range}", use=Use.FOREIGN, modes=("queue {@queue}",)),
        Line("other", "{@words}", use=Use.SHOWN, modes=("queue {@queue}",)),
        Line("limit", "limit {number} {last=number}", of_switch=True),
    ),
    blocks=(),
    comment=re.compile(""),
)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("size 7 7", {("size", 3): 7}),
        ("size 7-9", {("size", 3): "7-9"}),
        ("size 7 8", {("other", 3, "size 7 8"): None}),
        ("shape", {("other", 3, "shape"): None}),
    ],
)
def test_a_running_line_is_read_by_the_first_line_of_the_sheet_whose_words_say_it(
    text: str, facts: Mapping[tuple[Any, ...], Any]
) -> None:
    written = running_line(RUNNING, ("queue 3",), text, of_switch=False)
    assert written
    assert dict(written.facts) == facts
    assert running_line(RUNNING, (), text, of_switch=False) is None


def test_a_running_line_that_no_line_of_the_sheet_says() -> None:
    assert running_line(RUNNING, (), "shape", of_switch=True) is None
    with pytest.raises(ValueError, match="number and last differ"):
        running_line(RUNNING, (), "limit 7 8", of_switch=True)


def test_an_order_may_keep_what_is_not_planned() -> None:
    class KeepingOrder(Order):
        def place_undo(self, port: str, fact: Fact, undo: Written) -> Iterator[Placed]:
            del port, fact, undo
            yield from ()

    order = KeepingOrder(_with_modes("exit"), MODAL_FACTS, {"b": {("weight", 3): 8}})
    assert ordered_lines(order) == [(("interface b", "queue 3"), "weight 8")]


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        ({"kind": "red", "low": "5", "high": "5"}, {"size": 5000}),
        ({"kind": "red", "low": "5", "high": "6"}, None),
        ({"kind": "wred", "low": "5", "high": "5"}, None),
        ({"kind": "red", "low": "5"}, None),
        ({"kind": "red", "low": "5", "high": "5", "more": "1"}, None),
        ({"kind": "red", "low": ["5"], "high": "5"}, None),
        ({}, None),
    ],
)
def test_an_entry_of_a_table_is_written_and_read_by_one_string(
    entry: dict[str, Any], values: dict[str, Any] | None
) -> None:
    form = EntryForm("kind red low {size} high {size}", SHEET.words)
    assert form.read(entry) == values
    assert form.write(values or {"size": None}) == (entry if values else None)
