"""Keys made for the session, and clients: real netmiko, the real OpenSSH client."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from netmiko import BaseConnection, ConnectHandler

from switchsim import (
    DellSonicDevice,
    EmulatorServer,
    Faults,
    IcosDevice,
    OnyxDevice,
    load_authorized_keys,
    load_host_key,
)
from switchsim.device import EmulatedDevice


@dataclass(frozen=True, slots=True)
class Keys:
    """Key files: the switch's, a client's that may log in, one that may not."""

    host: Path
    client: Path
    stranger: Path


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("host", "client", "stranger"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(command, check=True)
    return Keys(folder / "host", folder / "client", folder / "stranger")


Serve = Callable[..., EmulatorServer]


@pytest.fixture
def serve(keys: Keys, request: pytest.FixtureRequest) -> Serve:
    def start(
        device: EmulatedDevice, *, faults: Faults | None = None, password: str | None = None
    ) -> EmulatorServer:
        server = EmulatorServer(
            device,
            host_key=load_host_key(keys.host),
            authorized_keys=load_authorized_keys(keys.client.with_suffix(".pub")),
            password=password,
            faults=faults,
        )
        server.start()
        request.addfinalizer(server.stop)
        return server

    return start


DIALECTS = {IcosDevice: "broadcom_icos", DellSonicDevice: "dell_sonic", OnyxDevice: "mellanox_mlnxos"}
"""netmiko's own drivers."""
Connect = Callable[[EmulatorServer], BaseConnection]


@pytest.fixture
def connect(keys: Keys, request: pytest.FixtureRequest) -> Connect:
    def open_connection(server: EmulatorServer) -> BaseConnection:
        kind = DIALECTS.get(type(server.device), "linux")
        connection = ConnectHandler(
            device_type=kind,
            host=server.address,
            port=server.port,
            username="admin",
            use_keys=True,
            key_file=str(keys.client),
            fast_cli=True,
        )
        request.addfinalizer(connection.disconnect)
        return connection

    return open_connection


Ssh = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def ssh(keys: Keys, tmp_path: Path) -> Ssh:
    """The OpenSSH client, checking the host key strictly."""

    def run(
        server: EmulatorServer,
        *words: str,
        stdin: bytes = b"",
        identity: Path | None = None,
        known: Path | None = None,
    ) -> "subprocess.CompletedProcess[bytes]":
        known_hosts = tmp_path / "known_hosts"
        host_key = (known or keys.host).with_suffix(".pub").read_text()
        known_hosts.write_text(f"[{server.address}]:{server.port} {host_key}")
        options = [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            f"UserKnownHostsFile={known_hosts}",
            "LogLevel=ERROR",
        ]
        command = ["ssh", "-F", "none", "-i", str(identity or keys.client), "-p", str(server.port)]
        for option in options:
            command += ["-o", option]
        terminal = () if words else ("-tt",)
        return subprocess.run(
            [*command, *terminal, f"admin@{server.address}", *words],
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )

    return run
