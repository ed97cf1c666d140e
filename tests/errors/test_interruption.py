"""Commands that end before their time: Ctrl-C is exit code 130, and nothing of a killed one stays behind."""

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from mltswitch.errors import UserInputError
from mltswitch.outputs import HIDDEN, write_together
from tests.conftest import LAB_FABRIC
from tests.errors.test_corpus import PLAN, PLANNED

PATIENCE_SECONDS: Final = 60.0
MOST_SECONDS: Final = 30.0
"""Of the processor, for a large fabric."""
STARTED: Final = "mltswitch/cli/__init__"
"""A part of the name of a module of ours, which Python loads after its own start-up is over."""


def start(*arguments: object) -> "subprocess.Popen[str]":
    """The command, as soon as it is ours: what Ctrl-C does before is Python's own business."""
    command = [sys.executable, "-v", "-m", "mltswitch", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any(STARTED in line for line in process.stderr)
    return process


def said(process: "subprocess.Popen[str]") -> str:
    """Standard error without what `python -v` says of imports, and of the interpreter's end."""
    _, text = process.communicate(timeout=PATIENCE_SECONDS)
    ours = ("mltswitch:", "Traceback", "Exception")
    return "\n".join(line for line in text.splitlines() if line.startswith(ours))


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plan") / "plan.yaml"
    command = [sys.executable, "-m", "mltswitch", *PLAN, str(LAB_FABRIC), "-o", str(file)]
    assert subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode in PLANNED
    return file


@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("command", ["plan", "render"])
def test_ctrl_c(tmp_path: Path, plan_file: Path, command: str, seconds: float) -> None:
    output = tmp_path / "out"
    if command == "plan":
        process = start(*PLAN, LAB_FABRIC, "-o", output)
    else:
        process = start("render", plan_file, "-i", LAB_FABRIC.parent, "-o", output)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    text = said(process)
    is_finished = process.returncode in PLANNED
    assert is_finished or (process.returncode, text) == (130, "mltswitch: interrupted")
    assert "Traceback" not in text
    assert not list(tmp_path.rglob(".*"))
    assert output.exists() or not is_finished


def files(folder: Path) -> dict[str, str]:
    """The files of a folder, but for hidden ones, in which a text waits until it takes its place."""
    shown = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(HIDDEN))
    return {str(path.relative_to(folder)): path.read_text() for path in shown}


def test_a_killed_writer_leaves_old_files_or_new_ones(tmp_path: Path) -> None:
    names = [f"leaf{number}/config" for number in range(50)]
    writer = (
        "import sys; from pathlib import Path; from mltswitch.outputs import write_together; "
        "out = Path(sys.argv[1]); print('begun', flush=True); "
        f"names = {names}; "
        "[write_together(((out / name, text * 9999) for name in names), within=out) for text in 'ab' * 999]"
    )
    for attempt in range(8):
        out = tmp_path / str(attempt)
        process = subprocess.Popen(
            [sys.executable, "-c", writer, str(out)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.07 * attempt)
        process.kill()
        process.communicate()
        found = files(out)
        assert set(found.values()) <= {"a" * 9999, "b" * 9999}
        assert set(found) <= {*names}
        write_together(((out / name, "new") for name in names), within=out)
        assert files(out) == dict.fromkeys(names, "new")


def test_a_text_that_waits_is_read_by_no_more_than_its_place(tmp_path: Path) -> None:
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.write_text("old")
    secret.chmod(0o600)
    modes: list[int] = []

    def files_to_write() -> Iterator[tuple[Path, str]]:
        yield secret, "new"
        modes.extend(path.stat().st_mode & 0o777 for path in tmp_path.glob(f"{HIDDEN}*"))
        yield other, "text"

    write_together(files_to_write(), within=tmp_path)
    assert modes == [0o600]
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("new", 0o600)


@pytest.mark.parametrize("link", ["folder", "file"])
def test_links_in_the_output_folder_are_not_followed(tmp_path: Path, link: str) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    out.mkdir()
    outside.mkdir()
    (outside / "config").write_text("theirs")
    if link == "folder":
        (out / "leaf1").symlink_to(outside)
    else:
        (out / "leaf1").mkdir()
        (out / "leaf1" / "config").symlink_to(outside / "config")
    with pytest.raises(UserInputError, match=r"out/leaf1(/config)?: is no (regular file|folder)"):
        write_together([(out / "leaf2" / "config", "ours"), (out / "leaf1" / "config", "ours")], within=out)
    assert files(outside) == {"config": "theirs"}
    assert not (out / "leaf2").exists()


def test_render_follows_no_link(tmp_path: Path, plan_file: Path) -> None:
    (tmp_path / "outside").mkdir()
    out = tmp_path / "out"
    out.mkdir()
    (out / "sonic1").symlink_to(tmp_path / "outside")
    command = [
        sys.executable,
        "-m",
        "mltswitch",
        "render",
        str(plan_file),
        "-i",
        str(LAB_FABRIC.parent),
        "-o",
        str(out),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"mltswitch: {out}/sonic1: is no folder, or a link, which is not followed\n"
    assert list(out.iterdir()) == [out / "sonic1"]
    assert not list((tmp_path / "outside").iterdir())


def seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_hundred_thousand_hosts(tmp_path: Path) -> None:
    fabric = yaml.safe_load(LAB_FABRIC.read_text())
    tier = {"platform": "linux"}
    fabric["topology"] = {
        "leaf_spine": {"spines": tier | {"count": 8}, "leaves": tier | {"count": 2500}, "hosts_per_leaf": 40}
    }
    fabric["addressing"] |= {
        "hosts": "10.0.0.0/8",
        "links": "172.0.0.0/8",
        "alias": {f"spine{number}": f"{32 + number}.0.0.0/8" for number in range(1, 9)},
    }
    file = tmp_path / "fabric.yaml"
    file.write_text(yaml.safe_dump(fabric))
    before = seconds_of_children()
    ended = subprocess.run(
        [sys.executable, "-m", "mltswitch", *PLAN, file, "-o", tmp_path / "plan.yaml"],
        capture_output=True,
        text=True,
        check=False,
        timeout=10 * PATIENCE_SECONDS,
    )
    assert ended.returncode in PLANNED, ended.stderr
    assert seconds_of_children() - before < MOST_SECONDS
