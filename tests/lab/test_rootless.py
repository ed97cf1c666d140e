"""The whole lab as an ordinary user: switches, hosts and commands inside one user-mode-linux instance."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltswitch.lab import uml
from mltswitch.plan import Fabric
from tests.lab.conftest import DEVICES

pytestmark = pytest.mark.lab

NOBODY = 65534
PREAMBLE = """\
import sys
from pathlib import Path
from mltswitch.lab import DeviceAddress, Lab, LabMode
from mltswitch.plan import Fabric
lab = Lab(Path(sys.argv[1]))
"""
UP = f"""\
fabric = Fabric.model_validate_json(sys.stdin.read())
devices = [DeviceAddress(*d) for d in {[(d.name, d.platform, d.address, d.port) for d in DEVICES]}]
try:
    status = lab.up(fabric, devices, progress=print)
    assert status.mode is LabMode.ROOTLESS, status
    assert status.all_answer, status
    assert lab.run(["sh", "-c", sys.argv[2]]) == 5
finally:
    lab.down(print)
assert lab.status().mode is LabMode.DOWN
"""
INSIDE = """\
echo "uid $(id -u)"
ip netns exec mlt-host1 ping -q -c 5 -i 0.01 10.10.1.10 | grep -c ' [1-9] received'
ssh -F none -i {state}/keys/id_ed25519 -o UserKnownHostsFile={state}/known_hosts -p 2222 \
-o StrictHostKeyChecking=yes -o BatchMode=yes root@127.77.9.11 \
'tc qdisc replace dev eth1 root prio && hostname'
echo written >from-inside
exit 5
"""


def as_user(argv: list[str], folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run as this user, or as nobody where this user is root."""
    identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]  # keywords by dictionary
        argv, check=False, input=text, text=True, capture_output=True, cwd=folder, timeout=600, **identity
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory of the user's; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        try:
            usable = as_user([sys.executable, "-c", "import mltswitch.lab, paramiko"], folder).returncode == 0
        except PermissionError:
            usable = False
        if not usable:
            pytest.skip(f"an ordinary user may not read {sys.executable} and its packages")
        yield folder


@pytest.mark.skipif(uml.binary() is None, reason="user-mode-linux is not installed")
def test_up_run_down(folder: Path, lab_fabric: Fabric) -> None:
    state = folder / "state"
    done = as_user(
        [sys.executable, "-c", PREAMBLE + UP, str(state), INSIDE.format(state=state)],
        folder,
        lab_fabric.model_dump_json(by_alias=True),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("uid 0", "1", "leaf1"):
        assert line in done.stdout.splitlines()
    assert (folder / "from-inside").read_text() == "written\n"
    assert not state.exists()
