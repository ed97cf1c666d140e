"""Files that other programs read, and that nothing here can run: what they name exists."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
FOR_DEVELOPERS = {"dev", "docs", "release"}
CONTAINER = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def steps(file: Path) -> list[dict[str, Any]]:
    workflow = yaml.safe_load(file.read_text(encoding="utf-8"))
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_the_containerfile_copies_what_is_there() -> None:
    stages = [re.fullmatch(r"FROM \S+(?: AS (\w+))?", line) for line in CONTAINER if line.startswith("FROM")]
    assert len(stages) == 2
    assert all(stages)
    names = {found[1] for found in stages if found}
    copied = [line.split()[1:] for line in CONTAINER if line.startswith("COPY")]
    for words in copied:
        if words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in names
        else:
            assert [word for word in words[:-1] if not (ROOT / word).exists()] == []
    sources = {word for words in copied for word in words[:-1]}
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "mltswitch", "switchsim"} <= sources
    known = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "ENTRYPOINT", "CMD", "#", ""}
    assert {line.partition(" ")[0] for line in CONTAINER} <= known


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_pin_their_actions_and_run_what_is_there(file: Path) -> None:
    for step in steps(file):
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])
            continue
        for target in re.findall(r"^make (\S+)", step["run"]):
            assert target in TARGETS
        for script in re.findall(r"\.ci/\w+", step["run"]):
            assert (ROOT / script).is_file()
        for module in re.findall(r"-m (scripts\.\w+)", step["run"]):
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file()


def test_ci_runs_what_developers_run() -> None:
    assert {file.stem for file in WORKFLOWS} == {"ci", "release"}
    runs = " ".join(step.get("run", "") for file in WORKFLOWS for step in steps(file))
    assert ".ci/run" in runs
    assert "make release" in runs


@pytest.mark.parametrize(
    "file", [file for file in FORMS if file.stem != "config"], ids=lambda file: file.stem
)
def test_issue_forms_have_what_a_form_needs(file: Path) -> None:
    form = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert any(part.get("validations", {}).get("required") for part in asked)
    assert all(part["attributes"]["label"] for part in asked)


def test_the_page_of_installing_names_every_extra() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"\w+", row)} == EXTRAS - FOR_DEVELOPERS
    named = {extra for found in re.findall(r"\[([\w,]+)\]'", page) for extra in found.split(",")}
    assert named <= EXTRAS
    assert named
