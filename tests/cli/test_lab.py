"""`mltswitch lab`: which inventory, which switches, and what is told before anything is built."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mltswitch.cli.lab import SHIPPED, lab
from mltswitch.errors import UserInputError
from mltswitch.inventory import load_inventory
from mltswitch.lab import Lab

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the shipped inventories, and no lab of theirs."""
    for path in SHIPPED.values():
        shutil.copytree(ROOT / path, tmp_path / path, ignore=shutil.ignore_patterns(".lab"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """State directories of the labs that a command asked for."""
    found: list[Path] = []

    def refuse(self: Lab, *_: object, **__: object) -> None:
        found.append(self.paths.root)
        raise UserInputError("asked")

    for name in ("up", "down", "status"):
        monkeypatch.setattr(Lab, name, refuse)
    return found


def call(*arguments: str) -> Result:
    return CliRunner().invoke(lab, arguments)


@pytest.mark.parametrize(
    ("arguments", "inventory"),
    [
        (["up"], "lab"),
        (["up", "--switches", "bmv2"], "bmv2"),
        (["up", "--switches", "linux"], "lab"),
        (["up", "-i", "inventories/bmv2"], "bmv2"),
        (["up", "-i", "inventories/bmv2", "--switches", "bmv2"], "bmv2"),
        (["status"], "lab"),
        (["down"], "lab"),
    ],
)
def test_the_inventory(checkout: Path, asked: list[Path], arguments: list[str], inventory: str) -> None:
    call(*arguments)
    assert asked == [checkout / "inventories" / inventory / ".lab"]


@pytest.mark.parametrize("command", ["status", "down"])
def test_the_lab_that_is_up_needs_no_name(checkout: Path, asked: list[Path], command: str) -> None:
    state = checkout / "inventories" / "bmv2" / ".lab" / "state.json"
    state.parent.mkdir()
    state.touch()
    call(command)
    assert asked == [state.parent]


def test_elsewhere_a_lab_is_named_by_its_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mltswitch.lab.state.MACHINE_LOCK", tmp_path / "lock")
    assert str(call("up").exception).startswith(
        "inventories/lab: there is no such folder. Name with -i the folder"
    )
    (tmp_path / "rack" / ".lab").mkdir(parents=True)
    (tmp_path / "rack" / ".lab" / "state.json").touch()
    (tmp_path / "lock").write_text(f"{tmp_path}/rack/.lab\n")
    assert (
        f"the lab of {tmp_path}/rack/.lab is up; its inventory is named by -i {tmp_path}/rack"
        in call("status").output
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["-i", "inventories/lab", "--switches", "bmv2"],
            "inventories/lab/fabric.yaml: its switches are linux, onyx, sonic (expected bmv2, "
            "as --switches says). -i inventories/bmv2 has them",
        ),
        (
            ["--switches", "bmv2", "--fabric", "inventories/lab/fabric.yaml"],
            "inventories/lab/fabric.yaml: its switches are linux, onyx, sonic (expected bmv2, "
            "as --switches says). -i inventories/bmv2 has them",
        ),
    ],
)
def test_other_switches_than_asked_for(
    checkout: Path, asked: list[Path], arguments: list[str], told: str
) -> None:
    done = call("up", *arguments)
    assert str(done.exception) == told
    assert asked == []


def test_the_network_for_mininets_own_command_line(checkout: Path) -> None:
    done = call("network", "-i", "inventories/bmv2", "-o", "network.json")
    assert done.exit_code == 0
    assert "--topo mltswitch,network.json --switch bmv2" in done.output
    custom = Path(done.output.split("--custom ")[1].split()[0])
    assert custom.read_text(encoding="utf-8").startswith('"""BMv2 switches in mininet')
    network = json.loads((checkout / "network.json").read_text(encoding="utf-8"))
    assert [switch["name"] for switch in network["switches"]] == ["spine1", "spine2", "leaf1", "leaf2"]
    assert "push PLAN -i network-switches.yaml" in done.output
    devices = load_inventory(checkout / "network-switches.yaml").devices
    assert [(device.name, device.endpoint, device.thrift_port) for device in devices] == [
        (name, f"unix:/run/mlt-{name}/p4runtime", 9090) for name in ("leaf1", "leaf2", "spine1", "spine2")
    ]


def test_a_fabric_without_bmv2_is_no_network_for_mininet(checkout: Path) -> None:
    done = call("network", "-i", "inventories/lab", "-o", "network.json")
    assert str(done.exception) == "fabric lab: has no bmv2 switches"
    assert not (checkout / "network.json").exists()
