"""Settings of path choice and path health; docs/agent-paths.md says what they make of faults, in figures."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mltswitch.hostagent.values import choice

MILLISECOND: Final = 1_000_000
"""In nanoseconds."""
SECOND: Final = 1_000_000_000
"""In nanoseconds."""


class Policy(StrEnum):
    """How bursts are divided among the paths in use."""

    ROUND_ROBIN = "round-robin"
    """Every path once a cycle; the order within a cycle changes, so that nothing periodic meets one path
    alone."""
    RANDOM = "random"
    """Independently at random: the paper's spraying."""
    LEAST_DELAY = "least-delay"
    """More to paths with a shorter round trip."""
    LEAST_LOSS = "least-loss"
    """More to paths that lose less."""


@dataclass(frozen=True, slots=True)
class SprayingSettings:
    """All times in nanoseconds; raises ValueError for what cannot be, UserInputError for no policy."""

    policy: Policy = Policy.ROUND_ROBIN
    """Its name will do, too."""

    # Waiting for answers
    answer_minimum_ns: int = 10 * MILLISECOND
    """Least time after which an answer is missed, and a probe asks for one; else smoothed round trip + 4 ·
    its deviation (RFC 6298). Below, the pauses of a busy host would count."""
    initial_round_trip_ns: int = 10 * MILLISECOND
    """Before the first acknowledgement."""
    loss_minimum_ns: int = 30 * MILLISECOND
    """Least time of silence, while other paths answer, after which packets under way are given up; else three
    times the time above."""
    stall_ns: int = 200 * MILLISECOND
    """The same where no path answers: the peer may be asleep (Linux lets TCP wait as long at the least)."""
    probe_maximum_ns: int = SECOND
    """Distance of probes to a path that does not answer doubles up to it."""

    # Dead paths
    dead_probes: int = 3
    """Probes without an answer, each for the time above, make a path dead if others answer all the while."""

    # Grey paths
    block_packets: int = 128
    """On each path between two comparisons: 5 % of them are 6 packets."""
    excess_loss: float = 0.02
    """A path does badly in a block when it loses so much more than the median of the others: half of 5 %,
    four times 0.5 %."""
    bad_share_good: float = 0.5
    """How often a sound path does badly, at most: it cannot lie above the median of paths like it more
    often, however losses come."""
    bad_share_grey: float = 0.9
    """How often a grey path does."""
    grey_threshold: float = 11.5
    """Of the cumulative sum of log-likelihood ratios: a sound path that does badly as often as it can at
    most is left out by mistake once in e^11.5 = 100,000 blocks at the most (Wald); one that loses like the
    others almost never."""
    settle_minimum_ns: int = 10 * MILLISECOND
    """Packets of lower classes are overtaken: what is missing counts as lost after that, or four round
    trips."""

    # Return
    return_probes: int = 3
    """Answers in a row after which a dead path is used again; doubles with every time that it is left."""
    grey_return_probes: int = 20
    """The same for a grey path: each packet of a path that loses 5 % passes, but 20 in a row only in 36 %
    of cases."""
    return_probe_distance_ns: int = 5 * MILLISECOND
    """Between probes of a path that answers, before it is used again."""
    dead_pause_ns: int = 50 * MILLISECOND
    """Before the first probe of a dead path; doubles up to `probe_maximum_ns` while it does not answer."""
    grey_pause_ns: int = 200 * MILLISECOND
    """Before the first probe of a grey path; doubles with every time that it is left, up to the next."""
    grey_pause_maximum_ns: int = 5 * SECOND
    forget_ns: int = 60 * SECOND
    """A path that was in use for so long is treated as if it had never been left."""
    probation_share: float = 0.25
    """Of a full share: what a path gets that has returned, until it has proved itself."""

    # Weights
    delay_floor_ns: int = 50_000
    """Differences of delay below it hardly matter: a receiver's batches alone make them."""
    loss_scale: float = 0.01
    """A path that loses so much more than the best gets half of its share."""
    least_share: float = 0.05
    """Of the best path's share: what any path in use gets, so that it is seen to get better."""
    weights_ns: int = 2 * MILLISECOND
    """Weights are computed anew after it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", choice("policy", self.policy, Policy))
        positive = (
            "answer_minimum_ns initial_round_trip_ns loss_minimum_ns stall_ns probe_maximum_ns dead_probes "
            "block_packets grey_threshold settle_minimum_ns return_probes "
            "grey_return_probes return_probe_distance_ns dead_pause_ns grey_pause_ns grey_pause_maximum_ns "
            "forget_ns delay_floor_ns loss_scale weights_ns"
        )
        for name in positive.split():
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected more than 0")
        for name in ("excess_loss", "bad_share_good", "bad_share_grey", "probation_share", "least_share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share between 0 and 1")
        if self.bad_share_good >= self.bad_share_grey:
            raise ValueError("bad_share_good is not below bad_share_grey")
