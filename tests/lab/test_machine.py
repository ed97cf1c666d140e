"""What the machine offers, and what `up` makes of less."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.lab import DeviceKind, Lab, LabMode, kernel, uml, xstate
from mltswitch.lab import lab as lab_module
from mltswitch.lab.kernel import Machine, examine
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.programs import need
from mltswitch.plan import Fabric
from tests.lab.conftest import DEVICES


def test_missing_programs_are_named_with_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == "sshd" else name)
    machine = examine()
    assert machine.mode is LabMode.EMULATORS_ONLY
    assert machine.missing == ("no Linux switches: sshd is not installed (Debian package openssh-server)",)


@pytest.mark.parametrize(
    ("program", "package"), [("ip", "iproute2"), ("ping", "iputils-ping"), ("gcc", "gcc")]
)
def test_the_error_has_the_command_that_installs_a_program(
    program: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == program else name)
    with pytest.raises(MachineError, match=f"^{program} is not installed. `apt-get install {package}`$"):
        need("tc", program)


@pytest.mark.parametrize(
    ("root", "features", "obstacles", "mode"),
    [
        (True, (), ("none",), LabMode.NATIVE),
        (True, ("prio",), (), LabMode.USER_MODE_LINUX),
        (True, ("prio",), ("no uml",), LabMode.EMULATORS_ONLY),
        (False, (), (), LabMode.ROOTLESS),
        (False, (), ("no uml",), LabMode.EMULATORS_ONLY),
    ],
)
def test_mode(
    monkeypatch: pytest.MonkeyPatch,
    root: bool,
    features: tuple[str, ...],
    obstacles: tuple[str, ...],
    mode: LabMode,
) -> None:
    monkeypatch.setattr(kernel, "_missing_programs", lambda: iter(()))
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(kernel, "failing_features", lambda: features)
    monkeypatch.setattr(kernel, "_uml_obstacles", lambda *, is_root: iter(obstacles))
    machine = examine()
    assert machine.mode is mode
    assert bool(machine.missing) is (mode is not LabMode.NATIVE)


def test_the_trial_leaves_nothing_behind() -> None:
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs root: a network namespace cannot be made")
    before = Path("/proc/net/dev").read_text().count(":")
    assert set(kernel.failing_features()) <= {"veth", *kernel._TRIAL_STEPS}
    assert Path("/proc/net/dev").read_text().count(":") == before


def test_emulators_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lab_fabric: Fabric) -> None:
    missing = ("no Linux switches: nothing works here",)
    monkeypatch.setattr(lab_module, "examine", lambda: Machine(LabMode.EMULATORS_ONLY, missing))
    monkeypatch.setattr(lab_module, "our_namespaces", lambda: ())
    monkeypatch.setattr("mltswitch.lab.state.MACHINE_LOCK", tmp_path / "lock")
    emulated = [
        DEVICES[0],
        *(type(d)(d.name, d.platform, d.address, d.port + 1) for d in DEVICES if d.platform != "linux"),
    ]
    lab = Lab(tmp_path / "state")
    said: list[str] = []
    try:
        status = lab.up(lab_fabric, emulated, progress=said.append)
        assert status.mode is LabMode.EMULATORS_ONLY
        assert status.missing == missing
        assert status.all_answer
        assert {d.name: d.kind for d in status.devices} == {
            "spine1": DeviceKind.ABSENT,
            "onyx1": DeviceKind.EMULATED,
            "sonic1": DeviceKind.EMULATED,
        }
        assert said[0] == missing[0]
        with pytest.raises(MachineError, match="is up already"):
            lab.up(lab_fabric, emulated, progress=said.append)
        assert lab.status().all_answer
    finally:
        lab.down(said.append)
    assert not (tmp_path / "state").exists()


@pytest.mark.skipif(uml.binary() is None, reason="user-mode-linux is not installed")
def test_modules_come_after_what_they_need() -> None:
    names = [Path(word).stem for word in uml.switches_init("").split() if word.endswith(".ko")]
    assert names.index("llc") < names.index("stp") < names.index("bridge") < names.index("sch_red")
    assert len(names) == len(set(names))


def test_no_path_becomes_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uml, "_load_modules", lambda: "")
    monkeypatch.setattr(sys, "executable", "/opt/o'neil;id/python")
    init = uml.rootless_init(LabPaths(Path("/srv/lab")), Path("/srv"))
    assert "/opt/o'neil;id/python" in shlex.split(init, comments=True)
    with pytest.raises(UserInputError, match="the working directory has a path that no script can hold"):
        uml.rootless_init(LabPaths(Path("/srv/lab")), Path("/srv/a';id;'"))


def test_a_command_line_that_the_kernel_would_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uml, "binary", lambda: "linux.uml")
    paths = LabPaths(tmp_path / "lab")
    paths.create()
    vectors = [f"vec{n}:transport=tap,ifname=tap{n}" for n in range(70)]
    with pytest.raises(MachineError, match="70 connections make a command line"):
        uml.start(paths, "", "abc", vectors=vectors)


@pytest.mark.skipif(xstate.compiler() is None, reason="no C compiler is installed")
def test_the_shim_leaves_other_ptrace_calls_as_they_are(tmp_path: Path) -> None:
    library = xstate.build(tmp_path)
    check = (
        "import ctypes, os, signal\n"
        "libc = ctypes.CDLL(None, use_errno=True); libc.ptrace.restype = ctypes.c_long\n"
        "libc.ptrace.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]\n"
        "word = ctypes.c_long(4242)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    libc.ptrace(0, 0, None, None); os.kill(os.getpid(), signal.SIGSTOP); os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "assert libc.ptrace(1, pid, ctypes.addressof(word), None) == 4242\n"
        "state = ctypes.create_string_buffer(2696)\n"
        "vector = (ctypes.c_size_t * 2)(ctypes.addressof(state), 2696)\n"
        "assert libc.ptrace(0x4204, pid, 0x202, ctypes.addressof(vector)) == 0\n"
        "assert libc.ptrace(0x4205, pid, 0x202, ctypes.addressof(vector)) == 0, ctypes.get_errno()\n"
        "assert libc.ptrace(3, 1 << 22, None, None) == -1 and ctypes.get_errno() == 3\n"
        "libc.ptrace(7, pid, None, None); os.waitpid(pid, 0)\n"
    )
    done = subprocess.run(
        ["python3", "-c", check],
        check=False,
        env={"LD_PRELOAD": str(library), "PATH": "/usr/bin:/bin"},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
