"""docs/agent.md: its programs run, its commands do what they say, its files are configurations."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mltswitch.documents import dump_yaml, parse_yaml, validate
from mltswitch.hostagent import errors
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.configuration import AgentDocument, load_configuration
from mltswitch.hostagent.control.keys import make_keys
from mltswitch.hostagent.errors import AgentError
from mltswitch.plan import Plan
from tests.hostagent.background import in_background
from tests.hostagent.programs import printed_by

PAGE = (Path(__file__).parents[2] / "docs" / "agent.md").read_text(encoding="utf-8")
PATIENCE_SECONDS = 60.0
OUR_LOOPBACK = f"127.{2 + os.getpid() % 250}.{os.getpid() // 250 % 256}."
"""Other runs of the tests on this machine have others."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def ours(text: str) -> str:
    return text.replace("127.0.0.", OUR_LOOPBACK)


@pytest.mark.parametrize("program", blocks("python"), ids=["threads", "asyncio"])
def test_programs(program: str, tmp_path: Path) -> None:
    told = printed_by(program, tmp_path, loopback=OUR_LOOPBACK, patience_seconds=PATIENCE_SECONDS)
    if "print" in program:
        assert re.fullmatch(r"(round \d: [\d.]+ Gbit/s, \d+ packets sent, \d+ gaps\n){3}", told)


def test_commands_in_two_terminals(tmp_path: Path) -> None:
    recv, send = ([sys.executable, "-m", *shlex.split(ours(block))] for block in blocks("sh"))
    assert (recv[3:5], send[3:5]) == (["agent", "recv"], ["agent", "send"])

    def run(command: list[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )

    with in_background(run, recv) as received:
        sent = run(send)
        assert sent.returncode == 0, sent.stderr
        assert received().returncode == 0, received().stderr
    assert "complete" in sent.stdout
    assert np.load(tmp_path / "copy.npy").nbytes == 25_000_000


def test_configuration_files(tmp_path: Path, lab_plan: Plan) -> None:
    from datetime import UTC, datetime

    (tmp_path / "plan.yaml").write_text(dump_yaml(lab_plan))
    make_keys(tmp_path / "job", {"host3": []}, days=1, authority_days=2, now=datetime.now(UTC))
    found = []
    for text in blocks("yaml"):
        (tmp_path / "agent.yaml").write_text(text)
        found.append(load_configuration(tmp_path / "agent.yaml"))
    assert [each.settings.name for each in found] == ["host3", "host1"]
    assert found[1].dscp(layer=53) == 36


def test_every_field_and_no_other_is_in_the_tables() -> None:
    part = PAGE.partition("## The configuration file")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `([a-z_]+)` \|", part, re.MULTILINE))
    assert listed == set(AgentDocument.model_json_schema(by_alias=True)["properties"]) - {"schema"}
    validate(parse_yaml("schema: mltswitch/agent/v1", where="page"), AgentDocument, where="page")


def test_every_error_is_named() -> None:
    known = {
        name
        for name, entry in vars(errors).items()
        if isinstance(entry, type) and issubclass(entry, AgentError) and entry is not AgentError
    }
    assert known == set(re.findall(r"^\| `(\w+Error)` \|", PAGE, re.MULTILINE))


def test_every_call_is_there() -> None:
    part = PAGE.partition("| call | does |")[2].partition("\n\n")[0]
    called = set(re.findall(r"`(?:[A-Z]\w+\.)?([a-z_]+)\(", part))
    public = {name for name, entry in vars(Agent).items() if callable(entry) and not name.startswith("_")}
    assert public <= called
