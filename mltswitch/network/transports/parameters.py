"""The transports as a scenario names them, with the parameters of their papers; a new one adds a class."""

from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from mltswitch.documents import SparseDocument
from mltswitch.network.units import PICOSECONDS, RateBps, Seconds, SizeBytes
from mltswitch.units import parse_bps

NEWRENO, DCTCP, MLT, PFABRIC, NDP, PIAS, CUBIC = range(7)
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
    switches: ClassVar[tuple[str, ...]] = ("plan", "thresholds", "marking", "drop-tail", "priorities")
    """Kinds of switches that it works with."""

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
            "bitmaps": 2,
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


class _DctcpLike(_Tcp):
    gain: float = Field(default=1 / 16, gt=0, le=1, allow_inf_nan=False)
    """g of the RFC, section 3.3."""

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's record."""
        return super().settings() | {"gain": self.gain}


class Dctcp(_DctcpLike):
    """DCTCP, RFC 8257."""

    number: ClassVar[int] = DCTCP
    name: Literal["dctcp"] = "dctcp"


class Cubic(_Tcp):
    """CUBIC, RFC 9438, with the recovery of NewReno; slow start is the standard's, without HyStart++."""

    number: ClassVar[int] = CUBIC
    name: Literal["cubic"] = "cubic"
    scale: float = Field(default=0.4, ge=1e-6, le=1000, allow_inf_nan=False)
    """C of the RFC, section 5.1 [packets/s³]."""
    beta: float = Field(default=0.7, gt=0, lt=1, allow_inf_nan=False)
    """What a loss leaves of the window, section 4.6."""

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's record."""
        return super().settings() | {"cubic": self.scale, "beta": self.beta}


class Pias(_DctcpLike):
    """PIAS (Bai et al., NSDI 2015): DCTCP whose packets fall in priority with the bytes before them."""

    number: ClassVar[int] = PIAS
    name: Literal["pias"] = "pias"
    thresholds_bytes: tuple[SizeBytes, ...] = Field(
        default=tuple(packets * 1460 for packets in (909, 1329, 1648, 1960, 2143, 2337, 2484)),
        min_length=1,
        max_length=15,
        alias="thresholds",
    )
    """Bytes of a flow after which its packets fall by one class each; by default those of the authors' ns-2
    scripts for web search at a load of 0.8."""

    @model_validator(mode="after")
    def _rise(self) -> Self:
        if list(self.thresholds_bytes) != sorted(set(self.thresholds_bytes)):
            raise ValueError("thresholds: each must be above the one before")
        return self

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's record."""
        count = len(self.thresholds_bytes)
        return super().settings() | {
            "demotions": count,
            "demotion": [*self.thresholds_bytes, *[0] * (15 - count)],
        }


class _FirstWindow(_Transport):
    initial_window_packets: int | None = Field(default=None, ge=1, le=1_000_000, alias="initial_window")
    """By default what a host's line sends in a round trip of the flow's path."""

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's record."""
        return super().settings() | {"initial_window": self.initial_window_packets or 0}


class Pfabric(_FirstWindow):
    """pFabric (Alizadeh et al., SIGCOMM 2013)."""

    number: ClassVar[int] = PFABRIC
    switches: ClassVar[tuple[str, ...]] = ("priority-dropping",)
    name: Literal["pfabric"] = "pfabric"
    least_rto_seconds: Seconds = Field(default=10e-6, gt=0, alias="rto_min")
    """Least timeout, where `rto_round_trips` makes less [s]."""
    rto_round_trips: float = Field(default=3.0, gt=0, le=1000, allow_inf_nan=False)
    """Timeout in round trips over empty lines (section 4.2: about three)."""
    probe_after: int = Field(default=5, ge=1, le=1000)
    """Timeouts in a row after which small packets ask whether anything arrives."""

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's record."""
        return super().settings() | {
            "rto_round_trips": self.rto_round_trips,
            "probe_after": self.probe_after,
            "shortest_first": 1,
        }


class Ndp(_FirstWindow):
    """NDP (Handley et al., SIGCOMM 2017)."""

    number: ClassVar[int] = NDP
    sprays: ClassVar[bool] = True
    switches: ClassVar[tuple[str, ...]] = ("trimming",)
    name: Literal["ndp"] = "ndp"
    least_rto_seconds: Seconds = Field(default=0.001, gt=0, alias="rto_min")
    """Time without news after which what is on its way counts as lost [s]."""

    def settings(self) -> dict[str, Any]:
        """Fields of the engine's record."""
        return super().settings() | {"bitmaps": 3}


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
    rates: Literal["flow", "pair"] = "pair"
    """What has a rate, and a count of packets between two acknowledgements: each flow, or all flows between
    two hosts together, as BytePS, which MLT is built into, has one connection for each worker and server.
    Alone, a flow of less than ten packets would never hear of congestion."""
    gradient: Literal["timely", "printed"] = "timely"
    """What a growing round trip does between T_low and T_high: slow the sender down as in TIMELY, or nothing,
    as MLT's paper has no rule for it."""

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
            "pairs": int(self.rates == "pair"),
            "holds": int(self.gradient == "printed"),
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


TRANSPORTS: Final[dict[str, type[_Transport]]] = {
    "mlt": Mlt,
    "dctcp": Dctcp,
    "newreno": NewReno,
    "cubic": Cubic,
    "pias": Pias,
    "pfabric": Pfabric,
    "ndp": Ndp,
}
"""By name; without numba, for `--help` and schemas read it."""
AnyMlt = Annotated[Mlt | MltAgent, Field(discriminator="law")]
Transport = Annotated[AnyMlt | Dctcp | NewReno | Cubic | Pias | Pfabric | Ndp, Field(discriminator="name")]
