"""Priority: from a layer to its traffic class and code point, by the plan."""

from dataclasses import dataclass
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging.tos import checked_dscp
from mltswitch.hostagent.tagging.two_queues import FOREMOST, TwoQueues
from mltswitch.hostagent.values import integer, shown
from mltswitch.plan import Plan
from mltswitch.plan.document import ClassKind, TrafficClass
from mltswitch.profile import ModelProfile, profile_sha256
from mltswitch.wire import Dscp

_FOR_TENSORS: Final = frozenset({ClassKind.GRADIENT, ClassKind.BACKGROUND})
"""`control` carries the control channel, below its rate cap; network control belongs to switches."""


@dataclass(frozen=True, slots=True)
class Priority:
    """What a tensor travels as."""

    traffic_class: str
    dscp: Dscp


class PlanPriorities:
    """Classes as a plan has them.

    Args:
        plan: whose gradient classes carry layers.
        profile: the model that the plan was made for, if names of its layers and tensors are to be known. A
            plan itself names only the first and the last layer of each class.

    Raises UserInputError for a profile that the plan was not made for.
    """

    def __init__(self, plan: Plan, profile: ModelProfile | None = None) -> None:
        self._classes: Final = plan.classes
        self._gradients: Final = [
            (entry, entry.layers) for entry in plan.gradient_classes if entry.layers is not None
        ]
        numbers: dict[str, int] = {}
        for _, layers in self._gradients:
            numbers |= {layers.first_name: layers.first, layers.last_name: layers.last}
        if profile is not None:
            if profile_sha256(profile) != plan.provenance.profile_sha256:
                raise UserInputError(
                    f"is not the profile {plan.provenance.profile_name!r} that the plan was made for",
                    where=f"profile {profile.name!r}",
                    hint="make the plan again for this profile",
                )
            for number, layer in enumerate(profile.layers):
                numbers |= dict.fromkeys((tensor.name for tensor in layer.tensors), number)
            numbers |= {layer.name: number for number, layer in enumerate(profile.layers)}
        self._numbers: Final = numbers
        self._has_profile: Final = profile is not None

    @property
    def layers(self) -> int:
        """Of the model."""
        return 1 + max((layers.last for _, layers in self._gradients), default=-1)

    def layer_number(self, layer: int | str) -> int:
        """0-based in forward order; raises UserInputError for a layer that the plan does not know."""
        if not isinstance(layer, str):
            place = integer(layer)
            if place is None or not 0 <= place < self.layers:
                raise UserInputError(
                    f"there is no layer {shown(layer)}", where="layer", expected=f"0-{self.layers - 1}"
                )
            return place
        number = self._numbers.get(layer)
        if number is None:
            raise UserInputError(
                f"there is no layer or tensor {layer!r}"
                if self._has_profile
                else f"the plan does not name layer {layer!r}",
                where="layer",
                hint="" if self._has_profile else "give its number, or the model profile as well",
            )
        return number

    def of_layer(self, layer: int | str) -> Priority:
        """By number, or by the name of the layer or of one of its tensors; raises UserInputError."""
        number = self.layer_number(layer)
        for entry, layers in self._gradients:
            if layers.first <= number <= layers.last:
                return _priority(entry)
        raise UserInputError(f"no class of the plan carries layer {number}", where="layer")

    def of_class(self, name: str) -> Priority:
        """By the name of the class; raises UserInputError where tensors may not use it."""
        for entry in self._classes:
            if entry.name == name and entry.kind in _FOR_TENSORS:
                return _priority(entry)
        raise UserInputError(
            f"tensors cannot travel in class {name!r}", where="priority", expected=self._usable_names()
        )

    def of_dscp(self, dscp: Dscp) -> Priority:
        """By the code point; raises UserInputError where the plan gives it to no class of tensors."""
        checked_dscp(dscp)
        for entry in self._classes:
            if dscp in entry.dscp and entry.kind in _FOR_TENSORS:
                return Priority(entry.name, dscp)
        usable = [str(code) for entry in self._classes if entry.kind in _FOR_TENSORS for code in entry.dscp]
        raise UserInputError(
            f"the plan has no class for tensors with DSCP {dscp}",
            where="priority",
            expected=", ".join(usable),
        )

    def two_queues(self, foremost: int = FOREMOST) -> TwoQueues:
        """Many priorities in the first and the last gradient class; raises UserInputError if there is one."""
        entries = [entry for entry, _ in self._gradients]
        if len(entries) < 2:
            raise UserInputError(
                f"the plan has {len(entries)} gradient class", where="classes", expected="2 or more"
            )
        return TwoQueues(entries[0].dscp[0], entries[-1].dscp[0], foremost)

    def _usable_names(self) -> str:
        return ", ".join(entry.name for entry in self._classes if entry.kind in _FOR_TENSORS)


def _priority(entry: TrafficClass) -> Priority:
    return Priority(entry.name, entry.dscp[0])
