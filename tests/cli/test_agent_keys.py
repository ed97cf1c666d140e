"""`mltswitch agent keys`: what is printed, what is made, and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from mltswitch.cli.agent import keys
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.hostagent.security.tls import load_identity
from mltswitch.plan import Plan


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(*arguments: str) -> None:
    keys.main(arguments, prog_name="keys", standalone_mode=False)


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    call(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_named_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    call("host1", "host2", "-o", "job")
    captured = capsys.readouterr()
    assert "job/hosts/host1" in captured.out
    assert "CA (new): job/ca/certificate.pem" in captured.out
    assert "job/ca/key.pem: whoever has it can be any host; keep it off the training hosts" in captured.err
    assert "PRIVATE" not in captured.out + captured.err
    for name in ("host1", "host2"):
        assert load_identity(Path("job/hosts") / name).name == name


def test_every_host_of_a_plan(capsys: pytest.CaptureFixture[str], lab_plan: Plan) -> None:
    Path("plan.yaml").write_text(dump_yaml(lab_plan))
    document = as_json(capsys, "--plan", "plan.yaml", "parameter-server", "host1", "-o", "job")
    planned = [host.name for host in lab_plan.topology.hosts]
    assert "host1" in planned
    assert [host["name"] for host in document["hosts"]] == [*planned, "parameter-server"]


def test_a_host_joins_and_another_is_renewed(capsys: pytest.CaptureFixture[str]) -> None:
    first = as_json(capsys, "host1", "-o", "job", "--days", "7", "--ca-days", "20")
    assert first["authority"]["is_new"]
    assert first["authority"]["key"] == "job/ca/key.pem"
    assert first["hosts"][0]["folder"] == "job/hosts/host1"
    second = as_json(capsys, "host1", "host2", "-o", "job", "--days", "9")
    assert not second["authority"]["is_new"]
    assert second["authority"]["expires"] == first["authority"]["expires"]
    assert [host["is_new"] for host in second["hosts"]] == [False, True]
    assert second["hosts"][0]["expires"] == first["hosts"][0]["expires"]
    call("host1", "-o", "job", "--days", "7")
    assert re.search(r"kept, [67] days left", capsys.readouterr().out)
    assert as_json(capsys, "host1", "-o", "job", "--days", "9", "--force")["hosts"][0]["is_new"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "no hosts. Name them, or give the plan"),
        (("../evil",), "host ../evil: is not a host name"),
        (("host1", "--days", "0"), "0 is not in the range"),
        (("host1", "--days", "40", "--ca-days", "30"), "40 days are more than the 30 days"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], line: str) -> None:
    with pytest.raises((UserInputError, click.BadParameter)) as caught:
        call(*arguments, "-o", "job")
    assert line in str(caught.value)
    assert not Path("job").exists()
