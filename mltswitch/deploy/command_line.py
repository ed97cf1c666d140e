"""A conversation with a vendor's command line, through netmiko."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from netmiko import BaseConnection, ConnectHandler, ReadTimeout
from paramiko import Channel

from mltswitch.deploy.conversation import place, quoted, refusal, too_late
from mltswitch.deploy.ssh import (
    AUTHENTICATION_SECONDS,
    BANNER_SECONDS,
    KEEPALIVE_SECONDS,
    bounded,
    credentials,
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


class CommandLineConversation:
    """Shows and configuration lines over one netmiko connection; see `Conversation`."""

    def __init__(self, device: Device, connection: BaseConnection) -> None:
        self._device = device
        self._connection = connection
        self._configuring = False

    def ask(self, command: str) -> str:
        """Answer to a show command in privileged mode; raises DeviceError where it is refused."""
        with _spoken(self._device):
            self._leave_configuration()
            # The prompt ends the answer only where nothing follows it: show commands may quote it.
            prompt = rf"(?m:^){re.escape(self._connection.base_prompt)}[^\n]*[>#]\s*\Z"
            answer = str(
                self._connection.send_command(command, expect_string=prompt, read_timeout=SHOW_SECONDS)
            )
        # Some put a line with a caret under the faulty word before the refusal.
        first = answer.lstrip().removeprefix("^").lstrip()
        if REFUSAL.match(first):
            raise DeviceError(f"refuses {command!r}: {quoted(first)}", where=place(self._device))
        return answer

    def apply(self, steps: Sequence[Step]) -> None:
        """Enter configuration lines one by one; raises DeviceError at the first that is refused."""
        for index, step in enumerate(steps):
            with _spoken(self._device):
                self._enter_configuration()
                answer = self._send(step.command, LINE_SECONDS if step.seconds is None else step.seconds)
            if REFUSAL.search(answer):
                raise refusal(self._device, steps, index, quoted(self._without_frame(answer)))

    def _send(self, line: str, seconds: float) -> str:
        try:
            return self._connection.send_config_set(
                [line],
                enter_config_mode=False,
                exit_config_mode=False,
                read_timeout=seconds,
                bypass_commands="",
            )
        except ReadTimeout:
            raise too_late(self._device, line, seconds) from None

    def _enter_configuration(self) -> None:
        if not self._configuring:
            self._connection.config_mode()
            self._configuring = True

    def _leave_configuration(self) -> None:
        if self._configuring:
            self._connection.exit_config_mode()
            self._configuring = False

    def _without_frame(self, answer: str) -> str:
        """The answer without the echo before it and the prompt after it."""
        lines = answer.splitlines()[1:]
        return "\n".join(line for line in lines if not line.startswith(self._connection.base_prompt))


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
            yield CommandLineConversation(device, connection)
        finally:
            connection.disconnect()


def _unconnected(device: Device, netmiko_type: str, channel: Channel | None) -> BaseConnection:
    secret = None if device.become_password is None else device.become_password.read(device.name)
    return ConnectHandler(
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
        alt_host_keys=True,
        alt_key_file=str(device.known_hosts_file),
        conn_timeout=device.connect_seconds,
        banner_timeout=BANNER_SECONDS,
        auth_timeout=AUTHENTICATION_SECONDS,
        keepalive=KEEPALIVE_SECONDS,
        auto_connect=False,  # so that there is something to hang up while it connects
    )
