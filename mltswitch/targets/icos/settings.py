"""The QoS settings of a FASTPATH switch and of one port, and what they mean as state.

A packet gets its queue on the port where it arrives: by its DSCP and one map of the whole switch where the
port trusts ip-dscp; else by the port's default 802.1p priority and the port's own dot1p-mapping. Packets that
are not IP take the second way on every port, so priority 0 has to lead to background on all of them. A
DiffServ policy on the port comes before either.

A guaranteed queue is weighted. MIB says that a minimum bandwidth is ignored where the queue is strict, UCG
that it overrides strict priority. Weighted queues are served after all strict ones (UCG), so background, the
only one of the plan, stays last, and both documents agree on what it gets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mltswitch.capabilities import PortShare, Unlimited
from mltswitch.targets.icos.capabilities import COLOURS, QUEUE_COUNT
from mltswitch.targets.icos.policy import OwnPolicies, attach_line
from mltswitch.targets.remap import POLICIES, code_points
from mltswitch.targets.state import PortState, QueueState
from mltswitch.wire.tos import DSCP_COUNT

TRUSTED: Final = "ip-dscp"
UNTRUSTED: Final = "untrusted"
INSTANTANEOUS: Final = 0
CERTAIN: Final = 100


@dataclass(frozen=True, slots=True)
class DropCurve:
    """RED of one queue: green, yellow, red TCP, and not TCP; thresholds and probabilities in percent."""

    minimum: tuple[int, ...] = (40, 30, 20, 100)
    maximum: tuple[int, ...] = (100, 90, 80, 100)
    probability: tuple[int, ...] = (10,) * COLOURS
    marks: bool = False

    @property
    def percent(self) -> int | None:
        """S, where this is a curve as plans have it: one certain step for all colours, with marking."""
        step = self.minimum[0]
        planned = step_at(step)
        return step if self == planned and 0 < step <= CERTAIN else None

    def __str__(self) -> str:
        words = (
            f"min-thresh {_row(self.minimum)} max-thresh {_row(self.maximum)} "
            f"drop-prob-scale {_row(self.probability)}"
        )
        return f"{words} ecn" if self.marks else words


def step_at(percent: int) -> DropCurve:
    """At this percentage every packet is marked or dropped, below it none."""
    return DropCurve((percent,) * COLOURS, (percent,) * COLOURS, (CERTAIN,) * COLOURS, marks=True)


def _row(values: Sequence[int]) -> str:
    return " ".join(map(str, values))


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """One queue of one port; the defaults only stand in for what no line has set yet."""

    strict: bool = False
    minimum_percent: int = 0
    """Of the port's rate, guaranteed; 0: nothing."""
    maximum_percent: int = 0
    """Of the port's rate, as far as shown; 0: no bound."""
    random_detect: bool = False
    curve: DropCurve = DropCurve()


@dataclass(frozen=True, slots=True)
class PortSettings:
    """One port; the defaults only stand in for what no line has set yet, a switch's own are read from it."""

    trust: str = "dot1p"
    priorities: tuple[int, ...] = (1, 0, 0, 1, 2, 2, 3, 3)
    """802.1p priority → queue."""
    default_priority: int = 0
    """Of packets that arrive without a tag, and of all on an untrusted port."""
    shaping: str = ""
    weighting_exponent: int = 9
    queues: tuple[QueueSettings, ...] = (QueueSettings(),) * QUEUE_COUNT
    policy: str = ""
    """Name in `service-policy in`."""
    own_map: tuple[str, ...] = ()
    """`classofservice ip-dscp-mapping` lines of this port alone, which some FASTPATHs take."""


DEFAULT_DSCP_MAP: Final = tuple(
    1 if dscp < 8 else 0 if dscp < 24 else 1 if dscp < 32 else 2 if dscp < 48 else 3
    for dscp in range(DSCP_COUNT)
)
"""DSCP → queue where no line says: a rendered file says it for all code points."""


def port_state(
    name: str,
    settings: PortSettings,
    dscp_map: Sequence[int],
    policies: OwnPolicies,
    background_dscp: int,
    queues: Sequence[int],
    step_bytes: int,
) -> PortState:
    """What the settings mean for `queues`; what no plan asks for is in `unexpected`, in FASTPATH's words.

    A percent is `step_bytes`.
    """
    entrance = policies.entrance(settings.policy)
    unexpected = [*_unexpected_classification(settings, queues[-1]), *settings.own_map]
    if settings.shaping:
        unexpected.append(f"traffic-shape {settings.shaping}")
    if settings.weighting_exponent != INSTANTANEOUS:
        unexpected.append(f"random-detect exponential-weighting-constant {settings.weighting_exponent}")
    policy = attach_line(settings.policy)
    if entrance is not None:
        dscp_map = entrance.applied(dscp_map)
        unexpected += (f"{policy}, which {fault}" for fault in entrance.faults(queues[-1], background_dscp))
    elif settings.policy:
        unexpected.append(
            policy + (", whose lines are not the plan's" if settings.policy in POLICIES else "")
        )
    states: list[QueueState] = []
    dscps = code_points(dscp_map)
    for number in queues:
        queue = settings.queues[number]
        unexpected += _scheduling_faults(number, queue)
        threshold = None
        if queue.random_detect:
            percent = queue.curve.percent
            if percent is None:
                unexpected.append(f"random-detect queue-parms {number} {queue.curve}")
            else:
                threshold = percent * step_bytes
        minimum = PortShare(queue.minimum_percent) if queue.minimum_percent else None
        states.append(QueueState(number, dscps.get(number, ()), threshold, Unlimited(), minimum))
    rewritten = entrance.rewritten if entrance else ()
    return PortState(name, settings.trust == TRUSTED, None, tuple(states), tuple(unexpected), rewritten)


def _scheduling_faults(number: int, queue: QueueSettings) -> list[str]:
    faults: list[str] = []
    if queue.strict and queue.minimum_percent:
        faults.append(f"cos-queue strict {number}, where its minimum bandwidth may not count")
    if not queue.strict and not queue.minimum_percent:
        faults.append(f"no cos-queue strict {number}")
    if queue.maximum_percent:
        faults.append(f"bandwidth maximum {queue.maximum_percent} % of queue {number}")
    return faults


def _unexpected_classification(settings: PortSettings, background: int) -> list[str]:
    found: list[str] = []
    if settings.trust not in {TRUSTED, UNTRUSTED}:
        found.append(f"classofservice trust {settings.trust}")
    if settings.default_priority:
        found.append(f"vlan priority {settings.default_priority}")
    if settings.priorities[0] != background:
        found.append(f"classofservice dot1p-mapping 0 {settings.priorities[0]}")
    return found
