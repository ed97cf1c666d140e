"""What the live page is told: the fabric once, and the state of its queues with each reading."""

from collections.abc import Iterator
from typing import Any, Final

from mltswitch.measure.watch import DeviceReading, Level, QueueReading, Reading
from mltswitch.plan import Plan, SwitchRole

MOST_QUEUES: Final = 400
"""Of one reading, the worst first; of the others only their number is told."""
TIERS: Final = (SwitchRole.CORE, SwitchRole.SPINE, SwitchRole.LEAF)


def fabric_map(plan: Plan) -> dict[str, Any]:
    """The switches of each tier from the top, the hosts, and the cables between them."""
    topology = plan.topology
    tiers = [[each.name for each in topology.switches if each.role is role] for role in TIERS]
    return {
        "name": plan.fabric.name,
        "tiers": [
            {"role": str(role), "nodes": nodes} for role, nodes in zip(TIERS, tiers, strict=True) if nodes
        ],
        "hosts": [{"name": host.name, "leaf": host.leaf} for host in topology.hosts],
        "links": [*_links(plan)],
    }


def _links(plan: Plan) -> Iterator[dict[str, Any]]:
    """Each cable once, from the end that its first switch has."""
    told: set[tuple[str, str]] = set()
    for switch in plan.topology.switches:
        for port in switch.ports:
            if (switch.name, port.name) not in told:
                told.add((port.peer, port.peer_port))
                yield {
                    "ends": [[switch.name, port.name], [port.peer, port.peer_port]],
                    "is_host": port.peer_is_host,
                    "rate_bps": port.rate_bps,
                }


def state(reading: Reading, agents: list[dict[str, Any]], agent_errors: list[str]) -> dict[str, Any]:
    """One reading for the page, with what the agents of a job have told."""
    rows = reading.worst_first()
    return {
        "at": reading.at,
        "devices": [
            {"device": each.device, "switch": each.switch, "error": each.error} for each in reading.devices
        ],
        "ports": [*_ports(reading)],
        "queues": [_row(device, queue) for device, queue in rows[:MOST_QUEUES]],
        "queues_left_out": max(0, len(rows) - MOST_QUEUES),
        "agents": agents,
        "agent_errors": agent_errors,
    }


def _ports(reading: Reading) -> Iterator[dict[str, Any]]:
    for device in reading.devices:
        queues: dict[str, list[QueueReading]] = {}
        for queue in device.queues:
            queues.setdefault(queue.port, []).append(queue)
        for port, of_port in queues.items():
            sent = [each.sent_bps for each in of_port if each.sent_bps is not None]
            yield {
                "switch": device.switch,
                "port": port,
                "level": _name(max(each.level for each in of_port)),
                "sent_bps": sum(sent) if sent else None,
            }


def _row(device: DeviceReading, queue: QueueReading) -> dict[str, Any]:
    return {
        "device": device.device,
        "switch": device.switch,
        "port": queue.port,
        "queue": queue.queue,
        "traffic_class": queue.traffic_class,
        "level": _name(queue.level),
        "depth_bytes": queue.counters.depth_bytes,
        "ecn_threshold_bytes": queue.ecn_threshold_bytes,
        "limit_bytes": queue.limit_bytes,
        "sent_bps": queue.sent_bps,
        "dropped_per_second": queue.dropped_per_second,
        "ce_marked_per_second": queue.ce_marked_per_second,
        "admitted_per_second": queue.admitted_per_second,
        "restarted": queue.restarted,
    }


def _name(level: Level) -> str:
    return level.name.lower()
