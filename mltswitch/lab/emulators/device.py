"""What the SSH server needs to know about an emulated switch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Answer:
    """What one line of an interactive session prints; `closes` ends the session."""

    text: str = ""
    closes: bool = False


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What one remote command prints and returns."""

    stdout: bytes = b""
    stderr: bytes = b""
    status: int = 0


class CommandLine(Protocol):
    """One interactive session."""

    @property
    def prompt(self) -> str:
        """Printed before each line, without a line end."""
        ...

    def enter(self, line: str) -> Answer:
        """Execute one line; never raises, whatever the line."""
        ...


class EmulatedDevice(Protocol):
    """A switch; its methods are called from several threads."""

    @property
    def name(self) -> str:
        """Host name, as in the prompt."""
        ...

    def open_session(self, username: str) -> CommandLine:
        """Start an interactive session."""
        ...

    def execute(self, username: str, command: str, read_stdin: Callable[[], bytes]) -> CommandResult | None:
        """Run `ssh host command`; None where the switch offers no such thing."""
        ...
