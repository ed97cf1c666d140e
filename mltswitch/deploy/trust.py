"""What an operator confirms once about a switch: its host key, and the serial number of the box."""

import socket
from dataclasses import dataclass, replace
from pathlib import Path

from mltswitch.deploy.connector import connect
from mltswitch.deploy.identity import check_identity
from mltswitch.deploy.session import Connector
from mltswitch.deploy.ssh import (
    BANNER_SECONDS,
    agreeing,
    known_as,
    known_keys,
    require_packages,
    route,
    translated,
)
from mltswitch.documents import read_text
from mltswitch.errors import UserInputError
from mltswitch.inventory import Device, Inventory
from mltswitch.inventory.yaml_files import SUFFIXES
from mltswitch.outputs import write_together
from mltswitch.targets import Identity, target_for


@dataclass(frozen=True, slots=True)
class HostKey:
    """The SSH host key by which a device proves that it is the same as the last time."""

    device: str
    fingerprint: str
    """The key's fingerprint, `SHA256:…`, as OpenSSH prints it on a switch's console."""
    line: str
    """The key's line for the known_hosts file; empty where it stands there already."""


def host_key(device: Device) -> HostKey | None:
    """The device's host key: the known one, else the one that answers, which nobody has confirmed yet.

    None for a session without login. Raises DeviceError where the device does not answer.
    """
    require_packages()
    if target_for(device.platform, where=device.name).session.is_grpc:
        return None
    if known := known_keys(device):
        return HostKey(device.name, next(iter(known.values())).fingerprint, "")
    with translated(device), route(device) as channel, agreeing() as connected:
        address = (device.address, device.port)
        with connected(
            channel or socket.create_connection(address, timeout=device.connect_seconds)
        ) as transport:
            transport.start_client(timeout=BANNER_SECONDS)
            key = transport.get_remote_server_key()
    return HostKey(device.name, key.fingerprint, f"{known_as(device)} {key.get_name()} {key.get_base64()}\n")


def add_host_key(device: Device, key: HostKey) -> None:
    """Append the key to the known_hosts file; raises UserInputError."""
    path = device.known_hosts_file
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _append(path, read_text(path) if path.is_file() else "", key.line)


def _append(path: Path, text: str, line: str) -> None:
    """Write the text that a file has, and a line behind it."""
    separator = "" if not text or text.endswith("\n") else "\n"
    write_together([(path, f"{text}{separator}{line}")])


def identity(device: Device, connector: Connector = connect) -> Identity | None:
    """The identity that the device reports, whatever serial number the inventory has; None: it reports none.

    Raises DeviceError where its host name is not the inventory's.
    """
    target = target_for(device.platform, where=device.name)
    if target.identify is None:
        return None
    with connector(device, target) as session:
        return check_identity(replace(device, serial=""), target, session)


def record_serial(inventory: Inventory, device: Device, serial: str) -> Path:
    """Write the serial number into the device's file in `host_vars`, and leave all else in the file as it is.

    Raises UserInputError where it is not clear which file that is, or where another number stands there.
    """
    folders = {path if path.is_dir() else path.parent for path in inventory.sources}
    line = f'mltswitch_serial: "{serial}"'
    by_hand = f"add the line `{line}` to the variables of {device.name}"
    if len(folders) != 1:
        raise UserInputError("there are several inventories", where=str(inventory.path), hint=by_hand)
    folder = folders.pop() / "host_vars"
    present = [path for suffix in SUFFIXES if (path := folder / f"{device.name}{suffix}").exists()]
    path = present[0] if present else folder / f"{device.name}.yaml"
    text = read_text(path) if present else ""
    if (folder / device.name).exists() or text.startswith("$ANSIBLE_VAULT") or device.serial:
        raise UserInputError(
            "holds another serial number, or variables that are not for us to change",
            where=str(path),
            hint=by_hand,
        )
    folder.mkdir(exist_ok=True)
    _append(path, text, f"{line}\n")
    return path
