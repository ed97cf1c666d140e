"""Completion as each shell asks for it, by click's own protocol; and what `--help` must not load."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
HEAVY = {
    "cffi",
    "cryptography",
    "jinja2",
    "networkx",
    "nornir",
    "numba",
    "numpy",
    "paramiko",
    "plotly",
    "pydantic",
    "rich",
    "scipy",
    "torch",
    "yaml",
}
ROOMS = {
    "app",
    "capabilities",
    "deploy",
    "hostagent",
    "inventory",
    "lab",
    "plan",
    "queueing",
    "targets",
    "training",
}


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    program = f"import sys; sys.argv = {['mltswitch', *words]}; from mltswitch.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def completed(line: str) -> dict[str, str]:
    """What bash is told, by value."""
    ended = run(COMP_WORDS=line, COMP_CWORD=str(line.count(" ")), _MLTSWITCH_COMPLETE="bash_complete")
    assert ended.returncode == 0, ended.stderr
    return dict(reversed(row.split(",", 1)) for row in ended.stdout.splitlines())  # type: ignore[misc]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("mltswitch dif", {"diff"}),
        ("mltswitch pl", {"plan"}),
        ("mltswitch push --max-", {"--max-fail-percentage"}),
        ("mltswitch agent doc", {"doctor"}),
        ("mltswitch completion ", {"bash", "zsh", "fish"}),
        ("mltswitch plan --profile resnet5", {"resnet50"}),
        ("mltswitch loss --port-role spine-d", {"spine-down"}),
    ],
)
def test_words_are_completed(line: str, values: set[str]) -> None:
    assert completed(line).keys() == values


@pytest.mark.parametrize(
    "line", ["mltswitch diff pl", "mltswitch plan --fabric in", "mltswitch plan --profile ./m"]
)
def test_files_are_left_to_the_shell(line: str) -> None:
    assert {*completed(line).values()} == {"file"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_one_that_its_shell_understands(shell: str, tmp_path: Path) -> None:
    script = run("completion", shell).stdout
    assert f"_MLTSWITCH_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "completion"
    file.write_text(script)
    checked = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_line_of_the_page_makes_bash_complete(tmp_path: Path) -> None:
    [line] = re.findall(r"^    (eval .*? bash\)\") ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    (tmp_path / "mltswitch").write_text(f'#!/bin/sh\nexec {sys.executable} -m mltswitch "$@"\n')
    (tmp_path / "mltswitch").chmod(0o755)
    script = f"""{line}
        COMP_WORDS=(mltswitch verif) COMP_CWORD=1
        _mltswitch_completion mltswitch
        complete -p mltswitch && echo "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["bash", "--norc", "-c", script]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    registered, words = ended.stdout.splitlines()
    assert registered.endswith("-F _mltswitch_completion mltswitch")
    assert words == "verify"


@pytest.mark.parametrize(
    "asked",
    [{}, {"COMP_WORDS": "mltswitch p", "COMP_CWORD": "1", "_MLTSWITCH_COMPLETE": "bash_complete"}],
    ids=["help", "completion"],
)
def test_help_and_completion_of_commands_load_no_room_and_no_large_package(asked: dict[str, str]) -> None:
    program = (
        "import sys\nsys.argv = ['mltswitch', '--help']\n"
        "from mltswitch.__main__ import main\n"
        "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {*ended.stderr.split()}
    assert "plan" in ended.stdout
    assert not loaded & (HEAVY | {f"mltswitch.{room}" for room in ROOMS})
