"""The figures of the tcp benchmark, and one short turn of it."""

import pytest

from benchmarks.agent_goodput import Speed
from benchmarks.agent_network import running_pair
from benchmarks.agent_tcp import MTU, figures, ours


def test_figures() -> None:
    iperf3 = Speed(10e9, 1.0, 0.25, {})
    turns = [(Speed(own, 1.25, 0.5, {"completion_ms": 20.0}), iperf3) for own in (9e9, 4e9, 8e9)]
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
    assert found.bits_per_second > 0
    assert 0 < found.sender_cpu_seconds_per_gb < found.cpu_seconds_per_gb
