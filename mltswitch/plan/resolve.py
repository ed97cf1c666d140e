"""A fabric with every default of its devices written out, so that a plan needs nothing else."""

from collections.abc import Callable

from mltswitch.capabilities import Capabilities
from mltswitch.plan.fabric import Fabric, PortNames, SwitchGroup

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
        spines, leaves = (_resolve_group(group, capabilities) for group in (shape.spines, shape.leaves))
        shape = shape.model_copy(update={"spines": spines, "leaves": leaves})
    resolved = topology.model_copy(update={"switches": switches, "leaf_spine": shape})
    return fabric.model_copy(update={"topology": resolved})


def _resolve_group(group: SwitchGroup, capabilities: CapabilityLookup) -> SwitchGroup:
    device = capabilities(group.platform, group.hardware)
    numbering = device.port_numbering
    names = group.port_names or PortNames(
        pattern=numbering.pattern, first=numbering.first, step=numbering.step
    )
    return group.model_copy(update={"hardware": device.hardware, "port_names": names})
