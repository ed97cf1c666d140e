"""Emulated switches without SSH: made to run a plan undisturbed, and compared value by value."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final

from benchmarks.fleet import one_plan
from mltswitch.deploy.command_line import REFUSAL
from mltswitch.inventory import Device
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import Change, SessionKind, Step, Target, hardware_capabilities
from switchsim.device import EmulatedDevice
from switchsim.settings import Facts
from switchsim.sonic_config import CONFIG_FILE

PLAN_PORTS: Final = 3
"""One of them to the spine."""
UNSHOWN: Final = ("", "prefix-modes")
"""Which no show of Onyx tells."""
_CONFIGURE: Final = {
    "dell-sonic": ("sonic-cli", "configure terminal"),
    "eos": ("enable", "configure terminal"),
    "icos": ("enable", "configure"),
    "onyx": ("enable", "configure terminal"),
}
"""How one comes to the mode of shows, and then to that of configuration lines."""


def ask(switch: EmulatedDevice, target: Target, query: str) -> str:
    """What a switch answers, without SSH."""
    if target.session is SessionKind.SHELL:
        result = switch.execute("admin", query, lambda: b"")
        assert result is not None  # noqa: S101  (a shell)
        return result.stdout.decode()
    session = switch.open_session("admin")
    session.enter(_CONFIGURE[target.platform][0])
    return session.enter(query).text


def send(switch: EmulatedDevice, target: Target, steps: tuple[Step, ...]) -> None:
    """Enter lines, without SSH; raises RuntimeError where one is refused."""
    session = None if target.session is SessionKind.SHELL else switch.open_session("admin")
    for line in _CONFIGURE.get(target.platform, ()):
        assert session is not None  # noqa: S101  (no shell)
        session.enter(line)
    for step in steps:
        if session is not None:
            is_refused = REFUSAL.search(session.enter(step.command).text) is not None
        else:
            result = switch.execute("admin", step.command, step.stdin.encode)
            is_refused = result is None or result.status != 0
        if is_refused:
            raise RuntimeError(f"{target.platform} refuses {step.command!r}")


def planned(switch: EmulatedDevice, target: Target, plan: Plan) -> Change:
    """What a push of a plan would send."""
    wanted = target.fit_to_hardware(plan, switch.name)
    answers = {query: ask(switch, target, query) for query in target.queries(wanted.state)}
    running = target.read(answers, wanted.state, wanted.capabilities)
    return target.diff(running, wanted.state, wanted.capabilities)


def configured(switch: EmulatedDevice, target: Target, plan: Plan) -> Change:
    """Make a switch run a plan, undisturbed; what was sent."""
    change = planned(switch, target, plan)
    send(switch, target, change.steps)
    send(switch, target, change.save)
    return change


def snapshot(switch: Any, platform: str) -> tuple[str, str]:
    """The whole configuration that runs, and the one that is saved, in a form without an order of its own."""
    match platform:
        case "cumulus":
            both = switch.applied, switch.saved
        case "sonic":
            both = switch.config_db, json.loads(switch.files.read(CONFIG_FILE))
        case _:
            both = _shown(switch.configuration), _shown(switch.saved)
    running, saved = (_comparable(each, platform) for each in both)
    return running, saved


def _shown(facts: Facts) -> Facts:
    """Also without the modes of EOS queues of which nothing is set."""
    return Facts({f: v for f, v in facts.items() if f != UNSHOWN and (f[1] or "tx-queue" not in f[0])})


def _comparable(configuration: Any, platform: str) -> str:
    lines = list(_facts(configuration, ""))
    if platform == "icos":  # where the classes of a policy have an order
        lines += (f"{each}: {configuration.heads('', each)}" for each in configuration.heads("policy-map "))
    return "\n".join(sorted(lines))


def _facts(value: Any, path: str) -> Iterator[str]:
    """A configuration as lines without an order, one for each value in it."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        for key, entry in value.items():
            place = f"{path}.{key}"
            yield place
            yield from _facts(entry, place)
    elif isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            yield from _facts(entry, f"{path}.{number}")
    elif isinstance(value, frozenset):
        yield from (f"{path}: {entry}" for entry in value)
    else:
        yield f"{path}: {value}"


@cache
def fabric_plans(leaves: int, platforms: tuple[str, ...]) -> tuple[Plan, Plan, tuple[Device, ...]]:
    """(the plan, an earlier plan for the same fabric, its leaves)."""
    drawn, devices = one_plan(leaves, platforms, ports=PLAN_PORTS, spines=1)
    document = drawn.fabric.model_dump(mode="json", by_alias=True, exclude_none=True)
    document["traffic"]["load"] = 0.7
    document["classes"] |= {"control": {"dscp": [40]}, "gradients": {"dscp": [10, 18]}}
    fabrics = drawn.fabric, Fabric.model_validate(document)
    profile = resolve_profile("resnet50")
    new, old = (build_plan(profile, fabric, hardware_capabilities, "paper") for fabric in fabrics)
    return new, old, devices
