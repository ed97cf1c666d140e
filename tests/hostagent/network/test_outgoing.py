"""Bursts cut into messages, and their rests."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.network.outgoing import (
    check_bursts,
    cut_for_segmentation,
    overhead_bytes,
    picked,
    rest_of,
)
from mltswitch.hostagent.transport.datagrams import (
    UDP_MAXIMUM_PAYLOAD_BYTES,
    UDP_MAXIMUM_SEGMENTS,
    Bursts,
    maximum_burst_packets,
)
from tests.hostagent.network.bursts import bursts_of, datagrams_of, some_bursts, tos_of

TENSOR = np.arange(100_000, dtype=np.uint8)


def packets_paths(bursts: Bursts) -> list[int]:
    return np.repeat(bursts.paths, np.diff(bursts.starts)).tolist()


@given(some_bursts(), st.data())
def test_messages_are_what_the_kernel_takes(bursts: Bursts, data: st.DataObject) -> None:
    segmenting = None
    if data.draw(st.booleans()):
        choice = st.lists(st.booleans(), min_size=len(bursts.paths), max_size=len(bursts.paths))
        segmenting = np.array(data.draw(choice))
    cut = cut_for_segmentation(bursts, segmenting)
    assert cut.starts[0] == 0
    assert cut.starts[-1] == bursts.packet_count
    assert np.array_equal(np.diff(cut.starts), cut.packets)
    assert np.repeat(cut.paths, cut.packets).tolist() == packets_paths(bursts)
    assert np.repeat(cut.tos, cut.packets).tolist() == tos_of(bursts)
    sizes = bursts.payload_bytes + overhead_bytes(bursts)
    for first, end in zip(cut.starts[:-1], cut.starts[1:], strict=True):
        assert 1 <= end - first <= UDP_MAXIMUM_SEGMENTS
        assert sizes[first:end].sum() <= UDP_MAXIMUM_PAYLOAD_BYTES
        assert (sizes[first : end - 1] == sizes[first]).all()
        burst = np.searchsorted(bursts.starts, first, side="right") - 1
        assert end <= bursts.starts[burst + 1]
        if segmenting is not None and not segmenting[burst]:
            assert end - first == 1
    if cut.segment_bytes is None:
        assert (cut.packets == 1).all()
    else:
        several = cut.packets > 1
        assert np.array_equal(cut.segment_bytes[several], sizes[cut.starts[:-1]][several])
        assert cut.has_single or (cut.packets > 1).all()


def test_a_long_burst_fills_its_messages() -> None:
    cut = cut_for_segmentation(bursts_of(TENSOR, 1000, [100], [0]))
    assert cut.packets.tolist() == [62, 38]  # 62 · 1,040 bytes fit into 65,507
    cut = cut_for_segmentation(bursts_of(TENSOR[:50_000], 500, [100], [0]))
    assert cut.packets.tolist() == [64, 36]
    assert [maximum_burst_packets(size) for size in (1, 1040, 8968, 65_507)] == [64, 62, 7, 1]


@given(some_bursts(), st.data())
def test_a_rest_is_the_packets_that_are_left(bursts: Bursts, data: st.DataObject) -> None:
    taken = data.draw(st.integers(0, bursts.packet_count - 1))
    before = bursts.starts.copy()
    rest = rest_of(bursts, taken)
    check_bursts(rest)
    assert datagrams_of(rest) == datagrams_of(bursts)[taken:]
    assert packets_paths(rest) == packets_paths(bursts)[taken:]
    assert tos_of(rest) == tos_of(bursts)[taken:]
    assert np.array_equal(bursts.starts, before)


@given(some_bursts(), st.data())
def test_picked_messages_are_bursts(bursts: Bursts, data: st.DataObject) -> None:
    cut = cut_for_segmentation(bursts)
    chosen = data.draw(st.lists(st.integers(0, cut.count - 1), min_size=1, unique=True))
    some = picked(bursts, cut, np.array(chosen))
    check_bursts(some)
    every = datagrams_of(bursts)
    wanted = [every[cut.starts[message] : cut.starts[message + 1]] for message in chosen]
    assert datagrams_of(some) == [datagram for message in wanted for datagram in message]
    assert some.paths.tolist() == cut.paths[chosen].tolist()


GOOD = bursts_of(TENSOR, 1000, [10], [0, 1], tags=True)


@pytest.mark.parametrize(
    ("bursts", "message"),
    [
        (replace(GOOD, tensor=TENSOR[:-1]), "outside the tensor"),
        (replace(GOOD, payload_offsets_bytes=GOOD.payload_offsets_bytes - 1), "outside the tensor"),
        (replace(GOOD, payload_bytes=GOOD.payload_bytes[1:]), "99 sizes"),
        (replace(GOOD, starts=GOOD.starts[:-1], paths=GOOD.paths[:-1]), "do not cover 100"),
        (replace(GOOD, starts=GOOD.starts + 1), "do not cover 100"),
        (replace(GOOD, paths=GOOD.paths[1:]), "do not cover 100"),
        (replace(GOOD, headers=GOOD.headers[::-1]), "no contiguous agent headers"),
        (replace(GOOD, headers=np.zeros(100, "V39")), "no contiguous agent headers"),
        (replace(GOOD, tensor=np.repeat(TENSOR, 2)[::2]), "not contiguous"),
        (replace(GOOD, tags=np.zeros((100, 15), np.uint8)), "tags are no 16"),
    ],
)
def test_memory_that_is_not_theirs_is_never_sent(bursts: Bursts, message: str) -> None:
    check_bursts(GOOD)
    with pytest.raises(ValueError, match=message):
        check_bursts(bursts)


def test_a_burst_without_packets_is_refused() -> None:
    starts = GOOD.starts.copy()
    starts[1] = 0
    with pytest.raises(ValueError, match="no packet"):
        cut_for_segmentation(replace(GOOD, starts=starts))
