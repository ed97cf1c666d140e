"""The part that every node of a job has, whatever it exchanges: it meets the others, and ends when they end.

It takes events (`crossed`, `told`, `lost`, `check`) and keeps actions for the caller (`take_posts`,
`take_words`, `take_withdrawals`), so that the same object runs over an agent and in virtual time.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from mltswitch.errors import UserInputError
from mltswitch.training.axes import Crossing, Key, Post
from mltswitch.training.errors import JobMismatchError, NodeLostError, TrainingError, cause_of, goodbye_of
from mltswitch.training.job import Job
from mltswitch.training.links import Arrival

_NONSENSE: Final = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    UserInputError,
)
"""What reading a word raises that no node of this version says."""


class Participant(ABC):
    """A node of a job, either a rank or a server.

    Args:
        digests: of what nodes have made of the job by themselves, and must have made alike.
    """

    def __init__(self, job: Job, number: int, digests: Mapping[str, str] = MappingProxyType({})) -> None:
        self.job: Final = job
        self.number: Final = number
        self.error: TrainingError | None = None
        """Why the job is over at this node."""
        self.has_met_all = job.nodes == 1
        """Whether every other node has said that its job is this one; nothing is posted before."""
        self._fingerprints = {**job.fingerprints(), **digests}
        self._words: list[bytes] = []
        self._is_leaving = False
        self._say(job=self._fingerprints)
        self._met, self._left = set[int](), set[int]()
        """Nodes that have said so, and those that need no more of this job; what then becomes of these is no
        fault."""
        self.gone: set[int] = set()
        """Nodes without which the job goes on."""
        self._withdrawals: list[Key] = []

    # What happens

    @abstractmethod
    def crossed(self, crossing: Crossing, now_ns: int) -> None:
        """Handle a transfer that has ended, with its result or error."""

    def wants_arrivals(self, now_ns: int) -> bool:  # noqa: ARG002
        """Whether `measure` is to be called now."""
        return False

    def measure(self, so_far: Sequence[Arrival], now_ns: int) -> None:  # noqa: B027  (others have nothing to do)
        """Take what has arrived so far of pieces that are still on their way to this node."""

    @abstractmethod
    def check(self, now_ns: int) -> None:
        """End the job if a deadline has passed; to be called from time to time."""

    def told(self, peer: int, word: bytes, now_ns: int) -> None:
        """Handle a message of another node, which came from `take_words` there."""
        if self.error is not None:
            return
        try:
            said = json.loads(word)
            if peer in self.gone:
                self._hear_gone(peer, said, now_ns)
            elif "job" in said:
                self._compare(peer, said["job"])
                if "absent" in said:
                    self._greet()
            elif "leaves" in said:
                self._left.add(peer)
            else:
                self._hear(peer, said, now_ns)
        except _NONSENSE:
            if peer in self.gone:
                return
            problem = "says what no node of this version says"
            self.fail(JobMismatchError(problem, where=self.job.node_name(peer)))

    def lost(self, peer: int, reason: str, now_ns: int) -> None:
        """Handle the loss of another node: it ends the job unless both nodes are done with it, or the job
        goes on without it.

        The reason, if the lost node gave one, tells whom to blame.
        """
        if (peer in self._left and self.is_idle) or self._goes_on_without(peer, reason, now_ns):
            return
        self.fail(self._blamed(peer, reason))

    def leave(self) -> None:
        """Begin nothing more, and tell all other nodes, so that none takes this one for lost."""
        self._is_leaving = True
        self._say(leaves=True)

    @property
    def has_left_all(self) -> bool:
        """Whether no rank needs this node any more: all others have said that they leave."""
        return self._left | self.gone >= {*range(self.job.world)} - {self.number}

    def fail(self, error: TrainingError) -> None:
        """End the job at this node with an error; the first error counts."""
        if self.error is None:
            self.error = error

    # What is to be done

    @abstractmethod
    def take_posts(self) -> list[Post]:
        """Take the posts (transfers to start) for the carrier; none before all nodes have met."""

    def take_withdrawals(self) -> list[Key]:
        """Take the keys of the transfers that the carrier must withdraw."""
        withdrawals, self._withdrawals = self._withdrawals, []
        return withdrawals

    def take_words(self) -> list[bytes]:
        """Take the messages to be sent to every other node."""
        words, self._words = self._words, []
        return words

    def has_left(self, node: int) -> bool:
        """Whether a node has said that it needs nothing more."""
        return node in self._left

    @property
    def is_returning(self) -> bool:
        """Whether this is a restarted node that the others have not taken in yet."""
        return False

    @property
    def is_in(self) -> bool:
        """Whether this node takes part in the job now."""
        return self.has_met_all

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether no transfer is open but receives that no sender has begun."""

    @property
    def deaf(self) -> set[int]:
        """Nodes that get no messages."""
        return self.gone

    @property
    def is_stopping(self) -> bool:
        """Whether a fault is known, and the nodes have not all agreed yet on how to go on."""
        return False

    @property
    def goodbye(self) -> str:
        """Text that tells other nodes why the job is over here, for their `lost`; empty: it is not over."""
        return "" if self.error is None else goodbye_of(self.error)

    # Inside

    def _say(self, **said: object) -> None:
        """Have it told to all others, as `_hear` of theirs understands it."""
        self._words.append(json.dumps(said).encode())

    @abstractmethod
    def _hear(self, peer: int, said: Mapping[str, Any], now_ns: int) -> None:
        """What else another node says. Raises ValueError and its like for what no node says."""

    def _greet(self) -> None:
        """What one that has come back has missed."""
        self._say(job=self._fingerprints)
        if self._is_leaving:
            self._say(leaves=True)

    def _hear_gone(self, peer: int, said: Mapping[str, Any], now_ns: int) -> None:  # noqa: B027  (others have nothing to do)
        """What one says without which the job goes on, and which may come back. Raises as `_hear`."""

    def _goes_on_without(self, peer: int, reason: str, now_ns: int) -> bool:  # noqa: ARG002
        """Whether nobody needs a node that is gone, and it does not say that the job is over."""
        return False

    def _compare(self, peer: int, theirs: dict[str, str]) -> None:
        ours = self._fingerprints
        differing = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        if differing:
            names = "layers" if "layers" in differing else ", ".join(differing)
            here, there = self.job.node_name(self.number), self.job.node_name(peer)
            problem = f"the jobs of {here} and {there} differ in: {names}"
            self.fail(JobMismatchError(problem, where=there))
            return
        self._met.add(peer)
        self.has_met_all |= self._met | self.gone >= {*range(self.job.nodes)} - {self.number}

    def _blamed(self, peer: int, reason: str) -> TrainingError:
        """The error of a node that is gone, where it said goodbye with one; else that it is lost."""
        cause = cause_of(reason)
        if cause is None:
            return NodeLostError(reason, where=self.job.node_name(peer))
        if isinstance(cause, JobMismatchError) and peer not in self._met:
            cause.where = self.job.node_name(peer)  # of two that differ, the one that does not agree here
        return cause
