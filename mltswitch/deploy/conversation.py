"""What one says to a switch, whatever session it offers."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from mltswitch.errors import DeviceError
from mltswitch.inventory import Device
from mltswitch.targets import Step, Target


class Conversation(Protocol):
    """An open session with one device; every method raises DeviceError naming the device."""

    def ask(self, command: str) -> str:
        """What the device answers to a command that changes nothing."""

    def apply(self, steps: Sequence[Step]) -> None:
        """Send the steps in order; none is sent after one that the device refuses."""


Connector = Callable[[Device, Target], AbstractContextManager[Conversation]]
"""Opens a conversation, and closes it afterwards; raises DeviceError."""


def refusal(device: Device, steps: Sequence[Step], index: int, answer: str) -> DeviceError:
    """The device refused step `index`; the earlier ones are in effect, the later ones were not sent."""
    return DeviceError(
        f"refuses step {index + 1} of {len(steps)}, {steps[index].command!r}: {answer}", where=place(device)
    )


def place(device: Device) -> str:
    """How errors name a device."""
    return f"{device.name} ({device.endpoint})"
