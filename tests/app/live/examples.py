"""Readings of a plan's fabric without a device, as `watch` makes them."""

from collections.abc import Mapping
from dataclasses import replace

from mltswitch.measure.watch import DeviceReading, QueueReading, Reading
from mltswitch.plan import Plan
from mltswitch.plan.elements import Switch
from mltswitch.targets.base import EgressCounters

Places = Mapping[tuple[str, str, str], QueueReading]
"""Switch, port, class → what differs from an idle queue."""


NOTHING = EgressCounters(
    depth_bytes=0,
    sent_bytes=0,
    sent_packets=0,
    dropped_packets=0,
    ce_marked_packets=0,
    dropped_at_threshold_packets=0,
    dropped_at_limit_packets=0,
)


def idle(plan: Plan, switch: Switch) -> tuple[QueueReading, ...]:
    return tuple(
        QueueReading(
            port.name,
            number,
            queue.traffic_class,
            NOTHING,
            sent_bps=0.0,
            dropped_per_second=0.0,
            ce_marked_per_second=0.0,
            ecn_threshold_bytes=queue.ecn_threshold_bytes,
            limit_bytes=profile.length_bytes(queue.limit),
        )
        for port in switch.ports
        for profile in [plan.port_profile(switch, port)]
        for number, queue in enumerate(profile.queues)
    )


def reading(plan: Plan, silent: str = "", **busy: dict[str, float]) -> Reading:
    """All idle, but for queues named `leaf1__eth1__gradient_0`: share of the limit, and rates."""
    return Reading(
        "2026-11-30T21:04:33.120+00:00",
        tuple(
            DeviceReading(switch.name, f"{switch.name}: has <b>not</b> answered yet", switch=switch.name)
            if switch.name == silent
            else DeviceReading(
                switch.name,
                queues=tuple(busied(each, busy.get(_key(switch.name, each))) for each in idle(plan, switch)),
                switch=switch.name,
            )
            for switch in plan.topology.switches
        ),
    )


def _key(switch: str, queue: QueueReading) -> str:
    return f"{switch}__{queue.port}__{(queue.traffic_class or '').replace('-', '_')}"


def busied(queue: QueueReading, facts: dict[str, float] | None) -> QueueReading:
    if facts is None:
        return queue
    full = facts.get("full", 0.0)
    depth_bytes = int(full * (queue.limit_bytes or 0))
    return replace(
        queue,
        counters=replace(queue.counters, depth_bytes=depth_bytes),
        sent_bps=facts.get("sent_bps", 0.0),
        dropped_per_second=facts.get("dropped", 0.0),
        ce_marked_per_second=facts.get("marked", 0.0),
        dropped_at_limit_per_second=facts.get("at_limit"),
    )
