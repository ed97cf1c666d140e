"""Lines about strangers: few, harmless to a terminal, and never waited for."""

import fcntl
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mltswitch.cli.strangers import LONGEST_LINE, MOST_LINES, Strangers

PATIENCE_SECONDS = 60.0
PIPE_BYTES = 4096


def test_few_lines_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    strangers = Strangers()
    for number in range(MOST_LINES + 20):
        strangers.tell(f"not connected: {number}: \x1b[2J\nroot# ")
    *lines, last = capsys.readouterr().err.splitlines()
    assert lines == [f"not connected: {number}: \\x1b[2J\\nroot# " for number in range(MOST_LINES)]
    assert last == "more were not let in, and are not told of"


@contextmanager
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard error is a small pipe; gives where it is read."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "w", encoding="utf-8") as writer:
        monkeypatch.setattr(sys, "stderr", writer)
        yield reader.fileno()
        monkeypatch.undo()


def tell(strangers: Strangers, line: str) -> None:
    """Fails where it waits, and does not wait for it."""
    thread = threading.Thread(target=strangers.tell, args=(line,), daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "it waits for whoever reads"


def test_nothing_waits_for_who_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    strangers = Strangers()
    with piped(monkeypatch) as pipe:
        for _ in range(10):
            tell(strangers, "\N{GRINNING FACE}" * 2 * LONGEST_LINE)
        said = os.read(pipe, 2 * PIPE_BYTES).decode()
        tell(strangers, "later")
        assert os.read(pipe, 2 * PIPE_BYTES) == b"later\n"
    assert said == "\N{GRINNING FACE}" * LONGEST_LINE + "…\n"


def test_nobody_reads_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", encoding="utf-8") as writer:
        monkeypatch.setattr(sys, "stderr", writer)
        Strangers().tell("not connected")
        monkeypatch.setattr(sys, "stderr", None)
        Strangers().tell("not connected")
        monkeypatch.undo()
