"""Inputs and results of the lab: device addresses, and a status that can be written as JSON."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LINUX_PLATFORM: Final = "linux"
BMV2_PLATFORM: Final = "bmv2"


class LabMode(StrEnum):
    """Where the lab's switches run."""

    DOWN = "down"
    NATIVE = "native"
    """Linux switches as network namespaces of this kernel."""
    USER_MODE_LINUX = "user-mode-linux"
    """Switches as namespaces of one user-mode-linux instance; hosts as namespaces of this kernel."""
    ROOTLESS = "user-mode-linux-rootless"
    """Everything, hosts and commands too, inside one user-mode-linux instance."""
    BMV2 = "bmv2"
    """BMv2 processes in network namespaces of this kernel."""
    BMV2_MININET = "bmv2-mininet"
    """BMv2 processes in the network namespaces of mininet's nodes."""
    EMULATORS_ONLY = "emulators-only"


class DeviceKind(StrEnum):
    """What kind of device answers at an address."""

    REAL = "real"
    """A Linux switch or a BMv2 process: its queues carry packets."""
    EMULATED = "emulated"
    """An emulated switch: a command line that forwards no packets."""
    ABSENT = "absent"


class Engine(StrEnum):
    """The program that builds a lab of BMv2 switches."""

    AUTO = "auto"
    """Mininet where it is installed; otherwise plain namespaces."""
    MININET = "mininet"
    NAMESPACES = "namespaces"


@dataclass(frozen=True, slots=True)
class Records:
    """Logs and captures that a lab keeps on request; both slow its switches down."""

    keep_logs: bool = False
    """Whether BMv2 logs every packet and `down` leaves all logs in place."""
    pcap: bool = False
    """Whether BMv2 captures every port and `down` leaves the captures in place."""


@dataclass(frozen=True, slots=True)
class DeviceAddress:
    """Where the inventory expects one device's SSH or gRPC server."""

    name: str
    platform: str
    address: str
    port: int
    thrift_port: int | None = None
    """Port of a BMv2 switch's Thrift server; None: not reachable, or no BMv2 switch."""


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """Status of one device of the lab."""

    name: str
    platform: str
    address: str
    port: int
    kind: DeviceKind
    answers: bool
    """Whether the device's SSH server answers; of a BMv2 switch, its gRPC server."""


@dataclass(frozen=True, slots=True)
class HostStatus:
    """Status of one host of the lab; `namespace` is empty where the host is not built."""

    name: str
    leaf: str
    address: str
    aliases: dict[str, str]
    """Alias addresses of the host by spine: packets to an alias cross that spine."""
    namespace: str


@dataclass(frozen=True, slots=True)
class LabStatus:
    """Status of a lab: what runs, how it is reached, and what is missing."""

    mode: LabMode
    fabric: str
    state_directory: str
    private_key: str
    known_hosts: str
    devices: tuple[DeviceStatus, ...]
    hosts: tuple[HostStatus, ...]
    missing: tuple[str, ...]
    """One line for each feature that this machine lacks, with the reason."""

    @property
    def all_answer(self) -> bool:
        """Whether every device that the lab's mode offers answers."""
        return all(device.answers for device in self.devices if device.kind is not DeviceKind.ABSENT)
