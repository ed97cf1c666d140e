"""The rate control of one host as a plan has it; apart from `rate`: what reads plans takes long to load."""

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import UserInputError
from mltswitch.hostagent.transport.rate import USER_SPACE_ROUND_TRIP_NS, RateSettings
from mltswitch.plan import Plan, PortProfile


def rate_settings(plan: Plan, host: str, base_round_trip_ns: int = USER_SPACE_ROUND_TRIP_NS) -> RateSettings:
    """Of one host of the plan: its link, the gradients' share of it, and the queues where incast meets.

    A plan knows no round trips; the base is the caller's, and learned where it is longer. Raises
    UserInputError where the fabric has no such host.
    """
    port = _downlink(plan, host)
    gradients = plan.gradient_classes
    names = {entry.name for entry in gradients}
    shares = [entry.rate_cap_share for entry in gradients if entry.rate_cap_share]
    queues = [
        _drops_from_bytes(port, place) for place, q in enumerate(port.queues) if q.traffic_class in names
    ]
    return RateSettings.for_network(
        port.rate_bps,
        queue_bytes=max(queues, default=0),
        base_round_trip_ns=base_round_trip_ns,
        cap_share=min(shares, default=1.0),
    )


def _downlink(plan: Plan, host: str) -> PortProfile:
    for entry in plan.topology.hosts:
        if entry.name == host:
            leaf = plan.topology.switch(entry.leaf)
            return plan.port_profile(leaf, leaf.port(entry.leaf_port))
    raise UserInputError(
        f"no host {host!r} in fabric {plan.fabric.name}",
        expected=f"one of {', '.join(entry.name for entry in plan.topology.hosts)}",
    )


def _drops_from_bytes(port: PortProfile, place: int) -> int:
    queue = port.queues[place]
    if queue.ecn_threshold_bytes is not None:
        return queue.ecn_threshold_bytes
    return queue.limit.size_bytes if isinstance(queue.limit, BytesLimit) else port.buffer_bytes
