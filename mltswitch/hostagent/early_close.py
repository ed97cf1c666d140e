"""How long a receive waits for all of a tensor, learnt from earlier rounds (LTP, section III-B).

A gather is one round of receives; the tensors of one peer in it are a link. Until a threshold LT of the link
all of it is waited for; from then on a percentage of its bytes is enough; after the deadline (the longest LT
and the slack) each tensor's own loss bound is. The data plane keeps these times; this module computes them.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from pydantic import Field, ValidationError

from mltswitch.documents import plain_words
from mltswitch.errors import UserInputError
from mltswitch.hostagent.transport.datagram_settings import DatagramSettings
from mltswitch.hostagent.transport.records import ClosingRule, Receive, TransferStatistics
from mltswitch.units import NANOSECONDS

ROUNDS_KEPT: Final = 32
MOST_LINKS_KEPT: Final = 4096
"""Number of links, by peer and size, of which a channel remembers past rounds."""
QUANTILE: Final = 0.9
REGISTERED: Final = -1
"""LT left to the data plane (MLT_LT_REGISTERED): 1.5 round trips and the bytes at the bottleneck's rate."""
LONGEST_SLACK_SECONDS: Final = 86_400.0
Estimator = Literal["quantile", "paper"]
_numbers: Final = itertools.count(1)


class EarlyCloseSettings(DatagramSettings):
    """The section `ltp` of an agent's file: when receives close early."""

    most_delay_ns: ClassVar[int] = 500_000

    percentage: float = Field(default=0.8, gt=0, le=1, allow_inf_nan=False)
    """Share of a link's bytes that is enough from its LT to the deadline. Posts without a gather take 1
    minus their loss bound if that is more."""
    slack_seconds: float = Field(default=0.03, ge=0, le=LONGEST_SLACK_SECONDS, allow_inf_nan=False)
    """Time from the longest LT to the deadline: 0.03 s in a data centre, 0.1 s over a WAN (LTP, III-B)."""
    estimator: Estimator = "quantile"
    """How LT is estimated. `quantile`: what nine of ten rounds needed for all bytes, at their rate; `paper`:
    the least time in which all bytes arrived in this epoch."""
    rounds_per_epoch: int = Field(default=100, ge=1, le=1 << 30, strict=True)
    """Number of rounds after which the estimator `paper` begins anew."""


@dataclass(slots=True)
class _Rounds:
    """What one link's rounds of one size took."""

    count: int = 0
    needed_ns: deque[float] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))
    """Of each: what everything would have taken at the rate of what came."""
    least_ns: int | None = None
    """Of rounds of this epoch in which everything came."""


def by_quantile(rounds: _Rounds, settings: EarlyCloseSettings) -> int:
    """Estimate LT in ns from the times of past rounds; 0: the first round waits for all.

    After fewer rounds than the quantile needs, LT is the longest time plus the slack.
    """
    count = len(rounds.needed_ns)
    if not count:
        return 0
    rank = ceil(QUANTILE * (count + 1))
    if rank > count:
        return round(max(rounds.needed_ns) + settings.slack_seconds * NANOSECONDS)
    return round(sorted(rounds.needed_ns)[rank - 1])


def by_paper(rounds: _Rounds, settings: EarlyCloseSettings) -> int:
    """Estimate LT in ns from past rounds; REGISTERED in an epoch until one of its rounds was complete."""
    if rounds.count % settings.rounds_per_epoch == 0:
        rounds.least_ns = None
    return REGISTERED if rounds.least_ns is None else rounds.least_ns


ESTIMATORS: Final[Mapping[str, Callable[[_Rounds, EarlyCloseSettings], int]]] = MappingProxyType(
    {"quantile": by_quantile, "paper": by_paper}
)


class History:
    """The times that past rounds of one channel took, by peer and number of bytes."""

    def __init__(self) -> None:
        self._links: dict[tuple[str, int], _Rounds] = {}
        self._lock = threading.Lock()

    def lt_ns(self, peer: str, size_bytes: int, settings: EarlyCloseSettings) -> int:
        """LT of a link in ns: how long all of its bytes are waited for; see `REGISTERED`."""
        with self._lock:
            known = self._links.get((peer, size_bytes))
            return ESTIMATORS[settings.estimator](known or _Rounds(), settings)

    def learn(self, peer: str, size_bytes: int, elapsed_ns: int, share: float) -> None:
        """Record a finished round of a link: which share of its bytes came, in which time."""
        with self._lock:
            rounds = self._links.pop((peer, size_bytes), None) or _Rounds()
            self._links[peer, size_bytes] = rounds
            if len(self._links) > MOST_LINKS_KEPT:
                del self._links[next(iter(self._links))]
            rounds.count += 1
            if share > 0:
                rounds.needed_ns.append(elapsed_ns / share)
            if share >= 1 and (rounds.least_ns is None or elapsed_ns < rounds.least_ns):
                rounds.least_ns = elapsed_ns


