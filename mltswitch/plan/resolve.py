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
    models: dict[str, SwitchModel] = {}
    for pattern, model in group.known_models.items():
        device = capabilities(model.platform, model.hardware)
        names = model.port_names or device.port_numbering
        models[pattern] = model.model_copy(update={"hardware": device.hardware, "port_names": names})
    if group.models:
        return group.model_copy(update={"models": models})
    return group.model_copy(update=dict(models[""]))
