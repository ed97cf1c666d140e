"""The goodput benchmark's figures, its C loops and the agent between two namespaces."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.agent_ends import Worker
from benchmarks.agent_goodput import (
    DATAGRAMS,
    MTUS,
    Ends,
    Speed,
    c_loop,
    figures,
    longest_burst,
    packet_bytes,
    speed,
    tcp,
    tcp_speed,
)
from benchmarks.agent_network import running_pair
from mltswitch.errors import MachineError
from mltswitch.lab import NamespaceHandle
from mltswitch.lab.programs import Program, compiled, need


def test_a_burst_fits_into_a_datagram() -> None:
    assert [packet_bytes(mtu) for mtu in MTUS] == [1472, 8972]
    assert [longest_burst(mtu) for mtu in MTUS] == [44, 7]
    assert longest_burst(528) == 64


def test_what_two_processes_say() -> None:
    found = speed(
        {"bytes": 2_000_000_000, "seconds": 4.0, "cpu_seconds": 3.0}, {"cpu_seconds": 1.0}, lost_share=0.01
    )
    assert found == Speed(4e9, 2.0, 1.5, {"lost_share": 0.01})


def test_what_iperf3_says() -> None:
    report = {
        "end": {
            "sum_received": {"seconds": 2.0, "bytes": 5_000_000_000, "bits_per_second": 20e9},
            "cpu_utilization_percent": {"host_total": 50.0, "remote_total": 100.0},
        }
    }
    assert tcp_speed(report) == Speed(20e9, 0.6, 0.2, {})


def test_figures() -> None:
    turns = [
        {
            "ours_max_mtu1500": Speed(ours, 1.0, 0.5, {"lost_share": share}),
            "tcp_mtu1500": Speed(10e9, 2.0, 1.0, {}),
        }
        for ours, share in ((20e9, 0.0), (5e9, 0.1), (15e9, 0.2))
    ]
    assert figures(turns) == {
        "ratio_to_tcp_max_mtu1500": 1.5,
        "cpu_seconds_per_gb": 1.0,
        "tcp_cpu_seconds_per_gb": 2.0,
        "ours_max_mtu1500_gbps": 15.0,
        "ours_max_mtu1500_cpu_seconds_per_gb": 1.0,
        "ours_max_mtu1500_sender_cpu_seconds_per_gb": 0.5,
        "ours_max_mtu1500_lost_share": 0.1,
        "tcp_mtu1500_gbps": 10.0,
        "tcp_mtu1500_cpu_seconds_per_gb": 2.0,
        "tcp_mtu1500_sender_cpu_seconds_per_gb": 1.0,
        "turns": 3.0,
    }


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(MachineError, match="no-such-program is not installed"):
        need("no-such-program")


@pytest.mark.root
def test_a_program_that_fails_is_named() -> None:
    with running_pair() as pair, Program(pair.sender, ["sh", "-c", "echo broken >&2; exit 3"]) as program:
        with pytest.raises(MachineError, match="broken"):
            program.line()
        missing = NamespaceHandle("mltswitch-bench-none")
    with Program(missing, ["true"]) as program, pytest.raises(MachineError):
        program.answer()


@pytest.mark.root
def test_the_loops_lose_nothing(tmp_path: Path) -> None:
    try:
        program = compiled(DATAGRAMS, tmp_path)
    except MachineError as error:
        pytest.skip(str(error))
    with running_pair() as pair:
        for mtu in MTUS:
            pair.use_mtu(mtu)
            for mode in ("plain", "offload"):
                found = c_loop(pair, program, mode, mtu, 0.05)
                assert found.bits_per_second > 0
                assert found.extra == {"lost_share": 0.0}


@pytest.mark.root
def test_iperf3_runs_between_the_namespaces() -> None:
    try:
        need("iperf3")
    except MachineError as error:
        pytest.skip(str(error))
    with running_pair() as pair:
        found = tcp(pair, 1.0)
    assert found.bits_per_second > 0
    assert 0 < found.sender_cpu_seconds_per_gb < found.cpu_seconds_per_gb


@pytest.mark.root
def test_tensors_cross_the_cable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.agent_goodput.TENSOR_BYTES", 1_000_000)
    monkeypatch.setattr("benchmarks.agent_goodput.has_gloo", lambda: False)
    with ExitStack() as stack:
        pair = stack.enter_context(running_pair())
        ends = Ends(stack, pair)
        for kind, mtu in (("mtu1500", 1500), ("mac", 1500), ("mtu9000", 9000)):
            pair.use_mtu(mtu)
            with ends.busy(elsewhere=False):
                found = ends.ours(kind, 0.01, 4)
            assert found.bits_per_second > 0
            assert 0 <= found.extra["lost_share"] <= 0.01


@pytest.mark.root
def test_what_fails_in_a_worker_is_an_error_here() -> None:
    with running_pair() as pair, Worker(pair.sender) as worker:
        with pytest.raises(MachineError, match=r"stat: .*No such file"):
            worker.call(os.stat, "/no/such/file")
        worker.start(exit)
        with pytest.raises(MachineError, match="has ended"):
            worker.result()
