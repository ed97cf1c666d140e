"""Execution traces of MLCommons: what they are played as, and one line for each that cannot be."""

from pathlib import Path
from typing import Any

import pytest

from mltswitch.errors import UserInputError
from mltswitch.network.workloads import Flow, Work
from mltswitch.network.workloads.chakra import Chakra
from mltswitch.network.workloads.trace_files import read_trace
from tests.network.support import play
from tests.network.test_workloads import stage

pytest.importorskip("google.protobuf")

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
ALL_REDUCE, REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, BARRIER = 0, 1, 2, 6, 7, 9
PACKET_PICOSECONDS, WITHIN_LEAF = 1_200_000, 6_400_000


def _schema() -> Any:
    """The messages of et_def.proto, made by the protobuf library and not by the reader under test."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    node_type = file.enum_type.add(name="NodeType")
    for number, name in enumerate(
        ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV")
    ):
        node_type.value.add(name=f"{name}_NODE", number=number)
    node_type.value.add(name="COMM_COLL_NODE", number=COLLECTIVE)
    attribute = file.message_type.add(name="AttributeProto")
    attribute.oneof_decl.add(name="value")
    attribute.field.add(name="name", number=1, type=kinds.TYPE_STRING, label=1)
    for name, number, kind in (
        ("double_val", 3, kinds.TYPE_DOUBLE),
        ("int32_val", 7, kinds.TYPE_INT32),
        ("int64_val", 9, kinds.TYPE_INT64),
        ("uint64_val", 13, kinds.TYPE_UINT64),
        ("fixed32_val", 19, kinds.TYPE_FIXED32),
        ("bool_val", 27, kinds.TYPE_BOOL),
        ("string_val", 29, kinds.TYPE_STRING),
    ):
        attribute.field.add(name=name, number=number, type=kind, label=1, oneof_index=0)
    metadata = file.message_type.add(name="GlobalMetadata")
    metadata.field.add(name="version", number=1, type=kinds.TYPE_STRING, label=1)
    node = file.message_type.add(name="Node")
    for name, number, kind, label in (
        ("id", 1, kinds.TYPE_UINT64, 1),
        ("name", 2, kinds.TYPE_STRING, 1),
        ("ctrl_deps", 4, kinds.TYPE_UINT64, 3),
        ("data_deps", 5, kinds.TYPE_UINT64, 3),
        ("start_time_micros", 6, kinds.TYPE_UINT64, 1),
        ("duration_micros", 7, kinds.TYPE_UINT64, 1),
    ):
        node.field.add(name=name, number=number, type=kind, label=label)
    node.field.add(name="type", number=3, type=kinds.TYPE_ENUM, label=1, type_name=".ChakraProtoMsg.NodeType")
    node.field.add(
        name="attr", number=10, type=kinds.TYPE_MESSAGE, label=3, type_name=".ChakraProtoMsg.AttributeProto"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    make = (
        getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    )
    names = ("Node", "AttributeProto", "GlobalMetadata")
    return [make(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in names]


NODE, ATTRIBUTE, METADATA = _schema()
Nodes = list[dict[str, Any]]


def node(
    number: int, kind: int, before: tuple[int, ...] = (), duration: int = 0, **attributes: Any
) -> dict[str, Any]:
    return {
        "id": number,
        "type": kind,
        "data_deps": before,
        "duration_micros": duration,
        "attributes": attributes,
    }


def write(folder: Path, ranks: list[Nodes], ending: str = ".et", version: str = "0.0.4") -> str:
    from google.protobuf.internal.encoder import _VarintBytes
    from google.protobuf.json_format import MessageToJson

    for rank, nodes in enumerate(ranks):
        messages = [METADATA(version=version)]
        for each in nodes:
            fields = {name: value for name, value in each.items() if name != "attributes"}
            made = NODE(name=f"node {each['id']}", **fields)
            made.attr.add(name="num_ops", double_val=1.5)
            made.attr.add(name="mask", fixed32_val=7)
            made.attr.add(name="is_cpu_op", bool_val=False)
            for name, value in each["attributes"].items():
                made.attr.add(name=name, **{"string_val" if isinstance(value, str) else "int64_val": value})
            messages.append(made)
        path = folder / f"trace.{rank}{ending}"
        if ending == ".json":
            path.write_text("".join(map(MessageToJson, messages)))
        else:
            data = [message.SerializeToString() for message in messages]
            path.write_bytes(b"".join(_VarintBytes(len(each)) + each for each in data))
    return str(folder / "trace")


def work_of(folder: Path, ranks: list[Nodes], **changes: Any) -> Work:
    return Chakra(kind="chakra", trace=write(folder, ranks, **changes)).flows(stage())


def both(*nodes: dict[str, Any], ranks: int = 4) -> list[Nodes]:
    return [list(nodes)] * ranks


@pytest.mark.parametrize("ending", [".et", ".json"])
def test_a_send_waits_for_what_is_computed_and_a_receive_for_the_send(ending: str, tmp_path: Path) -> None:
    sender = [node(300, COMPUTE, duration=50), node(7, SEND, (300,), comm_size=1460, comm_dst=1, comm_tag=3)]
    receiver = [
        node(0, RECEIVE, comm_size=1460, comm_src=0, comm_tag=3),
        node(1, COMPUTE, (0,), duration=20),
        node(2, SEND, (1, 0), comm_size=2920, comm_dst=0),
    ]
    sender.append(node(8, RECEIVE, comm_size=2920, comm_src=1))
    trace = write(tmp_path, [sender, receiver], ending)
    (run,) = play(
        fabric={"leaves": 1, "hosts_per_leaf": 2, "rate": "10Gbps", "delay": 2e-6},
        workload={"kind": "chakra", "trace": trace},
        transports=["newreno"],
    )
    there = 50_000_000 + WITHIN_LEAF
    back = there + 20_000_000 + WITHIN_LEAF + PACKET_PICOSECONDS
    assert run.flows["label"].tolist() == ["node 7", "node 2"]
    assert run.flows["end_picoseconds"].tolist() == [there, back]
    assert run.steps["end_picoseconds"].tolist() == [back, back]


def before(work: Work, number: int) -> set[int]:
    """All that a flow, or `~n` a step, waits for, also by others."""
    found, todo = set[int](), [number]
    while todo:
        each = todo.pop()
        new = {*(work[each] if each >= 0 else work.steps[~each]).after} - found
        found |= new
        todo += new
    return found


def ends(flows: list[Flow]) -> list[tuple[int, int, int]]:
    return sorted((flow.source, flow.destination, flow.size_bytes) for flow in flows)


@pytest.mark.parametrize(
    ("kind", "rounds", "part"),
    [(ALL_REDUCE, 6, 250), (ALL_GATHER, 3, 1000), (REDUCE_SCATTER, 3, 250), (BARRIER, 0, 0)],
)
def test_collectives_go_around_a_ring(kind: int, rounds: int, part: int, tmp_path: Path) -> None:
    work = work_of(
        tmp_path,
        both(node(0, COMPUTE, duration=5), node(1, COLLECTIVE, (0,), comm_type=kind, comm_size=1000)),
    )
    assert ends(work) == sorted((place, (place + 1) % 4, part) for place in range(4) for _ in range(rounds))
    computed = {~place for place, step in enumerate(work.steps) if step.picoseconds}
    for each in work.rounds:  # everybody's end waits for everybody's computing
        assert computed <= before(work, ~each.end)


def test_all_to_all_and_groups(tmp_path: Path) -> None:
    work = work_of(tmp_path, both(node(0, COLLECTIVE, comm_type=ALL_TO_ALL, comm_size=4000)))
    assert ends(work) == sorted((one, other, 1000) for one in range(4) for other in range(4) if one != other)
    pairs = [
        [node(0, COLLECTIVE, comm_type=ALL_TO_ALL, comm_size=10, pg_name=str(rank % 2))] for rank in range(4)
    ]
    assert ends(work_of(tmp_path, pairs)) == [(0, 2, 5), (1, 3, 5), (2, 0, 5), (3, 1, 5)]


ALL: dict[str, Any] = {"comm_type": ALL_REDUCE, "comm_size": 8}
BAD: dict[str, tuple[list[Nodes], str]] = {
    "cycle": (
        [[node(1, COMPUTE, (3,)), node(2, COMPUTE, (1,)), node(3, COMPUTE, (2,))]],
        "nodes wait for each other: node",
    ),
    "cycle of ranks": (
        [
            [node(1, RECEIVE, comm_src=1), node(2, SEND, (1,), comm_dst=1, comm_size=1)],
            [node(1, RECEIVE, comm_src=0), node(2, SEND, (1,), comm_dst=0, comm_size=1)],
        ],
        "nodes wait for each other: node",
    ),
    "unmatched receive": (
        [[node(1, COMPUTE)], [node(4, RECEIVE, comm_src=0, comm_tag=9)]],
        "rank 1, node 4 (node 4): receives what nobody sends (rank 0 to 1, tag 9)",
    ),
    "unmatched send": (
        [[node(1, SEND, comm_dst=1, comm_size=1)], [node(4, COMPUTE)]],
        "rank 0, node 1 (node 1): sends what nobody receives",
    ),
    "no such rank": ([[node(1, SEND, comm_dst=7, comm_size=1)]], "there is no rank 7 beside rank 0"),
    "unknown node": ([[node(1, COMPUTE, (0,))]], "node 1 waits for node 0, which is missing"),
    "twice": ([[node(1, COMPUTE), node(1, COMPUTE)]], "node 1 stands twice"),
    "alone in a collective": (
        [[node(1, COLLECTIVE, **ALL)], [node(2, COMPUTE)]],
        "rank 0, node 1 (node 1): rank 1 takes no part in it",
    ),
    "collectives that differ": (
        [[node(1, COLLECTIVE, **ALL)], [node(2, COLLECTIVE, comm_type=ALL_REDUCE, comm_size=9)]],
        "rank 1, node 2 (node 2): comm_size differs from that of node 1 of rank 0",
    ),
    "unknown collective": (
        [[node(1, COLLECTIVE, comm_type=REDUCE)]],
        "collective 1 is not played (expected ALL_REDUCE",
    ),
    "no size": (
        [[node(1, SEND, comm_dst=1)], [node(1, RECEIVE, comm_src=0)]],
        "comm_size is None (expected 1 or more)",
    ),
    "too many ranks": (both(node(1, COMPUTE), ranks=9), "9 ranks of the trace need 9 hosts"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_traces_are_one_line(case: str, tmp_path: Path) -> None:
    ranks, line = BAD[case]
    with pytest.raises(UserInputError) as caught:
        Chakra(kind="chakra", trace=write(tmp_path, ranks)).extent(stage())
    assert line in str(caught.value)


def test_a_missing_rank_and_another_version_are_refused(tmp_path: Path) -> None:
    trace = write(tmp_path, both(node(1, COMPUTE)))
    (tmp_path / "trace.2.et").unlink()
    with pytest.raises(UserInputError, match=r"the trace of rank 2 is missing \(expected .*trace.2.et\)"):
        Chakra(kind="chakra", trace=trace).extent(stage())
    with pytest.raises(UserInputError, match="the trace of rank 0 is missing"):
        Chakra(kind="chakra", trace=str(tmp_path / "none" / "trace")).extent(stage())
    with pytest.raises(UserInputError, match=r"version '9' \(expected 0.0.4\)"):
        Chakra(kind="chakra", trace=write(tmp_path, both(node(1, COMPUTE)), version="9")).extent(stage())


@pytest.mark.parametrize(
    ("ending", "data"),
    [
        (".et", b"\xf6\xff\xff\xff\xff\xff\xff\xff\xff\x01"),  # a length of -10
        (".json", b"[" * 200_000),
        (".json", b'{"id": Infinity, "type": 4}'),
        (".json", b'{"id": 1, "type": 4, "durationMicros": 1%s}' % (b"0" * 400)),
        (".json", b'{"id": 1, "type": -2}'),
    ],
    ids=["length", "depth", "infinity", "duration", "type"],
)
def test_what_is_no_trace_is_one_line(ending: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"job.0{ending}"
    path.write_bytes(data)
    with pytest.raises(UserInputError, match="is cut short, or no Chakra trace, after the beginning"):
        read_trace(path)


@pytest.mark.parametrize("ending", [".et", ".json"])
def test_a_trace_cut_short_names_the_last_node(ending: str, tmp_path: Path) -> None:
    trace = write(tmp_path, [[node(11, COMPUTE), node(12, COLLECTIVE, **ALL), node(13, COMPUTE)]], ending)
    path = tmp_path / f"trace.0{ending}"
    whole, told = path.read_bytes(), set[str]()
    for size in range(len(whole) - 2, 0, -3):
        path.write_bytes(whole[:size])
        try:
            Chakra(kind="chakra", trace=trace).extent(stage())
        except UserInputError as error:
            told.add(str(error).partition("trace, after ")[2])
    assert {"node 12", "node 11", "the beginning"} <= told
