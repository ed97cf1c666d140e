"""A fabric with every default of its devices written out, so that a plan needs nothing else."""

from collections.abc import Callable

from mltswitch.capabilities import Capabilities
from mltswitch.plan.fabric import Fabric
from mltswitch.plan.topology_document import SwitchGroup, SwitchModel

CapabilityLookup = Callable[[str, str | None], Capabilities]
"""(platform, hardware or None for its default) → capabilities; raises UserInputError for unknown ones."""


def resolve_fabric(fabric: Fabric, capabilities: CapabilityLookup) -> Fabric:
    """The fabric with every default of its devices written out, so that the plan needs nothing else."""
    topology = fabric.topology
    switches = tuple(
        entry.model_copy(update={"hardware": capabilities(entry.platform, entry.hardware).hardware})
        for entry in topology.switches
    )
    shape = topology.leaf_spine
    if shape is not None:
        groups = {"spines": shape.spines, "leaves": shape.leaves, "cores": shape.cores}
        shape = shape.model_copy(
            update={tier: group and _resolve_group(group, capabilities) for tier, group in groups.items()}
        )
    resolved = topology.model_copy(update={"switches": switches, "leaf_spine": shape})
    return fabric.model_copy(update={"topology": resolved})


def _resolve_group(group: SwitchGroup, capabilities: CapabilityLookup) -> SwitchGroup:
    models = {pattern: _resolve_model(model, capabilities) for pattern, model in group.models.items()}
    default = group.default_model
    update = {} if default is None else dict(_resolve_model(default, capabilities))
    return group.model_copy(update=update | {"models": models})


def _resolve_model(model: SwitchModel, capabilities: CapabilityLookup) -> SwitchModel:
    device = capabilities(model.platform, model.hardware)
    names = model.port_names or device.port_numbering
    return model.model_copy(update={"hardware": device.hardware, "port_names": names})
