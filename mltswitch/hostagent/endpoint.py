"""Agents' addresses, ports and host names, and how they are written."""

import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated, Final

from pydantic import AfterValidator

from mltswitch.errors import UserInputError
from mltswitch.wire import AGENT_PORT

_HOST_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){0,62}", re.ASCII)
"""Names of the fabric that a certificate can carry: no empty label, 63 characters or fewer."""
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DNS_NAME: Final = re.compile(
    rf"(?=.{{1,253}}$)(?:{_LABEL}\.)*(?!(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?$){_LABEL}\.?", re.ASCII
)
"""RFC 1035, section 2.3.4; without a number as the last label: inet_aton(3) takes `10.1` for an address."""
_ZONE: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}", re.ASCII)
"""Of a link-local address (RFC 4007): an interface's name."""
_SHOWN: Final = 60
"""Characters of a value in an error."""
_BROADCAST: Final = IPv4Address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An IP address and a TCP port; port 0: the kernel chooses one to listen on."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    @property
    def ip(self) -> IPv4Address | IPv6Address:
        """The IP address; an IPv4-mapped IPv6 address as IPv4."""
        address = ip_address(self.address)
        return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def host_name_problem(name: str) -> str:
    """Why no host of a fabric, and no certificate, can have this name; empty if the name is valid."""
    if not _HOST_NAME.fullmatch(name):
        return "is not a host name of letters, digits, '-', '_' and single dots, 63 characters or fewer"
    return "is an address, and a peer is known by its name" if _is_address(name) else ""


def parse_place(text: str, default_port: int = AGENT_PORT) -> tuple[str, int]:
    """Host and port of `10.10.0.1`, `[fd00::1]:18515`, `host3` or `host3:18515`; raises ValueError."""
    shown = repr(text[:_SHOWN])
    bracketed = re.fullmatch(r"\[([^]]*)\](?::(.*))?", text, re.DOTALL)
    host, port = bracketed.groups() if bracketed else (text, None)
    if not bracketed and text.count(":") == 1:
        host, port = text.split(":")
    if not _is_address(host) and (bracketed or not _DNS_NAME.fullmatch(host)):
        raise ValueError(
            f"{shown} is neither an IP address nor a host name, write 10.10.0.1 or host3:{AGENT_PORT}"
        )
    if port is not None and not (re.fullmatch("[0-9]{1,5}", port) and int(port) < 1 << 16):
        raise ValueError(f"{shown} has no port of 0 to 65535")
    return host, default_port if port is None else int(port)


def parse_endpoint(text: str, default_port: int = AGENT_PORT) -> Endpoint:
    """Read `10.10.0.1`, `10.10.0.1:18515` or `[fd00::1]:18515`; looks no name up, raises ValueError."""
    host, port = parse_place(text, default_port)
    if not _is_address(host):
        raise ValueError(f"{text[:_SHOWN]!r} is no IP address; names are looked up for peers alone")
    return Endpoint(host, port)


def look_up(text: str, *, where: str, like: str = "") -> Endpoint:
    """The endpoint of a peer; of several addresses of its name the first with the IP version of `like`.

    Blocks for as long as the system's resolver does. Raises UserInputError naming `where`.
    """
    try:
        host, port = parse_place(text)
        if _is_address(host):
            return Endpoint(host, port)
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except OSError as error:
        problem = f"{text[:_SHOWN]!r} is no IP address, and no name with one ({error.strerror})"
        hint = "mend the name, /etc/hosts or the DNS, or give the address"
        raise UserInputError(problem, where=where, hint=hint) from None
    except ValueError as error:  # UnicodeError is one, too
        raise UserInputError(str(error), where=where) from None
    return Endpoint(next((address for address in found if (":" in address) == (":" in like)), found[0]), port)


def _is_address(host: str) -> bool:
    _, sign, zone = host.partition("%")
    if sign and not _ZONE.fullmatch(zone):  # Python takes any text for one
        return False
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _checked_host_name(name: str) -> str:
    if problem := host_name_problem(name):
        raise ValueError(f"{name[:_SHOWN]!r} {problem}")
    return name


def _checked_address(text: str) -> str:
    address = parse_endpoint(text if ":" not in text else f"[{text}]").ip
    if address.is_unspecified or address.is_multicast or address == _BROADCAST:
        raise ValueError(f"{text[:_SHOWN]!r} means several addresses or hosts; data has one address a path")
    return text


# Fields of a file, which keep their text as it was written.
HostName = Annotated[str, AfterValidator(_checked_host_name)]
EndpointText = Annotated[str, AfterValidator(lambda text: parse_endpoint(text) and text)]
PlaceText = Annotated[str, AfterValidator(lambda text: parse_place(text) and text)]
AddressText = Annotated[str, AfterValidator(_checked_address)]
