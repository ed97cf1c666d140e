"""The commands that take a Cumulus switch to the plan.

They build a pending revision, which changes nothing; `nv config apply` then makes all of it run, or refuses
it whole. So no order of ours is ever half in effect, and nothing is sent where somebody else's changes are
pending: they would be applied, too. A push that broke before the apply leaves its own pending: where all that
is pending is ours, it is dropped first.
"""

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, printable
from mltswitch.targets.base import Change, Guard, RunningState, Step, Timer
from mltswitch.targets.common import shell_lock
from mltswitch.targets.cumulus.commands import set_commands, unset_commands
from mltswitch.targets.cumulus.document import (
    MAP_OF,
    PROFILE,
    STATIC,
    binding_path,
    leaves_of,
    queue_map_path,
)
from mltswitch.targets.cumulus.ingress import OWN_ACLS
from mltswitch.targets.cumulus.interpret import OWN_PROFILE, static_routes
from mltswitch.targets.cumulus.leaves import Leaves, Path, Tree, flatten, nest
from mltswitch.targets.cumulus.read import CONFIG, PENDING, pending_changes, running_config, state_with
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.state import SwitchState, differences

APPLY: Final = "nv config apply -y"
APPLY_SECONDS: Final = 600.0
"""switchd loads the QoS configuration anew."""
SAVE: Final = (Step("nv config save"),)
DETACH: Final = "nv config detach"
"""Drops the pending revision; the one that runs stays as it is."""
WAY_BACK: Final = (
    "nv config apply REVISION && nv config save (REVISION: the one before, in nv config history)"
)

_ADDED_BY_NVUE: Final = frozenset({"address-family", "type"})
"""Attributes of a route that `nv set` adds by itself, in some releases."""


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """Commands for our objects alone; raises DeviceError where changes are pending that are not all ours."""
    del capabilities
    config = running_config(running.answers)
    before = _known_leaves(config)
    after = _merged(config, before, wanted)
    commands = commands_between(before, after)
    stays = differences(wanted, state_with(nest(after), wanted))
    if not commands:
        return Change((), SAVE, stays=stays)
    if _drops_pending(running.answers, before, after, {port.name for port in wanted.ports}):
        commands.insert(0, DETACH)
    steps = [Step(command, prepares=True) for command in commands]
    text = [*commands, "# back to the state before:"]
    text += [f"#   {printable(command)}" for command in commands_between(after, before)]
    return Change(
        (*steps, Step(APPLY, seconds=APPLY_SECONDS)), SAVE, "\n".join(text) + "\n", WAY_BACK, stays=stays
    )


def _timed(change: Change, before: Mapping[str, str], wanted: SwitchState, name: str, seconds: int) -> Change:
    """The same revision, applied on trial (NVUE reference, nv config apply --confirm)."""
    del before, wanted, name
    steps = (
        replace(step, command=f"{APPLY} --confirm {seconds}s") if step.command == APPLY else step
        for step in change.steps
    )
    return replace(change, steps=tuple(steps))


TIMER: Final = Timer(
    _timed,
    lambda _: (Step("nv config apply --confirm-yes"),),
    is_named=False,
    has_ended=re.compile(r"\bno\b[^:]*\b(?:waits|waiting|pending|confirm\w*)\b", re.IGNORECASE),
)
"""NVUE refuses where nothing waits any more: kept before, or gone back, which the next look tells. No manual
has the words of that refusal, so one of other words is an error, which quotes them."""

GUARD: Final = Guard(
    shell_lock(),
    busy="pgrep -af '[n]v (set|unset|config (apply|save|detach|patch|replace))( |$)' || test $? -eq 1",
    compares=True,
    whole=CONFIG,
    discard=(Step(DETACH),),
)
"""`nv` waits until nvued has applied a revision, also when nobody hears it any more; a revision is whole."""


