"""What an inventory says about the switches: one `Device` each, and how some of them are selected."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from mltswitch.errors import UserInputError

UNIX_SOCKET: Final = "unix:"
"""Begins an address that is a path, in gRPC's words."""


@dataclass(frozen=True, slots=True)
class Device:
    """One switch as one reaches it; it never holds a secret itself."""

    name: str
    platform: str
    switch: str
    """Its name in the fabric."""
    address: str
    """IP address or host name."""
    port: int
    user: str
    """Empty where nobody logs in."""
    key_file: Path | None
    known_hosts_file: Path
    password_variable: str | None = field(repr=False)
    """Environment variable with the password; never shown, lest somebody put the password itself there."""
    groups: tuple[str, ...]
    """Every group that it is in, `all` first, nearer groups later."""
    device_id: int = 1
    """What P4Runtime calls it; other sessions do not ask."""
    thrift_port: int = 0
    """BMv2's own port for what P4Runtime has no words for, at the same address; 0: nobody reaches it."""

    @property
    def endpoint(self) -> str:
        """Address and port, as users write them; a Unix socket has no port."""
        if self.address.startswith(UNIX_SOCKET):
            return self.address
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"

    def password(self) -> SecretStr | None:
        """The password, read from the environment now; raises UserInputError when the variable is not set."""
        if self.password_variable is None:
            return None
        value = os.environ.get(self.password_variable)
        if not value:
            raise UserInputError(
                "the environment variable that mltswitch_password_env names is not set", where=self.name
            )
        return SecretStr(value)


@dataclass(frozen=True, slots=True)
class Inventory:
    """All devices of one inventory, in the order in which its file first names them."""

    devices: tuple[Device, ...]
    path: Path

    def select(self, limit: str | None = None) -> tuple[Device, ...]:
        """Devices named by `limit`, or in a group that it names (separated by commas); None: all.

        Raises UserInputError for a name that is neither, and where nothing is selected.
        """
        if limit is None:
            return self._some(self.devices)
        known = {name for device in self.devices for name in (device.name, *device.groups)}
        wanted = {name.strip() for name in limit.split(",")} - {""}
        for name in sorted(wanted - known):
            raise UserInputError(
                f"no device or group {name!r} in {self.path}",
                where="--limit",
                expected=f"some of {_listing(sorted(known))}",
            )
        return self._some(
            tuple(device for device in self.devices if not wanted.isdisjoint((device.name, *device.groups)))
        )

    def _some(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        if not devices:
            raise UserInputError("no device is selected", where=str(self.path))
        return devices


def _listing(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"
