"""Checks one machine by itself: whether its kernel, addresses and routes are fit for an agent."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from mltswitch.errors import MachineError
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.doctor.report import Finding, Status, checked

STRICT: Final = 1
"""rp_filter (Linux, networking/ip-sysctl): a packet comes in only where its answer would leave."""
_CONF: Final = Path("/proc/sys/net/ipv4/conf")
_PATHS_HINT: Final = "as root, the lines of: mltswitch agent paths --setup"


class Network:
    """Interfaces and routes of the calling thread's network namespace, read by netlink."""

    def __init__(self) -> None:
        try:
            from pyroute2 import IPRoute, NetlinkError
        except ImportError:
            hint = "`pip install 'mltswitch[agent]'`"
            raise MachineError("the doctor needs the package pyroute2", hint=hint) from None
        self._refusal: type[Exception] = NetlinkError
        self._netlink: Any = IPRoute()

    def close(self) -> None:
        """Close the netlink socket."""
        self._netlink.close()

    def owner(self, address: str) -> tuple[str, int] | None:
        """Name and MTU of the interface with this address; None if no interface has it."""
        ip = ip_address(address)
        here = "127.0.0.1" if ip.version == 4 and ip.is_loopback else str(ip)  # all of 127/8 is there
        for entry in self._netlink.get_addr():
            if here == (entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS")):
                return self._link(entry["index"])
        return None

    def route(self, address: str) -> str:
        """Name of the interface by which the kernel sends to an address; raises MachineError."""
        try:
            (found,) = self._netlink.route("get", dst=address)
        except self._refusal as error:
            raise MachineError(f"there is no route: {error.args[-1]}", where=f"route to {address}") from None
        return self._link(found.get_attr("RTA_OIF"))[0]

    def _link(self, index: int) -> tuple[str, int]:
        (link,) = self._netlink.get_links(index)
        return link.get_attr("IFLA_IFNAME"), link.get_attr("IFLA_MTU")


def machine_findings(config: AgentConfig) -> tuple[Finding, ...]:
    """Findings about this machine's sockets, addresses and routes to peers, for an agent with these resolved
    settings. Raises MachineError without pyroute2."""
    remotes = [config.endpoint(peer).address for peer in config.peers]
    with closing(Network()) as network:
        addresses = _addresses(config, network)
        return (*_sockets(config), *addresses, *route_findings(network, "", remotes))


def _sockets(config: AgentConfig) -> Iterator[Finding]:
    try:
        from mltswitch.hostagent.dataplane.binding import DataPlane, lib, set_buffers
    except MachineError as error:
        yield Finding(Status.ERROR, "data plane", f"{error.what}; only the transport tcp works", error.hint)
        return
    yield Finding(Status.OK, "data plane", "compiled")
    family = socket.AF_INET6 if ":" in config.addresses[0] else socket.AF_INET
    with DataPlane() as plane, socket.socket(family, socket.SOCK_DGRAM) as bound:
        _, features = plane.add_socket(bound)
        buffers = set_buffers(bound, config.buffer_bytes)
    for feature, name, release in (
        (lib.MLT_SEGMENTATION, "UDP_SEGMENT", "4.18"),
        (lib.MLT_COALESCING, "UDP_GRO", "5.0"),
    ):
        is_there = bool(feature & features)
        what = "works" if is_there else "does not work: packets cost several times the processor time"
        yield checked(is_there, name, what, f"Linux {release} or newer")
    for buffer in buffers:
        is_granted = buffer.granted_bytes >= buffer.wanted_bytes
        yield checked(is_granted, buffer.setting, buffer.what, buffer.hint)


def _addresses(config: AgentConfig, network: Network) -> Iterator[Finding]:
    wanted, names = config.mtu_bytes or 0, set()
    for address in dict.fromkeys(config.addresses):
        owner, where = network.owner(address), f"address {address}"
        if owner is None:
            yield Finding(Status.ERROR, where, "this host does not have it", _PATHS_HINT)
            continue
        name, mtu_bytes = owner
        names.add(name)
        what = f"on {name}, whose MTU is {mtu_bytes:,}, {wanted:,} wanted"
        hint = f"as root: ip link set {name} mtu {wanted}; or mtu_bytes: {mtu_bytes}"
        yield checked(mtu_bytes >= wanted, where, what, hint, Status.ERROR)
    for name in sorted(names) if len(names) > 1 else ():
        hint = f"as root: sysctl -w net.ipv4.conf.{name.replace('.', '/')}.rp_filter=2"
        # What counts is the larger of all and the interface's own.
        files = [_CONF / which / "rp_filter" for which in ("all", name)]
        is_strict = max(int(file.read_text("ascii")) for file in files if file.exists()) == STRICT
        what = "strict: only what its own routes lead back to comes in" if is_strict else "not strict"
        yield checked(not is_strict, f"rp_filter of {name}", what, hint)


def route_findings(network: Network, local: str, remotes: Iterable[str]) -> Iterator[Finding]:
    """Findings about the routes from a local address (empty: any) to addresses of peers."""
    owner = network.owner(local) if local else None
    for remote in remotes:
        where = f"route to {remote}"
        try:
            name = network.route(remote)
        except MachineError as error:
            yield Finding(Status.ERROR, where, error.what, _PATHS_HINT)
            continue
        if owner is None or name in {owner[0], "lo"}:
            yield Finding(Status.OK, where, f"by {name}")
        else:
            what = f"by {name}, and {local} is on {owner[0]}"
            yield Finding(Status.WARNING, where, what, _PATHS_HINT)
