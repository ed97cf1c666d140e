"""`mltswitch agent` as tests run it: in processes of its own, or in this one."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from mltswitch.cli import main
from mltswitch.lab.namespaces import NamespaceHandle

PATIENCE_SECONDS = 60.0
GRADIENTS = np.random.default_rng(1).standard_normal((100, 501)).astype(np.float32)


class Running:
    """A command in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.errors: list[str] = []

    def reads(self, pattern: str) -> "re.Match[str]":
        """Wait for a line on its standard error."""
        assert self.process.stderr is not None
        guard = threading.Timer(PATIENCE_SECONDS, self.process.kill)
        guard.start()
        try:
            for line in self.process.stderr:
                self.errors.append(line)
                found = re.search(pattern, line)
                if found:
                    return found
        finally:
            guard.cancel()
            guard.join()  # no thread is left when the next process is made
        raise AssertionError(f"no {pattern!r} in {self.errors}")

    def ends(self) -> tuple[int, str, str]:
        """Its exit code, standard output, and standard error."""
        out, err = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, out, "".join(self.errors) + (err or "")


@contextmanager
def running(
    *arguments: object,
    within: NamespaceHandle | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Running]:
    command = [sys.executable, "-m", "mltswitch", "agent", *map(str, arguments)]
    process = subprocess.Popen(
        command if within is None else within.command(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        # What a shell runs in the background ignores SIGINT, and so does everything below it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  (no threads here)
    )
    with process:
        try:
            yield Running(process)
        finally:
            process.kill()


@contextmanager
def receiving(
    *arguments: object, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[Running, str]]:
    """A receiver on ports of its own choice, and where it listens."""
    with running("recv", "--listen", "127.0.0.1:0", *arguments, environment=environment) as receiver:
        yield receiver, receiver.reads(r"listens at (\S+)")[1]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """A command in this process: its exit code, standard output and standard error."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["agent", *map(str, arguments)])
    captured = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, captured.out, captured.err


def files(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def free_place() -> str:
    """Address and port where nobody listens now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{bound.getsockname()[1]}"
