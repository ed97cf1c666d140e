"""`mltswitch agent` between two hosts in plain text, with no more than documentation and errors ask for."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.agent_commands import GRADIENTS, running
from tests.hostagent.namespaces import can_make_namespaces, two_hosts

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "agent.md"


def the_file() -> str:
    """As the documentation has it."""
    [text] = re.findall(r"```\n(plaintext: true\n.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    assert isinstance(text, str)
    return text


@pytest.mark.root
def test_two_hosts_of_a_laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_make_namespaces():
        pytest.skip("network namespaces need root")
    monkeypatch.chdir(tmp_path)
    np.save("gradients.npy", GRADIENTS)
    Path("laboratory.yaml").write_text(the_file())
    with two_hosts() as hosts:
        here, there = hosts.one.address, hosts.other.address
        receive = ("recv", "-c", "laboratory.yaml", "--listen", there, "-o", "copy.npy")
        send = ("send", "gradients.npy", "-c", "laboratory.yaml", "--to", f"receiver={there}")
        with running(*receive, within=hosts.other.namespace) as receiver:
            receiver.reads("listens at")
            with running(*send, within=hosts.one.namespace) as sender:
                code, _, err = sender.ends()
            assert code == 2
            assert err.startswith("mltswitch: --address: data from 127.0.0.1 does not leave this machine")
            with running(*send, "--address", here, within=hosts.one.namespace) as sender:
                assert sender.ends()[0] == receiver.ends()[0] == 0
    assert (np.load("copy.npy") == GRADIENTS).all()
