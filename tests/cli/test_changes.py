"""A push by the command line to an emulated switch, and all that one asks and does about it afterwards."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from mltswitch.cli import cli
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan
from tests.deploy.test_eos_end_to_end import eos, plan

__all__ = ["plan"]  # a fixture

Run = Callable[..., str]


def run(*words: str, code: int = 0) -> str:
    ended = CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)
    assert ended.exception is None
    assert ended.return_value in {code, None}, ended.output
    return ended.output


def test_a_change_from_push_to_rollback(tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "plan.yaml").write_text(dump_yaml(plan))
    with eos(tmp_path) as (switch, rack, _):
        [leaf] = rack.devices
        variables = {
            "ansible_host": leaf.address,
            "ansible_port": leaf.port,
            "ansible_user": leaf.user,
            "ansible_network_os": "eos",
            "ansible_ssh_private_key_file": str(leaf.key_file),
            "mltswitch_known_hosts_file": str(leaf.known_hosts_file),
            "mltswitch_switch": leaf.switch,
        }
        hosts = {"all": {"hosts": {leaf.name: variables}}}
        (tmp_path / "rack.yaml").write_text(yaml.safe_dump(hosts))
        words = (str(tmp_path / "plan.yaml"), "-i", str(tmp_path / "rack.yaml"))
        start = switch.configuration
        assert "1 would-change" in run("push", *words, "--check")
        assert switch.configuration == start
        assert json.loads(run("history", "--json")) == []
        with pytest.raises(UserInputError, match="no change on record"):
            run("show")
        shown = run("push", *words, "--diff")
        [change] = json.loads(run("history", "--json"))
        name = change["change"]
        assert f"`mltswitch rollback {name}` takes it back" in shown
        assert "    configure session mltswitch-1" in shown
        assert change["devices"] == {"eos1": "confirmed"}
        assert change["inventories"] == [str(tmp_path / "rack.yaml")]
        assert "1 confirmed" in run("history")
        steps = [entry["state"] for entry in json.loads(run("show", name[:15], "--json"))["entries"]]
        assert steps == ["staged", "applied", "verified", "confirmed"]
        assert "configure session mltswitch-1" in run("show", "--limit", "eos1")
        assert "runs-the-plan" in run("status")
        pushed = switch.configuration
        with pytest.raises(UserInputError, match="nothing to do: 1 confirmed"):
            run("resume")
        assert "1 rolled-back" in run("rollback", name)
        assert switch.configuration == switch.startup != pushed
        assert "runs-what-ran-before" in run("status", "--json")
