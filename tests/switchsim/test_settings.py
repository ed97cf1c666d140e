"""Sheets of rows: what a line sets and takes back, and how facts are printed, whatever the OS."""

import pytest

from switchsim.grammar import RefusalError, arguments, match
from switchsim.settings import NO, NO_FACTS, Setting, Sheet

ARGUMENTS = arguments("dscp 0-63+; queue 0-7; weight 1-100; word a|b")
SHEET = Sheet(
    (
        Setting("on", "lights on", NO),
        Setting("rewrite", {"no rewrite": False}, NO, default=True, forgets=("mark",)),
        Setting("mark", "mark {word} [at {queue}]", NO, omitted=0, absent="nothing marks {word}"),
        Setting("queue {dscp}", "map {dscp} to {queue}", ("no map",), default=lambda dscp: dscp >> 3),
        Setting("strict {queue}", "queue {queue} strict", NO),
        Setting("weight {queue}", "queue {queue} weight {weight}", NO, most=2),
        Setting("mode", {"mode slow": "slow", "mode fast {weight}": "fast"}, ("no mode fast",)),
    ),
    ARGUMENTS,
)


@pytest.mark.parametrize(
    ("lines", "printed"),
    [
        (("lights on", "lights on"), ["lights on"]),
        (("lights on", "no lights on"), []),
        (("no rewrite",), ["no rewrite"]),
        (("mark a at 3", "no rewrite", "rewrite"), []),  # forgotten with it
        (("mark a", "mark b at 0"), ["mark b"]),
        (("mark b at 3",), ["mark b at 3"]),
        (("map 9 0 8 to 5", "map 1 to 2", "map 63 to 7"), ["map 1 to 2", "map 0 8 9 to 5"]),
        (("map 9 0 to 5", "no map"), []),
        (
            ("queue 5 weight 9", "queue 2 strict", "queue 2 weight 7", "queue 5 strict", "no queue 5 weight"),
            ["queue 2 strict", "queue 2 weight 7", "queue 5 strict"],
        ),
        (("mode slow", "no mode fast"), ["mode slow"]),
        (("mode slow", "mode fast 3"), ["mode fast 3"]),
        (("mode fast 3", "no mode fast"), []),
    ],
)
def test_lines_set_facts_and_facts_are_printed(lines: tuple[str, ...], printed: list[str]) -> None:
    facts = NO_FACTS
    for line in (*lines, *printed):
        action, values = match(SHEET.commands, line.split())
        facts = action(facts, values, ("here",))
    assert SHEET.printed(facts, "here") == printed
    assert SHEET.printed(facts, "there") == []


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("no mark",), "nothing marks {word}"),
        (
            (*(f"queue {number} weight 1" for number in (0, 1)), "queue 0 weight 2", "queue 2 weight 1"),
            "there are 2 weights already",
        ),
    ],
)
def test_what_does_not_fit_is_refused(lines: tuple[str, ...], text: str) -> None:
    facts = NO_FACTS
    for line in lines[:-1]:
        action, values = match(SHEET.commands, line.split())
        facts = action(facts, values, ("",))
    action, values = match(SHEET.commands, lines[-1].split())
    with pytest.raises(RefusalError, match=text.replace("{", r"\{")):
        action(facts, values, ("",))


def test_what_is_not_set_is_as_delivered() -> None:
    assert [SHEET.fact(NO_FACTS, "", "queue", dscp) for dscp in (7, 8, 63)] == [0, 1, 7]
    assert (SHEET.fact(NO_FACTS, "", "rewrite"), SHEET.fact(NO_FACTS, "", "on")) == (True, False)
