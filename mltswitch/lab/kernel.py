"""Finds out by trying which kinds of lab this machine can run."""

import os
import shutil
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.lab import uml, xstate
from mltswitch.lab.bmv2 import has_mininet
from mltswitch.lab.bmv2_node import PROGRAM
from mltswitch.lab.model import Engine, LabMode

TRIAL_SECONDS: Final = 20.0

_PROGRAMS: Final = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "ethtool": "ethtool",
    "sshd": "openssh-server",
}
_BMV2_PROGRAMS: Final = {program: _PROGRAMS[program] for program in ("ip", "tc", "unshare", "ethtool")}
# Each by itself, so that everything that fails can be named. The namespace ends with the process.
_TRIAL_DEVICE: Final = "ip link add name trial0 type veth peer name trial1 || { echo veth; exit 0; }"
_TRIAL_STEPS: Final = {
    "prio": "tc qdisc replace dev trial0 root handle 1: prio bands 8 priomap" + 16 * " 7",
    "red": "tc qdisc replace dev trial1 root handle 2: red limit 60000 min 20000 max 20000 avpkt 1000 "
    "burst 20 bandwidth 10mbit probability 1 ecn",
    "tbf": "tc qdisc replace dev trial1 root handle 3: tbf rate 10mbit burst 10000 limit 100000",
    "drr": "tc qdisc replace dev trial1 root handle 5: drr",
    "flower": "tc qdisc replace dev trial1 root handle 4: prio && "
    "tc filter add dev trial1 parent 4: protocol ip prio 1 flower ip_tos 0x88/0xfc classid 4:1",
    "dummy interfaces": "ip link add name trial2 type dummy",
    "bridges": "ip link add name trial3 type bridge",
    "writable /proc/sys": "echo 1 >/proc/sys/net/ipv4/ip_forward",
}
_BMV2_FEATURES: Final = ("tbf", "writable /proc/sys")


@dataclass(frozen=True, slots=True)
class Machine:
    """The best mode in which this machine can run a lab, and why no better one is possible."""

    mode: LabMode
    missing: tuple[str, ...]


def examine() -> Machine:
    """Try what a lab of Linux switches needs, without changing anything."""
    programs = tuple(_missing_programs())
    if programs:
        return Machine(LabMode.EMULATORS_ONLY, programs)
    is_root = os.geteuid() == 0
    lacking = failing_features() if is_root else ()
    if is_root and not lacking:
        return Machine(LabMode.NATIVE, ())
    reason = f"this kernel has no {' and no '.join(lacking)}" if is_root else "not root"
    if obstacles := tuple(_uml_obstacles(is_root=is_root)):
        told = tuple(f"no Linux switches: {reason}, and {obstacle}" for obstacle in obstacles)
        return Machine(LabMode.EMULATORS_ONLY, told)
    if is_root:
        return Machine(LabMode.USER_MODE_LINUX, (f"{reason}, so the switches run in user-mode-linux",))
    told = (f"{reason}, so the whole lab runs in user-mode-linux: use `mltswitch lab run`",)
    return Machine(LabMode.ROOTLESS, told)


def examine_for_bmv2(engine: Engine) -> Machine:
    """How this machine can run BMv2 switches: by this engine or, by default, by mininet where it is there.

    Changes nothing. Raises MachineError naming what is missing, because such a lab needs BMv2.
    """
    if os.geteuid() != 0:
        raise MachineError("BMv2 switches need root: each has a network namespace of its own")
    for program, package in _BMV2_PROGRAMS.items():
        if shutil.which(program, path=_path()) is None:
            raise MachineError(f"{program} is not installed", hint=f"`apt-get install {package}`")
    if shutil.which(PROGRAM, path=_path()) is None:
        raise MachineError(
            f"{PROGRAM} is not installed",
            where="BMv2",
            hint="`apt-get install p4lang-bmv2`, from where docs/p4.md says",
        )
    lacking = failing_features(_BMV2_FEATURES)
    if lacking:
        raise MachineError(f"this kernel has no {' and no '.join(lacking)}", where="BMv2")
    found = engine is not Engine.NAMESPACES and has_mininet()
    if engine is Engine.MININET and not found:
        raise MachineError(
            "mininet is not installed", hint="`apt-get install mininet`, or use --engine namespaces"
        )
    if found:
        return Machine(LabMode.BMV2_MININET, ())
    missing = () if engine is Engine.NAMESPACES else ("mininet is not installed: plain network namespaces",)
    return Machine(LabMode.BMV2, missing)


def failing_features(names: Collection[str] = tuple(_TRIAL_STEPS)) -> tuple[str, ...]:
    """Those of these kernel features that fail in a trial namespace; default: all Linux switches need."""
    steps = "\n".join(
        f"{{ {step}; }} >/dev/null 2>&1 || echo {name}"
        for name, step in _TRIAL_STEPS.items()
        if name in names
    )
    try:
        done = subprocess.run(
            ["unshare", "--net", "sh", "-c", f"{_TRIAL_DEVICE}\n{steps}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=TRIAL_SECONDS,
            env={**os.environ, "PATH": _path()},
        )
    except subprocess.TimeoutExpired:
        return ("network namespace that answers in time",)
    if done.returncode:
        return ("network namespaces",)
    return tuple(done.stdout.split("\n")[:-1])


def _missing_programs() -> Iterator[str]:
    for program, package in _PROGRAMS.items():
        if shutil.which(program, path=_path()) is None:
            yield f"no Linux switches: {program} is not installed (Debian package {package})"


def _uml_obstacles(*, is_root: bool) -> Iterator[str]:
    if uml.binary() is None:
        yield "linux.uml is not installed (Debian package user-mode-linux)"
        return
    if uml.is_this_kernel():
        yield "this is user-mode-linux already"
    if not uml.MODULE_ROOT.is_dir():
        yield f"the modules of user-mode-linux are missing from {uml.MODULE_ROOT}"
    if shutil.which("perl", path=_path()) is None:
        yield "perl, which loads them, is not installed (Debian package perl-base)"
    if xstate.needed() and xstate.compiler() is None:
        yield "user-mode-linux needs a C compiler on processors with AMX (Debian package gcc)"
    if is_root and not Path("/dev/net/tun").exists():
        yield "/dev/net/tun, which connects user-mode-linux, does not exist"


def _path() -> str:
    return os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
