"""Stories of a switch as data: what somebody enters, what is reported of it, and what a push enters then.

A file of stories reads like a manual. A paragraph begins with the plan that runs, in brackets, and a title;
`[OLD -> NEW]`: then NEW is pushed; `[- -> NEW]`: the switch is new. Then come cases, whose lines have marks:

    + this / that     somebody enters it, one line after the other, and it stays
    $ this / that     the same, but a push takes all of it back, unless the brackets say what it leads to
    ~ this / that     the switch shows these lines, too
    ~ old -> new      the switch shows the new words wherever it would show the old ones
    % this / that     somebody writes these lines behind the first line of the rendered file
    % old -> new      somebody writes the new words where the old ones stand first in the rendered file
    = words           is reported, and nothing else; with `= …` others are, too
    > this / that     a push enters it, and nothing else; where one is `…`, other lines may stand
    ! words           reading or pushing is refused with these words first; `…` stands for any. With `=` it is
                      pushing

`this -> nothing` takes a whole line away. `= nothing`: all is as planned, and a push enters nothing. A mark
stands at the beginning of a line or behind two blanks. What follows before anything is entered, shown or
written holds in every case of the paragraph, and each line that enters something is a case then. `{NAME}` is
a word of the OS's own, `\\r` and `\\t` are control characters.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.twins import snapshot
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.targets import Change, RunningState, SwitchState, Target
from mltswitch.targets.state import differences

_INPUTS: Final = "+$~%"
_HEADING: Final = re.compile(r"\[(\S+)(?: -> (\S+))?\] (.+)")
_MARKED: Final = re.compile(r"(?:^|(?<=[^ /])  )([+$~%=>!]) ")
_HOLE: Final = re.compile(r"\{([A-Z0-9_]+)\}")
Marked = tuple[str, str]
"""A mark, and the words behind it."""


@dataclass(frozen=True, kw_only=True)
class Actor:
    """How stories of one OS are played on its emulated switch."""

    target: Target
    new: Callable[[], Any]
    """A switch that nobody has configured."""
    read: Callable[[Any, SwitchState], RunningState]
    apply: Callable[[Any, Change], None]
    enter: Callable[[Any, list[str]], None]
    """Somebody enters lines or commands; fails where one is refused."""
    entered: Callable[[Change], list[str]]
    """What a push enters, without what is the same in each."""
    plans: Mapping[str, SwitchState]
    """The plans by their names in brackets."""
    shown: str = ""
    """The query with whose answer the switch shows more lines."""
    shown_end: str = ""
    """How that answer ends."""

    def pushed(self, *plans: SwitchState) -> Any:
        """A switch to which these plans were pushed one after the other."""
        device = self.new()
        for plan in plans:
            self.apply(device, self.change(device, plan))
        return device

    def change(self, device: Any, plan: SwitchState) -> Change:
        """What a push of a plan would do now."""
        return self.target.diff(self.read(device, plan), plan, self.target.hardware(None))


@dataclass(frozen=True)
class Case:
    """One case of a story."""

    runs: str
    """The name of the plan that runs; `-`: none does."""
    wanted: str
    returns: bool
    """Whether after a push everything is as before."""
    lines: tuple[Marked, ...]

    def of(self, mark: str) -> list[str]:
        """The words behind a mark."""
        return [words for each, words in self.lines if each == mark]


def stories(path: Path, words: Mapping[str, str]) -> list[Any]:
    """The cases of a file, each called by the number of its line and the title of its paragraph."""
    return [case for text in _paragraphs(path) for case in _cases(*text, words)]


def _paragraphs(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines of each paragraph with the number of the first one."""
    lines = [*path.read_text(encoding="utf-8").splitlines(), ""]
    start = 0
    for number, line in enumerate(lines):
        if not line:
            yield start + 1, lines[start:number]
            start = number + 1


def _cases(first: int, paragraph: list[str], words: Mapping[str, str]) -> Iterator[Any]:
    heading = _HEADING.fullmatch(paragraph[0])
    assert heading, paragraph[0]
    runs, wanted, title = heading.groups()
    cases: list[tuple[int, list[Marked]]] = [(first, [])]
    for number, line in enumerate(paragraph[1:], first + 1):
        _, *parts = _MARKED.split(line)
        assert parts, line
        for place, (mark, said) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
            last, is_listed = cases[-1][1], bool(cases[0][1]) and place == 0
            if mark in _INPUTS and (is_listed or not (last and last[-1][0] in _INPUTS)):
                cases.append((number, []))
            text = _HOLE.sub(lambda hole: words[hole[1]], said)
            cases[-1][1].append((mark, text.replace(r"\r", "\r").replace(r"\t", "\t")))
    (_, common), *single = cases
    for number, marked in single or cases:
        lines = (*marked, *common) if single else tuple(common)
        yield pytest.param(Case(runs, wanted or runs, not wanted, lines), id=f"{number}: {title}")


