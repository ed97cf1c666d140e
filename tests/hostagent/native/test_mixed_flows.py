"""Datagrams of several flows that the kernel hands over as one message: none gets into another's tensor."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostagent.native.passes import needs_passes, without_passes
from tests.hostagent.native.test_passes import SIZES_BYTES
from tests.hostagent.native.test_reading import PEERS, Host, packet

TENSOR = 3
UNTOUCHED = 255
FULL_BYTES = SIZES_BYTES[False]


def value(number: int, sequence: int) -> int:
    """In every byte of the elements."""
    return 100 * (number - PEERS[0]) + 1 + sequence


def marked_packet(number: int, sequence: int) -> bytes:
    whole = packet(number, TENSOR, sequence)
    return whole[:-FULL_BYTES] + bytes([value(number, sequence)]) * FULL_BYTES


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_passes), False])
@given(sent=st.lists(st.tuples(st.sampled_from(PEERS), st.integers(0, 5)), min_size=1, max_size=40))
def test_a_message_is_of_the_flow_that_its_first_datagram_names(
    sent: list[tuple[int, int]], compiled: bool
) -> None:
    with nullcontext() if compiled else without_passes():
        host = Host()
        posted = {number: host.post(number, TENSOR) for number in PEERS}
        for each in posted.values():
            each.tensor.data[:] = UNTOUCHED
        host.send([([marked_packet(*each) for each in sent], 0)])
        assert host.read() == len(sent)
    first = sent[0][0]
    for number, each in posted.items():
        rows = np.full(each.tensor.data.size, UNTOUCHED, np.uint8)
        for sequence in {found for flow, found in sent if flow == number == first}:
            rows[sequence * FULL_BYTES : (sequence + 1) * FULL_BYTES] = value(number, sequence)
        assert (each.tensor.data == rows).all()
        others = sum(flow != first for flow, _ in sent)
        assert host.connections[number].dropped_datagrams == (others if number == first else 0)
