"""Programs in network namespaces that answer line by line, and C programs compiled on the spot."""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final, cast

from mltswitch.errors import MachineError
from mltswitch.lab.namespaces import NamespaceHandle

PATIENCE_SECONDS: Final = 60.0
"""Seconds after which a program's line is no longer waited for: only one that hangs takes so long."""


class Program:
    """A process in a namespace that prints lines; it is ended when the `with` block ends, if not before."""

    def __init__(
        self,
        namespace: NamespaceHandle,
        command: Sequence[str],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._command = command
        self._patience_seconds = patience_seconds
        self._process = subprocess.Popen(
            namespace.command(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        self._waiting = b""

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def line(self) -> str:
        """The next line that the process prints; raises MachineError if none comes in time."""
        deadline = time.monotonic() + self._patience_seconds
        while b"\n" not in self._waiting:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._output], [], [], left)[0]:
                raise MachineError(f"said nothing for {self._patience_seconds:g} s", where=self._name)
            more = os.read(self._output.fileno(), 1 << 16)
            if not more:
                raise MachineError(self._last_words(), where=self._name)
            self._waiting += more
        line, _, self._waiting = self._waiting.partition(b"\n")
        return line.decode()

    def wait_for(self, word: str) -> None:
        """Read lines until one contains the word; raises MachineError if none does."""
        while word not in self.line():
            pass

    def rest(self) -> str:
        """All that the process still prints until it ends; raises MachineError if it fails."""
        try:
            output, errors = self._process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise MachineError(f"did not end within {PATIENCE_SECONDS:g} s", where=self._name) from None
        if self._process.returncode:
            lines = (errors or output).decode(errors="replace").strip().splitlines()
            raise MachineError(lines[-1] if lines else "failed", where=self._name)
        return (self._waiting + output).decode()

    def tell(self, line: str) -> None:
        """Write a line to the process's input; raises MachineError if it has ended."""
        try:
            self._input.write(f"{line}\n".encode())
            self._input.flush()
        except BrokenPipeError:
            raise MachineError(self._last_words(), where=self._name) from None

    def answer(self) -> dict[str, Any]:
        """The next line of the process, read as a JSON object; raises MachineError."""
        line = self.line()
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            raise MachineError(f"said {line!r}", where=self._name) from None
        if not isinstance(found, dict):
            raise MachineError(f"said {line!r}", where=self._name)
        return found

    @property
    def is_running(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    @property
    def _name(self) -> str:
        return " ".join(Path(word).name for word in self._command[:3])

    def _last_words(self) -> str:
        """Of a process whose output has ended."""
        _, errors = self._process.communicate(timeout=PATIENCE_SECONDS)
        lines = errors.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"ended with exit code {self._process.returncode}"


PACKAGES: Final = {"ip": "iproute2", "ping": "iputils-ping", "tc": "iproute2"}
"""Program → the Debian package that has it, where that has another name."""


def need_root() -> None:
    """Raise MachineError unless this process runs as root."""
    if os.geteuid() != 0:
        raise MachineError("needs root, for network namespaces", hint="`sudo` before the command gives it")


def need(*programs: str) -> None:
    """Raise MachineError naming those of the programs that are not installed."""
    need_root()
    for program in programs:
        if shutil.which(program) is None:
            raise MachineError(
                f"{program} is not installed", hint=f"`apt-get install {PACKAGES.get(program, program)}`"
            )


def compiled(source: Path, folder: Path, *options: str) -> Path:
    """Compile a C file into a folder and return the program's path; raises MachineError."""
    if shutil.which("gcc") is None:
        raise MachineError("gcc is not installed", hint="`apt-get install gcc`")
    program = folder / source.stem
    command = ["gcc", "-O2", "-std=gnu11", "-o", str(program), str(source), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise MachineError(last[0], where=source.name)
    return program


def ip(lines: Sequence[str], namespace: str = "") -> None:
    """Run these lines by `ip -batch`, in a namespace if one is named; raises MachineError."""
    command = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    done = subprocess.run(command, check=False, input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[:1] or [f"exit code {done.returncode}"]
        raise MachineError(last[0], where="ip")
