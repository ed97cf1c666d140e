"""A network and a /run of its own for a process, so that labs of several test processes do not meet."""

import ctypes
import subprocess
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWNET: Final = 0x40000000


def take_own_machine() -> None:
    """Leave the network and the mounts that this process shares with others, with all that it starts.

    Raises OSError where that is not allowed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    folders = [path for path in Path("/run").iterdir() if path.is_dir() and path.name != "netns"]
    modes = {path: path.stat().st_mode & 0o7777 for path in folders}
    for command in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"],
        ["ip", "link", "set", "lo", "up"],
    ):
        subprocess.run(command, check=True)
    for path, mode in modes.items():
        path.mkdir(mode=mode)
