"""The reasons why an emulated switch cannot be started, each told in one line."""

from typing import ClassVar


class SimulatorError(Exception):
    """Base of UsageError and ListenError; never raised itself."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str, expected: str = "") -> None:
        super().__init__(f"{where}: {what}" + (f" (expected {expected})" if expected else ""))


class UsageError(SimulatorError):
    """An option or a key file of the emulator cannot be used."""

    exit_code: ClassVar[int] = 2


class ListenError(SimulatorError):
    """The emulator's address or port cannot be listened on."""

    exit_code: ClassVar[int] = 3
