"""A push that nobody keeps is gone after its time; one that is kept stays."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mltswitch.plan import Plan
from mltswitch.targets import Change, Step, SwitchState
from mltswitch.targets.linux import TARGET, change
from tests.targets.linux.test_kernel import connect, do, empty, read
from tests.targets.linux.test_restore import CAPABILITIES, STARTS, lines_in, send, shown
from tests.targets.linux.uml import Machine

PATIENCE_SECONDS = 60.0


@pytest.mark.lab
@pytest.mark.parametrize("sent", [30, None], ids=["half of it", "all of it"])
def test_the_host_goes_back_by_itself(
    linux: Machine, small_plan: Plan, state: SwitchState, sent: int | None
) -> None:
    assert TARGET.timer is not None
    connect(linux, small_plan, "leaf1")
    do(linux, STARTS["fq_codel"])
    at_start, before = shown(linux), read(linux, state)
    push = TARGET.diff(before, state, CAPABILITIES)
    timed = TARGET.timer.arm(push, before.answers, state, f"push-{sent}", 8)
    arm, *rest = timed.steps
    assert tuple(rest) == push.steps
    do(linux, arm.command, arm.stdin)
    send(linux, push.steps, lines_in(push) if sent is None else sent)
    end = time.monotonic() + PATIENCE_SECONDS
    while do(linux, "ls /run/mltswitch") and time.monotonic() < end:
        time.sleep(1)
    assert shown(linux) == at_start
    [keep] = TARGET.timer.keep(f"push-{sent}")
    do(linux, keep.command)
    do(linux, f"touch /run/mltswitch/push-{sent}")
    with pytest.raises(AssertionError):  # on its way back
        do(linux, keep.command)
    do(linux, f"rm /run/mltswitch/push-{sent}")
    empty(linux)


@pytest.mark.lab
def test_what_is_kept_stays(linux: Machine, small_plan: Plan, state: SwitchState) -> None:
    assert TARGET.timer is not None
    connect(linux, small_plan, "leaf1")
    before = read(linux, state)
    push = TARGET.diff(before, state, CAPABILITIES)
    timed = TARGET.timer.arm(push, before.answers, state, "kept", 6)
    for step in (*timed.steps, *TARGET.timer.keep("kept")):
        do(linux, step.command, step.stdin)
    time.sleep(8)
    assert TARGET.diff(read(linux, state), state, CAPABILITIES).is_empty
    empty(linux)


Do = Callable[[Step], subprocess.CompletedProcess[str]]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Do:
    """A host whose /run is a folder of the test, and where the way back makes the file `back`."""
    way_back = Change((Step(f"touch {tmp_path}/back"),))
    monkeypatch.setattr(change, "restoring_change", lambda *_: way_back)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()

    def do_here(step: Step) -> subprocess.CompletedProcess[str]:
        command = ["/bin/sh", "-c", step.command.replace("/run/", f"{tmp_path}/")]
        return subprocess.run(command, input=step.stdin, capture_output=True, text=True, check=False)

    return do_here


def armed(seconds: int) -> Step:
    return change.TIMER.arm(Change(()), {}, SwitchState((), ()), "push", seconds).steps[0]


def goes_back(folder: Path) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while not (folder / "back").exists() and time.monotonic() < end:
        time.sleep(0.1)
    return (folder / "back").exists()


def has_systemd(folder: Path, answer: str) -> None:
    (folder / "systemd/system").mkdir(parents=True)
    (folder / "bin/systemd-run").write_text(f"#!/bin/sh\n{answer}\n")
    (folder / "bin/systemd-run").chmod(0o755)


def test_a_host_without_systemd_runs_the_job_in_the_background(host: Do, tmp_path: Path) -> None:
    assert host(armed(1)).returncode == 0
    assert goes_back(tmp_path)


def test_under_systemd_the_job_is_in_no_session_that_may_be_ended(host: Do, tmp_path: Path) -> None:
    has_systemd(tmp_path, f'echo "$@" >> {tmp_path}/asked; shift 2; exec "$@"')
    assert host(armed(1)).returncode == 0
    assert goes_back(tmp_path)
    tried, job = (tmp_path / "asked").read_text().splitlines()
    assert tried == "--scope -q true"
    assert job.startswith("--scope -q sh -c sleep 1; ")


def test_a_host_whose_systemd_refuses_the_job_is_not_pushed_to(host: Do, tmp_path: Path) -> None:
    has_systemd(tmp_path, "echo Failed to connect to bus >&2; exit 1")
    refused = host(armed(1))
    assert refused.returncode != 0
    assert refused.stderr == "Failed to connect to bus\n"
    assert not (tmp_path / "mltswitch").exists()


def test_a_host_that_cannot_run_a_job_is_not_pushed_to(
    host: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert host(armed(60)).returncode != 0


def test_a_push_that_is_armed_anew_has_its_whole_time(host: Do, tmp_path: Path) -> None:
    [keep] = change.TIMER.keep("push")
    for step in (armed(1), keep, armed(4)):
        assert host(step).returncode == 0
    time.sleep(2)
    assert not (tmp_path / "back").exists()
    assert goes_back(tmp_path)
