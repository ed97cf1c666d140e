"""What one says to a switch, whatever session it offers."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from mltswitch.errors import DeviceError, MltswitchError
from mltswitch.inventory import Device
from mltswitch.targets import Step, Target

MAXIMUM_QUOTED_CHARACTERS: Final = 300


class Conversation(Protocol):
    """An open session with one device; every method raises DeviceError naming the device."""

    def ask(self, command: str) -> str:
        """What the device answers to a command that changes nothing."""

    def ask_all(self, commands: Sequence[str]) -> dict[str, str]:
        """Command → answer, in as few round trips as the session has."""

    def apply(self, steps: Sequence[Step]) -> None:
        """Send the steps in order; none is sent after one that the device refuses."""

    def hang_up(self) -> None:
        """End the session at once, from any thread: whoever waits for the device fails."""


Connector = Callable[[Device, Target], AbstractContextManager[Conversation]]
"""Opens a conversation, and closes it afterwards; raises DeviceError."""


def refusal(device: Device, steps: Sequence[Step], index: int, answer: str) -> DeviceError:
    """The device refused step `index`; the earlier ones are in effect, the later ones were not sent."""
    return DeviceError(
        f"refuses step {index + 1} of {len(steps)}, {steps[index].command!r}: {answer}", where=place(device)
    )


def too_late(device: Device, command: str, seconds: float) -> DeviceError:
    """The device took longer than we wait; nothing tells it to stop."""
    return DeviceError(
        f"has not finished {command!r} after {seconds:g} s; it may still be running", where=place(device)
    )


def explained(device: Device, error: Exception) -> str:
    """One line for the report; what we did not raise on purpose is a bug of ours, of any length."""
    if isinstance(error, MltswitchError):
        return str(error)
    bug = DeviceError(
        f"a bug in mltswitch: {type(error).__name__}: {quoted(str(error))}", where=place(device)
    )
    return str(bug)


def quoted(text: str) -> str:
    """What a device answered, on one line of bounded length."""
    return " ".join(text.split())[:MAXIMUM_QUOTED_CHARACTERS]


def place(device: Device) -> str:
    """How errors name a device."""
    return f"{device.name} ({device.endpoint})"
