"""A push to a small fleet, beside ansible-playbook."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import ansible_template, push_fleet


def test_it_answers_one_flat_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_fleet, "QUICK_DEVICES", 3)
    monkeypatch.setattr(push_fleet, "QUICK_COMPARED", 1)
    result = CliRunner().invoke(push_fleet.main, ["--quick", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert (found["devices"], found["failures"]) == (3, 0)
    assert min(found.values()) >= 0
    assert found["peak_mb"] > found["emulator_mb"]
    if ansible_template.ansible_playbook() is not None:
        assert found["ratio_to_ansible"] == pytest.approx(
            found["ansible_seconds"] / found["compared_seconds"]
        )
