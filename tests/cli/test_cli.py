"""The command line as users meet it: what is printed, what is written, and how it ends."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from mltswitch.cli import cli, main
from mltswitch.documents import validate
from mltswitch.plan import Plan
from tests.conftest import LAB_FABRIC

INVENTORY = LAB_FABRIC.parent


class Outcome:
    """How one command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run one command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Outcome(end.value.code, captured.out, captured.err)

    return call


@pytest.fixture
def changed_fabric(tmp_path: Path) -> Callable[[str, Any], Path]:
    """The lab's fabric with one value changed, as a file."""

    def change(path: str, value: Any) -> Path:
        data = yaml.safe_load(LAB_FABRIC.read_text())
        *parents, last = path.split(".")
        place = data
        for key in parents:
            place = place[key]
        place[last] = value
        file = tmp_path / "fabric.yaml"
        file.write_text(yaml.safe_dump(data))
        return file

    return change


def refused(outcome: Outcome, folder: Path, *, code: int = 2, leaves: tuple[str, ...] = ()) -> str:
    """Assert one clear line, the exit code, and that nothing was written; returns the line."""
    assert outcome.code == code
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("mltswitch: ")
    assert "Traceback" not in outcome.err
    assert sorted(path.name for path in folder.iterdir()) == sorted(leaves)
    return outcome.err


def commands(
    group: click.Group, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group of the command line, by its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*above, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))


EXAMPLES = [
    pytest.param(line, id=line)
    for _, command in commands(cli)
    for line in (command.epilog or "").replace("\\\n", "").splitlines()
    if "mltswitch" in line.split()
]


@pytest.mark.parametrize(
    ("words", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands(cli)]
)
def test_every_command_has_help_with_an_example(
    run: Run, words: tuple[str, ...], command: click.Command
) -> None:
    outcome = run(*words, "--help")
    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: mltswitch {' '.join(words)} ")
    assert isinstance(command, click.Group) or "--verbose" in outcome.out
    assert "Example" in outcome.out or words == ("agent", "bench")


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_is_understood(line: str) -> None:
    words = shlex.split(line.partition(" > ")[0])
    words = words[words.index("mltswitch") + 1 :]
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None
        command = found
    command.make_context("example", words)


def test_profiles_as_json_and_table(run: Run) -> None:
    entries = {entry["name"]: entry["parameters"] for entry in run("profile", "list", "--json").json()}
    assert entries["t5-3b"] == 2_851_598_336
    assert "2,851,598,336" in run("profile", "list").out
    shown = run("profile", "show", "vgg16", "--json").json()
    assert len(shown["layers"]) == 16
    assert "default" in run("profile", "show", "vgg16").out.lower()


def test_plan_is_written_and_byte_identical(run: Run, tmp_path: Path) -> None:
    arguments = (
        "plan",
        "--profile",
        "resnet50",
        "--fabric",
        LAB_FABRIC,
        "--model",
        "paper",
        "--at-load",
        "0.6",
    )
    assert run(*arguments, "-o", "a.yaml").code == 0
    assert run(*arguments, "-o", "b.yaml").code == 0
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()
    printed = run(*arguments).out
    assert "gradient-0" in printed
    assert "S [B]" in printed
    assert (
        validate(run(*arguments, "--json").json(), Plan, where="plan").provenance.profile_name == "resnet50"
    )


def test_a_class_beyond_its_tolerance_is_exit_code_5_and_writes_nothing_unless_forced(
    run: Run, tmp_path: Path
) -> None:
    arguments = ("plan", "--profile", "resnet50", "--fabric", LAB_FABRIC, "--model", "paper", "-o", "a.yaml")
    refused = run(*arguments)
    assert refused.code == 5
    assert "not met: gradient-2 loses" in refused.out
    assert "--force writes it all the same" in refused.err
    assert not (tmp_path / "a.yaml").exists()
    forced = run(*arguments, "--force")
    assert forced.code == 5
    assert (tmp_path / "a.yaml").exists()


VERSIONS = {"plan": "v2"}


