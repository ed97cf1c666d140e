"""An SSH server that takes a client in and then never answers what it asks for."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from mltswitch.inventory import Device
from tests.deploy.doubles import device
from tests.deploy.sshd import make_key


class _Silent(paramiko.ServerInterface):
    """Accepts every key and every channel; a request on one waits until the test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.over.wait(60)
        return False

    def check_channel_pty_request(self, channel: paramiko.Channel, *_: object) -> bool:
        self.over.wait(60)
        return False


@contextmanager
def silent_server(folder: Path) -> Iterator[Device]:
    """The device by which one reaches it; it serves one connection."""
    host_key = make_key(folder / "host")
    make_key(folder / "id")
    silent = _Silent()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as client, paramiko.Transport(client) as transport:
                transport.add_server_key(paramiko.Ed25519Key.from_private_key_file(str(folder / "host")))
                transport.start_server(server=silent)
                silent.over.wait(60)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        port = listener.getsockname()[1]
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}\n")
        try:
            yield device("leaf1", port=port, key_file=folder / "id", known_hosts_file=folder / "known_hosts")
        finally:
            silent.over.set()
            server.join(10)
