"""The emulated switch without SSH: asks and applies what a target wants."""

from mltswitch.lab.emulators.eos import EosDevice
from mltswitch.targets import Change, RunningState, Step, SwitchState
from mltswitch.targets.eos import TARGET


def read(device: EosDevice, wanted: SwitchState) -> RunningState:
    session = device.open_session("admin")
    session.enter("enable")
    answers = {query: session.enter(query).text for query in TARGET.queries(wanted)}
    return TARGET.read(answers, wanted)


def send(device: EosDevice, steps: tuple[Step, ...]) -> None:
    """The steps in one session, beginning in configuration mode, as the deployer does."""
    session = device.open_session("admin")
    for line in ("enable", "configure terminal"):
        session.enter(line)
    for step in steps:
        answer = session.enter(step.command).text
        assert not answer.startswith("%"), f"{step.command}: {answer}"


def apply(device: EosDevice, change: Change) -> None:
    send(device, change.steps)
    send(device, change.save)
