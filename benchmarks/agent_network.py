"""Networks of the host agent's benchmarks: two hosts and a cable, or a star with all transports' ends."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from benchmarks.agent_ends import (
    CONTROL_PORT,
    Worker,
    agent_fields,
    connect,
    gathered,
    open_agent,
    post_gather,
    scatter,
)
from benchmarks.agent_rivals import (
    CONGESTION_CONTROLS,
    tcp_accept,
    tcp_connect,
    tcp_gather,
    tcp_listen,
    tcp_scatter,
)
from mltswitch.lab import NamespaceHandle, Star
from mltswitch.lab.programs import ip, need
from mltswitch.lab.star import INTERFACE

PATHS: Final = 4
RECEIVER: Final = "receiver"
LEAD_NS: Final = 40_000_000
"""From the word to the start: everybody must have heard it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two hosts, one cable, and one address a path at each end; nothing is dropped but by sockets."""

    sender: NamespaceHandle
    receiver: NamespaceHandle
    sender_addresses: tuple[str, ...]
    receiver_addresses: tuple[str, ...]

    def use_mtu(self, mtu_bytes: int) -> None:
        """Set it at both ends."""
        for end in (self.sender, self.receiver):
            ip([f"link set {INTERFACE} mtu {mtu_bytes}"], end.name)


@contextmanager
def running_pair() -> Iterator[Pair]:
    """Made here and removed at the end; raises MachineError."""
    need("ip")
    sender, receiver = (NamespaceHandle(f"mltswitch-bench-{os.getpid()}-{end}") for end in ("tx", "rx"))
    networks = [f"10.199.{path}" for path in range(1, PATHS + 1)]
    pair = Pair(
        sender,
        receiver,
        tuple(f"{network}.1" for network in networks),
        tuple(f"{network}.2" for network in networks),
    )
    try:
        ip([f"netns add {end.name}" for end in (sender, receiver)])
        ip(
            [
                f"link add {INTERFACE} netns {sender.name} type veth "
                f"peer name {INTERFACE} netns {receiver.name}"
            ]
        )
        ends = ((sender, pair.sender_addresses), (receiver, pair.receiver_addresses))
        for namespace, addresses in ends:
            lines = [f"addr add {address}/24 dev {INTERFACE}" for address in addresses]
            ip([*lines, "link set lo up", f"link set {INTERFACE} up"], namespace.name)
        yield pair
    finally:
        for namespace in (sender, receiver):
            subprocess.run(["ip", "netns", "delete", namespace.name], check=False, capture_output=True)


@dataclass(frozen=True, slots=True)
class Flows:
    """One tensor from each of some senders."""

    seconds: Sequence[float]
    """From the instant at which all begin to the receiver's having the whole tensor, or enough of it."""
    told: Mapping[str, Sequence[Any]]
    """What the host agent's ends say, by the names of TransferStatistics; nothing of TCP."""

    @property
    def missing(self) -> Sequence[float]:
        """Share of each flow's packets that was missing at its end."""
        return self.told.get("missing_share", [0.0] * len(self.seconds))


class StarEnds:
    """Senders on all hosts of a star but the last and a receiver there: each transport's ends, connected."""

    def __init__(self, star: Star, senders: Worker, receiver: Worker) -> None:
        self.star = star
        self.senders = senders
        self.receiver = receiver

    def flows(
        self, transport: str, size_bytes: int, senders: Sequence[int] = (), **of_receives: Any
    ) -> Flows:
        """One tensor from each sender (none named: all), by a congestion control or a channel of ours."""
        numbers = senders or range(len(self.star.hosts) - 1)
        names, is_tcp = [sender_name(number) for number in numbers], transport in CONGESTION_CONTROLS
        if not is_tcp:
            self.receiver.call(post_gather, RECEIVER, names, size_bytes, transport, **of_receives)
        at_ns = time.monotonic_ns() + LEAD_NS
        if is_tcp:
            self.receiver.start(tcp_gather, transport, numbers, size_bytes)
            self.senders.start(tcp_scatter, at_ns, transport, numbers, size_bytes)
        else:
            self.receiver.start(gathered)
            self.senders.start(scatter, at_ns, names, RECEIVER, size_bytes, transport)
        received, sent = self.receiver.result(), self.senders.result()
        ended = received if is_tcp else received["ended_ns"]
        return Flows([(each - at_ns) / 1e9 for each in ended], {} if is_tcp else received | sent)


def sender_name(number: int) -> str:
    """Of the agent on a star's host 0, 1, …"""
    return f"sender{number}"


@contextmanager
def running_star_ends(star: Star, rate_bps: float, **fields: Any) -> Iterator[StarEnds]:
    """All senders in one process, the receiver in another; raises MachineError.

    Args:
        star: its last host receives.
        rate_bps: of each host's line.
        **fields: more of every agent's.
    """
    last = len(star.hosts) - 1
    with ExitStack() as stack:
        senders, receiver = (stack.enter_context(Worker(star.hosts[host])) for host in (0, last))
        for host, name in enumerate([*map(sender_name, range(last)), RECEIVER]):
            worker = senders if host < last else receiver
            worker.call(
                open_agent, agent_fields(name, star.addresses(host), rate_bps, **fields), star.hosts[host]
            )
        address = star.addresses(last)[0]
        receiver.call(tcp_listen, last)
        receiver.start(tcp_accept, last)
        for host in range(last):
            senders.call(connect, sender_name(host), RECEIVER, f"{address}:{CONTROL_PORT}")
            senders.call(tcp_connect, host, address, star.hosts[host])
        receiver.result()
        yield StarEnds(star, senders, receiver)


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest value that so large a share does not exceed."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]
