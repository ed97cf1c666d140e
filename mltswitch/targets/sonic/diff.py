"""The commands that take a SONiC switch to the plan: a checkpoint, then patches, each all or nothing.

What the release's updater refuses is not sent. What nothing refers to any more stays where it may not go.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, RunningState, Step, Timer
from mltswitch.targets.sonic.capabilities import model_of
from mltswitch.targets.sonic.database import QUEUE_TABLES, Database
from mltswitch.targets.sonic.document import document
from mltswitch.targets.sonic.merge import merged, unmerged
from mltswitch.targets.sonic.patch import Operation, is_removal, patches_between
from mltswitch.targets.sonic.read import running_build, running_database
from mltswitch.targets.sonic.releases import differences_made, first_to_accept, release_of
from mltswitch.targets.sonic.releases import refusals as updater_refusals
from mltswitch.targets.sonic.rules import refusals, transition_refusals
from mltswitch.targets.state import SwitchState

APPLY: Final = "cat | sudo config apply-patch /dev/stdin"
"""`cat` because sshd may give a command a socket as standard input, and a socket cannot be opened by name."""
APPLY_SECONDS: Final = 900.0
"""The updater finds an order of small steps, and waits for services between them."""
SAVE: Final = (Step("sudo config save -y"),)
_CHECKPOINT: Final = "sudo config checkpoint"
_PORT_TABLES: Final = (*QUEUE_TABLES, "PORT_QOS_MAP")


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """Patch of our objects alone; raises DeviceError for what it lacks, would ignore or refuses to change."""
    del capabilities
    before = running_database(running.answers)
    _check(before, wanted)
    return _change(before, merged(before, wanted), running, wanted)


def restoring_change(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """Patch back of what a push of the wanted state changes in what ran before; raises DeviceError."""
    del capabilities
    was, now = running_database(before), running_database(running.answers)
    return _change(now, unmerged(now, was, wanted), running, wanted)


def _change(before: Database, after: Database, running: RunningState, wanted: SwitchState) -> Change:
    patches = _accepted(patches_between(before, after), before, running_build(running.answers))
    if not patches:
        return Change((), SAVE)
    checkpoints = [checkpoint_of(before)]
    steps = [_checkpoint(checkpoints[0])]
    for patch in patches:
        if is_removal(patch):
            # Back to what was before in one step, the updater may refuse: see `patches_between`.
            checkpoints.append(checkpoint_of(before, after))
            steps.append(_checkpoint(checkpoints[-1]))
        steps.append(Step(APPLY, json.dumps(patch), APPLY_SECONDS))
    operations = [operation for patch in patches for operation in patch]
    back = " && ".join(f"sudo config rollback {name}" for name in reversed(checkpoints))
    down = _ports_taken_down(before, after, wanted)
    text = _text(operations, down, back)
    return Change(tuple(steps), SAVE, text, f"{back} && {SAVE[0].command}", down)


def _timed(change: Change, before: Mapping[str, str], wanted: SwitchState, name: str, seconds: int) -> Change:
    """The same change, with a unit of systemd that rolls back to its checkpoints, the last one first.

    It counts from before the first patch: what takes longer is rolled back half done.
    """
    del wanted
    checkpoints = [step.command for step in change.steps if step.command.startswith(_CHECKPOINT)]
    first = _checkpoint(checkpoint_of(running_database(before))).command
    if first not in checkpoints:  # a change that goes on where another try broke off has its checkpoint
        checkpoints.insert(0, first)
    back = "; ".join(
        command.replace("checkpoint", "rollback").removeprefix("sudo ") for command in checkpoints[::-1]
    )
    when = f"--on-active={seconds} --timer-property=AccuracySec=1s"  # else up to a minute later
    arm = f"sudo systemd-run {when} --unit=mltswitch-{name} sh -c '{back}'"
    return replace(change, steps=(change.steps[0], Step(arm), *change.steps[1:]))


def _kept(name: str) -> tuple[Step, ...]:
    # A timer that has run out stays loaded while its service rolls back (systemd.timer, RemainAfterElapse).
    unit = f"mltswitch-{name}"
    running = f"systemctl is-active --quiet {unit}.timer {unit}.service"
    return (Step(f"sudo systemctl stop {unit}.timer; ! {running}"),)


TIMER: Final = Timer(_timed, _kept, "systemctl list-units --plain --no-legend --state=active 'mltswitch-*'")


def _check(before: Database, wanted: SwitchState) -> None:
    """What orchagent would not do of our objects, here and in the device's own pool."""
    needed = document(wanted)
    pools = {"BUFFER_POOL": before.get("BUFFER_POOL", {})}
    for refusal in (*refusals(needed | pools), *transition_refusals(before, needed)):
        raise DeviceError(
            f"{refusal.problem}, so the switch would not do what it says",
            where=refusal.where,
            hint="remove the object by hand, or go back to a checkpoint, and push again",
        )


def _accepted(patches: list[list[Operation]], before: Database, build: str) -> list[list[Operation]]:
    """The patches without removals that the release refuses; raises DeviceError for all else that it does."""
    metadata = before.get("DEVICE_METADATA", {}).get("localhost", {})
    hwsku = str(metadata.get("hwsku", ""))
    judged = hwsku if model_of(str(metadata.get("platform", "")), hwsku) is not None else None
    others = [operation for patch in patches if not is_removal(patch) for operation in patch]
    changes = list(differences_made(others, before))
    if refused := updater_refusals(changes, build, judged):
        first = first_to_accept(changes, judged)
        raise DeviceError(
            f"SONiC {release_of(build) or build} refuses the {refused[0]}, so nothing was sent",
            where=f"build {build}, hwsku {hwsku}",
            expected=f"release {first} or later" if first else "hardware that its updater lists",
            hint="upgrade the switch: `config apply-patch` of this release lets few fields change",
        )
    accepted = [
        [each for each in patch if not is_removal(patch) or not updater_refusals([each], build, judged)]
        for patch in patches
    ]
    return [patch for patch in accepted if patch]


def _checkpoint(name: str) -> Step:
    return Step(f"{_CHECKPOINT} {name}")


def checkpoint_of(*databases: Database) -> str:
    """Name of the checkpoint of a configuration, or of one on the way between two: of no other one."""
    contents = json.dumps(databases, sort_keys=True).encode()
    return f"mltswitch-{hashlib.sha256(contents).hexdigest()[:8]}"


def _ports_taken_down(before: Database, after: Database, wanted: SwitchState) -> tuple[str, ...]:
    """Ports whose queues or maps change: the updater sets them down meanwhile (patch_sorter.py)."""
    changed = {
        name
        for table in _PORT_TABLES
        for key in before.get(table, {}).keys() | after.get(table, {}).keys()
        if before.get(table, {}).get(key) != after.get(table, {}).get(key)
        for name in key.partition("|")[0].split(",")
    }
    return tuple(port.name for port in wanted.ports if port.name in changed)


def _text(operations: list[Operation], ports: tuple[str, ...], back: str) -> str:
    lines = [f"# back to the state before: {back}"]
    lines += [json.dumps(operation) for operation in operations]
    if ports:
        lines.insert(0, f"# the switch takes down for a moment: {', '.join(ports)}")
    return "\n".join(lines) + "\n"
