"""The figures of the tcp benchmark, and one short turn of it."""

import pytest

from benchmarks.agent_network import running_pair
from benchmarks.agent_tcp import MTU, Speed, figures, ours


def test_figures() -> None:
    turns = [(Speed(own, 0.5, 0.75, 20.0), Speed(10.0, 0.25, 0.75)) for own in (9.0, 4.0, 8.0)]
    assert figures(turns) == pytest.approx(
        {
            "goodput_gbps": 8.0,
            "iperf3_gbps": 10.0,
            "ratio_to_iperf3": 0.8,
            "cpu_seconds_per_gb_sender": 0.5,
            "cpu_seconds_per_gb_receiver": 0.75,
            "iperf3_cpu_seconds_per_gb_sender": 0.25,
            "iperf3_cpu_seconds_per_gb_receiver": 0.75,
            "completion_ms": 20.0,
            "turns": 3.0,
        }
    )


@pytest.mark.root
def test_a_short_turn() -> None:
    with running_pair() as pair:
        pair.use_mtu(MTU)
        found = ours(pair, 0.1, 1)
    assert found.gbps > 0
    assert found.receiver_cpu_seconds_per_gb > 0
