"""A fabric with every default of its devices written out, so that a plan needs nothing else."""

from collections.abc import Callable
from typing import Any

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UnsupportedPlanError
from mltswitch.plan.fabric import Fabric
from mltswitch.plan.topology_document import LeafSpine, SwitchGroup, SwitchModel

CapabilityLookup = Callable[[str, str | None], Capabilities]
"""(platform, hardware or None for its default) → capabilities; raises UserInputError for unknown ones."""


def resolve_fabric(fabric: Fabric, capabilities: CapabilityLookup) -> Fabric:
    """The fabric with every default of its devices written out, so that the plan needs nothing else.

    Raises:
        UserInputError: a device is unknown.
        UnsupportedPlanError: the ports of a box cannot be broken out as the fabric says.
    """
    topology = fabric.topology
    switches = tuple(
        entry.model_copy(update={"hardware": capabilities(entry.platform, entry.hardware).hardware})
        for entry in topology.switches
    )
    shape = topology.leaf_spine
    if shape is not None:
        shape = _resolve_shape(shape, capabilities)
    resolved = topology.model_copy(update={"switches": switches, "leaf_spine": shape})
    return fabric.model_copy(update={"topology": resolved})


def _resolve_shape(shape: LeafSpine, capabilities: CapabilityLookup) -> LeafSpine:
    up, core = shape.uplinks, shape.core_links
    breakouts = {
        "leaves": (shape.host_ports.breakout, up.breakout),
        "spines": (up.breakout_above, core.breakout),
        "cores": (core.breakout_above,),
    }
    return shape.model_copy(
        update={
            tier: _resolve_group(getattr(shape, tier), capabilities, parts, f"topology.leaf_spine.{tier}")
            for tier, parts in breakouts.items()
            if getattr(shape, tier) is not None
        }
    )


def _resolve_group(
    group: SwitchGroup, capabilities: CapabilityLookup, breakouts: tuple[int, ...], where: str
) -> SwitchGroup:
    models: dict[str, SwitchModel] = {}
    for pattern, model in group.known_models.items():
        device = capabilities(model.platform, model.hardware)
        names = model.port_names or device.port_numbering
        for parts in breakouts:
            if names.lanes % parts and device.ports != ():
                raise UnsupportedPlanError(
                    f"no source names the ports of {device.hardware} under {device.platform} that are broken "
                    f"out in {parts}",
                    where=f"{where}: {pattern or group.platform}",
                    expected="breakout: 1"
                    + "".join(f" or {each}" for each in (2, 4, 8) if names.lanes % each == 0),
                )
        models[pattern] = model.model_copy(update={"hardware": device.hardware, "port_names": names})
    update: dict[str, Any] = {"models": models}
    if "" in models:
        update = {name: getattr(models[""], name) for name in ("hardware", "port_names")}
    return group.model_copy(update=update)
