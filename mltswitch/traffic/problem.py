"""A queueing problem in a file: one port, its queues' traffic and thresholds, without a plan."""

from math import fsum
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from mltswitch.documents import StrictDocument, load_document
from mltswitch.errors import UserInputError
from mltswitch.queueing import Arrivals, Importance, Port, QueueThresholds, QueueTraffic, check_problem
from mltswitch.traffic.arrivals import (
    ArrivalsInFile,
    BatchArrivals,
    BurstPackets,
    Number,
    Packets,
    RateRatio,
    Share,
    taken,
)

MOST_LOAD: Final = 1000.0
"""Largest load in packets per packet time; a larger number is probably a rate without its unit."""
SHARE_TOLERANCE: Final = 1e-6
"""Tolerance within which shares must sum to 1, so that seven digits are enough."""

Load = Annotated[Number, Field(ge=0, le=MOST_LOAD)]


class _Pattern(StrictDocument):
    """How packets come; the problem gives it for all queues, and each queue may give its own."""

    burst_packets: BurstPackets | None = None
    distribution: Literal["fixed", "geometric"] | None = None
    source_rate_ratio: RateRatio | None = None
    """Rate of the senders' links over that of the port; None: a burst arrives at once."""
    importance: Importance | None = None
    arrivals: ArrivalsInFile | None = None
    """Another process than bursts at exponential gaps: incast epochs, or a fitted trace."""

    @model_validator(mode="after")
    def _one_process(self) -> Self:
        if self.arrivals is None:
            return self
        for name in ("burst_packets", "distribution", "source_rate_ratio"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} stands beside arrivals, which says it")
        return self

    def process(self) -> Arrivals:
        """The process that the loss models take; without any of the fields: single packets."""
        given = self.arrivals or BatchArrivals.model_construct(
            burst_packets=self.burst_packets or 1,
            distribution=self.distribution or "fixed",
            source_rate_ratio=self.source_rate_ratio,
        )
        return given.to_queueing()

    def or_else(self, other: "_Pattern") -> "_Pattern":
        """This pattern, with what it leaves open taken from the other one."""
        names = tuple(_Pattern.model_fields)
        own = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        taken = {name: getattr(other, name) for name in names}
        if "arrivals" in own:
            taken = {"importance": other.importance}
        elif own.keys() - {"importance"}:
            taken["arrivals"] = None
        return _Pattern.model_construct(**taken | own)


class ProblemQueue(_Pattern):
    """One queue: its part of the load, or a load of its own, and its thresholds."""

    share: Share | None = None
    """This queue's part of the port's load; None: `load` is given instead."""
    load: Load | None = None
    """The queue's load in packets per packet time; None: `share` is given instead."""
    unimportant: Share = 0.0
    """Share of the queue's packets that are unimportant, that is Not-ECT."""
    ecn_threshold_packets: Packets | None = None
    """The ECN threshold S in packets, from where unimportant packets are dropped and others marked; None:
    neither.
    """
    limit_packets: Packets
    """The limit L in packets: from this length on every packet is dropped."""
    ecn_maximum_packets: Packets | None = None
    mark_probability: Annotated[Share, Field(gt=0)] = 1.0
    average_weight: Annotated[Share, Field(gt=0)] = 1.0
    alpha: Annotated[Number, Field(gt=0)] | None = None

    def thresholds(self) -> QueueThresholds:
        """The queue's thresholds as the loss models take them."""
        return taken(QueueThresholds, self)


class Problem(_Pattern):
    """One port and its queues, highest priority first."""

    load: Load | None = None
    """Load of the whole port in packets per packet time; None: each queue has its own."""
    queues: tuple[ProblemQueue, ...] = Field(min_length=1, max_length=64)
    count_in_service: Annotated[bool, Field(strict=True)] = False
    """Whether thresholds count the packet in transmission as part of its queue; else only waiting packets."""
    buffer_packets: Annotated[Number, Field(gt=0, le=10**9)] | None = None
    weights: tuple[Annotated[Number, Field(ge=0)], ...] | None = None
    """Weight of each queue, 0 for strict priority; weighted queues share what the strict ones leave. None:
    all strict."""
    service: Literal["fixed", "exponential"] = "fixed"

    def port(self) -> Port:
        """The port as the loss models take it."""
        return taken(Port, self)

    def traffic(self) -> tuple[QueueTraffic, ...]:
        """The traffic of each queue; raises UserInputError where shares and loads do not go together."""
        loads = self._loads()
        patterns = [queue.or_else(self) for queue in self.queues]
        return tuple(
            QueueTraffic(
                load=load,
                unimportant_share=queue.unimportant,
                arrivals=pattern.process(),
                importance=pattern.importance or "packet",
            )
            for queue, pattern, load in zip(self.queues, patterns, loads, strict=True)
        )

    def _loads(self) -> list[float]:
        loads = []
        for index, queue in enumerate(self.queues):
            where = f"queues[{index}].share"
            if queue.share is not None and queue.load is not None:
                raise UserInputError(
                    "stands beside the queue's own load", where=where, expected="one of them"
                )
            if queue.load is not None:
                loads.append(queue.load)
            elif queue.share is None:
                raise UserInputError("is missing", where=where, expected="a share of the load, or a load")
            elif self.load is None:
                raise UserInputError("is missing", where="load", expected="the load that the shares divide")
            else:
                loads.append(queue.share * self.load)
        total = fsum(queue.share or 0 for queue in self.queues)
        if total > 1 + SHARE_TOLERANCE:
            raise UserInputError(
                f"the shares sum to {total:g}",
                where=f"queues[{len(self.queues) - 1}].share",
                expected="at most 1",
            )
        return loads


def load_problem(path: Path) -> tuple[Port, tuple[QueueTraffic, ...], tuple[QueueThresholds, ...]]:
    """The problem in a JSON or YAML file, as `mltswitch.queueing.predict` takes it.

    Where shares sum to less than 1, the rest of the load is left out.

    Raises:
        UserInputError: names file and field, such as `problem.json: queues[2].limit_packets`.
    """
    problem = load_document(path, Problem)
    try:
        port, traffic = problem.port(), problem.traffic()
        thresholds = tuple(queue.thresholds() for queue in problem.queues)
        check_problem(port, traffic, thresholds)
    except UserInputError as error:
        error.where = f"{path}: {error.where}"
        raise
    return port, traffic, thresholds
