"""Questions to the kernel's routing tables: which way to an address, and which queueing disciplines on it.

rtnetlink(7). Reading needs no privilege.
"""

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from mltswitch.errors import MachineError

# linux/netlink.h, linux/rtnetlink.h
_NLMSG_ERROR: Final = 2
_NLMSG_DONE: Final = 3
_NLM_F_REQUEST: Final = 0x1
_NLM_F_DUMP: Final = 0x300
_RTM_NEWROUTE: Final = 24
_RTM_GETROUTE: Final = 26
_RTM_NEWADDR: Final = 20
_RTM_GETADDR: Final = 22
_RTM_NEWQDISC: Final = 36
_RTM_GETQDISC: Final = 38
_RTA_DST: Final = 1
_RTA_OIF: Final = 4
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_TCA_KIND: Final = 1
_TYPE_MASK: Final = 0x3FFF
"""The upper two bits of an attribute's type are flags."""

_MESSAGE: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, port."""
_ROUTE: Final = struct.Struct("=BBBBBBBBI")
"""struct rtmsg: family, lengths of destination and source, TOS, table, protocol, scope, type, flags."""
_ADDRESS: Final = struct.Struct("=BBBBI")
"""struct ifaddrmsg: family, prefix length, flags, scope, interface."""
_DISCIPLINE: Final = struct.Struct("=BxxxiIII")
"""struct tcmsg: family, interface, handle, parent, information."""
_ATTRIBUTE: Final = struct.Struct("=HH")
"""struct rtattr: length, type."""
_ANSWER_BYTES: Final = 1 << 18
_SECONDS: Final = 5.0
TC_H_ROOT: Final = 0xFFFFFFFF
_LOOPBACK: Final = "lo"


@dataclass(frozen=True, slots=True)
class QueueingDiscipline:
    """One of an interface."""

    kind: str
    handle: int
    parent: int
    """`TC_H_ROOT`, or the handle and class that it hangs off."""


def egress_interface(address: IPv4Address | IPv6Address) -> int:
    """Index of the interface that leads to an address; raises MachineError where no route does."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    body = _ROUTE.pack(family, 8 * len(address.packed), 0, 0, 0, 0, 0, 0, 0) + _attribute(
        _RTA_DST, address.packed
    )
    try:
        answers = list(_ask(_RTM_GETROUTE, 0, body))
    except OSError as error:
        raise MachineError(f"no route: {os.strerror(error.errno or 0)}", where=str(address)) from None
    for kind, content in answers:
        interface = _attributes(content[_ROUTE.size :]).get(_RTA_OIF, b"") if kind == _RTM_NEWROUTE else b""
        if len(interface) == 4:
            return int.from_bytes(interface, "little")
    raise MachineError("the route names no interface", where=str(address))


def queueing_disciplines(interface: int) -> tuple[QueueingDiscipline, ...]:
    """Of the interface with this index, in the kernel's order; raises OSError."""
    body = _DISCIPLINE.pack(socket.AF_UNSPEC, interface, 0, 0, 0)
    found = []
    for kind, content in _ask(_RTM_GETQDISC, _NLM_F_DUMP, body):
        if kind != _RTM_NEWQDISC:
            continue
        _, index, handle, parent, _ = _DISCIPLINE.unpack_from(content)
        if index == interface:
            name = _attributes(content[_DISCIPLINE.size :]).get(_TCA_KIND, b"")
            found.append(QueueingDiscipline(name.rstrip(b"\0").decode("ascii", "replace"), handle, parent))
    return tuple(found)


def interface_with(address: str) -> str | None:
    """Name of the interface that has this address; the loopback has all of 127.0.0.0/8. None: none has it.

    Raises OSError.
    """
    wanted = ip_address(address.partition("%")[0])
    if wanted.version == 4 and wanted.is_loopback:
        return _LOOPBACK
    family = socket.AF_INET if wanted.version == 4 else socket.AF_INET6
    for kind, content in _ask(_RTM_GETADDR, _NLM_F_DUMP, _ADDRESS.pack(family, 0, 0, 0, 0)):
        if kind != _RTM_NEWADDR:
            continue
        found = _attributes(content[_ADDRESS.size :])
        # Of a point-to-point link, IFA_ADDRESS is the other end's.
        if found.get(_IFA_LOCAL, found.get(_IFA_ADDRESS)) == wanted.packed:
            return socket.if_indextoname(_ADDRESS.unpack_from(content)[4])
    return None


def _ask(kind: int, flags: int, body: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, content) of each message of the answer."""
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    ) as asked:
        asked.settimeout(_SECONDS)
        asked.send(_MESSAGE.pack(_MESSAGE.size + len(body), kind, _NLM_F_REQUEST | flags, 1, 0) + body)
        while True:
            for answer, content in _messages(asked.recv(_ANSWER_BYTES)):
                if answer == _NLMSG_DONE:
                    return
                if answer == _NLMSG_ERROR:
                    error = -int.from_bytes(content[:4], "little", signed=True)
                    if error:
                        raise OSError(error, os.strerror(error))
                    return
                yield answer, content
            if not flags:
                return


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _MESSAGE.size:
        length, kind, *_ = _MESSAGE.unpack_from(data)
        yield kind, data[_MESSAGE.size : length]
        data = data[max(_MESSAGE.size, -(-length // 4) * 4) :]


def _attribute(kind: int, content: bytes) -> bytes:
    padding = bytes(-len(content) % 4)
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(content), kind) + content + padding


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        found[kind & _TYPE_MASK] = data[_ATTRIBUTE.size : length]
        data = data[max(_ATTRIBUTE.size, -(-length // 4) * 4) :]
    return found
