"""The scenario document: a fabric, what its switches do, what is sent, and by which transports."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from mltswitch.documents import SparseDocument, StrictDocument, validate
from mltswitch.errors import did_you_mean
from mltswitch.network.faults import Fault
from mltswitch.network.switches import KINDS, FromPlan, SwitchDocument
from mltswitch.network.transports.parameters import TRANSPORTS, Transport
from mltswitch.network.units import RateBps, Seconds, SizeBytes
from mltswitch.network.workloads import Workload
from mltswitch.plan import Fabric

SIMULATION_SCHEMA: Final = "mltswitch/simulation/v1"
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]


class LeafSpineNetwork(SparseDocument):
    """A leaf-spine by numbers, where no fabric file is at hand."""

    leaves: int = Field(ge=1, le=1024)
    spines: int = Field(default=0, ge=0, le=1024)
    hosts_per_leaf: int = Field(ge=1, le=1024)
    rate_bps: RateBps = Field(alias="rate")
    """Of hosts' links."""
    uplink_rate_bps: RateBps | None = Field(default=None, alias="uplink_rate")
    """From a leaf to each spine; by default that of hosts."""
    oversubscription: float | None = Field(default=None, gt=0, le=1000, allow_inf_nan=False)
    """Rate of a leaf's hosts over that of its uplinks, in the place of `uplink_rate`."""
    delay_seconds: Seconds = Field(default=0.0, le=10, alias="delay")
    """A bit's way through a host's cable."""
    uplink_delay_seconds: Seconds | None = Field(default=None, le=10, alias="uplink_delay")
    """From a leaf to each spine; by default that of hosts."""

    @model_validator(mode="after")
    def _is_joined(self) -> Self:
        if self.leaves > 1 and self.spines == 0:
            raise ValueError(f"{self.leaves} leaves need spines that join them")
        if self.oversubscription is not None and self.uplink_rate_bps is not None:
            raise ValueError("uplink_rate and oversubscription say the same: give one of them")
        return self

    @property
    def _uplink_bps(self) -> int:
        if self.oversubscription is None:
            return self.uplink_rate_bps or self.rate_bps
        return round(self.rate_bps * self.hosts_per_leaf / max(1, self.spines) / self.oversubscription)

    def fabric(self) -> Fabric:
        """The same as a fabric document, whose addresses and classes nobody reads here."""
        names = {"platform": "simulated", "port_names": {"pattern": "port{n}"}}
        uplink_delay = self.delay_seconds if self.uplink_delay_seconds is None else self.uplink_delay_seconds
        stride = 1 << self.hosts_per_leaf.bit_length()
        tiers: dict[str, Any] = {
            "leaves": {"count": self.leaves} | names,
            "spines": {"count": max(1, self.spines)} | names,
            "hosts_per_leaf": self.hosts_per_leaf,
            "host_ports": {"rate": self.rate_bps, "delay": self.delay_seconds},
            "uplinks": {"rate": self._uplink_bps, "delay": uplink_delay},
        }
        return validate(
            {
                "schema": "mltswitch/fabric/v1",
                "name": "simulated",
                "qos_only": True,
                "topology": {"leaf_spine": tiers},
                "addressing": {"hosts": "10.0.0.0/8", "leaf_stride": stride},
                "ports": {"rate": self.rate_bps},
                "traffic": {"load": 0.5},
                "classes": {"control": {"dscp": [40]}, "gradients": {"dscp": [34]}},
                "spraying": {"mode": "entropy"},
            },
            Fabric,
            where="fabric",
        )


def _check_transport(value: Any) -> Any:
    """A transport by its name alone has the parameters of its paper."""
    entry = {"name": value} if isinstance(value, str) else value
    name = entry.get("name") if isinstance(entry, dict) else None
    if isinstance(name, str) and name not in TRANSPORTS:
        raise ValueError(
            f"{name[:40]!r} is no transport{did_you_mean(name, TRANSPORTS)} (expected one of "
            f"{', '.join(TRANSPORTS)})"
        )
    if name == "mlt" and isinstance(entry, dict):
        return {"law": "paper"} | entry
    return entry


_DEFAULT_SWITCHES: Final = {
    "dctcp": "marking",
    "newreno": "drop-tail",
    "cubic": "drop-tail",
    "pias": "priorities",
}
"""Where it is not the first kind that the transport works with."""


class Play(SparseDocument):
    """A transport, and what switches do for it."""

    transport: Annotated[Transport, BeforeValidator(_check_transport)]
    switch: SwitchDocument | None = None
    """By default what the transport is made for."""
    spraying: bool | None = None
    """Whether each packet takes another path; by default of `mlt` and `ndp`. Else flows are hashed."""

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if self.switch_document.kind not in self.transport.switches:
            raise ValueError(
                f"{self.transport.name} does not work with switches of kind {self.switch_document.kind} "
                f"(expected one of {', '.join(self.transport.switches)})"
            )
        return self

    @property
    def switch_document(self) -> FromPlan | Any:
        """What switches do, with its default."""
        if self.switch is not None:
            return self.switch
        return KINDS[_DEFAULT_SWITCHES.get(self.transport.name, self.transport.switches[0])]()

    @property
    def sprays(self) -> bool:
        """Whether each packet takes another path."""
        return self.transport.sprays if self.spraying is None else self.spraying


def _check_play(value: Any) -> Any:
    return {"transport": value} if isinstance(value, str) else value


class Scenario(StrictDocument):
    """What `mltswitch simulate` plays: every transport on its own, with every seed."""

    schema_version: Literal["mltswitch/simulation/v1"] = Field(alias="schema")
    name: Name
    fabric: LeafSpineNetwork | str
    """Numbers of a leaf-spine, or a fabric file or plan, relative to this document's folder."""
    buffer_bytes: SizeBytes | None = Field(default=None, alias="buffer")
    """Memory of each port of a switch that follows no plan; by default the fabric file's `ports.buffer`."""
    link_loss: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """Probability that a link loses a packet."""
    hosts: Literal["leaf-by-leaf", "in-turn"] = "leaf-by-leaf"
    """How workloads number hosts: `in-turn`, one of each leaf after the other, spreads workers and servers
    evenly over all racks."""
    faults: tuple[Fault, ...] = Field(default=(), max_length=1000)
    """Links that lose packets between two times."""
    workload: Workload
    plays: tuple[Annotated[Play, BeforeValidator(_check_play)], ...] = Field(
        alias="transports", min_length=1, max_length=16
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = Field(
        default=(1,), min_length=1, max_length=1000
    )
    end_seconds: Seconds | None = Field(default=None, gt=0, alias="end")
    """Simulated time after which a run is broken off; flows that are open then count as such."""
    _titles: tuple[str, ...] = PrivateAttr(default=())
    """Of plays that were chosen out of another scenario."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: one stands twice")
        if len(set(self.titles)) < len(self.plays):
            raise ValueError("transports: one stands twice")
        return self

    @property
    def titles(self) -> tuple[str, ...]:
        """A name for each play: the transport's, and the switches' where a transport is played twice."""
        if self._titles:
            return self._titles
        names = [play.transport.title for play in self.plays]
        return tuple(
            name if names.count(name) == 1 else f"{name} over {play.switch_document.kind}"
            for name, play in zip(names, self.plays, strict=True)
        )

    def with_plays(self, plays: Mapping[str, Play]) -> Self:
        """The same with other plays, by their titles: one out of several keeps the title that it had."""
        chosen = self.model_copy(update={"plays": tuple(plays.values())})
        chosen._titles = tuple(plays)
        return chosen
