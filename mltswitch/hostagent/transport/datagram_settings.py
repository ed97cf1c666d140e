"""What the sections of all transports over datagrams have."""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field


class DatagramSettings(BaseModel):
    """A section of an agent's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    most_delay_ns: ClassVar[int] = 1_000_000
    """How long an acknowledgement waits at most for more packets to acknowledge."""

    silence_seconds: float = Field(default=10.0, gt=0, le=3600, allow_inf_nan=False)
    """A peer of whom nothing is heard so long, while something is open, is gone."""
    acknowledgement_packets: int = Field(default=16, ge=1, le=1024, strict=True)
    """Of one path, between acknowledgements; a millisecond at most, half of one over `ltp`."""
    rate_control: Literal["credit", "timely", "bbr"] = "credit"
    """`credit`: who receives divides what its port takes in among all who send to it; with a peer that does
    not know that, `bbr`. `timely` slows down on delay, as MLT prints it; `bbr` sends as fast as the network
    has delivered of late, whatever is lost."""
    inflight_gain: float = Field(default=2.0, ge=1, le=16, allow_inf_nan=False)
    """`bbr`: what may be on the way, over what a round trip carries. 1 (LTP) starves where acknowledgements
    come in lumps."""
