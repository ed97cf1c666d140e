"""The traffic classes of a fabric file: their DSCPs, loads and limits, and the order in which ports serve
them."""

import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StrictInt, model_validator

from mltswitch.documents import SparseDocument, StrictDocument
from mltswitch.plan.topology_document import Name
from mltswitch.wire import CS6, CS7

DscpValue = Annotated[StrictInt, Field(ge=0, le=63)]
LimitPackets = Annotated[StrictInt, Field(ge=1, le=1_000_000)]
BurstPackets = Annotated[StrictInt, Field(ge=1, le=1024)]
DelaySeconds = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]


class NetworkControlClass(StrictDocument):
    """Routing protocols; served first, never dropped early."""

    dscp: tuple[DscpValue, ...] = Field(default=(CS6, CS7), min_length=1)
    """CS6 and CS7 (RFC 4594), which no other class may have."""
    load: float = Field(default=0.001, ge=0, lt=1, allow_inf_nan=False)
    """Its bits offered to a port."""
    limit_packets: LimitPackets = 16
    """Greatest queue on a port."""


class ControlClass(StrictDocument):
    """The agents' control channel: stop, probe, bitmap."""

    dscp: tuple[DscpValue, ...] = Field(min_length=1)
    """Its code points."""
    load: float = Field(default=0.005, ge=0, lt=1, allow_inf_nan=False)
    """Its bits offered to a port."""
    limit_packets: LimitPackets = 32
    """Greatest queue on a port."""
    rate_cap_share: float = Field(default=0.1, gt=0, le=1, allow_inf_nan=False)
    """Share of a port to which switches hold it: it is served before gradients, whoever sends it."""

    @model_validator(mode="after")
    def _load_below_cap(self) -> Self:
        if self.load >= self.rate_cap_share:
            raise ValueError(f"the load {self.load} is not below rate_cap_share {self.rate_cap_share}")
        return self


class GradientClasses(StrictDocument):
    """The gradients: one class, queue and DSCP for some layers in a row."""

    dscp: tuple[DscpValue, ...] = Field(min_length=1)
    """One for each class, front layers first."""
    queues: StrictInt | None = Field(default=None, ge=1)
    """How many gradient classes; by default as many as every device and the DSCP list allow."""
    burst_packets: tuple[BurstPackets, ...] | None = None
    """Burst of each class, front layers first, where they differ from `traffic.burst_packets`."""
    delay_bound_seconds: DelaySeconds | tuple[DelaySeconds, ...] | None = Field(
        default=None, alias="delay_bound"
    )
    """The ECN threshold S is at most what a port sends in this time; one for all classes, or one for
    each. One that is given also bounds the 99th percentile of a port's queueing delay. By default 0.5 ms
    for the last class, equal steps less for those before it, and the packets that 1 Gbit/s sends in it
    where a port is slower.
    """
    ordered_thresholds: bool = True
    """A class of higher priority has a smaller or equal ECN threshold S (MLT, section 5.2); false leaves
    the order free.
    """

    @model_validator(mode="after")
    def _one_for_each_class(self) -> Self:
        most = len(self.dscp)
        for name, values in (
            ("burst_packets", self.burst_packets),
            ("delay_bound", self.delay_bound_seconds),
        ):
            least = self.queues if self.queues is not None else most
            if isinstance(values, tuple) and not least <= len(values) <= most:
                raise ValueError(f"{name} lists {len(values)} values for {least} gradient classes")
        return self


class BackgroundClass(StrictDocument):
    """Everything else, and what carries no DSCP of the plan."""

    dscp: tuple[DscpValue, ...] = Field(default=(0,), min_length=1)
    """Its code points beside those that no class names."""
    load: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """Its bits offered to a port."""
    guaranteed_share: float = Field(default=0.05, ge=0, lt=1, allow_inf_nan=False)
    """Share of the port that strict gradients may not take: switches guarantee it where they can, and senders
    cap their gradient rate by it."""
    limit_packets: LimitPackets = 32
    """Greatest queue on a port."""


