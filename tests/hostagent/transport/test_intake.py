"""Datagrams that the kernel handed over together may be of anybody."""

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


@given(st.lists(Entry, min_size=1, max_size=12), st.integers(1, 4), st.booleans())
def test_every_datagram_of_ours_is_in_one_group(
    entries: list[tuple[int, int, int, bool]], per_message: int, tagged: bool
) -> None:
    entries = entries * per_message
    key = KEY if tagged else None
    made = [datagram(token, tensor, kind, important=flag, key=key) for token, tensor, kind, flag in entries]
    found = []
    for group in groups(grid(made, per_message), TOKEN, key):
        assert set(group.headers["tensor"].reshape(-1).tolist()) == {group.transfer.tensor}
        assert set(group.headers["kind"].reshape(-1).tolist()) == {group.kind}
        assert group.bodies().shape == group.headers.shape == group.is_marked.shape
        assert {body.tobytes() for body in group.bodies().reshape(-1)} == {BODY}
        found += [(group.transfer.tensor, group.kind)] * group.headers.size
    assert sorted(found) == sorted((tensor, kind) for token, tensor, kind, _ in entries if token == TOKEN)


def test_a_wrong_tag_is_found_among_right_ones() -> None:
    made = [datagram(TOKEN, 1, AgentKind.DATA, important=True, key=KEY) for _ in range(3)]
    made[1] = made[1][:-1] + bytes([made[1][-1] ^ 1])
    (group,) = groups(grid(made, 3), TOKEN, KEY)
    assert group.headers.size == 2
    assert group.chosen is not None
    assert group.chosen.tolist() == [[True, False, True]]


def test_a_lone_datagram_with_a_wrong_tag() -> None:
    assert not list(
        groups(grid([datagram(TOKEN, 1, AgentKind.DATA, important=True, key=b"x" * 32)], 1), TOKEN, KEY)
    )


def test_a_datagram_without_a_tag_where_there_should_be_one() -> None:
    bare = datagram(TOKEN, 1, AgentKind.DATA, important=True) + b"0" * 16
    assert not list(groups(grid([bare], 1), TOKEN, KEY))


def test_marks_are_those_of_the_messages() -> None:
    made = [datagram(TOKEN, 1, AgentKind.DATA, important=True) for _ in range(8)]
    (group,) = groups(grid(made, 2), TOKEN, None)
    assert group.is_marked.tolist() == [[False] * 2, [False] * 2, [False] * 2, [True] * 2]
