"""The Plan: the one document that renderers and host agents read."""

from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from mltswitch.capabilities import BytesLimit, Limit, Unlimited
from mltswitch.documents import StrictDocument
from mltswitch.errors import UserInputError
from mltswitch.plan.class_document import DscpValue
from mltswitch.plan.elements import Port, Switch
from mltswitch.plan.fabric import Fabric, SprayMode
from mltswitch.plan.topology import Topology
from mltswitch.plan.topology_document import Name, PortRole
from mltswitch.units import BITS_PER_BYTE, format_bps
from mltswitch.wire import CS6, CS7

PLAN_SCHEMA: Literal["mltswitch/plan/v2"] = "mltswitch/plan/v2"

Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=4000)]
"""Text for people, which no renderer reads."""


LATER_FIELDS: Final = {"delay_bound_seconds", "crowded_bytes", "all_ports_busy"}
"""Fields that older plans lack: they are written only where they are set, so that a plan's hash stays the
same."""


class _Grown(StrictDocument):
    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if value or name not in LATER_FIELDS}


class ClassKind(StrEnum):
    """What a traffic class carries; the kinds are in order of service."""

    NETWORK_CONTROL = "network-control"
    CONTROL = "control"
    ABOVE_GRADIENTS = "above-gradients"
    GRADIENT = "gradient"
    BELOW_GRADIENTS = "below-gradients"
    WEIGHTED = "weighted"
    """A class that is guaranteed a share of the port, as background is."""
    LOSSLESS = "lossless"
    """A lossless class, whose queue the operator configures: switches only map its code points to that
    queue."""
    BACKGROUND = "background"

    @property
    def is_repeatable(self) -> bool:
        """Whether a plan may have several classes of this kind."""
        return self not in (ClassKind.NETWORK_CONTROL, ClassKind.CONTROL, ClassKind.BACKGROUND)


