"""The exported playbook, run by the real ansible-playbook: check, apply, apply again; then verify says ok."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltswitch.cli import main
from mltswitch.deploy import Status, verify
from mltswitch.documents import dump_yaml
from mltswitch.inventory import load_inventory
from mltswitch.inventory.ansible import ansible_program
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities
from switchsim import EmulatorServer, SonicDevice, load_authorized_keys, load_host_key
from switchsim.cumulus import CumulusDevice
from tests.conftest import INVENTORIES
from tests.deploy.sshd import make_key
from tests.plan.examples import SMALL

MIXED_PLAN = Path(__file__).parents[1] / "golden" / "mixed" / "plan.yaml"
PLAYBOOK_SECONDS = 600.0
MODULES = {
    # ansible-core 2.19
    "ansible.builtin.raw": set(),
    "ansible.builtin.set_fact": {"patch"},
    "ansible.builtin.debug": {"msg"},
    "ansible.builtin.stat": {"path"},
    "ansible.builtin.shell": {"cmd", "stdin"},
    "ansible.builtin.command": {"cmd", "stdin"},
    "ansible.builtin.file": {"path", "state", "mode"},
    "ansible.builtin.copy": {"src", "dest", "mode"},
    "ansible.builtin.systemd_service": {"name", "enabled", "daemon_reload"},
    # github.com/ansible-collections/ansible.netcommon, plugins/modules/cli_config.py; 8.2.0
    "ansible.netcommon.cli_config": {"config", "replace", "diff_match", "backup", "commit"},
    # github.com/ansible-collections/arista.eos, plugins/modules/eos_config.py; 12.0.0
    "arista.eos.eos_config": {"src", "lines", "save_when", "match", "replace"},
    # github.com/ansible-collections/mellanox.onyx, plugins/modules/onyx_{config,command}.py; 1.0.0
    "mellanox.onyx.onyx_config": {"src", "lines", "match", "save"},
    "mellanox.onyx.onyx_command": {"commands"},
    # github.com/ansible-collections/dellemc.os6, plugins/modules/os6_{config,command}.py; 1.0.7
    "dellemc.os6.os6_config": {"src", "lines", "match", "save"},
    "dellemc.os6.os6_command": {"commands"},
    # github.com/ansible-collections/dellemc.enterprise_sonic, plugins/modules/sonic_*.py; 3.2.0
    "dellemc.enterprise_sonic.sonic_config": {"src", "lines", "match", "save"},
    "dellemc.enterprise_sonic.sonic_command": {"commands"},
}
"""Module → parameters, as its documentation has them."""
ABOUT_TASKS = {
    *("name", "when", "block", "always", "register", "loop", "loop_control", "vars"),
    *("changed_when", "failed_when", "check_mode"),
}


def plan_for(platform: str) -> Plan:
    """One spine and one leaf with two ports."""
    group = {"count": 1, "platform": platform}
    document = SMALL | {
        "topology": {"leaf_spine": {"spines": group, "leaves": group, "hosts_per_leaf": 1}},
        "addressing": SMALL["addressing"] | {"alias": {"spine1": "10.101.0.0/16"}},
        "ports": {"rate": "10Gbps", "buffer": "1MB"},
    }
    return build_plan(
        resolve_profile("resnet50"), Fabric.model_validate(document), hardware_capabilities, "paper"
    )


def exported(plan: Path, inventory: Path, folder: Path, *options: str) -> Path:
    """The folder that the command writes."""
    with pytest.raises(SystemExit) as end:
        main(["export", "ansible", str(plan), "-i", str(inventory), "-o", str(folder), *options])
    assert end.value.code == 0
    return folder


def play(folder: Path, *options: str) -> dict[str, dict[str, int]]:
    """Run the playbook; device → how many tasks were ok, changed, failed, ..."""
    program = ansible_program("ansible-playbook")
    assert program is not None
    environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_NOCOLOR": "1"}
    environment |= {"ANSIBLE_CONFIG": "", "ANSIBLE_LOCAL_TEMP": str(folder / "tmp")}
    done = subprocess.run(
        [program, "-i", "inventory.yaml", "playbook.yaml", *options],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=PLAYBOOK_SECONDS,
    )
    assert "PLAY RECAP" in done.stdout, done.stdout + done.stderr
    recap = done.stdout.rpartition("PLAY RECAP")[2]
    return {
        name: {word: int(count) for word, count in re.findall(r"(\w+)=(\d+)", counts)}
        for name, counts in re.findall(r"(?m)^(\S+)\s+: (ok=.*)$", recap)
    }


@contextmanager
def emulated(folder: Path, platform: str) -> Iterator[tuple[Any, Path]]:
    """A switch, and the folder of the inventory in which it is leaf1."""
    host_key = make_key(folder / "host")
    make_key(folder / "id")
    switch = {"sonic": SonicDevice, "cumulus": CumulusDevice}[platform]("leaf1")
    keys = load_authorized_keys(folder / "id.pub")
    with EmulatorServer(switch, host_key=load_host_key(folder / "host"), authorized_keys=keys) as server:
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {host_key}\n")
        host = {
            "ansible_host": "127.0.0.1",
            "ansible_port": server.port,
            "ansible_user": "admin",
            "ansible_ssh_private_key_file": "id",
            "mltswitch_known_hosts_file": "known_hosts",
            "mltswitch_platform": platform,
        }
        (folder / "hosts.yaml").write_text(yaml.safe_dump({"all": {"hosts": {"leaf1": host}}}))
        yield switch, folder / "hosts.yaml"


def configuration(switch: Any) -> tuple[Any, Any]:
    """What it runs, and what it starts with."""
    if isinstance(switch, CumulusDevice):
        return switch.applied, switch.saved
    saved = json.loads(switch.files.read("/etc/sonic/config_db.json"))
    return json.loads(switch.print_data()), saved


@pytest.mark.parametrize("platform", ["sonic", "cumulus"])
def test_check_tells_and_a_second_run_changes_nothing(tmp_path: Path, platform: str) -> None:
    plan = plan_for(platform)
    (tmp_path / "plan.yaml").write_text(dump_yaml(plan))
    with emulated(tmp_path, platform) as (switch, inventory):
        folder = exported(tmp_path / "plan.yaml", inventory, tmp_path / "out")
        before = configuration(switch)
        assert play(folder, "--check")["leaf1"]["changed"] > 0
        assert configuration(switch) == before
        first = play(folder)["leaf1"]
        assert (first["failed"], first["unreachable"]) == (0, 0)
        assert first["changed"] > 0
        running, saved = configuration(switch)
        assert running == saved != before[0]
        for options in ([], ["--check"]):
            again = play(folder, *options)["leaf1"]
            assert (again["failed"], again["unreachable"], again["changed"]) == (0, 0, 0)
        [report] = verify(plan, load_inventory(inventory)).devices
        assert (report.status, report.differences, report.error) == (Status.OK, (), "")


def tasks_of(block: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Module and arguments of every task, those of blocks, too."""
    for task in block:
        nested = [task[word] for word in ("block", "always") if word in task]
        modules = [word for word in task if word not in ABOUT_TASKS]
        assert len(modules) == (0 if nested else 1), task
        for name in modules:
            yield name, task[name]
        for each in nested:
            yield from tasks_of(each)


