"""What is kept for the next start: shell lines run for real, below a scratch root."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets import RunningState, SwitchState
from mltswitch.targets.linux import TARGET
from mltswitch.targets.linux.save import (
    SAVED_QUERY,
    read_saved,
    restoring_saves,
    save_notes,
    save_steps,
    saved_files,
    unit_text,
)
from mltswitch.targets.state import SegmentRouteState, SegmentRouting

CAPABILITIES = TARGET.hardware(None)

SYSTEMCTL = """#!/bin/sh
case "$*" in
    "is-enabled mltswitch.service") test -e /run/enabled && echo enabled ;;
    "daemon-reload") if test -e /etc/systemd/system/mltswitch.service; then : >/run/reloaded; fi ;;
    "--quiet enable mltswitch.service") test -e /run/reloaded && : >/run/enabled ;;
    "--quiet disable mltswitch.service") rm -f /run/enabled ;;
    *) echo "unexpected: $*" >&2; exit 1 ;;
esac
"""
SYSTEMD_FOLDERS = ("etc/systemd/system", "run/systemd/system")

Shell = Callable[[str, str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """/etc and /run of a host, and its systemctl."""
    for folder in (*SYSTEMD_FOLDERS, "bin"):
        (tmp_path / folder).mkdir(parents=True)
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.write_text(SYSTEMCTL)
    systemctl.chmod(0o755)
    return tmp_path


@pytest.fixture
def shell(root: Path) -> Shell:
    def run(command: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        script = root / "command"
        script.write_text(command)
        inside = f"mount --bind {root}/etc /etc && mount --bind {root}/run /run && exec sh {script}"
        return subprocess.run(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", inside],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PATH": f"{root}/bin:{os.environ['PATH']}"},
        )

    if run("true", "").returncode:
        pytest.skip("no mount namespaces here")
    return run


def ask(shell: Shell) -> dict[str, str]:
    done = shell(SAVED_QUERY, "")
    assert (done.returncode, done.stderr) == (0, "")
    return {SAVED_QUERY: done.stdout}


def save(shell: Shell, state: SwitchState) -> None:
    for step in save_steps(ask(shell), state):
        done = shell(step.command, step.stdin)
        assert done.returncode == 0, done.stderr


def test_what_is_saved_is_the_plan_and_is_saved_once(root: Path, shell: Shell, state: SwitchState) -> None:
    assert save_notes(read_saved(ask(shell)[SAVED_QUERY]), state) != ()
    save(shell, state)
    for name, text in saved_files(state).items():
        assert (root / name.removeprefix("/")).read_text() == text
    answers = ask(shell)
    assert save_steps(answers, state) == ()
    assert save_notes(read_saved(answers[SAVED_QUERY]), state) == ()
    assert not list(root.rglob("*.new"))


def test_what_is_stale_is_saved_though_nothing_changes(shell: Shell, state: SwitchState) -> None:
    save(shell, state)
    other = SwitchState(state.ports, state.routes[1:])
    change = TARGET.diff(RunningState(other, ask(shell)), other, CAPABILITIES)
    assert change.is_empty
    assert len(change.save) == 5
    save(shell, other)
    assert TARGET.diff(RunningState(other, ask(shell)), other, CAPABILITIES).save == ()


@pytest.mark.parametrize(
    "lost", ["etc/mltswitch/routes.ip", "run/enabled", "etc/systemd/system/mltswitch.service"]
)
def test_what_somebody_removed_is_saved_again(
    root: Path, shell: Shell, state: SwitchState, lost: str
) -> None:
    save(shell, state)
    (root / lost).unlink()
    assert save_notes(read_saved(ask(shell)[SAVED_QUERY]), state) != ()
    save(shell, state)
    assert (root / lost).exists()


def test_a_file_of_somebody_else_is_left_alone(root: Path, shell: Shell, state: SwitchState) -> None:
    unit = root / "etc/systemd/system/mltswitch.service"
    unit.write_text("[Unit]\nDescription=ours, too\n")
    with pytest.raises(DeviceError, match="somebody else wrote") as caught:
        TARGET.diff(RunningState(state, ask(shell)), state, CAPABILITIES)
    assert caught.value.where == "/etc/systemd/system/mltswitch.service"
    assert unit.read_text().startswith("[Unit]")


@pytest.mark.parametrize("start", ["nothing", "the plan", "the plan, disabled", "a file less"])
def test_the_way_back_brings_back_what_was_saved(
    root: Path, shell: Shell, state: SwitchState, start: str
) -> None:
    """What cannot be written again is said."""

    def disk() -> dict[str, str]:
        files = (path for path in root.rglob("etc/**/*") if path.is_file())
        return {path.name: path.read_text() for path in (*files, *root.glob("run/enabled"))}

    if start != "nothing":
        save(shell, state)
    if start == "the plan, disabled":
        (root / "run/enabled").unlink()
    if start == "a file less":
        (root / "etc/mltswitch/routes.ip").unlink()
    at_start, before = disk(), ask(shell)
    save(shell, SwitchState(state.ports, ()))
    assert disk() != at_start
    steps, note = restoring_saves(before, ask(shell), state)
    for step in steps:
        done = shell(step.command, step.stdin)
        assert done.returncode == 0, done.stderr
    assert restoring_saves(before, before, state) == ((), "")
    if start == "a file less":
        assert "cannot be written again" in note
        assert save_steps(ask(shell), state) == ()
    else:
        assert (disk(), note) == (at_start, "")
        assert restoring_saves(before, ask(shell), state) == ((), "")


def test_until_the_last_step_stays_what_was_saved(root: Path, shell: Shell, state: SwitchState) -> None:
    """The last step alone touches files in their places."""
    save(shell, state)
    before = {name: (root / name.removeprefix("/")).read_text() for name in saved_files(state)}
    other = SwitchState(state.ports, state.routes[1:])
    for step in save_steps(ask(shell), other)[:-1]:
        assert shell(step.command, step.stdin).returncode == 0
    assert {name: (root / name.removeprefix("/")).read_text() for name in before} == before


def test_without_systemd_nothing_is_written_and_it_is_said(
    root: Path, shell: Shell, state: SwitchState
) -> None:
    (root / "run/systemd/system").rmdir()
    answers = ask(shell)
    assert answers == {SAVED_QUERY: ""}
    assert save_steps(answers, state) == ()
    (note,) = save_notes(read_saved(""), state)
    assert note.startswith("not persistent: this host does not run systemd")


@pytest.mark.parametrize(
    "answer", ["systemd\n00  /etc/mltswitch/qdiscs.tc\n", "systemd\n00  /etc/mltswitch/qdiscs.tc\nx\n1"]
)
def test_an_answer_that_cannot_be_understood(answer: str) -> None:
    with pytest.raises(DeviceError, match="cannot be read"):
        read_saved(answer)


def test_the_unit_waits_for_every_port_and_goes_on_without_one(state: SwitchState) -> None:
    port = replace(state.ports[0], name="swp-1.2")
    text = unit_text(replace(state, ports=(port, *state.ports[1:])))
    lines = text.splitlines()
    for unit in ("network-online.target", r"sys-subsystem-net-devices-swp\x2d1.2.device"):
        assert f"After={unit}" in lines
        assert f"Wants={unit}" in lines
    assert "Requires=" not in text
    assert "BindsTo=" not in text
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    assert start == (
        "ExecStart=/bin/sh -c 'tc -force -batch /etc/mltswitch/qdiscs.tc; queues=$$?; "
        "ip -force -batch /etc/mltswitch/routes.ip; routes=$$?; test $$queues$$routes = 00'"
    )


def test_the_unit_lets_ipv6_be_forwarded_where_the_plan_needs_it(state: SwitchState) -> None:
    assert "forwarding" not in unit_text(state)
    route = SegmentRouteState(IPv6Network("fd00:2::/48"), IPv6Address("fd00:3::2"), "eth2")
    with_segments = replace(state, segment_routing=SegmentRouting(None, (route,)))
    assert "sysctl -q -w net.ipv6.conf.all.forwarding=1" in unit_text(with_segments)


def test_systemd_understands_the_unit(tmp_path: Path, state: SwitchState) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "mltswitch.service"
    unit.write_text(
        unit_text(replace(state, ports=(replace(state.ports[0], name="swp-1.2"), *state.ports[1:])))
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("Type=oneshot", "Type=sometimes"))
    broken = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "sometimes" in broken.stderr


@pytest.mark.parametrize(("queues", "routes"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_the_unit_runs_both_batches_and_fails_if_one_does(
    tmp_path: Path, state: SwitchState, queues: int, routes: int
) -> None:
    for program, status in (("tc", queues), ("ip", routes)):
        file = tmp_path / program
        file.write_text(f'#!/bin/sh\necho {program} "$@" >>{tmp_path}/calls\nexit {status}\n')
        file.chmod(0o755)
    (start,) = [line for line in unit_text(state).splitlines() if line.startswith("ExecStart=")]
    script = start.partition("'")[2].removesuffix("'").replace("$$", "$")
    done = subprocess.run(["sh", "-c", script], check=False, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (done.returncode == 0) is (queues == routes == 0)
    assert (tmp_path / "calls").read_text() == (
        "tc -force -batch /etc/mltswitch/qdiscs.tc\nip -force -batch /etc/mltswitch/routes.ip\n"
    )


def test_digests_are_of_the_text_as_it_is_sent(state: SwitchState) -> None:
    lines = ["systemd"]
    for name, text in saved_files(state).items():
        lines += [f"{hashlib.sha256(text.encode()).hexdigest()}  {name}", "1"]
    answers = {SAVED_QUERY: "\n".join([*lines, "enabled", ""])}
    assert save_steps(answers, state) == ()
