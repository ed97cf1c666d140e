"""The lab that tests share: brought up once, as a user would."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from mltswitch.capabilities import PortNumbering
from mltswitch.documents import load_document
from mltswitch.lab import DeviceAddress, Lab, LabMode
from mltswitch.lab.kernel import examine
from mltswitch.lab.layout import Layout, lay_out
from mltswitch.lab.state import claimed_by_another, read_state
from mltswitch.plan import Fabric

LAB_FABRIC = Path(__file__).parents[2] / "inventories" / "lab" / "fabric.yaml"
COMMAND_SECONDS = 180.0
"""Until a command on a switch or a host is given up; the machine may be busy, and a switch emulated."""
DEVICES = (
    DeviceAddress("spine1", "linux", "127.77.9.1", 2222),
    DeviceAddress("spine2", "linux", "127.77.9.2", 2222),
    DeviceAddress("leaf1", "linux", "127.77.9.11", 2222),
    DeviceAddress("leaf2", "linux", "127.77.9.12", 2222),
    DeviceAddress("onyx1", "onyx", "127.77.9.21", 2222),
    DeviceAddress("sonic1", "sonic", "127.77.9.22", 2222),
)


@dataclass(frozen=True)
class RunningLab:
    """A lab that is up, and how to log in to its devices."""

    lab: Lab
    fabric: Fabric

    def ssh(self, device: str, command: str, *, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command on a device with the OpenSSH client, host key checked."""
        place = next(entry for entry in DEVICES if entry.name == device)
        user = "root" if place.platform == "linux" else "admin"
        return subprocess.run(
            [
                "ssh",
                *("-F", "none", "-i", str(self.lab.paths.private_key), "-p", str(place.port)),
                *("-o", f"UserKnownHostsFile={self.lab.paths.known_hosts}"),
                *("-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"),
                f"{user}@{place.address}",
                command,
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            input=text,
        )

    def on_host(self, host: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in a host's namespace."""
        command = self.lab.host_namespace(host).command(argv)
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMMAND_SECONDS)


@pytest.fixture(scope="session")
def lab_fabric() -> Fabric:
    """The example fabric with the Linux switches' port names written out."""
    fabric = load_document(LAB_FABRIC, Fabric)
    shape = fabric.topology.leaf_spine
    assert shape is not None
    named = {
        tier: getattr(shape, tier).model_copy(update={"port_names": PortNumbering(pattern="eth{n}")})
        for tier in ("spines", "leaves")
    }
    topology = fabric.topology.model_copy(update={"leaf_spine": shape.model_copy(update=named)})
    return fabric.model_copy(update={"topology": topology})


@pytest.fixture(scope="session")
def layout(lab_fabric: Fabric) -> Layout:
    return lay_out(lab_fabric, DEVICES, with_switches=True)


@pytest.fixture(scope="session")
def lab_mode() -> LabMode:
    """How root's lab runs here; skips where it cannot."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the lab's hosts are namespaces of this kernel")
    machine = examine()
    if machine.mode is LabMode.EMULATORS_ONLY:
        pytest.skip("; ".join(machine.missing))
    return machine.mode


class SessionLab:
    """One lab for all tests, brought up when a test wants it and it is down."""

    def __init__(self, state_directory: Path, fabric: Fabric) -> None:
        self.lab = Lab(state_directory)
        self.fabric = fabric

    def up(self) -> RunningLab:
        # Not by its status: that asks every switch, and each answer is a process in user-mode-linux.
        if read_state(self.lab.paths) is None:
            self.lab.up(self.fabric, DEVICES, progress=_quiet)
        return RunningLab(self.lab, self.fabric)

    def down(self) -> None:
        self.lab.down(_quiet)


def _quiet(_: str) -> None:
    """Progress is of no interest to a test."""


@pytest.fixture(scope="session")
def session_lab(
    lab_mode: LabMode, lab_fabric: Fabric, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SessionLab]:
    """For tests that break the lab or take it down."""
    session_lab = SessionLab(tmp_path_factory.mktemp("lab") / "state", lab_fabric)
    other = claimed_by_another(session_lab.lab.paths)
    if other is not None:
        pytest.skip(f"the lab of {other} is up")
    yield session_lab
    session_lab.down()


@pytest.fixture
def running_lab(session_lab: SessionLab) -> RunningLab:
    """The example fabric's lab, up; one for the whole session, so clean up what you configure."""
    return session_lab.up()
