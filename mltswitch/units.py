"""The one place that converts and prints units."""

from decimal import Decimal, InvalidOperation
from typing import Final

BITS_PER_BYTE: Final = 8
ETHERNET_HEADER_BYTES: Final = 14
"""Header that a queue stores with each packet; the 4-byte check sequence is not stored by a Linux qdisc."""
KIBIBYTE: Final = 1024
MAXIMUM_VALUE: Final = 10**18

_DECIMAL_PREFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_PREFIXES: Final = {"ki": 2**10, "mi": 2**20, "gi": 2**30}


def _parse(text: str, suffixes: tuple[str, ...], prefixes: dict[str, int], example: str) -> int:
    body = text.strip().lower().replace(" ", "")
    for suffix in suffixes:
        if body.endswith(suffix):
            body = body.removesuffix(suffix)
            break
    number = body.rstrip("abcdefghijklmnopqrstuvwxyz")
    prefix = body[len(number) :]
    try:
        value = Decimal(number) * prefixes[prefix]
    except (InvalidOperation, KeyError):
        raise ValueError(f"{text!r} is not understood, write for example {example}") from None
    if not value.is_finite() or abs(value) > MAXIMUM_VALUE:
        raise ValueError(f"{text!r} is not a number that a network could have")
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number of units")
    return int(value)


def parse_bps(value: int | str) -> int:
    """Rate in bits per second from `25000000000` or `"25Gbps"`; raises ValueError."""
    if isinstance(value, int):
        return value
    return _parse(value, ("bit/s", "bps", "bit"), _DECIMAL_PREFIXES, "25Gbps or 100Mbps")


def parse_bytes(value: int | str) -> int:
    """Size in bytes from `200000`, `"200kB"` (decimal) or `"192KiB"` (binary); raises ValueError."""
    if isinstance(value, int):
        return value
    return _parse(value, ("b",), _DECIMAL_PREFIXES | _BINARY_PREFIXES, "200kB or 192KiB")


def format_bps(rate_bps: float) -> str:
    """`25 Gbit/s`."""
    for factor, prefix in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if rate_bps >= factor:
            return f"{rate_bps / factor:g} {prefix}bit/s"
    return f"{rate_bps:g} bit/s"


def format_bytes(size_bytes: int) -> str:
    """`1,514 B`: digits as a device prints them, so that they can be compared by eye."""
    return f"{size_bytes:,} B"


def format_ratio(ratio: float) -> str:
    """A loss ratio as a percentage that keeps small values apart from zero."""
    if ratio == 0:
        return "0"
    if ratio < 1e-5:
        return f"{ratio:.1e}"
    return f"{ratio * 100:.3g} %"


def frame_bytes(mtu_bytes: int) -> int:
    """Bytes that one full-size packet occupies in a queue."""
    return mtu_bytes + ETHERNET_HEADER_BYTES


def packets_to_bytes(packets: int, packet_bytes: int) -> int:
    """Queue length in bytes of `packets` full-size packets."""
    return packets * packet_bytes


def bytes_to_packets(size_bytes: int, packet_bytes: int) -> int:
    """Whole packets that fit into `size_bytes`."""
    return size_bytes // packet_bytes
