"""Sessions that are not as a login should be: they work all the same, or one line says why not, soon."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import paramiko
import pytest

from mltswitch.deploy import command_line, terminal
from mltswitch.deploy.command_line import CommandLineSession, open_command_line
from mltswitch.deploy.connector import connect
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device, Secret
from mltswitch.targets import Step, target_for
from switchsim.device import Answer, CommandLine
from switchsim.eos import EosDevice
from switchsim.icos import IcosDevice
from switchsim.onyx import OnyxDevice
from tests.deploy.emulated import served

NAME = "leaf-rack12-row03-a"
SHOW = "show running-config"
FAST_SECONDS = 12.0
"""For an error; today's longest wait is for the first word after the login."""


@dataclass
class Session:
    """A real emulated session, with what stands around its prompts and in its answers changed."""

    inner: CommandLine
    greeting: list[str]
    """Printed in the place of prompts, one for each line that is entered, before the session is as usual."""
    prompt_of: Callable[[str, int], str]
    answers: dict[str, str]
    """Line → what it prints in the place of its answer; `{}` stands for the answer."""
    count: int = 0
    stuck: str = ""

    @property
    def prompt(self) -> str:
        """The next one."""
        if self.greeting:
            return self.greeting[0]
        self.count += 1
        return self.stuck or self.prompt_of(self.inner.prompt, self.count)

    def enter(self, line: str) -> Answer:
        """A line answers a greeting, or goes to the switch."""
        if self.greeting:
            return Answer(closes=self.greeting.pop(0).startswith("No vty"))
        if line not in self.answers:
            return self.inner.enter(line)
        shown, waits, self.stuck = self.answers[line].partition("@")
        answer = self.inner.enter(line).text if "{}" in shown else ""
        return Answer(shown.format(answer), closes=waits == "@" and not self.stuck)


@contextmanager
def hostile(
    folder: Path,
    kind: str = "eos",
    greeting: tuple[str, ...] = (),
    prompt_of: Callable[[str, int], str] = lambda prompt, _: prompt,
    answers: dict[str, str] | None = None,
) -> Iterator[Device]:
    """A switch whose sessions are so, and how one reaches it."""
    made: dict[str, type[EosDevice | IcosDevice | OnyxDevice]] = {
        "eos": EosDevice,
        "icos": IcosDevice,
        "onyx": OnyxDevice,
    }
    switch = made[kind](NAME)
    plain = switch.open_session
    vars(switch)["open_session"] = lambda name: Session(plain(name), list(greeting), prompt_of, answers or {})
    with served(folder, kind, switch, name=NAME) as rack:
        yield rack.devices[0]


@contextmanager
def opened(reached: Device) -> Iterator[CommandLineSession]:
    """By the words of its platform."""
    with open_command_line(reached, target_for(reached.platform).dialect) as session:
        yield session


def cut(prompt: str, characters: int) -> str:
    """As a switch shows it whose configuration modes shorten its name."""
    return prompt.replace(NAME, NAME[:characters]) if "onf" in prompt else prompt


PROMPTS: dict[str, Callable[[str, int], str]] = {
    "a clock before": lambda prompt, count: f"14:05:{count:02} {prompt}",
    "a day and a clock before": lambda prompt, count: f"Sat Nov 28 14:05:{count:02} {prompt}",
    "a clock in brackets": lambda prompt, count: f"[14:05:{count:02}] {prompt}",
    "a clock behind the name": lambda prompt, count: prompt.replace(NAME, f"{NAME}.14:05:{count:02}"),
    "a counter in brackets": lambda prompt, count: prompt.replace(NAME, f"{NAME}({count})"),
    "a counter": lambda prompt, count: prompt.replace(NAME, f"{NAME}!{count}"),
    "a state in brackets": lambda prompt, count: prompt.replace(
        NAME, f"{NAME}[{'ok' if count % 2 else 'busy'}]"
    ),
    "a state before": lambda prompt, count: f"[{'abcdefghijklmnopqrstuvwxyz'[count % 26]}] {prompt}",
    "a mark of what is not saved": lambda prompt, count: f"*{prompt}" if count > 6 else prompt,
    "a supervisor": lambda prompt, _: prompt.replace(NAME, f"{NAME}(s1)"),
    "a name cut at 16": lambda prompt, _: cut(prompt, 16),
    "a name cut at 10": lambda prompt, _: cut(prompt, 10),
    "colours and a title": lambda prompt, _: f"\x1b]0;{NAME}\x07\x1b[1;32m{prompt}\x1b[0m\x1b[K",
    "a bell": lambda prompt, _: f"\x07{prompt}\x07",
    "drawn anew": lambda prompt, _: f"\r\x1b[K{prompt}",
}


