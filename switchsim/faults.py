"""Faults that a test can inject between the SSH channel and the emulated device."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the TCP connection without an answer."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with this text; the device never sees the line."""

    text: str


@dataclass(frozen=True, slots=True)
class Accept:
    """Answer as if all were well; the device never sees the line."""


@dataclass(frozen=True, slots=True)
class Reboot:
    """The device starts anew, with what was saved; all connections close."""


@dataclass(frozen=True, slots=True)
class Late:
    """Think so long, and then do what the line says, whether or not anybody still waits for the answer."""

    seconds: float


Fault = Drop | Refuse | Accept | Reboot | Late


class Faults:
    """No fault at all; subclass and override `on_line` for others."""

    def on_line(self, number: int, line: str) -> Fault | None:
        """Decide about one line before the device sees it.

        `number` counts the lines and remote commands of one SSH connection from 1; empty lines count too.
        """
        del number, line
        return None


@dataclass(slots=True)
class DropBeforeLine(Faults):
    """Lose the connection before a line, found by its number or by a regular expression."""

    number: int | None = None
    pattern: str | None = None
    times: int = 1
    """How many connections suffer; later ones work."""

    def on_line(self, number: int, line: str) -> Fault | None:
        """Drop when the number or the pattern fits, `times` times in all."""
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
        """Refuse when the pattern is found, whatever the number."""
        del number
        return Refuse(self.text) if re.search(self.pattern, line) else None
