"""The command lines of the simulated switches: what they take, refuse, show, and how their modes are named.

The cases of an OS stand in `cases/OS.txt`. One of `[accepted]`, `[refused]` or `[shows]` is a line: what is
typed in configuration mode, parted by `;`, and behind `=>` what the last answer contains: fragments parted by
`&&`, of which one with `!` must be missing. One of `[dialogues]` is a paragraph, in a session that has just
begun: `typed => fragments`, `typed >> prompt` with `·` for a space at its end, `2: typed` by somebody else,
`@60` for the time in seconds.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsim import DellSonicDevice, EosDevice, IcosDevice, OnyxDevice
from switchsim.dell_sonic import AMBIGUOUS
from switchsim.dell_sonic import INCOMPLETE as KLISH_INCOMPLETE
from switchsim.dell_sonic import INVALID as KLISH_INVALID
from switchsim.device import CommandLine
from switchsim.icos import INCOMPLETE, INVALID, SAVED
from switchsim.modes import SheetDevice
from switchsim.settings import HOLE, Facts
from tests.switchsim.conftest import Connect, Serve


class Kind(NamedTuple):
    """How the switches of one OS are made and read in the cases."""

    make: Callable[..., SheetDevice]
    show: str
    """From configuration mode, what shows the running configuration."""
    typed: Callable[[str], list[str]]
    """A running configuration as lines that may be entered."""
    words: Mapping[str, str] = MappingProxyType({})
    """Names in the cases → what they stand for."""


def _typed_eos(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("hostname")]


def _typed_onyx(text: str) -> list[str]:
    return [
        line for line in text.splitlines() if line and not line.startswith("##") and "hostname" not in line
    ]


def _typed_icos(text: str) -> list[str]:
    head, _, body = text.partition("configure\n")
    assert all(line.startswith("!") for line in head.splitlines())
    return body.splitlines()[:-1]


def _typed_dell(text: str) -> list[str]:
    """Without what nobody can enter; a queue's mode is left before the next one of its policy is opened."""
    fixed = ("interface-naming", "line vty", "service-policy type qos in oob", "mtu", "fec", "unreliable")
    lines: list[str] = []
    for line in text.splitlines():
        if line == " !" and lines[-1].startswith(("  ", " queue ", " port", " class ")):
            lines.append("exit")
        elif not line.strip().startswith((*fixed, "priority-flow-control w")):
            lines.append(line)
    return lines


KINDS = {
    "dell_sonic": Kind(
        lambda **given: DellSonicDevice("sw1", 4, **given),
        "show running-configuration",
        _typed_dell,
        {"$INVALID": KLISH_INVALID, "$INCOMPLETE": KLISH_INCOMPLETE, "$AMBIGUOUS": AMBIGUOUS},
    ),
    "eos": Kind(lambda **given: EosDevice(ports=4, **given), "show running-config", _typed_eos),
    "icos": Kind(
        lambda **given: IcosDevice("sw1", 4, "0/{n}", **given),
        "end; show running-config",
        _typed_icos,
        {"$INVALID": INVALID, "$INCOMPLETE": INCOMPLETE, "$SAVED": SAVED},
    ),
    "onyx": Kind(lambda **given: OnyxDevice(ports=4, **given), "show running-config", _typed_onyx),
}


def _sections(kind: str) -> dict[str, list[str]]:
    """Title → lines, with the values of the names that the file defines."""
    names = {name: text.replace("\n", "\\n") for name, text in KINDS[kind].words.items()}
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "cases" / f"{kind}.txt").read_text().splitlines():
        if line.startswith("["):
            lines = found[line.strip("[]")] = []
            continue
        if line.startswith("$") and " = " in line:
            name, _, value = line.partition(" = ")
            names[name] = _with(names, value)
        elif not line.startswith("#") and found:
            lines.append(_with(names, line))
    return found


