"""Errors of peers and transfers, as types; each names the peer, the tensor and the reason."""

import re
from collections.abc import Sequence
from typing import ClassVar

from mltswitch.errors import MltswitchError


class AgentError(MltswitchError):
    """Base of the errors that the host agent raises and that its completions carry; never raised itself."""

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
        """The error's type as metrics and traces name it, such as `deadline_exceeded`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__.removesuffix("Error")).lower()

    def of_transfer(self, tensor: int, round_number: int) -> "AgentError":
        """A copy of this error that names one transfer."""
        return type(self)(self.what, peer=self.peer, tensor=tensor, round_number=round_number)


class PeerUnreachableError(AgentError):
    """The peer could not be reached, left, or has been silent for too long."""


class PeerRefusedError(AgentError):
    """The peer does not accept this agent, its certificate, version or transport; the error says why."""

    is_lasting: bool = True
    """Whether connecting again cannot succeed."""


class PeerBusyError(PeerRefusedError):
    """The peer is already connected with an agent of our name, or has no room: connecting again may help."""

    is_lasting = False


class ProtocolViolationError(AgentError):
    """The peer sent what no correct peer sends; the connection ends."""


class DeadlineExceededError(AgentError):
    """Something did not happen in time."""


class RanksMissingError(DeadlineExceededError):
    """Not all ranks have joined a group; `ranks` says which are missing."""

    ranks: Sequence[int] = ()


class CancelledError(AgentError):
    """A transfer was cancelled, here or by the peer."""


class TransferMismatchError(AgentError):
    """Sender and receiver disagree on a tensor's size or element type."""


class TooManyTransfersError(AgentError):
    """More transfers are open than allowed, in all or of one tensor in one round."""
