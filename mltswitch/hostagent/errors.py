"""What can go wrong with a transfer, as types: each names the peer, the tensor and the reason."""

from typing import ClassVar, Final

from mltswitch.errors import MltswitchError

CONNECTED_ALREADY: Final = "is connected already"
NO_MORE_MAY_BE: Final = "no more may be"
"""How refusals end that another connection is the reason for: they pass."""


class AgentError(MltswitchError):
    """Base of what the host agent raises, and of what its completions carry; never raised itself."""

    exit_code: ClassVar[int] = 6

    def __init__(
        self, what: str, *, peer: str = "", tensor: int | None = None, round_number: int = 0
    ) -> None:
        where = f"peer {peer}" if peer else ""
        if tensor is not None:
            where += f", tensor {tensor}, round {round_number}"
        super().__init__(what, where=where.removeprefix(", "))
        self.peer = peer
        self.tensor = tensor
        self.round_number = round_number


class PeerUnreachableError(AgentError):
    """The control channel could not be opened, broke, or the peer has been silent for too long."""


class PeerRefusedError(AgentError):
    """The peer does not accept us, our certificate, our version, or a transfer; says why."""

    @property
    def is_lasting(self) -> bool:
        """Whether asking again is of no use. A peer's GOODBYE carries its words and nothing else, so this
        goes by them: what it does not know, it takes for lasting."""
        return not self.what.endswith((CONNECTED_ALREADY, NO_MORE_MAY_BE))


class ProtocolViolationError(AgentError):
    """The peer said what no correct peer says; the connection ends."""


class DeadlineExceededError(AgentError):
    """A transfer was not complete within its bound in time."""


class CancelledError(AgentError):
    """A transfer was cancelled, here or by the peer."""


class TransferMismatchError(AgentError):
    """Sender and receiver disagree on a tensor's size, element type or bound."""


class TooManyTransfersError(AgentError):
    """More transfers are open with a peer, or more tensors were used, than there may be."""


class BufferReusedError(AgentError):
    """A tensor's memory changed while the library still sent from it (debug mode)."""


class TaggingError(AgentError):
    """The policy that marks packets important failed; says how."""
