"""The tables of one run, kept alive and grown for the compiled engine."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.network import engine
from mltswitch.network.fabric import NO_BOUND, Network
from mltswitch.network.records import (
    ENDED,
    ENTRY,
    FLOW,
    GROW,
    HEAP,
    HOP,
    NEVER,
    NONE,
    PACKET,
    PLACE,
    POOL,
    PORT,
    QUEUE,
    RING,
    SETTINGS,
    START,
    WORD,
    WORLD,
)
from mltswitch.network.workloads import Flow

Records = NDArray[np.void]

FIRST_PACKETS: Final = 4096
"""Places for packets to begin with; they double when they are full."""
EVENTS_AT_ONCE: Final = 1_000_000
"""Between two looks at the keyboard and two lines of progress."""


class World:
    """The state of one simulation: a network, its flows, and how far each has come."""

    def __init__(
        self, network: Network, flows: Sequence[Flow], settings: dict[str, Any], *, seed: int, spraying: bool
    ) -> None:
        """Lay out the tables.

        Args:
            network: Ports, memory, queues.
            flows: What is sent.
            settings: Fields of SETTINGS.
            seed: Of paths, losses and importance.
            spraying: Each packet draws its path; else all of a flow take the one that its hash names.
        """
        self.network = network
        random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x6E65,)))
        self.tables: dict[str, Records] = {
            "packets": _free_packets(0, FIRST_PACKETS),
            "ports": _ports(network),
            "pools": _pools(network),
            "queues": _queues(network),
            "settings": np.zeros(1, SETTINGS),
            "rings": np.full(network.hosts * network.classes, NONE, np.int32).view(RING),
        }
        for name, value in settings.items():
            self.tables["settings"][name] = value
        self.tables["flows"] = self._flows(flows, random, spraying)
        self.tables["hops"] = np.array(network.hops, np.int32).view(HOP)
        order = np.argsort(self.tables["flows"]["start"], kind="stable")
        starts = np.zeros(len(flows), START)
        starts["flow"] = order
        starts["time"] = self.tables["flows"]["start"][order]
        self.tables["starts"] = starts
        self.heaps = [_heap(len(network.ports)), _heap(len(flows))]
        self._heap_table = np.zeros(len(self.heaps), HEAP)
        for row, (entries, places) in zip(self._heap_table, self.heaps, strict=True):
            row["entries"], row["places"] = entries.ctypes.data, places.ctypes.data
        self.state = np.zeros(1, WORLD)
        for name, table in self.tables.items():
            self.state[name] = table.ctypes.data
        self.state["heaps"] = self._heap_table.ctypes.data
        self.state["order"] = 1
        self.state["random"], self.state["tag_seed"] = random.integers(0, 2**64, 2, np.uint64)
        self.state["hosts"], self.state["classes"] = network.hosts, network.classes
        self.state["start_count"] = len(flows)
        self.state["packet_places"] = FIRST_PACKETS
        self.state["begun"] = self.state["arrived"] = NONE

    def _flows(self, flows: Sequence[Flow], random: np.random.Generator, spraying: bool) -> Records:
        table, network = np.zeros(len(flows), FLOW), self.network
        payload = int(self.tables["settings"]["payload"][0])
        sizes = np.array([flow.size_bytes for flow in flows], np.int64)
        table["size_bytes"] = sizes
        table["packets"] = -(-sizes // payload)
        table["start"] = [flow.start_picoseconds for flow in flows]
        table["finish"] = NONE
        table["source"] = [flow.source for flow in flows]
        table["destination"] = [flow.destination for flow in flows]
        table["queue"] = [flow.traffic_class for flow in flows]
        table["back_queue"] = [network.answer_class(flow.traffic_class) for flow in flows]
        table["ring"] = NONE
        words = -(-table["packets"].astype(np.int64) // 64)
        table["bits"] = 2 * (np.cumsum(words) - words)
        self.tables["words"] = np.zeros(2 * int(words.sum()) + 1, np.uint64).view(WORD)
        hashes = random.integers(0, 2**31, (len(flows), 2))
        for row, flow, (there, back) in zip(table, flows, hashes, strict=True):
            for ends, hashed, names in (
                ((flow.source, flow.destination), there, ("path", "paths", "stride")),
                ((flow.destination, flow.source), back, ("back", "backs", "back_stride")),
            ):
                first, count, stride = network.ways(*ends)
                if not spraying:
                    first, count = first + stride * int(hashed % count), 1
                for name, value in zip(names, (first, count, stride), strict=True):
                    row[name] = value
        return table

    @property
    def now_picoseconds(self) -> int:
        """Simulated time."""
        return int(self.state["now"][0])

    @property
    def next_picoseconds(self) -> int:
        """When something happens next; NEVER: nothing will."""
        times = [
            int(entries["time"][0])
            for (entries, _), row in zip(self.heaps, self._heap_table, strict=True)
            if row["count"]
        ]
        begun = self.count("next_start")
        times += [int(time) for time in self.tables["starts"]["time"][begun : begun + 1]]
        return min(times, default=NEVER)

    def count(self, name: str) -> int:
        """A field of WORLD."""
        return int(self.state[name][0])

    @property
    def flows(self) -> Records:
        """The table of flows."""
        return self.tables["flows"]

    def advance(self, until_picoseconds: int = NEVER, events: int = EVENTS_AT_ONCE) -> bool:
        """Go on for so many events; whether anything is left to happen."""
        last = self.count("events") + events
        while True:
            left = last - self.count("events")
            try:
                came_to = engine.run(self.state[0], until_picoseconds, left)
            except SystemError as error:
                # What an interrupt within compiled code comes out as.
                if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from None
                raise
            if came_to != GROW:
                return bool(came_to != ENDED)
            self._grow()

    def _grow(self) -> None:
        old = self.tables["packets"]
        count = len(old)
        new = np.concatenate([old, _free_packets(count, 2 * count)])
        new["next"][-1] = self.count("free")
        self.tables["packets"] = new
        self.state["packets"] = new.ctypes.data
        self.state["free"] = count
        self.state["packet_places"] = 2 * count


def _free_packets(first: int, end: int) -> Records:
    packets = np.zeros(end - first, PACKET)
    packets["next"] = np.arange(first + 1, end + 1)
    packets["next"][-1] = NONE
    return packets


def _heap(count: int) -> tuple[Records, Records]:
    return np.zeros(count, ENTRY), np.full(count, NONE, np.int32).view(PLACE)


def _ports(network: Network) -> Records:
    table = np.zeros(len(network.ports), PORT)
    table["first"] = table["last"] = NONE
    for row, port in zip(table, network.ports, strict=True):
        row["bps"], row["delay"], row["loss"] = port.rate_bps, port.delay_picoseconds, port.loss
        row["pool"] = port.pool
        row["guaranteed"] = any(rule.share > 0 for rule in port.rules)
    return table


def _pools(network: Network) -> Records:
    table = np.zeros(len(network.pools_bytes), POOL)
    table["size"] = network.pools_bytes
    return table


def _queues(network: Network) -> Records:
    table = np.zeros(len(network.ports) * network.classes, QUEUE)
    table["head"] = table["tail"] = NONE
    rules = [rule for port in network.ports for rule in port.rules]
    for name in ("threshold", "limit", "alpha"):
        values = [getattr(rule, name) for rule in rules]
        table[name] = [NO_BOUND if value is None else value for value in values]
    table["share"] = [rule.share for rule in rules]
    return table
