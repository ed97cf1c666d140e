"""What the lab is told and what it answers: device addresses and a status that JSON can hold."""

from dataclasses import dataclass
from enum import StrEnum


class LabMode(StrEnum):
    """Where the lab's Linux switches run."""

    DOWN = "down"
    NATIVE = "native"
    """Network namespaces of this kernel."""
    USER_MODE_LINUX = "user-mode-linux"
    """Namespaces of one user-mode-linux instance; the hosts are namespaces of this kernel."""
    ROOTLESS = "user-mode-linux-rootless"
    """Everything, hosts and commands too, inside one user-mode-linux instance."""
    EMULATORS_ONLY = "emulators-only"


class DeviceKind(StrEnum):
    """What answers at a device's address."""

    REAL = "real"
    """A Linux switch: its queues carry packets."""
    EMULATED = "emulated"
    """A command line without packets behind it."""
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class DeviceAddress:
    """Where the inventory expects one device's SSH server."""

    name: str
    platform: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """One device of the lab."""

    name: str
    platform: str
    address: str
    port: int
    kind: DeviceKind
    answers_ssh: bool


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host of the lab; `namespace` is empty where the host exists on paper only."""

    name: str
    leaf: str
    address: str
    aliases: dict[str, str]
    """Spine → the address that crosses it."""
    namespace: str


@dataclass(frozen=True, slots=True)
class LabStatus:
    """What runs, where it is reached and what is missing."""

    mode: LabMode
    fabric: str
    state_directory: str
    private_key: str
    known_hosts: str
    devices: tuple[DeviceStatus, ...]
    hosts: tuple[HostStatus, ...]
    missing: tuple[str, ...]
    """One line for each thing that this machine lacks, with the reason."""

    @property
    def all_answer(self) -> bool:
        """Whether every device that this mode offers answers SSH."""
        return all(device.answers_ssh for device in self.devices if device.kind is not DeviceKind.ABSENT)
