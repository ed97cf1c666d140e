"""What one lab is made of, written before it is made, and the lock that keeps labs apart."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mltswitch.errors import MachineError
from mltswitch.lab.layout import MANAGEMENT_NAMESPACE, LabSwitch, Layout
from mltswitch.lab.mininet_bmv2 import GRPC_PORT, THRIFT_PORT
from mltswitch.lab.model import LINUX_PLATFORM, DeviceAddress, LabMode
from mltswitch.lab.paths import LabPaths
from mltswitch.outputs import write_atomically

MACHINE_LOCK: Final = Path("/run/mltswitch-lab.lock")
"""Root's labs share the machine's namespaces, so they share this lock; it names the one that has them."""
SSH_PORT: Final = 22
LOOPBACK: Final = "127.0.0.1"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Relay(_Record):
    """TCP from an address on the user's side to one that only a namespace reaches."""

    name: str
    address: str
    port: int
    namespace: str
    target: str
    target_port: int
    authenticates: bool
    """Whether the server asks who calls; where it does not, the relay serves the lab's own user alone."""


class Emulator(_Record):
    """One emulated command line."""

    name: str
    kind: str
    hardware: str = ""
    ports: int
    neighbours: tuple[tuple[str, str, str], ...] = ()
    address: str
    port: int


class Device(_Record):
    """One device of the inventory."""

    name: str
    platform: str
    address: str
    port: int
    real: bool
    present: bool


class Host(_Record):
    """One host of the fabric."""

    name: str
    leaf: str
    address: str
    aliases: dict[str, str]
    namespace: str


class LabState(_Record):
    """state.json: enough to report, to serve and to remove a lab without its fabric file."""

    schema_version: Literal["mltswitch/lab/v1"] = "mltswitch/lab/v1"
    instance: str
    """Random; names the user-mode-linux instance on its command line."""
    boot: str
    """Which boot of which kernel: processes and namespaces of another one are gone or elsewhere."""
    mode: LabMode
    ready: bool
    fabric: str
    namespaces: tuple[str, ...]
    relays: tuple[Relay, ...]
    emulators: tuple[Emulator, ...]
    devices: tuple[Device, ...]
    hosts: tuple[Host, ...]
    missing: tuple[str, ...]
    keep_logs: bool = False
    """Whether `down` leaves logs and captures."""


def describe(
    layout: Layout, *, mode: LabMode, instance: str, missing: tuple[str, ...], keep_logs: bool = False
) -> LabState:
    """The state of a lab that is about to be built."""
    places = {device.name: device for device in layout.devices}
    rootless = mode is LabMode.ROOTLESS
    switches = [switch for switch in layout.switches if switch.name in places]
    emulators = [emulator for emulator in layout.emulators if emulator.name in places]
    real = {switch.name for switch in switches}
    present = real | {emulator.name for emulator in emulators}
    return LabState(
        instance=instance,
        boot=boot_identity(),
        mode=mode,
        ready=False,
        fabric=layout.fabric,
        namespaces=() if rootless else layout.namespaces,
        relays=tuple(relay for switch in switches for relay in _relays(layout, switch, places[switch.name])),
        emulators=tuple(
            Emulator(
                name=emulator.name,
                kind=emulator.kind,
                hardware=emulator.hardware,
                ports=emulator.ports,
                neighbours=emulator.neighbours,
                address=places[emulator.name].address,
                port=places[emulator.name].port,
            )
            for emulator in emulators
        ),
        devices=tuple(
            Device(
                name=device.name,
                platform=device.platform,
                address=device.address,
                port=device.port,
                real=device.name in real,
                present=device.name in present,
            )
            for device in layout.devices
        ),
        hosts=tuple(
            Host(
                name=host.name,
                leaf=host.leaf,
                address=str(host.address),
                aliases={spine: str(alias) for spine, alias in host.aliases},
                namespace=host.namespace,
            )
            for host in layout.hosts
        ),
        missing=missing,
        keep_logs=keep_logs,
    )


def _relays(layout: Layout, switch: LabSwitch, place: DeviceAddress) -> Iterator[Relay]:
    if layout.platform == LINUX_PLATFORM:
        yield Relay(
            name=switch.name,
            address=place.address,
            port=place.port,
            namespace=MANAGEMENT_NAMESPACE,
            target=str(switch.management_address),
            target_port=SSH_PORT,
            authenticates=True,
        )
        return
    servers = (("gRPC", place.port, GRPC_PORT), ("thrift", place.thrift_port, THRIFT_PORT))
    for server, port, target_port in servers:
        if port is not None:
            yield Relay(
                name=f"{switch.name} {server}",
                address=place.address,
                port=port,
                namespace=switch.namespace,
                target=LOOPBACK,
                target_port=target_port,
                authenticates=False,
            )


def read_state(paths: LabPaths) -> LabState | None:
    """The recorded lab, or none; raises MachineError when the record cannot be understood."""
    try:
        return LabState.model_validate_json(paths.state.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise MachineError(
            f"cannot be understood: {type(error).__name__}",
            where=str(paths.state),
            hint="`mltswitch lab down` removes what is left",
        ) from None


def write_state(paths: LabPaths, state: LabState) -> None:
    """Replace the record as a whole."""
    write_atomically(paths.state, state.model_dump_json(indent=2) + "\n")


def claim(paths: LabPaths) -> None:
    """Take the machine's namespaces for this lab, for as long as its state.json exists; within the lock."""
    MACHINE_LOCK.write_text(f"{paths.root}\n", encoding="utf-8")


def claimed_by_another(paths: LabPaths) -> Path | None:
    """State directory of the lab that has the machine's namespaces, unless it is this one."""
    try:
        name = MACHINE_LOCK.read_text(encoding="utf-8").strip()
    except OSError:  # never taken, or root's while we are not
        return None
    root = Path(name)
    return root if name and root != paths.root and LabPaths(root).state.exists() else None


def boot_identity() -> str:
    """Identity of this kernel's boot; user-mode-linux has its own."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@contextlib.contextmanager
def locked(paths: LabPaths) -> Iterator[None]:
    """No other `up` or `down` meanwhile; raises MachineError when one is at work."""
    if os.geteuid() == 0:
        file, flags = MACHINE_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    else:
        file, flags = paths.root, os.O_RDONLY | os.O_DIRECTORY
    descriptor = os.open(file, flags | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MachineError("another `mltswitch lab up` or `down` is at work", where=str(file)) from None
        yield
    finally:
        os.close(descriptor)