def restoring_change(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """Commands that bring back what a push of the wanted state changes in what ran before.

    What is pending is dropped where it is of that push, or of a way back that broke off; raises DeviceError
    for other pending changes.
    """
    del capabilities
    config = running_config(before)
    was, now = _known_leaves(config), _known_leaves(running_config(running.answers))
    pushed, ports = _merged(config, was, wanted), {port.name for port in wanted.ports}
    changed = {path for path in was.keys() | pushed.keys() if was.get(path) != pushed.get(path)}
    after = {path: value for path, value in now.items() if path not in changed}
    after |= {path: value for path, value in was.items() if path in changed}
    commands = commands_between(now, after)
    try:
        drops_pending = _drops_pending(running.answers, now, pushed, ports)
    except DeviceError:
        drops_pending = _drops_pending(running.answers, now, after, ports)
    steps = [Step(command, prepares=True) for command in commands]
    if commands:
        steps.append(Step(APPLY, seconds=APPLY_SECONDS))
    if drops_pending:
        steps.insert(0, Step(DETACH, prepares=True))
    return Change(tuple(steps), SAVE, "".join(f"{step.command}\n" for step in steps))


def _drops_pending(answers: Mapping[str, str], before: Leaves, after: Leaves, ports: Set[str]) -> bool:
    """Whether there is a revision to drop, as a push of ours left it; raises DeviceError for any other."""
    set_tree, unset_tree = pending_changes(answers)
    foreign = [
        *(
            f"nv set {' '.join(path)} {value}".rstrip()
            for path, value in _foreign_sets(set_tree, after, ports)
        ),
        *(f"nv unset {' '.join(path)}" for path in _foreign_unsets(unset_tree, before, after)),
    ]
    if foreign:
        raise DeviceError(
            f"changes are pending on the device that this push would not make, `{printable(foreign[0])}` for "
            "one: they would be applied with the plan's",
            where=PENDING,
            hint="look at them with `nv config diff`: somebody may be at work, or the push of another plan "
            "broke off. Apply them, or drop them with `nv config detach`",
        )
    return bool(set_tree or unset_tree)


def _foreign_sets(tree: Tree, after: Leaves, ports: Set[str]) -> Iterator[tuple[Path, str]]:
    for path, value in _known_leaves(tree).items():
        if after.get(path) != value and not (_is_ours(path) or _is_set_on_port(path, value, ports)):
            yield path, value


def _foreign_unsets(tree: Tree, before: Leaves, after: Leaves) -> Iterator[Path]:
    for path in _known_leaves(tree):
        removed = [leaf for leaf in before if leaf[: len(path)] == path]
        if not removed or any(leaf in after and not _is_ours(leaf) for leaf in removed):
            yield path


def _is_set_on_port(path: Path, value: str, ports: Set[str]) -> bool:
    """Whether a push of ours sets this on a port of the plan, or NVUE with it."""
    match path:
        case ("interface", port, "qos", kind, "profile"):
            return port in ports and _is_ours(("qos", kind, value))
        case ("interface", port, "type"):
            return port in ports and value == "swp"
        case _:
            return _binds_our_acl(path, ports)


def _binds_our_acl(path: Path, ports: Set[str]) -> bool:
    return path[0] == "interface" and path[1] in ports and path[2:3] == ("acl",) and path[3] in OWN_ACLS


def commands_between(before: Leaves, after: Leaves) -> list[str]:
    """`nv unset` of what goes, then `nv set` of what comes or changes."""
    removed = [path for path in before if path not in after]
    changed = {path: value for path, value in after.items() if before.get(path) != value}
    return unset_commands(removed, after) + set_commands(changed)


def _known_leaves(config: Tree) -> Leaves:
    leaves = flatten(config)
    plain: Leaves = {}
    for path, value in leaves.items():
        if path[: len(STATIC)] == STATIC and path[-1] in _ADDED_BY_NVUE:
            # A next hop stays where its type, all that it has, is left out.
            if path[-1] == "type":
                plain.setdefault(path[:-1], "")
        else:
            plain[path] = value
    return plain


def _merged(config: Tree, before: Leaves, wanted: SwitchState) -> Leaves:
    needed = leaves_of(wanted)
    for path in _default_queue_map(wanted):
        if path not in before:
            del needed[path]
    own = OwnPrefixes(wanted.routes)
    ports = {port.name for port in wanted.ports}
    unbound = {
        path
        for path in (binding_path(port, "egress-shaper") for port in ports)
        if OWN_PROFILE.fullmatch(before.get(path, ""))
    }
    unbound |= {path for path in before if _binds_our_acl(path, ports)}
    foreign_routes = {(*STATIC, name) for prefix, name, _ in static_routes(config) if prefix in own}
    after = {
        path: value
        for path, value in before.items()
        if path in needed
        or not (_is_ours(path) or path in unbound or path[: len(STATIC) + 1] in foreign_routes)
    }
    after |= needed
    return _without_unused(before, after)


def _default_queue_map(wanted: SwitchState) -> list[Path]:
    """As delivered, a switch priority leads to the traffic class of the same number."""
    return [queue_map_path(queue.queue) for port in wanted.ports[:1] for queue in port.queues]


def _is_ours(path: Path) -> bool:
    match path:
        case ("acl", name, *_):
            return name in OWN_ACLS
        case ("qos", "mapping", name, *_):
            return name in MAP_OF
        case ("qos", "egress-scheduler", name, *_):
            return name == PROFILE
        case ("qos", "congestion-control" | "egress-shaper", name, *_):
            return OWN_PROFILE.fullmatch(name) is not None
        case _:
            return False


def _without_unused(before: Leaves, after: Leaves) -> Leaves:
    """Our profiles and access lists stay as they were while a port that the plan does not name has them."""
    in_use = {
        path[2:4] if path[2:3] == ("acl",) else (*path[2:4], value)
        for path, value in after.items()
        if path[0] == "interface"
    }
    present = {_object(path) for path in after}
    kept = {
        path: value
        for path, value in before.items()
        if _is_ours(path) and _object(path) in in_use and _object(path) not in present
    }
    return after | kept


def _object(path: Path) -> Path:
    """The profile or access list of which something is said."""
    return path[: 2 if path[0] == "acl" else 3]
