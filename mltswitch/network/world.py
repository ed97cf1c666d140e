"""The tables of one run, kept alive and grown for the compiled engine."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.network import engine
from mltswitch.network.fabric import NO_BOUND, Network
from mltswitch.network.faults import Fault, apply_faults, change_times
from mltswitch.network.records import (
    CALLED,
    ENDED,
    ENTRY,
    FLOW,
    FOLLOWER,
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
    STEP,
    TASK,
    WORD,
    WORLD,
)
from mltswitch.network.workloads import Flow, Step, Work

Records = NDArray[np.void]

FIRST_PACKETS: Final = 4096
"""Places for packets to begin with; they double when they are full."""
GROWING: Final = ("packets", "hops")
"""Tables that a run makes longer."""
EVENTS_AT_ONCE: Final = 1_000_000
"""Between two looks at the keyboard and two lines of progress."""
MOST_DEPTHS: Final = 512
"""Samples of the queues' depth; when there are as many, every second one goes, and the interval doubles."""
FIRST_DEPTH_PICOSECONDS: Final = 1_000_000


class World:
    """The state of one simulation: a network, its flows, and how far each has come."""

    def __init__(
        self,
        network: Network,
        flows: Sequence[Flow],
        settings: dict[str, Any],
        *,
        seed: int,
        spraying: bool,
        faults: Sequence[Fault] = (),
        has_depths: bool = False,
    ) -> None:
        """Lay out the tables.

        Args:
            network: Ports, memory, queues.
            flows: What is sent; where it is a Work, also what hosts compute between.
            settings: Fields of SETTINGS.
            seed: Of paths, losses and importance.
            spraying: Each packet draws its path; else all of a flow take the one that its hash names.
            faults: Links that lose packets for some time.
            has_depths: The depth of all ports' queues is sampled over time.
        """
        self.network = network
        self.spraying = spraying
        self._faults = faults
        self._changes = change_times(faults)
        self._depths = np.zeros((MOST_DEPTHS if has_depths else 0, 1 + len(network.ports)), np.int64)
        random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x6E65,)))
        self.tables: dict[str, Records] = {
            "packets": _free_packets(0, FIRST_PACKETS),
            "ports": _ports(network),
            "pools": _pools(network),
            "queues": _queues(network),
            "settings": np.zeros(2, SETTINGS),
            "rings": np.full(network.hosts * network.classes, NONE, np.int32).view(RING),
        }
        for name, value in settings.items():
            self.tables["settings"][name] = value
        gradients = network.switch_rules.gradients
        self.tables["settings"]["first_class"] = gradients[0]
        self.tables["settings"]["last_class"] = gradients[-1]
        self.tables["settings"]["loss_bound"][1] = 0.0
        self.tables["flows"] = self._flows(flows, random, spraying)
        self.tables["hops"] = np.array(network.hops, np.int32).view(HOP)
        self._add_tasks(flows, flows.steps if isinstance(flows, Work) else [])
        self.heaps = [_heap(len(network.ports) + network.hosts), _heap(len(self.tables["tasks"]) - 1)]
        self._heap_table = np.zeros(len(self.heaps), HEAP)
        self.state = np.zeros(1, WORLD)
        self._bind()
        self.state["depth_interval"] = FIRST_DEPTH_PICOSECONDS
        self.state["order"] = 1
        self.state["random"], self.state["tag_seed"] = random.integers(0, 2**64, 2, np.uint64)
        self.state["hosts"], self.state["classes"] = network.hosts, network.classes
        self.state["port_count"] = len(network.ports)
        self.state["start_count"], self.state["flow_count"] = len(self.tables["starts"]), len(flows)
        self.state["ended"] = NONE
        self.state["packet_places"] = FIRST_PACKETS
        self.state["begun"] = self.state["arrived"] = NONE

    def _bind(self) -> None:
        """Write the addresses of all tables."""
        for row, (entries, places) in zip(self._heap_table, self.heaps, strict=True):
            row["entries"], row["places"] = entries.ctypes.data, places.ctypes.data
        for name, table in self.tables.items():
            self.state[name] = table.ctypes.data
        self.state["heaps"] = self._heap_table.ctypes.data

    def replace(self, name: str, table: Records) -> None:
        """Put another table in the place of one."""
        self.tables[name] = table
        self.state[name] = table.ctypes.data

    def all_tables(self) -> dict[str, NDArray[Any]]:
        """All that changes as the run goes on; addresses in it are of this process."""
        heaps = {f"heap {place}": each for place, each in enumerate(chain.from_iterable(self.heaps))}
        rest = {"heap table": self._heap_table, "state": self.state, "depths": self._depths}
        return {**self.tables, **heaps, **rest}

    def restore(self, tables: Mapping[str, NDArray[np.uint8]]) -> None:
        """Go to where the tables of a world that was made alike were; raises ValueError for other ones."""
        found = {}
        for name, own in self.all_tables().items():
            found[name] = tables[name].view(own.dtype)
            if name not in GROWING and found[name].size != own.size:
                raise ValueError(f"{name} has another length")
        if len(found["packets"]) != found["state"]["packet_places"][0]:
            raise ValueError("packets have another length")
        for name, own in self.all_tables().items():
            if name in self.tables:
                self.tables[name] = found[name]
            else:
                own[:] = found[name].reshape(own.shape)
        self._bind()

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
        table["settings"] = [flow.lossless for flow in flows]
        table["ring"] = NONE
        table["pair"] = np.arange(len(flows))
        if self.tables["settings"]["pairs"][0]:
            ends = table["source"].astype(np.int64) * network.hosts + table["destination"]
            _, firsts, which = np.unique(ends, return_index=True, return_inverse=True)
            table["pair"] = firsts[which]
        words = -(-table["packets"].astype(np.int64) // 64)
        bitmaps = int(self.tables["settings"]["bitmaps"][0])
        table["bits"] = bitmaps * (np.cumsum(words) - words)
        self.tables["words"] = np.zeros(bitmaps * int(words.sum()) + 1, np.uint64).view(WORD)
        hashes = self.hashes = random.integers(0, 2**31, (len(flows), 2))
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

    def _add_tasks(self, flows: Sequence[Flow], steps: Sequence[Step]) -> None:
        """The tables of what waits for what, in which steps come behind all flows."""
        tasks: list[Flow | Step] = [*flows, *steps]
        waits = np.array([len(task.after) for task in tasks], np.int32)
        before = np.array([number for task in tasks for number in task.after], np.int64)
        before[before < 0] = len(flows) + ~before[before < 0]
        table = np.zeros(len(tasks) + 1, TASK)
        table["waits"][:-1] = waits
        table["followers"][1:] = np.cumsum(np.bincount(before, minlength=len(tasks)))
        followers = np.repeat(np.arange(len(tasks), dtype=np.int32), waits)
        followers = followers[np.argsort(before, kind="stable")]
        self.tables["tasks"], self.tables["followers"] = table, followers.view(FOLLOWER)
        self.tables["steps"] = np.zeros(len(steps), STEP)
        self.tables["steps"]["finish"] = NONE
        self.tables["steps"]["duration"] = [step.picoseconds for step in steps]
        times = np.array([task.start_picoseconds for task in tasks], np.int64)
        first = np.flatnonzero(waits == 0)
        first = first[np.argsort(times[first], kind="stable")]
        starts = np.zeros(len(first), START)
        starts["task"], starts["time"] = first, times[first]
        self.tables["starts"] = starts

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
            pause = self._next_pause()
            try:
                came_to = engine.run(self.state[0], min(until_picoseconds, pause - 1), left)
            except SystemError as error:
                # What an interrupt within compiled code comes out as.
                if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from None
                raise
            if came_to == GROW:
                self._grow()
            elif came_to == CALLED:
                return True
            elif came_to == ENDED or pause > until_picoseconds or self.count("events") >= last:
                return bool(came_to != ENDED)
            else:
                self._paused(pause)

    def _pass_pauses(self, until_picoseconds: int) -> None:
        """Do what is due up to a time at which nothing that the engine knows happens any more."""
        while (pause := self._next_pause()) <= until_picoseconds:
            self._paused(pause)

    def _next_pause(self) -> int:
        """When links change or queues are sampled next, before all else that happens then."""
        times = self._changes[self.count("next_change") :][:1]
        if len(self._depths):
            times.append(self.count("depth_count") * self.count("depth_interval"))
        return min(times, default=NEVER)

    def _paused(self, time: int) -> None:
        if time in self._changes[self.count("next_change") :][:1]:
            self.state["next_change"] += 1
            apply_faults(self, self._faults, time)
        count, interval = self.count("depth_count"), self.count("depth_interval")
        if not len(self._depths) or time != count * interval:
            return
        if count == MOST_DEPTHS:
            self._depths[: count // 2] = self._depths[::2].copy()
            self.state["depth_count"], self.state["depth_interval"] = count // 2, 2 * interval
            count //= 2
        by_class = self.tables["queues"]["bytes"].reshape(-1, self.network.classes)
        self._depths[count] = [time, *by_class.sum(axis=1)]
        self.state["depth_count"] += 1

    @property
    def depths(self) -> NDArray[np.int64]:
        """Samples of the queues over time: picoseconds, and bytes that wait at each port."""
        return self._depths[: self.count("depth_count")]

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
    table["first"] = table["last"] = table["pulls"] = NONE
    table["discipline"][network.hosts :] = network.switch_rules.discipline
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
