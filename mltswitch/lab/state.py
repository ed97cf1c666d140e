"""The record of a lab, written before the lab is made, and the locks that keep labs apart."""

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
"""Lock file of root's labs, which share the machine's namespaces; it names the lab that has them."""


def boot_identity() -> str:
    """Identity of this kernel's current boot; user-mode-linux has its own."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class LabState(BaseModel):
    """state.json: enough to report, to serve and to remove a lab without its fabric file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["mltswitch/lab/v2"] = "mltswitch/lab/v2"
    instance: str = Field(default_factory=lambda: secrets.token_hex(6))
    """Random identifier that names the user-mode-linux instance on its command line."""
    boot: str = Field(default_factory=boot_identity)
    """Identity of the kernel boot in which the lab was made: another boot does not have its processes."""
    mode: LabMode
    ready: bool = False
    fabric: Fabric
    devices: tuple[DeviceAddress, ...]
    missing: tuple[str, ...] = ()
    keep_logs: bool = False
    """Whether `down` leaves logs and captures."""

    @cached_property
    def layout(self) -> Layout:
        """The layout from which the lab was built."""
        return Layout(self.fabric, self.devices, self.mode is not LabMode.EMULATORS_ONLY)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of the lab's namespaces in this kernel."""
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
    """The lab's recorded state, None if there is none; raises MachineError for an unreadable record."""
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
    """Replace the lab's record atomically."""
    write_atomically(paths.state, state.model_dump_json(indent=2, by_alias=True) + "\n")


def claim(paths: LabPaths) -> None:
    """Reserve the machine's namespaces for this lab while its state.json exists; call with the lock held."""
    MACHINE_LOCK.write_text(f"{paths.root}\n", encoding="utf-8")


def claimed_by_another(paths: LabPaths) -> Path | None:
    """State directory of the other lab that has the machine's namespaces; None if there is none."""
    try:
        name = MACHINE_LOCK.read_text(encoding="utf-8").strip()
    except OSError:  # never taken, or root's while we are not
        return None
    root = Path(name)
    return root if name and root != paths.root and LabPaths(root).state.exists() else None


@contextlib.contextmanager
def locked(paths: LabPaths) -> Iterator[None]:
    """Hold the lock that excludes any other `up` or `down`; raises MachineError when it is taken."""
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
