"""One user-mode-linux instance: its init script and command line, and how it is started and ended."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.lab import xstate
from mltswitch.lab.paths import LabPaths, check_plain
from mltswitch.lab.processes import (
    end_recorded,
    kill_and_wait,
    processes_with_argument,
    start_recorded,
    wait_for_line,
)
from mltswitch.lab.script import HEADER

MODULE_ROOT: Final = Path("/usr/lib/uml/modules")
RECORD: Final = "user-mode-linux"
READY_LINE: Final = "mltswitch: ready"
FAILED_LINE: Final = "mltswitch: failed"
BOOT_SECONDS: Final = 180.0
MEMORY_MEBIBYTES: Final = 256
ROOTLESS_MEMORY_MEBIBYTES: Final = 1024

_MAXIMUM_COMMAND_LINE: Final = 2047
"""COMMAND_LINE_SIZE of the kernel, without the final zero; what is longer would be cut silently."""
_MODULES: Final = (
    "veth",
    "dummy",
    "bridge",
    "tun",
    "sch_prio",
    "sch_red",
    "sch_tbf",
    "sch_drr",
    "sch_ingress",
    "cls_flower",
    "cls_u32",
    "cls_matchall",
    "act_gact",
    "act_police",
    "act_pedit",
    "act_csum",
    "act_skbedit",
)
# Loads modules in the given order by finit_module(2): kmod is not part of a minimal system, perl-base is.
_LOAD: Final = (
    "perl -e 'for (@ARGV) { open(F, q(<), $_) or die qq($_: $!\\n); my $e = q(); "
    "syscall(313, fileno(F), $e, 0) == 0 or $!+0 == 17 or die qq($_: $!\\n) }'"
)
# /dev is this kernel's own already (devtmpfs), all else is the host's by hostfs.
_MOUNTS: Final = """\
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ip link set lo up
"""
_OWN_MOUNTS: Final = ("proc", "sys", "dev", "run")
# Init must neither end nor leave children unreaped.
_FOREVER: Final = "while :; do sleep 3600; done\n"


def binary() -> str | None:
    """Path of the program `linux.uml`; None if it is not installed."""
    return shutil.which("linux.uml")


def is_this_kernel() -> bool:
    """Whether this process runs inside user-mode-linux."""
    return "User Mode Linux" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")


def switches_init(script: str) -> str:
    """Init script of a user-mode-linux instance that holds the switches."""
    return (
        f"{HEADER}{_MOUNTS}{_load_modules()}"
        f"if sh -eu <<'SCRIPT'\n{script}\nSCRIPT\nthen echo '{READY_LINE}'; else echo '{FAILED_LINE}'; fi\n"
        f"{_FOREVER}"
    )


def rootless_init(paths: LabPaths, directory: Path) -> str:
    """Init script of a user-mode-linux instance that holds the whole lab: mounts, then the command server.

    The state directory's `inside` takes the directory's own place, so that every path means the same on
    both sides; /tmp and the working directory are the user's, all else is read-only. Raises UserInputError
    for a working directory that cannot be mounted.
    """
    check_plain(directory, "the working directory")
    writable = [Path("/tmp")]  # noqa: S108  (the user's own, as outside)
    if len(directory.parts) > 1 and directory.parts[1] not in _OWN_MOUNTS:
        writable.append(directory)
    hostfs = "".join(f"mount -t hostfs -o '{place}' none '{place}'\n" for place in writable)
    package = shlex.quote(str(Path(__file__).parents[2]))
    return (
        f"{HEADER}{_MOUNTS}{hostfs}{_load_modules()}"
        f"mount -t hostfs -o '{paths.inside}' none '{paths.root}'\n"
        f"cd '{directory}'\n"
        f"export HOME=/run PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={package}\n"
        f"{shlex.quote(sys.executable)} -m mltswitch.lab.inside serve '{paths.root}' </dev/null || "
        f"echo '{FAILED_LINE}'\n"
        f"{_FOREVER}"
    )


def start(
    paths: LabPaths,
    init: str,
    instance: str,
    *,
    vectors: Sequence[str],
    memory_mebibytes: int = MEMORY_MEBIBYTES,
    namespace: str = "",
) -> None:
    """Boot a user-mode-linux instance whose `vec` devices (kernel arguments) open taps of the namespace.

    Returns when its init has said that it is ready; raises MachineError.
    """
    init_file = paths.work / "init"
    init_file.write_text(init, encoding="utf-8")
    init_file.chmod(0o700)
    program = binary()
    if program is None:
        raise MachineError("linux.uml is not installed", hint="`apt-get install user-mode-linux`")
    command = [program, *_arguments(paths, init_file, instance, memory_mebibytes, vectors)]
    environment = _environment(paths, memory_mebibytes)
    console = paths.logs / "user-mode-linux.log"
    with console.open("ab") as log:
        process = start_recorded(
            command, paths.processes / RECORD, log=log, environment=environment, namespace=namespace
        )
    wait_for_line(console, READY_LINE, process, BOOT_SECONDS, where=RECORD, failure=FAILED_LINE)


def stop(paths: LabPaths, instance: str | None) -> None:
    """End a user-mode-linux instance: its kernel, then its surviving helpers, which carry its name."""
    end_recorded(paths.processes / RECORD)
    if instance is not None:
        kill_and_wait(processes_with_argument(_instance_argument(instance)))


def _arguments(
    paths: LabPaths, init: Path, instance: str, memory_mebibytes: int, vectors: Sequence[str]
) -> list[str]:
    arguments = [
        f"mem={memory_mebibytes}M",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        f"init={init}",
        "con=null",
        "con0=null,fd:1",
        "quiet",
        _instance_argument(instance),
        f"uml_dir={paths.work}/",
        *vectors,
    ]
    length = len(" ".join(arguments))
    if length > _MAXIMUM_COMMAND_LINE:
        raise MachineError(
            f"{len(vectors)} connections make a command line of {length} characters",
            where="user-mode-linux",
            expected=f"at most {_MAXIMUM_COMMAND_LINE}",
            hint="use a fabric with fewer hosts, or a kernel that has prio, red and flower",
        )
    return arguments


def _instance_argument(instance: str) -> str:
    return f"umid=mltswitch-{instance}"


def _environment(paths: LabPaths, memory_mebibytes: int) -> dict[str, str]:
    environment = {}
    if not _suits_memory(Path("/dev/shm"), memory_mebibytes):  # noqa: S108  (where the instance's RAM goes)
        environment["TMPDIR"] = str(paths.work)
    if xstate.needed():
        environment["LD_PRELOAD"] = str(xstate.build(paths.work))
    return environment


def _suits_memory(folder: Path, memory_mebibytes: int) -> bool:
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    return not room.f_flag & os.ST_NOEXEC and room.f_bavail * room.f_frsize > memory_mebibytes << 20


def _load_modules() -> str:
    return f"{_LOAD} {' '.join(str(module) for module in _module_files(_release(), _MODULES))}\n"


def _release() -> str:
    program = binary() or "linux.uml"
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _module_files(release: str, names: Iterable[str]) -> list[Path]:
    """Files of these modules and of what they depend on, in the order of loading."""
    folder = MODULE_ROOT / release
    try:
        lines = (folder / "modules.dep").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise MachineError(f"cannot be read: {error.strerror}", where=f"{folder}/modules.dep") from None
    requirements = {}
    for line in lines:
        file, _, needed = line.partition(":")
        requirements[Path(file).name.partition(".")[0].replace("-", "_")] = (file, needed.split())
    ordered: dict[Path, None] = {}
    for name in names:
        if name not in requirements:  # built into the kernel
            continue
        file, needed_files = requirements[name]
        for needed_file in reversed(needed_files):  # modules.dep lists the nearest first
            ordered[folder / needed_file] = None
        ordered[folder / file] = None
    return list(ordered)
