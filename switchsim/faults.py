"""Faults that a test can inject between the SSH channel and the emulated device."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drop:
    """The server closes the TCP connection without an answer to the line."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server answers with this text instead; the device never sees the line."""

    text: str


@dataclass(frozen=True, slots=True)
class Accept:
    """The server answers as if the line had succeeded; the device never sees it."""


@dataclass(frozen=True, slots=True)
class Reboot:
    """The device restarts with its saved configuration; all connections close."""


@dataclass(frozen=True, slots=True)
class Late:
    """The device executes the line only after a delay, even if nobody waits for the answer any more."""

    seconds: float


Fault = Drop | Refuse | Accept | Reboot | Late


class Faults:
    """Injects no fault; subclass it and override `on_line` to inject some."""

    def on_line(self, number: int, line: str) -> Fault | None:
        """The fault to inject at this line, before the device sees it; None: no fault.

        `number` counts the lines and remote commands of one SSH connection from 1; empty lines count too.
        """
        del number, line
        return None


@dataclass(slots=True)
class DropBeforeLine(Faults):
    """Closes the connection before a line, which is found by its number or by a regular expression."""

    number: int | None = None
    pattern: str | None = None
    times: int = 1
    """How many times a connection is lost; after that, every line works."""

    def on_line(self, number: int, line: str) -> Fault | None:
        """`Drop()` for a line whose number or text matches, `times` times in all; else None."""
        fits = number == self.number or (
            self.pattern is not None and re.search(self.pattern, line) is not None
        )
        if not fits or self.times <= 0:
            return None
        self.times -= 1
        return Drop()


@dataclass(slots=True)
class RefuseLine(Faults):
    """Refuse every line in which a regular expression is found."""

    pattern: str
    text: str = "% Refused by a fault that a test injected [emulator]"

    def on_line(self, number: int, line: str) -> Fault | None:
        """A `Refuse` for a line in which the regular expression is found; else None."""
        del number
        return Refuse(self.text) if re.search(self.pattern, line) else None
