"""Where a control channel is: an IP address and a port, or, of a peer, a host's name that is looked up."""

import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.wire import AGENT_PORT

MAXIMUM_NAME_CHARACTERS: Final = 253
"""Of a name in the DNS (RFC 1035, section 2.3.4, without the root's octet and the first length)."""
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)
"""As a last label: inet_aton(3) takes `10.1` and `0x7f000001` for addresses."""
_SHOWN_CHARACTERS: Final = 60
_VERSIONS: Final = {socket.AF_INET: 4, socket.AF_INET6: 6}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer listens, as somebody wrote it."""

    host: str
    """An IP address, or a name that nobody has looked up yet."""
    port: int

    @property
    def is_name(self) -> bool:
        """Whether it has to be looked up."""
        return not _is_address(self.host)


def parse_place(text: str) -> Place:
    """As `parse_endpoint`, and names: `host3` or `host3:18515`; raises ValueError. Looks nothing up."""
    host, port = _split(text, AGENT_PORT)
    if not _is_address(host) and not _is_host_name(host):
        raise ValueError(
            f"{_shown(text)} is neither an IP address nor a host name, write for example 10.10.0.1, host3 or "
            f"host3:{AGENT_PORT}"
        )
    return Place(host, port)


def parse_endpoint(text: str, default_port: int = AGENT_PORT) -> Endpoint:
    """`10.10.0.1`, `10.10.0.1:18515` or `[fd00::1]:18515`; raises ValueError. Names are not looked up."""
    host, port = _split(text, default_port)
    if not _is_address(host):
        raise ValueError(
            f"{_shown(text)} is no IP address, write for example 10.10.0.1 or 10.10.0.1:{AGENT_PORT}; names "
            "are looked up for peers alone"
        )
    return Endpoint(host, port)


def look_up(place: Place, *, where: str, like: Sequence[str]) -> Endpoint:
    """The address of a place; of several that a name has, the first of the IP version of `like`, if any is.

    Blocks for as long as the system's resolver does. Raises UserInputError naming `where` for a name without
    an address.
    """
    if not place.is_name:
        return Endpoint(place.host, place.port)
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserInputError(
            f"{place.host[:_SHOWN_CHARACTERS]!r} is no IP address, and no name with one ({reason})",
            where=where,
            hint="mend the name, /etc/hosts or the DNS, or give the address",
        ) from None
    addresses = [(_VERSIONS[family], str(entry[0])) for family, *_, entry in found if family in _VERSIONS]
    if not addresses:
        raise UserInputError(f"{place.host[:_SHOWN_CHARACTERS]!r} has no IP address", where=where)
    wanted = {ip_address(address).version for address in like}
    _, chosen = next((entry for entry in addresses if entry[0] in wanted), addresses[0])
    return Endpoint(chosen, place.port)


class PeerPlaces(Mapping[str, Endpoint]):
    """Where peers listen, by their names; a host's name is looked up when it is asked for, and once."""

    def __init__(
        self,
        known: Mapping[str, Endpoint],
        named: Mapping[str, Place],
        *,
        place: Callable[[str], str],
        like: Sequence[str],
    ) -> None:
        """`named` goes before `known`; `place` says where a name is given, for errors; `like`: see
        `look_up`."""
        self._places = dict(named)
        self._found = {name: endpoint for name, endpoint in known.items() if name not in named}
        self._names = tuple(dict.fromkeys((*known, *named)))
        self._place, self._like = place, like

    def __getitem__(self, name: str) -> Endpoint:
        """Raises KeyError for one that nobody knows, UserInputError for a place that has no address."""
        if name not in self._found:
            self._found[name] = look_up(self._places[name], where=self._place(name), like=self._like)
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._found or name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _split(text: str, default_port: int) -> tuple[str, int]:
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        if port and not port.startswith(":"):
            raise ValueError(f"{_shown(text)} is not understood, write for example [fd00::1]:{AGENT_PORT}")
        port = port.removeprefix(":")
        has_port = not text.endswith("]")
        if not _is_address(host):
            raise ValueError(f"{_shown(text)} is no IP address, write for example [fd00::1]:{AGENT_PORT}")
    else:
        has_port = text.count(":") == 1
        if has_port:
            host, _, port = text.partition(":")
    if not has_port:
        return host, default_port
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):
        raise ValueError(f"{_shown(text)} has no port of 0 to 65535")
    return host, int(port)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_host_name(host: str) -> bool:
    last = host.removesuffix(".").rpartition(".")[2]
    is_name = len(host) <= MAXIMUM_NAME_CHARACTERS and _NAME.fullmatch(host) is not None
    return is_name and not _NUMBER.fullmatch(last)


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_CHARACTERS])
