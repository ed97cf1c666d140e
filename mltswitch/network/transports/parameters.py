"""The transports as a scenario names them, with the parameters of their papers; a new one adds a class."""

from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from mltswitch.documents import SparseDocument
from mltswitch.network.units import PICOSECONDS, RateBps, Seconds
from mltswitch.units import parse_bps

NEWRENO, DCTCP, MLT = range(3)
"""The transports by number, as compiled code knows them."""
COMPILED: Final = 20
"""The number of flows whose ends are played outside of the engine."""
PAYLOAD_BYTES: Final = 1460
HEADER_BYTES: Final = 40
"""IP and TCP, or IP and UDP with MLT's header: 1,500 B on the line with the payload."""
ANSWER_BYTES: Final = 64
"""An acknowledgement or a signal, as the smallest Ethernet frame."""
AGENT_HEADER_BYTES: Final = 68
"""IPv4, UDP and the header of the host agent, which makes 1,500 B with the agent's payload."""


class _Transport(SparseDocument):
    number: ClassVar[int]
    sprays: ClassVar[bool] = False
    """Whether each packet takes another path, where the scenario does not say."""

    payload_bytes: int = Field(default=PAYLOAD_BYTES, ge=64, le=9000, alias="payload")
    header_bytes: int = Field(default=HEADER_BYTES, ge=0, le=256, alias="header")
    least_rto_seconds: Seconds = Field(default=0.010, gt=0, alias="rto_min")
    """Least time without an answer after which a sender sends or asks again [s]."""

    @property
    def title(self) -> str:
        """What tells it from others in a table."""
        return str(self.name)  # type: ignore[attr-defined]  # each transport has one

    @property
    def packet_bytes(self) -> int:
        """A full packet on the line."""
        return self.payload_bytes + self.header_bytes

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's record."""
        return {
            "transport": self.number,
            "payload": self.payload_bytes,
            "header": self.header_bytes,
            "answer_bytes": ANSWER_BYTES,
            "least_rto": round(self.least_rto_seconds * PICOSECONDS),
        }


class _Tcp(_Transport):
    initial_window_packets: int = Field(default=10, ge=1, le=10_000, alias="initial_window")
    """RFC 6928."""
    duplicate_acks: int = Field(default=3, ge=1, le=1000)
    """Acknowledgements for one packet after which the next one counts as lost (RFC 5681)."""

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's record."""
        return super().settings() | {
            "initial_window": self.initial_window_packets,
            "duplicates": self.duplicate_acks,
        }


class NewReno(_Tcp):
    """TCP NewReno without SACK and without ECN."""

    number: ClassVar[int] = NEWRENO
    name: Literal["newreno"] = "newreno"


class Dctcp(_Tcp):
    """DCTCP, RFC 8257."""

    number: ClassVar[int] = DCTCP
    name: Literal["dctcp"] = "dctcp"
    gain: float = Field(default=1 / 16, gt=0, le=1, allow_inf_nan=False)
    """g of the RFC, section 3.3."""

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's record."""
        return super().settings() | {"gain": self.gain}


class Mlt(_Transport):
    """MLT by the law that its paper prints; where it prints nothing, by TIMELY's."""

    number: ClassVar[int] = MLT
    sprays: ClassVar[bool] = True
    name: Literal["mlt"] = "mlt"
    law: Literal["paper"] = "paper"
    loss_bound: float = Field(default=0.1, ge=0, lt=1, allow_inf_nan=False)
    """p: share of a flow's unimportant packets that it completes without."""
    unimportant_share: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    """Of the packets."""
    low_seconds: Seconds = Field(default=12.5e-6, alias="t_low")
    high_seconds: Seconds = Field(default=125e-6, gt=0, alias="t_high")
    increase_bps: RateBps = Field(default=40_000_000, alias="increase")
    """MLT's alpha, TIMELY's delta."""
    decrease: float = Field(default=0.8, gt=0, lt=1, allow_inf_nan=False)
    """How strongly a sender slows down: beta of MLT's paper and of TIMELY's."""
    gradient_weight: float = Field(default=0.875, gt=0, le=1, allow_inf_nan=False)
    """Weight of a new difference of round trips in their mean (TIMELY's alpha)."""
    packets_per_ack: int = Field(default=10, ge=1, le=1000)
    initial_rate_share: float = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    """Of the host's line; also the most."""
    least_rate_bps: RateBps = Field(default=parse_bps("10Mbps"), alias="least_rate")
    probe: Literal["control", "data"] = "control"
    """In which class a sender asks what is missing: before data, as in MLT's paper, or behind its own."""

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's record."""
        return super().settings() | {
            "loss_bound": self.loss_bound,
            "unimportant": self.unimportant_share,
            "low": round(self.low_seconds * PICOSECONDS),
            "high": round(self.high_seconds * PICOSECONDS),
            "increase": self.increase_bps,
            "decrease": self.decrease,
            "gradient_weight": self.gradient_weight,
            "fast_after": 5,
            "fast_factor": 5.0,
            "packets_per_answer": self.packets_per_ack,
            "line_rate_share": self.initial_rate_share,
            "least_rate": self.least_rate_bps,
            "probes_wait": int(self.probe == "data"),
        }


class MltAgent(_Transport):
    """MLT as the host agent has it: receivers grant credit, senders ask behind each pass what is missing."""

    number: ClassVar[int] = COMPILED
    sprays: ClassVar[bool] = True
    name: Literal["mlt"] = "mlt"
    law: Literal["compiled"]
    """`compiled`: the agent's compiled data plane plays each host, in simulated time."""
    payload_bytes: int = Field(default=1432, ge=216, le=8960, alias="payload")
    header_bytes: int = Field(default=AGENT_HEADER_BYTES, ge=AGENT_HEADER_BYTES, le=256, alias="header")
    loss_bound: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """p: share of a flow's packets that it may complete without."""
    important_bound: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """The same of important packets; by default 0.01, or `loss_bound` if that is less."""
    stop: Literal["patient", "paper"] = "patient"
    """`patient`: a flow ends without packets only when its sender has ended a pass; `paper`: at once."""
    unimportant_share: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    """Of the packets; none where all must arrive."""
    burst_packets: int | None = Field(default=None, ge=1, le=64, alias="burst")
    """Packets in a row on one path; by default what leaves in 125 µs, 64 at most."""
    packets_per_ack: int = Field(default=16, ge=1, le=1024)

    @model_validator(mode="after")
    def _has_timers_of_its_own(self) -> Self:
        if "least_rto_seconds" in self.model_fields_set:
            raise ValueError(f"law {self.law} has no rto_min: its timers follow the round trip")
        return self

    @property
    def title(self) -> str:
        """What tells it from others in a table."""
        return f"{self.name} {self.law}"

    @property
    def least_important_bound(self) -> float:
        """`important_bound` with its default."""
        return min(self.loss_bound, 0.01) if self.important_bound is None else self.important_bound


TRANSPORTS: Final[dict[str, type[_Transport]]] = {"mlt": Mlt, "dctcp": Dctcp, "newreno": NewReno}
"""By name; without numba, for `--help` and schemas read it."""
AnyMlt = Annotated[Mlt | MltAgent, Field(discriminator="law")]
Transport = Annotated[AnyMlt | Dctcp | NewReno, Field(discriminator="name")]
