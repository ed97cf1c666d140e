"""The emulated switch without SSH: asks and applies what a target wants."""

from mltswitch.capabilities import Capabilities
from mltswitch.lab.emulators.sonic import SonicDevice
from mltswitch.targets import Change, RunningState, SwitchState
from mltswitch.targets.sonic import TARGET

CAPABILITIES = TARGET.hardware(None)


def read(device: SonicDevice, wanted: SwitchState, capabilities: Capabilities = CAPABILITIES) -> RunningState:
    answers = {}
    for query in TARGET.queries(wanted):
        result = device.execute("admin", query)
        assert result.status == 0, result
        answers[query] = result.stdout.decode()
    return TARGET.read(answers, wanted, capabilities)


def apply(device: SonicDevice, change: Change) -> None:
    for step in (*change.steps, *change.save):
        result = device.execute("admin", step.command, step.stdin.encode)
        assert result.status == 0, f"{step.command}: {result.stderr.decode()}"
