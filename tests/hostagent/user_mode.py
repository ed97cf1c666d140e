"""A Python program in a kernel of its own: user-mode-linux on this machine's files, which it only reads."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from mltswitch.lab import uml, xstate

MEMORY_MEBIBYTES: Final = 256
SECONDS: Final = 120.0
_ROOT: Final = Path(__file__).parents[2]
_POWER_OFF: Final = "perl -e 'syscall(169, 0xfee1dead, 672274793, 0x4321fedc, 0)'"
"""reboot(2)."""
_MOUNTS: Final = """\
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns
ip link set lo up
"""


def is_there() -> bool:
    """Whether the program and its modules are installed."""
    return uml.binary() is not None and uml.MODULE_ROOT.is_dir()


def run_module(name: str, folder: Path, modules: tuple[str, ...]) -> dict[str, Any]:
    """What `python -m name` prints as its last line of JSON; `folder` is for files of the instance."""
    files = uml._module_files(uml._release(), modules)
    load = f"{uml._LOAD} {' '.join(map(str, files))}\n" if files else ""
    program = f"{shlex.quote(sys.executable)} -m {name} 2>&1"
    init = folder / "init"
    init.write_text(
        "#!/bin/sh\nexport PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin\n"
        f"{_MOUNTS}{load}cd {shlex.quote(str(_ROOT))}\n"
        f"PYTHONDONTWRITEBYTECODE=1 {program}\n{_POWER_OFF}\nsleep 1000\n",
        encoding="utf-8",
    )
    init.chmod(0o700)
    command = [
        *(str(uml.binary()), f"mem={MEMORY_MEBIBYTES}M", "root=/dev/root", "rootfstype=hostfs"),
        *("rootflags=/", "ro", f"init={init}", "con=null", "con0=null,fd:1", "quiet"),
        *(f"umid=agent-test-{os.getpid()}", f"uml_dir={folder}/"),
    ]
    environment = dict(os.environ)
    if not uml._suits_memory(Path("/dev/shm"), MEMORY_MEBIBYTES):  # noqa: S108  (where its memory goes)
        environment["TMPDIR"] = str(folder)
    if xstate.needed():
        environment["LD_PRELOAD"] = str(xstate.build(folder))
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        timeout=SECONDS,
    )
    text = done.stdout.decode(errors="replace")
    lines = [line for line in text.splitlines() if line.startswith("{")]
    assert lines, text[-3000:]
    found = json.loads(lines[-1])
    assert isinstance(found, dict)
    return found