@pytest.mark.parametrize("kind", ["eos", "icos", "onyx"])
@pytest.mark.parametrize("prompt_of", PROMPTS.values(), ids=PROMPTS)
def test_a_prompt_that_changes_is_known_again(
    tmp_path: Path, kind: str, prompt_of: Callable[[str, int], str]
) -> None:
    lines = {
        "eos": ("interface Ethernet1/1", "qos trust dscp", "interface Ethernet2/1", "qos trust dscp"),
        "icos": ("interface te1/0/1", "classofservice dot1p-mapping 5 1", "exit", "interface te1/0/2"),
        "onyx": ("interface ethernet 1/1 qos trust L3", "interface ethernet 1/2 qos trust L3"),
    }[kind]
    with hostile(tmp_path, kind, prompt_of=prompt_of) as reached, opened(reached) as session:
        began = time.monotonic()
        before = session.ask(SHOW)
        session.apply(tuple(map(Step, lines)))
        assert session.ask(SHOW) != before
        with pytest.raises(DeviceError, match="refuses step 1 of 2, 'nonsense'"):
            session.apply((Step("nonsense"), Step("nonsense")))
        assert time.monotonic() - began < FAST_SECONDS


BANNER = "*" * 79 + "\n# Authorized users only #\nPress any complaint to >\n"
GREETINGS: dict[str, tuple[str, ...]] = {
    "a banner": (f"{BANNER}Last login: Sat Nov 28 from 192.0.2.1 #\n\n{NAME}>",),
    "a line that ends like a prompt": ("Welcome! All is logged #", f"{NAME}>"),
    "a rule": ("#" * 40, f"{NAME}>"),
    "pages": ("page 1\n--More--", "page 2\nlines 24-46 (END)", f"{NAME}>"),
    "a key to be pressed": ("Legal notice\nPress any key to continue", f"{NAME}>"),
    "nothing before a line is entered": ("", f"{NAME}>"),
}


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS)
def test_what_a_login_prints_is_no_prompt(tmp_path: Path, greeting: tuple[str, ...]) -> None:
    with hostile(tmp_path, greeting=greeting) as reached, opened(reached) as session:
        assert session.ask(SHOW).rstrip().endswith("end")


MORE = {
    "EOS": "--More--",
    "FASTPATH": "--More-- or (q)uit",
    "Onyx": "lines 1-23",
    "less": ":",
    "its end": "lines 1-23/23 (END)",
    "capitals": "-- MORE --, next page: Space, continue: g, quit: ^C",
    "angles": "<--- More --->",
    "percent": "---(more 23%)---",
}
REFUSES = {"terminal length 0": "% Authorization denied for command\n"}


@pytest.mark.parametrize("marker", MORE.values(), ids=MORE)
def test_a_device_that_waits_at_a_pager_is_told_at_once(tmp_path: Path, marker: str) -> None:
    with hostile(tmp_path, answers={SHOW: f"line 1\nline 2\n@{marker}"}) as reached:
        began = time.monotonic()
        with opened(reached) as session, pytest.raises(DeviceError) as caught:
            session.ask(SHOW)
        assert "waits at a pager" in str(caught.value)
        assert "terminal length 0" in str(caught.value)
        assert time.monotonic() - began < FAST_SECONDS


@pytest.mark.parametrize(
    "marker",
    [
        "--More--\r        \r",
        "--More--\b\b\b\b\b\b\b\b",
        "--More--\x1b[8D        \x1b[8D",
        "more of line 1 --More--\b\b\b\b\b\b\b\b",
        " --More-- \n",
        "lines 1-23\n",
        "line 23\b\b\b\b\b\b\b",
        "lines 1-23/23 (END)\r\x1b[K",
        *(f"{marker}\r\n" for marker in MORE.values() if marker != ":"),
    ],
)
def test_an_answer_in_which_a_pager_stopped_is_not_read(tmp_path: Path, marker: str) -> None:
    with (
        hostile(tmp_path, answers={SHOW: f"line 1\n{marker}line 2\n"}) as reached,
        opened(reached) as session,
        pytest.raises(DeviceError, match="has paged its answer to 'show running-config'"),
    ):
        session.ask(SHOW)


@pytest.mark.parametrize(
    "line",
    [
        "--- More than ten failed logins lock the account ---",
        "   description --- more to come ---",
        "   description --More--",
        "line 1",
        "= more =- of it",
    ],
)
def test_words_of_a_configuration_are_no_pager(line: str) -> None:
    assert not terminal.pager_in(terminal.plain(f"interface Ethernet1\r\n{line}\r\nend\r\n".encode()))


