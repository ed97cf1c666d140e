"""What the host agent is compared with, called in a benchmark's workers: torch's gloo, and the kernel's TCP.

iperf3 and the C loops of datagrams are programs, and stand in benchmarks.agent_goodput.
"""

import os
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from typing import Any, Final

from benchmarks.agent_ends import cpu_seconds, random_tensor, wait_until
from mltswitch.lab import NamespaceHandle

GLOO_PORT: Final = 29_511
TCP_PORT: Final = 20_611
CONGESTION_CONTROLS: Final = ("cubic", "reno", "bbr")
CHUNK_BYTES: Final = 1 << 18
LOOK_SECONDS: Final = 0.05
"""At the clock, while nothing comes or leaves."""

_connections: Final[dict[tuple[str, int], socket.socket]] = {}
"""(congestion control, number of the sender) → its connection, at either end."""


# gloo: rank 1 sends, rank 0 receives and keeps the store


def has_gloo() -> bool:
    """Whether torch is installed."""
    return find_spec("torch") is not None


def gloo_open(sends: bool, address: str, interface: str) -> None:
    """Both ends."""
    import torch  # noqa: PLC0415  (an extra)
    from torch import distributed  # noqa: PLC0415

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    distributed.init_process_group(
        "gloo", init_method=f"tcp://{address}:{GLOO_PORT}", rank=int(sends), world_size=2
    )


def gloo_stream(sends: bool, size_bytes: int, count: int, in_flight: int) -> dict[str, Any]:
    """So many tensors one after the other; the seconds are until the receiver says that it has all."""
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415

    tensors = [torch.from_numpy(random_tensor(size_bytes, slot)) for slot in range(in_flight)]
    done = torch.zeros(1)
    waiting: list[Any] = []
    cpu, started = cpu_seconds(), time.perf_counter()
    for number in range(count):
        if len(waiting) == in_flight:
            waiting.pop(0).wait()
        tensor = tensors[number % in_flight]
        waiting.append(distributed.isend(tensor, 0) if sends else distributed.irecv(tensor, 1))
    for work in waiting:
        work.wait()
    if sends:
        distributed.recv(done, 0)
    else:
        distributed.send(done, 1)
    seconds, cpu = time.perf_counter() - started, cpu_seconds() - cpu
    return {"bytes": size_bytes * count, "seconds": seconds, "cpu_seconds": cpu}


def gloo_there_and_back(calls: bool, size_bytes: int, count: int) -> dict[str, Any]:
    """A tensor to the peer and one back, again and again."""
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415

    sent, received = torch.randn(size_bytes // 4), torch.empty(size_bytes // 4)
    peer, seconds, cpu = 0 if calls else 1, [], cpu_seconds()
    for _ in range(count):
        started = time.perf_counter()
        if calls:
            distributed.send(sent, peer)
        distributed.recv(received, peer)
        if not calls:
            distributed.send(sent, peer)
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds() - cpu}


# TCP


def tcp_listen(senders: int, address: str = "0.0.0.0") -> None:  # noqa: S104  (a namespace of ours)
    """The receiver: a place to connect to, once for each sender and congestion control."""
    _connections["listening", 0] = socket.create_server((address, TCP_PORT), backlog=4 * senders)


def tcp_accept(senders: int) -> None:
    """The receiver: all connections."""
    for _ in range(senders * len(CONGESTION_CONTROLS)):
        connection, _ = _connections["listening", 0].accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name, number = connection.recv(64, socket.MSG_WAITALL).decode().split()
        _connections[name, int(number)] = connection


def tcp_connect(number: int, address: str, namespace: NamespaceHandle | None = None) -> None:
    """A sender, in this process's namespace or another."""
    for name in CONGESTION_CONTROLS:
        with ExitStack() as stack:
            if namespace is not None:
                stack.enter_context(namespace.entered())
            connection = socket.socket()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect((address, TCP_PORT))
        connection.sendall(f"{name} {number}".encode().ljust(64))
        _connections[name, number] = connection


