"""Checks that each class lands in its queue, by marked packets through the fabric and switches' counters."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Final

import numpy as np

from mltswitch.deploy import Fleet
from mltswitch.deploy.comparison import reached
from mltswitch.deploy.prepare import Job, prepare
from mltswitch.deploy.results import TRAFFIC, DeviceDifference
from mltswitch.errors import UserInputError
from mltswitch.inventory import Inventory
from mltswitch.measure.counters import read_counters, silence, tells_traffic
from mltswitch.measure.hosts import HEADER_BYTES, DisturbedRunError, Hosts, TestHost, open_hosts
from mltswitch.measure.schedule import packets_at
from mltswitch.plan import Host, Plan, TrafficClass
from mltswitch.plan.trust import background_dscp, forbidden_dscps
from mltswitch.targets import hardware_capabilities

PACKETS: Final = 100
"""Packets sent of each class on each path."""
NOISE_PACKETS: Final = 10
"""Packets of others, such as ARP and neighbour discovery, that a queue may send meanwhile."""
GAP_SECONDS: Final = 0.005
PACKET_BYTES: Final = 64 + HEADER_BYTES
"""Bytes of each packet on the wire: with the gaps 0.2 Mbit/s in all, below any cap, so that none waits."""
TRIES: Final = 3
_ALONE: Final = Fleet()
Risen = Mapping[tuple[str, str, int], int]
"""(switch, port, hardware queue) → packets that came to the queue during the check."""


@dataclass(frozen=True, slots=True)
class _Hop:
    """One switch on the way of packets."""

    switch: str
    comes: str
    """The port by which packets come; empty where nobody knows it."""
    goes: str
    before: str
    """Who hands the packets over: where they are missing, it may be the one that lost them."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two hosts, and the ways from the one to the other: an address, and the hops of what is sent there."""

    sender: Host
    receiver: Host
    ways: tuple[tuple[IPv4Address, tuple[_Hop, ...]], ...]

    @property
    def hops(self) -> Iterator[_Hop]:
        """Each hop of each way."""
        return (hop for _, hops in self.ways for hop in hops)


def check_queues(
    plan: Plan,
    inventory: Inventory,
    hosts: Mapping[str, TestHost],
    *,
    limit: str | None = None,
    fleet: Fleet = _ALONE,
) -> tuple[dict[str, tuple[DeviceDifference, ...]], tuple[str, ...]]:
    """(device → queues whose counters differ from the plan, what was not checked, a line each).

    Each leaf's first host sends `PACKETS` datagrams of each class, ECT(0), on each path to the next leaf's.
    On each port of the way the class's queue must have taken as many, and the others none. Raises
    UserInputError where no two hosts can send, DeviceError where a switch cannot be asked, MachineError where
    a host cannot send.
    """
    pairs = tuple(_pairs(plan, hosts))
    jobs, _ = prepare(plan, inventory, limit)
    on_path = {hop.switch for pair in pairs for hop in pair.hops}
    crossed = [job for job in jobs if job.device.switch in on_path]
    asked = {job.device.switch: job for job in crossed if tells_traffic(job.target)}
    notes = (f"{job.device.name}: {silence(job.target)}" for job in crossed if job not in asked.values())
    found: dict[str, tuple[DeviceDifference, ...]] = {}
    with ExitStack() as stack:
        sessions = {name: stack.enter_context(reached(fleet.session, job)) for name, job in asked.items()}

        def arrived() -> Risen:
            return {
                (name, *place): (counters.sent_packets or counters.admitted_packets or 0)
                + (counters.dropped_packets or 0)
                for name, job in asked.items()
                for place, counters in read_counters(sessions[name], job).items()
            }

        opened = [
            stack.enter_context(
                open_hosts(
                    plan,
                    hosts[pair.receiver.name],
                    [replace(hosts[pair.sender.name], destinations=tuple(to for to, _ in pair.ways))],
                    PACKET_BYTES,
                )
            )
            for pair in pairs
        ]
        for index, entry in enumerate(plan.classes):
            expected = _expected(plan, asked, pairs, entry)
            for attempt in range(1, TRIES + 1):
                risen, heard, disturbed = _send(pairs, opened, index, arrived)
                more = {
                    job.device.name: tuple(_differences(job, name, entry, expected, risen, pairs))
                    for name, job in asked.items()
                }
                if not any(more.values()) and disturbed is None:
                    more = {job.device.name: tuple(_unheard(job, pairs, entry, heard)) for job in crossed}
                if disturbed is None or not any(more.values()):  # all packets came, late ones too
                    break
                if attempt == TRIES:
                    raise disturbed
            for name, each in more.items():
                found[name] = (*found.get(name, ()), *each)
    return {name: each for name, each in found.items() if each}, tuple(notes)


