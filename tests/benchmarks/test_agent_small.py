"""The host agent's smaller benchmarks, each once, as small as it goes."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import agent_campaign, agent_latency, agent_missing, agent_unknown_queue
from mltswitch.errors import MachineError
from mltswitch.lab.programs import need


@pytest.fixture(autouse=True)
def _without_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.agent_latency.has_gloo", lambda: False)


@pytest.fixture
def _switch() -> None:
    try:
        need("gcc", "tc", "ping")
    except MachineError as error:
        pytest.skip(str(error))


@pytest.mark.root
def test_latency() -> None:
    found = agent_latency.measure(1, 0.01)
    assert found["ours_p50_us"] <= found["ours_p99_us"]
    assert found["p50_ratio_to_tcp"] == found["ours_p50_us"] / found["tcp_p50_us"]
    assert found["cpu_ms_per_small_tensor"] > 0
    assert found["bucket_ms"] > 0


@pytest.mark.root
@pytest.mark.usefixtures("_switch")
def test_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_missing, "digits", lambda: None)
    found = agent_missing.measure(2, 1, {"small": 120_000})
    assert found["missing_share_loss0"] <= 0.1
    assert found["largest_share_of_rounds_an_element_missed"] in {0, 0.5, 1}


def test_what_is_missing_is_counted_by_packet() -> None:
    rounds = [
        agent_missing.Round(np.array(arrived, bool), 0.0, 1.0, 5)
        for arrived in ([0, 1, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 1])
    ]
    found = agent_missing.spread(rounds)
    assert found["missing_share"] == 3 / 16
    assert found["largest_share_missed"] == 0.5
    assert found["last_over_first_quarter"] == 0
    assert found["sent_over_needed"] == 20 / 16


def test_training_learns_digits() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, agent_missing.TRAINED + 300)
    pictures = random.standard_normal((len(labels), 64)).astype(np.float32) * np.float32(0.2)
    pictures[np.arange(len(labels)), labels] += 1
    assert agent_missing.trained_accuracy(pictures, labels, 0, lambda gradient: gradient) > 0.9


@pytest.mark.root
@pytest.mark.usefixtures("_switch")
def test_unknown_queue() -> None:
    found = agent_unknown_queue.measure(1, 40_000)
    assert found["sent_over_needed"] >= 1
    assert found["incasts"] == 1


@pytest.mark.root
def test_an_attacker_writes_nothing(tmp_path: Path) -> None:
    found = agent_campaign.under_attack(tmp_path, 1, 500)
    assert found["forged_datagrams"] == 500
    assert found["forged_rejected"] > 0
    assert found["forged_foreign_bytes"] == 0


def test_the_campaign_plays_parts_of_a_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$2 scenarios, $1 seeds"\n[ "$1" != 9 ]\n')
    program.chmod(0o700)
    assert agent_campaign.play(program, 10, 30, r"(\d+) scenarios")[0] == [30]
    with pytest.raises(MachineError, match="9 seeds"):
        agent_campaign.play(program, 9, 30, r"(\d+) scenarios")
