"""How long a receiver of a stream rests."""

import pytest

from mltswitch.hostagent.arrivals import nap_seconds


@pytest.mark.parametrize(
    ("received", "elapsed_ns", "room_packets", "expected"),
    [
        (1000, 1_000_000, 100_000, 1e-3),  # a hundred times the room: the longest rest
        (1000, 1_000_000, 4_000, 1e-3),
        (1000, 1_000_000, 2_000, 0.5e-3),  # 2 ms would fill it
        (1000, 1_000_000, 90, 22.5e-6),  # as many as the usual limit of the kernel holds
        (65, 1_000_000_000, 90, 1e-3),  # seldom packets
    ],
)
def test_a_rest_fills_a_quarter_of_the_buffer_at_the_most(
    received: int, elapsed_ns: int, room_packets: int, expected: float
) -> None:
    assert nap_seconds(1e-3, received, elapsed_ns, room_packets) == pytest.approx(expected)