def _pairs(plan: Plan, hosts: Mapping[str, TestHost]) -> Iterator[_Pair]:
    """A ring over the leaves; where all hosts stand at one leaf, its first two."""
    there = [host for host in plan.topology.hosts if host.name in hosts]
    ring = list({host.leaf: host for host in reversed(there)}.values())[::-1]
    ring = ring if len(ring) > 1 else there[:2]
    if len(ring) == 1 or not ring:
        raise UserInputError("needs two hosts that can send packets", where="--traffic")
    for sender, receiver in zip(ring, ring[1:] + ring[:1], strict=True):
        yield _Pair(sender, receiver, tuple(_ways(plan, sender, receiver)))


def _ways(plan: Plan, sender: Host, receiver: Host) -> Iterator[tuple[IPv4Address, tuple[_Hop, ...]]]:
    """Every path that has an address; else the last port, which all packets take."""
    topology, aliases = plan.topology, dict(receiver.aliases)
    is_near = sender.leaf == receiver.leaf
    for path in topology.paths_between(sender, receiver):
        if is_near or path.name not in aliases:
            break
        hops, comes, before = [], sender.leaf_port, sender.name
        for switch, port in topology.walk(sender, receiver, path):
            hops.append(_Hop(switch, comes, port.name, before))
            comes, before = port.peer_port, f"{switch} {port.name}"
        yield aliases[path.name], tuple(hops)
    if is_near or not aliases:
        comes, before = (sender.leaf_port, sender.name) if is_near else ("", "the fabric")
        yield receiver.address, (_Hop(receiver.leaf, comes, receiver.leaf_port, before),)


def _send(
    pairs: Sequence[_Pair],
    opened: Sequence[Hosts],
    index: int,
    arrived: Callable[[], Risen],
) -> tuple[Risen, list[int], DisturbedRunError | None]:
    """What the counters say of one class's packets, how many of them each receiver heard, and what kept a
    host from sending as it was asked to."""
    before, disturbed, heard = arrived(), None, []
    for pair, hosts in zip(pairs, opened, strict=True):
        schedule = packets_at(np.arange(PACKETS * len(pair.ways)) * GAP_SECONDS, index, (True,))
        try:
            heard.append(len(np.unique(hosts.exchange((schedule,)).records["sequence"])))
        except DisturbedRunError as error:
            disturbed = error
    return {place: now - before.get(place, 0) for place, now in arrived().items()}, heard, disturbed


def _expected(
    plan: Plan, jobs: Mapping[str, Job], pairs: Iterable[_Pair], entry: TrafficClass
) -> Counter[tuple[str, str, int]]:
    """How many packets of a class the plan sends to each queue; 0 for the others of the ports on the way."""
    expected: Counter[tuple[str, str, int]] = Counter()
    for _, hops in (way for pair in pairs for way in pair.ways):
        dscp = entry.dscp[0]
        for hop in hops:
            switch = plan.topology.switch(hop.switch)
            capabilities = hardware_capabilities(switch.platform, switch.hardware)
            forbidden = forbidden_dscps(plan.classes, switch.port(hop.comes)) if hop.comes else ()
            if dscp in forbidden and capabilities.rewrites_code_points:
                dscp = background_dscp(plan.classes)
            if switch.name in jobs:
                ports = zip(switch.ports, jobs[switch.name].fitted.state.ports, strict=True)
                state = next(state for port, state in ports if port.name == hop.goes)
                for queue in state.queues:
                    expected[switch.name, state.name, queue.queue] += PACKETS * (dscp in queue.dscps)
    return expected


def _differences(
    job: Job,
    switch: str,
    entry: TrafficClass,
    expected: Mapping[tuple[str, str, int], int],
    risen: Risen,
    pairs: Iterable[_Pair],
) -> Iterator[DeviceDifference]:
    before = ", ".join(
        dict.fromkeys(hop.before for pair in pairs for hop in pair.hops if hop.switch == switch)
    )
    class_of = {queue: name for name, queue in job.fitted.class_queues.items()}
    for (name, port, queue), packets in expected.items():
        counted = risen.get((name, port, queue), 0)
        if name == switch and (counted < packets or (not packets and counted > NOISE_PACKETS)):
            yield DeviceDifference(
                job.device.name,
                port,
                queue,
                class_of.get(queue),
                TRAFFIC,
                f"{packets} packets of {entry.name}",
                f"{counted} from {before}" if counted < packets else str(counted),
            )


def _unheard(
    job: Job, pairs: Sequence[_Pair], entry: TrafficClass, heard: Sequence[int]
) -> Iterator[DeviceDifference]:
    """Packets that every queue took and no host heard: the last switch has lost them behind its counters."""
    for pair, packets in zip(pairs, heard, strict=True):
        sent = PACKETS * len(pair.ways)
        if pair.receiver.leaf == job.device.switch and packets < sent // 2:  # few may come after its time
            yield DeviceDifference(
                job.device.name,
                pair.receiver.leaf_port,
                None,
                entry.name,
                TRAFFIC,
                f"{sent} packets of {entry.name} at {pair.receiver.name}",
                f"{packets}, though the queue took all",
            )
