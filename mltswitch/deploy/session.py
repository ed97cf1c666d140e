"""The interface of a session with a switch, whichever kind it is."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

from mltswitch.errors import DeviceError, MltswitchError, RefusedError, UserInputError
from mltswitch.inventory import Device
from mltswitch.targets import Step, Target

MAXIMUM_QUOTED_CHARACTERS: Final = 300
LINE_SECONDS: Final = 30.0
"""Time limit in seconds for one configuration line, where its step gives none."""
REFUSED_STEP: Final = re.compile(
    r"refuses step \d+ of \d+, (?P<quote>['\"])(?P<line>.*?)(?P=quote): (?P<answer>.*)"
)
"""What `refusal` says, in an error's line."""


class Session(Protocol):
    """An open session with one device; every method raises DeviceError, which `named` completes."""

    def ask(self, command: str) -> str:
        """The device's answer to a command that changes nothing."""

    def ask_all(self, commands: Sequence[str]) -> dict[str, str]:
        """Command → answer, in as few round trips as the session has: one each, unless it can do better."""
        return {command: self.ask(command) for command in commands}

    def apply(self, steps: Sequence[Step]) -> None:
        """Send the steps in order; none is sent after one that the device refuses."""

    def hang_up(self) -> None:
        """End the session at once, from any thread; whoever waits for the device gets an error."""


Connector = Callable[[Device, Target], AbstractContextManager[Session]]
"""Opens a session with a device, and closes it afterwards; raises DeviceError."""


def check_steps(steps: Iterable[Step]) -> None:
    """Check each step before it is sent: a line end in it would make two commands of one."""
    for step in steps:
        if not step.command.isprintable():
            raise UserInputError(
                f"the line {step.command!r} has a control character in it, so it is not sent"
            )


def refusal(steps: Sequence[Step], index: int, answer: str, hint: str = "") -> RefusedError:
    """The error that the device refused step `index`; earlier ones are in effect, later ones unsent."""
    what = f"refuses step {index + 1} of {len(steps)}, {steps[index].command!r}: {answer}"
    error = RefusedError(what, hint=hint)
    error.index, error.answer = index, answer
    return error


def too_late(command: str, seconds: float, printed: str = "") -> DeviceError:
    """The error that the device did not answer in time; it may still carry the command out."""
    last = f"; last it printed {printed!r}" if printed else ""
    return DeviceError(f"has not finished {command!r} after {seconds:g} s; it may still be running{last}")


@contextmanager
def named(device: Device) -> Iterator[None]:
    """Add the device's name to device errors from inside, before the command, file or field in them."""
    try:
        yield
    except DeviceError as error:
        _name(device, error)
        raise


def _name(device: Device, error: DeviceError) -> None:
    if f"{device.name} (" not in error.where:  # which those of its jump hosts have in it
        within = "" if error.where == device.endpoint else error.where
        error.where = ": ".join(filter(None, (place(device), within)))


def explained(device: Device, error: Exception) -> str:
    """The error as one line for the report; one that mltswitch does not raise on purpose is called a bug."""
    if not isinstance(error, MltswitchError):
        error = DeviceError(f"a bug in mltswitch: {type(error).__name__}: {quoted(str(error))}")
    if isinstance(error, DeviceError):
        _name(device, error)
    return str(error)


def quoted(text: str) -> str:
    """A device's answer on one line of limited length, for messages."""
    return " ".join(text.split())[:MAXIMUM_QUOTED_CHARACTERS]


def place(device: Device) -> str:
    """The device's name and address, as errors name it."""
    return f"{device.name} ({device.endpoint})"
