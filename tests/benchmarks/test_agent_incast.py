"""The incast benchmark's figures, and all its transports through the switch."""

from math import isclose

import pytest

from benchmarks.agent_incast import (
    CASES,
    SENDERS,
    SMALL_RATE_BPS,
    TRANSPORTS,
    Found,
    figures,
    incast_plan,
    port_queues,
    running_incast,
)
from benchmarks.agent_network import percentile
from mltswitch.errors import MachineError
from mltswitch.lab.programs import need

SIZE_BYTES = 16 << 10


def test_percentiles_are_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]
    assert percentile([3.0], 0.99) == 3.0


def test_tcp_has_more_room_than_ours() -> None:
    *_, ours, background = port_queues(incast_plan(SMALL_RATE_BPS))
    assert background.threshold_bytes == background.limit_bytes == 128_000 > ours.limit_bytes
    assert ours.threshold_bytes <= ours.limit_bytes


def test_figures() -> None:
    cases = {case: Found(2e-3) for case in CASES}
    milliseconds = {"ours_p0": 8, "ours_p10": 4, "cubic": 20, "bbr": 10}
    for case in cases.values():
        case.seconds = {name: [value / 1e3] * 99 + [1.0] for name, value in milliseconds.items()}
        case.missing = {"ours_p0": [0.0], "ours_p10": [0.1, 0.0]}
    found = figures(cases)
    assert isclose(found["p99_ratio_to_best_tcp_128k_loss0"], 0.4)
    assert isclose(found["p99_ratio_to_cubic_128k_loss1pct"], 0.2)
    assert isclose(found["p99_ratio_to_cubic_4m_loss1pct_rtt2ms"], 0.2)
    assert isclose(found["p99_ratio_to_limit_128k_loss0"], 0.004 / CASES[0].limit_seconds)
    assert isclose(found["ours_p10_missing_share_128k_loss0"], 0.05)
    assert found["bbr_128k_loss0_max_ms"] == 1000.0


@pytest.mark.root
def test_flows_arrive_and_none_is_faster_than_the_line() -> None:
    try:
        need("gcc", "tc", "ping")
    except MachineError as error:
        pytest.skip(str(error))
    with running_incast(incast_plan(SMALL_RATE_BPS), SMALL_RATE_BPS) as incast:
        for transport in TRANSPORTS:
            seconds, missing = incast.flows(transport, SIZE_BYTES, range(SENDERS))
            assert len(seconds) == SENDERS
            assert max(seconds) > 0.8 * SENDERS * SIZE_BYTES * 8 / SMALL_RATE_BPS
            assert all(share <= 0.1 for share in missing)
