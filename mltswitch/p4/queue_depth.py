"""How many packets BMv2's own queues hold: the one thing that P4Runtime has no words for.

BMv2 takes it in Apache Thrift, by `i32 set_all_egress_queue_depths(i32)` of its service `simple_switch`. No
program need run for that, and there is no call that reads it.
"""

import socket
import struct
from pathlib import Path
from typing import Final

from mltswitch.errors import DeviceError
from mltswitch.netns import inside

SECONDS: Final = 20.0
UNIX: Final = "unix:"
_METHOD: Final = b"set_all_egress_queue_depths"
_CALL, _REPLY = 0x80010001, 0x80010002
_INTEGER: Final = 8
_HINT: Final = "it needs a BMv2 with thrift (`./configure --with-thrift`), and mltswitch_thrift_port"


def set_queue_depth(address: str, port: int, packets: int) -> None:
    """Set it for all queues of all ports, those to come as well, until the switch ends.

    Args:
        address: the host of the thrift port, or `unix:/path` of the switch's P4Runtime server. The port is
            then looked for in the network namespace of whoever listens there.
        port: `--thrift-port`.
        packets: what each queue holds.

    Raises:
        DeviceError: nothing answers there, or not as BMv2 does.
    """
    # The binary protocol: the name behind that of its service, no sequence number, one field, the end.
    arguments = struct.pack(">BHiB", _INTEGER, 1, packets, 0)
    call = _begin(_CALL, b"simple_switch:" + _METHOD) + arguments
    expected = _begin(_REPLY, _METHOD) + struct.pack(">BHiB", _INTEGER, 0, 0, 0)
    answer = b""
    try:
        with _connected(address, port) as connection:
            connection.sendall(call)
            while len(answer) < len(expected) and (more := connection.recv(4096)):
                answer += more
    except OSError as error:
        reason = error.strerror or str(error)
        raise DeviceError(f"does not answer at thrift port {port}: {reason}", hint=_HINT) from None
    if answer != expected:
        said = f"{answer[:60]!r}" if answer else "nothing"
        raise DeviceError(f"answers {said} at thrift port {port}", hint=_HINT)


def _begin(kind: int, name: bytes) -> bytes:
    return struct.pack(f">II{len(name)}sI", kind, len(name), name, 0)


def _connected(address: str, port: int) -> socket.socket:
    if not address.startswith(UNIX):
        return socket.create_connection((address, port), SECONDS)
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(SECONDS)
        server.connect(address.removeprefix(UNIX))
        credentials = server.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process, _, _ = struct.unpack("3i", credentials)
    with inside(Path(f"/proc/{process}/ns/net")):
        return socket.create_connection(("127.0.0.1", port), SECONDS)
