"""SSH keys of one lab: made by `lab up`, never committed, removed by `lab down`."""

import os
from collections.abc import Sequence
from pathlib import Path

from mltswitch.errors import MachineError
from mltswitch.lab.model import DeviceAddress


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def create_key(path: Path, comment: str) -> str:
    """Make an Ed25519 key pair (`path`, `path`.pub) and return the public half; raises MachineError."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise MachineError(
            "the Python package cryptography is missing", hint="`pip install 'mltswitch[lab]'`"
        ) from None
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_private(path, private.decode())
    line = public.decode()
    write_private(path.with_name(path.name + ".pub"), f"{line} {comment}\n")
    return line


def create_lab_keys(
    private_key: Path, known_hosts: Path, host_keys: Path, devices: Sequence[DeviceAddress]
) -> None:
    """The user's key, one host key per device in `host_keys`, and the known_hosts file that trusts them."""
    create_key(private_key, "mltswitch lab user")
    lines = [
        f"[{device.address}]:{device.port} {create_key(host_keys / device.name, device.name)}\n"
        if device.port != 22  # sshd(8): the standard port stands without brackets
        else f"{device.address} {create_key(host_keys / device.name, device.name)}\n"
        for device in devices
    ]
    write_private(known_hosts, "".join(lines))
