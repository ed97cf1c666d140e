"""Relays into the lab's namespaces: whom they serve, where the server behind them asks nobody."""

import asyncio
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from mltswitch.lab.bmv2_node import listening_ports
from mltswitch.lab.relay import Relay, RelayServer, connecting_user

ADDRESS = "127.77.9.99"
NOBODY = 65534
SERVED = "network namespace mlt-none: cannot be entered"
"""What the log tells of a caller who was let in: there is nothing behind this relay."""


def test_whose_connection_it_is() -> None:
    with socket.create_server(("127.77.9.99", 0)) as server:
        here = server.getsockname()
        assert here[1] in listening_ports(os.getpid())
        with socket.create_connection(here) as client:
            assert connecting_user(client.getsockname(), here) == os.geteuid()
            assert connecting_user(client.getsockname(), ("127.77.9.98", here[1])) is None
            assert connecting_user(client.getsockname(), ("127.77.9.99", 1)) is None
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as client:  # as gRPC's is
            client.connect(("::ffff:127.77.9.99", here[1]))
            caller = ("127.0.0.1", client.getsockname()[1])
            assert connecting_user(caller, here) == os.geteuid()
            assert connecting_user(caller, ("127.77.9.98", here[1])) is None
    assert connecting_user(("127.77.9.99", 1), here) is None


def _left_behind(server: socket.socket, port: int = 0) -> tuple[tuple[str, int], tuple[str, int]]:
    """The two ends of a connection of ours that is closed and in TIME_WAIT."""
    here: tuple[str, int] = server.getsockname()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind(("127.0.0.1", port))
        client.connect(here)
        caller: tuple[str, int] = client.getsockname()
        accepted, _ = server.accept()
    accepted.close()
    deadline = time.monotonic() + 60
    while not any(
        fields[1].endswith(f":{caller[1]:04X}")
        and fields[2].endswith(f":{here[1]:04X}")
        and fields[3] == "06"
        for fields in map(str.split, Path("/proc/net/tcp").read_text(encoding="ascii").splitlines())
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return caller, here


def test_what_a_closed_connection_leaves_is_nobodys() -> None:
    with socket.create_server(("127.77.9.99", 0)) as server:
        assert connecting_user(*_left_behind(server)) is None


@pytest.fixture
def relay(caplog: pytest.LogCaptureFixture) -> Relay:
    caplog.set_level("INFO")
    with socket.create_server((ADDRESS, 0)) as server:
        port: int = server.getsockname()[1]
    return Relay("leaf1", ADDRESS, port, "mlt-none", "127.0.0.1", 1, authenticates=False)


def run(relay: Relay, call: Callable[[int], Awaitable[None]]) -> None:
    """Serve while somebody calls."""

    async def serve() -> None:
        await RelayServer(relay).start()
        await asyncio.wait_for(call(relay.port), 120)

    asyncio.run(serve())


def test_our_own_user_is_served(relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    async def call(port: int) -> None:
        reader, writer = await asyncio.open_connection(ADDRESS, port)
        assert await reader.read() == b""
        writer.close()

    run(relay, call)
    assert SERVED in caplog.text


def test_a_caller_that_is_gone_already_is_not_served(relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    async def call(port: int) -> None:
        with socket.create_connection((ADDRESS, port)) as client:  # nothing runs meanwhile
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        while not any(record.message.startswith("leaf1: ") for record in caplog.records):
            await asyncio.sleep(0.01)

    run(relay, call)
    assert SERVED not in caplog.text


def test_a_caller_without_an_address_is_closed(relay: Relay, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = (
        create_autospec(kind, instance=True) for kind in (asyncio.StreamReader, asyncio.StreamWriter)
    )
    writer.get_extra_info.return_value = None
    asyncio.run(RelayServer(relay)._serve(reader, writer))
    writer.close.assert_called_once_with()
    assert SERVED not in caplog.text


@pytest.mark.root
def test_another_user_at_a_port_that_root_left_is_refused(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the sockets in TIME_WAIT the kernel says that they are root's."""
    if os.geteuid() != 0:
        pytest.skip("acting as another user needs root")
    script = (
        "import socket, sys; c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
        "c.bind(('127.0.0.1', int(sys.argv[1]))); c.connect(('127.77.9.99', int(sys.argv[2]))); c.recv(1)"
    )
    with ExitStack() as servers:
        left_port = 0
        for number in range(20):  # the relay's row shall not come first by luck
            server = servers.enter_context(socket.create_server((f"127.77.9.{100 + number}", 0)))
            (_, left_port), _ = _left_behind(server, left_port)

        async def call(port: int) -> None:
            command = ["/usr/bin/python3", "-c", script, str(left_port), str(port)]
            process = await asyncio.create_subprocess_exec(*command, user=NOBODY, group=NOBODY)
            assert await process.wait() == 0

        run(relay, call)
    assert "refused a caller" in caplog.text
    assert SERVED not in caplog.text
