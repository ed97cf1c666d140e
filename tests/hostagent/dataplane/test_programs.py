"""The campaign and the fuzzer, compiled with sanitizers and every warning; variables ask for longer runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.hostagent.dataplane.ends import build

HERE = Path(__file__).parent
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")


def run(program: Path, first: str, count: str) -> str:
    ended = subprocess.run([program, first, count], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout


def test_every_transfer_ends_as_promised_on_any_network(tmp_path: Path) -> None:
    """MLTSWITCH_CAMPAIGN_SCENARIOS: 100,000 for the whole campaign."""
    count = os.environ.get("MLTSWITCH_CAMPAIGN_SCENARIOS", "1000")
    program = build(HERE / "campaign.c", tmp_path / "campaign", *SANITIZED)
    assert f"{count} scenarios" in run(program, "1", count)


def test_strangers_change_nothing(tmp_path: Path) -> None:
    """MLTSWITCH_FUZZ_DATAGRAMS: 1,000,000 for the whole run."""
    count = os.environ.get("MLTSWITCH_FUZZ_DATAGRAMS", "100000")
    program = build(HERE / "fuzz.c", tmp_path / "fuzz", *SANITIZED)
    assert f"{count} datagrams" in run(program, "1", count)
