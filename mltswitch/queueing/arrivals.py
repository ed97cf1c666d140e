"""Arrival processes as data: how the packets of one queue come to a port.

Each process describes only the pattern; the rate is the queue's load. `source_rate_ratio` is the rate of a
sender's link over the rate of the port: a burst of b packets takes (b - 1) / ratio packet times to arrive,
infinity is at once.
"""

from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from mltswitch.errors import UserInputError

BurstDistribution = Literal["fixed", "geometric"]


@dataclass(frozen=True, slots=True)
class Poisson:
    """Single packets with exponential gaps between them."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Bursts at exponential gaps, all of one size, or of geometric size with this mean (at least 1
    packet)."""

    burst_packets: float
    distribution: BurstDistribution = "fixed"
    source_rate_ratio: float = inf


@dataclass(frozen=True, slots=True)
class Incast:
    """Synchronised on-off traffic: at regular intervals all senders send their part of a round at once.

    The epochs come at regular distance, senders · round_packets / load. Each sender starts up to `jitter`
    late (uniform) and cuts its part into bursts of `burst_packets`, sent back to back at its link's rate;
    packets of one burst arrive at `source_rate_ratio`.
    """

    senders: int
    round_packets: int
    """Packets that one sender sends in one round."""
    jitter_packet_times: float = 0.0
    burst_packets: int = 1
    """Packets that the sender's segmentation offload emits as one burst, with one importance and one path."""
    source_rate_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Trace:
    """Bursts fitted from a capture or from counters: measured sizes at exponential gaps.

    Sizes in packets, rising, each with its probability. The index of dispersion of the counts (variance over
    mean over long windows, in packets) says how bursty the capture was beyond the bursts themselves.
    """

    sizes_packets: tuple[int, ...]
    probabilities: tuple[float, ...]
    source_rate_ratio: float = inf
    index_of_dispersion: float | None = None


Arrivals = Poisson | Batch | Incast | Trace


def mean_burst_packets(arrivals: Arrivals) -> float:
    """Mean number of packets that share one tag and arrive back to back."""
    match arrivals:
        case Poisson():
            return 1.0
        case Batch() | Incast():
            return float(arrivals.burst_packets)
        case Trace():
            return sum(
                size * share
                for size, share in zip(arrivals.sizes_packets, arrivals.probabilities, strict=True)
            )


def backlog_burst(arrivals: Incast) -> Batch:
    """The burst that leaves as many waiting packets at an idle port as an incast round has left when all of
    it has arrived.

    The round arrives within the jitter and the time that one sender needs; what the port sends meanwhile is
    gone.
    """
    arrived_within = arrivals.jitter_packet_times + arrivals.round_packets / arrivals.source_rate_ratio
    left = arrivals.senders * arrivals.round_packets - arrived_within
    return Batch(max(arrivals.burst_packets, round(left)))


def check_arrivals(arrivals: Arrivals, where: str) -> None:
    """Checks the numbers of an arrival process.

    Raises:
        UserInputError: names the field below `where`.
    """
    if isinstance(arrivals, Poisson):
        return
    ratio = arrivals.source_rate_ratio
    if not ratio > 0:
        raise UserInputError(
            f"{ratio:g} is out of range", where=f"{where}.source_rate_ratio", expected="a number above 0"
        )
    match arrivals:
        case Batch():
            _check_batch(arrivals, where)
        case Incast():
            _check_incast(arrivals, where)
        case Trace():
            _check_trace(arrivals, where)


def _check_batch(arrivals: Batch, where: str) -> None:
    size = arrivals.burst_packets
    whole = arrivals.distribution == "geometric" or float(size).is_integer()
    if not (isfinite(size) and size >= 1 and whole):
        expected = (
            "a mean of at least 1" if arrivals.distribution == "geometric" else "a whole number, at least 1"
        )
        raise UserInputError(f"{size:g} is out of range", where=f"{where}.burst_packets", expected=expected)


def _check_incast(arrivals: Incast, where: str) -> None:
    for name in ("senders", "round_packets", "burst_packets"):
        value = getattr(arrivals, name)
        if value < 1 or int(value) != value:
            raise UserInputError(
                f"{value:g} is out of range", where=f"{where}.{name}", expected="a whole number, at least 1"
            )
    jitter = arrivals.jitter_packet_times
    if not (isfinite(jitter) and jitter >= 0):
        raise UserInputError(
            f"{jitter:g} is out of range",
            where=f"{where}.jitter_packet_times",
            expected="a number at least 0",
        )


def _check_trace(arrivals: Trace, where: str) -> None:
    sizes, shares = arrivals.sizes_packets, arrivals.probabilities
    if not sizes or len(sizes) != len(shares) or any(size < 1 for size in sizes):
        raise UserInputError(
            "burst sizes and their probabilities do not pair up",
            where=f"{where}.sizes_packets",
            expected="sizes of at least 1, one probability each",
        )
    if not (all(0 <= share <= 1 for share in shares) and abs(sum(shares) - 1) < 1e-6):
        raise UserInputError(
            f"the probabilities sum to {sum(shares):g}", where=f"{where}.probabilities", expected="a sum of 1"
        )
