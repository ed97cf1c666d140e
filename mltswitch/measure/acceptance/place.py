"""Finds the port of a device to test, the hosts for it, and what is expected of the port.

The plan as the device can express it (rounded) is expected, not the original one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from mltswitch.capabilities import (
    AlphaLimit,
    Bandwidth,
    BytesLimit,
    Capabilities,
    Limit,
    PortShare,
    Unverified,
)
from mltswitch.errors import UserInputError
from mltswitch.measure.acceptance.checks import TestedClass
from mltswitch.measure.runs import FULLEST_LINK, HOLD_LOAD, TestedPort
from mltswitch.plan import ClassKind, Host, Plan, Port, PortProfile, Switch, SwitchRole
from mltswitch.targets import FittedState, target_for

UNBOUNDED_PACKETS: Final = 20
"""Packets, beyond twice the ECN threshold S, to which a queue without a limit in bytes is filled."""


@dataclass(frozen=True, slots=True)
class Place:
    """The port under test, who sends through it, and what it should do."""

    switch: str
    port: str
    platform: str
    hardware: str
    receiver: str
    senders: tuple[str, ...]
    destinations: tuple[tuple[IPv4Address, ...], ...]
    """For each sender the receiver's addresses whose packets cross the port, used in turn."""
    tested: TestedPort
    gradients: tuple[TestedClass, ...]
    """The gradient classes, in order of service."""
    controls: tuple[TestedClass, ...]
    background: TestedClass
    host_control: TestedClass | None
    """The class of network control, sent by hosts without right to it; None: the plan has no such class."""
    host_control_senders: tuple[int, ...]
    """Indices of the senders directly behind the device, whose network control it leads to background."""
    unverified: tuple[Unverified, ...]
    """Items that the device's capabilities leave open."""


def find_place(
    plan: Plan, switch_name: str, hosts: Sequence[str], receiver: str | None, port: str | None
) -> Place:
    """The port to test with these hosts; raises UserInputError where they cannot overload it."""
    switch = plan.topology.switch(switch_name)
    known = {host.name: host for host in plan.topology.hosts}
    unknown = [name for name in hosts if name not in known]
    if unknown:
        expected = f"some of {', '.join(known)}"
        raise UserInputError(
            f"{unknown[0]!r} is no host of the plan's fabric", where="--hosts", expected=expected
        )
    chosen = [known[name] for name in hosts]
    if len(set(hosts)) != len(hosts) or len(chosen) < 2:
        raise UserInputError(
            f"{len(set(hosts))} host(s) named", where="--hosts", expected="at least two different ones"
        )
    target = _receiver(chosen, switch, receiver)
    senders = [host for host in chosen if host is not target]
    tested = _port(plan, switch, senders[0], target, port)
    destinations = tuple(_destinations(plan, switch, tested, sender, target) for sender in senders)
    near = tuple(
        number
        for number, sender in enumerate(senders)
        if switch.role is SwitchRole.LEAF and sender.leaf == switch.name
    )
    target_os = target_for(switch.platform, where=switch.name)
    capabilities = target_os.hardware(switch.hardware)
    profile = plan.port_profile(switch, tested)
    _require_overload(senders, near, destinations, shaped=profile.shaped)
    fitted = target_os.fit_to_hardware(plan, switch.name)
    classes = _classes(plan, fitted, switch.ports.index(tested), capabilities, profile)
    of_kind = {kind: tuple(each for of, each in classes if of is kind) for kind in ClassKind}
    network_control = of_kind[ClassKind.NETWORK_CONTROL]
    return Place(
        switch=switch.name,
        port=tested.name,
        platform=capabilities.platform,
        hardware=capabilities.hardware,
        receiver=target.name,
        senders=tuple(host.name for host in senders),
        destinations=destinations,
        tested=TestedPort(
            profile.rate_bps,
            profile.packet_bytes,
            len(senders),
            near,
            capabilities.marks_at,
            capabilities.averaging_packets,
        ),
        gradients=of_kind[ClassKind.GRADIENT],
        controls=of_kind[ClassKind.CONTROL],
        background=classes[-1][1],
        host_control=network_control[0] if network_control else None,
        host_control_senders=tuple(
            number
            for number in near
            if network_control
            and _leads_to_background(plan, switch, fitted, network_control[0].dscp, senders[number].leaf_port)
        ),
        unverified=capabilities.unverified,
    )


def _classes(
    plan: Plan, fitted: FittedState, port: int, capabilities: Capabilities, profile: PortProfile
) -> list[tuple[ClassKind, TestedClass]]:
    """The plan's classes as the device's port at this place has them."""
    queues = {queue.queue: queue for queue in fitted.state.ports[port].queues}
    found = []
    for index, entry in enumerate(plan.classes):
        queue = queues[fitted.class_queues[entry.name]]
        threshold = queue.ecn_threshold_bytes
        standing = _standing_bytes(queue.limit, threshold or 0, capabilities, profile.packet_bytes)
        maximum, minimum = (_bps(rate, profile.rate_bps) for rate in (queue.maximum, queue.minimum))
        limits = (queue.queue, queue.limit, standing, threshold, maximum, minimum)
        found.append((entry.kind, TestedClass(entry.name, index, entry.dscp[0], *limits)))
    return found


