"""What a program on an emulated SONiC switch gets, and what it may fail with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from switchsim.device import CommandResult
from switchsim.sonic_filesystem import FileError

if TYPE_CHECKING:
    from switchsim.sonic import SonicDevice


class UsageError(Exception):
    """A program refuses its arguments; the text is its message."""


@dataclass(frozen=True, slots=True)
class Process:
    """One running program."""

    device: "SonicDevice"
    arguments: Sequence[str]
    """Without the program's name."""
    read_stdin: Callable[[], bytes]
    is_root: bool
    has_terminal: bool

    def read(self, path: str) -> bytes:
        """A file's contents; `/dev/stdin` is standard input. Raises FileError."""
        if path == "/dev/stdin":
            return self.read_stdin()
        if path == "/dev/null":
            return b""
        return self.device.files.read(path)

    def write(self, path: str, contents: bytes) -> None:
        """Replace a file; raises FileError."""
        if path == "/dev/stdout":
            raise FileError("Permission denied")
        if path != "/dev/null":
            self.device.files.write(path, contents, as_root=self.is_root)

    def coloured(self, text: str) -> str:
        """Underlined cyan, as the click library prints to a terminal and to nothing else."""
        return f"\x1b[36m\x1b[4m{text}\x1b[0m" if self.has_terminal else text


Program = Callable[[Process], CommandResult]


def output(text: str) -> CommandResult:
    """Success with this text."""
    return CommandResult(stdout=text.encode())


def failure(text: str, status: int = 1) -> CommandResult:
    """Failure with this text on standard error."""
    return CommandResult(stderr=text.encode(), status=status)


def options(arguments: Sequence[str], flags: set[str], valued: set[str]) -> tuple[dict[str, str], list[str]]:
    """Options (a flag's value is empty) and operands; raises UsageError."""
    found: dict[str, str] = {}
    operands: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in valued:
            value = next(rest, None)
            if value is None:
                raise UsageError(f"Option '{argument}' requires an argument.")
            found[argument] = value
        elif argument in flags:
            found[argument] = ""
        elif argument.startswith("-"):
            raise UsageError(f"No such option: {argument}")
        else:
            operands.append(argument)
    return found, operands
