import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.lab.processes import (
    ProcessIdentity,
    end,
    end_group,
    identify,
    kill_and_wait,
    processes_with_argument,
    read_record,
    start_recorded,
)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    record = tmp_path / "record"
    with (tmp_path / "log").open("wb") as log:
        process = start_recorded(["sleep", "60"], record, log=log)
    deadline = time.monotonic() + 60
    while read_record(record) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    yield record, process
    process.kill()
    process.wait()


def test_a_started_process_is_recorded(sleeper: tuple[Path, subprocess.Popen[bytes]]) -> None:
    record, process = sleeper
    identity = read_record(record)
    assert identity is not None
    assert identity.pid == process.pid
    assert identity.alive


def test_end(sleeper: tuple[Path, subprocess.Popen[bytes]]) -> None:
    identity = read_record(sleeper[0])
    assert identity is not None
    end(identity)
    assert not identity.alive
    assert sleeper[1].wait(timeout=60) == -9


def test_a_recycled_number_is_spared(sleeper: tuple[Path, subprocess.Popen[bytes]]) -> None:
    other = ProcessIdentity(sleeper[1].pid, start_ticks=1)
    end(other, grace_seconds=1)
    assert sleeper[1].poll() is None


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Callable[[str], tuple[ProcessIdentity, int]]]:
    """Starts a shell that leaves a child; its identity and the child's number come back."""
    child_file, record = tmp_path / "child", tmp_path / "record"
    started = []

    def start(then: str) -> tuple[ProcessIdentity, int]:
        script = f"sleep 60 & echo $! >{child_file}.new; mv {child_file}.new {child_file}; {then}"
        with (tmp_path / "log").open("wb") as log:
            process = start_recorded(["sh", "-c", script], record, log=log)
        while not child_file.exists():
            time.sleep(0.01)
        started.append((process, int(child_file.read_text())))
        leader = read_record(record)
        assert leader is not None
        return leader, started[-1][1]

    yield start
    for process, child in started:
        process.kill()
        process.wait()
        kill_and_wait([child])


def test_a_group_ends_with_its_leader(family: Callable[[str], tuple[ProcessIdentity, int]]) -> None:
    leader, child_pid = family("wait")
    child = identify(child_pid)
    assert child is not None
    assert child.alive
    end_group(leader)
    assert not leader.alive
    assert not child.alive


def test_what_a_finished_leader_left_is_spared(
    family: Callable[[str], tuple[ProcessIdentity, int]],
) -> None:
    leader, child_pid = family("exit")
    while leader.alive:
        time.sleep(0.01)
    end_group(leader)
    child = identify(child_pid)
    assert child is not None
    assert child.alive


def test_a_process_is_found_by_its_whole_argument() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)", "umid=mltswitch-test-1234"]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 60
        while not processes_with_argument("umid=mltswitch-test-1234") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert processes_with_argument("umid=mltswitch-test-1234") == [process.pid]
        assert processes_with_argument("umid=mltswitch-test-123") == []
        kill_and_wait([process.pid])
        assert process.wait(timeout=60) == -9
    finally:
        process.kill()


def test_no_such_process() -> None:
    assert identify(2**22 + 1) is None
    kill_and_wait([2**22 + 1])


@pytest.mark.parametrize("text", ["", "12 (sh", "12 (sh) S 1 2", "x (sh) " + "1 " * 40])
def test_a_damaged_record_is_none(tmp_path: Path, text: str) -> None:
    record = tmp_path / "record"
    record.write_text(text)
    assert read_record(record) is None


@given(st.text(alphabet="() a1S\n", max_size=15), st.integers(1, 2**22), st.integers(0, 2**40))
def test_any_command_name_is_understood(name: str, pid: int, ticks: int) -> None:
    stat = f"{pid} ({name}) S " + "0 " * 18 + f"{ticks} 0 0\n"
    assert ProcessIdentity.parse(stat) == ProcessIdentity(pid, ticks)
