"""A job on the host itself that takes a push back, unless somebody takes the job away in time.

    /run/mltswitch/NAME.sh      the way back; it is removed to keep the push
    /run/mltswitch/NAME         the same, while it runs

It counts from before the first line of the push. A reboot ends it, and the push with it, which is not saved.
Where systemd is the host's init, the job is a scope of its own (`systemctl list-units 'run-*.scope'`), for
logind may end what a session leaves in that of the session (logind.conf(5), KillUserProcesses).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from shlex import quote
from typing import Final

from mltswitch.targets.base import Change, RunningState, Step, Timer
from mltswitch.targets.linux.capabilities import HARDWARE
from mltswitch.targets.linux.restore import restoring_change
from mltswitch.targets.linux.save import IS_SYSTEMD
from mltswitch.targets.state import SwitchState

_FOLDER: Final = "/run/mltswitch"
_END: Final = "END-OF-THE-WAY-BACK"


def _armed(change: Change, before: Mapping[str, str], wanted: SwitchState, name: str, seconds: int) -> Change:
    """The same change behind a job that undoes it; raises DeviceError for what cannot return."""
    back = restoring_change(before, RunningState(wanted, {}), wanted, next(iter(HARDWARE.values())))
    path = quote(f"{_FOLDER}/{name}")
    # A job whose script was taken away, and written anew since, is not the one that waits for this push.
    run = f"mv {path}.sh {path} && {{ sh {path}; rm -f {path}; }}"
    wait = f"sleep {seconds}; test /proc/self/fd/0 -ef {path}.sh && {run}"
    command = (
        f"scope=; if {IS_SYSTEMD}; then scope='systemd-run --scope -q' && $scope true; fi && "
        "command -v setsid > /dev/null && command -v nohup > /dev/null && "  # a job's failure is not seen
        f"mkdir -p -m 700 {_FOLDER} && cat > {path}.sh && "
        f"exec 3< {path}.sh && {{ setsid nohup $scope sh -c {quote(wait)} > /dev/null 2>&1 <&3 & }}"
    )
    return replace(change, steps=(Step(command, _script(back.steps)), *change.steps))


def _script(steps: Iterable[Step]) -> str:
    return "".join(f"{{ {step.command}; }} <<'{_END}'\n{step.stdin}{_END}\n" for step in steps)


def _kept(name: str) -> tuple[Step, ...]:
    path = quote(f"{_FOLDER}/{name}")
    return (Step(f"rm -f {path}.sh && test ! -e {path}"),)


TIMER: Final = Timer(_armed, _kept, f"ls {_FOLDER} 2> /dev/null || true")