class OtherClass(SparseDocument):
    """Traffic of the rack beside training, such as RoCE, storage or telemetry.

    Exactly one of `lossless`, `guaranteed_share` and `place` says how switches serve it.
    """

    name: Name
    """What plans and reports call it."""
    dscp: tuple[DscpValue, ...] = Field(min_length=1)
    """Its code points."""
    load: float = Field(ge=0, lt=1, allow_inf_nan=False)
    """Its bits offered to a port."""
    lossless: bool = False
    """Its queue, PFC and buffers are the operator's: switches only go on leading its code points there."""
    guaranteed_share: float | None = Field(default=None, gt=0, lt=1, allow_inf_nan=False)
    """Served after the gradients, and guaranteed this share of a port however much waits before it."""
    place: Literal["above-gradients", "below-gradients"] | None = None
    """Served strictly before or after the gradients, without a guarantee."""
    limit_packets: LimitPackets = 32
    """Greatest queue on a port; a lossless class has the operator's."""

    @model_validator(mode="after")
    def _one_kind_of_service(self) -> Self:
        given = (self.lossless, self.guaranteed_share is not None, self.place is not None)
        if given.count(True) != 1:
            raise ValueError(f"{self.name}: needs exactly one of lossless: true, guaranteed_share and place")
        if self.lossless and "limit_packets" in self.model_fields_set:
            raise ValueError(f"{self.name}: limit_packets is the operator's for a lossless class")
        if _TAKEN.fullmatch(self.name):
            raise ValueError(f"{self.name} is the name of a class of every plan")
        return self


_TAKEN: Final = re.compile(r"network-control|control|gradient-[0-9]+|background")


class Classes(SparseDocument):
    """Traffic classes in order of service, with the fabric's DSCPs."""

    network_control: NetworkControlClass = NetworkControlClass()
    control: ControlClass
    gradients: GradientClasses
    background: BackgroundClass = BackgroundClass()
    others: tuple[OtherClass, ...] = Field(default=(), max_length=8)
    """Classes of the user's own, those of one kind of service in the order of the list."""

    @property
    def lossless(self) -> tuple[OtherClass, ...]:
        """The lossless classes, whose queues the operator configures."""
        return tuple(entry for entry in self.others if entry.lossless)

    @model_validator(mode="after")
    def _code_points(self) -> Self:
        named = [
            ("control", self.control.dscp),
            ("gradients", self.gradients.dscp),
            ("background", self.background.dscp),
            *((f"others: {entry.name}", entry.dscp) for entry in self.others),
        ]
        for name, dscp in named:
            reserved = {CS6, CS7}.intersection(dscp)
            if reserved:
                raise ValueError(
                    f"{name}.dscp: {min(reserved)} is {'CS6' if CS6 in reserved else 'CS7'}, "
                    "which belongs to routing protocols (RFC 4594)"
                )
        _refuse_shared(("network_control", self.network_control.dscp), *named)
        wanted = self.gradients.queues
        if wanted is not None and wanted > len(self.gradients.dscp):
            raise ValueError(
                f"gradients.queues is {wanted}, gradients.dscp lists {len(self.gradients.dscp)} code points"
            )
        return self

    @model_validator(mode="after")
    def _others_leave_room(self) -> Self:
        names = [entry.name for entry in self.others]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"others: {name} stands twice")
        has_shares = any(entry.guaranteed_share is not None for entry in self.others)
        if has_shares and not self.background.guaranteed_share:
            raise ValueError(
                "background.guaranteed_share is 0, and classes above background have one: it would starve"
            )
        return self


def _refuse_shared(*classes: tuple[str, Iterable[int]]) -> None:
    owner: dict[int, str] = {}
    for name, code_points in classes:
        for dscp in code_points:
            if dscp in owner:
                also = f"{owner[dscp]} and to {name}" if owner[dscp] != name else f"{name} twice"
                raise ValueError(f"DSCP {dscp} is given to {also}")
            owner[dscp] = name
