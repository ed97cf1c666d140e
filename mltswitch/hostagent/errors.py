"""What can go wrong with a peer or a transfer, as types: each names the peer, the tensor and the reason."""

import re
from collections.abc import Sequence
from typing import ClassVar

from mltswitch.errors import MltswitchError


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

    @property
    def result(self) -> str:
        """The type's name as metrics and traces have it: `deadline_exceeded`, say."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__.removesuffix("Error")).lower()

    def of_transfer(self, tensor: int, round_number: int) -> "AgentError":
        """The same reason, said of one transfer."""
        return type(self)(self.what, peer=self.peer, tensor=tensor, round_number=round_number)


class PeerUnreachableError(AgentError):
    """The peer could not be reached, left, or has been silent for too long."""


class PeerRefusedError(AgentError):
    """The peer does not accept us, our certificate, our version or our transport; says why."""

    is_lasting: bool = True
    """Whether asking again is of no use."""


class PeerBusyError(PeerRefusedError):
    """The peer has our name connected already, or no room: asking again may help."""

    is_lasting = False


class ProtocolViolationError(AgentError):
    """The peer said what no correct peer says; the connection ends."""


class DeadlineExceededError(AgentError):
    """Something was not there in time."""


class RanksMissingError(DeadlineExceededError):
    """Not all ranks have come to a group; `ranks` says which have not."""

    ranks: Sequence[int] = ()


class CancelledError(AgentError):
    """A transfer was cancelled, here or by the peer."""


class TransferMismatchError(AgentError):
    """Sender and receiver disagree on a tensor's size or element type."""


class TooManyTransfersError(AgentError):
    """More transfers are open than there may be: in all, or of one tensor in one round."""
