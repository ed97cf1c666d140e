"""The commands that take a SONiC switch to the plan: a checkpoint, then patches, each all or nothing.

Patches that the release's updater would refuse are not sent. Unused objects stay where it refuses to remove
them.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, PreflightError
from mltswitch.targets.base import Change, Guard, RunningState, Step, Timer, Trial
from mltswitch.targets.common import shell_lock
from mltswitch.targets.sonic import merge, objects, read, releases
from mltswitch.targets.sonic.capabilities import model_of
from mltswitch.targets.sonic.database import LISTING_TABLES, Database, Place, listing_places, parts_of, split
from mltswitch.targets.state import SwitchState, differences

_APPLY: Final = "cat | sudo config apply-patch{} /dev/stdin"
"""`cat` because sshd may give a command a socket as standard input, and a socket cannot be opened by name."""
_APPLY_SECONDS: Final = 900.0
"""The updater finds an order of small steps, and waits for services between them."""
_TRY: Final = "sudo sonic-cfggen -d --print-data | sudo config replace -v -d{} /dev/stdin 2>&1 || true"
"""Replaces what runs by itself, as a dry run: the updater judges what runs as it would judge a patch of it.

An empty patch is judged, too, but since 202405 without a word of what is wrong: `Failed validating patch`
(sonic-utilities: config/main.py, validate_patch; generic_config_updater, PatchApplier and ConfigReplacer).
"""
_TAKEN: Final = "Config replaced successfully"
_SAVE: Final = (Step("sudo config save -y"),)
_CHECKPOINT: Final = "sudo config checkpoint"
_MOST_NAMED: Final = 4
"""Objects that an error names."""
_MOST_QUOTED: Final = 200
"""Characters of the updater's own words."""


def change_between(running: RunningState, wanted: SwitchState, _capabilities: Capabilities) -> Change:
    """The change to the wanted state, as patches of mltswitch's objects; raises DeviceError for what the
    device lacks, would ignore or refuses to change."""
    before = read.running_database(running.answers)
    _check_live_objects(before, objects.document(wanted))
    after = merge.merged(before, wanted)
    change = _change(
        before, before if after == split(before, objects.document(wanted)) else after, running, wanted
    )
    stays = differences(wanted, read.state_of(after, wanted))
    return replace(change, trial=None if change.is_empty else _trial(before), stays=stays)


def restoring_change(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, _capabilities: Capabilities
) -> Change:
    """The change that undoes what a push of the wanted state changed; raises DeviceError."""
    was, now = read.running_database(before), read.running_database(running.answers)
    return _change(now, merge.unmerged(now, was, wanted), running, wanted)


def _check_live_objects(running: Database, needed: Database) -> None:
    """Raise DeviceError for changes that orchagent ignores (sonic-swss, qosorch.cpp, bufferorch.cpp).

    It programs what a changed entry says and never takes back what the entry no longer says; a buffer
    profile's pool is set when it is made.
    """
    for setting in objects.SETTINGS:
        for key, fields in needed.get(setting.objects, {}).items():
            before = running.get(setting.objects, {}).get(key, fields)
            problems = [
                f"a live object keeps {name} when it no longer says so"
                for name in sorted(before.keys() - fields.keys())
            ]
            if before.get("pool") != fields.get("pool"):
                problems.insert(0, "the pool of a live profile cannot be changed")
            if problems:
                raise DeviceError(
                    f"{problems[0]}, so the switch would not do what it says",
                    where=f"{setting.objects}|{key}",
                    hint="remove the object by hand, or go back to a checkpoint, and push again",
                )


def _change(before: Database, after: Database, running: RunningState, wanted: SwitchState) -> Change:
    if before == after:
        return Change((), _SAVE)
    needed = objects.document(wanted)
    base, goal = split(before, needed), split(after, needed)
    patches = merge.changes_between(base, goal)
    removals = _accepted(
        patches, merge.removals_between(base, goal), base, read.running_build(running.answers)
    )
    if not patches and not removals and listing_places(after) in ([], listing_places(before)):
        return Change((), _SAVE)
    taken_apart = [*chain(*merge.changes_between(before, base))]
    steps = [_apply(taken_apart, _unjudged(before))] if taken_apart else []
    checkpoints = [checkpoint_of(base)]
    steps += [_checkpoint(checkpoints[0]), *map(_apply, patches)]
    if removals:
        # Back to what was before in one step, the updater may refuse: see `removals_between`.
        checkpoints.append(checkpoint_of(base, goal))
        steps += [_checkpoint(checkpoints[1]), _apply(removals)]
    joining = _joining(after)
    rollbacks = (f"sudo config rollback {name}" for name in reversed(checkpoints))
    back = " && ".join([*rollbacks, *_joining(before)])
    down = _ports_taken_down(before, after, wanted)
    lines = [f"# the switch takes down for a moment: {', '.join(down)}"] if down else []
    lines += [f"# back to the state before: {back}"]
    lines += [*map(json.dumps, (*taken_apart, *chain(*patches), *removals)), *joining, ""]
    return Change(
        (*steps, *map(Step, joining)), _SAVE, "\n".join(lines), f"{back} && {_SAVE[0].command}", down
    )


