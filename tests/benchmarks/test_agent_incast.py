"""The incast benchmark's figures, and TCP's ends through the switch."""

from contextlib import ExitStack

import pytest

from benchmarks.agent_incast import (
    CASES,
    QUICK_CASES,
    RATE_BPS,
    SENDERS,
    SIZES,
    TRANSPORTS,
    Found,
    figures,
    incast_plan,
    limit_seconds,
    percentile,
    port_queues,
    tcp_ends,
)
from benchmarks.agent_network import need
from benchmarks.agent_switch import running_star
from mltswitch.errors import MachineError


def test_percentiles_are_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]
    assert percentile([3.0], 0.99) == 3.0


def test_the_main_cases_are_among_the_cases() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) == 16
    assert set(QUICK_CASES) <= set(names)


def test_the_limit_is_that_of_the_line() -> None:
    assert limit_seconds("128k") == pytest.approx(8 * 131072 * 8 / RATE_BPS)


def test_tcp_has_more_room_than_ours() -> None:
    *_, ours, background = port_queues(incast_plan())
    assert background.threshold_bytes == background.limit_bytes == 128_000 > ours.limit_bytes
    assert ours.threshold_bytes <= ours.limit_bytes


def test_figures() -> None:
    cases = {name: Found(2e-3) for name in QUICK_CASES}
    milliseconds = {"ours_p0": 8, "ours_p10": 4, "cubic": 20, "bbr": 10}
    for case in cases.values():
        case.seconds = {name: [value / 1e3] * 99 + [1.0] for name, value in milliseconds.items()}
        case.missing = {"ours_p0": [0.0], "ours_p10": [0.1, 0.0]}
        case.late_us = 7.0
    found = figures(cases, [40e6, 50e6, 30e6])
    assert found["p99_ratio_to_best_tcp_128k_loss0"] == pytest.approx(0.4)
    assert found["p99_ratio_to_cubic_128k_loss1pct"] == pytest.approx(0.2)
    assert found["p99_ratio_to_cubic_4m_loss1pct_rtt2ms"] == pytest.approx(0.2)
    assert found["p50_ratio_to_limit_128k_loss0"] == pytest.approx(0.004 / limit_seconds("128k"))
    assert found["cubic_alone_mbps_loss1pct_rtt2ms"] == 40.0
    assert found["fair_share_mbps"] == RATE_BPS / 8e6
    for transport in TRANSPORTS:
        assert found[f"{transport}_128k_rtt02ms_loss0_max_ms"] == 1000.0
    assert found["ours_p10_missing_share_128k_rtt02ms_loss0"] == pytest.approx(0.05)
    assert found["switch_late_us_max"] == 7.0


@pytest.mark.root
def test_tcp_flows_arrive() -> None:
    with ExitStack() as stack:
        try:
            need("gcc", "tc", "ping")
            star = stack.enter_context(running_star(SENDERS + 1))
        except MachineError as error:
            pytest.skip(str(error))
        star.set_rate(RATE_BPS)
        star.set_queues(port_queues(incast_plan()))
        seconds, _ = tcp_ends(stack, star).incast(range(SENDERS), transport="cubic", size_bytes=SIZES["128k"])
        report = star.report()
    assert len(seconds) == SENDERS
    assert max(seconds) > limit_seconds("128k"), "faster than the line"
    background = report["queues"][4]
    assert background["unimportant"] - background["unimportant_dropped"] > SENDERS * SIZES["128k"] / 1500