def tcp_scatter(at_ns: int, congestion_control: str, senders: Sequence[int], size_bytes: int) -> None:
    """At that instant, so many bytes from each sender; until their sockets have taken everything."""
    data = memoryview(bytes(CHUNK_BYTES))
    left = dict.fromkeys(senders, size_bytes)
    wait_until(at_ns)
    with selectors.DefaultSelector() as selector:
        for number in senders:
            _connections[congestion_control, number].setblocking(False)
            selector.register(_connections[congestion_control, number], selectors.EVENT_WRITE, number)
        while left:
            for key, _ in selector.select():
                connection = _connections[congestion_control, key.data]
                left[key.data] -= connection.send(data[: min(left[key.data], CHUNK_BYTES)])
                if not left[key.data]:
                    selector.unregister(connection)
                    del left[key.data]


def tcp_gather(congestion_control: str, senders: Sequence[int], size_bytes: int) -> list[int]:
    """When the last byte of each sender has come."""
    left, ended = dict.fromkeys(senders, size_bytes), dict.fromkeys(senders, 0)
    buffer = bytearray(CHUNK_BYTES)
    with selectors.DefaultSelector() as selector:
        for number in senders:
            selector.register(_connections[congestion_control, number], selectors.EVENT_READ, number)
        while any(left.values()):
            for key, _ in selector.select():
                left[key.data] -= _connections[congestion_control, key.data].recv_into(buffer)
                if left[key.data] == 0:
                    ended[key.data] = time.monotonic_ns()
    return [ended[number] for number in senders]


def tcp_stream_until(sends: bool, until_ns: int, congestion_control: str, number: int) -> int:
    """As fast as it goes until that instant; bytes."""
    connection, chunk, moved = _connections[congestion_control, number], bytearray(CHUNK_BYTES), 0
    connection.settimeout(LOOK_SECONDS)
    while time.monotonic_ns() < until_ns:
        with suppress(TimeoutError):
            moved += connection.send(chunk) if sends else connection.recv_into(chunk)
    return moved


def tcp_there_and_back(calls: bool, size_bytes: int, count: int) -> dict[str, Any]:
    """So many bytes to the peer and back, again and again."""
    connection, data = _connections["cubic", 0], bytes(size_bytes)
    buffer, seconds, cpu = bytearray(size_bytes), [], cpu_seconds()
    for _ in range(count):
        started = time.perf_counter()
        if calls:
            connection.sendall(data)
        connection.recv_into(buffer, size_bytes, socket.MSG_WAITALL)
        if not calls:
            connection.sendall(data)
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds() - cpu}


def tcp_give_until(until_ns: int, congestion_control: str, senders: Sequence[int]) -> None:
    """From each sender as much as goes until that instant."""
    data = memoryview(bytes(CHUNK_BYTES))
    with selectors.DefaultSelector() as selector:
        for number in senders:
            _connections[congestion_control, number].setblocking(False)
            selector.register(_connections[congestion_control, number], selectors.EVENT_WRITE)
        while time.monotonic_ns() < until_ns:
            for key, _ in selector.select(LOOK_SECONDS):
                with suppress(BlockingIOError):
                    key.fileobj.send(data)  # type: ignore[union-attr]  # a socket


def tcp_take_until(until_ns: int, congestion_control: str, senders: Sequence[int]) -> int:
    """Bytes that have come from all senders until that instant."""
    buffer, count = bytearray(CHUNK_BYTES), 0
    with selectors.DefaultSelector() as selector:
        for number in senders:
            selector.register(_connections[congestion_control, number], selectors.EVENT_READ)
        while time.monotonic_ns() < until_ns:
            for key, _ in selector.select(LOOK_SECONDS):
                count += key.fileobj.recv_into(buffer)  # type: ignore[union-attr]  # a socket
    return count
