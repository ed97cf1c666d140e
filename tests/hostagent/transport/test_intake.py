"""Datagrams that the kernel handed over together may be of anybody."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.transport.authentication import tag
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.intake import groups
from mltswitch.wire import AgentFlag, AgentHeader, AgentKind, ElementType

TOKEN = 0x0102030405060708
BODY = b"12345678"
KEY = b"k" * 32
NOW_NS = 10**9


def datagram(token: int, tensor: int, kind: int, *, important: bool, key: bytes | None = None) -> bytes:
    flags = (AgentFlag.IMPORTANT if important else 0) | (AgentFlag.AUTHENTICATED if key else 0)
    header = AgentHeader(kind, flags, ElementType.FLOAT32, token, tensor, 1, 0, 0, 0, 0, 5).encode()
    return header + BODY + (tag(key, header, BODY) if key else b"")


def grid(datagrams: list[bytes], per_message: int) -> DatagramGrid:
    size = len(datagrams[0])
    messages = len(datagrams) // per_message
    memory = np.frombuffer(bytearray(b"".join(datagrams)), np.uint8)
    tos = np.arange(messages, dtype=np.uint8)
    return DatagramGrid(memory, 0, messages, per_message * size, per_message, size, tos)


Entry = st.tuples(
    st.sampled_from([TOKEN, TOKEN ^ 1]),
    st.integers(0, 2),
    st.sampled_from([int(AgentKind.DATA), int(AgentKind.ACKNOWLEDGEMENT)]),
    st.booleans(),
)


@given(
    st.lists(st.tuples(st.lists(Entry, min_size=1, max_size=12), st.integers(1, 4)), min_size=1, max_size=4),
    st.booleans(),
)
def test_every_datagram_of_ours_is_in_one_group(
    batches: list[tuple[list[tuple[int, int, int, bool]], int]], tagged: bool
) -> None:
    key = KEY if tagged else None
    grids, wanted = [], []
    for entries, per_message in batches:
        repeated = entries * per_message
        made = [
            datagram(token, tensor, kind, important=flag, key=key) for token, tensor, kind, flag in repeated
        ]
        grids.append(grid(made, per_message))
        wanted += [(tensor, kind, flag) for token, tensor, kind, flag in repeated if token == TOKEN]
    found = []
    for group in groups(grids, TOKEN, key, NOW_NS):
        assert len(group.sequences) == len(group.paths) == len(group.tos) == group.size
        assert group.sent_ns.tolist() == [5] * group.size
        places = np.zeros(group.size, np.int64)
        for part in group.parts:
            bodies = part.bodies()
            assert bodies.shape == part.shape
            assert {body.tobytes() for body in bodies.reshape(-1)} == {BODY}
            places[part.place] += 1
            assert bodies.size == part.place.stop - part.place.start
        assert places.tolist() == [1] * group.size
        found += [(group.transfer.tensor, group.kind, flag) for flag in group.is_important.tolist()]
    assert sorted(found) == sorted(wanted)


def test_fields_of_a_header() -> None:
    header = AgentHeader(
        AgentKind.DATA, 0, ElementType.INT8, TOKEN, 1 << 31, 3, 4, 5, 6, 1 << 31 | 7, 8 << 40
    )
    (group,) = groups([grid([header.encode() + BODY], 1)], TOKEN, None, NOW_NS)
    assert (group.kind, group.element_type) == (AgentKind.DATA, ElementType.INT8)
    assert (group.transfer.tensor, group.transfer.round_number) == (1 << 31, 3)
    assert group.paths.tolist() == [5]
    assert group.sequences.tolist() == [6]
    assert group.element_offsets.tolist() == [1 << 31 | 7]
    assert group.sent_ns.tolist() == [8 << 40]


def test_datagrams_shorter_than_a_header_are_none() -> None:
    assert not list(groups([grid([b"1" * 39], 1)], TOKEN, None, NOW_NS))
    assert not list(groups([grid([b"1" * 55], 1)], TOKEN, KEY, NOW_NS))


def test_a_wrong_tag_is_found_among_right_ones() -> None:
    made = [datagram(TOKEN, 1, AgentKind.DATA, important=True, key=KEY) for _ in range(3)]
    made[1] = made[1][:-1] + bytes([made[1][-1] ^ 1])
    (group,) = groups([grid(made, 3)], TOKEN, KEY, NOW_NS)
    assert group.size == 2
    (part,) = group.parts
    assert part.chosen is not None
    assert part.chosen.tolist() == [[True, False, True]]


def test_a_lone_datagram_with_a_wrong_tag() -> None:
    made = datagram(TOKEN, 1, AgentKind.DATA, important=True, key=b"x" * 32)
    assert not list(groups([grid([made], 1)], TOKEN, KEY, NOW_NS))


def test_a_datagram_without_a_tag_where_there_should_be_one() -> None:
    bare = datagram(TOKEN, 1, AgentKind.DATA, important=True) + b"0" * 16
    assert not list(groups([grid([bare], 1)], TOKEN, KEY, NOW_NS))


def test_bytes_of_the_messages_are_those_of_their_datagrams() -> None:
    made = [datagram(TOKEN, 1, AgentKind.DATA, important=True) for _ in range(8)]
    together = grid(made, 2)
    (group,) = groups([together], TOKEN, None, NOW_NS)
    assert group.arrived_ns.tolist() == [NOW_NS] * 8
    stamped = replace(together, arrived_ns=np.array([4, 3, 2, 1]))
    (again,) = groups([stamped], TOKEN, None, NOW_NS)
    assert again.arrived_ns.tolist() == [4, 4, 3, 3, 2, 2, 1, 1]
    assert group.tos.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
