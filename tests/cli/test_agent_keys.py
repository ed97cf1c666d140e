"""`mltswitch agent keys`: what is printed, what is made, and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mltswitch.cli.agent_keys import keys
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.credentials import Credentials
from mltswitch.hostagent.control.tls import load_identity
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
        assert load_identity(Credentials.in_folder(Path("job/hosts") / name)).name == name


def test_every_host_of_a_plan(capsys: pytest.CaptureFixture[str], lab_plan: Plan) -> None:
    Path("plan.yaml").write_text(dump_yaml(lab_plan))
    document = as_json(capsys, "--plan", "plan.yaml", "parameter-server", "host1", "-o", "job")
    planned = [host.name for host in lab_plan.topology.hosts]
    assert "host1" in planned
    assert [host["name"] for host in document["hosts"]] == [*planned, "parameter-server"]


def test_a_host_joins_and_another_is_renewed(capsys: pytest.CaptureFixture[str]) -> None:
    first = as_json(capsys, "host1", "-o", "job", "--days", "7", "--ca-days", "20")
    assert first["authority"]["is_new"]
    assert first["hosts"][0]["folder"] == "job/hosts/host1"
    second = as_json(capsys, "host1", "host2", "-o", "job", "--days", "9")
    assert not second["authority"]["is_new"]
    assert second["authority"]["expires"] == first["authority"]["expires"]
    assert [host["is_new"] for host in second["hosts"]] == [False, True]
    assert second["hosts"][0]["expires"] == first["hosts"][0]["expires"]
    call("host1", "-o", "job", "--days", "7")
    assert re.search(r"kept, [67] days left", capsys.readouterr().out)
    assert as_json(capsys, "host1", "-o", "job", "--days", "9", "--force")["hosts"][0]["is_new"]


def test_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    call("host1", "--address", "host1=10.0.0.1", "--address", "host1=fd00::1", "-o", "job")
    for address in ("host2=10.0.0.1", "host1", "=", "host1=10.0.0"):
        with pytest.raises(UserInputError, match=r"--address|is not an IP address"):
            call("host1", "--address", address, "-o", "other")
    assert not Path("other").exists()


def test_an_address_for_a_host_that_has_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """It is in the certificate, or somebody is told that it is not."""
    call("host1", "--address", "host1=10.0.0.1", "-o", "job")
    before = Path("job/hosts/host1/certificate.pem").read_text()
    with pytest.raises(
        UserInputError, match=r"^host host1: has keys that do not name 10\.0\.0\.7\. .*--force"
    ):
        call("host1", "host2", "--address", "host1=10.0.0.7", "-o", "job")
    assert not Path("job/hosts/host2").exists()
    call("host1", "--address", "host1=10.0.0.1", "-o", "job")
    assert Path("job/hosts/host1/certificate.pem").read_text() == before
    call("host1", "--address", "host1=10.0.0.7", "-o", "job", "--force")
    call("host1", "--address", "host1=10.0.0.7", "-o", "job")


def test_a_job_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    call("host1", "-o", "job")

    def refused(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refused)
    with pytest.raises(UserInputError, match=r"^job: cannot be read: Permission denied$"):
        call("host2", "-o", "job")


def test_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserInputError, match=r"no hosts\. Name them, or give the plan"):
        call("-o", "job")
    assert not Path("job").exists()


def test_help_has_examples_and_says_where_the_ca_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    call("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "Examples" in text
    assert "keep OUTPUT/ca off the training hosts" in text
