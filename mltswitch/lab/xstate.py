"""A preloaded `ptrace` for user-mode-linux on processors whose register file outgrew it (AMX).

Kernel 6.1's user-mode-linux keeps 2,696 bytes of extended processor state. Since AMX the host's kernel has
11,008, and PTRACE_SETREGSET refuses anything but the whole of it (EFAULT), so init dies at once. The shim
passes the state on, completed by the initial state of what user-mode-linux does not know. Where the sizes
agree it does nothing.
"""

import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

from mltswitch.errors import MachineError


def needed() -> bool:
    """Whether this processor has the state that user-mode-linux of kernel 6.1 does not know."""
    return "amx_tile" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")


def compiler() -> str | None:
    """Path of an installed C compiler; None if there is none."""
    return next((path for name in ("cc", "gcc", "clang", "tcc") if (path := shutil.which(name))), None)


def build(folder: Path) -> Path:
    """Compile the `ptrace` shim into the folder and return its path; raises MachineError."""
    command = compiler()
    if command is None:
        raise MachineError("a C compiler is missing", hint="install gcc")
    library = folder / "xstate.so"
    with as_file(files(__package__) / "xstate.c") as source:
        done = subprocess.run(
            [command, "-O2", "-shared", "-fPIC", "-nostdlib", "-o", str(library), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise MachineError(f"the ptrace shim does not compile: {done.stderr}", where=command)
    return library
