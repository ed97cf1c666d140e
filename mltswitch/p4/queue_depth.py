"""BMv2's own queues, which P4Runtime cannot configure: how many there are, how deep and how fast.

BMv2 is told in Apache Thrift, by `set_all_egress_queue_depths` and its kin of the service `simple_switch`
(targets/simple_switch/thrift/simple_switch.thrift). No program need run for that. No call reads a depth or a
rate; how many queues a port has, the switch tells by refusing a depth for one that it lacks.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from fcntl import ioctl
from pathlib import Path
from typing import BinaryIO, Final

from mltswitch.errors import DeviceError
from mltswitch.netns import inside

SECONDS: Final = 20.0
UNIX: Final = "unix:"
QUEUES: Final = 8
"""The most queues of a port that mltswitch's program uses."""
_CALL, _REPLY, _REFUSAL = 0x80010001, 0x80010002, 0x80010003
_INTEGER, _LONG = ">BHi", ">BHq"
_TYPES: Final = {_INTEGER: 8, _LONG: 10}
_SIZES: Final = {2: ">B", 6: ">h", 8: ">i", 10: ">q"}
_SIOCGIFMTU: Final = 0x8921
_DROP_PORT: Final = 511
"""Whose queues no packet joins: a depth set there changes nothing."""
_DEFAULT_DEPTH: Final = 64
_HINT: Final = "it needs a BMv2 with thrift (`./configure --with-thrift`), and mltswitch_thrift_port"


def set_queue_depth(address: str, port: int, packets: int) -> None:
    """Set the depth of all queues of all ports, later ones too, until the switch ends, and remove their
    rates.

    Args:
        address: the host of the thrift port, or `unix:/path` of the switch's P4Runtime server. The port is
            then looked for in the network namespace of whoever listens there.
        port: `--thrift-port`.
        packets: how many packets each queue holds.

    Raises:
        DeviceError: nothing answers there, or not as BMv2 does.
    """
    with _connected(address, port) as connection:
        _check(connection, b"set_all_egress_queue_depths", (_INTEGER, packets))
        # 0: none. A rate that somebody set by hand could not be read, and would starve its queue unseen. A
        # switch that hangs up in between is gone, and the next line to it says so.
        with suppress(ConnectionError):
            _check(connection, b"set_all_egress_queue_rates", (_LONG, 0), may_hang_up=True)


def priority_queues(address: str, port: int) -> int:
    """How many queues each port has by `--priority-queues`, 1 where it is not given, counted to `QUEUES`.

    Raises:
        DeviceError: nothing answers there, or not as BMv2 does.
    """
    for queue in reversed(range(QUEUES)):
        with _connected(address, port) as connection:
            arguments = ((_INTEGER, _DROP_PORT), (_INTEGER, queue), (_INTEGER, _DEFAULT_DEPTH))
            if _check(connection, b"set_egress_priority_queue_depth", *arguments, may_refuse=True):
                return queue + 1
    raise DeviceError(f"refuses every queue at thrift port {port}", hint=_HINT)


def port_mtus(address: str, port: int) -> dict[int, int]:
    """BMv2's port → MTU of its interface, beyond which the kernel drops what the switch has counted as sent.

    Known only of a switch on this machine, by the socket of its P4Runtime server. Raises
    DeviceError.
    """
    if not address.startswith(UNIX):
        return {}
    with _connected(address, port) as connection:
        method = b"bm_dev_mgr_show_ports"
        connection.sendall(_begin(_CALL, b"standard:" + method) + b"\0")
        with connection.makefile("rb") as stream:
            try:
                names = dict(_ports(stream, _begin(_REPLY, method)))
                with _beside(address), socket.socket() as any_socket:
                    asked = {
                        n: ioctl(any_socket, _SIOCGIFMTU, name.ljust(32, b"\0")) for n, name in names.items()
                    }
            except (struct.error, ValueError) as error:
                raise DeviceError(f"its list of ports cannot be read: {error}", hint=_HINT) from None
    return {number: struct.unpack_from("i", answer, 16)[0] for number, answer in asked.items()}


def _ports(stream: BinaryIO, expected: bytes) -> Iterator[tuple[int, bytes]]:
    """(port_num, iface_name) of each DevMgrPortInfo (thrift_src/standard.thrift)."""

    def whole(form: str) -> int:
        value: int = struct.unpack(form, stream.read(struct.calcsize(form)))[0]
        return value

    def value(kind: int) -> int | bytes:
        if kind in _SIZES:
            return whole(_SIZES[kind])
        if kind == 11:
            return stream.read(whole(">I"))
        if kind == 13:  # a map
            of, to, size = whole(">B"), whole(">B"), whole(">I")
            return sum(bool((value(of), value(to))) for _ in range(size))
        raise ValueError(f"type {kind}")

    if stream.read(len(expected)) != expected or stream.read(4) != b"\x0f\0\0\x0c":
        raise ValueError("no list")
    for _ in range(whole(">I")):
        fields: dict[int, int | bytes] = {}
        while kind := whole(">B"):
            field = whole(">H")
            fields[field] = value(kind)
        number, name = fields.get(1), fields.get(2)
        if isinstance(number, int) and isinstance(name, bytes):
            yield number, name


def _check(
    connection: socket.socket,
    method: bytes,
    *arguments: tuple[str, int],
    may_refuse: bool = False,
    may_hang_up: bool = False,
) -> bool:
    """Whether the switch did what it was told; raises DeviceError for any answer that may not be."""
    # The binary protocol: the name behind that of its service, no sequence number, fields, the end.
    call = _begin(_CALL, b"simple_switch:" + method)
    for number, (form, value) in enumerate(arguments, start=1):
        call += struct.pack(form, _TYPES[form], number, value)
    connection.sendall(call + b"\0")
    done = _begin(_REPLY, method) + struct.pack(">BHiB", _TYPES[_INTEGER], 0, 0, 0)
    refused = _begin(_REFUSAL, method)
    answer = b""
    while len(answer) < len(done) and not answer.startswith(refused) and (more := connection.recv(4096)):
        answer += more
    if answer == done or (may_hang_up and not answer):
        return True
    if may_refuse and answer.startswith(refused):  # std::out_of_range, as text
        return False
    said = f"{answer[:60]!r}" if answer else "nothing"
    raise DeviceError(f"answers {said} at thrift port {connection.getpeername()[1]}", hint=_HINT)


def _begin(kind: int, name: bytes) -> bytes:
    return struct.pack(f">II{len(name)}sI", kind, len(name), name, 0)


@contextmanager
def _connected(address: str, port: int) -> Iterator[socket.socket]:
    is_local = address.startswith(UNIX)
    try:
        with _beside(address) if is_local else nullcontext():
            connection = socket.create_connection(("127.0.0.1" if is_local else address, port), SECONDS)
        with connection:
            yield connection
    except OSError as error:
        reason = error.strerror or str(error)
        raise DeviceError(f"does not answer at thrift port {port}: {reason}", hint=_HINT) from None


@contextmanager
def _beside(address: str) -> Iterator[None]:
    """In the network namespace of whoever listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(SECONDS)
        server.connect(address.removeprefix(UNIX))
        credentials = server.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process, _, _ = struct.unpack("3i", credentials)
    with inside(Path(f"/proc/{process}/ns/net")):
        yield
