"""A conversation with a vendor's command line, through netmiko."""

import inspect
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from netmiko import BaseConnection, ConnectHandler
from paramiko import Channel

from mltswitch.deploy.conversation import place, quoted, refusal, too_late
from mltswitch.deploy.ssh import (
    AUTHENTICATION_SECONDS,
    BANNER_SECONDS,
    KEEPALIVE_SECONDS,
    bounded,
    credentials,
    knowing_client,
    route,
    translated,
)
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device
from mltswitch.targets import Step

OPEN_SECONDS: Final = 90.0
"""From the TCP connection to the first prompt."""
LINE_SECONDS: Final = 30.0
"""For one configuration line, where its step says nothing else."""
SHOW_SECONDS: Final = 60.0
"""For one show command; the running configuration of a full chassis takes a while."""
REFUSAL: Final = re.compile(
    r"^[ \t]*(?:%|(?i:error|invalid|failed|command not found|incorrect input|an invalid|could not)\b).*",
    re.MULTILINE,
)
"""How command lines begin a refusal: `% Invalid input`, `Error: ...`, `Command not found / ...`."""
PROMPT_CHARACTERS: Final = 16
"""Of the host name and what surrounds it: in configuration modes, some platforms shorten longer ones."""
_OPENS_PORT: Final = re.compile(r"interface \S+")
"""Where a switch ignored it, FASTPATH would take the lines behind it for all its ports."""
MAXIMUM_MODES: Final = 12
"""Modes inside one another; `exit` leaves one."""

_CHUNK_BYTES: Final = 1 << 16
_END_BYTES: Final = 256
_MAY_END: Final = re.compile(rb"[>#](?:\s|\x1b\[[0-9;?]*[A-Za-z])*\Z")
"""A prompt's last character, and what a terminal may get after it."""


class CommandLineConversation:
    """Shows and configuration lines over the terminal that netmiko has opened; see `Conversation`.

    One line a round trip: the next one leaves only after the prompt behind the last one's answer has come, so
    nothing is on its way when a line is refused. netmiko's own calls do the same, but sleep between.
    """

    def __init__(self, device: Device, connection: BaseConnection) -> None:
        assert isinstance(connection.remote_conn, Channel)  # noqa: S101 (netmiko also knows serial lines)
        self._device = device
        self._connection = connection
        self._channel = connection.remote_conn
        self._is_prompt = re.compile(rf"{re.escape(connection.base_prompt[:PROMPT_CHARACTERS])}.*[>#]\s*")
        self._prompt = ""
        self._send("", LINE_SECONDS)
        self._privileged_prompt = self._prompt

    def ask(self, command: str) -> str:
        """Answer to a show command in privileged mode; raises DeviceError where it is refused."""
        with translated(self._device):
            self._leave_configuration()
            answer = self._send(command, SHOW_SECONDS)
        # Some put a line with a caret under the faulty word before the refusal.
        first = answer.lstrip().removeprefix("^").lstrip()
        if REFUSAL.match(first):
            raise DeviceError(f"refuses {command!r}: {quoted(first)}", where=place(self._device))
        return answer

    def ask_all(self, commands: Sequence[str]) -> dict[str, str]:
        """Command → answer, one after the other; raises DeviceError."""
        return {command: self.ask(command) for command in commands}

    def apply(self, steps: Sequence[Step]) -> None:
        """Enter configuration lines one by one; raises DeviceError at the first that is refused."""
        with translated(self._device):
            if steps:
                self._enter_configuration()
            for index, step in enumerate(steps):
                prompt = self._prompt
                answer = self._send(step.command, LINE_SECONDS if step.seconds is None else step.seconds)
                if REFUSAL.search(answer):
                    raise refusal(self._device, steps, index, quoted(answer))
                if _OPENS_PORT.fullmatch(step.command) and self._prompt == prompt:
                    raise refusal(self._device, steps, index, f"still in the mode of {prompt.strip()!r}")

    def hang_up(self) -> None:
        """Close the connection under whatever runs."""
        if self._connection.remote_conn_pre is not None:
            self._connection.remote_conn_pre.close()

    def _send(self, line: str, seconds: float) -> str:
        """What the device answers to a line, without the echo before it and the prompt after it."""
        deadline = time.monotonic() + seconds
        received = bytearray()
        self._channel.settimeout(seconds)
        try:
            self._channel.sendall(f"{line}\n".encode())
            while True:
                self._channel.settimeout(max(0.0, deadline - time.monotonic()))
                data = self._channel.recv(_CHUNK_BYTES)
                if not data:
                    raise EOFError
                received += data
                if _MAY_END.search(received, len(received) - _END_BYTES):
                    answer = self._complete(line, received)
                    if answer is not None:
                        return answer
        except TimeoutError:
            raise too_late(self._device, line, seconds) from None

    def _complete(self, line: str, received: bytearray) -> str | None:
        """The answer, once the line's echo and the prompt behind the answer are there.

        A prompt counts only after the echo, for the device may write messages, and its prompt anew, before it
        reads the line; and only where nothing follows, for shows may quote prompts.
        """
        text = received.decode("utf-8", "ignore")
        if "\x1b" in text:
            text = self._connection.strip_ansi_escape_codes(text)
        text = self._connection.normalize_linefeeds(text)
        echo_end = _echo_end(line, text)
        begin = text.find("\n", echo_end) + 1
        answer, _, prompt = text[begin:].rpartition("\n")
        if echo_end < 0 or begin == 0 or self._is_prompt.fullmatch(prompt) is None:
            return None
        self._prompt = prompt
        return answer

    def _enter_configuration(self) -> None:
        if self._prompt == self._privileged_prompt:
            # netmiko knows how each platform is told, but its method waits in silence to learn the mode.
            parameters = inspect.signature(self._connection.config_mode).parameters
            answer = self._send(parameters["config_command"].default, LINE_SECONDS)
            if self._prompt == self._privileged_prompt:
                raise DeviceError(
                    f"does not enter configuration mode: {quoted(answer)}", where=place(self._device)
                )

    def _leave_configuration(self) -> None:
        for _ in range(MAXIMUM_MODES):
            if self._prompt == self._privileged_prompt:
                return
            answer = self._send("exit", LINE_SECONDS)
        raise DeviceError(f"does not leave configuration mode: {quoted(answer)}", where=place(self._device))


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
def _spoken(device: Device) -> Iterator[None]:
    """netmiko's errors as ours; a ValueError is a prompt or a mode that it waited for in vain."""
    with translated(device):
        try:
            yield
        except ValueError as error:
            raise DeviceError(
                f"does not behave as its platform should: {quoted(str(error))}", where=place(device)
            ) from None


