"""What an agent keeps of each post, and tells of its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.hostagent.completions import Completion, CompletionQueue, Transfer
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.telemetry.events import TransferEnded, kind_of
from mltswitch.hostagent.transport.interfaces import Direction, TransferKey

Place = tuple[str, TransferKey, Direction]


@dataclass(slots=True, eq=False)
class Post:
    """One that is open."""

    transfer: Transfer
    queue: CompletionQueue
    memory: NDArray[np.uint8]
    """Keeps it alive."""
    checksum: int | None
    begin: int = field(init=False)
    """First address of the memory, which is contiguous."""
    end: int = field(init=False)
    """The one behind it."""

    def __post_init__(self) -> None:
        self.begin = self.memory.ctypes.data
        self.end = self.begin + self.memory.nbytes

    def overlaps(self, other: "Post") -> bool:
        """Whether both have some memory."""
        return max(self.begin, other.begin) < min(self.end, other.end)


def ended(completion: Completion) -> TransferEnded:
    """What observers are told of a completion."""
    error, statistics = completion.error, completion.statistics
    return TransferEnded(
        completion.completed_ns,
        completion.peer,
        completion.tensor,
        completion.round_number,
        completion.direction,
        kind_of(error),
        "" if error is None else error.what,
        statistics.goodput_bps if statistics else None,
        statistics,
        completion.paths,
    )


def named(error: AgentError, peer: str, key: TransferKey) -> AgentError:
    """The same error, of one post."""
    return type(error)(error.what, peer=peer, tensor=key.tensor, round_number=key.round_number)


def refuse_shared(new: Post, place: Place, posts: Mapping[Place, Post]) -> None:
    """Raise UserInputError where memory that is being received into would be another post's, too. Several may
    send from the same."""
    to, own, direction = place
    for (peer, key, other), post in posts.items():
        if Direction.RECEIVE in (direction, other) and new.overlaps(post):
            raise UserInputError(
                f"its memory overlaps that of tensor {key.tensor}, round {key.round_number}, which is posted"
                + ("" if peer == to else f" with peer {peer}"),
                where=f"peer {to}, tensor {own.tensor}, round {own.round_number}",
                hint="wait for that completion, or use other memory",
            )
