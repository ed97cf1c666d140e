"""What a bench has found, and the figures that follow from it. All of them are measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean
from typing import Any, Final

from mltswitch.units import BITS_PER_BYTE

MSS_BYTES: Final = 1448
MATHIS: Final = 1.22
"""Mathis et al., CCR 1997: what TCP carries at random loss, times RTT · √loss / MSS."""
GRADIENT_DSCP: Final = (34, 26)
SMOOTHED_OVER: Final = 3
"""Evaluations of which the mean must reach the target; one alone crosses it by luck."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network, and how gloo uses it."""

    name: str
    rate_bps: int
    """The rate of each port and each worker's line."""
    round_trip_seconds: float
    loss: float
    """Random, of any packet."""
    buffer_bytes: int
    """The buffer of each port, shared by its queues."""
    is_incast: bool = False
    """gloo exchanges as parameter servers do, all to all at once, in place of its ring."""
    has_plan: bool = True
    """Ports have a plan's queues; without, one drop-tail queue for all that the buffer can hold."""
    pause_seconds: float = 0.0
    """Before each backward pass, as if that long were computed."""
    gradient_dscp: tuple[int, ...] = GRADIENT_DSCP
    """The code points of the plan's gradient classes, front layers first."""
    background: float = 0.0
    """What the rivals of one leaf send to the other in all, either way, over the rate of a port."""
    background_divisor: int = 1
    """Flows of a web search are so many times smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """How one method exchanges gradients."""

    method: str
    """As a worker's `open` takes it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `MltState`; they go before those of the bench's settings."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `AgentConfig`, likewise."""
    ddp: Mapping[str, Any] = field(default_factory=dict)
    """Options of DistributedDataParallel, where the method has it."""
    is_sprayed: bool = True
    """Agents use all addresses of their hosts, one a path; otherwise the routed one alone."""


@dataclass(slots=True)
class Method:
    """How one method trained in one case."""

    name: str
    step_seconds: list[float] = field(default_factory=list)
    """The seconds of each step, the mean of the workers."""
    accuracies: list[tuple[float, float]] = field(default_factory=list)
    """Seconds of training, and accuracy after them."""
    cpu_seconds: float = 0.0
    """Processor time of all workers, during the steps."""
    switch_cpu_seconds: float = 0.0
    cpu_load: list[float] = field(default_factory=list)
    """Share of the machine's processors that was busy, by whatever process; of each block of steps."""
    packets: int = 0
    """That came to the switch."""
    lost_at_random: int = 0
    dropped: int = 0
    """By full queues, and unimportant ones above S."""
    core_packets: int = 0
    """That came to the ports between switches, where there are several."""
    core_dropped: int = 0
    core_bytes: int = 0
    """That passed them, each port counted."""
    missing_share: tuple[float, ...] = ()
    """By gradient class: elements that sums were without, of those that crossed the network. It is empty for
    gloo, and where servers that are no workers make the sums: then nobody counts."""
    delivered_share: float = 1.0
    """The share that arrived of all elements that had to reach a sum through the network."""
    later_shares: list[float] = field(default_factory=list)
    """The share of the model's elements whose sums came after the last step of each block."""
    ranks_agree: bool = True
    """Whether all workers had the same parameters, bit by bit, in the end."""
    digest: str = ""
    """A digest of rank 0's parameters in the end."""

    @property
    def core_loss_share(self) -> float:
        """The share of the packets that came to the ports between switches and did not fit."""
        return self.core_dropped / max(self.core_packets, 1)

    @property
    def final_accuracy(self) -> float:
        """Mean of the last evaluations."""
        return fmean(accuracy for _, accuracy in self.accuracies[-SMOOTHED_OVER:])

    def seconds_to(self, target: float) -> float | None:
        """Training time until the accuracy reaches a target; None: not within the run."""
        for number in range(SMOOTHED_OVER, len(self.accuracies) + 1):
            window = self.accuracies[number - SMOOTHED_OVER : number]
            if fmean(accuracy for _, accuracy in window) >= target:
                return window[-1][0]
        return None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case; methods by name, `compute` among them: the same steps without exchange."""

    case: Case
    workers: int
    elements: int
    target: float
    methods: Mapping[str, Method]

    @property
    def compute_seconds(self) -> float:
        """Mean step that exchanges nothing."""
        return fmean(self.methods["compute"].step_seconds)

    def communication_seconds(self, method: str) -> float:
        """Mean step less the mean step that exchanges nothing."""
        return fmean(self.methods[method].step_seconds) - self.compute_seconds

    @property
    def volume_bits(self) -> float:
        """That a worker must send, and receive, a step: 2 (k - 1) / k of its gradients."""
        return 2 * (self.workers - 1) / self.workers * self.elements * 4 * BITS_PER_BYTE

    @property
    def limit_seconds(self) -> float:
        """What the link alone takes for that volume."""
        return self.volume_bits / self.case.rate_bps

    def goodput_bps(self, method: str) -> float:
        """That volume over the communication time, as nccl-tests' bus bandwidth; at most the link's rate."""
        return self.volume_bits / self.communication_seconds(method)

    @property
    def tcp_limit_bps(self) -> float | None:
        """What one TCP connection carries at this loss and round trip (Mathis et al.); None: no loss."""
        case = self.case
        if not case.loss:
            return None
        return MATHIS * MSS_BYTES * BITS_PER_BYTE / (case.round_trip_seconds * sqrt(case.loss))

    def document(self) -> dict[str, Any]:
        """Plain data for JSON."""
        case = self.case
        return {
            "case": case.name,
            "rate_bps": case.rate_bps,
            "round_trip_seconds": case.round_trip_seconds,
            "loss": case.loss,
            "buffer_bytes": case.buffer_bytes,
            "incast": case.is_incast,
            "background": case.background,
            "limit_seconds": self.limit_seconds,
            "tcp_limit_bps": self.tcp_limit_bps,
            "compute_seconds": self.compute_seconds,
            "methods": [self._document(name) for name in self.methods if name != "compute"],
        }

    def _document(self, name: str) -> dict[str, Any]:
        method = self.methods[name]
        return {
            "method": name,
            "step_seconds": fmean(method.step_seconds),
            "communication_seconds": self.communication_seconds(name),
            "goodput_bps": self.goodput_bps(name),
            "final_accuracy": method.final_accuracy,
            "seconds_to_accuracy": method.seconds_to(self.target),
            "missing_share_by_class": method.missing_share,
            "later_share": method.later_shares[-1],
            "packets_lost_at_random": method.lost_at_random,
            "packets_dropped": method.dropped,
            "packets": method.packets,
            "core_loss_share": method.core_loss_share,
            "cpu_load": fmean(method.cpu_load),
            "worker_cpu_seconds_per_step": method.cpu_seconds / len(method.step_seconds),
            "switch_cpu_seconds_per_step": method.switch_cpu_seconds / len(method.step_seconds),
            "ranks_agree": method.ranks_agree,
            "steps": method.step_seconds,
            "accuracies": method.accuracies,
        }
