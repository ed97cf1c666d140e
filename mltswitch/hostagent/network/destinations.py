"""A kernel filter that lets only datagrams to some local addresses into a socket: classic BPF, no privilege.

Instructions are those of linux/filter.h; a UDP socket's filter sees the datagram from its UDP header on, and
reaches the IP header by offsets from SKF_NET_OFF.
"""

import ctypes
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.network import libc

MAXIMUM_ADDRESSES: Final = 64
"""Of one socket: each message is compared with them one after the other."""

# linux/filter.h, linux/bpf_common.h
_LOAD_WORD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_NETWORK_HEADER: Final = 0x100000000 - 0x100000
"""SKF_NET_OFF: offsets from here on count from the IP header."""
_DESTINATION_OFFSET: Final = {4: 16, 6: 24}
_WHOLE: Final = 0xFFFFFFFF


def attach_destination_filter(opened: socket.socket, addresses: Sequence[str]) -> None:
    """Let the kernel drop what was not sent to one of these addresses, before it takes up buffer."""
    program = destination_filter([ip_address(address) for address in addresses])
    memory = bytearray(program)
    anchor = (ctypes.c_char * len(memory)).from_buffer(memory)
    pointer = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(anchor))
    opened.setsockopt(socket.SOL_SOCKET, libc.SO_ATTACH_FILTER, pointer)


def destination_filter(addresses: Sequence[IPv4Address | IPv6Address]) -> bytes:
    """A classic BPF program (struct sock_filter, eight bytes an instruction) for addresses of one version.

    For each address its words are compared one after the other; what differs goes on with the next address.
    """
    if not 1 <= len(addresses) <= MAXIMUM_ADDRESSES:
        raise UserInputError(f"{len(addresses)} addresses of one socket", expected=f"1-{MAXIMUM_ADDRESSES}")
    offset = _NETWORK_HEADER + _DESTINATION_OFFSET[addresses[0].version]
    code = []
    for address in addresses:
        words = struct.unpack(f"!{len(address.packed) // 4}I", address.packed)
        # Behind the words of an address stands the instruction that accepts it.
        for number, word in enumerate(words):
            remaining = 2 * (len(words) - number - 1) + 1
            code.append((_LOAD_WORD, 0, 0, offset + 4 * number))
            code.append((_JUMP_IF_EQUAL, 0, remaining, word))
        code.append((_RETURN, 0, 0, _WHOLE))
    code.append((_RETURN, 0, 0, 0))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
