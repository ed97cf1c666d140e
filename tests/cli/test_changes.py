"""A push by the command line to an emulated switch, and all that one asks and does about it afterwards."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from mltswitch.cli import cli
from mltswitch.documents import dump_yaml
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.inventory import Device
from mltswitch.plan import Plan
from tests.deploy.sshd import make_key
from tests.deploy.test_eos_end_to_end import eos, plan

__all__ = ["plan"]  # a fixture

Run = Callable[..., str]


def run(*words: str, code: int = 0) -> str:
    ended = CliRunner().invoke(cli, words, standalone_mode=False, catch_exceptions=False)
    assert ended.exception is None
    assert ended.return_value in {code, None}, ended.output
    return ended.output


def inventory_of(leaf: Device, folder: Path) -> Path:
    """A file with this device in it."""
    variables = {
        "ansible_host": leaf.address,
        "ansible_port": leaf.port,
        "ansible_user": leaf.user,
        "ansible_network_os": "eos",
        "ansible_ssh_private_key_file": str(leaf.key_file),
        "mltswitch_known_hosts_file": str(leaf.known_hosts_file),
        "mltswitch_switch": leaf.switch,
    }
    path = folder / "rack.yaml"
    path.write_text(yaml.safe_dump({"all": {"hosts": {leaf.name: variables}}}))
    return path


def test_trust_records_key_and_serial_number_once(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.yaml").write_text(dump_yaml(plan))
    (tmp_path / "host_vars").mkdir()
    variables = tmp_path / "host_vars" / "eos1.yaml"
    with eos(tmp_path) as (_, rack, _):
        [leaf] = rack.devices
        rack_file = inventory_of(leaf, tmp_path)
        words = ("-i", str(rack_file))
        variables.write_text("# by hand\nshelf: 7")
        known = leaf.known_hosts_file.read_text()
        leaf.known_hosts_file.unlink()
        with pytest.raises(UserInputError, match="nobody can be asked"):
            run("trust", *words)
        assert not leaf.known_hosts_file.exists()
        [seen] = json.loads(run("trust", *words, "--yes", "--json"))
        assert leaf.known_hosts_file.read_text() == known
        assert seen["fingerprint"].startswith("SHA256:")
        assert seen["file"] == str(variables)
        assert variables.read_text() == f'# by hand\nshelf: 7\nmltswitch_serial: "{seen["serial"]}"\n'
        assert "0 serial numbers recorded" in run("trust", *words, "--yes")
        pushed = (str(tmp_path / "plan.yaml"), *words)
        assert "1 changed" in run("push", *pushed)
        variables.write_text("mltswitch_serial: another\n")
        refused = run("verify", *pushed, code=4)
        assert f"says that it is eos1 (serial {seen['serial']}" in refused
        with pytest.raises(UserInputError, match="its serial number is "):
            run("trust", *words, "--yes")


def test_trust_never_replaces_a_key(tmp_path: Path) -> None:
    with eos(tmp_path) as (_, rack, _):
        [leaf] = rack.devices
        rack_file = inventory_of(leaf, tmp_path)
        make_key(tmp_path / "other")
        kind, blob, *_ = (tmp_path / "other.pub").read_text().split()
        other = f"[127.0.0.1]:{leaf.port} {kind} {blob}\n"
        leaf.known_hosts_file.write_text(other)
        with pytest.raises(DeviceError, match="is not the one in"):
            run("trust", "-i", str(rack_file), "--yes")
        assert leaf.known_hosts_file.read_text() == other


def test_a_change_from_push_to_rollback(tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "plan.yaml").write_text(dump_yaml(plan))
    with eos(tmp_path) as (switch, rack, _):
        [leaf] = rack.devices
        inventory_of(leaf, tmp_path)
        words = (str(tmp_path / "plan.yaml"), "-i", str(tmp_path / "rack.yaml"))
        start = switch.configuration
        assert "1 would-change" in run("push", *words, "--check")
        assert "1 would-change" in run("diff", *words)
        assert "1 would-change" in run("diff", *words, "--exit-code", code=1)
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
        assert "1 ok" in run("diff", *words, "--exit-code")
        pushed = switch.configuration
        for command in ("resume", "confirm"):
            assert run(command).splitlines()[-2:] == ["nothing to do", f"change {name}: 1 confirmed"]
        assert "1 rolled-back" in run("rollback", name)
        assert switch.configuration == switch.saved != pushed
        assert "runs-what-ran-before" in run("status", "--json")
