"""A real sshd on loopback, thrown away after the test."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mltswitch.inventory import Device
from tests.deploy.doubles import device

PRIVILEGE_SEPARATION_FOLDER = Path("/run/sshd")
START_SECONDS = 10.0
ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
"""At each it can be a device of its own."""


def sshd_program() -> str | None:
    """Where sshd is installed; it is not in every user's PATH."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@dataclass(frozen=True, slots=True)
class Sshd:
    """Its address, and the files with which one logs in as the user who runs the test."""

    folder: Path
    port: int

    def device(self, name: str = "leaf1", **changes: object) -> Device:
        """This sshd as a device of an inventory."""
        own = {
            "port": self.port,
            "user": getpass.getuser(),
            "key_file": self.folder / "id",
            "known_hosts_file": self.folder / "known_hosts",
            "password": None,
        }
        return device(name, **(own | changes))


def make_key(path: Path, passphrase: str = "") -> str:
    """A new key pair; returns the public key."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


@contextmanager
def running_sshd(folder: Path) -> Iterator[Sshd]:
    """Start one and stop it, with its connections, at the end."""
    host_key = make_key(folder / "host")
    (folder / "authorized").write_text(make_key(folder / "id") + "\n")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    names = ",".join(f"[{address}]:{port}" for address in ADDRESSES)
    (folder / "known_hosts").write_text(f"{names} {host_key}\n")
    listening = "".join(f"ListenAddress {address}\n" for address in ADDRESSES)
    (folder / "config").write_text(
        f"{listening}Port {port}\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
        f"SetEnv PATH={folder}:{os.defpath}\n"
    )
    if os.geteuid() == 0:  # sshd insists on it there, and the system makes it anew at each boot
        PRIVILEGE_SEPARATION_FOLDER.mkdir(mode=0o755, exist_ok=True)
    program = sshd_program()
    assert program is not None
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "config")], stderr=log)
    try:
        _wait_until_it_listens(process, port, folder / "log")
        yield Sshd(folder, port)
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def _wait_until_it_listens(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"sshd did not start: {log.read_text()}")
