"""An emulated SONiC switch: a configuration database behind a small bash.

Stateful and strict: what the YANG models, the configuration updater or orchagent refuse changes nothing.
`config` needs root (`sudo`, no password). An interactive session has no standard input for its programs: put
files with a remote command (`ssh host 'tee FILE > /dev/null' < file`).
"""

import json
import posixpath
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar, Final

from switchsim.device import Answer, CommandResult, LockFolder, NamedDevice
from switchsim.sonic_config import CHECKPOINT_SUFFIX, CHECKPOINTS, CONFIG_FILE
from switchsim.sonic_defaults import BOXES, DEFAULT_BOX, LANES_PER_PORT, MAX_PORTS, default_database
from switchsim.sonic_filesystem import FileError, Filesystem
from switchsim.sonic_process import Process, UsageError, failure
from switchsim.sonic_programs import PROGRAMS
from switchsim.sonic_shell import Pipeline, ShellSyntaxError, SimpleCommand, parse
from switchsim.sonic_yang import Database, Entry

DEFAULT_RELEASE: Final = "202511"
VERSION_FILE: Final = "/etc/sonic/sonic_version.yml"
_NOT_FOUND: Final = 127
_SYNTAX: Final = 2
_BGP: Final = (
    "Building configuration...\n\nCurrent configuration:\n!\nfrr defaults traditional\nhostname {}\nend\n"
)


class SonicDevice(NamedDevice):
    """One switch, ports Ethernet0, Ethernet4, …; `config_db` is what runs, replaced whole by each change."""

    lanes_per_port: ClassVar[int] = LANES_PER_PORT
    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {name: {"box": name} for name in BOXES}
    has_releases: ClassVar[bool] = True

    def __init__(
        self, name: str = "sonic1", ports: int = 16, box: str = DEFAULT_BOX, release: str = DEFAULT_RELEASE
    ) -> None:
        super().__init__(name, ports, MAX_PORTS)
        if box not in BOXES:
            raise ValueError(f"box {box}, expected one of {', '.join(BOXES)}")
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", release):
            raise ValueError(f"release {release}, expected for example {DEFAULT_RELEASE}")
        self.build = f"{release}.0-emulator"
        """What it runs, as /etc/sonic/sonic_version.yml names it."""
        self.locks = LockFolder()
        self.config_db: Database = default_database(name, ports, box)
        self.files = Filesystem()
        self.files.write(CONFIG_FILE, self.print_data().encode(), as_root=True)
        version = f"---\nbuild_version: '{self.build}'\nasic_type: {BOXES[box].maker}\n"
        self.files.write(VERSION_FILE, version.encode(), as_root=True)
        self.restarts = 0
        """How often `config reload` restarted the services."""
        self.timers: dict[str, threading.Timer] = {}
        """Transient units of systemd that wait for their time."""

    @property
    def checkpoints(self) -> list[str]:
        """Names of the checkpoints, sorted."""
        return [
            posixpath.basename(path).removesuffix(CHECKPOINT_SUFFIX) for path in self.files.paths(CHECKPOINTS)
        ]

    @property
    def ports(self) -> MappingProxyType[str, Entry]:
        """Table PORT."""
        return MappingProxyType(dict(self.config_db.get("PORT", {})))

    def print_data(self) -> str:
        """The database as `sonic-cfggen -d --print-data` prints it."""
        return json.dumps(self.config_db, indent=4, sort_keys=True) + "\n"

    def print_running(self) -> str:
        """`show runningconfiguration all`: the database, and the routing daemon's configuration as text."""
        running = json.loads(self.print_data()) | {"bgpraw": _BGP.format(self._name)}
        return json.dumps(running, indent=4) + "\n"

    def reboot(self) -> None:
        """Start anew, with what was saved."""
        with self._lock:
            self.config_db = json.loads(self.files.read(CONFIG_FILE))
            self.locks.links.clear()

    def open_session(self, username: str) -> "SonicSession":
        """A login shell."""
        return SonicSession(self, username, has_terminal=True)

    def execute(
        self, username: str, command: str, read_stdin: Callable[[], bytes] = lambda: b""
    ) -> CommandResult:
        """Run a command line as `ssh host COMMAND` does, or as a test does by hand."""
        return SonicSession(self, username, has_terminal=False).run(command, read_stdin)


