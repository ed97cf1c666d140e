"""What an agent keeps of each post, and tells of its end."""

from collections.abc import Mapping
from dataclasses import dataclass

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
    bounds: tuple[int, int]
    """Of the memory: its first address, and the one behind it."""


def bounds(memory: NDArray[np.uint8]) -> tuple[int, int]:
    """First address, and the one behind it, of contiguous memory."""
    begin = memory.ctypes.data
    return begin, begin + memory.nbytes


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


def refuse_shared(memory: NDArray[np.uint8], place: Place, posts: Mapping[Place, Post]) -> None:
    """Raise UserInputError where memory that is being received into would be another post's, too. Several may
    send from the same."""
    to, own, direction = place
    begin, end = bounds(memory)
    for (peer, key, other), post in posts.items():
        if Direction.RECEIVE not in (direction, other):
            continue
        other_begin, other_end = post.bounds
        if max(begin, other_begin) < min(end, other_end):
            raise UserInputError(
                f"its memory overlaps that of tensor {key.tensor}, round {key.round_number}, which is posted"
                + ("" if peer == to else f" with peer {peer}"),
                where=f"peer {to}, tensor {own.tensor}, round {own.round_number}",
                hint="wait for that completion, or use other memory",
            )
