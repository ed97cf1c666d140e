"""The results of a benchmark, all measured, and figures that follow from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean
from typing import Any, Final

from mltswitch.units import BITS_PER_BYTE

MSS_BYTES: Final = 1448
MATHIS: Final = 1.22
"""Constant of Mathis et al., CCR 1997: TCP's rate at random loss, times RTT · √loss / MSS."""
GRADIENT_DSCP: Final = (34, 26)
SMOOTHED_OVER: Final = 3
"""Number of evaluations whose mean must reach the target, since one alone crosses it by luck."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network to measure in, and how gloo uses it."""

    name: str
    rate_bps: int
    """The rate of each port and each worker's line."""
    round_trip_seconds: float
    loss: float
    """Probability that the network drops any packet at random."""
    buffer_bytes: int
    """The buffer of each port, shared by its queues."""
    is_incast: bool = False
    """Whether gloo exchanges as parameter servers do, all to all at once, instead of by its ring."""
    has_plan: bool = True
    """Whether ports have a plan's queues; else one drop-tail queue that holds the whole buffer."""
    pause_seconds: float = 0.0
    """Pause before each backward pass, which stands for that much computing."""
    gradient_dscp: tuple[int, ...] = GRADIENT_DSCP
    """DSCPs of the plan's gradient classes, front layers first."""
    background: float = 0.0
    """Load of the background flows between the two leaves, each way, over the rate of a port."""
    background_divisor: int = 1
    """Divisor of the sizes of background flows, which are those of a web search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """How one method exchanges gradients."""

    method: str
    """The name of the method as a worker's `open` takes it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `MltState` that override those of the benchmark's settings."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `AgentConfig` that override those of the benchmark's settings."""
    ddp: Mapping[str, Any] = field(default_factory=dict)
    """Options of DistributedDataParallel, where the method has it."""
    is_sprayed: bool = True
    """Whether agents use all addresses of their hosts, one for each path; otherwise only the routed one."""


@dataclass(slots=True)
class Method:
    """Measurements of one method in one case."""

    name: str
    step_seconds: list[float] = field(default_factory=list)
    """Duration of each step, the mean of the workers."""
    accuracies: list[tuple[float, float]] = field(default_factory=list)
    """Pairs of seconds of training and the accuracy reached after them."""
    cpu_seconds: float = 0.0
    """Processor time of all workers, during the steps."""
    switch_cpu_seconds: float = 0.0
    cpu_load: list[float] = field(default_factory=list)
    """Share of the machine's processors that any process kept busy, for each block of steps."""
    packets: int = 0
    """Number of packets that came to the switch."""
    lost_at_random: int = 0
    dropped: int = 0
    """Number of packets dropped by full queues, and of unimportant ones dropped above S."""
    core_packets: int = 0
    """Number of packets that came to the ports between switches, where there are several switches."""
    core_dropped: int = 0
    core_bytes: int = 0
    """Bytes that passed the ports between switches, counted at each port."""
    missing_share: tuple[float, ...] = ()
    """For each gradient class the share of elements missing from sums, of those that crossed the network.
    Empty for gloo, and where servers that are no workers make the sums, which nobody counts."""
    delivered_share: float = 1.0
    """Share of the elements that arrived, of all that had to reach a sum through the network."""
    later_shares: list[float] = field(default_factory=list)
    """After each block, the share of the model's elements whose sums came only after its last step."""
    ranks_agree: bool = True
    """Whether all workers had bitwise equal parameters at the end."""
    digest: str = ""
    """A digest of rank 0's parameters in the end."""

    @property
    def core_loss_share(self) -> float:
        """Share of the packets at the ports between switches that were dropped there."""
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
    """The measurements of one case by method, with `compute`: the same steps without an exchange."""

    case: Case
    workers: int
    elements: int
    target: float
    methods: Mapping[str, Method]

    @property
    def compute_seconds(self) -> float:
        """Mean duration of a step that exchanges nothing."""
        return fmean(self.methods["compute"].step_seconds)

    def communication_seconds(self, method: str) -> float:
        """Mean duration of a step less that of a step that exchanges nothing."""
        return fmean(self.methods[method].step_seconds) - self.compute_seconds

    @property
    def volume_bits(self) -> float:
        """Bits that a worker must send, and receive, in a step: 2 (k - 1) / k of its gradients, with k
        workers."""
        return 2 * (self.workers - 1) / self.workers * self.elements * 4 * BITS_PER_BYTE

    @property
    def limit_seconds(self) -> float:
        """Time that the link alone needs for the bits of one step."""
        return self.volume_bits / self.case.rate_bps

    def goodput_bps(self, method: str) -> float:
        """Bits of a step over its communication time, as nccl-tests' bus bandwidth; at most the link's
        rate."""
        return self.volume_bits / self.communication_seconds(method)

    @property
    def tcp_limit_bps(self) -> float | None:
        """Rate of one TCP connection at this loss and round trip by Mathis et al.; None: there is no loss."""
        case = self.case
        if not case.loss:
            return None
        return MATHIS * MSS_BYTES * BITS_PER_BYTE / (case.round_trip_seconds * sqrt(case.loss))

    def document(self) -> dict[str, Any]:
        """The results as plain data for JSON."""
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
