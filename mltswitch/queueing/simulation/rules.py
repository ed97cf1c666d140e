"""From a port and its thresholds to the engine's arrays."""

from collections.abc import Sequence
from math import ceil, inf

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.queueing.problem import Port, QueueThresholds, QueueTraffic
from mltswitch.queueing.simulation.arrays import IDLE, PORT, RULE, Records
from mltswitch.queueing.simulation.sources import largest_train


def build_rules(port: Port, thresholds: Sequence[QueueThresholds]) -> Records:
    """Records of `RULE`, one a queue.

    Raises:
        UserInputError: a dynamic limit without a shared buffer to take its share of.
    """
    for index, limits in enumerate(thresholds):
        if limits.alpha is not None and port.buffer_packets is None:
            raise UserInputError(
                "a dynamic limit needs a shared buffer",
                where=f"queues[{index}].alpha",
                expected="buffer_packets of the port beside it",
            )
    rules = np.zeros(len(thresholds), RULE)
    for rule, limits, quantum in zip(rules, thresholds, _quanta(port, len(thresholds)), strict=True):
        rule["threshold"] = _or_infinite(limits.ecn_threshold_packets)
        rule["maximum"] = _ramp_end(limits)
        rule["mark_probability"] = limits.mark_probability
        rule["average_weight"] = limits.average_weight
        rule["limit"] = limits.limit_packets
        rule["alpha"] = _or_infinite(limits.alpha)
        rule["quantum"] = quantum
    return rules


def build_port(port: Port) -> Records:
    """An idle port, as the only record of its array."""
    record = np.zeros(1, PORT)
    record["buffer"] = _or_infinite(port.buffer_packets)
    record["count_in_service"] = port.count_in_service
    record["exponential_service"] = port.service == "exponential"
    record["serving"] = IDLE
    return record


def ring_places(
    port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds], packets: int
) -> int:
    """A power of two above what any queue can hold waiting.

    There is no use in more places than packets are sent: warm-up and count both end with a whole train.
    """
    most = max(limits.limit_packets for limits in thresholds)
    most = min(most, _or_infinite(port.buffer_packets), packets + 2 * largest_train(traffic))
    return 1 << max(ceil(most), 1).bit_length()


def _quanta(port: Port, queues: int) -> list[float]:
    """The least weight is worth one packet a round: deficit round robin wants every queue to send in each."""
    weights = port.weights or (0.0,) * queues
    least = min((weight for weight in weights if weight > 0), default=1.0)
    return [weight / least for weight in weights]


def _or_infinite(value: float | None) -> float:
    return inf if value is None else float(value)


def _ramp_end(limits: QueueThresholds) -> float:
    """Minus infinity where the step at S leaves no room for a lottery."""
    threshold, maximum = limits.ecn_threshold_packets, limits.ecn_maximum_packets
    if threshold is None or maximum is None or maximum <= threshold:
        return -inf
    return maximum
