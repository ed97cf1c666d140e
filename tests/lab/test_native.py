"""Scripts of `up` that are cut short: what they began is ended, and they go no further."""

import os
import signal
import time
from pathlib import Path

import pytest

from mltswitch.errors import MachineError
from mltswitch.lab import Lab, native
from mltswitch.lab import lab as lab_module
from mltswitch.lab.paths import LabPaths


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabPaths:
    monkeypatch.setattr(lab_module, "our_namespaces", lambda: ())
    monkeypatch.setattr("mltswitch.lab.state.MACHINE_LOCK", tmp_path / "lock")
    paths = LabPaths(tmp_path / "lab")
    paths.create()
    return paths


def slow(folder: Path) -> str:
    """A script, two processes deep like the real ones, that makes `late` if it is left alone."""
    return f"touch {folder}/begun\nsh -eu <<'END'\nsleep 1\ntouch {folder}/late\nEND\ntouch {folder}/late\n"


def test_down_ends_the_script_of_an_up_that_was_killed(paths: LabPaths, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        native.run_script(paths, "build", slow(tmp_path))
        os._exit(0)
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    Lab(paths.root).down(lambda _: None)
    time.sleep(1.5)
    assert not (tmp_path / "late").exists()


def test_a_script_that_takes_too_long(
    paths: LabPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "SCRIPT_SECONDS", 0.3)
    with pytest.raises(MachineError, match=r"build\.sh: was not done after 0\.3 s"):
        native.run_script(paths, "build", slow(tmp_path))
    native.stop(paths)
    time.sleep(1.5)
    assert not (tmp_path / "late").exists()


def test_a_script_that_fails_is_named(paths: LabPaths) -> None:
    with pytest.raises(MachineError, match=r"build\.sh: ended with 7"):
        native.run_script(paths, "build", "echo why\nexit 7\n")
    assert paths.log_tail() == "build.log: why"
    assert not list(paths.processes.iterdir())


def test_what_a_script_left_in_the_background_stays(paths: LabPaths, tmp_path: Path) -> None:
    native.run_script(paths, "build", f"(sleep 0.5; touch {tmp_path}/late) &\n")
    native.stop(paths)
    deadline = time.monotonic() + 60
    while not (tmp_path / "late").exists():
        assert time.monotonic() < deadline, "it was ended with the script"
        time.sleep(0.01)
