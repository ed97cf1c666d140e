"""What the comparison with ns-3 says where ns-3 is missing, and what both are given."""

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import network_ns3
from benchmarks.network_ns3 import CASES, burst_world, bursts, main, spines_of, transport_world


def test_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_ns3, "which", lambda _name: None)
    ended = CliRunner().invoke(main, ["--json"])
    assert ended.exit_code == 1
    assert ended.output == f"{network_ns3.MISSING}\n"


def test_flows_take_all_spines() -> None:
    case = CASES["permutation"]
    flows = case.flows(case, np.random.default_rng(1))
    ways = spines_of(transport_world(case, "dctcp", flows, 1))
    assert {way for pair in ways for way in pair} == {0, 1, 2, 3}


def test_bursts_meet_both_thresholds() -> None:
    world = burst_world(*bursts(1, 0.002), 1)
    queues = world.tables["queues"].reshape(-1, 3)[world.network.hosts :, 1:]
    assert queues["marked"].sum(axis=0).min() > 0
    assert queues["dropped"].sum(axis=0)[:, 0].min() > 0
