"""Packets of a chunk, as they leave: every one once, in bursts of one kind, close together."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.tagging import is_important
from mltswitch.hostagent.tensor import PacketLayout, TensorView, view_of
from mltswitch.hostagent.transport.datagrams import Bursts
from mltswitch.hostagent.transport.packets import burst_length
from mltswitch.wire import AgentFlag
from tests.hostagent.native.passes import needs_passes, without_passes
from tests.hostagent.tagging.tensors import any_tensors
from tests.hostagent.transport.chunks import OVERHEAD_BYTES, chunk_of


def bursts_of_chunk(
    tensor: TensorView,
    layout: PacketLayout,
    sequences: list[int],
    important: list[bool],
    burst_packets: int,
    mixed_packets: int,
    sprayer: PathSprayer,
) -> Bursts:
    """All of a chunk at once."""
    chunk = chunk_of(
        tensor,
        layout,
        np.array(sequences, np.int64),
        np.array(important),
        burst_packets,
        mixed_packets=mixed_packets,
    )
    bursts = chunk.take(1 << 40, 1 << 20, sprayer, 9)
    assert chunk.is_over
    return bursts


@pytest.mark.parametrize(
    ("mixed_packets", "expected", "starts"),
    [
        (10, [0, 2, 1, 3, 4, 6, 5, 7, 8, 9], [0, 2, 4, 6, 8, 9, 10]),
        (4, [0, 2, 1, 3, 5, 7, 9, 4, 6, 8], [0, 2, 4, 6, 7, 9, 10]),
        (0, [1, 3, 5, 7, 9, 0, 2, 4, 6, 8], [0, 2, 4, 5, 7, 9, 10]),
    ],
)
def test_bursts_of_both_kinds_take_turns_where_packets_do(
    mixed_packets: int, expected: list[int], starts: list[int]
) -> None:
    """What a burst copies lies together: the receiver's memory and the sender's are slow elsewhere. At the
    end of a pass importance is what counts."""
    tensor = view_of(np.zeros(1000 * 10, np.float32), writable=False)
    layout = PacketLayout(tensor.element_type, tensor.element_count, 1000)
    important = [sequence % 2 == 1 for sequence in range(10)]
    bursts = bursts_of_chunk(
        tensor, layout, list(range(10)), important, 2, mixed_packets, PathSprayer(1, seed=1)
    )
    assert bursts.headers["sequence"].tolist() == expected
    assert bursts.starts.tolist() == starts


def check_a_chunk(
    case: tuple[TensorView, PacketLayout], random: Any, share: float, burst_packets: int
) -> None:
    tensor, layout = case
    count = random.randint(1, layout.packet_count)
    sequences = sorted(random.sample(range(layout.packet_count), count))
    important = {sequence: random.random() < share for sequence in sequences}
    sprayer, mixed_packets = PathSprayer(3, seed=1), random.randint(0, count)
    bursts = bursts_of_chunk(
        tensor, layout, sequences, list(important.values()), burst_packets, mixed_packets, sprayer
    )
    sent = bursts.headers["sequence"].tolist()
    assert sorted(sent) == sequences
    assert bursts.payload_offsets_bytes.tolist() == [place * layout.full_bytes for place in sent]
    assert bursts.headers["element_offset"].tolist() == [place * layout.elements_per_packet for place in sent]
    ends = list(zip(bursts.starts.tolist(), bursts.starts.tolist()[1:], strict=False))
    parts = [sent[first:end] for first, end in ends]
    kinds = [is_important(byte) for byte in bursts.tos.tolist()]
    # In the order of their first packets, but for unimportant ones that begin late.
    late = [
        sequences.index(part[0]) >= mixed_packets and not kind
        for part, kind in zip(parts, kinds, strict=True)
    ]
    assert late == sorted(late)
    for is_late in (False, True):
        firsts = [part[0] for part, other in zip(parts, late, strict=True) if other is is_late]
        assert firsts == sorted(firsts)
    full = burst_length(burst_packets, layout, None)
    for kind in (False, True):
        of_kind = [part for part, other in zip(parts, kinds, strict=True) if other is kind]
        assert list(chain(*of_kind)) == [place for place in sequences if important[place] is kind]
        assert all(len(part) == full for part in of_kind[:-1])
    last = layout.packet_count - 1
    for place, flags, size in zip(
        sent, bursts.headers["flags"].tolist(), bursts.payload_bytes.tolist(), strict=True
    ):
        assert bool(flags & AgentFlag.IMPORTANT) is important[place]
        assert bool(flags & AgentFlag.LAST) is (place == last)
        assert size == (layout.last_bytes if place == last else layout.full_bytes)
    assert sprayer.in_flight_bytes == int(bursts.payload_bytes.sum()) + count * OVERHEAD_BYTES


A_CHUNK = (
    any_tensors(),
    st.randoms(use_true_random=False),
    st.sampled_from([0, 0.1, 0.5, 1]),
    st.integers(1, 70),
)


@given(*A_CHUNK)
def test_all_of_a_chunk_by_numpy(
    case: tuple[TensorView, PacketLayout], random: Any, share: float, burst_packets: int
) -> None:
    with without_passes():
        check_a_chunk(case, random, share, burst_packets)


@needs_passes
@given(*A_CHUNK)
def test_all_of_a_chunk_compiled(
    case: tuple[TensorView, PacketLayout], random: Any, share: float, burst_packets: int
) -> None:
    check_a_chunk(case, random, share, burst_packets)
