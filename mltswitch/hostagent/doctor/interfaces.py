"""What the kernel says of a network interface: offloads, and its settings below /proc/sys.

All of it is asked in the network namespace of the calling thread; nothing needs a privilege.
"""

import ctypes
import fcntl
import socket
import struct
from pathlib import Path
from typing import Final

UDP_SEGMENTATION: Final = "tx-udp-segmentation"
"""Of the features that ethtool(8) lists."""

# linux/sockios.h, linux/ethtool.h
_SIOCETHTOOL: Final = 0x8946
_ETHTOOL_GSTRINGS: Final = 0x1B
_ETHTOOL_GSSET_INFO: Final = 0x37
_ETHTOOL_GFEATURES: Final = 0x3A
_ETH_SS_FEATURES: Final = 4
_NAME_BYTES: Final = 32
_MAXIMUM_FEATURES: Final = 1024
_REQUEST: Final = struct.Struct("=16sQ16x")
"""struct ifreq, with a pointer in its union."""
_SETTINGS: Final = Path("/proc/sys/net")


def has_feature(interface: str, name: str) -> bool | None:
    """Whether the device does this now; None where the kernel or the device does not say."""
    try:
        names = _feature_names(interface)
        place = names.index(name)
        blocks = -(-len(names) // 32)
        answer = _ask(
            interface, struct.pack("=II", _ETHTOOL_GFEATURES, blocks) + bytes(16 * blocks), 8 + 16 * blocks
        )
    except (OSError, ValueError):
        return None
    # struct ethtool_get_features_block: available, requested, active, never_changed
    active = int.from_bytes(answer[8 + 16 * (place // 32) + 8 :][:4], "little")
    return bool(active >> place % 32 & 1)


def setting(*names: str) -> int | None:
    """A number below /proc/sys/net, as `setting("ipv4", "conf", "eth0", "rp_filter")`; None: not there."""
    try:
        return int(_SETTINGS.joinpath(*names).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _feature_names(interface: str) -> list[str]:
    head = struct.pack("=IIQI", _ETHTOOL_GSSET_INFO, 0, 1 << _ETH_SS_FEATURES, 0)
    count = int.from_bytes(_ask(interface, head, len(head))[16:20], "little")
    if not 0 < count <= _MAXIMUM_FEATURES:
        raise ValueError(f"{count} features")
    head = struct.pack("=III", _ETHTOOL_GSTRINGS, _ETH_SS_FEATURES, count)
    answer = _ask(interface, head, len(head) + count * _NAME_BYTES)
    texts = (answer[12 + _NAME_BYTES * place :][:_NAME_BYTES] for place in range(count))
    return [text.split(b"\0", 1)[0].decode("ascii", "replace") for text in texts]


def _ask(interface: str, head: bytes, size_bytes: int) -> bytes:
    memory = ctypes.create_string_buffer(head, size_bytes)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = _REQUEST.pack(interface.encode(), ctypes.addressof(memory))
        fcntl.ioctl(asked, _SIOCETHTOOL, request)
    return memory.raw
