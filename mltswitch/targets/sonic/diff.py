"""The commands that take a SONiC switch to the plan: a checkpoint, then patches, each all or nothing.

What the release's updater refuses is not sent. What nothing refers to any more stays where it may not go.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, HazardError
from mltswitch.targets.base import Change, Guard, RunningState, Step, Timer, Trial
from mltswitch.targets.common import shell_lock
from mltswitch.targets.sonic.capabilities import model_of
from mltswitch.targets.sonic.database import LISTING_TABLES, Database, listing_keys, parts_of, split
from mltswitch.targets.sonic.document import document
from mltswitch.targets.sonic.merge import merged, unmerged
from mltswitch.targets.sonic.patch import Operation, is_removal, patches_between, pointer
from mltswitch.targets.sonic.read import running_build, running_database, state_of
from mltswitch.targets.sonic.releases import differences_made, first_to_accept, release_of
from mltswitch.targets.sonic.releases import refusals as updater_refusals
from mltswitch.targets.sonic.rules import refusals, transition_refusals
from mltswitch.targets.state import SwitchState, differences

APPLY: Final = "cat | sudo config apply-patch{} /dev/stdin"
"""`cat` because sshd may give a command a socket as standard input, and a socket cannot be opened by name."""
APPLY_SECONDS: Final = 900.0
"""The updater finds an order of small steps, and waits for services between them."""
_TRY: Final = "sudo sonic-cfggen -d --print-data | sudo config replace -v -d{} /dev/stdin 2>&1 || true"
"""Replaces what runs by itself, as a dry run: the updater judges what runs as it would judge a patch of it.

An empty patch is judged, too, but since 202405 without a word of what is wrong: `Failed validating patch`
(sonic-utilities: config/main.py, validate_patch; generic_config_updater, PatchApplier and ConfigReplacer).
"""
_TAKEN: Final = "Config replaced successfully"
SAVE: Final = (Step("sudo config save -y"),)
_CHECKPOINT: Final = "sudo config checkpoint"
_MOST_NAMED: Final = 4
"""Objects that an error names."""
_MOST_QUOTED: Final = 200
"""Characters of the updater's own words."""


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """Patch of our objects alone; raises DeviceError for what it lacks, would ignore or refuses to change."""
    del capabilities
    before = running_database(running.answers)
    _check(before, wanted)
    after = merged(before, wanted)
    change = _change(before, before if after == split(before) else after, running, wanted)
    stays = differences(wanted, state_of(split(after), wanted))
    return replace(change, trial=None if change.is_empty else _trial(before), stays=stays)