def test_plays_name_modules_and_parameters_that_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = exported(MIXED_PLAN, INVENTORIES / "mixed", tmp_path / "out", "--json")
    printed = capsys.readouterr()
    written = {str(path) for path in folder.rglob("*") if path.is_file()}
    assert set(json.loads(printed.out)["files"]) == written
    assert "Ansible speaks neither P4Runtime nor gNMI: leaf8, leaf9" in printed.err
    plays = yaml.safe_load((folder / "playbook.yaml").read_text())
    used = set()
    for each in plays:
        assert {**each, "max_fail_percentage": 0, "any_errors_fatal": False} == each
        assert each["serial"].startswith("{{ wave ")
        tasks = list(tasks_of(each["tasks"]))
        used |= {module for module, _ in tasks}
        assert all(set(given) <= MODULES[module] for module, given in tasks if isinstance(given, dict)), each
        last = tasks[-1][0].rpartition(".")[2] + str(tasks[-1][1])
        assert any(word in last for word in ("save", "write memory", "systemd_service")), each["name"]
    assert used == set(MODULES)
    groups = yaml.safe_load((folder / "inventory.yaml").read_text())["all"]["children"]
    hosts = {name for each in plays for name in groups[each["hosts"]]["hosts"]}
    assert hosts == {path.name for path in (folder / "files").iterdir()} == set(groups["switches"]["hosts"])
    readme = (folder / "README.md").read_text()
    assert all(module in readme for module in MODULES if not module.startswith("ansible.builtin."))


SEALED = "$ANSIBLE_VAULT;1.1;AES256\n3132\n3334\n"


def test_no_secret_is_written_and_references_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltswitch.inventory.load.ansible_program", ansible_program)
    monkeypatch.setenv("RACK_PASSWORD", "hunter2")
    sealed = SEALED.replace("\n", "\n        ")
    (tmp_path / "hosts.yaml").write_text(
        "all:\n  hosts:\n    leaf1:\n      ansible_user: admin\n      mltswitch_platform: sonic\n"
        "      ansible_host: 192.0.2.1\n      ansible_become: true\n"
        "      ansible_ssh_common_args: -J jump@192.0.2.9\n      mltswitch_password_env: RACK_PASSWORD\n"
        f"      ansible_become_password: !vault |\n        {sealed}\n"
    )
    (tmp_path / "plan.yaml").write_text(dump_yaml(plan_for("sonic")))
    folder = exported(tmp_path / "plan.yaml", tmp_path / "hosts.yaml", tmp_path / "out")
    assert not [path for path in folder.rglob("*") if path.is_file() and "hunter2" in path.read_text()]
    program = ansible_program()
    assert program is not None
    shown = subprocess.run(
        [program, "-i", str(folder / "inventory.yaml"), "--list"], check=True, capture_output=True, text=True
    )
    variables: Mapping[str, Any] = json.loads(shown.stdout)["_meta"]["hostvars"]["leaf1"]
    assert "lookup('ansible.builtin.env', 'RACK_PASSWORD')" in variables["ansible_password"]
    assert variables["ansible_become_password"] == {"__ansible_vault": SEALED}
    assert "-o ProxyJump=jump@192.0.2.9:22" in variables["ansible_ssh_common_args"]