def _accepted(patches: list[merge.Patch], removals: merge.Patch, before: Database, build: str) -> merge.Patch:
    """The removals that the release does not refuse; raises DeviceError where it refuses a patch."""
    metadata = before.get("DEVICE_METADATA", {}).get("localhost", {})
    hwsku = str(metadata.get("hwsku", ""))
    judged = hwsku if model_of(str(metadata.get("platform", "")), hwsku) is not None else None
    changes = list(releases.differences_made(chain(*patches), before))
    if refused := releases.refusals(changes, build, judged):
        first = releases.first_to_accept(changes, judged)
        raise DeviceError(
            f"SONiC {releases.release_of(build) or build} refuses the {refused[0]}, so nothing was sent",
            where=f"build {build}, hwsku {hwsku}",
            expected=f"release {first} or later" if first else "hardware that its updater lists",
            hint="upgrade the switch: `config apply-patch` of this release lets few fields change",
        )
    return [each for each in removals if not releases.refusals([each], build, judged)]


def _apply(patch: merge.Patch, unjudged: str = "") -> Step:
    return Step(_APPLY.format(unjudged), json.dumps(patch), _APPLY_SECONDS)


def _unjudged(database: Database) -> str:
    """Options by which the updater does not judge, and so can take away, keys that the models refuse."""
    places = listing_places(database)
    return "".join(f" -i {shlex.quote(merge.pointer(table, key))}" for table, key in places)


def _joining(database: Database) -> tuple[str, ...]:
    """Commands that make one key of single ones again, past the models, which refuse it.

    First the single ones go: orchagent would unbind with them what the common one has bound.
    """
    tables: Database = {}
    parts = []
    for table, key in listing_places(database):
        parts += [shlex.quote(f"{table}|{part}") for part in parts_of(key)]
        tables.setdefault(table, {})[key] = database[table][key]
    if not tables:
        return ()
    return (
        f"sudo sonic-db-cli CONFIG_DB del {' '.join(parts)}",
        f"echo {shlex.quote(json.dumps(tables))} | sudo config load -y /dev/stdin",
    )


def _checkpoint(name: str) -> Step:
    return Step(f"{_CHECKPOINT} {name}")


def checkpoint_of(*databases: Database) -> str:
    """Name of the checkpoint of one configuration, or of the interim one between two; unique to them."""
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
        raise PreflightError(
            "what it runs already, before this change, breaks SONiC's YANG models, so its updater refuses "
            f"every change: {', '.join(named[:_MOST_NAMED]) or 'nobody knows where'}{more} "
            f"({said.splitlines()[-1][-_MOST_QUOTED:]})",
            where="CONFIG_DB",
            hint="the fault is older than the plan: mend it on the switch, and push again",
        )

    return Trial(_TRY.format(_unjudged(before)), judge)


def _accused(answer: str, database: Database) -> list[Place]:
    """Objects that the updater names: by table and key, by libyang's path to them, else by a value.

    A path is `/sonic-queue:sonic-queue/QUEUE/QUEUE_LIST[ifname='Ethernet0'][qindex='3']/scheduler`.
    """
    words = {word.strip(".,:;()'\"") for word in answer.split()}
    for match in re.finditer(r"/([A-Z0-9_]+)/[A-Z0-9_]+_LIST((?:\[[^=\]]+='[^']*'\])+)", answer):
        words.add("|".join([match[1], *re.findall(r"\[[^=\]]+='([^']*)'\]", match[2])]))
    values = {text for pair in re.findall("\"([^\"]+)\"|'([^']+)'", answer) for text in pair if text}
    places = [(table, key) for table, entries in database.items() for key in entries]
    return (
        [(table, key) for table, key in places if f"{table}|{key}" in words]
        or [(table, key) for table, key in places if key in values and table in words]
        or [(table, key) for table, key in places if not values.isdisjoint(key.split("|"))]
        or [
            (table, key)
            for table, key in places
            if not values.isdisjoint(map(str, database[table][key].values()))
        ]
    )


def _timed(change: Change, before: Mapping[str, str], wanted: SwitchState, name: str, seconds: int) -> Change:
    """The same change, with a unit of systemd that rolls back to its checkpoints, the last one first.

    It counts from before the first patch: what takes longer is rolled back half done.
    """
    former = read.running_database(before)
    checkpoints = [step.command for step in change.steps if step.command.startswith(_CHECKPOINT)]
    first = _checkpoint(checkpoint_of(split(former, objects.document(wanted)))).command
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
"""How operators are kept apart, and a running updater is found.

The updater runs on when its connection is lost, and locks nothing (sonic-utilities, generic_updater.py:
ConfigLock is still to be written), so its process is looked for, whoever started it.
"""
