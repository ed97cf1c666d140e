"""Hosts around one switch that has queues, a rate, a delay and random loss: a network to measure in.

The switch is star.c, compiled on the spot: strict priority between queues, S and L of a port profile, bytes
as a plan counts them. Use it where user-mode-linux, the switch of `Lab`, is too slow, or where the kernel has
no netem; one core carries some 100,000 packets a second. Host H has the address 10.P.0.H on path P. The same
program is two tiers of switches, `LeafSpine`, whose spines are the paths.
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
"""Between a host and the switch: no limit that a host's own rate could reach."""
HOST_BURST_BYTES: Final = 20_000
HOST_BACKLOG_BYTES: Final = 200_000_000
"""A host's own queue in front of its line: never the place where something is lost."""
PROCESS_PATIENCE_SECONDS: Final = 300.0
"""For a line of a process on a host: on a busy machine torch alone takes a minute to load."""
MTU_BYTES: Final = 1500
LINK_BYTES: Final = 14
"""Of Ethernet: a packet on the line, and in a queue, is so much longer than its IP length."""
_networks: Final = count(1)
"""Of this process, which may have several at a time."""
QUEUES: Final = 8
DSCPS: Final = 64


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of the port, and what is sorted into it."""

    threshold_bytes: int
    """S; equal to the limit where nothing is marked."""
    limit_bytes: int
    """L."""
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
    """A port without a plan: whatever comes waits in one line, and what does not fit is dropped."""
    return (Queue(limit_bytes, limit_bytes, tuple(range(DSCPS))),)


class Star:
    """Hosts, and the switch between them."""

    def __init__(self, hosts: Sequence[NamespaceHandle], paths: int, switch: Program) -> None:
        self.hosts = hosts
        self.paths = paths
        self.ports_of_host = paths
        self._switch = switch
        self._turn = threading.Lock()

    def addresses(self, host: int) -> tuple[str, ...]:
        """Addresses of host 0, 1, …: one a path."""
        return tuple(f"10.{path}.0.{host + 1}" for path in range(1, self.paths + 1))

    def routed_address(self, host: int) -> str:
        """Address of host 0, 1, …, for whoever does not choose paths."""
        return self.addresses(host)[0]

    def leaf_of(self, _host: int) -> int:
        """One switch is everybody's leaf."""
        return 0

    def start(self, host: int, command: Sequence[str]) -> Program:
        """A process on a host, ended with the block that it is entered by."""
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
        """Thresholds and the sorting of code points; what no queue names goes to the last."""
        if not 1 <= len(queues) <= QUEUES:
            raise MachineError(f"{len(queues)} queues", where="star", expected=f"1-{QUEUES}")
        places = dict.fromkeys(range(DSCPS), len(queues) - 1)
        for number, queue in enumerate(queues):
            self._obey(f"queue {number} {queue.threshold_bytes} {queue.limit_bytes}")
            places.update(dict.fromkeys(queue.dscps, number))
        for dscp, number in places.items():
            self._obey(f"dscp {dscp} {number}")

    def set_buffer(self, size_bytes: int) -> None:
        """Set the buffer of every port, shared by its queues, beside each one's own limit."""
        self._obey(f"buffer {size_bytes}")

    def set_classes(
        self, buffer_bytes: int, control_dscp: int, gradient_dscp: Sequence[int], marked_share: float
    ) -> None:
        """Queues of a simple plan: control, the gradient classes, background; all share the buffer.

        S of a gradient class is `marked_share` of the buffer. Without gradient classes there is no plan, and
        one queue for all.
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
        """Delay each way, so that the round trip is this long; `own_seconds` is what it is without."""
        self._obey(f"delay {max(0, round((seconds - own_seconds) / 2 * 1e9))}")

    def set_loss(self, probability: float, path: int | None = None) -> None:
        """Lose any packet with this probability, either way, on all paths or on one (from 0)."""
        self._obey(f"loss {probability}" if path is None else f"path {path + 1} loss {probability}")

    def report(self) -> dict[str, Any]:
        """Counts since the last report: of each queue by importance, and bytes of each path."""
        return self._obey("report")

    def round_trip_seconds(self) -> float:
        """Median of what ping measures between the first and the last host; raises MachineError."""
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
    """Hosts that hang on leaves, some in turn on each, by one port; and spines between the leaves."""

    def __init__(
        self, hosts: Sequence[NamespaceHandle], spines: int, switch: Program, *, leaves: int, in_turn: int
    ) -> None:
        super().__init__(hosts, spines, switch)
        self.ports_of_host = 1
        self._leaves = leaves
        self._in_turn = in_turn

    def routed_address(self, host: int) -> str:
        """Address of host 0, 1, …; packets to it take the spine that addresses and ports hash to (ECMP)."""
        return f"10.{self.paths + 1}.0.{host + 1}"

    def leaf_of(self, host: int) -> int:
        """Number of the leaf of host 0, 1, …"""
        return host // self._in_turn % self._leaves

    def set_uplinks(self, bits_per_second: int) -> None:
        """Of each port between a leaf and a spine, either way."""
        self._obey(f"leaves {self._leaves} {self.paths} {bits_per_second} {self._in_turn}")


@contextmanager
def running_star(hosts: int, paths: int = 1) -> Iterator[Star]:
    """Hosts and switch, made here and removed at the end; raises MachineError."""
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
    """Likewise, in two tiers; raises MachineError.

    Args:
        hosts: on leaf after leaf.
        spines: each has one port to each leaf.
        rate_bps: of a host's line.
        oversubscription: the lines of a leaf's hosts over its uplinks, all together.
        leaves: at most 8.
        in_turn: so many hosts hang on a leaf before the next one has its turn.
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
    """Namespaces of hosts, and star.c with a line to each; both end with the block. Raises MachineError.

    Args:
        hosts: how many.
        prefix: of namespaces' names; empty: one of this process.
        names: of the hosts, behind the prefix; none: `h1`, `h2`, …
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
    """Interfaces, addresses and routes of all hosts; raises MachineError."""
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
