"""The campaign as a command: figures, failures, and how to see a failure again."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import agent_campaign
from benchmarks.agent_campaign import main
from tests.hostagent.virtual.campaign import Tally
from tests.hostagent.virtual.play import Play


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_figures() -> None:
    code, output, _ = run("--scenarios", "12", "--seed", "3", "--jobs", "1", "--json")
    found = json.loads(output)
    assert code == 0
    assert found["scenarios"] == 12
    assert found["failures"] == 0
    assert found["transfers_complete"] > 0
    code, output, _ = run("--scenarios", "12", "--seed", "3", "--jobs", "1")
    assert f"datagrams: {found['datagrams']:,.6g} (measured)" in output


def test_several_processes_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_campaign, "SCENARIOS_AT_ONCE", 5)
    one, two = (agent_campaign.run_campaign(0, 12, jobs) for jobs in (1, 2))
    assert (one.scenarios, one.complete, one.datagrams) == (two.scenarios, two.complete, two.datagrams)


def test_a_failure_is_shown_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Play.run

    def fails_at_four(self: Play) -> object:
        assert self.scenario.seed != 4, "four is wrong"
        return plays(self)

    monkeypatch.setattr(Play, "run", fails_at_four)
    code, output, errors = run("--scenarios", "6", "--jobs", "1", "--json")
    assert code == 1
    assert json.loads(output)["failures"] == 1
    assert "four is wrong" in errors
    assert "python -m benchmarks.agent_campaign --replay 4" in errors
    assert isinstance(CliRunner().invoke(main, ["--replay", "4"]).exception, AssertionError)


def test_replay() -> None:
    code, output, _ = run("--replay", "5")
    assert code == 0
    assert "trace=" in output


def test_fuzzing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_campaign, "INPUTS_AT_ONCE", 500)
    code, output, _ = run("--fuzz", "900", "--jobs", "1", "--json")
    found = json.loads(output)
    assert code == 0
    assert found["fuzz_inputs"] >= 900
    assert found["fuzz_failures"] == 0


def test_tallies_add_up() -> None:
    one, two = Tally(scenarios=1, complete=2), Tally(scenarios=3, complete=4)
    one.add(two)
    assert (one.scenarios, one.complete) == (4, 6)
