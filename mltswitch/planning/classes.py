"""The traffic classes of a plan: the layers, the DSCP and the part of the load of each."""

from collections.abc import Sequence
from typing import Final

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan.class_document import (
    BackgroundClass,
    Classes,
    ControlClass,
    NetworkControlClass,
    OtherClass,
)
from mltswitch.plan.document import ClassKind, LayerRange, TrafficClass
from mltswitch.plan.fabric import Fabric
from mltswitch.profile import ModelProfile

EVERY_PLANS_CLASSES: Final = 3
"""How many classes every plan has beside gradients: network control, control and background."""


def gradient_class_count(fabric: Fabric, free_queues: Sequence[tuple[str, int, str]], layers: int) -> int:
    """The number P of gradient classes: the least number of free strict queues that any device has for them.

    Args:
        fabric: may ask for fewer, or for more than a device has, which is refused.
        free_queues: (switch, queues that a plan may use beside lossless classes, hardware).
        layers: of the model; a class needs at least one.
    """
    switch, queues, hardware = min(free_queues, key=lambda entry: entry[1])
    classes = fabric.classes
    others = EVERY_PLANS_CLASSES + sum(not entry.lossless for entry in classes.others)
    most = queues - others
    if most < 1:
        raise UnsupportedPlanError(
            f"{hardware} has {queues} usable queues, {others} other classes and a gradient need more",
            where=switch,
            hint="leave out some of classes.others" if classes.others else "",
        )
    wanted = classes.gradients.queues
    if wanted is not None:
        if wanted > most:
            raise UnsupportedPlanError(
                f"{wanted} gradient queues and {others} other classes do not fit the {queues} queues "
                f"that a plan may use on {hardware}",
                where=f"{switch}: classes.gradients.queues",
                expected=f"at most {most}",
            )
        if wanted > layers:
            raise UserInputError(
                f"{wanted} gradient queues for a model of {layers} layers", where="classes.gradients.queues"
            )
        return wanted
    return min(most, len(classes.gradients.dscp), layers)


def traffic_classes(profile: ModelProfile, fabric: Fabric, count: int) -> tuple[TrafficClass, ...]:
    """All traffic classes in order of service; layer i of L goes to gradient class i·P // L of P."""
    given = fabric.classes
    cap = _gradient_rate_cap(given)
    entries = [
        _class("network-control", ClassKind.NETWORK_CONTROL, given.network_control),
        _class("control", ClassKind.CONTROL, given.control, rate_cap_share=given.control.rate_cap_share),
        _class(
            "background",
            ClassKind.BACKGROUND,
            given.background,
            guaranteed_share=given.background.guaranteed_share or None,
        ),
    ]
    for number in range(count):
        layers = _layer_range(profile, number, count)
        entries.append(
            TrafficClass(
                name=f"gradient-{number}",
                kind=ClassKind.GRADIENT,
                dscp=(given.gradients.dscp[number],),
                layers=layers,
                load=fabric.traffic.load * layers.size_bytes / profile.total_bytes,
                rate_cap_share=cap,
            )
        )
    entries += [
        _class(entry.name, _kind_of(entry), entry, guaranteed_share=entry.guaranteed_share)
        for entry in given.others
    ]
    # The sort is stable: classes of one kind keep the order in which the fabric file lists them.
    return tuple(sorted(entries, key=lambda entry: list(ClassKind).index(entry.kind)))


def _class(
    name: str,
    kind: ClassKind,
    given: NetworkControlClass | ControlClass | BackgroundClass | OtherClass,
    **shares: float | None,
) -> TrafficClass:
    """One of the classes that are no gradients, as the fabric file gives it."""
    return TrafficClass(name=name, kind=kind, dscp=given.dscp, load=given.load, **shares)


def _kind_of(entry: OtherClass) -> ClassKind:
    if entry.lossless:
        return ClassKind.LOSSLESS
    return ClassKind.WEIGHTED if entry.place is None else ClassKind(entry.place)


def _gradient_rate_cap(given: Classes) -> float:
    """What senders may use for all gradients together, so that every other class keeps its load or share."""
    cap = 1.0 - given.network_control.load - given.control.load - given.background.guaranteed_share
    cap -= sum(max(entry.load, entry.guaranteed_share or 0.0) for entry in given.others)
    if cap <= 0:
        raise UserInputError(
            "the loads and guaranteed shares of the other classes leave nothing for gradients",
            where="classes",
        )
    return round(cap, 6)


def _layer_range(profile: ModelProfile, number: int, count: int) -> LayerRange:
    total = len(profile.layers)
    first = -(-number * total // count)
    last = -(-(number + 1) * total // count) - 1
    return LayerRange(
        first=first,
        last=last,
        first_name=profile.layers[first].name,
        last_name=profile.layers[last].name,
        size_bytes=sum(layer.size_bytes for layer in profile.layers[first : last + 1]),
    )
