"""Settings that all transports over datagrams have."""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field


class DatagramSettings(BaseModel):
    """Settings of a transport over datagrams: its section of an agent's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    most_delay_ns: ClassVar[int] = 1_000_000
    """Longest time in ns that an acknowledgement waits for more packets to acknowledge."""

    silence_seconds: float = Field(default=10.0, gt=0, le=3600, allow_inf_nan=False)
    """A peer that is silent for so long while something is open counts as gone."""
    acknowledgement_packets: int = Field(default=16, ge=1, le=1024, strict=True)
    """Packets of one path acknowledged together, or fewer after 1 ms (`ltp`: 0.5 ms)."""
    rate_control: Literal["credit", "timely", "bbr"] = "credit"
    """How the sending rate is controlled. `credit`: the receiver divides its port's rate among all senders
    (with a peer that does not know that: `bbr`). `timely`: slows down on delay, as in the MLT paper. `bbr`:
    sends as fast as the network has delivered of late, whatever is lost."""
    inflight_gain: float = Field(default=2.0, ge=1, le=16, allow_inf_nan=False)
    """For `bbr`, bytes in flight as a multiple of the bandwidth-delay product. 1 (LTP) starves where
    acknowledgements come in lumps."""
