"""sendmmsg(2) and recvmmsg(2) through ctypes, with their structures as numpy sees them.

ctypes lets go of the interpreter's lock during a call. The structures are those of 64-bit Linux, where size_t
and pointers have eight bytes (linux/socket.h, bits/socket.h); libraries that declare some of them as int with
padding behind agree on a little-endian machine, because the upper halves are zero.
"""

import ctypes
import os
import sys
import time
from typing import Final

import numpy as np

from mltswitch.errors import MachineError

# linux/udp.h
SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
UDP_GRO: Final = 104

# linux/in.h, linux/in6.h
IP_TOS: Final = 1
IP_MTU_DISCOVER: Final = 10
IP_RECVTOS: Final = 13
IP_MTU: Final = 14
IP_PMTUDISC_PROBE: Final = 3
"""Sets the don't-fragment bit and does not believe path MTUs that ICMP messages claim."""
IPV6_MTU_DISCOVER: Final = 23
IPV6_MTU: Final = 24
IPV6_RECVTCLASS: Final = 66
IPV6_TCLASS: Final = 67
IPV6_RTHDR: Final = 57

# asm-generic/socket.h
SOL_SOCKET: Final = 1
SO_ATTACH_FILTER: Final = 26
SO_SNDBUFFORCE: Final = 32
SO_TIMESTAMPNS: Final = 35
"""And the type of its control messages: struct timespec, of 64-bit Linux."""
SO_RCVBUFFORCE: Final = 33
SO_MEMINFO: Final = 55
SO_TXTIME: Final = 61
SCM_TXTIME: Final = SO_TXTIME

# linux/socket.h
MSG_TRUNC: Final = 0x20
MSG_DONTWAIT: Final = 0x40
MAXIMUM_MESSAGES: Final = 1024
"""UIO_MAXIOV: of one call."""

VECTOR: Final = np.dtype([("base", np.int64), ("length", np.int64)])
"""struct iovec; addresses of a process lie in the lower half, so that signed numbers hold them."""
MESSAGE: Final = np.dtype(
    {
        "names": [
            "name",
            "name_length",
            "vectors",
            "vector_count",
            "control",
            "control_length",
            "flags",
            "length",
        ],
        "formats": [np.int64, np.int32, np.int64, np.int64, np.int64, np.int64, np.int32, np.int32],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
"""struct mmsghdr: struct msghdr, and how many bytes were transferred."""
CONTROL: Final = np.dtype(
    {
        "names": ["length", "level", "type", "value"],
        "formats": [np.int64, np.int32, np.int32, np.int32],
        "offsets": [0, 8, 12, 16],
        "itemsize": 24,
    }
)
"""struct cmsghdr and a value of one to eight bytes: with such, CMSG_SPACE is 24."""
CONTROL_HEADER_BYTES: Final = 16
"""CMSG_LEN(0)."""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
MISSING_CALLS: Final = tuple(name for name in ("sendmmsg", "recvmmsg") if not hasattr(_LIBC, name))
"""What this C library does not have."""
if not MISSING_CALLS:
    _LIBC.sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)
    _LIBC.recvmmsg.argtypes = (*_LIBC.sendmmsg.argtypes, ctypes.c_void_p)


def require_supported_machine() -> None:
    """Raise MachineError where the structures above are not the machine's."""
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise MachineError("datagrams are sent and received in batches", expected="64-bit Linux")
    if sys.byteorder != "little":
        raise MachineError(
            "elements travel little endian, as hosts keep them", expected="a little-endian machine"
        )
    if MISSING_CALLS:
        raise MachineError(f"the C library has no {' and no '.join(MISSING_CALLS)}")


def send_messages(descriptor: int, address: int, count: int) -> int:
    """sendmmsg(2), without waiting: messages sent, or the negative errno where the first could not be
    sent."""
    sent: int = _LIBC.sendmmsg(descriptor, address, count, MSG_DONTWAIT)
    return sent if sent >= 0 else -ctypes.get_errno()


def receive_messages(descriptor: int, address: int, count: int) -> int:
    """recvmmsg(2), without waiting: messages received, or the negative errno."""
    received: int = _LIBC.recvmmsg(descriptor, address, count, MSG_DONTWAIT, None)
    return received if received >= 0 else -ctypes.get_errno()


def create_timer() -> int:
    """timerfd_create(2) on the monotonic clock, not blocking; raises OSError."""
    descriptor: int = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor


def set_timer(descriptor: int, after_ns: int) -> None:
    """timerfd_settime(2): let it become readable once, after so long; raises OSError."""
    times = (ctypes.c_int64 * 4)(0, 0, *divmod(after_ns, 10**9))
    if _LIBC.timerfd_settime(descriptor, 0, times, None) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def address_of(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> int:
    """Where an array's first element lies, whether it is writable or not."""
    return array.ctypes.data