class SonicSession:
    """One shell."""

    def __init__(self, device: SonicDevice, username: str, *, has_terminal: bool) -> None:
        self._device = device
        self._username = username
        self._has_terminal = has_terminal
        self._is_root = username == "root"
        self._status = 0
        self._is_over = False

    @property
    def prompt(self) -> str:
        """`admin@sonic1:~$ `, or `root@sonic1:/home/admin# ` after `sudo -s`."""
        if not self._is_root:
            return f"{self._username}@{self._device.name}:~$ "
        return f"root@{self._device.name}:{'~' if self._username == 'root' else '/home/admin'}# "

    def enter(self, line: str) -> Answer:
        """Execute one line of an interactive session."""
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
        source = "-bash" if self._has_terminal else "bash: line 1"
        try:
            pipelines = parse(line)
        except ShellSyntaxError as error:
            self._status = _SYNTAX
            return failure(f"{source}: {error}\n", _SYNTAX)
        stdout = stderr = b""
        for pipeline in pipelines:
            if (pipeline.runs_after == "&&" and self._status) or (
                pipeline.runs_after == "||" and not self._status
            ):
                continue
            result = self._run_pipeline(pipeline, read_stdin, source)
            stdout += result.stdout
            stderr += result.stderr
            self._status = result.status
        return CommandResult(stdout, stderr, self._status)

    def _run_pipeline(
        self, pipeline: Pipeline, read_stdin: Callable[[], bytes], source: str
    ) -> CommandResult:
        stderr = b""
        result = CommandResult()
        for position, command in enumerate(pipeline.commands):
            is_last = position == len(pipeline.commands) - 1
            result = self._run_command(
                command.with_status(self._status), read_stdin, source, to_terminal=is_last
            )
            stderr += result.stderr
            read_stdin = _constant(result.stdout)
        return CommandResult(result.stdout, stderr, result.status)

    def _run_command(
        self, command: SimpleCommand, read_stdin: Callable[[], bytes], source: str, *, to_terminal: bool
    ) -> CommandResult:
        if command.words[:1] == ["!"]:
            inner = replace(command, words=command.words[1:])
            result = self._run_command(inner, read_stdin, source, to_terminal=to_terminal)
            return replace(result, status=0 if result.status else 1)
        words, is_root = _without_sudo(command.words, self._is_root)
        shell = Process(self._device, (), read_stdin, self._is_root, has_terminal=False)
        has_terminal = self._has_terminal and to_terminal and command.stdout_path is None
        try:
            if command.stdin_path is not None:
                read_stdin = _constant(shell.read(command.stdin_path))
            before = _opened(shell, command)
            program = PROGRAMS.get(words[0]) if words else None
            if program is None:
                name = words[0] if words else "sudo"
                sudo = f"sudo: {name}: command not found\n"
                text = sudo if command.words[0] == "sudo" else f"{source}: {name}: command not found\n"
                result = failure(text, 1 if command.words[0] == "sudo" else _NOT_FOUND)
            else:
                if _reads_stdin(words):
                    read_stdin = _constant(read_stdin())  # a slow peer must not hold the lock
                with self._device.exclusively():
                    result = program(Process(self._device, words[1:], read_stdin, is_root, has_terminal))
            return _redirected(shell, command, before, result)
        except UsageError as error:
            return failure(f"{words[0]}: {error}\n")
        except FileError as error:
            path = command.stdin_path or command.stdout_path or command.stderr_path
            return failure(f"{source}: {path}: {error}\n")


def _constant(contents: bytes) -> Callable[[], bytes]:
    return lambda: contents


def _reads_stdin(words: list[str]) -> bool:
    return words[0] == "tee" or words == ["cat"] or not {"-", "/dev/stdin"}.isdisjoint(words)


def _without_sudo(words: list[str], is_root: bool) -> tuple[list[str], bool]:
    if not words or words[0] != "sudo":
        return words, is_root
    rest = words[1:]
    while rest and rest[0] in {"-n", "-E", "-H", "--"}:
        rest = rest[1:]
    return rest, True


def _opened(shell: Process, command: SimpleCommand) -> bytes:
    """Open the redirections, with the shell's rights, before the program starts; returns what `>>` keeps."""
    if command.stderr_path is not None:
        shell.write(command.stderr_path, b"")
    if command.stdout_path is None:
        return b""
    keeps = command.append and shell.device.files.exists(command.stdout_path)
    before = shell.read(command.stdout_path) if keeps else b""
    shell.write(command.stdout_path, before)
    return before


def _redirected(
    shell: Process, command: SimpleCommand, before: bytes, result: CommandResult
) -> CommandResult:
    stdout, stderr = result.stdout, result.stderr
    if command.stderr_to_stdout:
        stdout, stderr = stdout + stderr, b""
    if command.stderr_path is not None:
        shell.write(command.stderr_path, stderr)
        stderr = b""
    if command.stdout_path is not None:
        shell.write(command.stdout_path, before + stdout)
        stdout = b""
    return CommandResult(stdout, stderr, result.status)