@dataclass(frozen=True)
class Never:
    """A session that does not open."""

    told: str
    greeting: tuple[str, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()


NEVER = {
    "paging refused": Never(
        "refuses 'terminal length 0': % Authorization denied", answers=tuple(REFUSES.items())
    ),
    "paging not known": Never(
        "refuses 'terminal length 0': Unknown command", answers=(("terminal length 0", "Unknown command\n"),)
    ),
    "expired": Never("wants a new password", ("Your password has expired.\nNew password: ",)),
    "old password": Never("asks 'Enter old password:'", ("Enter old password: ",) * 9),
    "wizard": Never("asks 'Do you want to use the wizard", ("Do you want to use the wizard? ",) * 9),
    "menu": Never("shows no prompt, but printed '3. Exit'", ("1. Shell\n2. Menu\n3. Exit\n",) * 9),
    "closes": Never("closes the session before it shows a prompt, with 'No", ("No vty left\n",)),
    "no right": Never(
        "does not enter privileged mode after 'enable': % Not", answers=(("enable", "% Not allowed\n"),)
    ),
    "asks for the right": Never(
        "asks 'Password:' for the privileged mode", answers=(("enable", "@Password: "),)
    ),
    "pages without end": Never("shows no prompt, but printed '--More--' last", ("page\n--More--",) * 99),
    "silent": Never("has shown no prompt 6 s after ''", ("leaf1#", *("",) * 9)),
}


@pytest.mark.parametrize("never", NEVER.values(), ids=NEVER)
def test_a_session_that_does_not_open_is_one_line(tmp_path: Path, never: Never) -> None:
    with hostile(tmp_path, greeting=never.greeting, answers=dict(never.answers)) as reached:
        began = time.monotonic()
        with pytest.raises(DeviceError) as caught, connect(reached, target_for("eos")):
            pass
        assert f"{NAME} (127.0.0.1:{reached.port}): {never.told}" in str(caught.value)
        assert time.monotonic() - began < FAST_SECONDS


@pytest.mark.parametrize("tail", ["Are you sure? [y/N] ", "other-name(config)#", "Continue (yes/no):"])
def test_a_line_that_is_answered_by_a_question(tmp_path: Path, tail: str) -> None:
    with (
        hostile(tmp_path, answers={"qos rewrite dscp": f"@{tail}"}) as reached,
        opened(reached) as session,
    ):
        began = time.monotonic()
        with pytest.raises(DeviceError, match=r"waits at '.*' after 'qos rewrite dscp', where its prompt"):
            session.apply((Step("qos rewrite dscp"), Step("ip routing")))
        assert time.monotonic() - began < FAST_SECONDS


def test_the_password_of_the_privileged_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_SECRET", "s3same")
    for then, told in (
        ("{}", "does not enter privileged mode"),
        ("@--More--", "pager"),
        ("@hm", "no prompt"),
    ):
        monkeypatch.setattr(command_line, "LINE_SECONDS", 2.0)
        with hostile(tmp_path / told, answers={"enable": "@Password: ", "s3same": then}) as reached:
            known = replace(reached, become_password=Secret("mltswitch_become_password_env", "ENABLE_SECRET"))
            with pytest.raises(DeviceError, match=told) as caught, opened(known):
                pass
        assert "s3same" not in str(caught.value)


OLD = {
    "key exchanges": ("_preferred_kex", "kex_algo_list", "diffie-hellman-group14-sha1"),
    "kinds of host key": ("_preferred_keys", "server_key_algo_list", "ssh-rsa"),
    "ciphers": ("_preferred_ciphers", "server_encrypt_algo_list", "arcfour"),
}


@pytest.mark.parametrize("what", OLD)
def test_an_ssh_server_too_old_says_what_it_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The client is shown an old server's list: no library here still speaks one."""
    _, field, old = OLD[what]
    parsed = paramiko.Transport._really_parse_kex_init  # type: ignore[attr-defined]

    def shown(self: paramiko.Transport, *arguments: object, **named: object) -> dict[str, list[str]]:
        found: dict[str, list[str]] = parsed(self, *arguments, **named)
        return found if self.server_mode else found | {field: [old]}

    with hostile(tmp_path) as reached:
        monkeypatch.setattr(paramiko.Transport, "_really_parse_kex_init", shown)
        began = time.monotonic()
        with pytest.raises(DeviceError) as caught, connect(reached, target_for("eos")):
            pass
        assert f"offers only {what} that are given up as unsafe: {old} (expected one of " in str(caught.value)
        assert time.monotonic() - began < FAST_SECONDS


@pytest.mark.parametrize(
    "text", ["-" * 99_999, "[1]" * 33_333, "- " * 50_000, " " * 99_999 + "x", "password " * 9999]
)
def test_no_line_takes_long_to_look_at(text: str) -> None:
    prompt = terminal.Prompt.seen_twice("leaf1#", "leaf1#")
    assert prompt is not None
    began = time.monotonic()
    for shown in (text, f"{text}#", f"x{text}:", text[:280], f"{text[:280]}#", text.replace(" ", "\r")):
        line = terminal.last_line(terminal.plain(shown.encode()))
        assert not prompt.fits(shown)
        assert not terminal.pager_in(shown)
        assert not terminal.expired(shown)
        assert not (terminal.waits_for_key(line))
        assert not (terminal.asks(line))
        assert terminal.may_be_prompt(line) in {False, "password" in line and line.endswith("#")}
    assert time.monotonic() - began < 5.0
