"""What the lab is told and what it answers: device addresses and a status that JSON can hold."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LINUX_PLATFORM: Final = "linux"
BMV2_PLATFORM: Final = "bmv2"


class LabMode(StrEnum):
    """Where the lab's switches run."""

    DOWN = "down"
    NATIVE = "native"
    """Network namespaces of this kernel."""
    USER_MODE_LINUX = "user-mode-linux"
    """Namespaces of one user-mode-linux instance; the hosts are namespaces of this kernel."""
    ROOTLESS = "user-mode-linux-rootless"
    """Everything, hosts and commands too, inside one user-mode-linux instance."""
    BMV2 = "bmv2"
    """BMv2 processes in network namespaces of this kernel."""
    BMV2_MININET = "bmv2-mininet"
    """BMv2 processes in the network namespaces of mininet's nodes."""
    EMULATORS_ONLY = "emulators-only"


class DeviceKind(StrEnum):
    """What answers at a device's address."""

    REAL = "real"
    """A Linux switch or a BMv2 process: its queues carry packets."""
    EMULATED = "emulated"
    """A command line without packets behind it."""
    ABSENT = "absent"


class Engine(StrEnum):
    """What builds a lab of BMv2 switches."""

    AUTO = "auto"
    """Mininet where it is installed."""
    MININET = "mininet"
    NAMESPACES = "namespaces"


@dataclass(frozen=True, slots=True)
class Records:
    """What a lab keeps of what happened, on request, because it slows the switches down."""

    keep_logs: bool = False
    """BMv2 logs every packet, and `down` leaves all logs."""
    pcap: bool = False
    """BMv2 captures every port, and `down` leaves the captures."""


@dataclass(frozen=True, slots=True)
class DeviceAddress:
    """Where the inventory expects one device's SSH or gRPC server."""

    name: str
    platform: str
    address: str
    port: int
    thrift_port: int | None = None
    """BMv2 alone: where its second server is expected; None: nobody reaches it."""


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """One device of the lab."""

    name: str
    platform: str
    address: str
    port: int
    kind: DeviceKind
    answers: bool
    """SSH; a BMv2 switch gRPC."""


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
        """Whether every device that this mode offers answers."""
        return all(device.answers for device in self.devices if device.kind is not DeviceKind.ABSENT)
