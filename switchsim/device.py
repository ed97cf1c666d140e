"""The interface between the SSH server and an emulated switch, and what all emulated switches share."""

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
    """The output of one line of an interactive session; `closes` ends the session."""

    text: str = ""
    closes: bool = False


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The output and the exit status of one remote command."""

    stdout: bytes = b""
    stderr: bytes = b""
    status: int = 0


class CommandLine(Protocol):
    """One interactive session with an emulated switch."""

    @property
    def prompt(self) -> str:
        """The prompt that the switch prints before each line, without a line end."""
        ...

    def enter(self, line: str) -> Answer:
        """Execute one line and return its output; never raises, whatever the line."""
        ...


class DeviceKind(Protocol):
    """The class of the emulated switches of one OS.

    It is called with a host name, a number of ports and, for a certain hardware, the arguments in `boxes`.
    """

    @property
    def usual_ports(self) -> int:
        """How many ports a switch of this OS has if nothing else is asked for."""
        ...

    @property
    def lanes_per_port(self) -> int:
        """The step between the numbers of neighbouring ports (4: Ethernet0, Ethernet4, …)."""
        ...

    @property
    def boxes(self) -> Mapping[str, Mapping[str, str]]:
        """Name of a hardware, usually its chip → arguments with which an emulated switch of it is made."""
        ...

    @property
    def has_releases(self) -> bool:
        """Whether an emulated switch of this OS can be told which software release it runs."""
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
    """`pgrep -af PATTERN` (pgrep(1)) over the command lines that run, except its own."""
    try:
        found = [line for line in processes if re.search(pattern, line)]
    except re.error:
        return CommandResult(stderr=b"pgrep: invalid pattern\n", status=2)
    text = "".join(f"{number} {line}\n" for number, line in enumerate(found, 1000))
    return CommandResult(text.encode(), status=0 if found else 1)


def grep(options: str, pattern: str, text: str) -> CommandResult:
    """`grep -v` with the options x, q, and E or F (grep(1)): the lines that the pattern does not match."""
    if "v" not in options or not set(options) <= set("-vxqEF"):
        return CommandResult(stderr=b"grep: only -v, -x, -q, -E and -F are emulated [emulator]\n", status=2)
    known = re.compile(re.escape(pattern) if "F" in options else pattern)
    fits = known.fullmatch if "x" in options else known.search
    lines = [line for line in text.splitlines() if not fits(line)]
    shown = "" if "q" in options else "".join(f"{line}\n" for line in lines)
    return CommandResult(shown.encode(), status=0 if lines else 1)


class LockFolder:
    """An emulated world-writable folder of lock files: symbolic links whose names can exist only once."""

    def __init__(self) -> None:
        self.links: dict[str, str] = {}

    def run(self, words: Sequence[str]) -> CommandResult | None:
        """Execute `ln -sT`, `readlink`, `rm -f`, `date +%s` or `test A -eq B`; None for any other command."""
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
"""Port of this switch → (host name, port) of the neighbour that LLDP shows at the other end of the cable."""


def column_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as text: titles, a rule of dashes, then the rows; a column is as wide as its widest cell."""
    cells = [titles, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    lines = (titles, ["-" * width for width in widths], *cells[1:])
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in lines)
    return "".join(f"{line.rstrip()}\n" for line in padded)


class EmulatedDevice:
    """The base of all emulated switches, whose methods may be called from several threads."""

    usual_ports: ClassVar[int] = 32
    lanes_per_port: ClassVar[int] = 1
    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = MappingProxyType({})
    has_releases: ClassVar[bool] = False
    session_class: ClassVar[type[Any]]
    """The class of an interactive session, called with the switch and the user's name."""
    opening: ClassVar[Sequence[str]] = ("enable", "configure terminal")
    """The lines with which a new session enters configuration mode."""

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
        """The host name of the switch, as its prompt shows it."""
        return self._name

    def open_session(self, username: str) -> CommandLine:
        """Start an interactive session of this user, in the mode in which the switch's sessions begin."""
        session: CommandLine = self.session_class(self, username)
        return session

    def configure(self, *lines: str) -> str:
        """Enter lines in configuration mode, without SSH, and return what the switch prints."""
        session = self.open_session("admin")
        return "".join(session.enter(line).text for line in (*self.opening, *lines))

    def execute(self, username: str, command: str, read_stdin: Callable[[], bytes]) -> CommandResult | None:
        """Run a remote command (`ssh host command`); None where the switch does not offer remote commands."""
        del username, command, read_stdin
        return None

    def reboot(self) -> None:
        """Restart the emulated switch with its saved configuration."""
        raise NotImplementedError

    def exclusively(self) -> threading.RLock:
        """The lock to hold while a line is executed, so that sessions do not disturb each other."""
        return self._lock
