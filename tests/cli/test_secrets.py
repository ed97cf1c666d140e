"""A canary in place of each secret is sung nowhere: output, logs, tracebacks, the journal, `ps`."""

import base64
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from mltswitch.documents import dump_yaml
from switchsim import (
    DropBeforeLine,
    EmulatorServer,
    Faults,
    OnyxDevice,
    RefuseLine,
    load_host_key,
)
from tests.deploy.emulated import plan_of
from tests.deploy.sshd import make_key

CANARIES = {"RACK_PASSWORD": "kanarienvogel-1ogin", "RACK_ENABLE": "kanarienvogel-enab1e"}
RUN = (
    "import logging, runpy; logging.basicConfig(level=logging.DEBUG); "
    "runpy.run_module('mltswitch', run_name='__main__')"
)
"""The command with every library's log on standard error."""


def command_lines(process: int) -> str:
    """What `ps` shows of the process and its children."""
    texts = []
    for pid in (process, *_children(process)):
        path = Path(f"/proc/{pid}/cmdline")
        texts.append(path.read_text(errors="replace") if path.exists() else "")
    return "\n".join(texts)


def _children(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


@pytest.mark.parametrize(
    ("faults", "password", "code"),
    [
        (None, CANARIES["RACK_PASSWORD"], 0),
        (None, "another", 4),
        (DropBeforeLine(pattern="traffic-class"), CANARIES["RACK_PASSWORD"], 4),
        (RefuseLine("traffic-class"), CANARIES["RACK_PASSWORD"], 4),
    ],
    ids=["right", "wrong", "drop", "refuse"],
)
def test_no_secret_leaves_the_process(
    tmp_path: Path, faults: Faults | None, password: str, code: int
) -> None:
    host_key = make_key(tmp_path / "host")
    state = tmp_path / "state"
    with EmulatorServer(
        OnyxDevice(name="leaf1"),
        host_key=load_host_key(tmp_path / "host"),
        authorized_keys=frozenset(),
        password=password,
        faults=faults,
    ) as server:
        (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {host_key}\n")
        leaf = {
            "ansible_host": "127.0.0.1",
            "ansible_port": server.port,
            "ansible_user": "admin",
            "ansible_network_os": "onyx",
            "mltswitch_password_env": "RACK_PASSWORD",
            "mltswitch_become_password_env": "RACK_ENABLE",
            "mltswitch_known_hosts_file": str(tmp_path / "known_hosts"),
        }
        (tmp_path / "rack.yaml").write_text(yaml.safe_dump({"all": {"hosts": {"leaf1": leaf}}}))
        (tmp_path / "plan.yaml").write_text(dump_yaml(plan_of("onyx")))
        words = [str(tmp_path / "plan.yaml"), "-i", str(tmp_path / "rack.yaml"), "--accept", "--json"]
        environment = os.environ | CANARIES | {"MLTSWITCH_STATE": str(state), "MLTSWITCH_DEBUG": "1"}
        shown = ""
        with (tmp_path / "said").open("w") as said:
            pushing = subprocess.Popen(
                [sys.executable, "-c", RUN, "push", *words], env=environment, stdout=said, stderr=said
            )
            while pushing.poll() is None:
                shown += command_lines(pushing.pid)
                time.sleep(0.05)
    text = (tmp_path / "said").read_text()
    assert pushing.returncode == code, text[-2000:]
    assert "DEBUG" in text
    written = "".join(path.read_text() for path in state.rglob("*") if path.is_file())
    assert "leaf1" in written
    assert "push" in shown
    for canary in CANARIES.values():
        for form in (canary, base64.b64encode(canary.encode()).decode().rstrip("="), canary.encode().hex()):
            assert form not in text + written + shown
