"""The targets by name: every package in this folder that has a `TARGET`, and what other packages install."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UserInputError, did_you_mean
from mltswitch.targets.target import Target

ENTRY_POINT_GROUP = "mltswitch.targets"
"""The entry point group by which an installed package adds a target: each entry names a `Target` object."""


@cache
def targets() -> Mapping[str, Target]:
    """Platform name → target, in alphabetical order."""
    found = {target.platform: target for target in _discover()}
    return MappingProxyType(dict(sorted(found.items())))


def _discover() -> Iterator[Target]:
    for module in iter_modules([str(Path(__file__).parent)]):
        if module.ispkg:
            package = import_module(f"{__package__}.{module.name}")
            if hasattr(package, "TARGET"):
                yield package.TARGET
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        yield entry.load()


def target_for(platform: str, *, where: str = "") -> Target:
    """The target of a platform; raises UserInputError listing the known ones."""
    try:
        return targets()[platform]
    except KeyError:
        raise UserInputError(
            f"unknown platform {platform!r}{did_you_mean(platform, targets())}",
            where=where,
            expected=f"one of {', '.join(targets())}",
        ) from None


def hardware_capabilities(platform: str, hardware: str | None) -> Capabilities:
    """Capabilities of a device by platform and hardware model (None: the platform's default)."""
    return target_for(platform, where="topology").hardware(hardware)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedHardware:
    """A hardware model that a target knows by name, and for which it renders nothing."""

    platform: str
    hardware: str
    reason: str


def known_hardware() -> tuple[tuple[Capabilities, ...], tuple[RefusedHardware, ...]]:
    """Every hardware model of every target, a platform's default first; and the refused ones with reasons."""
    usable = tuple(model for target in targets().values() for model in target.models.values())
    return usable, tuple(
        RefusedHardware(platform=target.platform, hardware=name, reason=target.reason(name))
        for target in targets().values()
        for name in target.refused
    )
