"""The emulated switch without SSH: asks and applies what a target wants."""

from mltswitch.capabilities import Capabilities
from mltswitch.lab.emulators.eos import EosDevice
from mltswitch.targets import Change, RunningState, Step, SwitchState
from mltswitch.targets.eos import TARGET

CAPABILITIES = TARGET.hardware(None)

MODELS = {
    "trident2": "DCS-7050QX-32-F",
    "trident3": "DCS-7050CX3-32S-R",
    "tomahawk": "DCS-7060CX-32S-F",
    "tomahawk2": "DCS-7260CX3-64-F",
    "tomahawk3": "DCS-7060DX4-32-F",
}
"""Chip → a model that has it, as `show version` names it."""


def read(device: EosDevice, wanted: SwitchState, capabilities: Capabilities = CAPABILITIES) -> RunningState:
    session = device.open_session("admin")
    session.enter("enable")
    answers = {query: session.enter(query).text for query in TARGET.queries(wanted)}
    return TARGET.read(answers, wanted, capabilities)


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
