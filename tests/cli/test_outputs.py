"""No command puts an output in the place of one of its inputs, by whatever name, nor follows a link."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mltswitch.cli import main
from mltswitch.documents import dump_yaml
from mltswitch.inventory.load import read_hosts
from tests.conftest import INVENTORIES
from tests.planning.test_build import fabric, plan_for

GOLDEN = Path(__file__).parent.parent / "golden" / "files"
COMMANDS: dict[str, tuple[str, ...]] = {
    "fabric.yaml": ("plan", "--profile", "resnet50", "--fabric", "fabric.yaml", "-o"),
    "fabric.yaml ": ("plan", "--profile", "resnet50", "--fabric", "fabric.yaml", "--report"),
    "bmv2/fabric.yaml": ("lab", "network", "-i", "bmv2", "--fabric", "bmv2/fabric.yaml", "-o"),
    "plan.yaml": ("plan", "--profile", "resnet50", "--edited", "plan.yaml", "--report"),
    "plan.csv": ("sweep", "plan.csv", "--load", "0.5", "-o"),
    "counters.csv": ("traffic", "fit", "counters.csv", "--rate", "1Gbps", "-o"),
}
"""An input of the command → the command, to which the output's name is added."""


def _hard(path: Path) -> str:
    os.link(path, "hard.csv")
    return "hard.csv"


def _link(path: Path) -> str:
    Path("link.csv").symlink_to(path)
    return "link.csv"


NAMES: dict[str, Callable[[Path], str]] = {
    "the same": str,
    "another spelling": lambda path: f"../{Path.cwd().name}/{path}",
    "a hard link": _hard,
    "a link": _link,
    "a dangling link": lambda _path: _link(Path("nowhere.csv")),
}


@pytest.fixture(scope="module")
def plan_text() -> str:
    return dump_yaml(plan_for("vgg16", "paper", classes__gradients__queues=1))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan_text: str) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("lab", "bmv2"):
        shutil.copytree(INVENTORIES / name, name)
    Path("fabric.yaml").write_text(dump_yaml(fabric()))
    for name in ("plan.yaml", "plan.csv"):
        Path(name).write_text(plan_text)
    Path("counters.csv").write_text("time,packets\n")
    return tmp_path


def _contents(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("source", COMMANDS)
def test_an_output_replaces_no_input(
    source: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = NAMES[name](Path(source.strip()))
    before = _contents(folder)
    with pytest.raises(SystemExit) as end:
        main([*COMMANDS[source], output])
    error = capsys.readouterr().err
    assert end.value.code == 2, error
    reason = "is a link to" if Path(output).is_symlink() else "is an input of this command"
    assert reason in error
    assert _contents(folder) == before


def test_rendered_files_replace_no_inventory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(GOLDEN / "plan.yaml", "made.yaml")
    Path("out/leaf1").mkdir(parents=True)
    (rendered,) = (GOLDEN / "leaf1").glob("*qdisc*")
    os.link("made.yaml", f"out/leaf1/{rendered.name}")
    before = _contents(folder)
    with pytest.raises(SystemExit) as end:
        main(["render", "made.yaml", "-i", "lab", "-o", "out"])
    assert end.value.code == 2
    assert "is an input of this command" in capsys.readouterr().err
    assert _contents(folder) == before


def test_rendered_files_become_no_inventory_and_old_ones_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = read_hosts(Path("lab"))
    for inside in ("lab/configs", "lab", "configs", "configs"):
        with pytest.raises(SystemExit) as end:
            main(["render", str(GOLDEN / "plan.yaml"), "-i", "lab", "-o", inside])
        error = capsys.readouterr().err
        assert not end.value.code, error
        assert ("warning: not of this" in error) == Path("configs/spine9").exists()
        if inside == "configs":
            shutil.copytree("configs/spine1", "configs/spine9", dirs_exist_ok=True)
            Path("configs/leaf1/mltswitch.txt").touch()
            Path("configs/notes").write_text("mine")
        assert read_hosts(Path("lab")) == hosts
    assert "not of this plan, and left where it is: configs/leaf1/mltswitch.txt, configs/spine9/" in error


def test_an_edited_plan_takes_its_own_place(folder: Path) -> None:
    shutil.copy(GOLDEN / "plan.yaml", folder / "plan.yaml")
    with pytest.raises(SystemExit) as end:
        main(["plan", "--profile", "resnet50", "--edited", "plan.yaml", "-o", "plan.yaml", "--force"])
    assert end.value.code in (0, 5)
    assert "is_edited: true" in Path("plan.yaml").read_text()
