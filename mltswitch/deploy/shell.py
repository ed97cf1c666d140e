"""A session with a POSIX shell: one SSH exec channel per command."""

import secrets
import select
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import paramiko

from mltswitch.deploy.session import Session, named, quoted, refusal, too_late
from mltswitch.deploy.ssh import bounded, logged_in, route, translated
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device
from mltswitch.targets import Step

CHANNEL_SECONDS: Final = 60.0
"""Time limit in seconds for a busy switch to open a channel on an open connection."""
COMMAND_SECONDS: Final = 120.0
"""Time limit in seconds for one command, from start to exit status, where its step gives none."""
MAXIMUM_ANSWER_BYTES: Final = 32 * 2**20
"""The most bytes of standard output, and of standard error; the largest configuration is smaller."""

SUDO_BEGIN: Final = "mltswitch-input-begins"
"""Marks where a command's own input begins: sudo may not have read the password line before it."""

_CHUNK_BYTES: Final = 1 << 16
_TICK_MILLISECONDS: Final = 50
"""How soon a full window for standard input is looked at again; output wakes us at once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output and exit status of a remote command."""

    stdout: bytes
    stderr: bytes
    status: int
    """Exit status; -1 where the command ended without one, by a signal for instance."""

    @property
    def complaint(self) -> str:
        """Why the command failed, on one line."""
        text = (self.stderr.strip() or self.stdout.strip()).decode("utf-8", "replace")
        return f"{quoted(text) or 'no message'} (exit status {self.status})"


class ShellSession(Session):
    """A session with a shell: each command runs in a channel of an authenticated SSH connection."""

    def __init__(self, device: Device, transport: paramiko.Transport) -> None:
        self._device = device
        self._transport = transport
        secret = device.become_password if device.become else None
        self._sudo_password = None if secret is None else secret.read(device.name)

    def ask(self, command: str) -> str:
        """Standard output of a command; raises DeviceError where it fails."""
        return self.ask_all((command,))[command]

    def ask_all(self, commands: Sequence[str]) -> dict[str, str]:
        """Standard output of each command, all of them in one channel; raises DeviceError where one fails.

        What a login prints before them, such as the greeting of a shell's profile, is left out.
        """
        mark = secrets.token_hex(8)
        script = "; ".join((f"echo {mark}", *(f"{each}; echo {mark} $?" for each in commands)))
        outcome = self.run(script, seconds=COMMAND_SECONDS * max(1, len(commands)), shown="; ".join(commands))
        found: dict[str, str] = {}
        rest = outcome.stdout.decode("utf-8", "replace").partition(f"{mark}\n")[2]
        for command in commands:
            answer, _, behind = rest.partition(f"{mark} ")
            status, _, rest = behind.partition("\n")
            if status != "0":
                failed = replace(outcome, stdout=answer.encode(), status=int(status or outcome.status))
                with named(self._device):
                    raise DeviceError(f"refuses {command!r}: {failed.complaint}")
            found[command] = answer
        return found

    def apply(self, steps: Sequence[Step]) -> None:
        """Run the steps in order; neighbouring steps that only prepare share a channel.

        Raises DeviceError at the first that fails.
        """
        done = 0
        for prepares, group in groupby(steps, lambda step: step.prepares):
            for part in [tuple(group)] if prepares else [(step,) for step in group]:
                mark = secrets.token_hex(8)
                command = f" && echo {mark} && ".join(step.command for step in part)
                bounds = [COMMAND_SECONDS if step.seconds is None else step.seconds for step in part]
                outcome = self.run(command, part[0].stdin.encode(), sum(bounds))
                if outcome.status != 0:
                    *before, said = outcome.stdout.split(f"{mark}\n".encode())
                    complaint = replace(outcome, stdout=said).complaint
                    raise refusal(steps, done + len(before), complaint)
                done += len(part)

    def hang_up(self) -> None:
        """Close the connection, whatever still waits for it."""
        self._transport.close()

    def run(
        self, command: str, stdin: bytes = b"", seconds: float = COMMAND_SECONDS, shown: str = ""
    ) -> Outcome:
        """Run one command with exactly this input; raises DeviceError if it takes too long or prints too
        much.

        Errors quote `shown`, if given, in place of the command. After an error the connection is closed, for
        the device may still be at work.
        """
        shown = shown or command
        with (
            translated(self._device),
            bounded(seconds, self._transport.close, too_late(shown, seconds)),
            self._transport.open_session(timeout=CHANNEL_SECONDS) as channel,
        ):
            if self._device.become:
                command, stdin = self._as_root(command, stdin)
            channel.exec_command(command)
            stdout, stderr = _exchange(channel, stdin, shown)
            channel.status_event.wait()
            return Outcome(stdout, stderr, channel.exit_status)

    def _as_root(self, command: str, stdin: bytes) -> tuple[str, bytes]:
        """Command and input under sudo; a password goes by standard input, never by an argument."""
        if self._sudo_password is None:
            return f"sudo -n -- sh -c {shlex.quote(command)}", stdin
        skip = f'while IFS= read -r line && [ "$line" != {SUDO_BEGIN} ]; do :; done; '
        password = self._sudo_password.get_secret_value()
        script = shlex.quote(skip + command)
        return f"sudo -S -p '' -- sh -c {script}", f"{password}\n{SUDO_BEGIN}\n".encode() + stdin


def _exchange(channel: paramiko.Channel, stdin: bytes, shown: str) -> tuple[bytes, bytes]:
    """(standard output, standard error) of a command that was started, to their ends.

    It writes and reads in turns, so that neither side waits for the other for ever.
    """
    unsent, stdout, stderr = memoryview(stdin), bytearray(), bytearray()
    is_writing, poll = True, select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        with suppress(OSError):  # of a command that has ended, its exit status tells how
            while unsent and channel.send_ready():
                unsent = unsent[channel.send(bytes(unsent[:_CHUNK_BYTES])) :]
            if is_writing and not unsent:
                channel.shutdown_write()
                is_writing = False
        has_ended = channel.eof_received or channel.closed
        is_quiet = not (channel.recv_ready() or channel.recv_stderr_ready())
        if channel.recv_ready():
            stdout += channel.recv(_CHUNK_BYTES)
        if channel.recv_stderr_ready():
            stderr += channel.recv_stderr(_CHUNK_BYTES)
        if max(len(stdout), len(stderr)) > MAXIMUM_ANSWER_BYTES:
            raise DeviceError(f"answers {shown!r} with more than {MAXIMUM_ANSWER_BYTES} bytes")
        if is_quiet and has_ended:
            return bytes(stdout), bytes(stderr)
        if not has_ended:
            poll.poll(_TICK_MILLISECONDS)


@contextmanager
def open_shell(device: Device) -> Iterator[ShellSession]:
    """Connect, check the host key, authenticate; closes the connection afterwards."""
    with route(device) as channel, logged_in(device, channel) as transport:
        yield ShellSession(device, transport)
