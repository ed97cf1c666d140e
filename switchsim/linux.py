"""A small Linux for switches whose users enter bash: files in memory, programs, and a shell that runs them.

Each kind of switch adds programs of its own. An interactive session has no standard input for its programs:
put files with a remote command (`ssh host 'tee FILE > /dev/null' < file`).
"""

import errno
import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, TypeVar

from switchsim.bash import ShellSyntaxError, SimpleCommand, parse
from switchsim.device import Answer, CommandResult, EmulatedDevice, LockFolder, grep, pgrep

MAX_PORTS: Final = 64
MAX_TOTAL_BYTES: Final = 64 << 20
MAX_FILES: Final = 256

_NOT_FOUND: Final = 127
_SYNTAX: Final = 2
_Device = TypeVar("_Device", bound="LinuxDevice")


class FileError(OSError):
    """An operation on an emulated file failed."""


class UsageError(Exception):
    """An emulated program refuses its arguments; the text is its message."""


class Filesystem:
    """Emulated files: a few folders, limited in number and size of their files."""

    def __init__(self, home: str, root_folders: tuple[str, ...]) -> None:
        self._files: dict[str, bytes] = {}
        self._home = home
        self._root_folders = root_folders
        self._folders = ("/tmp", "/var/tmp", home, *root_folders)  # noqa: S108 (names inside the emulator)

    def paths(self, folder: str) -> list[str]:
        """Paths of the files directly inside a folder, sorted."""
        return sorted(path for path in self._files if posixpath.dirname(path) == folder)

    def exists(self, path: str) -> bool:
        """Whether the path is that of a file."""
        return self._absolute(path) in self._files

    def read(self, path: str) -> bytes:
        """The contents of the file; raises FileError."""
        absolute = self._absolute(path)
        if absolute not in self._files:
            raise _error(errno.EISDIR if absolute in self._folders else errno.ENOENT, path)
        return self._files[absolute]

    def write(self, path: str, contents: bytes, *, as_root: bool) -> None:
        """Replace or create a file; raises FileError."""
        absolute = self._writable(path, as_root=as_root)
        others = {name: kept for name, kept in self._files.items() if name != absolute}
        if sum(map(len, others.values())) + len(contents) > MAX_TOTAL_BYTES or len(others) >= MAX_FILES:
            raise _error(errno.ENOSPC, path)
        self._files[absolute] = contents

    def remove(self, path: str, *, as_root: bool) -> None:
        """Remove a file; raises FileError."""
        if self._files.pop(self._writable(path, as_root=as_root), None) is None:
            raise _error(errno.ENOENT, path)

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._home, path))

    def _writable(self, path: str, *, as_root: bool) -> str:
        absolute = self._absolute(path)
        folder = posixpath.dirname(absolute)
        if absolute in self._folders:
            raise _error(errno.EISDIR, path)
        if folder not in self._folders:
            raise _error(errno.ENOENT, path)
        if folder in self._root_folders and not as_root:
            raise _error(errno.EACCES, path)
        return absolute


def _error(number: int, path: str) -> FileError:
    return FileError(number, os.strerror(number), path)


@dataclass(frozen=True, slots=True)
class Process(Generic[_Device]):
    """One running program of an emulated Linux switch."""

    device: _Device
    program: str
    arguments: Sequence[str]
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

    def write(self, path: str, contents: bytes, *, append: bool = False) -> None:
        """Create or replace a file, or append to it; raises FileError."""
        if path == "/dev/stdout":
            raise _error(errno.EACCES, path)
        if path != "/dev/null":
            before = self.read(path) if append and self.device.files.exists(path) else b""
            self.device.files.write(path, before + contents, as_root=self.is_root)

    def coloured(self, text: str) -> str:
        """Text underlined in cyan, as the click library prints it on a terminal; elsewhere unchanged."""
        return f"\x1b[36m\x1b[4m{text}\x1b[0m" if self.has_terminal else text


Program = Callable[[Process[Any]], CommandResult]


def output(text: str) -> CommandResult:
    """The result of a program that succeeded and printed this text."""
    return CommandResult(stdout=text.encode())


def failure(text: str, status: int = 1) -> CommandResult:
    """The result of a program that failed and printed this text on standard error."""
    return CommandResult(stderr=text.encode(), status=status)


