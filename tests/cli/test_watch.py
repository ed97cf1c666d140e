"""`mltswitch watch` over real SSH: one session that stays, one that breaks, a terminal, and Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mltswitch.cli import main
from switchsim import Faults
from switchsim.faults import Drop
from tests.cli.test_confirm import rack

QUESTION = "show queue counters --json"


class Broken(Faults):
    """Hears every line, and hangs up at one question."""

    def __init__(self, broken: int) -> None:
        self.lines: list[str] = []
        self._broken = broken

    def on_line(self, number: int, line: str) -> Drop | None:
        """Break off once."""
        del number
        self.lines.append(line)
        asked = sum(QUESTION in each for each in self.lines)
        return Drop() if QUESTION in line and asked == self._broken else None


def watch(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["watch", *words, "--interval", "0.1"])
    captured = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, captured.out, captured.err


@pytest.mark.parametrize("broken", [0, 2])
def test_a_session_stays_open_and_is_opened_again(
    broken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = Broken(broken)
    with rack("sonic", tmp_path, faults) as (_, words):
        code, out, _ = watch(capsys, *words, "--count", "4", "--json")
    assert code == 0
    readings: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    devices = [each for reading in readings for each in reading["devices"]]
    assert [bool(each["error"]) for each in devices] == [number == broken for number in range(1, 5)]
    assert sum("show version" in line for line in faults.lines) == (2 if broken else 1)
    queue = devices[-1]["queues"][0]
    assert queue["counters"]["sent_packets"] == 0
    assert queue["counters"]["depth_bytes"] is None
    assert queue["dropped_per_second"] == 0
    assert devices[0]["queues"][0]["dropped_per_second"] is None


def test_without_a_terminal_it_prints_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rack("sonic", tmp_path) as (_, words):
        code, out, _ = watch(capsys, *words, "--count", "2")
    assert code == 0
    assert [line.split(" ", 1)[1] for line in out.splitlines()] == ["18 queues, all idle"] * 2


def test_where_no_device_answers_none_is_called_idle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with rack("sonic", tmp_path) as (_, words):
        pass  # and is gone
    code, out, _ = watch(capsys, *words, "--count", "1")
    assert code == 4
    assert out.splitlines()[-1].endswith("1 of 1 devices could not be read")
    assert "idle" not in out


def test_a_platform_without_counters_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rack("onyx", tmp_path) as (_, words):
        code, out, error = watch(capsys, *words)
    assert code != 0
    assert not out
    assert len(error.splitlines()) == 1
    assert "platform onyx does not tell counters" in error


def test_ctrl_c_ends_a_live_table_well(tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (_, words):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "mltswitch", "watch", *words, "--interval", "0.2", "--count", "100"]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "12"}
        process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment)
        os.close(theirs)
        shown = ""
        while "more" not in shown and (text := _rest(ours)):
            shown += text
        process.send_signal(signal.SIGINT)
        shown += "".join(iter(lambda: _rest(ours), ""))
        assert process.wait(30) == 0, process.stderr and process.stderr.read()
        os.close(ours)
    assert "waiting" in shown
    assert "leaf1" in shown
    assert "Traceback" not in shown


def _rest(terminal: int) -> str:
    try:
        return os.read(terminal, 4096).decode()
    except OSError:  # nobody holds the other end any more
        return ""
