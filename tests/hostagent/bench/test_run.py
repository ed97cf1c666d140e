"""The bench: two real processes over loopback, small tensors; figures that fit each other."""

import itertools

import pytest

from mltswitch.errors import MachineError
from mltswitch.hostagent.bench import BenchResult, run_bench
from mltswitch.hostagent.bench.end import Connect, Open
from mltswitch.hostagent.bench.run import bench_process
from tests.hostagent.control.peers import nobody_listens

SIZE_BYTES = 400_003


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, int, int]]:
    return []


@pytest.fixture(scope="module")
def result(steps: list[tuple[str, int, int]]) -> BenchResult:
    return run_bench(
        size_bytes=SIZE_BYTES, mtu_bytes=9000, seconds=1.0, advance=lambda *step: steps.append(step)
    )


def test_every_case_is_measured(result: BenchResult) -> None:
    cases = [(each.transport, each.burst_packets, each.policy, each.authenticate) for each in result.streams]
    assert cases == [
        ("mlt", 1, "magnitude", False),
        ("mlt", 4, "magnitude", False),
        ("mlt", 7, "magnitude", False),  # what fits into one message of 64 KiB
        ("mlt", 7, "none", False),
        ("tcp", None, "none", False),
        ("mlt", 7, "magnitude", True),
    ]
    assert result.size_bytes == 400_000
    for each in result.streams:
        assert each.tensors >= 3
        assert each.goodput_bps > 0
        assert each.sender_cpu_seconds_per_gb >= 0
        assert each.receiver_cpu_seconds_per_gb >= 0
        assert 0 <= each.resent_share <= 1


def test_handshakes_and_tagging(result: BenchResult) -> None:
    assert result.tagging_seconds > 0
    assert result.tls_handshake is not None
    assert not result.why_no_tls
    for handshake in (result.plain_handshake, result.tls_handshake):
        assert 0 < handshake.seconds < result.seconds


def test_progress_never_falls(result: BenchResult, steps: list[tuple[str, int, int]]) -> None:
    assert [done for _, done, _ in steps] == list(range(len(result.streams) + 3))
    assert all(before[2] == after[2] for before, after in itertools.pairwise(steps))


def test_what_goes_wrong_in_a_bench_process_is_one_line() -> None:
    with bench_process() as end:
        end.ask(Open({"name": "one", "data_port": 0}))
        with nobody_listens() as nobody, pytest.raises(MachineError, match="peer two: "):
            end.ask(Connect("two", nobody))
        with pytest.raises(MachineError, match=r"192\.0\.2\.1"):
            end.ask(Open({"name": "one", "addresses": ["192.0.2.1"], "plaintext": True, **RACK}))


RACK = {"line_rate": "1Gbps", "classes": {"control_dscp": 0, "gradient_dscp": [0]}}
