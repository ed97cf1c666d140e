"""The commands that take a Cumulus switch to the plan, and back.

They build a pending revision, which changes nothing; `nv config apply` then makes all of it run, or refuses
it whole. So no change is ever half in effect, and nothing is sent where somebody else's changes are pending:
they would be applied, too. A push that broke off before the apply leaves its own changes pending: where all
pending changes are mltswitch's, they are dropped first.
"""

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, printable
from mltswitch.targets.base import Change, Guard, RunningState, Step, Timer
from mltswitch.targets.common import shell_lock
from mltswitch.targets.cumulus.leaves import (
    QUEUE_MAP,
    STATIC,
    bound_object,
    command,
    is_ours,
    leaves_of,
    object_of,
    set_commands,
)
from mltswitch.targets.cumulus.read import CONFIG, PENDING, network_of, state_with, trees_in
from mltswitch.targets.engine.tree import Leaves, Path, flatten, nest, put_back, removed_objects
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.state import SwitchState, differences

_APPLY: Final = "nv config apply -y"
_APPLY_SECONDS: Final = 600.0
"""switchd loads the QoS configuration anew."""
_SAVE: Final = (Step("nv config save"),)
_DETACH: Final = "nv config detach"
"""Drops the pending revision; the one that runs stays as it is."""
_ROLLBACK_HINT: Final = (
    "nv config apply REVISION && nv config save (REVISION: the one before, in nv config history)"
)
_SHALLOWEST: Final = {"acl": 2, "interface": 2, "qos": 3, "vrf": 5}
"""Depth of the objects that `nv unset` may remove whole, by the first word of their path."""


