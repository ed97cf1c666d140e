"""What `import mltswitch` offers, what it costs, and docs/python-api.md, whose programs run as they stand."""

import ast
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import mltswitch
from mltswitch.documents import dump_yaml
from tests.cli.test_changes import inventory_of
from tests.deploy.emulated import plan_of
from tests.deploy.test_eos_end_to_end import eos

PAGE = (Path(__file__).parents[1] / "docs" / "python-api.md").read_text(encoding="utf-8")
PLAN, PUSH, TRAIN = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
PATIENCE_SECONDS = 300.0


def python(program: str, folder: Path, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: "subprocess.Popen[str]", code: int = 0) -> str:
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code, err
    return out


def test_importing_loads_nothing_of_ours_and_no_package(tmp_path: Path) -> None:
    program = (
        "import sys; before = {*sys.modules}; import mltswitch; mltswitch.__version__; dir(mltswitch)\n"
        "print(*sorted({name for name in {*sys.modules} - before if name.startswith('mltswitch')}))\n"
        "print(*{'click', 'jinja2', 'numpy', 'pydantic', 'rich', 'torch', 'yaml'} & {*sys.modules} - before)"
    )
    assert ended(python(program, tmp_path)).splitlines() == ["mltswitch mltswitch.version", ""]


@pytest.mark.parametrize("name", mltswitch.__all__)
def test_each_name_is_there(name: str) -> None:
    if mltswitch._HOME[name].startswith("mltswitch.training"):
        pytest.importorskip("torch")
    assert getattr(mltswitch, name).__name__ == name


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'thresholds'"):
        _ = mltswitch.thresholds


def test_type_checkers_see_what_is_loaded() -> None:
    tree = ast.parse(Path(mltswitch.__file__).read_text(encoding="utf-8"))
    [guarded] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    assert seen == mltswitch._HOME


def test_the_page_has_every_name_and_no_other() -> None:
    table = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
    assert named == {*mltswitch.__all__, "__version__"}


def test_without_torch_the_error_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['torch'] = None; from mltswitch import MltState"
    process = python(program, tmp_path)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert "ImportError: MltState needs torch: `pip install 'mltswitch[agent,torch]'`" in err


def test_the_programs_of_the_page_plan_render_push_and_verify(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(dump_yaml(plan_of("eos").fabric))
    with eos(tmp_path) as (switch, rack, _):
        inventory_of(rack.devices[0], tmp_path)
        out = ended(python(PLAN, tmp_path))
        assert re.search(
            r"^gradient-0: [\d.]+% of unimportant packets lost \(predicted\)$", out, re.MULTILINE
        )
        assert re.search(r"^eos1: .+, \d+ lines$", out, re.MULTILINE)
        start = switch.configuration
        assert ended(python(PUSH.partition("\nreport = ")[0], tmp_path)).startswith(
            "eos1 would-change configure"
        )
        assert switch.configuration == start
        assert ended(python(PUSH, tmp_path)).endswith("\neos1 changed \n")
        assert switch.configuration == switch.saved != start
        assert "eos1 ok" in ended(python(PUSH, tmp_path))


@pytest.mark.torch
def test_the_training_program_of_the_page_gives_all_ranks_one_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [python(TRAIN, tmp_path, RANK=str(rank), **job) for rank in range(2)]
    told = [ended(rank) for rank in ranks]
    assert [line.partition(":")[0] for line in told] == ["rank 0", "rank 1"]
    assert len({line.partition(":")[2] for line in told}) == 1


def test_a_plans_file_serves_as_a_plan(tmp_path: Path) -> None:
    (tmp_path / "rack.yaml").write_text("all: {hosts: {leaf1: {mltswitch_platform: eos}}}\n")
    with pytest.raises(mltswitch.MltswitchError, match=r"no-plan\.yaml"):
        mltswitch.render(tmp_path / "no-plan.yaml", tmp_path / "rack.yaml")
    root = Path(__file__).parents[1]
    plan, inventory = root / "tests/golden/files/plan.yaml", root / "inventories/lab"
    assert mltswitch.render(plan, inventory) == mltswitch.render(mltswitch.load_plan(plan), inventory)
