"""Hosts around one switch that has queues, a rate, a delay and random loss: a network for measurements.

The switch is star.c, compiled on the spot: strict priority between queues, marking threshold and limit of a
port profile, and bytes counted as a plan counts them. Use it where user-mode-linux, the switch of `Lab`, is
too slow, or where the kernel has no netem; one core carries some 100,000 packets a second. Host H has the
address 10.P.0.H on path P. The same program can be two tiers of switches, `LeafSpine`, whose spines are the
paths.
"""

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import MachineError
from mltswitch.lab.namespaces import NamespaceHandle
from mltswitch.lab.programs import Program, compiled, ip, need
from mltswitch.plan import Plan, PortProfile

INTERFACE: Final = "path0"
"""Name of each host's first interface."""
SWITCH: Final = "_switch"
"""Name of the switch's network namespace; no host can have this name."""
SOURCE: Final = Path(__file__).with_name("star.c")
LINE_QUEUE_PACKETS: Final = 10_000
"""Queue between a host and the switch, in packets: longer than a host's own rate could fill."""
HOST_BURST_BYTES: Final = 20_000
HOST_BACKLOG_BYTES: Final = 200_000_000
"""A host's own queue in front of its line, so long that nothing is lost in it."""
PROCESS_PATIENCE_SECONDS: Final = 300.0
"""Seconds to wait for a process's line: on a busy machine torch alone takes a minute to load."""
MTU_BYTES: Final = 1500
LINK_BYTES: Final = 14
"""Bytes that Ethernet adds to a packet's IP length, on the line and in a queue."""
_networks: Final = count(1)
"""Of this process, which may have several at a time."""
QUEUES: Final = 8
DSCPS: Final = 64


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of a switch port, and the DSCPs sorted into it."""

    threshold_bytes: int
    """Length from which packets are marked or, if not ECN-capable, dropped; equal to the limit: unused."""
    limit_bytes: int
    """Length above which every packet is dropped."""
    dscps: tuple[int, ...]


def planned_queues(plan: Plan, profile: PortProfile) -> tuple[Queue, ...]:
    """The queues of a port profile in order of service; raises MachineError for a limit not in bytes."""
    found = []
    for entry in profile.queues:
        if not isinstance(entry.limit, BytesLimit):
            raise MachineError(f"a limit of {entry.limit} is not in bytes", where=entry.traffic_class)
        limit = entry.limit.size_bytes
        dscps = plan.class_by_name[entry.traffic_class].dscp
        found.append(Queue(entry.ecn_threshold_bytes or limit, limit, dscps))
    return tuple(found)


def one_queue(limit_bytes: int) -> tuple[Queue, ...]:
    """The one queue of a port without a plan, for all DSCPs; what does not fit is dropped."""
    return (Queue(limit_bytes, limit_bytes, tuple(range(DSCPS))),)


class Star:
    """A star network: hosts, and the switch between them."""

    def __init__(self, hosts: Sequence[NamespaceHandle], paths: int, switch: Program) -> None:
        self.hosts = hosts
        self.paths = paths
        self.ports_of_host = paths
        self._switch = switch
        self._turn = threading.Lock()

    def addresses(self, host: int) -> tuple[str, ...]:
        """Addresses of the host with this number (from 0), one for each path."""
        return tuple(f"10.{path}.0.{host + 1}" for path in range(1, self.paths + 1))

    def routed_address(self, host: int) -> str:
        """Address of the host with this number (from 0), for senders that do not choose a path."""
        return self.addresses(host)[0]

    def leaf_of(self, _host: int) -> int:
        """Number of the host's leaf: always 0, because a star has one switch."""
        return 0

    def start(self, host: int, command: Sequence[str]) -> Program:
        """Start a process on a host; as a context manager it ends with its block."""
        return Program(self.hosts[host], command, PROCESS_PATIENCE_SECONDS)

    def set_rate(self, bits_per_second: int) -> None:
        """Set every port's rate towards a host; a host's own line is as fast as all its ports together."""
        self.set_port_rate(bits_per_second)
        for host in self.hosts:
            kind = (
                f"tbf rate {bits_per_second * self.ports_of_host} burst {HOST_BURST_BYTES} "
                f"limit {HOST_BACKLOG_BYTES}"
            )
            _run(["tc", "-n", host.name, "qdisc", "replace", "dev", INTERFACE, "root", *kind.split()])

    def set_port_rate(self, bits_per_second: int) -> None:
        """Set the rate of every port towards a host, and leave the hosts' own lines as they are."""
        self._obey(f"rate {bits_per_second}")

    def set_queues(self, queues: Sequence[Queue]) -> None:
        """Set the thresholds and DSCPs of all ports' queues; DSCPs that no queue names go to the last."""
        if not 1 <= len(queues) <= QUEUES:
            raise MachineError(f"{len(queues)} queues", where="star", expected=f"1-{QUEUES}")
        places = dict.fromkeys(range(DSCPS), len(queues) - 1)
        for number, queue in enumerate(queues):
            self._obey(f"queue {number} {queue.threshold_bytes} {queue.limit_bytes}")
            places.update(dict.fromkeys(queue.dscps, number))
        for dscp, number in places.items():
            self._obey(f"dscp {dscp} {number}")

    def set_buffer(self, size_bytes: int) -> None:
        """Set the buffer of every port, which its queues share, in addition to each queue's own limit."""
        self._obey(f"buffer {size_bytes}")

    def set_classes(
        self, buffer_bytes: int, control_dscp: int, gradient_dscp: Sequence[int], marked_share: float
    ) -> None:
        """Set the queues of a simple plan: control, the gradient classes and background share the buffer.

        The marking threshold of a gradient class is `marked_share` of the buffer. Without gradient classes
        there is no plan, and one queue for all.
        """
        self.set_buffer(buffer_bytes)
        if not gradient_dscp:
            self.set_queues(one_queue(buffer_bytes))
            return
        threshold = int(buffer_bytes * marked_share)
        gradients = [Queue(threshold, buffer_bytes, (dscp,)) for dscp in gradient_dscp]
        control, background = (Queue(buffer_bytes, buffer_bytes, dscps) for dscps in ((control_dscp,), ()))
        self.set_queues([control, *gradients, background])

    def set_round_trip(self, seconds: float, own_seconds: float) -> None:
        """Delay packets each way, so that the round trip takes `seconds` instead of `own_seconds`."""
        self._obey(f"delay {max(0, round((seconds - own_seconds) / 2 * 1e9))}")

    def set_loss(self, probability: float, path: int | None = None) -> None:
        """Lose packets with this probability, both ways, on one path (from 0); None: on all paths."""
        self._obey(f"loss {probability}" if path is None else f"path {path + 1} loss {probability}")

    def report(self) -> dict[str, Any]:
        """Counters since the last report: packets of each queue by importance, and bytes of each path."""
        return self._obey("report")

    def round_trip_seconds(self) -> float:
        """Median round trip that ping measures between the first and the last host; raises MachineError."""
        target = self.addresses(len(self.hosts) - 1)[0]
        command = self.hosts[0].command(["ping", "-n", "-c", "21", "-i", "0.02", target])
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        times = sorted(
            float(line.partition("time=")[2].split()[0])
            for line in done.stdout.splitlines()
            if "time=" in line
        )
        if not times:
            raise MachineError("no ping came back", where="star")
        return times[len(times) // 2] / 1e3

    def _obey(self, command: str) -> dict[str, Any]:
        with self._turn:  # links of a WAN change while others ask
            self._switch.tell(command)
            return self._switch.answer()


class LeafSpine(Star):
    """A leaf-spine network: each host has one port at a leaf, and every leaf one port to each spine."""

    def __init__(
        self, hosts: Sequence[NamespaceHandle], spines: int, switch: Program, *, leaves: int, in_turn: int
    ) -> None:
        super().__init__(hosts, spines, switch)
        self.ports_of_host = 1
        self._leaves = leaves
        self._in_turn = in_turn

    def routed_address(self, host: int) -> str:
        """Address of the host with this number (from 0); packets to it are spread by hash (ECMP)."""
        return f"10.{self.paths + 1}.0.{host + 1}"

    def leaf_of(self, host: int) -> int:
        """Number of the leaf of host 0, 1, …"""
        return host // self._in_turn % self._leaves

    def set_uplinks(self, bits_per_second: int) -> None:
        """Set the rate of each port between a leaf and a spine, in both directions."""
        self._obey(f"leaves {self._leaves} {self.paths} {bits_per_second} {self._in_turn}")


@contextmanager
def running_star(hosts: int, paths: int = 1) -> Iterator[Star]:
    """Make a star network and remove it when the block ends; raises MachineError."""
    with running_switch(hosts) as (names, switch):
        star = Star(names, paths, switch)
        set_up(star)
        yield star


@contextmanager
def running_leaf_spine(
    hosts: int,
    spines: int,
    rate_bps: int,
    *,
    oversubscription: float = 4.0,
    leaves: int = 2,
    in_turn: int = 1,
) -> Iterator[LeafSpine]:
    """Make a leaf-spine network and remove it when the block ends; raises MachineError.

    Args:
        hosts: how many hosts there are, attached leaf by leaf.
        spines: how many spines there are, each with one port to each leaf.
        rate_bps: rate of a host's line.
        oversubscription: ratio of the rates of all hosts of a leaf to the rates of its uplinks.
        leaves: how many leaves there are, at most 8.
        in_turn: how many hosts are attached to a leaf before the next leaf has its turn.
    """
    with running_switch(hosts) as (names, switch):
        network = LeafSpine(names, spines, switch, leaves=leaves, in_turn=in_turn)
        network.set_uplinks(round(hosts * rate_bps / (leaves * spines * oversubscription)))
        set_up(network)
        yield network


@contextmanager
def running_switch(
    hosts: int, prefix: str = "", names: Sequence[str] = ()
) -> Iterator[tuple[list[NamespaceHandle], Program]]:
    """Make hosts' namespaces and star.c with a line to each, until the block ends. Raises MachineError.

    Args:
        hosts: how many hosts there are.
        prefix: prefix of the namespaces' names; empty: one that is unique to this process.
        names: names of the hosts, behind the prefix; empty: `h1`, `h2`, …
    """
    need("ip", "tc", "ping", "gcc")
    own = prefix or f"mltswitch-star-{os.getpid()}-{next(_networks)}"
    found = [NamespaceHandle(f"{own}-{name}") for name in names or [f"h{at}" for at in range(1, hosts + 1)]]
    here = NamespaceHandle(f"{own}-{SWITCH}")
    made: list[NamespaceHandle] = []
    try:
        for namespace in (here, *found):
            ip([f"netns add {namespace.name}"])
            made.append(namespace)
        with tempfile.TemporaryDirectory(prefix="mltswitch-star-") as folder:
            program = compiled(SOURCE, Path(folder))
            with Program(here, [str(program), *(name.name for name in found)]) as switch:
                switch.wait_for("ready")
                yield found, switch
    finally:
        for namespace in made:
            subprocess.run(["ip", "netns", "delete", namespace.name], check=False, capture_output=True)


def set_up(star: Star) -> None:
    """Set up interfaces, addresses and routes of all hosts of a star; raises MachineError."""
    for number, name in enumerate(star.hosts):
        routed = star.routed_address(number)
        lines = [
            "link set lo up",
            f"link set {INTERFACE} mtu {MTU_BYTES} txqueuelen {LINE_QUEUE_PACKETS} up",
            *(
                f"addr add {address}/32 dev {INTERFACE}"
                for address in dict.fromkeys([routed, *star.addresses(number)])
            ),
            f"route add 10.0.0.0/8 dev {INTERFACE} src {routed}",
        ]
        ip(lines, name.name)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[:1] or [f"exit code {done.returncode}"]
        raise MachineError(last[0], where=command[0])
