"""The command line against its surroundings: bad values, full disks, closed pipes, our own bugs."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.cli import main
from mltswitch.documents import load_document
from mltswitch.errors import MltswitchError
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities, target_for
from tests.conftest import LAB_FABRIC

PLAN = ("plan", "--profile", "vgg16", "--fabric", str(LAB_FABRIC))
FABRIC = yaml.safe_load(LAB_FABRIC.read_text())


def paths(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield (*above, key)
        yield from paths(value, (*above, key))


def changed(path: tuple[Any, ...], value: Any) -> Any:
    data = copy.deepcopy(FABRIC)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-10, 100)
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "1e999999G", "25GBps", "16Mb", "all", "linux", "10.0.0.0/8", [], [1], {}, 10**30])
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(list(paths(FABRIC))), value=VALUES)
def test_any_value_anywhere_is_a_plan_or_one_line(tmp_path: Path, path: tuple[Any, ...], value: Any) -> None:
    file = tmp_path / "fabric.yaml"
    file.write_text(yaml.safe_dump(changed(path, value)))
    try:
        made = build_plan(
            resolve_profile("vgg16"), load_document(file, Fabric), hardware_capabilities, "paper"
        )
    except MltswitchError as error:
        assert error.exit_code == 2
        assert "\n" not in str(error)
    else:
        assert isinstance(made, Plan)


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str, str]:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    captured = capsys.readouterr()
    return end.value.code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("plan",),
            "mltswitch: Missing option '--profile' (env var: 'MLTSWITCH_PROFILE') "
            "(see mltswitch plan --help)\n",
        ),
        (("profil",), "mltswitch: No such command 'profil', did you mean profile? (see mltswitch --help)\n"),
        (("nonsense",), "mltswitch: No such command 'nonsense' (see mltswitch --help)\n"),
        (("--bad",), "mltswitch: No such option '--bad' (see mltswitch --help)\n"),
        (
            (*PLAN, "--model", "x"),
            "mltswitch: Invalid value for '--model': 'x' is not one of 'completion', 'paper', "
            "'simulate' (see mltswitch plan --help)\n",
        ),
    ],
)
def test_usage_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str
) -> None:
    assert ended(capsys, *arguments) == (2, "", line)


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ended(capsys)
    assert code == 2
    assert "Commands:" in out + err


def test_a_bug_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TypeError("first\nsecond")

    monkeypatch.setattr("mltswitch.cli.plan.build_plan", broken)
    monkeypatch.delenv("MLTSWITCH_DEBUG", raising=False)
    assert ended(capsys, *PLAN) == (
        1,
        "",
        "mltswitch: bug: TypeError: first second; set MLTSWITCH_DEBUG=1 for the traceback\n",
    )
    monkeypatch.setenv("MLTSWITCH_DEBUG", "1")
    with pytest.raises(TypeError):
        main(PLAN)


def process(arguments: tuple[str, ...], **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mltswitch", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60, **options)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_standard_output_that_takes_nothing(form: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        outcome = process((*PLAN, *form), stdout=full)
    assert outcome.returncode == 1
    assert outcome.stderr == "mltswitch: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("arguments", [PLAN, ("agent", "keys", "host1"), ("agent", "doctor", "--json")])
def test_standard_output_that_nobody_reads(arguments: tuple[str, ...], tmp_path: Path) -> None:
    if "keys" in arguments:
        arguments = (*arguments, "-o", str(tmp_path / "job"))
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "wb", 0) as gone:
        outcome = process(arguments, stdout=gone)
    assert (outcome.returncode, outcome.stderr) == (1, "")


@pytest.mark.parametrize("arguments", [("agent", "doctor"), ("agent", "keys", "host1")])
def test_an_agents_standard_output_that_takes_nothing(arguments: tuple[str, ...], tmp_path: Path) -> None:
    if "keys" in arguments:
        arguments = (*arguments, "-o", str(tmp_path / "job"))
    with Path("/dev/full").open("w") as full:
        outcome = process(arguments, stdout=full)
    assert outcome.returncode == 1
    assert outcome.stderr == "mltswitch: standard output cannot be written: No space left on device\n"


def test_a_terminal_without_arrows(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    process((*PLAN, "-o", str(tmp_path / "plan.yaml")), stdout=subprocess.DEVNULL, env=environment)
    outcome = process(
        ("render", str(tmp_path / "plan.yaml"), "-i", str(LAB_FABRIC.parent), "-o", str(tmp_path / "out")),
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "gradient-0" in outcome.stdout


def test_a_problem_of_the_second_stage_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(changed(("ports", "buffer"), "9kB")))
    code, _, err = ended(capsys, "plan", "--profile", "vgg16", "--fabric", str(file))
    assert code == 2
    assert err.startswith(f"mltswitch: {file}: ports.buffer: leaf-down ports: ")


def test_problems_of_several_switches_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each once, however many ports have it."""
    file = tmp_path / "mine.yaml"
    shape = {
        "spines": {"count": 2, "platform": "onyx", "hardware": "sn2700"},
        "leaves": {"count": 2, "platform": "eos", "hardware": "trident3"},
        "hosts_per_leaf": 2,
        "host_ports": {"rate": "400Gbps"},
    }
    file.write_text(
        yaml.safe_dump(changed(("ports", "rate"), "200Gbps") | {"topology": {"leaf_spine": shape}})
    )
    code, _, err = ended(capsys, "plan", "--profile", "vgg16", "--fabric", str(file))
    assert code == 2
    first, *others = err.splitlines()
    assert first == f"mltswitch: {file}: 2 errors"
    assert [line.split(": ", 1)[1].partition(" (")[0] for line in others] == [
        "spine1: port 1/1: 200 Gbit/s, but sn2700 has 100 Gbit/s there",
        "leaf1: port Ethernet1/1: 400 Gbit/s, but trident3 has 100 Gbit/s there",
    ]


@pytest.fixture
def plan_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    file = tmp_path / "plan.yaml"
    assert ended(capsys, *PLAN, "-o", str(file))[0] == 0
    return file


def render(plan_file: Path, output: Path) -> tuple[str, ...]:
    return ("render", str(plan_file), "-i", str(LAB_FABRIC.parent), "-o", str(output))


def test_render_makes_all_folders_or_none(
    tmp_path: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "onyx1").touch()
    code, printed, err = ended(capsys, *render(plan_file, out))
    assert (code, printed) == (2, "")
    assert "onyx1" in err
    assert [path.name for path in out.rglob("*")] == ["onyx1"]


def test_render_writes_all_files_or_none(
    tmp_path: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert ended(capsys, *render(plan_file, out))[0] == 0
    last = max(path for path in out.rglob("*") if path.is_file())
    for folder in [path for path in out.iterdir() if path != last.parent]:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    last.unlink()
    last.mkdir()
    before = sorted(out.rglob("*"))
    code, printed, err = ended(capsys, *render(plan_file, out))
    assert (code, printed) == (2, "")
    assert f"{last}: is no regular file" in err
    assert sorted(out.rglob("*")) == before


def test_render_says_what_nobody_has_tested(
    tmp_path: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, _ = ended(capsys, *render(plan_file, tmp_path / "out"))
    _, document, _ = ended(capsys, *render(plan_file, tmp_path / "out"), "--json")
    untested = json.loads(document)["unverified"]
    assert untested["onyx/sn2100"] == [
        item._asdict() for item in target_for("onyx").hardware("sn2100").unverified
    ]
    assert untested["sonic/sn2700"]
    [line] = [line for line in text.splitlines() if line.startswith("unverified")]
    assert all(f"{hardware} {len(items)}" in line for hardware, items in untested.items())
