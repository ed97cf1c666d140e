"""MLCommons Chakra execution traces: what each rank computes and communicates, and what waits for what."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from mltswitch.documents import SparseDocument
from mltswitch.errors import UserInputError
from mltswitch.network.workloads.base import After, Extent, Flow, Stage, Work
from mltswitch.network.workloads.collectives import all_to_all, ring_pass, shares
from mltswitch.network.workloads.trace_files import COLLECTIVE, RECEIVE, SEND, Node, read_trace

ENDINGS: Final = (".et", ".json")
MOST_FLOWS: Final = 10_000_000
COLLECTIVES: Final = {0: "ALL_REDUCE", 2: "ALL_GATHER", 6: "ALL_TO_ALL", 7: "REDUCE_SCATTER", 9: "BARRIER"}
"""Those that are played, by their number in the schema."""


class Key(NamedTuple):
    """A node of a rank."""

    rank: int
    number: int


class Chakra(SparseDocument):
    """A trace of each rank; rank r runs on host r."""

    kind: Literal["chakra"]
    trace: str
    """What the files' names begin with: `trace` for `trace.0.et`, `trace.1.et` and so on, or `.json`."""

    def __getstate__(self) -> dict[Any, Any]:
        """Without the nodes, which other processes read for themselves."""
        state = super().__getstate__()
        own = {name: value for name, value in state["__dict__"].items() if name != "nodes"}
        return state | {"__dict__": own}

    @cached_property
    def nodes(self) -> dict[Key, Node]:
        """The nodes of all ranks; raises UserInputError where a rank is missing, or its file is wrong."""
        prefix, files = Path(self.trace), dict[int, Path]()
        for path in sorted(prefix.parent.iterdir()) if prefix.parent.is_dir() else []:
            name = path.name.removeprefix(f"{prefix.name}.").removesuffix(path.suffix)
            is_trace = path.suffix in ENDINGS and path.name == f"{prefix.name}.{name}{path.suffix}"
            if is_trace and name.isdecimal():
                files.setdefault(int(name), path)
        for rank in range(max(files, default=0) + 1):
            if rank not in files:
                what, expected = f"the trace of rank {rank} is missing", f"{prefix}.{rank}.et"
                raise UserInputError(what, where="workload.trace", expected=expected)
        return {
            Key(rank, node.number): node
            for rank in sorted(files)
            for node in sorted(read_trace(files[rank]), key=lambda node: node.number)
        }

    def extent(self, stage: Stage) -> Extent:
        """How much there is to send; raises UserInputError for a trace that cannot be played to its end."""
        count = 1 + max((key.rank for key in self.nodes), default=0)
        stage.need(count, f"{count} ranks of the trace")
        most = sum(2 * len(each) ** 2 for each in self._groups().values()) + len(self.nodes)
        if most > MOST_FLOWS:
            raise UserInputError(
                f"the trace's collectives are up to {most:.2g} flows",
                where="workload.trace",
                expected=f"at most {MOST_FLOWS}",
            )
        work = self.flows(stage)
        sizes = [flow.size_bytes for flow in work]
        microseconds = sum(node.microseconds for node in self.nodes.values())
        return Extent(len(sizes), sum(sizes), max(sizes, default=0), microseconds / 1e6, len(work.steps))

    def flows(self, stage: Stage) -> Work:
        """Nodes in an order in which each follows all that it waits for, a collective what its nodes do."""
        nodes, groups, sends, work = self.nodes, self._groups(), self._sends(), Work()
        own = {key: [Key(key.rank, each) for each in node.before] for key, node in nodes.items()}
        before: dict[Hashable, list[Key | Hashable]] = {
            key: [*each, *([sends[key]] if key in sends else [])] for key, each in own.items()
        }
        for group, members in groups.items():
            before[group] = [each for key in members for each in own[key]]
            before |= {key: [group] for key in members}
        done: dict[Hashable, After] = {}

        def waits(keys: Sequence[Hashable]) -> After:
            return tuple(dict.fromkeys(each for key in keys for each in done[key]))

        for each in self._order(before):
            if not isinstance(each, Key):
                after = [waits(own[key]) for key in groups[each]]
                done |= dict(
                    zip(groups[each], self._collective(work, stage, groups[each], after), strict=True)
                )
            elif nodes[each].kind == SEND:
                size_bytes = self._integer(each, "comm_size", 1)
                ends = each.rank, self._integer(each, "comm_dst")
                done[each] = (work.send(_flow(stage, nodes[each], *ends, size_bytes, waits(own[each]))),)
            elif nodes[each].kind != COLLECTIVE:
                microseconds = 0 if nodes[each].kind == RECEIVE else nodes[each].microseconds
                done[each] = work.compute(each.rank, microseconds / 1e6, waits(before[each]))
        of_rank: defaultdict[int, list[Key]] = defaultdict(list)
        for key in nodes:
            of_rank[key.rank].append(key)
        for rank, keys in of_rank.items():
            work.end_round("", rank, 0, waits(keys))
        return work

    def _order(self, before: dict[Hashable, list[Key | Hashable]]) -> list[Hashable]:
        try:
            return [*TopologicalSorter(before).static_order()]
        except CycleError as error:
            keys = [key for key in error.args[1] if isinstance(key, Key)]
            cycle = ", ".join(f"node {key.number} of rank {key.rank}" for key in keys[::-1][:5])
            raise UserInputError(f"nodes wait for each other: {cycle}", where="workload.trace") from None

    def _collective(self, work: Work, stage: Stage, members: list[Key], after: list[After]) -> list[After]:
        """Add the flows of a collective operation; returns when each rank has its result."""
        node, hosts = self.nodes[members[0]], [key.rank for key in members]
        kind = COLLECTIVES[self._integer(members[0], "comm_type")]
        size_bytes = 0 if kind == "BARRIER" else self._integer(members[0], "comm_size", 1)
        parts = shares(size_bytes, len(hosts))

        def make(source: int, destination: int, part: int, before: After, is_result: bool) -> Flow:
            return _flow(stage, node, source, destination, part, before, is_result)

        if kind == "ALL_TO_ALL":
            return all_to_all(work, hosts, parts, after, make)
        if kind == "ALL_GATHER":  # the size is that of one rank's part
            parts = [size_bytes] * len(hosts)
        reduces, gathers = kind != "ALL_GATHER", kind != "REDUCE_SCATTER"
        return ring_pass(work, hosts, parts, after, make, reduces=reduces, gathers=gathers)

    def _sends(self) -> dict[Key, Key]:
        """The send that each receive waits for: those from one rank to another with the same tag, in turn."""
        channels: defaultdict[tuple[int, int, int], tuple[list[Key], list[Key]]] = defaultdict(
            lambda: ([], [])
        )
        ranks = {key.rank for key in self.nodes}
        for key, node in self.nodes.items():
            if node.kind not in (SEND, RECEIVE):
                continue
            peer = self._integer(key, "comm_dst" if node.kind == SEND else "comm_src")
            if peer not in ranks or peer == key.rank:
                raise self._wrong(key, f"there is no rank {peer} beside rank {key.rank}")
            ends = (key.rank, peer) if node.kind == SEND else (peer, key.rank)
            tag = self._integer(key, "comm_tag") if "comm_tag" in node.attributes else 0
            channels[*ends, tag][node.kind == RECEIVE].append(key)
        pairs: dict[Key, Key] = {}
        for (source, destination, tag), both in channels.items():
            for send, receive in zip_longest(*both):
                if send is None or receive is None:
                    what = "receives what nobody sends" if send is None else "sends what nobody receives"
                    raise self._wrong(receive or send, f"{what} (rank {source} to {destination}, tag {tag})")
                pairs[receive] = send
        return pairs

    def _groups(self) -> dict[Hashable, list[Key]]:
        """The collectives: those of one process group (`pg_name`) meet in the order of their nodes."""
        of_group: defaultdict[str, defaultdict[int, list[Key]]] = defaultdict(lambda: defaultdict(list))
        for key, node in self.nodes.items():
            if node.kind == COLLECTIVE:
                if (kind := self._integer(key, "comm_type")) not in COLLECTIVES:
                    known = ", ".join(COLLECTIVES.values())
                    raise self._wrong(key, f"collective {kind} is not played", known)
                of_group[str(node.attributes.get("pg_name", ""))][key.rank].append(key)
        groups: dict[Hashable, list[Key]] = {}
        for name, by_rank in of_group.items():
            ranks = [*by_rank] if name else sorted({key.rank for key in self.nodes})
            for place, members in enumerate(zip_longest(*(by_rank[rank] for rank in ranks))):
                first = next(key for key in members if key is not None)
                for rank, key in zip(ranks, members, strict=True):
                    if key is None:
                        raise self._wrong(first, f"rank {rank} takes no part in it")
                    for what in ("comm_type", "comm_size"):
                        if self.nodes[key].attributes.get(what) != self.nodes[first].attributes.get(what):
                            problem = f"{what} differs from that of node {first.number} of rank {first.rank}"
                            raise self._wrong(key, problem)
                groups[name, place] = [*members]
        return groups

    def _integer(self, key: Key, name: str, least: int = 0) -> int:
        value = self.nodes[key].attributes.get(name)
        if not str(value).isdecimal() or int(str(value)) < least:
            raise self._wrong(key, f"{name} is {value!r:.40}", f"{least} or more")
        return int(str(value))

    def _wrong(self, key: Key, what: str, expected: str = "") -> UserInputError:
        where = f"{self.trace}: rank {key.rank}, node {key.number} ({self.nodes[key].name[:40]})"
        return UserInputError(what, where=where, expected=expected)


def _flow(
    stage: Stage, node: Node, source: int, destination: int, size: int, after: After, lossless: bool = True
) -> Flow:
    traffic_class = stage.class_of(0, 1)
    return Flow(source, destination, size, traffic_class, label=node.name, after=after, lossless=lossless)