def check_plan(plan: SwitchState, actor: Actor) -> None:
    """A plan reads back from its file, runs once that is entered, and runs once it is pushed."""
    target, capabilities = actor.target, actor.target.hardware(None)
    files = target.render(plan, capabilities)
    assert target.parse(files, capabilities) == plan
    pasted = actor.new()
    actor.enter(pasted, [line for text in files.values() for line in text.splitlines()])
    for device in (pasted, actor.pushed(plan)):
        assert actor.read(device, plan).state == plan
        assert actor.change(device, plan).is_empty


def play(case: Case, actor: Actor) -> None:
    """Play one case, and compare what follows from it."""
    if refusal := case.of("!"):
        with pytest.raises((UserInputError, DeviceError)) as caught:
            _play(case, actor)
        begins = ".*".join(map(re.escape, refusal[0].split("…")))
        assert re.match(begins, str(caught.value), re.DOTALL), str(caught.value)
    else:
        _play(case, actor)


def _play(case: Case, actor: Actor) -> None:
    wanted, target, capabilities = actor.plans[case.wanted], actor.target, actor.target.hardware(None)
    if written := case.of("%"):
        state = target.parse(_written(written, target.render(wanted, capabilities)), capabilities)
        _check_reported(case, [str(each) for each in differences(wanted, state)])
        return
    device = actor.pushed(*([actor.plans[case.runs]] if case.runs != "-" else []))
    for line in case.of("+"):
        actor.enter(device, line.split(" / "))
    before = snapshot(device, target.platform)[0] if case.returns and not case.of("~") else None
    for line in case.of("$"):
        actor.enter(device, line.split(" / "))
    running = actor.read(device, wanted)
    if shown := case.of("~"):
        running = target.read(_shown(shown, actor, running.answers), wanted, capabilities)
    if case.of("=") or not case.of("!"):
        _check_reported(case, [str(each) for each in differences(wanted, running.state)])
    change = target.diff(running, wanted, capabilities)
    _check_entered(case, actor.entered(change))
    if change.steps and not shown:
        actor.apply(device, change)
        running = actor.read(device, wanted)
        assert differences(wanted, running.state) == change.stays
        assert target.diff(running, wanted, capabilities).is_empty
        assert not case.returns or snapshot(device, target.platform)[0] == before


def _check_reported(case: Case, found: list[str]) -> None:
    expected = set(case.of("=")) - {"nothing"}
    if "…" in expected:
        assert expected - {"…"} <= set(found), found
    else:
        assert sorted(expected) == sorted(found)


def _check_entered(case: Case, found: list[str]) -> None:
    expected = [line for text in case.of(">") for line in text.split(" / ")]
    if "…" in expected:
        rest = iter(found)
        assert all(line in rest for line in expected if line != "…"), found
    else:
        assert found == expected


def _edited(text: str, edit: str, count: int) -> str:
    old, _, new = (part.replace(" / ", "\n") for part in edit.partition(" -> "))
    return text.replace(f"{old}\n", "", count) if new == "nothing" else text.replace(old, new, count)


def _written(lines: list[str], files: Mapping[str, str]) -> dict[str, str]:
    """The rendered files in which somebody has written: in the first that has such words, or in the first."""
    for line in lines:
        added = line.replace(" / ", "\n")
        edited = {
            name: _edited(text, line, 1) if " -> " in line else text.replace("\n", f"\n{added}\n", 1)
            for name, text in files.items()
        }
        changed = next((name for name in files if edited[name] != files[name]), None)
        assert changed, f"no file has anything like {line}"
        files = {**files, changed: edited[changed]}
    return dict(files)


def _shown(lines: list[str], actor: Actor, answers: Mapping[str, str]) -> dict[str, str]:
    """The answers of a switch that shows something else."""
    for line in lines:
        if " -> " in line:
            edited = {query: _edited(answer, line, -1) for query, answer in answers.items()}
        else:
            former = answers[actor.shown].removesuffix(actor.shown_end)
            edited = {**answers, actor.shown: former + line.replace(" / ", "\n") + "\n" + actor.shown_end}
        assert edited != answers, f"it shows nothing like {line}"
        answers = edited
    return dict(answers)
