"""What one lab is made of, written before it is made, and the lock that keeps labs apart."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Container, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mltswitch.errors import MachineError
from mltswitch.lab.layout import Layout
from mltswitch.lab.model import (
    BMV2_PLATFORM,
    LINUX_PLATFORM,
    DeviceAddress,
    DeviceKind,
    DeviceStatus,
    HostStatus,
    LabMode,
    LabStatus,
)
from mltswitch.lab.paths import LabPaths
from mltswitch.outputs import write_atomically
from mltswitch.plan import Fabric

MACHINE_LOCK: Final = Path("/run/mltswitch-lab.lock")
"""Root's labs share the machine's namespaces, so they share this lock; it names the one that has them."""


def boot_identity() -> str:
    """Identity of this kernel's boot; user-mode-linux has its own."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class LabState(BaseModel):
    """state.json: enough to report, to serve and to remove a lab without its fabric file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["mltswitch/lab/v2"] = "mltswitch/lab/v2"
    instance: str = Field(default_factory=lambda: secrets.token_hex(6))
    """Random; names the user-mode-linux instance on its command line."""
    boot: str = Field(default_factory=boot_identity)
    """Which boot of which kernel: processes and namespaces of another one are gone or elsewhere."""
    mode: LabMode
    ready: bool = False
    fabric: Fabric
    devices: tuple[DeviceAddress, ...]
    missing: tuple[str, ...] = ()
    keep_logs: bool = False
    """Whether `down` leaves logs and captures."""

    @cached_property
    def layout(self) -> Layout:
        """What the lab is made of."""
        return Layout(self.fabric, self.devices, self.mode is not LabMode.EMULATORS_ONLY)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces of this kernel that the lab has."""
        return () if self.mode is LabMode.ROOTLESS else self.layout.namespaces

    def report(self, paths: LabPaths, answering: Container[str] = ()) -> LabStatus:
        """The status of the lab, given the names of the devices that answer."""
        layout = self.layout
        kinds = {device.name: layout.kind(device) for device in self.devices}
        absent = [
            f"{device.name}: the lab has no emulator of {device.platform}"
            for device in self.devices
            if kinds[device.name] is DeviceKind.ABSENT
            and device.platform not in (LINUX_PLATFORM, BMV2_PLATFORM)
        ]
        return LabStatus(
            mode=self.mode,
            fabric=self.fabric.name,
            state_directory=str(paths.root),
            private_key=str(paths.private_key),
            known_hosts=str(paths.known_hosts),
            devices=tuple(
                DeviceStatus(d.name, d.platform, d.address, d.port, kinds[d.name], d.name in answering)
                for d in self.devices
            ),
            hosts=tuple(
                HostStatus(
                    name=host.name,
                    leaf=host.leaf,
                    address=str(host.address),
                    aliases={path: str(alias) for path, alias in host.aliases},
                    namespace=layout.namespace(host.name),
                )
                for host in layout.topology.hosts
            ),
            missing=(*self.missing, *absent),
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
    write_atomically(paths.state, state.model_dump_json(indent=2, by_alias=True) + "\n")


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
