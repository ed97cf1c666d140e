"""What a workload is given, and what it makes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.network.units import LONGEST_PICOSECONDS, PICOSECONDS

After = tuple[int, ...]
"""What something waits for: numbers of flows, and `~n` for step n."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What one host sends to another one; hosts by number."""

    source: int
    destination: int
    size_bytes: int
    traffic_class: int
    start_picoseconds: int = 0
    """When it starts, if it waits for nothing."""
    label: str = ""
    """What it carries: a layer, say."""
    after: After = ()
    """It starts when all these have ended."""
    lossless: bool = False
    """Nothing may be left out, whatever the transport's loss bound: parameters, sums of gradients."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a host computes; of no time: all that it waits for has ended."""

    host: int
    picoseconds: int
    after: After
    start_picoseconds: int = 0
    """When it starts, if it waits for nothing."""


class Round(NamedTuple):
    """One training step of one host: until it has all that the next one needs."""

    job: str
    host: int
    number: int
    start_picoseconds: int
    """Start of the job's first round; later ones begin where the one before ends."""
    end: int
    """The step that ends with it."""


class Work(list[Flow]):
    """All flows of a workload, with what hosts compute between them."""

    def __init__(self, flows: Iterable[Flow] = ()) -> None:
        super().__init__(flows)
        self.steps: list[Step] = []
        self.rounds: list[Round] = []

    def send(self, flow: Flow) -> int:
        """Add a flow; its number, for those who wait for it."""
        self.append(flow)
        return len(self) - 1

    def compute(self, host: int, seconds: float, after: After) -> After:
        """Add a step; what waits for it waits for the result. One that would change nothing is left out."""
        if not seconds and len(after) < 2:
            return after
        picoseconds = min(round(min(seconds, 1e7) * PICOSECONDS), LONGEST_PICOSECONDS)
        self.steps.append(Step(host, picoseconds, after))
        return (~(len(self.steps) - 1),)

    def end_round(self, job: str, host: int, number: int, after: After) -> None:
        """A host's training step has ended when all these have."""
        self.steps.append(Step(host, 0, after))
        self.rounds.append(Round(job, host, number, 0, len(self.steps) - 1))

    def add(self, other: "Work", hosts: Sequence[int], start_picoseconds: int, job: str) -> None:
        """Take over another workload.

        Args:
            other: The workload.
            hosts: The number here of each of its hosts.
            start_picoseconds: When it begins.
            job: The name that its labels begin with.
        """
        flows, steps = len(self), len(self.steps)

        def moved(after: After) -> After:
            return tuple(each + flows if each >= 0 else each - steps for each in after)

        self += (
            replace(
                flow,
                source=hosts[flow.source],
                destination=hosts[flow.destination],
                start_picoseconds=flow.start_picoseconds + start_picoseconds,
                label=f"{job}: {flow.label}",
                after=moved(flow.after),
            )
            for flow in other
        )
        self.steps += (
            replace(
                step,
                host=hosts[step.host],
                after=moved(step.after),
                start_picoseconds=step.start_picoseconds + start_picoseconds,
            )
            for step in other.steps
        )
        self.rounds += (
            Round(job, hosts[host], number, start + start_picoseconds, end + steps)
            for _, host, number, start, end in other.rounds
        )


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a workload is, told before its flows are made."""

    flows: int
    size_bytes: int
    """Of all flows."""
    largest_bytes: int
    """Of the largest flow."""
    last_start_seconds: float
    """No flow that waits for nothing starts later, and no host computes longer."""
    steps: int = 0
    """About so many steps of hosts."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The hosts that flows are made for."""

    hosts: int
    class_of: Callable[[int, int], int]
    """(layer, number of layers) → traffic class."""
    random: np.random.Generator = field(repr=False)
    plan_layers: int | None = None
    """Layers of the model that the switches' plan is for."""
    rates_bps: tuple[int, ...] = ()
    """Rate of each host's link, in bit/s, by the host's number."""
    background_class: int = 0

    def of(self, hosts: Sequence[int], random: np.random.Generator) -> "Stage":
        """The stage of a workload that has these hosts alone, or all where there are none."""
        rates_bps = tuple(self.rates_bps[host] for host in hosts) or self.rates_bps
        return replace(self, hosts=len(hosts) or self.hosts, rates_bps=rates_bps, random=random)

    def need(self, hosts: int, what: str) -> None:
        """Raise UserInputError where the fabric has fewer hosts."""
        if hosts > self.hosts:
            raise UserInputError(
                f"{what} need {hosts} hosts, the fabric has {self.hosts}",
                where="workload",
                hint="take fewer, or a larger fabric",
            )
