"""Starting and ending the lab's supervisor, a process of its own."""

import subprocess
import sys
from typing import Final

from mltswitch.lab.paths import LabPaths
from mltswitch.lab.processes import end, read_record, start_recorded

SUPERVISOR_MODULE: Final = "mltswitch.lab.supervisor"

_RECORD: Final = "supervisor"
_GRACE_SECONDS: Final = 5.0


def start_supervisor(paths: LabPaths) -> subprocess.Popen[bytes]:
    """Start the supervisor of the recorded lab in the background."""
    with (paths.logs / "supervisor.log").open("ab") as log:
        return start_recorded(
            [sys.executable, "-P", "-m", SUPERVISOR_MODULE, str(paths.root)],
            paths.processes / _RECORD,
            log=log,
        )


def stop_supervisor(paths: LabPaths) -> None:
    """End it, where it was started; its emulators end with it."""
    identity = read_record(paths.processes / _RECORD)
    if identity is not None:
        end(identity, grace_seconds=_GRACE_SECONDS)
