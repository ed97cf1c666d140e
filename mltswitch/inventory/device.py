"""The switches of an inventory, one `Device` each, and how some of them are selected."""

import os
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from mltswitch.errors import MOST_LISTED, UserInputError, printable, refuse, some
from mltswitch.inventory.ansible import VAULT, decrypted
from mltswitch.inventory.listing import file_of
from mltswitch.inventory.patterns import matching

UNIX_SOCKET: Final = "unix:"
"""Prefix of an address that is the path of a Unix socket, as gRPC writes it."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is kept; it is read when it is needed, and not stored here."""

    variable: str
    """Name of the inventory variable that says where the secret is."""
    source: str = field(repr=False)
    """Name of an environment variable, or a text encrypted by Ansible Vault; by mistake the secret itself."""

    def read(self, device: str) -> SecretStr:
        """The secret; raises UserInputError when the environment variable is not set, or Vault fails."""
        if self.source.startswith(VAULT):
            return SecretStr(decrypted(self.source, where=f"{device}: {self.variable}"))
        value = os.environ.get(self.source)
        if not value:
            raise UserInputError(
                f"the environment variable that {self.variable} names is not set", where=device
            )
        return SecretStr(value)


@dataclass(frozen=True, slots=True)
class JumpHost:
    """An SSH server on the way to a device or to the next jump host."""

    address: str
    port: int
    user: str


@dataclass(frozen=True, slots=True)
class Device:
    """One switch and how to reach it; no secret is stored in it."""

    name: str
    platform: str
    switch: str
    """The switch's name in the fabric."""
    address: str
    """IP address or host name of the device."""
    port: int
    user: str
    """User name for the login; empty where the session has no login."""
    key_file: Path | None
    """Private SSH key; None: the password is used, or else the keys of the SSH agent."""
    known_hosts_file: Path
    password: Secret | None
    groups: tuple[str, ...]
    """Every group of the inventory that the host is in, sorted."""
    device_id: int = 1
    """Device ID in P4Runtime; other sessions do not use it."""
    thrift_port: int = 0
    """BMv2's thrift port, at the same address, for what P4Runtime cannot express; 0: it is not reachable."""
    plaintext: bool = False
    """Whether gNMI is spoken without TLS."""
    ca_file: Path | None = None
    """File of the authority's or the device's own certificate that gNMI trusts; None: public authorities."""
    passphrase: Secret | None = None
    """Passphrase of the private key; None: it has none, or is asked for."""
    jump_hosts: tuple[JumpHost, ...] = ()
    """Jump hosts in the order from this machine to the device."""
    connect_seconds: float = 10.0
    """Time limit in seconds for each TCP connection."""
    become: bool = False
    """Whether commands in a shell run as root, by sudo; a command line always enters its privileged mode."""
    become_password: Secret | None = None
    hostname: str = ""
    """The device's own host name; empty: it is the name here or in the fabric."""
    serial: str = ""
    """Serial number that the device must have; empty: any."""
    model: str = ""
    """Hardware model, in the vendor's words, that the device must have; empty: any."""
    release: str = ""
    """OS version that the device must run, known to mltswitch or not; empty: any that it knows."""

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Passwords that a session will need."""
        return tuple(filter(None, (self.password, self.become_password)))

    @property
    def endpoint(self) -> str:
        """Address and port, as users write them; a Unix socket has no port."""
        if self.address.startswith(UNIX_SOCKET):
            return self.address
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"


@dataclass(frozen=True, slots=True)
class Unusable:
    """A host of an inventory that no session can be opened to."""

    switch: str
    """The switch's name in the fabric, as its variables give it."""
    groups: tuple[str, ...]
    error: UserInputError
    foreign: str = ""
    """Why it is no switch that mltswitch knows: `of platform 'cisco.ios.ios'`; empty where it is one."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """All hosts of one or more inventories: usable devices, and the rest."""

    devices: tuple[Device, ...]
    path: Path
    sources: tuple[Path, ...] = ()
    """Files and folders from which the inventory was read."""
    unusable: Mapping[str, Unusable] = field(default_factory=dict)
    """Host → why it is not usable as a device."""

    @property
    def hosts(self) -> tuple["Device | Unusable", ...]:
        """All hosts of the inventory, usable as devices or not."""
        return (*self.devices, *self.unusable.values())

    def select(self, limit: str | None = None, fabric: Container[str] = ()) -> tuple[Device, ...]:
        """Devices that match `limit`, by Ansible's patterns of names and groups; None: all.

        Hosts of other platforms are skipped, unless `fabric`, the names of a plan's switches, has them.
        Raises UserInputError with every selected host that is wrong, for a pattern that matches nothing, and
        where no device is selected.
        """
        chosen = self._chosen(limit)
        self._refuse(
            host
            for host, each in self.unusable.items()
            if host in chosen and (not each.foreign or host in fabric or each.switch in fabric)
        )
        selected = tuple(device for device in self.devices if device.name in chosen)
        if not selected:
            others = "; ".join(self.left_out(limit))
            raise UserInputError(f"no device is selected{others and ': '}{others}", where=str(self.path))
        return selected

    def left_out(self, limit: str | None = None) -> Iterator[str]:
        """For each reason one line, with the number of selected hosts that mltswitch does not know."""
        chosen = self._chosen(limit)
        hosts: dict[str, list[str]] = {}
        for host, each in self.unusable.items():
            if host in chosen and each.foreign:
                hosts.setdefault(each.foreign, []).append(host)
        if hosts:
            reasons = (f"{len(names)} {reason} ({some(names)})" for reason, names in hosts.items())
            yield f"hosts that are no switches of ours are left out: {printable(', '.join(reasons))}"

    def refuse_foreign(self, limit: str | None = None) -> None:
        """Raise UserInputError where `limit` selects a host of another platform."""
        chosen = self._chosen(limit)
        self._refuse(host for host in self.unusable if host in chosen)

    def _refuse(self, hosts: Iterable[str]) -> None:
        """Raise what is wrong with these hosts; the first errors name the file, too."""
        errors = []
        for number, host in enumerate(hosts):
            each = self.unusable[host]
            error, variable = each.error, each.error.where.partition(": ")[2].strip("'")
            file = file_of(host, each.groups, variable, self.sources) if number < MOST_LISTED else ""
            where = f"{file or self.path}: {error.where}"
            errors.append(UserInputError(error.what, where=where, expected=error.expected, hint=error.hint))
        refuse(errors)

    def _chosen(self, limit: str | None) -> Container[str]:
        groups = {device.name: device.groups for device in self.devices}
        groups |= {host: each.groups for host, each in self.unusable.items()}
        return groups if limit is None else matching(limit, groups)
