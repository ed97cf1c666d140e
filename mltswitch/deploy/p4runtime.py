"""A conversation with a BMv2 switch: P4Runtime, and BMv2's own client for the depth of queues."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from mltswitch.deploy.conversation import place, quoted, refusal
from mltswitch.errors import DeviceError, MltswitchError, UserInputError
from mltswitch.inventory import Device
from mltswitch.inventory.device import UNIX_SOCKET
from mltswitch.p4.program import shipped_program
from mltswitch.targets import Step
from mltswitch.targets.p4runtime import (
    COUNTERS,
    ENTRIES,
    LOAD_PROGRAM,
    METERS,
    NO_PROGRAM,
    OUR_PROGRAM,
    PIPELINE,
    SET_QUEUE_DEPTH,
)

if TYPE_CHECKING:
    from mltswitch.p4.control import Switch

CLI: Final = "simple_switch_CLI"
"""BMv2's own client for its thrift port; installed with BMv2."""
CLI_SECONDS: Final = 20.0
_NO_PACKAGE: Final = "ModuleNotFoundError"
"""It takes the first python3 of the PATH; that of a virtual environment may lack its packages."""
_SYSTEM_PATH: Final = "/usr/bin:/bin"
_REFUSALS: Final = ("Error", "Invalid", "Could not", "Unknown")
"""How the client begins the line that says what went wrong; its exit status does not tell."""


def check_p4runtime() -> None:
    """Raise MachineError where the program that would be loaded is missing."""
    shipped_program()


@contextmanager
def open_p4runtime(device: Device) -> Iterator["P4RuntimeConversation"]:
    """Connect to read; who is primary is asked when there is something to write."""
    with ExitStack() as stack:
        yield P4RuntimeConversation(device, stack)


class P4RuntimeConversation:
    """Words of targets/p4runtime.py over gRPC; see `Conversation`."""

    def __init__(self, device: Device, stack: ExitStack) -> None:
        self._device = device
        self._stack = stack
        self._program = shipped_program()
        with self._named():
            self._reader = self._open(primary=False)
        self._writer: Switch | None = None

    def ask(self, command: str) -> str:
        """The program, the entries or the meters; none of a program that is not ours."""
        with self._named():
            cookie = self._reader.cookie()
            if command == PIPELINE:
                return self._named_program(cookie)
            if cookie != self._program.cookie:
                return ""
            if command == ENTRIES:
                return "\n".join(self._reader.entries())
            if command == METERS:
                return "\n".join(self._reader.meters())
            if command == COUNTERS:
                return json.dumps(
                    {
                        f"{port} {queue}": {name: count["packets"] for name, count in asdict(found).items()}
                        for (port, queue), found in self._reader.counters().items()
                    }
                )
        raise DeviceError(f"has no answer to {command!r}: it speaks P4Runtime", where=place(self._device))

    def apply(self, steps: Sequence[Step]) -> None:
        """Carry out the steps one by one: of a batch, BMv2 would go on behind an entry that it refuses."""
        if not steps:
            return
        with self._named():
            writer = self._primary()
        for index, step in enumerate(steps):
            try:
                self._carry_out(writer, step.command)
            except (DeviceError, UserInputError) as error:
                raise self._refused(steps, index, error) from None

    def _carry_out(self, writer: "Switch", command: str) -> None:
        if command == LOAD_PROGRAM:
            writer.load(self._program)
        elif command.startswith(f"{SET_QUEUE_DEPTH} "):
            _by_thrift(self._device, command)
        else:
            writer.write([command])

    def _primary(self) -> "Switch":
        if self._writer is None:
            self._writer = self._open(primary=True)
        return self._writer

    def _open(self, *, primary: bool) -> "Switch":
        from mltswitch.p4.control import open_switch

        device = self._device
        return self._stack.enter_context(
            open_switch(device.endpoint, device_id=device.device_id, primary=primary)
        )

    def _named_program(self, cookie: int | None) -> str:
        if cookie == self._program.cookie:
            return OUR_PROGRAM
        return NO_PROGRAM if cookie is None else f"cookie {cookie:#018x}"

    def _refused(self, steps: Sequence[Step], index: int, error: MltswitchError) -> DeviceError:
        refused = refusal(self._device, steps, index, quoted(error.what))
        refused.hint = error.hint
        return refused

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors name the device as the inventory does."""
        try:
            yield
        except DeviceError as error:
            error.where = place(self._device)
            raise


def _by_thrift(device: Device, line: str) -> None:
    """Let BMv2's own client say it; where its port is not reached, whoever starts the switch says it."""
    if not device.thrift_port:
        return
    address = "127.0.0.1" if device.address.startswith(UNIX_SOCKET) else device.address
    command = [CLI, "--thrift-ip", address, "--thrift-port", str(device.thrift_port)]
    done = _run(command, line, None)
    if _NO_PACKAGE in done.stderr:
        done = _run(command, line, f"{_SYSTEM_PATH}:{os.environ.get('PATH', '')}")
    lines = [text.removeprefix("RuntimeCmd: ") for text in (done.stdout + done.stderr).splitlines()]
    faults = [text for text in lines if text.startswith(_REFUSALS)]
    if done.returncode or faults:
        said = faults[:1] or [text for text in lines if text.strip()][-1:] or ["no message"]
        raise DeviceError(
            f"{CLI} fails at port {device.thrift_port}: {quoted(said[0])} (exit status {done.returncode})",
            hint="check mltswitch_thrift_port",
        )


def _run(command: Sequence[str], line: str, path: str | None) -> "subprocess.CompletedProcess[str]":
    """Feed it one line; `path` is where it looks for its interpreter; raises DeviceError."""
    program = shutil.which(command[0])
    if program is None:
        raise DeviceError(
            f"{CLI} is not installed, and P4Runtime cannot set the depth of queues",
            hint=f"install BMv2 here, or enter {line!r} in {CLI} where the switch runs and set "
            "mltswitch_thrift_port: 0",
        )
    try:
        return subprocess.run(
            [program, *command[1:]],
            input=f"{line}\n",
            capture_output=True,
            text=True,
            timeout=CLI_SECONDS,
            check=False,
            errors="replace",
            env=os.environ if path is None else os.environ | {"PATH": path},
        )
    except subprocess.TimeoutExpired:
        raise DeviceError(f"{CLI} has not finished after {CLI_SECONDS:g} s") from None
    except OSError as error:
        raise DeviceError(f"{CLI} cannot be started: {error.strerror}") from None
