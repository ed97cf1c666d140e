"""Two network namespaces and a cable for the host agent's benchmarks."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from mltswitch.lab import NamespaceHandle
from mltswitch.lab.programs import ip, need
from mltswitch.lab.star import INTERFACE

PATHS: Final = 4


@dataclass(frozen=True, slots=True)
class Pair:
    """Two hosts, one cable, and one address a path at each end; nothing is dropped but by sockets."""

    sender: NamespaceHandle
    receiver: NamespaceHandle
    sender_addresses: tuple[str, ...]
    receiver_addresses: tuple[str, ...]

    def use_mtu(self, mtu_bytes: int) -> None:
        """Set it at both ends."""
        for end in (self.sender, self.receiver):
            ip([f"link set {INTERFACE} mtu {mtu_bytes}"], end.name)


@contextmanager
def running_pair() -> Iterator[Pair]:
    """Made here and removed at the end; raises MachineError."""
    need("ip")
    sender, receiver = (NamespaceHandle(f"mltswitch-bench-{os.getpid()}-{end}") for end in ("tx", "rx"))
    networks = [f"10.199.{path}" for path in range(1, PATHS + 1)]
    pair = Pair(
        sender,
        receiver,
        tuple(f"{network}.1" for network in networks),
        tuple(f"{network}.2" for network in networks),
    )
    try:
        ip([f"netns add {end.name}" for end in (sender, receiver)])
        ip(
            [
                f"link add {INTERFACE} netns {sender.name} type veth "
                f"peer name {INTERFACE} netns {receiver.name}"
            ]
        )
        ends = ((sender, pair.sender_addresses), (receiver, pair.receiver_addresses))
        for namespace, addresses in ends:
            lines = [f"addr add {address}/24 dev {INTERFACE}" for address in addresses]
            ip([*lines, "link set lo up", f"link set {INTERFACE} up"], namespace.name)
        yield pair
    finally:
        for namespace in (sender, receiver):
            subprocess.run(["ip", "netns", "delete", namespace.name], check=False, capture_output=True)