def _with(names: dict[str, str], line: str) -> str:
    for name in sorted(names, key=len, reverse=True):
        line = line.replace(name, names[name])
    return line


def cases(section: str) -> list[Any]:
    found: list[Any] = []
    for kind in KINDS:
        lines = _sections(kind)[section]
        if section == "dialogues":
            paragraphs = "\n".join(lines).strip().split("\n\n")
            found += (pytest.param(kind, text, id=f"{kind}: {text.splitlines()[0]}") for text in paragraphs)
        else:
            found += (pytest.param(kind, *_halves(line), id=f"{kind}: {line}") for line in lines if line)
    return found


def _halves(line: str) -> tuple[list[str], str]:
    typed, _, expected = line.partition(" => ")
    return typed.split("; "), expected


def check(answer: str, expected: str) -> None:
    for fragment in expected.split(" && "):
        words = fragment.lstrip("!").encode().decode("unicode_escape")
        assert (words in answer) is not fragment.startswith("!"), (fragment, answer)


def opened(device: SheetDevice, *lines: str) -> CommandLine:
    """A session in configuration mode, in which lines have been entered that are not refused."""
    session = device.open_session("admin")
    for line in (*device.opening, *lines):
        assert "%" not in session.enter(line).text, line
    return session


@pytest.mark.parametrize(("kind", "lines", "_"), cases("accepted"))
def test_accepted_and_printed_so_that_it_can_be_entered_again(kind: str, lines: list[str], _: str) -> None:
    device, again = KINDS[kind].make(), KINDS[kind].make()
    assert device.configure(*lines) == ""
    assert kind == "onyx" or device.configuration != again.configuration
    shows = KINDS[kind].show.split("; ")
    printed = device.configure(*shows)
    assert again.configure(*(line.strip() for line in KINDS[kind].typed(printed))) == ""
    assert again.configure(*shows) == printed
    unshown = ("", "prefix-modes")
    configurations = (
        {f: v for f, v in each.configuration.items() if f != unshown} for each in (device, again)
    )
    assert next(configurations) == next(configurations)


@pytest.mark.parametrize(("kind", "lines", "text"), cases("refused"))
def test_what_is_refused_changes_nothing(kind: str, lines: list[str], text: str) -> None:
    device = KINDS[kind].make()
    session = opened(device, *lines[:-1])
    before = device.configuration
    answer = session.enter(lines[-1]).text
    check(answer, text or "% ")
    assert device.configuration == before


@pytest.mark.parametrize(("kind", "lines", "text"), cases("shows"))
def test_what_is_shown(kind: str, lines: list[str], text: str) -> None:
    check(opened(KINDS[kind].make(), *lines[:-1]).enter(lines[-1]).text, text)


@pytest.mark.parametrize(("kind", "text"), cases("dialogues"))
def test_dialogues(kind: str, text: str) -> None:
    now, lines = [0.0], text.splitlines()
    given: dict[str, Any] = {"clock": lambda: now[0]} if kind == "eos" else {}
    if lines[0].startswith("@with "):
        word, _, value = lines.pop(0).removeprefix("@with ").partition("=")
        given[word] = value
    device = KINDS[kind].make(**given)
    sessions = {"": device.open_session("admin"), "2": device.open_session("admin")}
    for line in device.opening[:-1]:
        sessions["2"].enter(line)
    for line in lines:
        if line.startswith("@"):
            now[0] = float(line[1:])
            continue
        who, _, said = line.partition(": ") if line.startswith("2: ") else ("", "", line)
        prompted, arrow, prompt = said.partition(" >>")
        typed, is_answered, expected = prompted.partition(" => ")
        for each in typed.split("; "):
            answer = sessions[who].enter(each)
            if not is_answered and not answer.closes:
                assert answer.text == "", each
        if is_answered:
            check(answer.text, expected)
        if arrow:
            assert (sessions[who].prompt if not answer.closes else "closed") == prompt.strip(" ").replace(
                "·", " "
            ), line


