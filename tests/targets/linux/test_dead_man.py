"""A push that nobody keeps is gone after its time; one that is kept stays."""

import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mltswitch.plan import Plan
from mltswitch.targets import Change, Step, SwitchState
from mltswitch.targets.linux import TARGET
from mltswitch.targets.linux.answers import ROUTE_QUERY
from tests.targets.linux.test_kernel import apply, connect, do, empty, read
from tests.targets.linux.test_restore import CAPABILITIES, STARTS, lines_in, send, shown
from tests.targets.linux.test_save import program
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
    apply(linux, replace(timed, steps=(*timed.steps, *TARGET.timer.keep("kept"))))
    time.sleep(8)
    assert TARGET.diff(read(linux, state), state, CAPABILITIES).is_empty
    empty(linux)


@dataclass(frozen=True)
class Host:
    """A host whose /run is a folder of the test, and whose `ip` makes the file `back`."""

    folder: Path

    def do(self, step: Step) -> "subprocess.CompletedProcess[str]":
        command = ["/bin/sh", "-c", step.command.replace("/run/", f"{self.folder}/")]
        return subprocess.run(command, input=step.stdin, capture_output=True, text=True, check=False)

    def has(self, name: str, lines: str) -> None:
        """A program; where it is systemd's, systemd runs."""
        program(self.folder / "bin" / name, f"#!/bin/sh\n{lines}\n")
        if name == "systemd-run":
            (self.folder / "systemd/system").mkdir(parents=True)

    def goes_back(self) -> bool:
        end = time.monotonic() + PATIENCE_SECONDS
        while not (self.folder / "back").exists() and time.monotonic() < end:
            time.sleep(0.1)
        return (self.folder / "back").exists()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    made = Host(tmp_path)
    made.has("ip", f"cat > {tmp_path}/back")
    return made


def armed(seconds: int) -> Step:
    """Before the push, the host had one route with our protocol number."""
    nothing = SwitchState((), ())
    before = dict.fromkeys(TARGET.queries(nothing), "")
    before[ROUTE_QUERY] = '[{"dst": "10.7.0.0/16", "dev": "eth1", "protocol": "173"}]'
    assert TARGET.timer is not None
    return TARGET.timer.arm(Change(()), before, nothing, "push", seconds).steps[0]


def test_a_host_without_systemd_runs_the_job_in_the_background(host: Host) -> None:
    assert host.do(armed(1)).returncode == 0
    assert host.goes_back()


def test_under_systemd_the_job_is_in_no_session_that_may_be_ended(host: Host) -> None:
    host.has("systemd-run", f'echo "$@" >> {host.folder}/asked; shift 2; exec "$@"')
    assert host.do(armed(1)).returncode == 0
    assert host.goes_back()
    tried, job = (host.folder / "asked").read_text().splitlines()
    assert tried == "--scope -q true"
    assert job.startswith("--scope -q sh -c sleep 1; ")


def test_a_host_whose_systemd_refuses_the_job_is_not_pushed_to(host: Host) -> None:
    host.has("systemd-run", "echo Failed to connect to bus >&2; exit 1")
    refused = host.do(armed(1))
    assert refused.returncode != 0
    assert refused.stderr == "Failed to connect to bus\n"
    assert not (host.folder / "mltswitch").exists()


def test_a_host_that_cannot_run_a_job_is_not_pushed_to(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{host.folder}/bin")
    assert host.do(armed(60)).returncode != 0


def test_a_push_that_is_armed_anew_has_its_whole_time(host: Host) -> None:
    assert TARGET.timer is not None
    [keep] = TARGET.timer.keep("push")
    for step in (armed(1), keep, armed(4)):
        assert host.do(step).returncode == 0
    time.sleep(2)
    assert not (host.folder / "back").exists()
    assert host.goes_back()
