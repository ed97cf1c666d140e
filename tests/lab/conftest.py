"""The lab that tests share: brought up once, as a user would."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from mltswitch.documents import load_document
from mltswitch.errors import MachineError
from mltswitch.lab import DeviceAddress, Engine, Lab, LabMode, NamespaceHandle, Records
from mltswitch.lab.kernel import examine, examine_for_bmv2
from mltswitch.lab.layout import Layout, lay_out
from mltswitch.lab.state import claimed_by_another, read_state
from mltswitch.plan import Fabric, resolve_fabric
from mltswitch.targets import hardware_capabilities

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


BMV2_FABRIC = LAB_FABRIC.parents[1] / "bmv2" / "fabric.yaml"
BMV2_DEVICES = tuple(
    DeviceAddress(name, "bmv2", f"127.77.9.{number}", 9559, 9090)
    for name, number in {"spine1": 1, "spine2": 2, "leaf1": 11, "leaf2": 12}.items()
)


def quiet(_: str) -> None:
    """Progress is of no interest to a test."""


@dataclass(frozen=True)
class SharedLab:
    """One lab for many tests, brought up when a test wants it and it is down."""

    lab: Lab
    fabric: Fabric
    devices: tuple[DeviceAddress, ...] = DEVICES
    engine: Engine = Engine.AUTO

    def up(self, records: Records | None = None) -> "SharedLab":
        # Not by its status: that asks every switch, and each answer is a process in user-mode-linux.
        if read_state(self.lab.paths) is None:
            self.build(self.lab, records)
        return self

    def build(self, lab: Lab, records: Records | None = None) -> None:
        """Bring another lab up in this one's way."""
        lab.up(self.fabric, self.devices, progress=quiet, engine=self.engine, records=records or Records())

    def down(self) -> None:
        self.lab.down(quiet)

    def ssh(self, device: str, command: str, *, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command on a device with the OpenSSH client, host key checked."""
        place = next(entry for entry in self.devices if entry.name == device)
        user = "root" if place.platform == "linux" else "admin"
        return run(
            [
                "ssh",
                *("-F", "none", "-i", str(self.lab.paths.private_key), "-p", str(place.port)),
                *("-o", f"UserKnownHostsFile={self.lab.paths.known_hosts}"),
                *("-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"),
                f"{user}@{place.address}",
                command,
            ],
            text,
        )

    def on_host(self, host: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in a host's namespace."""
        return run(self.lab.host_namespace(host).command(argv))


def run(argv: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """What a command says and how it ends; it must end in time."""
    return subprocess.run(
        argv, check=False, capture_output=True, text=True, timeout=COMMAND_SECONDS, input=text
    )


def on(node: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the namespace of a switch or a host."""
    return run(NamespaceHandle(f"mlt-{node}").command(argv))


@pytest.fixture(scope="session")
def lab_fabric() -> Fabric:
    """The example fabric, as `lab up` has it."""
    return resolved(LAB_FABRIC)


def resolved(fabric_file: Path) -> Fabric:
    """A fabric with the port names of its switches' platforms."""
    return resolve_fabric(load_document(fabric_file, Fabric), hardware_capabilities)


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


def skip_beside_another(lab: Lab) -> None:
    """A machine has one lab."""
    other = claimed_by_another(lab.paths)
    if other is not None:
        pytest.skip(f"the lab of {other} is up")


@pytest.fixture(scope="session")
def session_lab(
    lab_mode: LabMode, lab_fabric: Fabric, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedLab]:
    """For tests that break the lab or take it down."""
    session_lab = SharedLab(Lab(tmp_path_factory.mktemp("lab") / "state"), lab_fabric)
    skip_beside_another(session_lab.lab)
    yield session_lab
    session_lab.down()


@pytest.fixture
def running_lab(session_lab: SharedLab) -> SharedLab:
    """The example fabric's lab, up; one for the whole session, so clean up what you configure."""
    return session_lab.up()


def bmv2_lab_in(request: pytest.FixtureRequest, state_directory: Path, engine: Engine) -> SharedLab:
    """A lab of BMv2 switches, still down, in the place of the session's; skips where there can be none."""
    try:
        examine_for_bmv2(engine)
    except MachineError as error:
        pytest.skip(str(error))
    if examine().mode is not LabMode.EMULATORS_ONLY:
        request.getfixturevalue("session_lab").down()
    lab = Lab(state_directory)
    skip_beside_another(lab)
    return SharedLab(lab, resolved(BMV2_FABRIC), BMV2_DEVICES, engine)


def _module_lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedLab]:
    if request.param is Engine.AUTO:
        yield request.getfixturevalue("session_lab")
        return
    folder = tmp_path_factory.mktemp("bmv2") / "state"
    found = bmv2_lab_in(request, folder, request.param)
    yield found
    found.down()


BMV2_ENGINES = (Engine.NAMESPACES, Engine.MININET)
bmv2_lab = pytest.fixture(_module_lab, scope="module", params=BMV2_ENGINES, name="bmv2_lab")
"""A lab of BMv2 switches by each engine, for tests that break it or take it down."""
each_lab = pytest.fixture(_module_lab, scope="module", params=(Engine.AUTO, *BMV2_ENGINES), name="each_lab")
"""The session's lab of Linux switches, and those of BMv2 switches."""
