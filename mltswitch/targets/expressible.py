"""Checks that all targets share: whether a state is within a device's capabilities."""

import re
from itertools import groupby
from operator import attrgetter
from typing import Final

from mltswitch.capabilities import (
    AlphaLimit,
    Bandwidth,
    BandwidthCapability,
    BitRate,
    BytesLimit,
    Capabilities,
    Unlimited,
)
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import QueueState, RouteState, SegmentRouteState, SwitchState

queues_of: Final = attrgetter("queues")
"""Gets the queues of a port, so that consecutive ports which share them are checked once."""
_LIMITS: Final = {"bytes": BytesLimit, "alpha": AlphaLimit, "none": Unlimited}


@remembering_last
def check_state(
    state: SwitchState,
    capabilities: Capabilities,
    port_name: re.Pattern[str],
    route_port_name: re.Pattern[str],
    examples: str,
) -> None:
    """Refuse what the device cannot do at all; raises UnsupportedPlanError naming port and queue."""
    names: set[str] = set()
    for queues, ports in groupby(state.ports, queues_of):
        for port in ports:
            where = f"port {port.name}"
            if not port_name.fullmatch(port.name):
                raise UnsupportedPlanError("is no name for a port", where=where, expected=examples)
            if port.name in names:
                raise UnsupportedPlanError("stands twice", where=where)
            names.add(port.name)
            if port.shaped_bps is not None and not capabilities.can_shape:
                raise UnsupportedPlanError(
                    f"ports have the rate of their link, they are not shaped to {port.shaped_bps} bit/s",
                    where=where,
                )
            if not queues:
                raise UnsupportedPlanError("has no queues", where=where)
        for queue in queues:
            _check_queue(queue, capabilities, f"{where}, queue {queue.queue}")
    _check_paths(state, capabilities, route_port_name, examples)


def _check_paths(
    state: SwitchState, capabilities: Capabilities, port_name: re.Pattern[str], examples: str
) -> None:
    segments = state.segment_routing
    routes: list[RouteState | SegmentRouteState] = [route for route in state.routes if not route.discards]
    routes += segments.routes if segments else ()
    for name, alike in groupby(routes, lambda route: route.port):
        if not port_name.fullmatch(name):
            raise UnsupportedPlanError(
                f"{name[:60]!r} is no name for a port",
                where=f"route {next(alike).prefix}",
                expected=examples,
            )
    if segments is not None and capabilities.segment_routing is None:
        raise UnsupportedPlanError(
            f"{capabilities.platform} has no SRv6", expected="spraying by alias addresses"
        )
    if state.packet_spraying and capabilities.packet_spraying is None:
        raise UnsupportedPlanError(
            f"{capabilities.platform} cannot be told to choose paths packet by packet",
            expected="spraying by alias addresses",
        )


def _check_queue(queue: QueueState, capabilities: Capabilities, where: str) -> None:
    usable = capabilities.lossless_queues if queue.is_lossless else capabilities.queues
    if queue.queue not in usable:
        raise UnsupportedPlanError(
            f"is no queue that a {'lossless class' if queue.is_lossless else 'plan'} may use",
            where=where,
            expected=f"one of {', '.join(map(str, usable)) or 'none'}",
        )
    if queue.is_lossless:
        return  # where its code points lead is all that is ours
    can, threshold = capabilities.threshold, queue.ecn_threshold_bytes
    if threshold is not None and (
        threshold % can.step_bytes or not can.minimum_bytes <= threshold <= can.maximum_bytes
    ):
        raise UnsupportedPlanError(
            f"ECN threshold {threshold} B",
            where=where,
            expected=f"{can.minimum_bytes} to {can.maximum_bytes} B in steps of {can.step_bytes} B",
        )
    limit, kind = queue.limit, capabilities.limit.kind
    if not isinstance(limit, _LIMITS[kind]) or (
        isinstance(limit, BytesLimit) and not 0 < limit.size_bytes <= capabilities.limit.maximum_bytes
    ):
        expected = {
            "bytes": f"bytes, at most {capabilities.limit.maximum_bytes}",
            "alpha": "a share of the pool",
            "none": "none: only the port's buffer bounds a queue",
        }
        raise UnsupportedPlanError(f"the limit {limit}", where=where, expected=expected[kind])
    _check_bandwidth("minimum", queue.minimum, capabilities.minimum_bandwidth, where)
    _check_bandwidth("maximum", queue.maximum, capabilities.maximum_bandwidth, where)
    low, high = queue.minimum, queue.maximum
    if isinstance(low, BitRate) and isinstance(high, BitRate) and low.bps > high.bps:
        raise UnsupportedPlanError(f"its minimum {low} is above its maximum {high}", where=where)


def _check_bandwidth(
    word: str, bandwidth: Bandwidth | None, can: BandwidthCapability | None, where: str
) -> None:
    if bandwidth is None:
        return
    if can is None:
        raise UnsupportedPlanError(f"no command is known that gives a queue a {word} bandwidth", where=where)
    if not can.has(bandwidth):
        raise UnsupportedPlanError(f"a {word} of {bandwidth}", where=where, expected=str(can))
