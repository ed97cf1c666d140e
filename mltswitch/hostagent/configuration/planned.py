"""What a plan says of one host's agent; apart, because what reads plans takes long to load."""

from collections.abc import Mapping
from dataclasses import dataclass

from mltswitch.hostagent.configuration.document import SprayingDocument
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.spraying.modes import Spray
from mltswitch.hostagent.spraying.paths import FIRST_SOURCE_PORT, PathSettings, host_of
from mltswitch.hostagent.spraying.planned import planned_spray
from mltswitch.plan import ClassKind, Plan
from mltswitch.wire import AGENT_PORT, Dscp


@dataclass(frozen=True, slots=True)
class PlannedAgent:
    """One host's agent, as the plan has it."""

    address: str
    """The host's own, where its peers reach the control channel."""
    addresses: tuple[str, ...]
    """Of the data, one a path."""
    first_port: int | None
    """UDP, of a socket for each path; None: one socket serves all of them."""
    spray: Spray
    mtu_bytes: int
    burst_packets: int
    control_dscp: Dscp
    peers: Mapping[str, Endpoint]
    """Every other host."""


def planned_agent(plan: Plan, name: str, spraying: SprayingDocument) -> PlannedAgent:
    """Raises UserInputError for a host that the plan has not, UnsupportedPlanError as `planned_spray`."""
    settings = PathSettings(
        spraying.source_ports, spraying.first_source_port or FIRST_SOURCE_PORT, spraying.sticky
    )
    host = host_of(plan, name)
    planned = planned_spray(plan, name, settings)
    peers = {
        entry.name: Endpoint(str(entry.address), AGENT_PORT)
        for entry in plan.topology.hosts
        if entry.name != name
    }
    return PlannedAgent(
        str(host.address),
        planned.addresses,
        planned.first_port,
        planned.spray,
        plan.fabric.ports.mtu_bytes,
        plan.paths.burst_packets,
        _control_dscp(plan),
        peers,
    )


def _control_dscp(plan: Plan) -> Dscp:
    """Of the class that every fabric file has; without one in the plan, of what no class has."""
    return next((entry.dscp[0] for entry in plan.classes if entry.kind is ClassKind.CONTROL), 0)
