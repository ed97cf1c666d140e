"""The options of an `mlt` process group, from its user or from environment variables."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from mltswitch.errors import UserInputError

if TYPE_CHECKING:
    from mltswitch.hostagent import AgentConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class MltOptions:
    """Options of a process group, equal on all its ranks, for `pg_options`.

    Without them a group takes those of the default group, and the default group what MLTSWITCH_LOSS_BOUND,
    MLTSWITCH_TRANSPORT and MLTSWITCH_AGENT_CONFIG say. Raises UserInputError for values that cannot be.
    """

    loss_bound: float = 0.0
    """Share of each rank's addends that may be missing from a sum or average of floating-point tensors,
    reading as 0. Everything else, also the results of sums, arrives whole."""
    least_lossy_bytes: int = 64 << 10
    """Size below which tensors, such as metrics, arrive whole."""
    transport: str = "mlt"
    """A transport of the host agent: `mlt`, `tcp`, or a registered one."""
    traffic_class: str | None = None
    """Traffic class of the packets, such as `gradient-0`; None: that of the first layer."""
    deadline_seconds: float | None = None
    """The longest that a collective may take; None: the group's `timeout` in torch."""
    config: "AgentConfig | str | os.PathLike[str] | None" = None
    """The agent's configuration, or its file, for the group that opens the agent; None: loopback, to try it
    out."""

    def __post_init__(self) -> None:
        if not 0 <= self.loss_bound < 1:
            raise UserInputError(f"{self.loss_bound!r:.60}", where="loss_bound", expected="0 to below 1")
        if self.deadline_seconds is not None and not 0 < self.deadline_seconds < float("inf"):
            raise UserInputError(f"{self.deadline_seconds}", where="deadline_seconds", expected="above 0")

    @classmethod
    def from_environment(cls) -> Self:
        """The options given by environment variables, with defaults for those that are not set."""
        text = os.environ.get("MLTSWITCH_LOSS_BOUND") or "0"
        try:
            bound = float(text)
        except ValueError:
            raise UserInputError(f"{text!r:.60} is no number", where="MLTSWITCH_LOSS_BOUND") from None
        transport = os.environ.get("MLTSWITCH_TRANSPORT") or "mlt"
        return cls(
            loss_bound=bound, transport=transport, config=os.environ.get("MLTSWITCH_AGENT_CONFIG") or None
        )