def restoring_change(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """Patch back of what a push of the wanted state changes in what ran before; raises DeviceError."""
    del capabilities
    was, now = running_database(before), running_database(running.answers)
    return _change(now, unmerged(now, was, wanted), running, wanted)


def _change(before: Database, after: Database, running: RunningState, wanted: SwitchState) -> Change:
    if before == after:
        return Change((), SAVE)
    base, goal = split(before), split(after)
    patches = _accepted(patches_between(base, goal), base, running_build(running.answers))
    taken_apart = [operation for patch in patches_between(before, base) for operation in patch]
    steps = [_apply(taken_apart, before)] if taken_apart else []
    checkpoints = [checkpoint_of(base)]
    steps.append(_checkpoint(checkpoints[0]))
    for patch in patches:
        if is_removal(patch):
            # Back to what was before in one step, the updater may refuse: see `patches_between`.
            checkpoints.append(checkpoint_of(base, goal))
            steps.append(_checkpoint(checkpoints[-1]))
        steps.append(_apply(patch, {}))
    steps += map(Step, _joining(after))
    if not patches and listing_keys(after) in ([], listing_keys(before)):
        return Change((), SAVE)
    operations = [operation for patch in [taken_apart, *patches] for operation in patch]
    back = " && ".join(
        [*(f"sudo config rollback {name}" for name in reversed(checkpoints)), *_joining(before)]
    )
    down = _ports_taken_down(before, after, wanted)
    text = _text(operations, down, back, _joining(after))
    return Change(tuple(steps), SAVE, text, f"{back} && {SAVE[0].command}", down)


def _apply(patch: list[Operation], ignored: Database) -> Step:
    """One patch; the updater takes away a key that the models refuse where it is told not to judge it."""
    return Step(APPLY.format(_unjudged(ignored)), json.dumps(patch), APPLY_SECONDS)


def _unjudged(database: Database) -> str:
    keys = listing_keys(database)
    return "".join(f" -i {shlex.quote(pointer(table, key))}" for table, key in keys)


def _joining(database: Database) -> tuple[str, ...]:
    """Commands that make one key of single ones again, past the models, which refuse it.

    First the single ones go: orchagent would unbind with them what the common one has bound.
    """
    keys = listing_keys(database)
    if not keys:
        return ()
    parts = [shlex.quote(f"{table}|{part}") for table, key in keys for part in parts_of(table, key)]
    tables = {table: {key: database[table][key] for name, key in keys if name == table} for table, _ in keys}
    return (
        f"sudo sonic-db-cli CONFIG_DB del {' '.join(parts)}",
        f"echo {shlex.quote(json.dumps(tables))} | sudo config load -y /dev/stdin",
    )


def _trial(before: Database) -> Trial:
    """Whether the updater takes what runs now; raises DeviceError, naming what it refuses."""

    def judge(answer: str) -> tuple[str, ...]:
        if _TAKEN in answer:
            return ()
        begin = re.search(r"^.*(?:Failed|libyang)", answer, re.MULTILINE)
        if begin is None:
            raise DeviceError(
                f"its updater does not say whether it takes what runs now: {answer.strip()[-200:]!r}",
                where=_TRY,
            )
        said = answer[begin.start() :].strip()
        named = [f"{table}|{key}" for table, key in _accused(said, before)]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        raise HazardError(
            "what it runs already, before this change, breaks SONiC's YANG models, so its updater refuses "
            f"every change: {', '.join(named[:_MOST_NAMED]) or 'nobody knows where'}{more} "
            f"({said.splitlines()[-1][-_MOST_QUOTED:]})",
            where="CONFIG_DB",
            hint="the fault is older than the plan: mend it on the switch, and push again",
        )

    return Trial(_TRY.format(_unjudged(before)), judge)


def _accused(answer: str, database: Database) -> list[tuple[str, str]]:
    """Objects that the updater names: by table and key, by libyang's path to them, else by a value.

    A path is `/sonic-queue:sonic-queue/QUEUE/QUEUE_LIST[ifname='Ethernet0'][qindex='3']/scheduler`.
    """
    words = {word.strip(".,:;()'\"") for word in answer.split()}
    paths = {
        (match[1], "|".join(re.findall(r"\[[^=\]]+='([^']*)'\]", match[2])))
        for match in re.finditer(r"/([A-Z0-9_]+)/[A-Z0-9_]+_LIST((?:\[[^=\]]+='[^']*'\])+)", answer)
    }
    quoted = set(re.findall("\"([^\"]+)\"|'([^']+)'", answer))
    values = {value for pair in quoted for value in pair if value}
    places = [(table, key) for table, entries in database.items() for key in entries]
    return (
        [(table, key) for table, key in places if f"{table}|{key}" in words or (table, key) in paths]
        or [(table, key) for table, key in places if key in values and table in words]
        or [(table, key) for table, key in places if not values.isdisjoint(key.split("|"))]
        or [
            place
            for place in places
            if not values.isdisjoint(map(str, database[place[0]][place[1]].values()))
        ]
    )


def _timed(change: Change, before: Mapping[str, str], wanted: SwitchState, name: str, seconds: int) -> Change:
    """The same change, with a unit of systemd that rolls back to its checkpoints, the last one first.

    It counts from before the first patch: what takes longer is rolled back half done.
    """
    del wanted
    former = running_database(before)
    checkpoints = [step.command for step in change.steps if step.command.startswith(_CHECKPOINT)]
    first = _checkpoint(checkpoint_of(split(former))).command
    if first not in checkpoints:  # a change that goes on where another try broke off has its checkpoint
        checkpoints.insert(0, first)
    rollbacks = "; ".join(command.replace("checkpoint", "rollback") for command in checkpoints[::-1])
    back = " && ".join([rollbacks, *_joining(former)]).replace("sudo ", "")
    when = f"--on-active={seconds} --timer-property=AccuracySec=1s"  # else up to a minute later
    arm = Step(f"sudo systemd-run {when} --unit=mltswitch-{name} sh -c {shlex.quote(back)}")
    place = 1 + [step.command.startswith(_CHECKPOINT) for step in change.steps].index(True)
    return replace(change, steps=(*change.steps[:place], arm, *change.steps[place:]))


def _kept(name: str) -> tuple[Step, ...]:
    # A timer that has run out stays loaded while its service rolls back (systemd.timer, RemainAfterElapse).
    unit = f"mltswitch-{name}"
    states = f"systemctl is-active {unit}.timer {unit}.service"
    return (Step(f"sudo systemctl stop {unit}.timer; {states} | grep -vxE '{_AT_REST}'; test $? -eq 1"),)


_AT_REST: Final = "inactive|failed|unknown"
"""States in which a unit does nothing (systemctl(1)); one in any other may still change the switch."""
_UNITS: Final = "systemctl list-units --all --plain --no-legend 'mltswitch-*'"
_ARMED: Final = f"{_UNITS} | grep -vE '^[^ ]+ +[^ ]+ +({_AT_REST}) ' || test $? -eq 1"
TIMER: Final = Timer(_timed, _kept, _ARMED)

_UPDATERS: Final = "apply-patch|replace|rollback|checkpoint|save|reload|load|load_minigraph|qos"
GUARD: Final = Guard(
    shell_lock(sudo="sudo "), busy=f"pgrep -af '[c]onfig ({_UPDATERS})( |$)' || test $? -eq 1"
)
"""The updater runs on when its connection is lost, and locks nothing (sonic-utilities, generic_updater.py:
ConfigLock is still to be written), so its process is looked for, whoever started it."""


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
        for table in LISTING_TABLES
        for key in before.get(table, {}).keys() | after.get(table, {}).keys()
        if before.get(table, {}).get(key) != after.get(table, {}).get(key)
        for name in key.partition("|")[0].split(",")
    }
    names = (*(port.name for port in wanted.ports), *before.get("PORT", {}))
    return tuple(name for name in dict.fromkeys(names) if name in changed)


def _text(operations: list[Operation], ports: tuple[str, ...], back: str, joining: Iterable[str]) -> str:
    lines = [f"# back to the state before: {back}"]
    lines += [json.dumps(operation) for operation in operations]
    lines += joining
    if ports:
        lines.insert(0, f"# the switch takes down for a moment: {', '.join(ports)}")
    return "\n".join(lines) + "\n"
