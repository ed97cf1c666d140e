"""What the SSH server needs to know about an emulated switch."""

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol


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


class DeviceKind(Protocol):
    """The class of the switches of one OS, made of a host name, a number of ports and what `boxes` says."""

    @property
    def usual_ports(self) -> int:
        """Ports of the box that it is unless told otherwise."""
        ...

    @property
    def lanes_per_port(self) -> int:
        """By how much the numbers of neighbouring ports differ."""
        ...

    @property
    def boxes(self) -> Mapping[str, Mapping[str, str]]:
        """Hardware by name, usually its chip → arguments that make the switch of such a box."""
        ...

    @property
    def has_releases(self) -> bool:
        """Whether it may be told to be one of several releases."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> "EmulatedDevice":
        """A switch as delivered; raises ValueError for what no box has."""
        ...


def serial_number(name: str) -> str:
    """Serial number of an emulated switch: different for each name, the same at each start."""
    return f"EMU{hashlib.sha256(name.encode()).hexdigest()[:9].upper()}"


def mac_address(name: str) -> str:
    """Base MAC address of an emulated switch, locally administered (IEEE 802), different for each name."""
    return f"02:{hashlib.sha256(name.encode()).digest()[:5].hex(':')}"


def pgrep(processes: Iterable[str], pattern: str) -> CommandResult:
    """`pgrep -af PATTERN` (pgrep(1)): command lines that run, of which this one is none."""
    try:
        found = [line for line in processes if re.search(pattern, line)]
    except re.error:
        return CommandResult(stderr=b"pgrep: invalid pattern\n", status=2)
    text = "".join(f"{number} {line}\n" for number, line in enumerate(found, 1000))
    return CommandResult(text.encode(), status=0 if found else 1)


def grep(options: str, pattern: str, text: str) -> CommandResult:
    """`grep -v` with x, q, and E or F (grep(1)): lines that the pattern does not fit."""
    if "v" not in options or not set(options) <= set("-vxqEF"):
        return CommandResult(stderr=b"grep: only -v, -x, -q, -E and -F are emulated [emulator]\n", status=2)
    known = re.compile(re.escape(pattern) if "F" in options else pattern)
    fits = known.fullmatch if "x" in options else known.search
    lines = [line for line in text.splitlines() if not fits(line)]
    shown = "" if "q" in options else "".join(f"{line}\n" for line in lines)
    return CommandResult(shown.encode(), status=0 if lines else 1)


class LockFolder:
    """Symbolic links in a folder where everybody may make some, and nobody may make one twice."""

    def __init__(self) -> None:
        self.links: dict[str, str] = {}

    def run(self, words: Sequence[str]) -> CommandResult | None:
        """`ln -sT`, `readlink` and `rm -f` there, `date +%s`, `test A -eq B`; None for other words."""
        text, error, is_so = "", "", True
        match words:
            case ["date", "+%s"]:
                text = f"{int(time.time())}\n"
            case ["ln", "-sT", target, link] if link.startswith(LOCKS):
                if is_so := link not in self.links:
                    self.links[link] = target
                else:
                    error = f"ln: failed to create symbolic link '{link}': File exists\n"
            case ["readlink", link]:
                is_so = link in self.links
                text = f"{self.links[link]}\n" if is_so else ""
            case ["rm", "-f", link] if link.startswith(LOCKS):
                self.links.pop(link, None)
            case ["test", left, "-eq", right]:
                is_so = left == right
            case _:
                return None
        return CommandResult(text.encode(), error.encode(), 0 if is_so else 1)


LOCKS: Final = "/run/lock/"
Neighbours = dict[str, tuple[str, str]]
"""Port → host name and port of the switch at the other end of its cable, as that says by LLDP."""


def column_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows below a rule of dashes, each column as wide as its widest cell."""
    cells = [titles, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    lines = (titles, ["-" * width for width in widths], *cells[1:])
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in lines)
    return "".join(f"{line.rstrip()}\n" for line in padded)


class EmulatedDevice:
    """An emulated switch, whose methods are called from several threads: what all have."""

    usual_ports: ClassVar[int] = 32
    lanes_per_port: ClassVar[int] = 1
    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = MappingProxyType({})
    has_releases: ClassVar[bool] = False
    session_class: ClassVar[type[Any]]
    """Made of the switch and the user's name."""
    opening: ClassVar[Sequence[str]] = ("enable", "configure terminal")
    """How a session comes to configuration mode."""

    def __init__(self, name: str, ports: int, most_ports: int) -> None:
        if not 1 <= ports <= most_ports:
            raise ValueError(f"{ports} ports, expected 1 to {most_ports}")
        self._name = name
        self._lock = threading.RLock()
        self.neighbours: Neighbours = {}
        """Port → the switch and port that it hears there by LLDP."""
        self.processes: list[str] = []
        """Remote commands that have begun and not ended, also those whose connection is gone."""

    @property
    def name(self) -> str:
        """Host name, as in the prompt."""
        return self._name

    def open_session(self, username: str) -> CommandLine:
        """A session in the mode in which sessions begin."""
        session: CommandLine = self.session_class(self, username)
        return session

    def configure(self, *lines: str) -> str:
        """Enter lines in configuration mode, without SSH; returns what they print."""
        session = self.open_session("admin")
        return "".join(session.enter(line).text for line in (*self.opening, *lines))

    def execute(self, username: str, command: str, read_stdin: Callable[[], bytes]) -> CommandResult | None:
        """Run `ssh host command`; None where the switch offers no such thing."""
        del username, command, read_stdin
        return None

    def reboot(self) -> None:
        """Start anew, with what was saved."""
        raise NotImplementedError

    def exclusively(self) -> threading.RLock:
        """The lock under which lines are executed."""
        return self._lock
