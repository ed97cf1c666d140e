"""What is kept for the next start: shell lines run for real, below a scratch root."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets import RunningState, Step, SwitchState
from mltswitch.targets.linux import TARGET
from mltswitch.targets.linux.save import (
    SAVED_QUERY,
    read_saved,
    restoring_saves,
    save_notes,
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
UNIT = "etc/systemd/system/mltswitch.service"


@dataclass(frozen=True)
class Host:
    """/etc and /run of a host below a folder, and its systemctl."""

    root: Path

    def run(self, command: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        (self.root / "command").write_text(command)
        mounts = " && ".join(f"mount --bind {self.root}/{name} /{name}" for name in ("etc", "run"))
        inside = f"{mounts} && exec sh {self.root}/command"
        return subprocess.run(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", inside],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PATH": f"{self.root}/bin:{os.environ['PATH']}"},
        )

    def apply(self, steps: Iterable[Step]) -> None:
        for step in steps:
            done = self.run(step.command, step.stdin)
            assert done.returncode == 0, done.stderr

    def answers(self) -> dict[str, str]:
        done = self.run(SAVED_QUERY)
        assert (done.returncode, done.stderr) == (0, "")
        return {SAVED_QUERY: done.stdout}

    def steps(self, state: SwitchState) -> tuple[Step, ...]:
        """What a push of what runs already would save."""
        change = TARGET.diff(RunningState(state, self.answers()), state, CAPABILITIES)
        assert change.is_empty
        return change.save

    def notes(self, state: SwitchState) -> tuple[str, ...]:
        return save_notes(read_saved(self.answers()[SAVED_QUERY]), state)

    def save(self, state: SwitchState) -> None:
        self.apply(self.steps(state))

    def disk(self) -> dict[str, str]:
        """What stands on it by the file's name, and whether the unit is enabled."""
        files = (path for path in self.root.rglob("etc/**/*") if path.is_file())
        return {path.name: path.read_text() for path in (*files, *self.root.glob("run/enabled"))}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    for folder in ("etc/systemd/system", "run/systemd/system", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    program(tmp_path / "bin/systemctl", SYSTEMCTL)
    made = Host(tmp_path)
    if made.run("true").returncode:
        pytest.skip("no mount namespaces here")
    return made


def program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def test_what_is_saved_is_the_plan_and_is_saved_once(host: Host, state: SwitchState) -> None:
    assert host.notes(state) != ()
    host.save(state)
    for name, text in saved_files(state).items():
        assert (host.root / name.removeprefix("/")).read_text() == text
    assert (host.steps(state), host.notes(state)) == ((), ())
    assert not list(host.root.rglob("*.new"))


def test_what_is_stale_is_saved_though_nothing_changes(host: Host, state: SwitchState) -> None:
    """The last step alone touches files in their places."""
    host.save(state)
    before, other = host.disk(), replace(state, routes=state.routes[1:])
    *others, last = host.steps(other)
    assert len(others) == 4
    host.apply(others)
    assert before.items() <= host.disk().items()
    host.apply([last])
    assert host.steps(other) == ()


@pytest.mark.parametrize("lost", ["etc/mltswitch/routes.ip", "run/enabled", UNIT])
def test_what_somebody_removed_is_saved_again(host: Host, state: SwitchState, lost: str) -> None:
    host.save(state)
    (host.root / lost).unlink()
    assert host.notes(state) != ()
    host.save(state)
    assert (host.root / lost).exists()


def test_a_file_of_somebody_else_is_left_alone(host: Host, state: SwitchState) -> None:
    (host.root / UNIT).write_text("[Unit]\nDescription=ours, too\n")
    with pytest.raises(DeviceError, match="somebody else wrote") as caught:
        host.save(state)
    assert caught.value.where == "/etc/systemd/system/mltswitch.service"
    assert (host.root / UNIT).read_text().startswith("[Unit]")


@pytest.mark.parametrize(
    ("was_saved", "lost"),
    [(False, ""), (True, ""), (True, "run/enabled"), (True, "etc/mltswitch/routes.ip")],
    ids=["nothing", "the plan", "the plan, disabled", "a file less"],
)
def test_the_way_back_brings_back_what_was_saved(
    host: Host, state: SwitchState, was_saved: bool, lost: str
) -> None:
    """What cannot be written again is said."""
    if was_saved:
        host.save(state)
    if lost:
        (host.root / lost).unlink()
    at_start, before = host.disk(), host.answers()
    host.save(replace(state, routes=()))
    assert host.disk() != at_start
    steps, note = restoring_saves(before, host.answers(), state)
    host.apply(steps)
    assert restoring_saves(before, before, state) == ((), "")
    if lost.startswith("etc"):
        assert "cannot be written again" in note
        assert host.steps(state) == ()
    else:
        assert (host.disk(), note) == (at_start, "")
        assert restoring_saves(before, host.answers(), state) == ((), "")


def test_without_systemd_nothing_is_written_and_it_is_said(host: Host, state: SwitchState) -> None:
    (host.root / "run/systemd/system").rmdir()
    assert host.answers() == {SAVED_QUERY: ""}
    assert host.steps(state) == ()
    (note,) = host.notes(state)
    assert note.startswith("not persistent: this host does not run systemd")


@pytest.mark.parametrize(
    "answer", ["systemd\n00  /etc/mltswitch/qdiscs.tc\n", "systemd\n00  /etc/mltswitch/qdiscs.tc\nx\n1"]
)
def test_an_answer_that_cannot_be_understood(answer: str) -> None:
    with pytest.raises(DeviceError, match="cannot be read"):
        read_saved(answer)


@pytest.fixture
def escaped(state: SwitchState) -> SwitchState:
    """A port whose name systemd escapes."""
    return replace(state, ports=(replace(state.ports[0], name="swp-1.2"), *state.ports[1:]))


def test_the_unit_waits_for_every_port_and_goes_on_without_one(escaped: SwitchState) -> None:
    text = unit_text(escaped)
    lines = text.splitlines()
    for unit in ("network-online.target", r"sys-subsystem-net-devices-swp\x2d1.2.device"):
        assert {f"After={unit}", f"Wants={unit}"} <= set(lines)
    assert "Requires=" not in text
    assert "BindsTo=" not in text
    assert [line for line in lines if line.startswith("ExecStart=")] == [
        "ExecStart=/bin/sh -c 'tc -force -batch /etc/mltswitch/qdiscs.tc; queues=$$?; "
        "ip -force -batch /etc/mltswitch/routes.ip; routes=$$?; test $$queues$$routes = 00'"
    ]


def test_the_unit_lets_ipv6_be_forwarded_where_the_plan_needs_it(state: SwitchState) -> None:
    assert "forwarding" not in unit_text(state)
    route = SegmentRouteState(IPv6Network("fd00:2::/48"), IPv6Address("fd00:3::2"), "eth2")
    with_segments = replace(state, segment_routing=SegmentRouting(None, (route,)))
    assert "sysctl -q -w net.ipv6.conf.all.forwarding=1" in unit_text(with_segments)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_understands_the_unit(tmp_path: Path, escaped: SwitchState) -> None:
    def verified(text: str) -> "subprocess.CompletedProcess[str]":
        unit = tmp_path / "mltswitch.service"
        unit.write_text(text)
        command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = verified(unit_text(escaped))
    assert (done.returncode, done.stderr) == (0, "")
    broken = verified(unit_text(escaped).replace("Type=oneshot", "Type=sometimes"))
    assert "sometimes" in broken.stderr


@pytest.mark.parametrize(("queues", "routes"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_the_unit_runs_both_batches_and_fails_if_one_does(
    tmp_path: Path, state: SwitchState, queues: int, routes: int
) -> None:
    for name, status in (("tc", queues), ("ip", routes)):
        program(tmp_path / name, f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls\nexit {status}\n')
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
    assert TARGET.diff(RunningState(state, answers), state, CAPABILITIES).save == ()
