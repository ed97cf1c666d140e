"""A session with a vendor's command line: a terminal over SSH, which counts as open only when proven.

Proof is that the prompt was seen twice and paging is off. What changes in a prompt (a clock,
a counter, a mode, a name that is cut) is told by `terminal.py`; a device that waits at a pager or a question
is hung up on at once, with what it printed.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from paramiko import Channel, Transport

from mltswitch.deploy.session import LINE_SECONDS, Session, quoted, refusal, too_late
from mltswitch.deploy.ssh import bounded, logged_in, route, translated
from mltswitch.deploy.terminal import (
    Prompt,
    asks,
    asks_password,
    expired,
    last_line,
    may_be_prompt,
    pager_in,
    plain,
    waits_for_key,
)
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device
from mltswitch.targets import Step

OPEN_SECONDS: Final = 90.0
"""Time limit in seconds from the authenticated connection to the proven session."""
SILENCE_SECONDS: Final = 30.0
"""Time limit in seconds for the first output after the login; the authorization server may be slow."""
SHOW_SECONDS: Final = 60.0
"""Time limit in seconds for one show command; the running configuration of a full chassis takes a while."""
REFUSAL: Final = re.compile(
    r"^[ \t]*(?:%|(?i:error|invalid|failed|command not found|incorrect input|an invalid|could not|cannot"
    r"|unknown command|unrecogni[sz]ed|unauthori[sz]ed|not authori[sz]ed|(?:permission|access) denied"
    r"|syntax error|ambiguous|incomplete command|command (?:rejected|denied|authori[sz]ation))\b).*",
    re.MULTILINE,
)
"""Pattern of how command lines refuse: `% Invalid input`, `Error: ...`, `Command not found / ...`."""
_OPENS_PORT: Final = re.compile(r"interface \S+")
"""Where a switch ignored it, FASTPATH would take the lines behind it for all its ports."""
MAXIMUM_MODES: Final = 12
"""The largest number of nested modes; `exit` leaves one of them."""
MAXIMUM_SIGHTINGS: Final = 5
"""After how many prompts two must have been alike; what a login prints may look like a prompt."""
MAXIMUM_KEYS: Final = 20
"""How many times a login may ask for a key, page by page."""

_CHUNK_BYTES: Final = 1 << 16
_END_BYTES: Final = 256
_MAY_END: Final = re.compile(rb"[>#$](?:[\s\x07]|\x1b\[[0-9;?]*[A-Za-z])*\Z")
"""A prompt's last character, and what a terminal may get after it."""
_SETTLE_SECONDS: Final = 0.2
"""After which a line without an end is taken for all that the device has to say for now."""
_STUCK_SECONDS: Final = 3.0
"""After which a device that shows no prompt is asked for one by an empty line, and then given up."""
_TERMINAL: Final = ("vt100", 511, 1000)
"""Wide, so that echoes are not broken, and long, for those that page by its length."""


@dataclass(frozen=True, slots=True)
class _Words:
    """How one kind of command line is told what every session needs."""

    paging: str
    configure: str = "configure terminal"
    width: str = ""
    enters: str = ""
    """What leads from a login shell to the command line."""


_WORDS: Final[Mapping[str, _Words]] = {
    "arista_eos": _Words("terminal length 0", width="terminal width 511"),
    "broadcom_icos": _Words("terminal length 0", "configure"),
    "dell_sonic": _Words("terminal length 0", enters="sonic-cli"),
    "mellanox_mlnxos": _Words("no cli session paging enable"),
}
"""By netmiko's names for them, from whose drivers the words are."""