@pytest.mark.parametrize("document", ["plan", "fabric", "profile", "overlay", "routes", "wan"])
def test_schemas(run: Run, document: str) -> None:
    schema = run("schema", document).json()
    assert schema["type"] == "object"
    assert schema["properties"]["schema"]["const"] == f"mltswitch/{document}/{VERSIONS.get(document, 'v1')}"


def test_render_writes_every_device(run: Run, tmp_path: Path) -> None:
    run("plan", "--profile", "resnet50", "--fabric", LAB_FABRIC, "-o", "plan.yaml")
    outcome = run("render", "plan.yaml", "-i", INVENTORY, "-o", "configs", "--json")
    assert outcome.code == 0
    assert {path.name for path in (tmp_path / "configs").iterdir()} == {
        "leaf1",
        "leaf2",
        "onyx1",
        "sonic1",
        "spine1",
        "spine2",
    }
    for name in outcome.json()["files"]:
        assert (tmp_path / name).read_text()
    assert outcome.json()["unverified"]
    assert "onyx1" in run("render", "plan.yaml", "-i", INVENTORY, "-o", "configs").out


def test_unknown_profile(run: Run, tmp_path: Path) -> None:
    line = refused(run("plan", "--profile", "resnet51", "--fabric", LAB_FABRIC, "-o", "p.yaml"), tmp_path)
    assert "resnet51" in line
    assert "resnet50" in line


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("ports.buffer", -5, "ports.buffer: must be more than 0, not -5"),
        ("classes.gradients.dscp", [48, 34], "gradients.dscp: 48 is CS6"),
        (
            "classes.gradients.queues",
            6,
            "sonic1: classes.gradients.queues: 6 gradient queues and 3 other classes",
        ),
        ("topology.links", [{"a": "leaf1:eth9", "b": "spine7:eth1"}], "unknown switch or host 'spine7'"),
        ("topology.leaf_spine.leaves.platform", "ios", "unknown platform 'ios'"),
    ],
)
def test_bad_fabrics(
    run: Run,
    tmp_path: Path,
    changed_fabric: Callable[[str, Any], Path],
    path: str,
    value: Any,
    expected: str,
) -> None:
    file = changed_fabric(path, value)
    outcome = run("plan", "--profile", "resnet50", "--fabric", file, "-o", "plan.yaml")
    assert expected in refused(outcome, tmp_path, leaves=("fabric.yaml",))


def test_nine_priorities_on_an_eight_queue_switch(run: Run, tmp_path: Path) -> None:
    data = yaml.safe_load(LAB_FABRIC.read_text())
    data["classes"]["gradients"] = {"dscp": [10, 12, 14, 18, 20, 22, 26, 28, 30], "queues": 9}
    (tmp_path / "fabric.yaml").write_text(yaml.safe_dump(data))
    outcome = run("plan", "--profile", "resnet50", "--fabric", "fabric.yaml", "-o", "plan.yaml")
    assert "9 gradient queues" in refused(outcome, tmp_path, leaves=("fabric.yaml",))


def test_missing_files(run: Run, tmp_path: Path) -> None:
    assert "nowhere.yaml: cannot be read" in refused(
        run("plan", "--profile", "vgg16", "--fabric", "nowhere.yaml"), tmp_path
    )
    assert "no.yaml: cannot be read" in refused(
        run("render", "no.yaml", "-i", INVENTORY, "-o", "configs"), tmp_path
    )


def test_render_refuses_a_host_without_platform(run: Run, tmp_path: Path) -> None:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory" / "hosts.yaml").write_text("all: {hosts: {leaf1: {ansible_host: 127.0.0.1}}}\n")
    run("plan", "--profile", "resnet50", "--fabric", LAB_FABRIC, "-o", "plan.yaml")
    outcome = run("render", "plan.yaml", "-i", "inventory", "-o", "configs")
    line = refused(outcome, tmp_path, leaves=("inventory", "plan.yaml"))
    assert "leaf1" in line
    assert "platform" in line


def test_wrong_usage_is_one_usage_error(run: Run) -> None:
    outcome = run("plan", "--profile", "resnet50")
    assert outcome.code == 2
    assert "--fabric" in outcome.err
    assert run("nonsense").code == 2
