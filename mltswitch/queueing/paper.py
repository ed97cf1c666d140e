"""Loss model of MLT, appendix B: each queue is two M/M/1/m queues, strict priority a smaller service rate.

The printed formula for r_i^S has a slip: both terms of its numerator take rho_i, with exponents theta S_i and
theta S_i + 1 (compare the general loss formula that stands one sentence before it). Where the classes above
leave no service, the paper is silent; the loss is 1 there. The model predicts no delay.
"""

from collections.abc import Sequence
from math import exp, expm1, fsum, inf, log

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.problem import Port, QueuePrediction, QueueThresholds, QueueTraffic

FloatArray = npt.NDArray[np.float64]


def utilisations(loads: Sequence[float]) -> FloatArray:
    """rho_i = lambda_i / mu_i with mu_i = mu (1 - rho_1) … (1 - rho_{i-1}), highest priority first.

    Infinite where the classes above leave nothing to an offered load.
    """
    rho = np.zeros(len(loads))
    for queue, load in enumerate(loads):
        # The product telescopes: what is left is 1 less the loads above, and the sum loses no digits.
        service = fsum([1.0, *(-above for above in loads[:queue])])
        if load > 0:
            rho[queue] = load / service if service > 0 else np.inf
    return rho


def blocking(rho: float, capacity: npt.ArrayLike) -> FloatArray:
    """Loss ratio of M/M/1/m, (1 - rho) rho^m / (1 - rho^(m+1)), for m >= 0 of any shape.

    Written with expm1 so that neither rho near 1 nor a large m costs digits.
    """
    m = np.asarray(capacity, dtype=float)
    if rho == 0:
        return np.where(m > 0, 0.0, 1.0)
    if np.isinf(rho):
        return np.ones_like(m)
    x = np.log(rho)
    if x == 0:
        return np.asarray(1.0 / (m + 1.0))
    if x > 0:
        return np.asarray(np.expm1(-x) / np.expm1(-(m + 1.0) * x))
    return np.asarray(np.exp(m * x) * np.expm1(x) / np.expm1((m + 1.0) * x))


def _blocking_alone(rho: float, m: float) -> float:
    """`blocking` of one capacity: for so little, arrays take ten times as long as the formula."""
    if rho == 0:
        return 0.0 if m > 0 else 1.0
    if rho == inf:
        return 1.0
    x = log(rho)
    if x == 0:
        return 1.0 / (m + 1.0)
    if x > 0:
        return expm1(-x) / expm1(-(m + 1.0) * x)
    return exp(m * x) * expm1(x) / expm1((m + 1.0) * x)


def predict(
    _port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> tuple[QueuePrediction, ...]:
    """Loss of each queue, highest priority first; m is theta S for unimportant packets, else L - theta S.

    Bursts, scheduling weights and averages are unknown to the paper, and ignored.
    """
    rho: list[float] = utilisations([queue.load for queue in traffic]).tolist()
    losses: list[QueuePrediction] = []
    for queue, offered, limits in zip(rho, traffic, thresholds, strict=True):
        if limits.ecn_threshold_packets is None:
            loss = _blocking_alone(queue, limits.limit_packets)
            losses.append(QueuePrediction(loss, loss))
            continue
        split = offered.unimportant_share * limits.ecn_threshold_packets
        important = _blocking_alone(queue, max(0.0, limits.limit_packets - split))
        losses.append(QueuePrediction(_blocking_alone(queue, split), important))
    return tuple(losses)