class CommandLineSession(Session):
    """A session with a terminal, which takes show commands and configuration lines.

    One line a round trip: the next one leaves only after the prompt behind the last one's answer has come, so
    nothing is on its way when a line is refused.
    """

    def __init__(self, device: Device, channel: Channel, dialect: str) -> None:
        self._device = device
        self._channel = channel
        self._words = _WORDS[dialect]
        self._known: Prompt | None = None
        self._prompt = ""
        self._open()

    def ask(self, command: str) -> str:
        """Answer to a show command in privileged mode; raises DeviceError where it is refused."""
        with translated(self._device):
            self._leave_configuration()
            answer = self._send(command, SHOW_SECONDS)
            # Some put a line with a caret under the faulty word before the refusal.
            first = answer.lstrip().removeprefix("^").lstrip()
            if REFUSAL.match(first):
                raise DeviceError(f"refuses {command!r}: {quoted(first)}")
        return answer

    def apply(self, steps: Sequence[Step]) -> None:
        """Enter configuration lines one by one; raises DeviceError at the first that is refused."""
        with translated(self._device):
            if steps:
                self._enter_configuration()
            for index, step in enumerate(steps):
                mode = self._mode
                answer = self._send(step.command, LINE_SECONDS if step.seconds is None else step.seconds)
                if REFUSAL.search(answer):
                    raise refusal(steps, index, quoted(answer))
                if _OPENS_PORT.fullmatch(step.command) and self._mode == mode:
                    raise refusal(steps, index, f"still in the mode of {self._prompt.strip()!r}")

    def hang_up(self) -> None:
        """Close the connection, whatever still waits for it."""
        transport: Transport = self._channel.get_transport()
        transport.close()

    @property
    def _mode(self) -> tuple[str, ...]:
        return () if self._known is None else self._known.mode(self._prompt)

    def _open(self) -> None:
        """Prove that the session can be followed; raises DeviceError."""
        first = self._prompt = self._greeting()
        for _ in range(MAXIMUM_SIGHTINGS):
            self._send("", 2 * _STUCK_SECONDS)
            if Prompt.seen_twice(first, self._prompt) is not None:
                break
            first = self._prompt
        else:
            raise self._odd(f"shows no prompt twice alike, but {first!r} last")
        if self._words.enters and self._prompt.rstrip().endswith("$"):
            self._send(self._words.enters, LINE_SECONDS)
        elif self._prompt.rstrip().endswith(">"):
            self._enable()
        first = self._prompt
        if REFUSAL.search(answer := self._send(self._words.paging, LINE_SECONDS)):
            raise self._pages(
                f"refuses {self._words.paging!r}: {quoted(answer)}; without it, it pages its answers"
            )
        self._known = Prompt.seen_twice(first, self._prompt)
        if self._known is None or not self._prompt.rstrip().endswith("#"):
            raise self._odd(
                f"shows the prompts {first!r} and {self._prompt!r}, where one for configuring is due"
            )
        if self._words.width:
            self._send(self._words.width, LINE_SECONDS)  # where it is refused, broken echoes are known again

    def _greeting(self) -> str:
        """The first line after the login that looks like a prompt."""
        received, keys, waited = bytearray(), 0, 0.0
        while True:
            try:
                data = self._receive(_SETTLE_SECONDS)
            except EOFError:
                if not (printed := quoted(plain(received))):
                    raise
                raise self._odd(f"closes the session before it shows a prompt, with {printed!r}") from None
            received += data
            waited = 0.0 if data else waited + _SETTLE_SECONDS
            if data:
                continue
            text = plain(received)
            line = last_line(text)
            if may_be_prompt(line):
                return line
            if told := expired(text):
                raise self._odd(f"wants a new password before it shows a prompt: {quoted(told)!r}")
            if asks(line) and not waits_for_key(line):
                raise self._odd(f"asks {quoted(line)!r} before it shows a prompt")
            if waits_for_key(line) or (waited >= _STUCK_SECONDS and keys == 0):
                keys, waited = keys + 1, 0.0
                self._channel.sendall(b"\n")
            if keys > MAXIMUM_KEYS or waited >= (_STUCK_SECONDS if text.strip() else SILENCE_SECONDS):
                raise self._odd(f"shows no prompt, but printed {quoted(last_line(text.rstrip()))!r} last")

    def _enable(self) -> None:
        """From the first prompt to the privileged one, by the inventory's password where one is asked."""
        answer = self._send("enable", LINE_SECONDS)
        if asks_password(self._prompt):
            secret = self._device.become_password
            if secret is None:
                raise self._odd(
                    f"asks {quoted(self._prompt)!r} for the privileged mode",
                    "set mltswitch_become_password_env, or let the user log in with all privileges",
                )
            answer = self._send(
                secret.read(self._device.name).get_secret_value(), LINE_SECONDS, is_secret=True
            )
        if not self._prompt.rstrip().endswith("#"):
            raise self._odd(
                f"does not enter privileged mode after 'enable': {quoted(answer) or quoted(self._prompt)}",
                "give the user that right on the device, or correct mltswitch_become_password_env",
            )

    def _odd(self, what: str, hint: str = "") -> DeviceError:
        by_hand = f"log in by hand as {self._device.user}, and see that a prompt follows without a question"
        return DeviceError(what, hint=hint or by_hand)

    def _pages(self, what: str) -> DeviceError:
        hint = f"let {self._device.user} enter {self._words.paging!r}, or switch paging off for its sessions"
        return DeviceError(what, hint=hint)

    def _receive(self, seconds: float) -> bytes:
        """What has come; nothing where nothing comes in time. Raises EOFError at the end of the session."""
        self._channel.settimeout(max(0.0, seconds))
        try:
            data = self._channel.recv(_CHUNK_BYTES)
        except TimeoutError:
            return b""
        if not data:
            raise EOFError
        return data

    def _send(self, line: str, seconds: float, *, is_secret: bool = False) -> str:
        """What the device answers to a line, without the echo before it and the prompt after it."""
        deadline = time.monotonic() + seconds
        received, patience = bytearray(), seconds
        self._channel.settimeout(seconds)
        self._channel.sendall(f"{line}\n".encode())
        echo, shown = ("", "the password") if is_secret else (line, line)
        while (left := deadline - time.monotonic()) > 0:
            if data := self._receive(min(left, patience)):
                received += data
                patience = _SETTLE_SECONDS
                if not _MAY_END.search(received, len(received) - _END_BYTES) or self._channel.recv_ready():
                    continue
                fits = self._prompt.__eq__ if self._known is None else self._known.fits
            else:
                fits = self._seems if self._known is None else self._known.fits
            answer = self._complete(echo, received, fits)
            if answer is not None:
                return answer
            if data:
                continue
            waiting = last_line(plain(received))
            if waits_for_key(waiting):
                raise self._pages(f"waits at a pager, {quoted(waiting)!r}, in its answer to {shown!r}")
            if not (asks(waiting) or may_be_prompt(waiting)) or seconds > SHOW_SECONDS:
                patience = left
            elif patience == _SETTLE_SECONDS:
                patience = _STUCK_SECONDS
            else:
                raise self._odd(f"waits at {quoted(waiting)!r} after {shown!r}, where its prompt was due")
        printed = "" if is_secret else quoted(last_line(plain(received)[_echo_end(echo, plain(received)) :]))
        if self._known is None:
            raise self._odd(
                f"has shown no prompt {seconds:g} s after {shown!r}, but printed {printed!r} last"
            )
        raise too_late(shown, seconds, printed)

    @staticmethod
    def _seems(line: str) -> bool:
        """Whether a line without an end ends an answer while no prompt is known yet."""
        return may_be_prompt(line) or asks_password(line)

    def _complete(self, line: str, received: bytearray, fits: Callable[[str], bool]) -> str | None:
        """The answer, once the line's echo and the prompt behind the answer are there.

        A prompt counts only after the echo, for the device may write messages, and its prompt anew, before it
        reads the line; and only where nothing follows, for shows may quote prompts. Raises DeviceError for an
        answer in which a pager has stopped.
        """
        text = plain(received)
        echo_end = _echo_end(line, text)
        begin = text.find("\n", echo_end) + 1
        answer, _, prompt = text[begin:].rpartition("\n")
        if echo_end < 0 or begin == 0 or not fits(prompt):
            return None
        if marker := pager_in(answer):
            raise self._pages(f"has paged its answer to {line!r}: {quoted(marker)!r} stands in it")
        self._prompt = prompt
        return answer

    def _enter_configuration(self) -> None:
        if not self._mode:
            answer = self._send(self._words.configure, LINE_SECONDS)
            if not self._mode:
                raise DeviceError(f"does not enter configuration mode: {quoted(answer)}")

    def _leave_configuration(self) -> None:
        for _ in range(MAXIMUM_MODES):
            if not self._mode:
                return
            answer = self._send("exit", LINE_SECONDS)
        raise DeviceError(f"does not leave configuration mode: {quoted(answer)}")


def _echo_end(line: str, text: str) -> int:
    """Where the echo of a line ends in what was received; -1: it is not there yet."""
    begin = text.find(line)
    if begin >= 0:
        return begin + len(line)
    # A terminal breaks a line that is longer than it is wide, with line ends, blanks or backspaces.
    broken = r"[\s\b]*".join(re.escape(character) for character in line if not character.isspace())
    match = re.search(broken, text)
    return -1 if match is None else match.end()


@contextmanager
def open_command_line(device: Device, dialect: str) -> Iterator[CommandLineSession]:
    """Connect, check the host key, authenticate, enter privileged mode; disconnects afterwards."""
    with route(device) as through, logged_in(device, through) as transport:
        late = DeviceError(f"has not opened a session after {OPEN_SECONDS:g} s")
        with translated(device), bounded(OPEN_SECONDS, transport.close, late):
            channel = transport.open_session(timeout=OPEN_SECONDS)
            channel.get_pty(*_TERMINAL)
            channel.invoke_shell()
            session = CommandLineSession(device, channel, dialect)
        yield session
