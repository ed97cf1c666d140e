"""Whether a path is in use: the table of its states, and the damping of paths that come and go.

state      | what happens                             | then
-----------+------------------------------------------+-----------
active     | it is dead or grey                       | left
probation  | it is dead or grey                       | left
probation  | no evidence against it is left           | active
left       | enough probes in a row were answered     | probation
left       | the last path in use is dead, this isn't | probation
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mltswitch.hostagent.spraying.settings import SprayingSettings

MAXIMUM_DOUBLINGS: Final = 5
"""Of the answers that a path must give in a row before it is used again."""


class State(StrEnum):
    """Of a path."""

    ACTIVE = "active"
    PROBATION = "probation"
    """In use, with a part of its share."""
    LEFT = "left"
    """Not in use; probed."""


class Reason(StrEnum):
    """Why a path's state changed."""

    DEAD = "dead"
    """Nothing came back while other paths answered."""
    GREY = "grey"
    """It lost more than the others."""
    ANSWERS = "answers"
    """Its probes were answered."""
    NEEDED = "needed"
    """The last path in use is dead, and this one answers."""
    PROVED = "proved"
    """It lost no more than the others."""


TRANSITIONS: Final = {
    (State.ACTIVE, Reason.DEAD): State.LEFT,
    (State.ACTIVE, Reason.GREY): State.LEFT,
    (State.PROBATION, Reason.DEAD): State.LEFT,
    (State.PROBATION, Reason.GREY): State.LEFT,
    (State.PROBATION, Reason.PROVED): State.ACTIVE,
    (State.LEFT, Reason.ANSWERS): State.PROBATION,
    (State.LEFT, Reason.NEEDED): State.PROBATION,
}


@dataclass(frozen=True, slots=True)
class PathEvent:
    """A path's state changed."""

    path: int
    state: State
    """The new one."""
    reason: Reason
    now_ns: int


@dataclass(frozen=True, slots=True)
class PathCondition:
    """A path as its sender sees it, by all traffic of the connection."""

    path: int
    state: State
    round_trip_seconds: float | None
    """Smoothed, without the time that the peer held acknowledgements; None: not measured since it was
    left."""
    least_round_trip_seconds: float | None
    loss_share: float | None
    """Of the last blocks of packets; None: too few were sent."""


class Standing:
    """Of one path."""

    def __init__(self, settings: SprayingSettings) -> None:
        self._settings = settings
        self._is_grey = False
        self._recent = 0
        """Times that it was left without `forget_ns` of use in between."""
        self._returned_ns: int | None = None
        self._pause_ns = 0
        self._answers = 0
        self._probe_ns: int | None = None
        """When the probe left that is not answered yet."""
        self.state = State.ACTIVE
        self.next_probe_ns = 0
        """Of a path that was left."""
        self.times_left = 0
        self.times_returned = 0

    @property
    def is_in_use(self) -> bool:
        """Bursts go there."""
        return self.state is not State.LEFT

    @property
    def answers_needed(self) -> int:
        """In a row."""
        least = self._settings.grey_return_probes if self._is_grey else self._settings.return_probes
        return least << min(self._recent - 1, MAXIMUM_DOUBLINGS)

    def change(self, reason: Reason, now_ns: int) -> State:
        """The next state by the table; raises KeyError where it has none."""
        self.state = TRANSITIONS[self.state, reason]
        if self.state is State.LEFT:
            self._leave(now_ns, is_grey=reason is Reason.GREY)
        elif self.state is State.PROBATION:
            self._returned_ns = now_ns
            self.times_returned += 1
        return self.state

    def probe(self, now_ns: int, answer_ns: int) -> None:
        """A probe leaves now on a path that was left; an answer is expected within `answer_ns`."""
        if self._probe_ns is not None:
            self._answers = 0
            if not self._is_grey:
                self._pause_ns = min(2 * self._pause_ns, self._settings.probe_maximum_ns)
        self._probe_ns = now_ns
        # Once a path answers its probes follow closely; the pause is for those that do not.
        self.next_probe_ns = now_ns + (answer_ns if self._answers else max(self._pause_ns, answer_ns))

    def answered(self, echoed_ns: int, now_ns: int) -> bool:
        """A path that was left has answered; whether it has done so often enough to be used again."""
        if self._probe_ns is None or echoed_ns < self._probe_ns:
            return False
        self._probe_ns = None
        self._answers += 1
        self.next_probe_ns = now_ns + self._settings.return_probe_distance_ns
        return self._answers >= self.answers_needed

    def _leave(self, now_ns: int, *, is_grey: bool) -> None:
        settings = self._settings
        if self._returned_ns is None or now_ns - self._returned_ns >= settings.forget_ns:
            self._recent = 0
        self._is_grey = is_grey
        pause_ns, most_ns = (
            (settings.grey_pause_ns, settings.grey_pause_maximum_ns)
            if is_grey
            else (settings.dead_pause_ns, settings.probe_maximum_ns)
        )
        # Shifts of a large number of doublings would make huge numbers of nothing.
        self._pause_ns = min(pause_ns << min(self._recent, 32), max(most_ns, pause_ns))
        self._recent += 1
        self._answers, self._probe_ns = 0, None
        self.next_probe_ns = now_ns + self._pause_ns
        self.times_left += 1
