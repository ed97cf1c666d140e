"""The emulated switch without SSH: asks and applies what a target wants."""

from mltswitch.capabilities import Capabilities
from mltswitch.targets import Change, RunningState, SwitchState
from mltswitch.targets.cumulus import TARGET
from switchsim.cumulus import CumulusDevice

CAPABILITIES = TARGET.hardware(None)


def read(
    device: CumulusDevice, wanted: SwitchState, capabilities: Capabilities = CAPABILITIES
) -> RunningState:
    answers = {}
    for query in TARGET.queries(wanted):
        result = device.execute("cumulus", query)
        assert result.status == 0, result
        answers[query] = result.stdout.decode()
    return TARGET.read(answers, wanted, capabilities)


def run(device: CumulusDevice, *commands: str) -> None:
    for command in commands:
        result = device.execute("cumulus", command)
        assert result.status == 0, f"{command}: {result.stderr.decode()}"


def apply(device: CumulusDevice, change: Change) -> None:
    run(device, *(step.command for step in (*change.steps, *change.save)))


def undo(device: CumulusDevice, change: Change) -> None:
    """Enter what the change itself says leads back."""
    _, _, commands = change.text.partition("# back to the state before:\n")
    run(device, *(line.removeprefix("#   ") for line in commands.splitlines()), "nv config apply -y")
