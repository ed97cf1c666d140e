"""One process at a time on a device, and a record that nobody else reads."""

import os
import stat
from pathlib import Path

import pytest

from mltswitch.deploy import Fleet, push
from mltswitch.deploy.state_directory import working
from mltswitch.errors import UserInputError
from mltswitch.inventory import Inventory
from tests.deploy.doubles import SWITCHES, FileTarget, ScriptedSwitches, device, inventory, small_plan

PLAN = small_plan()
OLD = 7


def test_two_operators_at_once(target: FileTarget) -> None:
    switches = ScriptedSwitches(dict.fromkeys(SWITCHES, OLD))
    refused: list[str] = []

    def second(_: object) -> None:
        other = device("tor", switch="leaf1", address="127.0.0.1")  # the same address under another name
        for rack in (inventory(*SWITCHES), Inventory((other,), Path("inventory"))):
            with pytest.raises(UserInputError) as caught:
                push(PLAN, rack, fleet=switches.fleet)
            refused.append(str(caught.value))

    fleet = Fleet(connector=switches.connect, progress=second, concurrency=1)
    try:
        push(PLAN, inventory("spine1"), fleet=fleet)
    finally:
        assert len(refused) == 2
    for line in refused:
        assert "`mltswitch push`, since " in line
        assert f"process {os.getpid()}" in line
    assert push(PLAN, inventory("spine1"), fleet=switches.fleet).exit_code == 0


def test_a_lock_ends_with_its_process(target: FileTarget) -> None:
    child = os.fork()
    if child == 0:
        with working("push", {"leaf1": "127.0.0.1:22 1"}):
            os._exit(0)
    os.waitpid(child, 0)
    with working("push", {"leaf1": "127.0.0.1:22 1"}):
        pass


def test_nobody_else_reads_the_state(
    target: FileTarget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLTSWITCH_STATE", str(tmp_path / "state"))
    fleet = Fleet(connector=ScriptedSwitches({"leaf1": OLD}).connect)
    push(PLAN, inventory("leaf1"), fleet=fleet)
    for path in (tmp_path / "state").rglob("*"):
        if path.suffix in {".json", ".jsonl"} and path.name.startswith(("before", "journal")):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    (tmp_path / "state").chmod(0o755)
    with pytest.raises(UserInputError, match="others may read"):
        push(PLAN, inventory("leaf1"), fleet=fleet)