class LayerRange(StrictDocument):
    """The layers of one gradient class, 0-based in forward order, both ends included."""

    first: int = Field(ge=0)
    last: int = Field(ge=0)
    first_name: Text
    last_name: Text
    size_bytes: int = Field(ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.last < self.first:
            raise ValueError(f"layers end at {self.last}, before they begin at {self.first}")
        return self


class TrafficClass(StrictDocument):
    """What a packet's DSCP means; each switch platform maps the class to a hardware queue."""

    name: Name
    kind: ClassKind
    dscp: tuple[DscpValue, ...] = Field(min_length=1)
    layers: LayerRange | None = None
    """The layers whose gradients the class carries; None: it is no gradient class."""
    load: float = Field(ge=0, allow_inf_nan=False)
    """Offered bits over the port's rate; each port scales this for gradient classes by its own load."""
    rate_cap_share: Ratio | None = None
    """For gradients: the share of the port below which senders keep all gradient classes together, to leave
    room for background. For the control class: the share of a port to which switches limit it."""
    guaranteed_share: Ratio | None = None
    """For weighted classes and background: the share of the port that it gets however much waits in classes
    above it."""
    loss_bound_unimportant: Ratio | None = None
    """End-to-end loss of unimportant packets up to which training takes no extra round; None: unknown, or no
    gradients."""
    loss_bound_important: Ratio | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if (self.layers is not None) != (self.kind is ClassKind.GRADIENT):
            raise ValueError(f"{self.name}: gradient classes carry layers, and no others do")
        if self.kind is not ClassKind.NETWORK_CONTROL and {CS6, CS7} & set(self.dscp):
            raise ValueError(f"{self.name}: CS6 and CS7 belong to routing protocols (RFC 4594)")
        if self.guaranteed_share is not None and self.kind not in (ClassKind.WEIGHTED, ClassKind.BACKGROUND):
            raise ValueError(f"{self.name}: a {self.kind} class has no guaranteed share")
        return self


class Prediction(StrictDocument):
    """What a loss model predicts for one queue of one port; a figure that it does not predict is None.

    Delays run from a packet's arrival to the start of its transmission.
    """

    loss_unimportant: Ratio
    loss_important: Ratio
    mean_delay_seconds: Amount | None = None
    p50_delay_seconds: Amount | None = None
    p99_delay_seconds: Amount | None = None
    p999_delay_seconds: Amount | None = None
    mean_queue_bytes: Amount | None = None
    """The mean number of waiting bytes over time; None: not predicted."""
    mark_share: Ratio | None = None
    """Share of the admitted important packets that carry a CE mark; None: not predicted."""
    loss_unimportant_error: Amount | None = None
    """Half width of the 95 % confidence interval of the unimportant packets' loss; None: not simulated."""
    loss_important_error: Amount | None = None


class QueueSettings(_Grown):
    """Thresholds of one class on one port, in bytes of waiting packets."""

    traffic_class: Name
    ecn_threshold_bytes: int | None = Field(default=None, gt=0)
    """ECN threshold S: above this many waiting bytes ECN-capable packets are marked and others dropped;
    None: neither.
    """
    limit: Limit = Field(discriminator="kind")
    """Limit L: above this length the queue drops everything."""
    delay_bound_seconds: Amount | None = None
    """Gradient classes: the ECN threshold S is at most what the port sends in this time, unless the notes
    say why not.
    """
    prediction: Prediction | None = None

    @model_validator(mode="after")
    def _marks_below_its_limit(self) -> Self:
        threshold = self.ecn_threshold_bytes
        if threshold and isinstance(self.limit, BytesLimit) and self.limit.size_bytes < threshold:
            raise ValueError(f"{self.traffic_class}: the limit {self.limit} lies below S = {threshold} B")
        return self


class PortProfile(_Grown):
    """Thresholds of all ports that have platform, hardware, rate and role in common."""

    platform: Name
    hardware: Name
    role: PortRole
    rate_bps: int = Field(gt=0)
    shaped: bool
    """Whether the switch itself must shape the port to its rate (virtual Linux ports)."""
    packet_bytes: int = Field(ge=64)
    """The size of a full-size packet as a queue counts it."""
    buffer_bytes: int = Field(gt=0)
    """What the port's queues may hold together where limits are in bytes, else what one congested queue may
    hold."""
    pool_bytes: int | None = Field(default=None, gt=0)
    """Shared packet memory, whose free part an alpha multiplies; None: not shared, or not known."""
    congested_queues: int = Field(default=1, ge=1)
    """The number of the switch's queues, all with the same alpha, that are assumed to be congested at
    once."""
    crowded_bytes: int | None = Field(default=None, gt=0)
    """What one queue gets of the shared memory while every port that the fabric uses is congested; None:
    ports share no memory, or its size is unknown."""
    load: float = Field(gt=0, allow_inf_nan=False)
    source_rate_ratio: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Rate of a sender's link over that of the port: how fast a burst arrives."""
    queues: tuple[QueueSettings, ...] = Field(min_length=1)
    extra_rounds: Amount | None = None
    """The value that this port's thresholds minimise: extra training rounds expected over the plan's
    scenarios, with losses counted over `hops` equal ports."""

    @model_validator(mode="after")
    def _fits_the_port(self) -> Self:
        held = sum(queue.limit.size_bytes for queue in self.queues if isinstance(queue.limit, BytesLimit))
        if held > self.buffer_bytes:
            raise ValueError(f"limits of {held} B in a buffer of {self.buffer_bytes} B")
        return self

    def length_bytes(self, limit: Limit, *, is_crowded: bool = False) -> int:
        """Waiting bytes at which a queue with this limit drops everything, while others are congested too.

        Args:
            limit: the queue's limit.
            is_crowded: whether all ports of the switch are congested.

        Raises:
            UserInputError: an alpha multiplies a pool whose size the plan does not know.
        """
        if isinstance(limit, BytesLimit):
            return limit.size_bytes
        if is_crowded and self.crowded_bytes is not None:
            return min(self.crowded_bytes, self.length_bytes(limit))
        if isinstance(limit, Unlimited):
            return self.buffer_bytes
        if self.pool_bytes is None:
            raise UserInputError(
                f"{limit} has no length: the pool's size is not known",
                where=f"port_profiles: {self.platform} {self.role}",
            )
        return limit.resting_bytes(self.pool_bytes, self.congested_queues)

    @property
    def packet_seconds(self) -> float:
        """Transmission time of one full-size packet, the unit of time in the loss models."""
        return self.packet_bytes * BITS_PER_BYTE / self.rate_bps

    @property
    def key(self) -> tuple[str, str, PortRole, int]:
        """The platform, hardware, role and rate by which a port finds its profile."""
        return self.platform, self.hardware, self.role, self.rate_bps


class PathPrediction(StrictDocument):
    """End-to-end loss of one class over the worst path: 1 - Π(1 - r), with r the loss of each port."""

    traffic_class: Name
    loss_unimportant: Ratio
    loss_important: Ratio
    extra_rounds: float = Field(ge=0, allow_inf_nan=False)


class ScenarioPrediction(_Grown):
    """A traffic situation that the thresholds were chosen for, and its predicted end-to-end cost."""

    name: Text
    load_factor: float = Field(gt=0, allow_inf_nan=False)
    """The scenario's load as a multiple of the planned load."""
    senders: int = Field(default=1, ge=1)
    """How many senders' bursts meet at a port at once."""
    burst_packets: int | None = Field(default=None, ge=1)
    """Burst size of every gradient class in packets; None: each class has its own burst size."""
    all_ports_busy: bool = False
    """Whether every port of a switch is congested, so that a queue gets the least of the shared memory."""
    weight: Ratio
    """The scenario's share of the objective."""
    extra_rounds: Amount | None = None
    """Training rounds beyond those of lossless training, over the worst path; None: not yet predicted."""


PLANNED_LOAD: Final = ScenarioPrediction(name="planned load", load_factor=1.0, weight=1.0)


class Paths(StrictDocument):
    """The rule by which hosts name a path; routes are expanded per switch on demand."""

    mode: SprayMode
    rule: Literal["address = alias prefix of the spine + host index"]
    burst_packets: int = Field(ge=1)
    """Packets that share one path decision and one DSCP/ECN byte."""


class Provenance(StrictDocument):
    """Where the plan comes from: its inputs and their hashes; the same inputs give the same bytes."""

    tool_version: Text
    queueing_model: Name
    profile_name: Text
    profile_sha256: Text
    fabric_sha256: Text
    sensitivity: Text
    """A sentence that says whether the model's loss tolerance was measured or is a default."""
    is_edited: bool = False
    """Whether thresholds were changed by hand after the planner chose them; their predictions were then made
    anew."""
    content_sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    """SHA-256 of everything in the plan but this field; empty until the plan is complete."""


class Plan(StrictDocument):
    """Thresholds, classes and paths for one model on one fabric."""

    schema_version: Literal["mltswitch/plan/v2"] = Field(alias="schema")
    provenance: Provenance
    unimportant_share: Ratio
    classes: tuple[TrafficClass, ...] = Field(min_length=1)
    """All traffic classes in order of service."""
    port_profiles: tuple[PortProfile, ...] = Field(min_length=1)
    scenarios: tuple[ScenarioPrediction, ...] = Field(default=(PLANNED_LOAD,), min_length=1)
    """The situations that the thresholds were chosen for, the planned load first."""
    end_to_end: tuple[PathPrediction, ...]
    """Predicted end-to-end loss of each gradient class at the planned load."""
    hops: int = Field(ge=1)
    """The number of queues on the longest path."""
    paths: Paths
    fabric: Fabric
    notes: tuple[Text, ...] = ()
    """What a reader of the thresholds should know, a sentence each."""
    warnings: tuple[Text, ...] = ()
    """Why the thresholds may not do what they should, a sentence each."""
    unmet: tuple[Text, ...] = ()
    """Gradient classes that no thresholds keep within their tolerance at the planned load, and
    what they need, a sentence each."""

    @model_validator(mode="after")
    def _classes_in_order_of_service(self) -> Self:
        _refuse_twice("class", (entry.name for entry in self.classes))
        _refuse_twice("DSCP", (dscp for entry in self.classes for dscp in entry.dscp))
        kinds = [entry.kind for entry in self.classes]
        _refuse_twice("class of kind", (kind for kind in kinds if not kind.is_repeatable))
        if kinds != sorted(kinds, key=list(ClassKind).index):
            raise ValueError(f"classes: out of the order of service {', '.join(ClassKind)}")
        if kinds[-1] is not ClassKind.BACKGROUND:
            raise ValueError("classes: no background, which takes what carries no DSCP of the plan")
        return self

    @model_validator(mode="after")
    def _profiles_cover_the_classes(self) -> Self:
        _refuse_twice("port profile", ("/".join(map(str, profile.key)) for profile in self.port_profiles))
        marking = [(entry.name, entry.kind is ClassKind.GRADIENT) for entry in self.classes]
        for profile in self.port_profiles:
            where = f"port_profiles: {profile.platform} {profile.role}"
            if [queue.traffic_class for queue in profile.queues] != [name for name, _ in marking]:
                raise ValueError(f"{where} does not list the plan's classes")
            if [(q.traffic_class, q.ecn_threshold_bytes is not None) for q in profile.queues] != marking:
                raise ValueError(f"{where}: gradient classes have an S, and no others do")
        return self

    @model_validator(mode="after")
    def _thresholds_rise_where_they_must(self) -> Self:
        if not self.fabric.classes.gradients.ordered_thresholds:
            return self
        for profile in self.port_profiles:
            marking = [queue for queue in profile.queues if queue.ecn_threshold_bytes is not None]
            for above, below in pairwise(marking):
                if (above.ecn_threshold_bytes or 0) > (below.ecn_threshold_bytes or 0):
                    raise ValueError(f"S of {above.traffic_class} lies above that of {below.traffic_class}")
        return self

    @cached_property
    def topology(self) -> Topology:
        """The plan's fabric expanded into switches, ports, hosts and routes."""
        return Topology(self.fabric)

    @cached_property
    def class_by_name(self) -> dict[str, TrafficClass]:
        """The plan's traffic classes by name."""
        return {traffic_class.name: traffic_class for traffic_class in self.classes}

    @property
    def gradient_classes(self) -> tuple[TrafficClass, ...]:
        """Gradient classes, front layers first."""
        return tuple(entry for entry in self.classes if entry.kind is ClassKind.GRADIENT)

    def port_profile(self, switch: Switch, port: Port) -> PortProfile:
        """Profile of one port of a switch; raises UserInputError when the plan has none."""
        for profile in self.port_profiles:
            if profile.key == (switch.platform, switch.hardware, port.role, port.rate_bps):
                return profile
        raise UserInputError(
            f"the plan has no port profile for {switch.platform}/{switch.hardware} {port.role} of "
            f"{format_bps(port.rate_bps)}",
            where="port_profiles",
        )


def _refuse_twice(what: str, values: Iterable[object]) -> None:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{what} {value} stands twice")
        seen.add(value)
