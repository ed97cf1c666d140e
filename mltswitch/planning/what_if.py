"""What would change if a fabric had other buffers or another traffic: its plan, and the plan that runs now.

Two things are asked: what the thresholds that stand now would lose, and what a new plan would do instead.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mltswitch.capabilities import BytesLimit
from mltswitch.documents import validate
from mltswitch.errors import did_you_mean
from mltswitch.plan.document import Plan, PortProfile
from mltswitch.plan.fabric import CapabilityLookup, Fabric
from mltswitch.planning.build import BuildProgress, build_plan, predict_edited
from mltswitch.profile import ModelProfile
from mltswitch.queueing.models import ANALYTIC, MODELS
from mltswitch.units import parse_bytes

WHERE: Final = "--what-if"
KEYS: Final = ("buffer", "burst", "load")
LARGEST_FACTOR: Final = 1000.0
_FACTOR: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)x")
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """Another value, or a factor of the one that stands."""

    value: float
    is_factor: bool

    def of(self, old: float) -> float:
        """What comes of the old value."""
        return old * self.value if self.is_factor else self.value

    def of_override(self, old: float | None) -> float | None:
        """What comes of a value that differs from the fabric's own: one absolute value is for all."""
        return self.of(old) if old is not None and self.is_factor else None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Three plans of one model."""

    now: Plan
    """The thresholds and the fabric as they are."""
    kept: Plan | None
    """The thresholds that stand now in the changed fabric; None: see `why_not_kept`."""
    anew: Plan
    """Thresholds chosen for the changed fabric."""
    why_not_kept: str = ""


def parse_changes(text: str) -> dict[str, Change]:
    """`buffer=2x,load=1.2` as changes; raises ValueError."""
    found: dict[str, Change] = {}
    for part in text.split(","):
        key, is_given, value = (word.strip() for word in part.partition("="))
        if key not in KEYS:
            raise ValueError(f"{key[:40]!r} is none of {', '.join(KEYS)}{did_you_mean(key, KEYS)}")
        if not is_given or key in found:
            raise ValueError(f"{key} needs one value, as in {key}=2x")
        found[key] = _change(key, value)
    return found


def _change(key: str, value: str) -> Change:
    if factor := _FACTOR.fullmatch(value):
        if not 0 < float(factor[1]) <= LARGEST_FACTOR:
            raise ValueError(f"{key}={value[:40]} is no factor from 0 to {LARGEST_FACTOR:g}")
        return Change(float(factor[1]), True)
    if key == "buffer":
        return Change(parse_bytes(value), False)
    if not _NUMBER.fullmatch(value):
        raise ValueError(f"{key}={value[:40]} is no number and no factor such as 1.5x")
    return Change(float(value), False)


def changed_fabric(now: Plan, changes: Mapping[str, Change]) -> Fabric:
    """The plan's fabric with the changes; raises UserInputError for a value that a fabric cannot have."""
    document: _Document = now.fabric.model_dump(mode="json", by_alias=True)
    apply: dict[str, Callable[[_Document, Change, Plan], None]] = {
        "buffer": _with_buffer,
        "burst": _with_burst,
        "load": _with_load,
    }
    for key, change in changes.items():
        apply[key](document, change, now)
    return validate(document, Fabric, where=WHERE)


def _with_load(document: _Document, change: Change, _now: Plan) -> None:
    document["traffic"]["load"] = change.of(document["traffic"]["load"])
    for override in document["ports"]["overrides"].values():
        override["load"] = change.of_override(override.get("load"))


def _with_burst(document: _Document, change: Change, _now: Plan) -> None:
    traffic, gradients = document["traffic"], document["classes"]["gradients"]
    if gradients["burst_packets"] is not None:
        each = [change.of_override(old) for old in gradients["burst_packets"]]
        gradients["burst_packets"] = [_whole(new) for new in each if new is not None] or None
    traffic["burst_packets"] = _whole(change.of(traffic["burst_packets"]))


def _with_buffer(document: _Document, change: Change, now: Plan) -> None:
    """Of every role's ports; where the fabric leaves a buffer to the device, a factor is of the device's."""
    ports = document["ports"]
    if not change.is_factor:
        ports["buffer"] = int(change.value)
        for override in ports["overrides"].values():
            override["buffer"] = None
        return
    for role in {profile.role for profile in now.port_profiles}:
        least = min(each.buffer_bytes for each in now.port_profiles if each.role is role)
        override = ports["overrides"].setdefault(role.value, {})
        override["buffer"] = int(change.of(override.get("buffer") or ports["buffer"] or least))
    if ports["buffer"] is not None:
        ports["buffer"] = int(change.of(ports["buffer"]))


def _whole(value: float) -> int:
    return max(1, round(value))


def what_if(
    now: Plan,
    profile: ModelProfile,
    capabilities: CapabilityLookup,
    changes: Mapping[str, Change],
    *,
    progress: BuildProgress | None = None,
) -> WhatIf:
    """Compare a plan with the same thresholds, and with new ones, in a changed fabric.

    Args:
        now: The plan, with its predictions.
        profile: The model that it is for.
        capabilities: What the devices can do.
        changes: What is different.
        progress: Hears of the search for new thresholds.

    Raises:
        UserInputError: A value that a fabric cannot have.
        UnsupportedPlanError: The devices cannot do what the changed fabric asks for.
    """
    model = now.provenance.queueing_model
    fabric = changed_fabric(now, changes)
    anew = build_plan(
        profile,
        fabric,
        capabilities,
        model if model in ANALYTIC else MODELS[0],
        at_load=fabric.traffic.load if len(now.scenarios) == 1 else None,  # as the plan itself was made
        progress=progress,
    )
    by_key = {entry.key: entry for entry in now.port_profiles}
    pairs = [(by_key[entry.key], entry) for entry in anew.port_profiles]
    if obstacles := [text for pair in pairs for text in _obstacles(*pair)]:
        return WhatIf(now, None, anew, obstacles[0])
    profiles = tuple(_with_thresholds(*pair) for pair in pairs)
    kept = predict_edited(anew.model_copy(update={"port_profiles": profiles}), profile, capabilities)
    return WhatIf(now, kept, anew)


def _obstacles(old: PortProfile, new: PortProfile) -> Iterator[str]:
    """Why the old port's thresholds cannot stand on the new one."""
    held = sum(queue.limit.size_bytes for queue in old.queues if isinstance(queue.limit, BytesLimit))
    if held > new.buffer_bytes:
        yield (
            f"the limits that {old.role} ports of {old.hardware} have now, {held:,} B, do not fit into "
            f"{new.buffer_bytes:,} B"
        )
    if [queue.limit.kind for queue in old.queues] != [queue.limit.kind for queue in new.queues]:
        yield f"{old.role} ports of {old.hardware} have limits of another kind then"


def _with_thresholds(old: PortProfile, new: PortProfile) -> PortProfile:
    queues = tuple(
        after.model_copy(
            update={
                "ecn_threshold_bytes": before.ecn_threshold_bytes,
                "limit": before.limit,
                "prediction": None,
            }
        )
        for before, after in zip(old.queues, new.queues, strict=True)
    )
    return new.model_copy(update={"queues": queues})
