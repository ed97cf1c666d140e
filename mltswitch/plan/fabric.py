"""The fabric file: topology, addressing, ports, traffic and classes, checked as it is read."""

from collections.abc import Callable
from math import log2
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, StrictInt, model_validator

from mltswitch.capabilities import Capabilities
from mltswitch.documents import StrictDocument
from mltswitch.plan.class_document import BurstPackets, Classes
from mltswitch.plan.topology_document import (
    Addressing,
    Name,
    PortReference,
    PortRole,
    RateBps,
    SwitchGroup,
    SwitchModel,
    TopologyDocument,
)
from mltswitch.units import parse_bytes

LAST_DELAY_SECONDS: Final = 0.5e-3
"""Default delay bound of the last gradient class in seconds; the bounds of those before it decrease in equal
steps."""
SLOW_BPS: Final = 1_000_000_000
"""Rate in bit/s below which a default delay bound stands for the packets that this rate sends within it, not
for the time: one packet takes 1.2 ms at 10 Mbit/s."""

SizeBytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]


class RolePorts(StrictDocument):
    """What one role's ports have different from the fabric's."""

    rate_bps: RateBps | None = Field(default=None, alias="rate")
    buffer_bytes: SizeBytes | None = Field(default=None, alias="buffer")
    load: float | None = Field(default=None, gt=0, le=10, allow_inf_nan=False)


class Ports(StrictDocument):
    """Rate, packet size and buffer of every port; `overrides` names the roles that differ."""

    rate_bps: RateBps = Field(alias="rate")
    buffer_bytes: SizeBytes | None = Field(default=None, alias="buffer")
    """What one port may fill of the switch's packet memory; by default what `memory` leaves it."""
    mtu_bytes: StrictInt = Field(default=1500, ge=576, le=9216)
    shaped: bool = False
    """Linux only: the port has no rate of its own (veth, tap), so the switch shapes it to `rate`."""
    overrides: dict[PortRole, RolePorts] = Field(default={})


class Memory(StrictDocument):
    """Packet memory that the ports of one switch share, as its vendor describes it.

    A queue with a dynamic threshold comes to rest at alpha · (what is free): with n others as long as itself,
    at alpha · pool / (1 + n · alpha) (Choudhury and Hahne 1998).
    """

    total_bytes: SizeBytes = Field(alias="total")
    """The chip's buffer; of a chip in several parts, a queue's packets lie in one of them."""
    reserved_bytes: Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)] = Field(
        default=0, alias="reserved"
    )
    """Guaranteed to ports and queues, whether they use it or not."""
    headroom_bytes: Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)] = Field(
        default=0, alias="headroom"
    )
    """Kept for lossless classes."""
    ports: StrictInt | None = Field(default=None, ge=1, le=4096)
    """Ports that share it; by default the box's."""
    busy_ports: StrictInt | None = Field(default=None, ge=1, le=4096)
    """Ports that are congested at once; by default a quarter of those that the fabric uses."""
    alpha: float | None = Field(default=None, gt=0, le=128, allow_inf_nan=False)
    """Share of the free memory that one lossy queue may take, a power of two; None: the switch's default."""

    @property
    def pool_bytes(self) -> int:
        """Packet memory that lossy queues share: the total less what is reserved and the headroom."""
        return self.total_bytes - self.reserved_bytes - self.headroom_bytes

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.pool_bytes <= 0:
            raise ValueError(
                f"reserved and headroom, {self.reserved_bytes + self.headroom_bytes} B, leave nothing of the "
                f"total {self.total_bytes} B"
            )
        if self.busy_ports and self.ports and self.busy_ports > self.ports:
            raise ValueError(f"{self.busy_ports} busy_ports are more than the {self.ports} ports")
        if self.alpha is not None and log2(self.alpha) % 1:
            raise ValueError(f"alpha {self.alpha:g} is no power of two")
        return self


class ScenarioEntry(StrictDocument):
    """One situation that thresholds are chosen for, beside others."""

    load_factor: float = Field(default=1.0, gt=0, le=10, allow_inf_nan=False)
    """Times the planned load."""
    senders: StrictInt = Field(default=1, ge=1, le=1024)
    """Senders whose bursts meet at a port: an incast of this degree."""
    burst_packets: BurstPackets | None = None
    """Burst of every gradient class; by default the agents'."""
    weight: float = Field(gt=0, le=1000, allow_inf_nan=False)
    """Its part of the objective, relative to the other scenarios."""