@contextmanager
def open_command_line(device: Device, netmiko_type: str) -> Iterator[CommandLineConversation]:
    """Connect, check the host key, authenticate, enter privileged mode; disconnects afterwards."""
    with route(device) as channel:
        connection = _unconnected(device, netmiko_type, channel)
        late = DeviceError(f"has not opened a session after {OPEN_SECONDS:g} s", where=place(device))

        def hang_up() -> None:
            if connection.remote_conn_pre is not None:
                connection.remote_conn_pre.close()

        try:
            with _spoken(device), bounded(OPEN_SECONDS, hang_up, late):
                connection._open()
                connection.enable()
                conversation = CommandLineConversation(device, connection)
            yield conversation
        finally:
            hang_up()  # first, for netmiko would ask the device for its mode once more
            connection.disconnect()


def _unconnected(device: Device, netmiko_type: str, channel: Channel | None) -> BaseConnection:
    secret = None if device.become_password is None else device.become_password.read(device.name)
    connection: BaseConnection = ConnectHandler(
        device_type=netmiko_type,
        host=device.address,
        port=device.port,
        username=device.user,
        **credentials(device),
        use_keys=False,  # with True, netmiko offers the operator's personal keys, too
        secret="" if secret is None else secret.get_secret_value(),
        sock=channel,
        ssh_strict=True,
        system_host_keys=False,
        conn_timeout=device.connect_seconds,
        banner_timeout=BANNER_SECONDS,
        auth_timeout=AUTHENTICATION_SECONDS,
        keepalive=KEEPALIVE_SECONDS,
        auto_connect=False,  # so that there is something to hang up while it connects
    )
    # With a file, netmiko would read all of it for each device.
    connection._get_ssh_client_instance = lambda: knowing_client(device)  # type: ignore[method-assign]
    return connection
