"""The emulated switch without SSH: asks and applies what a target wants."""

from mltswitch.capabilities import Capabilities
from mltswitch.targets import Change, RunningState, SwitchState
from mltswitch.targets.onyx import TARGET
from switchsim.onyx import OnyxDevice

CAPABILITIES = TARGET.hardware(None)


def read(device: OnyxDevice, wanted: SwitchState, capabilities: Capabilities = CAPABILITIES) -> RunningState:
    session = device.open_session("admin")
    session.enter("enable")
    answers = {query: session.enter(query).text for query in TARGET.queries(wanted)}
    return TARGET.read(answers, wanted, capabilities)


def apply(device: OnyxDevice, change: Change) -> None:
    for step in (*change.steps, *change.save):
        answer = device.configure(step.command)
        assert answer == "", f"{step.command}: {answer}"
