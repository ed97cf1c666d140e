"""TCP's ends of an incast: connections that stay; benchmarks.agent_incast starts and commands both.

    python -m benchmarks.agent_incast_tcp receive SENDERS
    python -m benchmarks.agent_incast_tcp send NUMBER ADDRESS

Each sender has one connection for each congestion control. Commands come as lines of JSON: the receiver
gets {"transport", "size_bytes", "senders"} and answers "posted" and then {"completed_ns": [...]}, when the
last byte of each sender came; a sender gets {"transport", "size_bytes", "at_ns"} and answers {} when its
socket has taken everything. Times are of CLOCK_MONOTONIC, which all namespaces of a machine share.
"""

import json
import selectors
import socket
import sys
import time
from typing import Final

PORT: Final = 20_611
CONGESTION_CONTROLS: Final = ("cubic", "bbr")
CHUNK_BYTES: Final = 1 << 18
SPIN_SECONDS: Final = 200e-6


def wait_until(at_ns: int) -> None:
    """Sleep, and spin at the end."""
    left = (at_ns - time.monotonic_ns()) / 1e9
    if left > SPIN_SECONDS:
        time.sleep(left - SPIN_SECONDS)
    while time.monotonic_ns() < at_ns:
        pass


def receive(senders: int) -> None:
    """Accept everybody, then obey."""
    listening = socket.create_server(("0.0.0.0", PORT), backlog=4 * senders)  # noqa: S104  (a namespace of ours)
    print("ready", flush=True)
    connections: dict[str, dict[int, socket.socket]] = {name: {} for name in CONGESTION_CONTROLS}
    for _ in range(senders * len(CONGESTION_CONTROLS)):
        connection, _ = listening.accept()
        name, number = connection.recv(64, socket.MSG_WAITALL).decode().split()
        connections[name][int(number)] = connection
        connection.setblocking(False)
    print("connected", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        chosen = {number: connections[command["transport"]][number] for number in command["senders"]}
        print("posted", flush=True)
        print(json.dumps({"completed_ns": collect(chosen, command["size_bytes"])}), flush=True)


def collect(connections: dict[int, socket.socket], size_bytes: int) -> list[int]:
    """When the last byte of each has come."""
    left = dict.fromkeys(connections, size_bytes)
    ended = dict.fromkeys(connections, 0)
    buffer = bytearray(CHUNK_BYTES)
    with selectors.DefaultSelector() as selector:
        for number, connection in connections.items():
            selector.register(connection, selectors.EVENT_READ, number)
        while any(left.values()):
            for key, _ in selector.select():
                left[key.data] -= connections[key.data].recv_into(buffer)
                if left[key.data] == 0:
                    ended[key.data] = time.monotonic_ns()
    return [ended[number] for number in connections]


def send(number: int, address: str) -> None:
    """Connect once for each congestion control, then obey."""
    connections = {}
    for name in CONGESTION_CONTROLS:
        connection = socket.socket()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connect((address, PORT))
        connection.sendall(f"{name} {number}".encode().ljust(64))
        connections[name] = connection
    print("ready", flush=True)
    data = memoryview(bytes(CHUNK_BYTES))
    for line in sys.stdin:
        command = json.loads(line)
        connection, left = connections[command["transport"]], int(command["size_bytes"])
        wait_until(command["at_ns"])
        while left:
            left -= connection.send(data[: min(left, CHUNK_BYTES)])
        print("{}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(int(sys.argv[2]))
    else:
        send(int(sys.argv[2]), sys.argv[3])
