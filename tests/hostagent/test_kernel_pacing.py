"""Where the interface has fq the kernel spaces packets; elsewhere they leave in timed bursts."""

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.hostagent.background import is_run_again
from tests.hostagent.paced import has_fair_queueing
from tests.hostagent.user_mode import is_there, run_module


@pytest.fixture(scope="module")
def plays() -> list[dict[str, Any]]:
    """One is enough for all tests."""
    return []


@pytest.fixture
def played(
    request: pytest.FixtureRequest, plays: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What tests/hostagent/paced.py saw; a test that is run again sees it play again."""
    if not plays or is_run_again(request.node):
        plays.append(play(tmp_path_factory))
    return plays[-1]


def play(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """On this kernel or, where it has no fq, on user-mode-linux."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    is_native = has_fair_queueing()
    if not is_native and not is_there():
        pytest.skip("neither this kernel nor user-mode-linux has fq")
    if is_native:
        command = ["unshare", "-n", sys.executable, "-m", "tests.hostagent.paced"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    return run_module("tests.hostagent.paced", tmp_path_factory.mktemp("kernel"), ("ipv6", "veth", "sch_fq"))


@pytest.mark.root
def test_with_fq_packets_are_spaced_at_the_rate(played: dict[str, Any]) -> None:
    """However busy the machine is, none comes before its time; 44 packets are the credit to begin with."""
    seen = played["fq"]
    assert seen["kernel_paces"]
    assert seen["early"] == 0
    assert seen["rate_share"] <= 1.1


@pytest.mark.root
def test_without_fq_the_same_rate_comes_in_bursts(played: dict[str, Any]) -> None:
    seen = played["pfifo"]
    assert not seen["kernel_paces"]
    assert seen["early"] > 0
    assert seen["rate_share"] <= 1.1
