"""A first push beside netmiko's own call."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import push_latency


def test_it_answers_one_flat_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_latency, "QUICK", ("onyx", "sonic"))
    monkeypatch.setattr(push_latency, "ROUND_TRIPS_MS", (0,))
    result = CliRunner().invoke(push_latency.main, ["--quick", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found["onyx_0ms_ratio_to_netmiko"] == pytest.approx(
        found["onyx_0ms_netmiko_seconds"] / found["onyx_0ms_apply_seconds"]
    )
    assert found["sonic_0ms_lines"] > 0
