"""The program on a host of a measurement: it sends or receives tagged datagrams, one task after the other.

This file is the whole program. It goes to the host over the standard input of `python3`, so it needs Python
3.7 or later and Linux there, no package and no file. Requests and answers are JSON, one a line; arrays are
base64 of little-endian numbers:

    {"role": "send", ...}     -> "ready", waits for the line "go", sends -> {"sent_ns": base64, ...}
    {"role": "receive", ...}  -> "ready", waits for the line "go", receives -> {"records": base64, ...}

It ends with its standard input, and every task ends by itself.
"""

from __future__ import annotations

import base64
import errno
import json
import socket
import struct
import sys
import time
from array import array
from typing import Any

HEADER = struct.Struct("!4sIBxI")
"""Form of a datagram's payload: magic, run, sender, (padding), sequence."""
MAGIC = b"MLTa"
RECORD = struct.Struct("<BBIq")
"""Form of a received datagram's record: sender, DSCP/ECN byte as it arrived, sequence, kernel's time of
arrival (ns since the epoch)."""
MAXIMUM_PACKETS = 10_000_000
"""The most packets of one task; a task with more is refused."""
MAXIMUM_SECONDS = 180.0
SPIN_SECONDS = 100e-6
"""Seconds below which a sleep is less exact than busy waiting."""
SILENCE_SECONDS = 0.3
"""A run is over when nothing has arrived for so many seconds after its planned end."""
MAXIMUM_DATAGRAM_BYTES = 9216
RECEIVE_BUFFER_BYTES = 16 * 2**20
SO_RCVBUFFORCE, SO_TIMESTAMPNS, SO_RXQ_OVFL = 33, 35, 40
"""Linux socket options that Python does not name; SCM_TIMESTAMPNS has the same number."""
TIMESPEC = struct.Struct("@ll")


def send(task: dict[str, Any]) -> dict[str, Any]:
    """Send all packets on schedule; returns when each was sent, how many the kernel refused, and the delay.

    `task` has the arrays "due_seconds" (f8), "tos" and "path" (u1), with one entry per packet in order of
    time; a path is an index into "destinations".
    """
    due_seconds = from_little_endian(array("d", base64.b64decode(task["due_seconds"])))
    planned = due_seconds[-1] if due_seconds else 0.0
    if len(due_seconds) > MAXIMUM_PACKETS or planned > MAXIMUM_SECONDS:
        raise ValueError("the task is larger than any measurement")
    places = [(address, task["port"]) for address in task["destinations"]]
    padding = bytes(task["payload_bytes"] - HEADER.size)
    tags = [[(socket.IPPROTO_IP, socket.IP_TOS, bytes([tos]))] for tos in range(256)]
    packets = zip(due_seconds, base64.b64decode(task["tos"]), base64.b64decode(task["path"]))  # noqa: B905  (Python 3.10)
    sent_ns = array("q", bytes(8 * len(due_seconds)))
    refused, late = 0, 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        say("ready")
        await_go()
        start = time.monotonic()
        for sequence, (due, tos, path) in enumerate(packets):
            ahead = start + due - time.monotonic()
            if ahead > SPIN_SECONDS:
                time.sleep(ahead)
            late = max(late, -ahead)
            sent_ns[sequence] = time.time_ns()
            header = HEADER.pack(MAGIC, task["run"], task["sender"], sequence)
            try:
                channel.sendmsg([header, padding], tags[tos], 0, places[path])
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                    raise
                refused += 1
        took = time.monotonic() - start
    return {
        "sent_ns": base64.b64encode(from_little_endian(sent_ns).tobytes()).decode("ascii"),
        "refused": refused,
        "late_seconds": late,
        "overrun_seconds": max(0.0, took - planned),
    }


def from_little_endian(numbers: array[Any]) -> array[Any]:
    """The numbers converted from little-endian to this machine's byte order, or back."""
    if sys.byteorder != "little":
        numbers.byteswap()
    return numbers


def receive(task: dict[str, Any]) -> dict[str, Any]:
    """Note every datagram of the run until the senders have stopped; ends by itself."""
    records, count, dropped = bytearray(), 0, 0
    with open_channel(task["port"]) as channel:
        channel.settimeout(SILENCE_SECONDS)
        say("ready")
        await_go()
        end = time.monotonic() + min(task["seconds"], MAXIMUM_SECONDS)
        last = end + MAXIMUM_SECONDS
        while count < MAXIMUM_PACKETS and time.monotonic() < last:
            try:
                datagram, ancillary, _, _ = channel.recvmsg(MAXIMUM_DATAGRAM_BYTES, 256)
            except socket.timeout:  # noqa: UP041  (TimeoutError only since Python 3.10)
                if time.monotonic() > end:
                    break
                continue
            if len(datagram) < HEADER.size:
                continue
            magic, run, sender, sequence = HEADER.unpack_from(datagram)
            if magic != MAGIC or run != task["run"]:
                continue
            tos, arrived_ns, overflow = read_ancillary(ancillary)
            dropped = max(dropped, overflow)
            records += RECORD.pack(sender, tos, sequence, arrived_ns)
            count += 1
    return {"records": base64.b64encode(bytes(records)).decode("ascii"), "dropped": dropped}


def open_channel(port: int) -> socket.socket:
    """A bound UDP socket that tells each datagram's DSCP/ECN byte and the kernel's time of arrival."""
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        channel.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    except PermissionError:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    channel.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS, which Python names only since 3.10
    channel.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    channel.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    channel.bind(("0.0.0.0", port))  # noqa: S104  (it answers nothing, and every alias must arrive)
    return channel


def read_ancillary(messages: list[tuple[int, int, bytes]]) -> tuple[int, int, int]:
    """(DSCP/ECN byte, kernel's time of arrival, drops at this socket so far) in ancillary data."""
    tos, arrived_ns, overflow = 0, time.time_ns(), 0
    for level, kind, data in messages:
        if level == socket.IPPROTO_IP and kind == socket.IP_TOS:
            tos = data[0]
        elif level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = TIMESPEC.unpack(data)
            arrived_ns = seconds * 10**9 + nanoseconds
        elif level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL:
            overflow = int.from_bytes(data, sys.byteorder)
    return tos, arrived_ns, overflow


def say(line: str) -> None:
    """Print one line for the process that started this program."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def await_go() -> None:
    """Wait for the line that starts a task; end the program if standard input has closed."""
    if sys.stdin.readline() != "go\n":
        raise SystemExit(0)


def main() -> None:
    """Serve tasks until standard input ends."""
    for line in iter(sys.stdin.readline, ""):
        task = json.loads(line)
        say(json.dumps({"send": send, "receive": receive}[task["role"]](task)))


if __name__ == "__main__":
    main()