def options(arguments: Sequence[str], flags: str, valued: str = "") -> tuple[dict[str, list[str]], list[str]]:
    """Parse a program's arguments: options that are there, by first spelling, with values; and operands.

    `flags` and `valued` are words such as `-v/--verbose`. Raises UsageError.
    """
    spellings = {
        spelling: word.partition("/")[0]
        for word in f"{flags} {valued}".split()
        for spelling in word.split("/")
    }
    chosen: dict[str, list[str]] = {}
    operands: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name = spellings.get(argument)
        if name is None and argument.startswith("-"):
            raise UsageError(f"No such option: {argument}")
        if name is None:
            operands.append(argument)
        elif name in flags.replace("/", " ").split():
            chosen.setdefault(name, [])
        elif (value := next(rest, None)) is None:
            raise UsageError(f"Option '{argument}' requires an argument.")
        else:
            chosen.setdefault(name, []).append(value)
    return chosen, operands


# --- programs that every such switch has -------------------------------------------------------------------


def _on_files(paths: Sequence[str], act: Callable[[str], bytes], complaint: str) -> CommandResult:
    """Act on one file after another; what fails is told on standard error."""
    stdout, errors = b"", ""
    for path in paths:
        try:
            stdout += act(path)
        except FileError as error:
            errors += f"{complaint.format(path)}: {error.strerror}\n"
    return CommandResult(stdout, errors.encode(), 1 if errors else 0)


def _cat(process: "Process[LinuxDevice]") -> CommandResult:
    def read(path: str) -> bytes:
        return process.read_stdin() if path == "-" else process.read(path)

    return _on_files(process.arguments or ["-"], read, "cat: {}")


def _tee(process: "Process[LinuxDevice]") -> CommandResult:
    chosen, paths = options(process.arguments, "-a")
    contents = process.read_stdin()

    def write(path: str) -> bytes:
        process.write(path, contents, append="-a" in chosen)
        return b""

    return replace(_on_files(paths, write, "tee: {}"), stdout=contents)


def _rm(process: "Process[LinuxDevice]") -> CommandResult:
    if (result := process.device.locks.run(["rm", *process.arguments])) is not None:
        return result
    chosen, paths = options(process.arguments, "-f --")

    def remove(path: str) -> bytes:
        try:
            process.device.files.remove(path, as_root=process.is_root)
        except FileError as error:
            if "-f" not in chosen or error.errno != errno.ENOENT:
                raise
        return b""

    return _on_files(paths, remove, "rm: cannot remove '{}'")


def _tool(process: "Process[LinuxDevice]") -> CommandResult:
    """What the switches of other kinds have, too."""
    match [process.program, *process.arguments]:
        case ["grep", flags, pattern]:
            return grep(flags, pattern, process.read_stdin().decode())
        case ["pgrep", "-af", pattern]:
            return pgrep(process.device.processes, pattern)
        case ["pgrep", *_]:
            return failure("pgrep: only -af is emulated [emulator]\n", _SYNTAX)
        case words:
            result = process.device.locks.run(words)
            return result or failure(f"{process.program}: not so [emulator]\n", _SYNTAX)


def _echo(process: "Process[LinuxDevice]") -> CommandResult:
    words = list(process.arguments)
    return output(" ".join(words[1:]) if words[:1] == ["-n"] else " ".join(words) + "\n")


TOOLS: Final[Mapping[str, Program]] = MappingProxyType(
    {
        "cat": _cat,
        "tee": _tee,
        "rm": _rm,
        "echo": _echo,
        "true": lambda _process: CommandResult(),
        "false": lambda _process: CommandResult(status=1),
        **dict.fromkeys(("date", "grep", "ln", "pgrep", "readlink", "test"), _tool),
    }
)


# --- the switch and its shell ------------------------------------------------------------------------------


class LinuxDevice(EmulatedDevice):
    """An emulated switch whose users enter bash."""

    programs: ClassVar[Mapping[str, Program]]
    """Name → program, of the programs that this kind of switch has besides TOOLS."""
    home: ClassVar[str]
    root_folders: ClassVar[tuple[str, ...]] = ("/root",)
    vrf: ClassVar[str] = ""
    """The VRF suffix that the prompt shows after the host name; empty: none."""

    def __init__(self, name: str, ports: int) -> None:
        super().__init__(name, ports, MAX_PORTS)
        self.locks = LockFolder()
        self.files = Filesystem(self.home, self.root_folders)

    def open_session(self, username: str) -> "LinuxSession":
        """Start an interactive login shell of this user."""
        return LinuxSession(self, username, has_terminal=True)

    def execute(
        self, username: str, command: str, read_stdin: Callable[[], bytes] = lambda: b""
    ) -> CommandResult:
        """Run a command line as `ssh host COMMAND` does, or as a test does by hand."""
        return LinuxSession(self, username, has_terminal=False).run(command, read_stdin)


