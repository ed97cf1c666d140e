import fcntl
import os
from pathlib import Path

import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.lab import Lab, LabMode
from mltswitch.lab import lab as lab_module
from mltswitch.lab import state as state_module
from mltswitch.lab.layout import Layout
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.relay import relays_of
from mltswitch.lab.state import LabState, claim, claimed_by_another, locked, read_state, write_state
from mltswitch.plan import Fabric
from tests.lab.conftest import DEVICES


def state_of(layout: Layout) -> LabState:
    return LabState(mode=LabMode.NATIVE, fabric=layout.fabric, devices=layout.devices)


@pytest.fixture
def paths(tmp_path: Path) -> LabPaths:
    paths = LabPaths(tmp_path / "lab")
    paths.create()
    return paths


def test_state_is_read_as_written(paths: LabPaths, layout: Layout) -> None:
    state = state_of(layout).model_copy(update={"missing": ("one line",)})
    write_state(paths, state)
    found = read_state(paths)
    assert found == state
    assert found is not None
    assert [relay.name for relay in relays_of(found.layout)] == ["spine1", "spine2", "leaf1", "leaf2"]
    assert found.namespaces == layout.namespaces
    assert not found.ready


def test_no_state(paths: LabPaths) -> None:
    assert read_state(paths) is None


def test_damaged_state_is_named(paths: LabPaths) -> None:
    paths.state.write_text('{"schema_version": "mltswitch/lab/v2"')
    with pytest.raises(MachineError, match=r"state\.json: cannot be understood"):
        read_state(paths)


def test_second_lock_is_refused(paths: LabPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state_module, "MACHINE_LOCK", tmp_path / "lock")
    with locked(paths), pytest.raises(MachineError, match="is at work"), locked(paths):
        pytest.fail("the lock was given twice")
    with locked(paths):
        pass


def test_the_lock_ends_with_its_holder(
    paths: LabPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    monkeypatch.setattr(state_module, "MACHINE_LOCK", lock)
    target = lock if os.geteuid() == 0 else paths.root
    lock.touch()
    child = os.fork()
    if child == 0:
        fcntl.flock(os.open(target, os.O_RDONLY), fcntl.LOCK_EX)
        os._exit(0)
    os.waitpid(child, 0)
    with locked(paths):
        pass


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> set[str]:
    """Namespaces of an imagined machine, on which no lab is up."""
    names = {"mlt-mgmt", "mlt-leaf1", "mlt-somebody"}
    monkeypatch.setattr(lab_module, "our_namespaces", lambda: tuple(sorted(names)))
    monkeypatch.setattr(lab_module, "remove_namespace", names.remove)
    monkeypatch.setattr(state_module, "MACHINE_LOCK", tmp_path / "lock")
    return names


def test_down_removes_what_is_recorded(paths: LabPaths, layout: Layout, left: set[str]) -> None:
    write_state(paths, state_of(layout))
    claim(paths)
    Lab(paths.root).down(lambda _: None)
    assert left == {"mlt-somebody"}


@pytest.mark.parametrize("boot", ["", "another"])
def test_down_without_a_record_removes_what_nobody_has(
    paths: LabPaths, layout: Layout, left: set[str], boot: str
) -> None:
    if boot:
        state = state_of(layout)
        write_state(paths, state.model_copy(update={"boot": boot}))
    claim(LabPaths(paths.root.parent / "removed"))
    Lab(paths.root).down(lambda _: None)
    assert left == set()


@pytest.mark.parametrize("has_record", [True, False])
def test_down_leaves_another_lab_alone(
    paths: LabPaths, layout: Layout, left: set[str], tmp_path: Path, has_record: bool
) -> None:
    state = state_of(layout)
    if has_record:
        write_state(paths, state)
    other = LabPaths(tmp_path / "other")
    other.create()
    claim(other)
    write_state(other, state)
    said: list[str] = []
    Lab(paths.root).down(said.append)
    assert said[0].startswith(f"the lab of {other.root} is up; ")
    assert said[0].endswith(f" -i {other.root.parent}")
    assert len(left) == 3
    assert read_state(other) == state


def test_an_empty_lock_names_no_lab(
    paths: LabPaths, layout: Layout, left: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(paths, state_of(layout))
    state_module.MACHINE_LOCK.touch()
    monkeypatch.chdir(paths.root)
    assert claimed_by_another(LabPaths(paths.root.parent / "second")) is None


def test_one_directory_by_two_names_is_one_lab(
    paths: LabPaths, layout: Layout, left: set[str], tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(paths.root.parent)
    write_state(paths, state_of(layout))
    claim(paths)
    Lab(tmp_path / "alias" / "lab").down(lambda _: None)
    assert left == {"mlt-somebody"}


def test_up_names_the_lab_that_is_up(
    paths: LabPaths, layout: Layout, left: set[str], tmp_path: Path, lab_fabric: Fabric
) -> None:
    claim(paths)
    write_state(paths, state_of(layout))
    with pytest.raises(MachineError, match=rf"{paths.root}: a lab is up already.* for its inventory"):
        Lab(tmp_path / "second").up(lab_fabric, DEVICES, progress=lambda _: None)


def test_folders_are_private_and_all_removed(paths: LabPaths) -> None:
    assert paths.root.stat().st_mode & 0o077 == 0
    assert paths.host_keys.stat().st_mode & 0o077 == 0
    (paths.logs / "a.log").write_text("why\n")
    paths.remove(keep_logs=True)
    assert [entry.name for entry in paths.root.iterdir()] == ["logs"]
    paths.remove()
    assert not paths.root.exists()


def test_somebody_elses_files_are_kept(paths: LabPaths) -> None:
    (paths.root / "notes.txt").write_text("mine")
    paths.remove()
    assert [entry.name for entry in paths.root.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["a';id;'", "my lab", "a,b", "$(id)", "`id`", "a\nb", 'a"b', "müll"])
def test_a_path_that_a_script_would_misread(tmp_path: Path, name: str, lab_fabric: Fabric) -> None:
    with pytest.raises(UserInputError, match="a path that no script can hold"):
        Lab(tmp_path / name).up(lab_fabric, DEVICES, progress=lambda _: None)
    assert not list(tmp_path.iterdir())


def test_log_tail_leaves_out_stack_dumps(paths: LabPaths) -> None:
    (paths.logs / "k.log").write_text("Kernel panic\n [<6002d37a>] ? show\n 60000000 0000\nStack:\nend\n")
    assert paths.log_tail() == "k.log: Kernel panic | k.log: end"


def test_commands_need_a_lab(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "none")
    assert lab.status().mode is LabMode.DOWN
    with pytest.raises(MachineError, match="no lab is up"):
        lab.run(["true"])
    with pytest.raises(MachineError, match="no lab is up"):
        lab.host_namespace("host1")


def test_a_lab_of_an_earlier_boot_is_told(paths: LabPaths, layout: Layout) -> None:
    state = state_of(layout)
    write_state(paths, state.model_copy(update={"boot": "another", "ready": True}))
    with pytest.raises(MachineError, match="before this machine was"):
        Lab(paths.root).run(["true"])
