"""How much code a threshold passes on its way to a switch and back: what has to be understood to change it.

    python -m benchmarks.there_and_back [--quick] [--json]

One leaf of each platform that is simulated: its plan is rendered and parsed again, a switch as delivered is
read, the change is made and entered, the switch is read once more, and the way back is made. Counted is what
of `mltswitch.targets` and of the templates takes part.

    <platform>_files        modules whose functions were called
    <platform>_functions    functions and methods of these
    <platform>_types        classes of ours that they were given or returned
"""

import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import click

import mltswitch.targets
from benchmarks.figures import print_figures
from benchmarks.fleet import Member, fleet
from mltswitch.targets import SessionKind, Step, SwitchState, Target, target_for, targets
from mltswitch.targets.state import differences
from switchsim import KINDS
from switchsim.device import EmulatedDevice

ROOM = str(Path(mltswitch.targets.__file__).parent)
PACKAGE = mltswitch.targets.__name__


class Passed:
    """What takes part while it is entered."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.types: set[type] = set()

    def __enter__(self) -> "Passed":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, value: Any) -> None:
        if not frame.f_code.co_filename.startswith(ROOM):
            return
        if event == "call" and not frame.f_code.co_name.startswith("<"):
            self.functions.add(frame.f_code)
        values = frame.f_locals.values() if event == "call" else (value,) if event == "return" else ()
        self.types.update(type(each) for each in values if type(each).__module__.startswith(PACKAGE))

    def figures(self) -> Mapping[str, int]:
        """Figure → how many."""
        files = {code.co_filename for code in self.functions}
        return {"files": len(files), "functions": len(self.functions), "types": len(self.types)}


def _answers(device: EmulatedDevice, target: Target, wanted: SwitchState) -> dict[str, str]:
    queries = target.queries(wanted)
    if target.session is SessionKind.SHELL:
        return {query: _run(device, query, "") for query in queries}
    line = device.open_session("admin")
    line.enter(_privileged(target))
    return {query: line.enter(query).text for query in queries}


def _enter(device: EmulatedDevice, target: Target, steps: Iterable[Step]) -> None:
    if target.session is SessionKind.SHELL:
        for step in steps:
            _run(device, step.command, step.stdin)
        return
    line = device.open_session("admin")
    for text in (_privileged(target), "configure", "configure terminal", *(step.command for step in steps)):
        line.enter(text)


def _privileged(target: Target) -> str:
    """What opens the command line that may change something."""
    return "enable" if target.has_enable_mode else "sonic-cli"


def _run(device: EmulatedDevice, command: str, stdin: str) -> str:
    result = device.execute("admin", command, stdin.encode)
    return result.stdout.decode() if result else ""


def measure(member: Member) -> Mapping[str, int]:
    """The figures of one platform; raises RuntimeError where the switch does not run the plan afterwards."""
    target = target_for(member.device.platform)
    fitted = target.fit_to_hardware(member.plan, member.device.switch)
    wanted, capabilities = fitted.state, fitted.capabilities
    device = KINDS[target.platform](member.device.name, KINDS[target.platform].usual_ports)
    with Passed() as passed:
        target.render(wanted, capabilities)
        before = _answers(device, target, wanted)
        change = target.diff(target.read(before, wanted, capabilities), wanted, capabilities)
        _enter(device, target, (*change.steps, *change.save))
        running = target.read(_answers(device, target, wanted), wanted, capabilities)
        left = target.diff(running, wanted, capabilities)
        target.restore(before, running, wanted, capabilities)
    if left.steps or differences(wanted, running.state):
        raise RuntimeError(f"{target.platform} does not run the plan: {left.text[:500]}")
    return passed.figures()


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--quick", is_flag=True, help="EOS alone.")
def main(as_json: bool, quick: bool) -> None:
    """Print the figures of each platform that is simulated."""
    platforms = {"eos"} if quick else set(KINDS)
    members = {entry.device.platform: entry for entry in islice(fleet(), len(targets()))}
    print_figures(
        {
            f"{platform}_{name}": float(figure)
            for platform in sorted(platforms & members.keys())
            for name, figure in measure(members[platform]).items()
        },
        as_json=as_json,
    )


if __name__ == "__main__":
    main()