def _leads_to_background(plan: Plan, switch: Switch, fitted: FittedState, dscp: int, port_name: str) -> bool:
    """Whether the device takes what comes in at this port with the code point for background."""
    background = fitted.class_queues[plan.classes[-1].name]
    ports = zip(switch.ports, fitted.state.ports, strict=True)
    state = next(state for port, state in ports if port.name == port_name)
    return dscp in state.rewritten or any(
        queue.queue == background and dscp in queue.dscps for queue in state.queues
    )


def _receiver(hosts: Sequence[Host], switch: Switch, name: str | None) -> Host:
    """The named one, else the last host right behind the device, else the last."""
    if name is not None:
        for host in hosts:
            if host.name == name:
                return host
        raise UserInputError(f"{name!r} is not among --hosts", where="--receiver")
    behind = [host for host in hosts if host.leaf == switch.name]
    return (behind or list(hosts))[-1]


def _port(plan: Plan, switch: Switch, sender: Host, receiver: Host, name: str | None) -> Port:
    """The named port, else the one that the device sends through to the receiver."""
    wanted = name or (receiver.leaf_port if receiver.leaf == switch.name else None)
    for port in switch.ports:
        if port.name == wanted or (wanted is None and _crossing(plan, switch, port, sender, receiver)):
            return port
    if name is not None:
        raise UserInputError(
            f"{switch.name} has no port {name!r} in the plan",
            where="--port",
            expected=f"one of {', '.join(port.name for port in switch.ports)}",
        )
    raise UserInputError(
        f"what {sender.name} sends to {receiver.name} does not leave {switch.name}", where="--hosts"
    )


def _crossing(plan: Plan, switch: Switch, port: Port, sender: Host, receiver: Host) -> tuple[str, ...]:
    """Names of the paths from the sender to the receiver that cross the port, or its group of links."""
    return tuple(
        path.name
        for path in plan.topology.paths_between(sender, receiver)
        if any(
            (switch.name, port.interface) == (name, hop.interface)
            for name, hop in plan.topology.walk(sender, receiver, path)
        )
    )


def _destinations(
    plan: Plan, switch: Switch, port: Port, sender: Host, receiver: Host
) -> tuple[IPv4Address, ...]:
    """Addresses of the receiver that lead from the sender through the port."""
    aliases = dict(receiver.aliases)
    everywhere = tuple(aliases.values()) or (receiver.address,)
    if port.peer_is_host:
        if receiver.leaf == switch.name and receiver.leaf_port == port.name:
            return everywhere[:1] if sender.leaf == switch.name else everywhere
        raise UserInputError(
            f"port {port.name} of {switch.name} leads to {port.peer}, not to {receiver.name}",
            where="--receiver",
        )
    paths = _crossing(plan, switch, port, sender, receiver)
    if not paths:
        raise UserInputError(
            f"what {sender.name} sends to {receiver.name} does not leave {switch.name} by {port.name}",
            where="--hosts",
        )
    if not aliases:
        raise UserInputError(f"{receiver.name} has no address that crosses {port.name}", where="--port")
    return tuple(aliases[path] for path in paths)


def _require_overload(
    senders: Sequence[Host],
    near: Sequence[int],
    destinations: Sequence[Sequence[IPv4Address]],
    *,
    shaped: bool,
) -> None:
    """Together the senders must offer more than the port's rate, over links no faster than the port."""
    if len(senders) == 1 and near and not shaped:
        raise UserInputError(
            f"{senders[0].name} alone cannot overload a port as fast as its own link",
            where="--hosts",
            expected="two hosts that send and one that receives",
        )
    for number, sender in enumerate(senders):
        part = HOLD_LOAD / len(senders) / len(destinations[number])
        if number not in near and part > FULLEST_LINK:
            raise UserInputError(
                f"{sender.name} would have to fill a link of the fabric before the port is full",
                where="--hosts",
                hint="name more hosts, or some that stand right behind the device",
            )


def _standing_bytes(limit: Limit, threshold_bytes: int, capabilities: Capabilities, packet_bytes: int) -> int:
    beyond = 2 * threshold_bytes + UNBOUNDED_PACKETS * packet_bytes
    if isinstance(limit, BytesLimit):
        return limit.size_bytes
    if isinstance(limit, AlphaLimit) and capabilities.limit.pool_bytes is not None:
        return min(beyond, limit.resting_bytes(capabilities.limit.pool_bytes))
    return beyond


def _bps(maximum: Bandwidth | None, rate_bps: int) -> int | None:
    if maximum is None:
        return None
    return rate_bps * maximum.percent // 100 if isinstance(maximum, PortShare) else maximum.bps