class LinuxSession:
    """One shell on an emulated Linux switch."""

    def __init__(self, device: LinuxDevice, username: str, *, has_terminal: bool) -> None:
        self._device = device
        self._username = username
        self._has_terminal = has_terminal
        self._name = "-bash" if has_terminal else "bash: line 1"
        self._is_root = username == "root"
        self._status = 0

    @property
    def prompt(self) -> str:
        """The shell's prompt: `admin@sonic1:~$ `, or `root@sonic1:/home/admin# ` after `sudo -s`."""
        where = f"{self._device.name}{self._device.vrf}"
        if not self._is_root:
            return f"{self._username}@{where}:~$ "
        return f"root@{where}:{'~' if self._username == 'root' else self._device.home}# "

    def enter(self, line: str) -> Answer:
        """Execute one line of the interactive session and return its output."""
        if line.split() in (["sudo", "-s"], ["sudo", "-i"]):
            self._is_root = True
            return Answer()
        if line.split() in (["exit"], ["logout"]):
            closes = not self._is_root or self._username == "root"
            self._is_root = self._username == "root"
            return Answer(closes=closes)
        result = self.run(line, lambda: b"")
        return Answer((result.stdout + result.stderr).decode("utf-8", "replace"))

    def run(self, line: str, read_stdin: Callable[[], bytes]) -> CommandResult:
        """Execute one line; standard input is read only when a program asks for it."""
        try:
            pipelines = parse(line)
        except ShellSyntaxError as error:
            self._status = _SYNTAX
            return failure(f"{self._name}: {error}\n", _SYNTAX)
        stdout = stderr = b""
        for pipeline in pipelines:
            if pipeline.runs_after == ("&&" if self._status else "||"):
                continue
            source, result = read_stdin, CommandResult()
            for command in pipeline.commands:
                is_last = command is pipeline.commands[-1]
                result = self._run(command.with_status(self._status), source, to_terminal=is_last)
                stderr += result.stderr
                source = _constant(result.stdout)
            stdout += result.stdout
            self._status = result.status
        return CommandResult(stdout, stderr, self._status)

    def _run(
        self, command: SimpleCommand, read_stdin: Callable[[], bytes], *, to_terminal: bool
    ) -> CommandResult:
        """One program; its redirections are opened with the shell's rights before it starts."""
        words, paths = command.words, command.redirections
        if words[:1] == ["!"]:
            result = self._run(SimpleCommand(words[1:], paths), read_stdin, to_terminal=to_terminal)
            return replace(result, status=0 if result.status else 1)
        has_terminal = self._has_terminal and to_terminal and paths.keys().isdisjoint({">", ">>"})
        shell = Process(self._device, self._name, words, read_stdin, self._is_root, has_terminal)
        try:
            if "<" in paths:
                shell = replace(shell, read_stdin=_constant(shell.read(paths["<"])))
            for operator in ("2>", ">", ">>"):
                if operator in paths:
                    shell.write(paths[operator], b"", append=operator == ">>")
            result = self._program(shell)
            if "2>&1" in paths:
                result = replace(result, stdout=result.stdout + result.stderr, stderr=b"")
            if "2>" in paths:
                shell.write(paths["2>"], result.stderr)
                result = replace(result, stderr=b"")
            for operator in paths.keys() & {">", ">>"}:
                shell.write(paths[operator], result.stdout, append=operator == ">>")
                result = replace(result, stdout=b"")
        except FileError as error:
            return failure(f"{self._name}: {error.filename}: {error.strerror}\n")
        return result

    def _program(self, shell: "Process[LinuxDevice]") -> CommandResult:
        """What the words of a line name, as the shell starts it."""
        words = list(shell.arguments)
        if not words:
            return CommandResult()
        has_sudo = words[0] == "sudo"
        while has_sudo and words[1:] and words[1] in {"-n", "-E", "-H", "--"}:
            del words[1]
        name, *arguments = words[1:] or ["sudo"] if has_sudo else words
        program = self._device.programs.get(name) or TOOLS.get(name)
        if program is None:
            shown = "sudo" if has_sudo else self._name
            return failure(f"{shown}: {name}: command not found\n", 1 if has_sudo else _NOT_FOUND)
        source = shell.read_stdin
        if name in {"tee", "grep"} or [name, *arguments] == ["cat"] or {"-", "/dev/stdin"} & {*arguments}:
            source = _constant(source())  # a slow peer must not hold the lock
        is_root = self._is_root or has_sudo
        try:
            with self._device.exclusively():
                return program(Process(self._device, name, arguments, source, is_root, shell.has_terminal))
        except (UsageError, UnicodeDecodeError, re.error) as error:
            return failure(f"{name}: {error}\n")


def _constant(contents: bytes) -> Callable[[], bytes]:
    return lambda: contents