class Traffic(StrictDocument):
    """What the thresholds are made for."""

    load: float = Field(gt=0, le=10, allow_inf_nan=False)
    """Gradient bits offered to a port over its rate, in the busy phase; above 1 is overload."""
    burst_packets: BurstPackets = 1
    """Packets that a sender emits back to back with one tag (its segmentation offload)."""
    source_rate_ratio: float | None = Field(default=None, gt=0, le=1000, allow_inf_nan=False)
    """Rate of a sender's link over the rate of the port, how fast a burst arrives; by default a host's.

    The loss model `simulate` follows it; `completion` lets a burst arrive at once, which loses more.
    """
    importance: Literal["packet", "burst"] | None = None
    """What shares one importance; by default the burst where all bursts have one size above one packet.

    The loss model `completion` knows importance by burst only for bursts of one size.
    """
    arrivals: Literal["bursts", "geometric", "incast"] = "bursts"
    """Bursts at random times, all equal or geometric with the same mean; or rounds of all senders."""
    senders: StrictInt | None = Field(default=None, ge=1, le=100_000)
    """Incast: how many hosts send to one port in each round."""
    round_packets: StrictInt | None = Field(default=None, ge=1, le=10_000_000)
    """Incast: packets of one gradient class that one sender sends in one round."""
    jitter_seconds: float | None = Field(default=None, ge=0, le=1000, allow_inf_nan=False)
    """Incast: senders start up to so much late."""

    scenarios: tuple[ScenarioEntry, ...] = Field(default=(), max_length=16)
    """Situations beside the planned load for which thresholds are chosen; by default three quarters of the
    load, 1.15 times the load, and the bursts of four senders at once."""
    planned_weight: float = Field(default=0.6, gt=0, le=1000, allow_inf_nan=False)
    """Part of the objective that the planned load has beside the scenarios."""

    @model_validator(mode="after")
    def _incast_is_complete(self) -> Self:
        for name in ("senders", "round_packets", "jitter_seconds"):
            given, needed = getattr(self, name) is not None, self.arrivals == "incast"
            if given and not needed:
                raise ValueError(f"{name} belongs to arrivals: incast, not to {self.arrivals}")
            if needed and not given and name != "jitter_seconds":
                raise ValueError(f"arrivals: incast needs {name}")
        for number, entry in enumerate(self.scenarios):
            if self.arrivals == "incast" and (entry.senders > 1 or entry.burst_packets is not None):
                raise ValueError(
                    f"scenarios[{number}]: arrivals: incast has senders and bursts; give a load_factor"
                )
        return self

    def importance_of(self, burst_packets: int) -> Literal["packet", "burst"]:
        """Whether importance is decided per packet or per burst in a class with bursts of this (mean)
        size."""
        if self.importance is not None:
            return self.importance
        return "burst" if burst_packets > 1 and self.arrivals != "geometric" else "packet"


SprayMode = Literal["alias", "srv6", "packet", "p4", "entropy"]


class Spraying(StrictDocument):
    """How a packet gets its path.

    `alias`: one destination address per spine; these routes are there in every mode, for what needs one path.
    `srv6`: the sender lists segments. `packet`: the switch chooses among equal-cost routes, packet by packet.
    `p4`: the sender lists the switches' ports in a header of ours, which mltswitch/p4 takes off hop by hop.
    `entropy`: the sender varies UDP's source port, for switches that share equal-cost routes by it anyway.
    """

    mode: SprayMode = "alias"


def _check_trusted_ports(value: Any) -> Any:
    if value == "all" or (isinstance(value, list | tuple) and all(isinstance(port, str) for port in value)):
        return value
    raise ValueError("is the word all, or a list of ports such as leaf1:eth1")


class Fabric(StrictDocument):
    """One fabric; see inventories/lab/fabric.yaml for a commented example."""

    schema_version: Literal["mltswitch/fabric/v1"] = Field(alias="schema")
    name: Name
    topology: TopologyDocument
    addressing: Addressing = Addressing()
    qos_only: bool = False
    """Plan and push queues alone, on a network whose routes and addresses belong to somebody else."""
    ports: Ports
    memory: dict[Name, Memory] = Field(default={})
    """Shared packet memory by hardware model; the name `default` stands for every other one."""
    trusted_ports: Annotated[
        Literal["all"] | tuple[PortReference, ...], BeforeValidator(_check_trusted_ports)
    ] = "all"
    """Ports whose DSCP is believed; traffic from any other port is background."""
    traffic: Traffic
    classes: Classes
    spraying: Spraying = Spraying()

    @model_validator(mode="after")
    def _segments_where_they_are_used(self) -> Self:
        if (self.addressing.segments is not None) != (self.spraying.mode == "srv6"):
            raise ValueError("addressing.segments and spraying.mode srv6 belong together")
        return self

    @model_validator(mode="after")
    def _routes_where_they_are_needed(self) -> Self:
        mode = self.spraying.mode
        if self.qos_only and mode != "entropy":
            raise ValueError(f"qos_only: spraying.mode {mode} needs routes; entropy needs none")
        if mode == "alias" and self.addressing.alias is None:
            raise ValueError("addressing.alias is missing, which spraying.mode alias needs")
        return self

    def gradient_bursts(self, count: int) -> tuple[int, ...]:
        """Burst size, in packets that share one tag, of each of the first `count` gradient classes."""
        each = self.classes.gradients.burst_packets
        return (self.traffic.burst_packets,) * count if each is None else each[:count]

    def delay_bounds_seconds(self, count: int, rate_bps: int) -> tuple[float, ...]:
        """Delay bounds of `count` gradient classes on a port of this rate, front layers first."""
        bounds = self.classes.gradients.delay_bound_seconds
        if bounds is None:
            last = LAST_DELAY_SECONDS * max(1.0, SLOW_BPS / rate_bps)
            return tuple(last * (place + 1) / count for place in range(count))
        return bounds[:count] if isinstance(bounds, tuple) else (bounds,) * count


CapabilityLookup = Callable[[str, str | None], Capabilities]
"""Gives the capabilities of (platform, hardware, or None for its default); raises UserInputError for unknown
ones."""


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
