"""Environment variables: every one is known and documented, options take theirs, and mistakes are found."""

import re
from pathlib import Path

import click
import pytest

from mltswitch.cli import cli, main
from mltswitch.cli.variables import PREFIX, VARIABLES, check_variables
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan
from tests.cli.test_cli import commands
from tests.conftest import LAB_FABRIC

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "command-line.md"
INTERNAL = {"WAN_RUN"}
"""Marks processes of a lab, and is set by nobody."""


def takers() -> dict[str, list[str]]:
    """Variable, without the prefix → commands with an option that takes it."""
    found: dict[str, list[str]] = {}
    for words, command in commands(cli):
        for each in command.params:
            if isinstance(each.envvar, str) and each.envvar.startswith(PREFIX):
                found.setdefault(each.envvar.removeprefix(PREFIX), []).append(" ".join(words))
    return found


def table() -> str:
    rows = ["| variable | says | options of |", "|---|---|---|"]
    of_commands = takers()
    for name, variable in VARIABLES.items():
        told = ", ".join(f"`{command}`" for command in of_commands.get(name, ())) or "-"
        rows.append(f"| `{PREFIX}{name}` | {variable.text} | {told} |")
    return "\n".join(rows)


def test_the_page_has_the_table(update_golden: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, begin, rest = re.split(r"(<!-- made from .*? -->\n)", page)
    after = rest.partition("<!-- end -->")[2]
    current = f"{before}{begin}\n{table()}\n\n<!-- end -->{after}"
    if update_golden:
        PAGE.write_text(current, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == current


def test_options_take_known_variables_alone() -> None:
    assert takers().keys() <= VARIABLES.keys()


def test_every_variable_that_the_code_names_is_known() -> None:
    named = {
        name
        for file in (ROOT / "mltswitch").rglob("*.py")
        for name in re.findall(rf"\b{PREFIX}([A-Z_]+)\b", file.read_text(encoding="utf-8"))
    }
    assert named - INTERNAL <= VARIABLES.keys()


def ended(*words: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert isinstance(end.value.code, int)
    return end.value.code


def test_an_option_is_taken_and_told_and_the_command_line_goes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lab_plan: Plan
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(dump_yaml(lab_plan))
    monkeypatch.setenv("MLTSWITCH_INVENTORY", str(LAB_FABRIC.parent))
    monkeypatch.setenv("MLTSWITCH_LIMIT", "leaf1")
    assert ended("render", plan, "-o", tmp_path / "one") == 0
    assert {each.name for each in (tmp_path / "one").iterdir()} == {"leaf1"}
    told = f"from the environment: MLTSWITCH_INVENTORY={LAB_FABRIC.parent}, MLTSWITCH_LIMIT=leaf1\n"
    assert capsys.readouterr().err.startswith(told)
    assert ended("render", plan, "-o", tmp_path / "two", "--limit", "leaf2", "-i", LAB_FABRIC.parent) == 0
    assert {each.name for each in (tmp_path / "two").iterdir()} == {"leaf2"}
    assert "from the environment" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["resume", "confirm", "rollback", "status"])
def test_what_a_change_concerns_is_no_matter_of_variables(command: str) -> None:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    assert {each.envvar for each in found.params} - {None} <= {"MLTSWITCH_CONCURRENCY"}


@pytest.mark.parametrize("answer", ["--yes", "--accept", "--accept-leak", "--accept-lossless", "--force"])
def test_no_variable_answers_a_question(answer: str) -> None:
    options = [each for _, command in commands(cli) for each in command.params if answer in each.opts]
    assert options
    assert all(each.envvar is None for each in options)


@pytest.mark.parametrize(("wrong", "right"), [("LIMT", "LIMIT"), ("INVENTORIES", "INVENTORY")])
def test_a_mistyped_name_is_refused(wrong: str, right: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"MLTSWITCH_{wrong}", "leaf1")
    with pytest.raises(UserInputError, match=f"MLTSWITCH_{wrong}: is no .* \\(expected MLTSWITCH_{right}\\)"):
        check_variables()


@pytest.mark.parametrize("foreign", ["OWN_MACHINE", "REQUIRE_BMV2", "LAW_EXAMPLES", "WAN_RUN"])
def test_a_variable_of_somebody_else_is_none_of_ours(foreign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"MLTSWITCH_{foreign}", "1")
    check_variables()


@pytest.mark.parametrize("value", ["", "  "])
@pytest.mark.parametrize("name", [name for name, variable in VARIABLES.items() if variable.is_told])
def test_an_empty_choice_is_refused_in_one_line(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`MLTSWITCH_LIMIT=$X` without X would be the whole fleet."""
    monkeypatch.setenv(f"MLTSWITCH_{name}", value)
    assert ended("targets") == 2
    line = f"mltswitch: MLTSWITCH_{name}: is empty (expected a value). `unset MLTSWITCH_{name}`\n"
    assert capsys.readouterr().err == line


def test_names_of_the_command_line_go_before_the_limit_of_the_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lab_plan: Plan
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(dump_yaml(lab_plan))
    words = ("capture", plan, "no-such-device", "-i", LAB_FABRIC.parent, "-o", tmp_path / "capture.yaml")
    monkeypatch.setenv("MLTSWITCH_LIMIT", "leaf1")
    assert ended(*words) == 2
    told = capsys.readouterr().err
    assert "note: devices are named, so MLTSWITCH_LIMIT chooses none\n" in told
    assert "no-such-device" in told.splitlines()[-1]  # they are what is looked for
    assert ended(*words, "--limit", "leaf1") == 2
    assert "--limit: stands beside names of devices" in capsys.readouterr().err
