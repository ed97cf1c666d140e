"""The transport `mlt`: bounded loss over UDP, sprayed over all paths (MLT, sections 4 and 5).

Here is its description; the work is the compiled data plane's, which is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from mltswitch.hostagent.transport.description import TransportHost

if TYPE_CHECKING:
    from mltswitch.hostagent.transport.mlt_engine import MltEngine

NAME: Final = "mlt"


class MltSettings(BaseModel):
    """The section `mlt` of an agent's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    silence_seconds: float = Field(default=10.0, gt=0, le=3600, allow_inf_nan=False)
    """A peer of whom nothing is heard so long, while something is open, is gone."""
    acknowledgement_packets: int = Field(default=16, ge=1, le=1024, strict=True)
    """Of one path, between acknowledgements; a fifth of a millisecond at most."""
    rate_control: Literal["timely", "bbr"] = "timely"
    """`timely` slows down on delay, and on losses that slowing down lessens; `bbr` sends as fast as the
    network has delivered of late, whatever is lost."""


class MltTransport:
    """The description."""

    name = NAME
    settings = MltSettings

    def open(self, host: TransportHost) -> "MltEngine":
        """Raises MachineError where the data plane was not built, or an address is not this host's."""
        from mltswitch.hostagent.transport.mlt_engine import MltEngine

        return MltEngine(host)


TRANSPORT: Final = MltTransport()