def _words(kind: str) -> list[str]:
    """Keywords of the OS, some values, and what stands between."""
    device = KINDS[kind].make()
    rows = [row for mode in device.modes.table.values() for row in (*mode.rows, *mode.rows_of_ports)]
    lines = [line for row in rows for line in row.words_of_lines()]
    lines += [line for mode in device.modes.table.values() for line in (*mode.lines, mode.head)]
    known = {word.strip("[]") for line in lines for word in HOLE.sub("", line).split()}
    values = "0 6 8 60 | 1/1 1/1-1/9 both L3 10.0.0.0/24 10.0.0.1 Ethernet1/1 Eth1/1 0/1"
    return [*sorted(known), *values.split(" ")]


WORDS = {kind: _words(kind) for kind in KINDS}


@settings(max_examples=60)
@given(st.data(), st.sampled_from(sorted(KINDS)))
def test_a_refused_line_never_changes_anything_and_none_raises(data: st.DataObject, kind: str) -> None:
    words = st.sampled_from(WORDS[kind]) | st.text(st.characters(codec="utf-8"), max_size=6)
    device = KINDS[kind].make()
    session = opened(device)
    for line in data.draw(st.lists(st.lists(words, max_size=9).map(" ".join), max_size=6)):
        before = device.configuration
        if session.enter(line).text.startswith("%"):
            assert device.configuration == before
    assert device.name in session.prompt


@pytest.mark.parametrize(
    ("device", "lines", "mode", "leave", "query", "shown", "save"),
    [
        (
            IcosDevice("sw1", 2),
            ["interface te1/0/1", "classofservice trust ip-dscp", "exit"],
            *(("configure", r"\(Config\)#"), ("exit", r"\) #")),
            *("show classofservice trust te1/0/1", "Trust Mode: IP DSCP", "write memory confirm"),
        ),
        (
            DellSonicDevice("sw1", 2),
            ["interface Eth1/1", "description hello", "exit"],
            *(("configure terminal", r"\(config\)#"), ("end", "sw1#")),
            *("show running-configuration interface Eth1/1", " description hello", "write memory"),
        ),
    ],
    ids=["icos", "dell_sonic"],
)
def test_netmiko_configures_and_saves(
    device: SheetDevice,
    lines: list[str],
    mode: tuple[str, str],
    leave: tuple[str, str],
    query: str,
    shown: str,
    save: str,
    serve: Serve,
    connect: Connect,
) -> None:
    connection = connect(serve(device))
    # Modes are changed by hand: the driver waits 2 s in silence whenever it asks for the mode.
    connection.send_command(mode[0], expect_string=mode[1])
    assert "%" not in connection.send_config_set(lines, enter_config_mode=False, exit_config_mode=False)
    refused = connection.send_config_set(["reload"], enter_config_mode=False, exit_config_mode=False)
    assert "% " in refused
    assert "nvalid input" in refused
    connection.send_command(leave[0], expect_string=leave[1])
    assert shown in str(connection.send_command(query))
    assert "rror" not in connection.save_config(save)
    assert device.saved == device.configuration


@pytest.mark.parametrize("arguments", [{"ports": 0}, {"ports": 65}, {"queue_word": "q"}, {"release": "x"}])
def test_a_switch_that_cannot_be(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"expected|no release"):
        EosDevice(**arguments)  # type: ignore[arg-type]


def test_bandwidths_of_a_class_are_shown_that_no_line_can_set() -> None:
    device = OnyxDevice(ports=4)
    device.configuration = Facts({("1/2", f"class-{what}-mbps", 6): 99 for what in ("guaranteed", "shaper")})
    shown = device.configure("show dcb ets interface ethernet 1/2")
    check(shown, "BW Gr.(Mbps): 99\\n && BW Sh.(Mbps): 99\\n && BW Sh.(Mbps): N/A\\n")