def diff(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """The commands that set mltswitch's objects; raises DeviceError where others' changes are pending."""
    del capabilities
    now = _running(running.answers)
    then = _pushed(now, wanted)
    commands = _between(now, then)
    stays = differences(wanted, state_with(nest(then.items()), wanted))
    if not commands:
        return Change((), _SAVE, stays=stays)
    if _is_pending(running.answers, now, (then,), wanted):
        commands.insert(0, _DETACH)
    text = [*commands, "# back to the state before:"]
    text += [f"#   {printable(back)}" for back in _between(then, now)]
    return Change(_steps(commands), _SAVE, "".join(f"{line}\n" for line in text), _ROLLBACK_HINT, stays=stays)


def restore(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """The commands that undo what a push of the wanted state changed in what ran before.

    Pending changes are dropped if they are of that push, or of a rollback that broke off; raises DeviceError
    for other pending changes.
    """
    del capabilities
    now, former = _running(running.answers), _running(before)
    pushed = _pushed(former, wanted)
    then = put_back(now, former, pushed)
    commands = _between(now, then)
    if _is_pending(running.answers, now, (pushed, then), wanted):
        commands.insert(0, _DETACH)
    steps = _steps(commands)
    return Change(steps, _SAVE, "".join(f"{step.command}\n" for step in steps))


def _steps(commands: list[str]) -> tuple[Step, ...]:
    applies = [Step(_APPLY, seconds=_APPLY_SECONDS)] if commands not in ([], [_DETACH]) else []
    return (*(Step(text, prepares=True) for text in commands), *applies)


def _running(answers: Mapping[str, str]) -> Leaves:
    return flatten(trees_in(answers, CONFIG)["set"])


def _pushed(before: Leaves, wanted: SwitchState) -> Leaves:
    """What runs after a push of the wanted state.

    As delivered, a switch priority leads to the traffic class of the same number, so that this is only said
    where the switch says something else. Our profiles and access lists stay as they were while a port that
    the plan does not name has them.
    """
    needed = {
        path: value
        for path, value in leaves_of(wanted).items()
        if path in before or path[:3] != QUEUE_MAP[:3]
    }
    ports, own = {port.name for port in wanted.ports}, OwnPrefixes(wanted.routes)

    def goes(path: Path, value: str) -> bool:
        prefix = path[len(STATIC)] if path[: len(STATIC)] == STATIC != path else ""
        return network_of(prefix) in own or is_ours(path) or _gives_ours(path, value, ports)

    after = {path: value for path, value in before.items() if path in needed or not goes(path, value)}
    after |= needed
    in_use = {bound_object(path, value) for path, value in after.items()}
    in_use -= {object_of(path) for path in after}
    return after | {
        path: value for path, value in before.items() if is_ours(path) and object_of(path) in in_use
    }


def _gives_ours(path: Path, value: str, ports: Set[str]) -> bool:
    """Whether a leaf gives one of our profiles or access lists to a port of the plan."""
    return is_ours(bound_object(path, value)) and path[1] in ports


def _is_pending(
    answers: Mapping[str, str], now: Leaves, ends: tuple[Leaves, ...], wanted: SwitchState
) -> bool:
    """Whether there is a revision to drop, as a change of ours that leads to one of these ends left it;
    raises DeviceError for any other."""
    pending = trees_in(answers, PENDING)
    ports = {port.name for port in wanted.ports}
    types = {("interface", port, "type") for port in ports}
    for path, value in flatten(pending["set"]).items():
        is_added = path in types and value == "swp"
        is_set = is_added or is_ours(path) or _gives_ours(path, value, ports)
        if not is_set and all(end.get(path) != value for end in ends):
            raise _foreign(f"nv set {' '.join(path)} {value}".rstrip())
    for path in flatten(pending["unset"]):
        removed = [leaf for leaf in now if leaf[: len(path)] == path]
        if not removed or any(not is_ours(leaf) and all(leaf in end for end in ends) for leaf in removed):
            raise _foreign(f"nv unset {' '.join(path)}")
    return bool(pending["set"] or pending["unset"])


def _foreign(first: str) -> DeviceError:
    return DeviceError(
        f"changes are pending on the device that this push would not make, `{printable(first)}` for "
        "one: they would be applied with the plan's",
        where=PENDING,
        hint="look at them with `nv config diff`: somebody may be at work, or the push of another plan "
        "broke off. Apply them, or drop them with `nv config detach`",
    )


def _between(before: Leaves, after: Leaves) -> list[str]:
    """`nv unset` of what goes, then `nv set` of what comes or changes."""
    changed = {path: value for path, value in after.items() if before.get(path) != value}
    removed = removed_objects(before, after, _SHALLOWEST)
    return [*(command("unset", path) for path in removed), *set_commands(changed)]


def _timed(change: Change, before: Mapping[str, str], wanted: SwitchState, name: str, seconds: int) -> Change:
    """The same revision, applied on trial (NVUE reference, nv config apply --confirm)."""
    del before, wanted, name
    steps = (
        replace(step, command=f"{_APPLY} --confirm {seconds}s") if step.command == _APPLY else step
        for step in change.steps
    )
    return replace(change, steps=tuple(steps))


TIMER: Final = Timer(
    _timed,
    lambda _: (Step("nv config apply --confirm-yes"),),
    is_named=False,
    has_ended=re.compile(r"\bno\b[^:]*\b(?:waits|waiting|pending|confirm\w*)\b", re.IGNORECASE),
)
"""How NVUE undoes a change by itself (`nv config apply --confirm`).

NVUE refuses to confirm where no change waits any more, because it was confirmed or undone before; the next
reading tells which. No manual has the words of that refusal, so a refusal in other words is an error, which
quotes them.
"""

GUARD: Final = Guard(
    shell_lock(),
    busy="pgrep -af '[n]v (set|unset|config (apply|save|detach|patch|replace))( |$)' || test $? -eq 1",
    compares=True,
    whole=CONFIG,
    discard=(Step(_DETACH),),
)
"""How operators are kept apart, and a running `nv` is found.

`nv` waits until nvued has applied a revision, even if its connection is lost; a revision is applied whole.
"""
