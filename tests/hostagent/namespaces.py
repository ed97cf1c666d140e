"""Two hosts in network namespaces, connected by one cable, with an alias address per path on either side."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from mltswitch.lab.namespaces import NamespaceHandle

PATHS: Final = 4
INTERFACE: Final = "data0"
_NUMBERS: Final = count()


@dataclass(frozen=True)
class Host:
    """One end."""

    namespace: NamespaceHandle
    place: int

    @property
    def address(self) -> str:
        """Its own; the neighbour is on the link."""
        return f"10.77.0.{self.place}"

    def alias(self, path: int) -> str:
        """Its address on a path."""
        return f"10.77.{1 + path}.{self.place}"

    @property
    def aliases(self) -> tuple[str, ...]:
        """Of all paths."""
        return tuple(self.alias(path) for path in range(PATHS))

    @property
    def address6(self) -> str:
        """Its own IPv6 address."""
        return f"fd77::{self.place}"

    def alias6(self, path: int) -> str:
        """Its IPv6 address on a path."""
        return f"fd77:{1 + path}::{self.place}"

    @property
    def aliases6(self) -> tuple[str, ...]:
        """Of all paths."""
        return tuple(self.alias6(path) for path in range(PATHS))

    @property
    def hardware_address(self) -> str:
        """Of its interface."""
        return f"02:00:0a:4d:00:{self.place:02x}"

    def entered(self) -> AbstractContextManager[None]:
        """Sockets opened meanwhile stay here."""
        return self.namespace.entered()

    def run(self, *command: str) -> str:
        """Output of a command that must succeed in here."""
        return run_command(*self.namespace.command(command))


@dataclass(frozen=True)
class TwoHosts:
    """`one` and `other`."""

    one: Host
    other: Host


def can_make_namespaces() -> bool:
    """Whether the tests run as root."""
    return os.geteuid() == 0


@contextmanager
def two_hosts(mtu: int = 1500) -> Iterator[TwoHosts]:
    """Made when entered, gone with all in it when left; addresses need no resolution and work at once."""
    prefix = f"mltagent-{os.getpid()}-{next(_NUMBERS)}"
    hosts = tuple(Host(NamespaceHandle(f"{prefix}-{place}"), place) for place in (1, 2))
    try:
        for host in hosts:
            run_command("ip", "netns", "add", host.namespace.name)
        _cable(hosts, mtu)
        for host in hosts:
            set_up(host)
        for host, peer in (hosts, hosts[::-1]):
            know(host, peer)
        yield TwoHosts(*hosts)
    finally:
        for host in hosts:
            if Path("/run/netns", host.namespace.name).exists():
                run_command("ip", "netns", "delete", host.namespace.name)


def _cable(hosts: Sequence[Host], mtu: int) -> None:
    ends = [
        ("name", INTERFACE, "mtu", str(mtu), "address", host.hardware_address, "netns", host.namespace.name)
        for host in hosts
    ]
    run_command("ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1])


def set_up(host: Host) -> None:
    """Addresses on an interface that is there."""
    for family in ("all", "default"):
        # The lab and other tests share the machine: nothing but what tests send should be on the cable.
        host.run("sysctl", "-qw", f"net.ipv6.conf.{family}.router_solicitations=0")
    host.run("ip", "link", "set", "lo", "up")
    host.run("ip", "link", "set", INTERFACE, "up")
    for address in (host.address, *host.aliases):
        host.run("ip", "address", "add", f"{address}/24", "dev", INTERFACE)
    for address in (host.address6, *host.aliases6):
        host.run("ip", "address", "add", f"{address}/64", "dev", INTERFACE, "nodad")


def know(host: Host, peer: Host) -> None:
    """The peer's hardware address, for all of its addresses."""
    for address in (peer.address, *peer.aliases, peer.address6, *peer.aliases6):
        host.run("ip", "neigh", "add", address, "lladdr", peer.hardware_address, "dev", INTERFACE)


def run_command(*command: str) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
