"""What labs of every kind have in common, as root: one on a machine, and nothing left of it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mltswitch.errors import MachineError
from mltswitch.lab import Lab, LabMode
from mltswitch.lab.namespaces import our_namespaces, process_ids
from mltswitch.lab.processes import kill_and_wait, processes_with_argument, read_record
from tests.lab.conftest import SharedLab, quiet

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.bmv2]

UP = """
import sys; from pathlib import Path
from mltswitch.lab import DeviceAddress, Engine, Lab
from mltswitch.plan import Fabric
fabric = Fabric.model_validate_json(sys.stdin.read())
Lab(Path(sys.argv[1])).up(fabric, DEVICES, progress=lambda _: None, engine=Engine(sys.argv[2]))
"""


def assert_nothing_left(shared: SharedLab, lab: Lab) -> None:
    assert our_namespaces() == ()
    assert not lab.paths.root.exists()
    assert lab.status().mode is LabMode.DOWN
    arguments = [lab.paths.root, f"uml_dir={lab.paths.work}/", lab.paths.work / "network.json"]
    for device in shared.devices:
        arguments += [lab.paths.host_keys / device.name, f"mininet:{device.name}"]
    for argument in arguments:
        assert processes_with_argument(str(argument)) == []
    links = json.loads(subprocess.run(["ip", "-j", "link"], check=True, capture_output=True).stdout)
    assert not [link["ifname"] for link in links if link.get("address", "").startswith("02:4d:")]


def test_a_second_lab_is_refused(each_lab: SharedLab, tmp_path: Path) -> None:
    for lab in (each_lab.up().lab, Lab(tmp_path / "other")):
        with pytest.raises(MachineError, match=r"is up already, or was not removed.* down"):
            each_lab.build(lab)
    assert each_lab.lab.status().all_answer


def test_down_of_another_directory_leaves_the_lab(each_lab: SharedLab, tmp_path: Path) -> None:
    each_lab.up()
    said: list[str] = []
    Lab(tmp_path / "other").down(said.append)
    assert said[0].startswith(f"the lab of {each_lab.lab.paths.root} is up; ")
    assert said[1:] == ["no lab is up"]
    assert each_lab.lab.status().all_answer


def test_down_leaves_nothing(each_lab: SharedLab) -> None:
    each_lab.up().down()
    assert_nothing_left(each_lab, each_lab.lab)
    each_lab.down()


def test_down_after_everything_was_killed(
    each_lab: SharedLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mltswitch").mkdir()
    monkeypatch.chdir(tmp_path)  # a folder of that name, such as a clone, is not taken for the package
    each_lab.up()
    kill_and_wait([pid for namespace in our_namespaces() for pid in process_ids(namespace)])
    for record in each_lab.lab.paths.processes.iterdir():
        identity = read_record(record)
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)
    each_lab.down()
    assert_nothing_left(each_lab, each_lab.lab)


@pytest.mark.parametrize("seconds", [0.0, 0.4, 1.5])
def test_down_after_up_was_killed(each_lab: SharedLab, tmp_path: Path, seconds: float) -> None:
    """At the first namespace, and later."""
    each_lab.down()
    lab = Lab(tmp_path / "state")
    code = UP.replace("DEVICES", repr(each_lab.devices))
    command = [sys.executable, "-c", code, str(lab.paths.root), each_lab.engine]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(each_lab.fabric.model_dump_json(by_alias=True).encode())
    process.stdin.close()
    while not our_namespaces() and process.poll() is None:
        time.sleep(0.001)
    time.sleep(seconds)
    process.kill()
    process.wait()
    lab.down(quiet)
    time.sleep(0.5)  # for what still makes namespaces
    assert_nothing_left(each_lab, lab)
