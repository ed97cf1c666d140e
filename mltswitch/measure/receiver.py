"""The receiving host of a probe: `python -m mltswitch.measure.receiver` notes every datagram of one run.

Reads its task, says that it is ready, reads when the senders stop (ns since the epoch), receives, reports.
"""

import socket
import struct
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from mltswitch.measure.packet import PROBE_PORT, RECORD, ProbePacket

RECEIVE_BUFFER_BYTES = 16 * 2**20
SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35
SO_RXQ_OVFL = 40
"""Linux socket options that Python does not name; SCM_TIMESTAMPNS has the same number."""
TIMESPEC = struct.Struct("@ll")
SILENCE_SECONDS = 0.5
"""A run is over when nothing has come for this long after its senders' end."""
MAXIMUM_DATAGRAM_BYTES = 9216


class ReceiveTask(BaseModel):
    """What to note, until when, and where to put it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run: int
    output: Path
    """Becomes a NumPy file of RECORDs."""
    maximum_packets: int = Field(gt=0)


def receive(task: ReceiveTask, channel: socket.socket, end_ns: int) -> tuple[npt.NDArray[np.void], int]:
    """(datagrams of the run in order of arrival, datagrams that this host itself dropped); ends by itself."""
    records = np.zeros(task.maximum_packets, dtype=RECORD)
    count = dropped = 0
    channel.settimeout(SILENCE_SECONDS)
    while count < task.maximum_packets:
        try:
            datagram, ancillary, _, _ = channel.recvmsg(MAXIMUM_DATAGRAM_BYTES, 256)
        except TimeoutError:
            if time.time_ns() > end_ns:
                break
            continue
        packet = ProbePacket.unpack(datagram)
        if packet is None or packet.run != task.run:
            continue
        tos, arrived_ns, overflow = _ancillary(ancillary)
        dropped = max(dropped, overflow)
        records[count] = (
            packet.sender,
            packet.class_index,
            packet.is_important,
            packet.sequence,
            tos,
            arrived_ns - packet.sent_ns,
        )
        count += 1
    return records[:count], dropped


def open_channel() -> socket.socket:
    """A bound socket that reports each datagram's DSCP/ECN byte and the kernel's time of arrival."""
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        channel.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    except PermissionError:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    channel.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    channel.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    channel.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    channel.bind(("0.0.0.0", PROBE_PORT))  # noqa: S104  (a probing host answers nothing; every alias must arrive)
    return channel


def _ancillary(messages: list[tuple[int, int, bytes]]) -> tuple[int, int, int]:
    """(DSCP/ECN byte, kernel's time of arrival, drops at this socket so far)."""
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


def main() -> None:
    """Announce that the socket is open, receive, write the records."""
    task = ReceiveTask.model_validate_json(sys.stdin.readline())
    with open_channel() as channel:
        print("ready", flush=True)  # noqa: T201  (the probe waits for this line)
        records, dropped = receive(task, channel, int(sys.stdin.readline()))
    np.save(task.output, records)
    print(dropped)  # noqa: T201  (the rest of the answer)


if __name__ == "__main__":
    main()
