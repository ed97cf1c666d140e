"""Why a simulated switch cannot be started, in one line each."""

from typing import ClassVar


class SimulatorError(Exception):
    """Base of both kinds; never raised itself."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str, expected: str = "") -> None:
        super().__init__(f"{where}: {what}" + (f" (expected {expected})" if expected else ""))


class UsageError(SimulatorError):
    """An option or a key file cannot be used."""

    exit_code: ClassVar[int] = 2


class ListenError(SimulatorError):
    """The address cannot be taken."""

    exit_code: ClassVar[int] = 3
