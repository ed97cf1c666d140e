"""An emulated Cumulus Linux switch: NVUE behind a small bash.

Stateful and strict: what the command list does not hold is refused, and a revision that NVUE refuses changes
nothing. Only `nv`, `cat`, `echo`, `tee`, `true` and what a lock and a look at processes need run.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from switchsim.cumulus_nv import RELEASE, nv
from switchsim.cumulus_revisions import Revisions
from switchsim.cumulus_tree import Tree
from switchsim.device import Answer, CommandResult, LockFolder, NamedDevice, grep, pgrep
from switchsim.sonic_shell import ShellSyntaxError, SimpleCommand, parse

MAX_PORTS: Final = 64
MAX_FILES: Final = 64
MAX_FILE_BYTES: Final = 4 << 20

_TOOLS: Final = frozenset({"date", "grep", "ln", "pgrep", "readlink", "rm", "test"})
_NOT_FOUND: Final = 127
_SYNTAX: Final = 2


class CumulusDevice(NamedDevice):
    """One switch, ports swp1, swp2, …; `applied` is what runs, `saved` what it starts with."""

    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {
        name: {"model": f"M{name.upper()}"} for name in ("sn2100", "sn2700", "sn3700")
    }

    def __init__(self, name: str = "cumulus1", ports: int = 16, model: str = "MSN2700") -> None:
        super().__init__(name, ports, MAX_PORTS)
        self.model, self.release = model, RELEASE
        self.locks = LockFolder()
        names = tuple(f"swp{number}" for number in range(1, ports + 1))
        config: Tree = {
            "interface": {
                "eth0": {"ip": {"address": {"192.0.2.1/24": {}}}, "type": "eth"},
                **{port: {"link": {"mtu": 9216}, "type": "swp"} for port in names},
            },
            "system": {"hostname": name},
        }
        self.revisions = Revisions(names, config, config, [config])
        self.files: dict[str, bytes] = {}

    @property
    def applied(self) -> Tree:
        """The configuration that runs."""
        return self.revisions.applied

    @property
    def saved(self) -> Tree:
        """The configuration with which it starts."""
        return self.revisions.saved

    def reboot(self) -> None:
        """Start anew, with what was saved."""
        with self._lock:
            self.revisions.apply(self.saved)
            self.locks.links.clear()

    def open_session(self, username: str) -> "CumulusSession":
        """A login shell."""
        return CumulusSession(self, username)

    def execute(
        self, username: str, command: str, read_stdin: Callable[[], bytes] = lambda: b""
    ) -> CommandResult:
        """Run a command line as `ssh host COMMAND` does, or as a test does by hand."""
        return CumulusSession(self, username).run(command, read_stdin)


class CumulusSession:
    """One shell."""

    def __init__(self, device: CumulusDevice, username: str) -> None:
        self._device = device
        self._username = username
        self._status = 0

    @property
    def prompt(self) -> str:
        """`cumulus@cumulus1:mgmt:~$ `."""
        return f"{self._username}@{self._device.name}:mgmt:~$ "

    def enter(self, line: str) -> Answer:
        """Execute one line of an interactive session."""
        if line.split() in (["exit"], ["logout"]):
            return Answer(closes=True)
        result = self.run(line, lambda: b"")
        return Answer((result.stdout + result.stderr).decode("utf-8", "replace"))

    def run(self, line: str, read_stdin: Callable[[], bytes]) -> CommandResult:
        """Execute one line; standard input is read only when a program asks for it."""
        try:
            pipelines = parse(line)
        except ShellSyntaxError as error:
            self._status = _SYNTAX
            return CommandResult(stderr=f"bash: line 1: {error}\n".encode(), status=_SYNTAX)
        stdout = stderr = b""
        for pipeline in pipelines:
            if (pipeline.runs_after == "&&" and self._status) or (
                pipeline.runs_after == "||" and not self._status
            ):
                continue
            source, result = read_stdin, CommandResult()
            for command in pipeline.commands:
                result = self._run(command.with_status(self._status), source)
                stderr += result.stderr
                source = _constant(result.stdout)
            stdout += result.stdout
            self._status = result.status
        return CommandResult(stdout, stderr, self._status)

    def _run(self, command: SimpleCommand, read_stdin: Callable[[], bytes]) -> CommandResult:
        words = command.words[1:] if command.words[:1] == ["sudo"] else command.words
        program = words[0] if words else ""
        if command.stdin_path is not None or command.stderr_path is not None:
            return _failure("bash: line 1: only > is emulated [emulator]\n", _SYNTAX)
        if program not in {"nv", "cat", "echo", "tee", "true", *_TOOLS}:
            return _failure(f"bash: line 1: {program}: command not found\n", _NOT_FOUND)
        contents = read_stdin() if program in {"tee", "grep"} or words == ["cat"] else b""
        with self._device.exclusively():
            result = self._tool(words, contents) if program in _TOOLS else self._programs(words, contents)
            if command.stderr_to_stdout:
                result = CommandResult(result.stdout + result.stderr, b"", result.status)
            if command.stdout_path is None:
                return result
            return self._store([command.stdout_path], result)

    def _tool(self, words: list[str], contents: bytes) -> CommandResult:
        if words[0] == "grep" and len(words) == 3:
            return grep(words[1], words[2], contents.decode())
        if words[:2] == ["pgrep", "-af"]:
            return pgrep(self._device.processes, words[-1])
        return self._device.locks.run(words) or _failure(f"{words[0]}: not so [emulator]\n", _SYNTAX)

    def _programs(self, words: list[str], contents: bytes) -> CommandResult:
        match words:
            case ["nv", *arguments]:
                return nv(self._device, arguments)
            case ["tee", *paths]:
                return self._store(paths, CommandResult(contents), shows=True)
            case ["cat"]:
                return CommandResult(contents)
            case ["echo", *texts]:
                return CommandResult(f"{' '.join(texts)}\n".encode())
            case ["cat", *paths]:
                missing = [path for path in paths if path not in self._device.files]
                text = "".join(f"cat: {path}: No such file or directory\n" for path in missing)
                found = b"".join(self._device.files.get(path, b"") for path in paths)
                return CommandResult(found, text.encode(), 1 if missing else 0)
            case _:
                return CommandResult()

    def _store(self, paths: list[str], result: CommandResult, *, shows: bool = False) -> CommandResult:
        files = self._device.files
        for path in paths:
            if path == "/dev/null":
                continue
            if not path.startswith("/tmp/"):  # noqa: S108 (a name inside the emulator, not on this machine)
                return _failure(f"bash: line 1: {path}: Permission denied\n")
            if len(files | {path: b""}) > MAX_FILES or len(result.stdout) > MAX_FILE_BYTES:
                return _failure(f"bash: line 1: {path}: No space left on device\n")
            files[path] = result.stdout
        return CommandResult(result.stdout if shows else b"", result.stderr, result.status)


def _constant(contents: bytes) -> Callable[[], bytes]:
    return lambda: contents


def _failure(text: str, status: int = 1) -> CommandResult:
    return CommandResult(stderr=text.encode(), status=status)
