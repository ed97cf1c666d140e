"""mininet's own command line, `mn`, with our switches: as docs/lab.md has it, and with mistakes in it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mltswitch.lab import Engine, mininet_file
from mltswitch.lab.namespaces import our_namespaces
from tests.lab.conftest import COMMAND_SECONDS, bmv2_lab_in

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.bmv2]

DOCUMENT = Path(__file__).parents[2] / "docs" / "lab.md"
PROMPT = "mininet> "


def documented_commands(topology: str) -> list[str]:
    """The block of docs/lab.md that has an `mn` with this topology, line by line."""
    blocks = re.findall(r"^(?:    .*\n)+", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    [block] = [block for block in blocks if f"--topo {topology}" in block]
    return [line.strip() for line in block.splitlines()]


def run_documented(topology: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Execute them in a folder with the project's files; what mn's prompt is told comes from a file."""
    for name in ("inventories", "mltswitch"):
        (folder / name).symlink_to(DOCUMENT.parents[1] / name)
    page = DOCUMENT.read_text(encoding="utf-8")
    [program] = re.findall(r"tree\.py` .*?^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (folder / "tree.py").write_text(program)
    commands = documented_commands(topology)
    prompt = [line.removeprefix(PROMPT) for line in commands if line.startswith(PROMPT)]
    (folder / "prompt").write_text("".join(f"{line}\n" for line in prompt))
    programs = without_clean_up(folder)
    for name, module in (("mltswitch", "-m mltswitch"), ("python3", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        (programs / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(DOCUMENT.parents[1]),
    }
    for line in commands[: -len(prompt)]:
        command = line.removeprefix("sudo ")
        if command.startswith("mn "):
            command += " --test none --post prompt"
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            check=False,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            timeout=COMMAND_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def without_clean_up(folder: Path) -> Path:
    """Programs for the front of the PATH: what mn cleans up with does nothing, and leaves a file."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("killall", "pkill", "rm"):
        (programs / name).write_text(f"#!/bin/sh\n: >{folder}/cleaned-up\n")
        (programs / name).chmod(0o755)
    return programs


@pytest.fixture(autouse=True, scope="module")
def no_lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Namespaces of a lab would have the names of mn's."""
    bmv2_lab_in(request, tmp_path_factory.mktemp("mininet") / "state", Engine.MININET)


@pytest.mark.parametrize(("topology", "pings"), [("mltswitch", 11), ("tree,2", 1)])
def test_mininets_own_command_line_as_documented(tmp_path: Path, topology: str, pings: int) -> None:
    done = run_documented(topology, tmp_path)
    said = done.stdout + done.stderr
    assert " 100% packet loss" not in said, said
    assert said.count("packet loss") == pings
    assert our_namespaces() == ()
    assert not list(Path("/run").glob("mlt-*/"))
    if topology == "mltswitch":
        assert said.count("4 ok") == 1, said  # verify


@pytest.mark.parametrize(
    ("topology", "switch", "said"),
    [
        ("mltswitch,broken.json", "bmv2", "broken.json: switches: is missing"),
        ("mltswitch,nowhere.json", "bmv2", "nowhere.json: No such file or directory"),
        ("mltswitch", "bmv2", "--topo mltswitch,FILE"),
        ("mltswitch,broken.json,2", "bmv2", "--topo mltswitch,FILE"),
        ("tree,2", "bmv2,rate_bps=fast", "rate_bps: 'fast' is no whole number"),
        ("tree,2", "bmv2,log_level=loud", "log_level: 'loud' is no log level"),
    ],
)
def test_a_mistake_does_not_reach_mininets_clean_up(
    tmp_path: Path, topology: str, switch: str, said: str
) -> None:
    """It would delete every log in /tmp, and kill whatever is called ping."""
    (tmp_path / "broken.json").write_text('{"mtu_bytes": 1500}')
    argv = ["mn", "--custom", str(mininet_file()), "--topo", topology, "--switch", switch]
    done = subprocess.run(
        [*argv, "--controller", "none", "--test", "none"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{without_clean_up(tmp_path)}:{os.environ['PATH']}"},
        timeout=COMMAND_SECONDS,
    )
    assert said in done.stderr
    assert not (tmp_path / "cleaned-up").exists()
    assert done.returncode == 1
    assert our_namespaces() == ()
