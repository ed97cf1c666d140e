"""Loss model of MLT, appendix B: each queue is two M/M/1/m queues, strict priority a smaller service rate.

The printed formula for r_i^S has a slip: both terms of its numerator take rho_i, with exponents theta S_i and
theta S_i + 1 (compare the general loss formula that stands one sentence before it). Where the classes above
leave no service, the paper is silent; the loss is 1 there. The model predicts no delay.
"""

from collections.abc import Sequence
from math import exp, expm1, fsum, inf, log

from mltswitch.queueing.problem import Port, QueuePrediction, QueueThresholds, QueueTraffic


def utilisations(loads: Sequence[float]) -> list[float]:
    """Utilisations rho_i = lambda_i / mu_i with mu_i = mu (1 - rho_1) … (1 - rho_{i-1}), highest priority
    first.

    A utilisation is infinite where the classes above leave nothing to an offered load.
    """
    rho: list[float] = []
    for queue, load in enumerate(loads):
        # The product telescopes: what is left is 1 less the loads above, and the sum loses no digits.
        service = fsum([1.0, *(-above for above in loads[:queue])])
        rho.append(0.0 if load <= 0 else load / service if service > 0 else inf)
    return rho


def blocking(rho: float, capacity: float) -> float:
    """Loss ratio of M/M/1/m, (1 - rho) rho^m / (1 - rho^(m+1)), for m >= 0.

    It is computed with expm1 so that neither rho near 1 nor a large m costs digits.
    """
    if rho == 0:
        return 0.0 if capacity > 0 else 1.0
    if rho == inf:
        return 1.0
    x = log(rho)
    if x == 0:
        return 1.0 / (capacity + 1.0)
    if x > 0:
        return expm1(-x) / expm1(-(capacity + 1.0) * x)
    return exp(capacity * x) * expm1(x) / expm1((capacity + 1.0) * x)


def predict(
    _port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> tuple[QueuePrediction, ...]:
    """Loss of each queue, highest priority first, as an M/M/1/m queue has it: m is theta S for unimportant
    packets and L - theta S for important ones, where theta is the share of unimportant ones, or L without S.

    Bursts, scheduling weights and averages are unknown to the paper, and ignored.
    """
    rho = utilisations([queue.load for queue in traffic])
    losses: list[QueuePrediction] = []
    for queue, offered, limits in zip(rho, traffic, thresholds, strict=True):
        if limits.ecn_threshold_packets is None:
            loss = blocking(queue, limits.limit_packets)
            losses.append(QueuePrediction(loss, loss))
            continue
        split = offered.unimportant_share * limits.ecn_threshold_packets
        important = blocking(queue, max(0.0, limits.limit_packets - split))
        losses.append(QueuePrediction(blocking(queue, split), important))
    return tuple(losses)
