"""The agent's pages: programs run, commands do what they say, files are settings, tables are complete."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mltswitch.documents import dump_yaml
from mltswitch.hostagent import Agent, AgentConfig, Transfer, errors
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.security.keys import make_keys
from mltswitch.hostagent.transport.description import transports
from mltswitch.plan import Plan
from tests.hostagent.background import in_background

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("agent*.md"))
PAGE = (DOCS / "agent.md").read_text(encoding="utf-8")
PATIENCE_SECONDS = 60.0
OURS = f"127.{2 + os.getpid() % 250}.{os.getpid() // 250 % 256}."
"""Other runs of the tests on this machine have other addresses of loopback."""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


PROGRAMS = [
    pytest.param(program, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, program in enumerate(blocks(page.read_text(encoding="utf-8"), "python"))
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: str, tmp_path: Path) -> None:
    ended = run([sys.executable, "-W", "error", "-c", program.replace("127.0.0.", OURS)], tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    if "round {step}" in program:
        assert re.fullmatch(r"(round \d: [\d.]+ Gbit/s, \d+ packets sent, \d+ gaps\n){3}", ended.stdout)


def test_commands_in_two_terminals(tmp_path: Path) -> None:
    recv, send = (
        [sys.executable, "-m", *shlex.split(block.replace("127.0.0.", OURS))] for block in blocks(PAGE, "sh")
    )
    assert (recv[3:5], send[3:5]) == (["agent", "recv"], ["agent", "send"])
    with in_background(run, recv, tmp_path) as received:
        sent = run(send, tmp_path)
        assert sent.returncode == 0, sent.stderr
        assert received().returncode == 0, received().stderr
    assert "complete" in sent.stdout
    assert np.load(tmp_path / "copy.npy").nbytes == 25_000_000


def test_configuration_files(tmp_path: Path, lab_plan: Plan) -> None:
    (tmp_path / "plan.yaml").write_text(dump_yaml(lab_plan))
    make_keys(tmp_path / "job", ["host3"])
    found = []
    for text in blocks(PAGE, "yaml"):
        (tmp_path / "agent.yaml").write_text(text)
        found.append(AgentConfig.load(tmp_path / "agent.yaml"))
    assert [config.name for config in found] == ["host3", "host1"]
    assert found[1].dscp(layer=53) == 36


def listed(after: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, PAGE.partition(after)[2].partition("\n## ")[0], re.MULTILINE))


def test_tables_have_every_field_error_and_call_and_no_other() -> None:
    fields = {field.alias or name for name, field in AgentConfig.model_fields.items()} | {*transports()}
    assert listed("## The configuration file", r"^\| `([a-z_]+)` \|") == fields - {"schema"}
    known = {
        name
        for name, entry in vars(errors).items()
        if isinstance(entry, type) and issubclass(entry, AgentError) and entry is not AgentError
    }
    assert listed("**Errors**", r"^\| `(\w+Error)` \|") == known
    calls = listed("| call | does |", r"`(?:[A-Z]\w+\.)?([a-z_]+)\(")
    assert {"connect", "post_send", "wait"} <= calls
    assert not [name for name in calls if not hasattr(Agent, name) and not hasattr(Transfer, name)]
