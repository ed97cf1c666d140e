"""From a topology and the switches' rules to sending ports, their queues and the ways between hosts."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.network.units import PICOSECONDS
from mltswitch.plan import Host, Port, Switch, Topology

NO_BOUND: Final = float("inf")
PLAIN, MARK_BY_PORT, BY_RANK, TRIM = range(4)
"""What ports of switches do: judge each queue by its rule; compare thresholds with what waits in all queues
of the port; serve and drop by the rank of packets (pFabric); cut packets down to their headers (NDP)."""
HOST_MEMORY_BYTES: Final = 1 << 50
"""A host's own queue drops nothing."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What one queue does; None: no such rule."""

    threshold: float | None = None
    """Bytes waiting above which packets are marked or dropped (S of a plan, K of DCTCP)."""
    limit: float | None = None
    alpha: float | None = None
    share: float = 0.0
    """Share (0 to 1) of the line that the queue is guaranteed, however much waits in queues before it."""


@dataclass(frozen=True, slots=True)
class SwitchRules:
    """What every port of the switches does with packets."""

    classes: tuple[str, ...]
    """In order of service."""
    answer_classes: tuple[int, ...]
    """Class of data → that of its acknowledgements and signals."""
    gradients: tuple[int, ...]
    """Classes of gradients, front layers first."""
    rules: Callable[[Switch, Port], tuple[Rule, ...]]
    memory: Callable[[Switch, Port], tuple[str, int]]
    """Whose packet memory a port uses (ports that share one have the same name), and its bytes."""
    discipline: int = PLAIN

    background_class: int | None = None
    """Of traffic that is no training's; None: that of the last layers."""

    @property
    def background(self) -> int:
        """The class of traffic that is no training's."""
        return self.gradients[-1] if self.background_class is None else self.background_class

    def class_of(self, layer: int, layers: int) -> int:
        """The class of a layer, in forward order, of so many."""
        return self.gradients[layer * len(self.gradients) // layers]


@dataclass(frozen=True, slots=True)
class SendingPort:
    """One direction of a link, at its sender."""

    name: str
    rate_bps: int
    delay_picoseconds: int
    loss: float
    pool: int
    rules: tuple[Rule, ...]


@dataclass(slots=True)
class Network:
    """Ports of hosts first, in their order; then those of switches."""

    topology: Topology
    switch_rules: SwitchRules
    link_loss: float
    in_turn: bool = False
    """Whether hosts are numbered from leaf to leaf in turn, instead of leaf by leaf."""
    ports: list[SendingPort] = field(default_factory=list)
    pools_bytes: list[int] = field(default_factory=list)
    hops: list[int] = field(default_factory=list)
    """Port numbers of all ways in a row, -1 at the end of each."""
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    _ways: dict[tuple[str, int], tuple[int, int, int]] = field(default_factory=dict)
    _hosts: list[Host] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._hosts += self.topology.hosts
        if self.in_turn:
            seen: Counter[str] = Counter()
            turns = {host.name: seen.update([host.leaf]) or seen[host.leaf] for host in self._hosts}
            self._hosts.sort(key=lambda host: turns[host.name])
        pools: dict[str, int] = {}
        ends = [(switch, port) for switch in self.topology.switches for port in switch.ports]
        down = {port.number: port for _, port in ends if port.peer_is_host}
        for host in self._hosts:
            rules = (Rule(),) * self.classes
            pool = self._pool(pools, f"host {host.name}", HOST_MEMORY_BYTES)
            line = down[host.index]
            self.ports.append(
                SendingPort(host.name, line.rate_bps, _picoseconds(line), self.link_loss, pool, rules)
            )
        for switch, port in ends:
            if port.lag:
                raise UserInputError(
                    "link aggregation groups are not simulated",
                    where=f"{switch.name}:{port.name}",
                    hint="take parallel links, each a path of its own",
                )
            pool = self._pool(pools, *self.switch_rules.memory(switch, port))
            self._numbers[switch.name, port.name] = len(self.ports)
            self.ports.append(
                SendingPort(
                    f"{switch.name}:{port.name}",
                    port.rate_bps,
                    _picoseconds(port),
                    self.link_loss,
                    pool,
                    self.switch_rules.rules(switch, port),
                )
            )

    def _pool(self, pools: dict[str, int], name: str, size_bytes: int) -> int:
        if name not in pools:
            pools[name] = len(self.pools_bytes)
            self.pools_bytes.append(size_bytes)
        return pools[name]

    @property
    def hosts(self) -> int:
        """How many hosts send and receive."""
        return len(self._hosts)

    @property
    def classes(self) -> int:
        """Queues of each port."""
        return len(self.switch_rules.classes)

    def answer_class(self, traffic_class: int) -> int:
        """The class of acknowledgements and signals of a flow of this class."""
        return self.switch_rules.answer_classes[traffic_class]

    def ways(self, source: int, destination: int) -> tuple[int, int, int]:
        """Place of the first way in `hops`, how many there are, and places from one to the next."""
        hosts = self._hosts
        leaf = hosts[source].leaf
        key = (leaf, destination)
        if key not in self._ways:
            self._ways[key] = self._add_ways(hosts[source], hosts[destination])
        return self._ways[key]

    def _add_ways(self, source: Host, destination: Host) -> tuple[int, int, int]:
        first = len(self.hops)
        if source.leaf == destination.leaf:
            self.hops += [self._numbers[destination.leaf, destination.leaf_port], -1]
            return first, 1, 0
        paths = self.topology.paths_between(source, destination)
        lengths = set()
        for path in paths:
            way = self.topology.walk(source, destination, path)
            self.hops += [*(self._numbers[switch, port.name] for switch, port in way), -1]
            lengths.add(len(way) + 1)
        (stride,) = lengths
        return first, len(paths), stride


def bandwidth_delay_bytes(topology: Topology, packet_bytes: int, answer_bytes: int) -> int:
    """What a host sends in the longest of its round trips over empty lines, as seen from the first host."""
    first, *others = topology.hosts
    ends = {host.leaf: host for host in others}
    longest = 0.0
    line = topology.switch(first.leaf).port(first.leaf_port)
    for host in ends.values():
        for path in topology.paths_between(first, host):
            ports = [line, *(port for _, port in topology.walk(first, host, path))]
            both = (packet_bytes + answer_bytes) * 8
            longest = max(longest, sum(2 * port.delay_seconds + both / port.rate_bps for port in ports))
    return round(longest * line.rate_bps / 8)


def _picoseconds(port: Port) -> int:
    return round(port.delay_seconds * PICOSECONDS)
