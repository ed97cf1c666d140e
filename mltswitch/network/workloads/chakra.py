"""MLCommons Chakra execution traces: what each rank computes and communicates, and what waits for what."""

from collections import defaultdict
from collections.abc import Hashable
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, Literal, NamedTuple

from mltswitch.documents import SparseDocument
from mltswitch.errors import UserInputError
from mltswitch.network.workloads.base import After, Extent, Flow, Stage, Work
from mltswitch.network.workloads.collectives import ring_pass, shares
from mltswitch.network.workloads.trace_files import COLLECTIVE, RECEIVE, SEND, Node, read_trace

ENDINGS: Final = (".et", ".json")
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

    @cached_property
    def ranks(self) -> dict[Key, Node]:
        """The nodes of all ranks; raises UserInputError where a rank is missing, or its file is wrong."""
        prefix = Path(self.trace)
        files: dict[int, Path] = {}
        for path in sorted(prefix.parent.iterdir()) if prefix.parent.is_dir() else []:
            rank = path.name.removeprefix(f"{prefix.name}.").removesuffix(path.suffix)
            if (
                path.name == f"{prefix.name}.{rank}{path.suffix}"
                and path.suffix in ENDINGS
                and rank.isdecimal()
            ):
                files.setdefault(int(rank), path)
        missing = min({*range(max(files, default=0) + 1)} - {*files}, default=None)
        if missing is not None:
            raise UserInputError(
                f"the trace of rank {missing} is missing",
                where="workload.trace",
                expected=f"{prefix}.{missing}.et",
            )
        return {Key(rank, node.number): node for rank in sorted(files) for node in read_trace(files[rank])}

    def extent(self, stage: Stage) -> Extent:
        """How much there is to send; raises UserInputError for a trace that cannot be played to its end."""
        count = 1 + max((key.rank for key in self.ranks), default=0)
        stage.need(count, f"{count} ranks of the trace")
        work = self.flows(stage)
        sizes = [flow.size_bytes for flow in work]
        microseconds = sum(node.microseconds for node in self.ranks.values())
        return Extent(len(sizes), sum(sizes), max(sizes, default=0), microseconds / 1e6, len(work.steps))

    def flows(self, stage: Stage) -> Work:
        """Nodes in an order in which each follows all that it waits for."""
        nodes, work = self.ranks, Work()
        groups, sends = self._groups(), self._sends()
        before: dict[Hashable, list[Hashable]] = {
            key: [*(Key(key.rank, each) for each in node.before), *([sends[key]] if key in sends else [])]
            for key, node in nodes.items()
        }
        for group, members in groups.items():
            before[group] = [each for key in members for each in before[key]]
            for key in members:
                before[key] = [group]
        try:
            order = [*TopologicalSorter(before).static_order()]
        except CycleError as error:
            cycle = [f"node {key.number} of rank {key.rank}" for key in error.args[1] if isinstance(key, Key)]
            raise UserInputError(
                f"nodes wait for each other: {', '.join(cycle[::-1][:5])}", where="workload.trace"
            ) from None
        done: dict[Hashable, After] = {}

        def waits(keys: list[Hashable]) -> After:
            return tuple(dict.fromkeys(each for key in keys for each in done[key]))

        for each in order:
            if not isinstance(each, Key):
                members = groups[each]
                after = [waits([Key(key.rank, one) for one in nodes[key].before]) for key in members]
                done |= dict(zip(members, self._collective(work, stage, members, after), strict=True))
                continue
            node, after_all = nodes[each], waits(before[each]) if nodes[each].kind != COLLECTIVE else ()
            if node.kind == SEND:
                ends = each.rank, self._integer(each, "comm_dst")
                flow = _flow(stage, node, *ends, self._integer(each, "comm_size", 1), after_all)
                done[each] = (work.send(flow),)
            elif node.kind != COLLECTIVE:
                microseconds = 0 if node.kind == RECEIVE else node.microseconds
                done[each] = work.compute(each.rank, microseconds / 1e6, after_all)
        for rank in dict.fromkeys(key.rank for key in nodes):
            work.end_round("", rank, 0, waits([key for key in nodes if key.rank == rank]))
        return work

    def _collective(self, work: Work, stage: Stage, members: list[Key], after: list[After]) -> list[After]:
        """Add the flows of a collective operation; returns when each rank has its result."""
        node = self.ranks[members[0]]
        kind, hosts = COLLECTIVES[self._integer(members[0], "comm_type")], [key.rank for key in members]
        size_bytes = 0 if kind == "BARRIER" else self._integer(members[0], "comm_size", 1)
        parts = shares(size_bytes, len(hosts))

        def make(source: int, destination: int, part: int, before: After, is_result: bool) -> Flow:
            return _flow(stage, node, source, destination, part, before, lossless=is_result)

        if kind == "ALL_TO_ALL":
            got = [list(each) for each in after]
            for place, source in enumerate(hosts):
                for far in range(1, len(hosts)):
                    to = (place + far) % len(hosts)
                    if parts[to]:
                        got[to].append(
                            work.send(_flow(stage, node, source, hosts[to], parts[to], after[place]))
                        )
            return [
                work.compute(host, 0, tuple(dict.fromkeys(each)))
                for host, each in zip(hosts, got, strict=True)
            ]
        if kind == "ALL_GATHER":  # the size is that of one rank's part
            parts = [size_bytes] * len(hosts)
        return ring_pass(
            work, hosts, parts, after, make, reduces=kind != "ALL_GATHER", gathers=kind != "REDUCE_SCATTER"
        )

    def _sends(self) -> dict[Key, Key]:
        """The send that each receive waits for: those from one rank to another with the same tag, in turn."""
        ends: dict[bool, defaultdict[tuple[int, int, int], list[Key]]] = {
            is_send: defaultdict(list) for is_send in (True, False)
        }
        ranks = {key.rank for key in self.ranks}
        for key, node in self.ranks.items():
            if node.kind in (SEND, RECEIVE):
                is_send = node.kind == SEND
                peer = self._integer(key, "comm_dst" if is_send else "comm_src")
                if peer not in ranks or peer == key.rank:
                    raise self._wrong(key, f"there is no rank {peer} beside rank {key.rank}")
                pair = (key.rank, peer) if is_send else (peer, key.rank)
                ends[is_send][*pair, int(node.attributes.get("comm_tag", 0))].append(key)
        for channel in {**ends[True], **ends[False]}:
            sent, got = ends[True][channel], ends[False][channel]
            if len(sent) != len(got):
                key = (sent if len(sent) > len(got) else got)[min(len(sent), len(got))]
                what = "receives what nobody sends" if len(got) > len(sent) else "sends what nobody receives"
                raise self._wrong(key, f"{what} (rank {channel[0]} to {channel[1]}, tag {channel[2]})")
        return {
            receive: send
            for channel, sent in ends[True].items()
            for send, receive in zip(sent, ends[False][channel], strict=True)
        }

    def _groups(self) -> dict[Hashable, list[Key]]:
        """The collectives: those of one process group (`pg_name`) meet in the order of their nodes."""
        of_rank: defaultdict[str, defaultdict[int, list[Key]]] = defaultdict(lambda: defaultdict(list))
        for key, node in sorted(self.ranks.items()):
            if node.kind == COLLECTIVE:
                if (kind := self._integer(key, "comm_type")) not in COLLECTIVES:
                    raise self._wrong(
                        key, f"collective {kind} is not played", ", ".join(COLLECTIVES.values())
                    )
                of_rank[str(node.attributes.get("pg_name", ""))][key.rank].append(key)
        groups: dict[Hashable, list[Key]] = {}
        for name, by_rank in of_rank.items():
            ranks = {key.rank for key in self.ranks} if not name else {*by_rank}
            most = max(map(len, by_rank.values()))
            for place in range(most):
                late = min((rank for rank in ranks if len(by_rank[rank]) <= place), default=None)
                members = [by_rank[rank][place] for rank in sorted(ranks) if len(by_rank[rank]) > place]
                if late is not None:
                    raise self._wrong(members[0], f"rank {late} takes no part in it")
                what = [
                    [self.ranks[key].attributes.get(each) for each in ("comm_type", "comm_size")]
                    for key in members
                ]
                if odd := next(
                    (key for key, each in zip(members, what, strict=True) if each != what[0]), None
                ):
                    raise self._wrong(odd, f"differs from node {members[0].number} of rank {members[0].rank}")
                groups[name, place] = members
        return groups

    def _integer(self, key: Key, name: str, least: int = 0) -> int:
        value = self.ranks[key].attributes.get(name)
        try:
            number = int(value)  # type: ignore[arg-type]  # whatever it is
        except (TypeError, ValueError):
            number = -1
        if number < least:
            raise self._wrong(key, f"{name} is {value!r:.40}", f"{least} or more")
        return number

    def _wrong(self, key: Key, what: str, expected: str = "") -> UserInputError:
        where = f"{self.trace}: rank {key.rank}, node {key.number} ({self.ranks[key].name[:40]})"
        return UserInputError(what, where=where, expected=expected)


def _flow(
    stage: Stage,
    node: Node,
    source: int,
    destination: int,
    size_bytes: int,
    after: After,
    *,
    lossless: bool = True,
) -> Flow:
    return Flow(
        source,
        destination,
        size_bytes,
        stage.class_of(0, 1),
        label=node.name,
        after=after,
        lossless=lossless,
    )
