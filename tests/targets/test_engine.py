"""The engine of line targets, on a sheet of four lines that no switch has."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from mltswitch.targets.base import FileError
from mltswitch.targets.engine.line import Block, Line, Sheet, Use, Word
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
        Block("! paint {port}", frozenset({"color"})),
        Block("! queues {port}", frozenset({"size"})),
        Block("! switch", frozenset({"name"})),
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
    found: dict[str, dict[tuple[Any, ...], Any]] = {}
    for line in SHEET.parse(TEXT):
        assert TEXT.split("\n")[line.number - 1] == line.text == SHEET.entered(line.port, line.written.text)
        found.setdefault(line.port, {}).update(line.written.facts)
    assert found == FACTS


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
        SHEET.parse(f"{TEXT}{line}\n")
    assert [(each.number, str(each)) for each in caught.value.errors] == [(21, f"{problem}: {line!r}")]


def test_values_that_no_plan_has_are_told_in_the_words_of_the_device() -> None:
    assert SHEET.report(("color", (1,)), "red") == ""
    assert SHEET.report(("color", (1,)), "blue") == "paint 1 blue"
    assert SHEET.report(("name",), None) == "no name"
    assert SHEET.undo(("color", (1,)), "red") == "no paint 1"
    assert SHEET.undo(("size", 3), 7000) == ""


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        (198 * 1024, "traffic-class 6 congestion-control both minimum-absolute 198 maximum-absolute 198"),
        (
            ("red", "relative", 5, 9),
            "traffic-class 6 congestion-control red minimum-relative 5 maximum-relative 9",
        ),
        (None, "no traffic-class 6 congestion-control"),
    ],
)
def test_every_threshold_of_onyx_has_a_line(threshold: object, words: str) -> None:
    fact = ("threshold", 6)
    line = ONYX.line_for("threshold", threshold)
    assert ONYX.write(line, ((fact, threshold),)).text == words