@dataclass(slots=True)
class _Link:
    """One peer's posts in a gather."""

    size_bytes: int = 0
    open: int = 0
    arrived_bytes: float = 0.0
    first_ns: int = 0
    ended_ns: int = 0
    is_whole: bool = True
    has_failed: bool = False


class Gather:
    """A round of receives from several peers that end together: pass it to each of them as `gather`.

    Made by `Channel.gather`, for receives of that channel.
    """

    def __init__(self, history: History, settings: EarlyCloseSettings, *, is_alone: bool = False) -> None:
        self._history, self._settings = history, settings
        self._number = 0 if is_alone else next(_numbers)
        self._links: dict[str, _Link] = {}
        self._lock = threading.Lock()
        self._round_number: int | None = None
        self._posted: set[tuple[str, int]] = set()
        """Peer and tensor of each receive that it has had."""

    def belongs_to(self, history: History) -> bool:
        """Whether the gather is of the channel with this history."""
        return self._history is history

    def rule(self, peer: str, receive: Receive) -> ClosingRule:
        """Add a receive and return its closing rule; raises UserInputError. Called by the channel."""
        loss_bound, post = receive.loss_bound, (peer, receive.tensor)
        settings, percentage = self._settings, self._settings.percentage
        if self._number == 0:
            percentage = max(percentage, 1 - loss_bound)
        elif percentage < 1 - loss_bound:
            raise UserInputError(
                f"{percentage:g} is below 1 - loss_bound = {1 - loss_bound:g}",
                where="percentage",
                expected=f"{1 - loss_bound:g} to 1",
            )
        with self._lock:
            if self._round_number not in {None, receive.round_number}:
                raise _used(f"serves round {self._round_number}, and this is {receive.round_number}")
            if post in self._posted:
                raise _used(f"serves round {self._round_number}, and has tensor {receive.tensor} already")
            self._round_number = receive.round_number
            self._posted.add(post)
            link = self._links.setdefault(peer, _Link())
            link.size_bytes += len(receive.memory.data)
            link.open += 1
            size_bytes = link.size_bytes
        lt_ns = self._history.lt_ns(peer, size_bytes, settings)
        return ClosingRule(self._number, percentage, lt_ns, round(settings.slack_seconds * NANOSECONDS))

    def withdraw(self, peer: str, receive: Receive) -> None:
        """Take back a receive that never began, so that it may be posted again. Called by the channel."""
        with self._lock:
            link = self._links[peer]
            link.size_bytes -= len(receive.memory.data)
            link.open -= 1
            self._posted.discard((peer, receive.tensor))
            if not self._posted:
                self._round_number = None

    def left(self, peer: str, size_bytes: int) -> None:
        """Remove a receive that was cancelled before any of it came. Called by the channel."""
        with self._lock:
            link = self._links[peer]
            link.open -= 1
            link.size_bytes -= size_bytes
            self._learn(peer, link)

    def ended(self, peer: str, statistics: TransferStatistics | None) -> None:
        """Record the end of a receive; statistics are None if it failed. Called by the channel."""
        with self._lock:
            link = self._links[peer]
            link.open -= 1
            if statistics is None:
                link.has_failed = True
            else:
                is_whole = statistics.packets_received == statistics.packets
                link.is_whole &= is_whole
                link.arrived_bytes += statistics.size_bytes * (1 - statistics.missing_share)
                if statistics.first_ns:
                    link.first_ns = min(link.first_ns or statistics.first_ns, statistics.first_ns)
                link.ended_ns = max(link.ended_ns, statistics.last_ns if is_whole else statistics.ended_ns)
            self._learn(peer, link)

    def _learn(self, peer: str, link: _Link) -> None:
        if link.open or link.has_failed or not link.first_ns:
            return
        share = 1.0 if link.is_whole else link.arrived_bytes / link.size_bytes
        self._history.learn(peer, link.size_bytes, max(1, link.ended_ns - link.first_ns), share)


def _used(problem: str) -> UserInputError:
    return UserInputError(problem, where="gather", hint="make one for each round")


def changed(settings: EarlyCloseSettings, changes: Mapping[str, Any]) -> EarlyCloseSettings:
    """The settings with a gather's own values, except those that are None; raises UserInputError."""
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return EarlyCloseSettings.model_validate({**settings.model_dump(), **given}, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where, value = str(first["loc"][0]), first["input"]
        raise UserInputError(f"{value!r:.60}: {plain_words(first)}", where=where) from None
