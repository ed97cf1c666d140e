"""The emulated switch without SSH: asks and applies what a target wants."""

from mltswitch.capabilities import Capabilities
from mltswitch.targets import Change, RunningState, SwitchState
from mltswitch.targets.icos import TARGET
from switchsim.icos import SAVED, IcosDevice

CAPABILITIES = TARGET.hardware(None)


def read(device: IcosDevice, wanted: SwitchState, capabilities: Capabilities = CAPABILITIES) -> RunningState:
    session = device.open_session("admin")
    session.enter("enable")
    answers = {query: session.enter(query).text for query in TARGET.queries(wanted)}
    return TARGET.read(answers, wanted, capabilities)


def apply(device: IcosDevice, change: Change) -> None:
    session = device.open_session("admin")
    session.enter("enable")
    session.enter("configure")
    for step in (*change.steps, *change.save):
        answer = session.enter(step.command).text
        assert answer == (SAVED if step.command.startswith("write") else ""), f"{step.command}: {answer}"
    assert session.prompt == f"({device.name}) (Config)#"


def policy_of(device: IcosDevice, port: str) -> str:
    """The name of its policy; empty where it has none."""
    return next((fact[2] for fact in device.configuration if fact[:2] == (port, "policy")), "")
