"""Converts and prints units; no other module does."""

from decimal import Decimal, DecimalException
from typing import Final

BITS_PER_BYTE: Final = 8
ETHERNET_HEADER_BYTES: Final = 14
"""Bytes of the header that a queue stores with each packet; Linux qdiscs do not store the check sequence."""
KIBIBYTE: Final = 1024
NANOSECONDS: Final = 10**9
"""Nanoseconds of one second."""
SLOWEST_PORT_BPS: Final = 1_000
"""The lowest port rate in bit/s: below it the unit was probably forgotten."""
MAXIMUM_VALUE: Final = 10**18
"""The largest accepted value, above every rate in bit/s and every size in bytes."""

_PARTS_OF_A_SECOND: Final = {1.0: "s", 1e3: "ms", 1e6: "µs", 1e9: "ns"}
_DECIMAL_PREFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_PREFIXES: Final = {"ki": 2**10, "mi": 2**20, "gi": 2**30}


def _parse(
    value: object, suffixes: tuple[str, ...], prefixes: dict[str, int], *, wrong: str, example: str
) -> int:
    is_short = value is None or isinstance(value, str | float | bool)
    shown = repr(value)[:60] if is_short else f"a value of type {type(value).__name__}"
    if isinstance(value, int) and not isinstance(value, bool):
        number = Decimal(value)
    elif isinstance(value, str):
        if wrong in value:
            meaning = "bytes, and rates are in bits" if wrong == "B" else "bits, and sizes are in bytes"
            raise ValueError(f"{shown}: {wrong} means {meaning}, write for example {example}")
        number = _scaled(value, suffixes, prefixes, shown, example)
    else:
        raise ValueError(f"{shown} is not understood, write for example {example}")  # noqa: TRY004  (pydantic reads ValueError)
    if not number.is_finite() or abs(number) > MAXIMUM_VALUE:
        raise ValueError(f"{shown} is not a number that a network could have")
    if number != int(number):
        raise ValueError(f"{shown} is not a whole number of units")
    return int(number)


def _scaled(
    text: str, suffixes: tuple[str, ...], prefixes: dict[str, int], shown: str, example: str
) -> Decimal:
    problem = f"{shown} is not understood, write for example {example}"
    if not text.isascii():  # Decimal reads the digits of every script
        raise ValueError(problem)
    body = text.strip().lower().replace(" ", "")
    for suffix in suffixes:
        if body.endswith(suffix):
            body = body.removesuffix(suffix)
            break
    number = body.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return Decimal(number) * prefixes[body[len(number) :]]
    except (DecimalException, KeyError):
        raise ValueError(problem) from None


def parse_bps(value: object) -> int:
    """Rate in bits per second from `25000000000` or `"25Gbps"`; raises ValueError."""
    rate = _parse(value, ("bit/s", "bps", "bit"), _DECIMAL_PREFIXES, wrong="B", example="25Gbps or 100Mbps")
    if 0 < rate < SLOWEST_PORT_BPS:
        raise ValueError(f"{rate} bit/s is no rate of a port, write for example 25Gbps or 100Mbps")
    return rate


def parse_bytes(value: object) -> int:
    """Size in bytes from `200000`, `"200kB"` (decimal) or `"192KiB"` (binary); raises ValueError."""
    prefixes = _DECIMAL_PREFIXES | _BINARY_PREFIXES
    return _parse(value, ("b",), prefixes, wrong="b", example="200kB or 192KiB")


def format_bps(rate_bps: float) -> str:
    """A rate in bit/s as text with its unit: `25 Gbit/s`."""
    for factor, prefix in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if rate_bps >= factor:
            return f"{rate_bps / factor:g} {prefix}bit/s"
    return f"{rate_bps:g} bit/s"


def format_bytes(size_bytes: int) -> str:
    """A size as text, `1,514 B`: with all digits, as a device prints them, to be compared by eye."""
    return f"{size_bytes:,} B"


def format_ratio(ratio: float) -> str:
    """A loss ratio as a percentage that keeps small values apart from zero."""
    if ratio == 0:
        return "0"
    if ratio < 1e-5:
        return "< 0.001 %"
    return f"{ratio * 100:.3g} %"


def format_seconds(seconds: float | None) -> str:
    """A duration as text with three digits, `12.3 µs`, `4.5 ms`, `1.97 s`; a dash for None."""
    if not seconds:
        return "-" if seconds is None else "0"
    parts = [(float(f"{seconds * factor:.3g}"), unit) for factor, unit in _PARTS_OF_A_SECOND.items()]
    number, unit = next((part for part in parts if abs(part[0]) >= 1), parts[-1])
    return f"{number:,.15g} {unit}"


def frame_bytes(mtu_bytes: int) -> int:
    """Bytes that one full-size packet occupies in a queue."""
    return mtu_bytes + ETHERNET_HEADER_BYTES


def packets_to_bytes(packets: int, packet_bytes: int) -> int:
    """Queue length in bytes of `packets` full-size packets."""
    return packets * packet_bytes


def bytes_to_packets(size_bytes: int, packet_bytes: int) -> int:
    """Whole packets that fit into `size_bytes`."""
    return size_bytes // packet_bytes
