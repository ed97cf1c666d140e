"""A machine alone: whether its kernel, addresses, routes and keys are fit for an agent."""

import socket
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple

from mltswitch.errors import MachineError, MltswitchError
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.doctor.report import Finding, Status

SOON_DAYS: Final = 3
"""Less than a weekend, and somebody should renew the keys now."""
STRICT: Final = 1
"""rp_filter (Linux, networking/ip-sysctl): a packet comes in only where its answer would leave."""
_SETTINGS: Final = Path("/proc/sys/net")


class Interface(NamedTuple):
    """Of this machine."""

    name: str
    mtu_bytes: int


class Route(NamedTuple):
    """The way of the kernel to an address."""

    interface: str
    source: str
    """The address that it would choose for us."""


class Network:
    """What the kernel's netlink says of the network namespace of the calling thread; a context manager."""

    def __init__(self) -> None:
        try:
            from pyroute2 import IPRoute, NetlinkError
        except ImportError:
            raise MachineError(
                "the doctor needs the package pyroute2", hint="`pip install 'mltswitch[agent]'`"
            ) from None
        self._refusal: type[Exception] = NetlinkError
        self._netlink: Any = IPRoute()
        self._links = {
            link["index"]: Interface(link.get_attr("IFLA_IFNAME"), link.get_attr("IFLA_MTU"))
            for link in self._netlink.get_links()
        }
        self._owners = {
            entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS"): self._links[entry["index"]]
            for entry in self._netlink.get_addr()
        }

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        self._netlink.close()

    def owner(self, address: str) -> Interface | None:
        """The interface with this address."""
        found = self._owners.get(str(ip_address(address)))
        if found is None and ip_address(address).is_loopback:
            return self._owners.get("127.0.0.1")  # all of 127/8 is there
        return found

    def route(self, address: str) -> Route:
        """Raises MachineError, naming the address, where there is none."""
        try:
            (found,) = self._netlink.route("get", dst=address)
        except self._refusal as error:
            raise MachineError(
                f"no route: {error.args[1] if len(error.args) > 1 else error}", where=f"route to {address}"
            ) from None
        return Route(self._links[found.get_attr("RTA_OIF")].name, found.get_attr("RTA_PREFSRC") or "")


def machine_findings(config: AgentConfig) -> tuple[Finding, ...]:
    """All of a resolved configuration's; raises MachineError without the package pyroute2."""
    with Network() as network:
        remotes = [config.endpoint(peer).address for peer in config.peers]
        return (
            *_sockets(config),
            *_keys(config),
            *_addresses(config, network),
            *route_findings(network, "", remotes),
        )


def _sockets(config: AgentConfig) -> Iterator[Finding]:
    try:
        from mltswitch.hostagent.dataplane.binding import DataPlane, Feature
    except MachineError as error:
        yield Finding(Status.ERROR, "data plane", f"{error.what}; only the transport tcp works", error.hint)
        return
    yield Finding(Status.OK, "data plane", "compiled")
    local = config.addresses[0] if config.addresses else "127.0.0.1"
    family = socket.AF_INET6 if ":" in local else socket.AF_INET
    with DataPlane() as plane, socket.socket(family, socket.SOCK_DGRAM) as bound:
        _, features = plane.add_socket(bound)
        granted = [
            bound.getsockopt(socket.SOL_SOCKET, option) // 2
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF)
        ]
    for feature, name, release in (
        (Feature.SEGMENTATION, "UDP_SEGMENT", "4.18"),
        (Feature.COALESCING, "UDP_GRO", "5.0"),
    ):
        if feature in features:
            yield Finding(Status.OK, "sockets", f"{name} works")
        else:
            what = f"{name} does not work: a packet costs several times the processor time"
            yield Finding(Status.WARNING, "sockets", what, f"Linux {release} or newer")
    for name, size in zip(("rmem_max", "wmem_max"), granted, strict=True):
        what = f"buffer of {size:,} bytes of {config.buffer_bytes:,} wanted"
        if size >= config.buffer_bytes:
            yield Finding(Status.OK, f"net.core.{name}", what)
        else:
            hint = f"as root: sysctl -w net.core.{name}={config.buffer_bytes}, and a line in /etc/sysctl.d"
            yield Finding(Status.WARNING, f"net.core.{name}", f"{what}: bursts are lost", hint)


def _keys(config: AgentConfig) -> Iterator[Finding]:
    """Those that no peer would accept are an error where the agent is opened."""
    identity = config.identity()
    if identity is None:
        beyond = [address for address in config.addresses if not ip_address(address).is_loopback]
        if beyond:
            what = "none, beyond loopback: whoever is on the network can write into tensors"
            yield Finding(Status.WARNING, "keys", what, "mltswitch agent keys makes a folder for each host")
        return
    days = (identity.expires - datetime.now(UTC)).days
    what = f"{identity.name}, valid until {identity.expires:%Y-%m-%d}, {days} days"
    hint = (
        f"where the keys were made: mltswitch agent keys {identity.name} --force" if days < SOON_DAYS else ""
    )
    yield Finding(Status.WARNING if days < SOON_DAYS else Status.OK, "keys", what, hint)


def _addresses(config: AgentConfig, network: Network) -> Iterator[Finding]:
    owners = {address: network.owner(address) for address in config.addresses}
    for address, owner in owners.items():
        where = f"address {address}"
        if owner is None:
            hint = "as root, the lines of: mltswitch agent paths --setup"
            yield Finding(Status.ERROR, where, "this host does not have it", hint)
        elif owner.mtu_bytes < config.mtu_bytes:
            what = f"{owner.name} takes {owner.mtu_bytes:,} bytes, and the agent sends {config.mtu_bytes:,}"
            hint = (
                f"as root: ip link set {owner.name} mtu {config.mtu_bytes}; or mtu_bytes: {owner.mtu_bytes}"
            )
            yield Finding(Status.ERROR, where, what, hint)
        else:
            what = f"on {owner.name}, MTU {owner.mtu_bytes:,} of {config.mtu_bytes:,} wanted"
            yield Finding(Status.OK, where, what)
    interfaces = {owner.name for owner in owners.values() if owner is not None}
    if len(interfaces) > 1:
        for name in sorted(interfaces):
            is_strict = rp_filter(name) == STRICT
            what = "strict: only what its own routes lead back to comes in" if is_strict else "not strict"
            hint = (
                f"as root: sysctl -w net.ipv4.conf.{name.replace('.', '/')}.rp_filter=2" if is_strict else ""
            )
            yield Finding(Status.WARNING if is_strict else Status.OK, f"rp_filter of {name}", what, hint)


def rp_filter(interface: str) -> int:
    """What counts is the larger of all and the interface's own."""
    files = [_SETTINGS / "ipv4" / "conf" / name / "rp_filter" for name in ("all", interface)]
    return max(int(file.read_text("ascii")) for file in files if file.exists())


def route_findings(network: Network, local: str, remotes: Iterable[str]) -> Iterator[Finding]:
    """Of the way from an address of ours, empty: any, to addresses of peers."""
    for remote in remotes:
        try:
            route = network.route(remote)
        except MltswitchError as error:
            hint = "as root, the lines of: mltswitch agent paths --setup"
            yield Finding(Status.ERROR, error.where, error.what, hint)
            continue
        owner = network.owner(local) if local else None
        where, what = f"route to {remote}", f"by {route.interface}"
        if owner is None or route.interface in {owner.name, "lo"}:
            yield Finding(Status.OK, where, what)
            continue
        what += f", and {local} is on {owner.name}"
        is_strict = ":" not in remote and rp_filter(owner.name) == STRICT
        what += ", whose strict rp_filter drops answers" if is_strict else ""
        hint = "as root, the lines of: mltswitch agent paths --setup"
        yield Finding(Status.ERROR if is_strict else Status.WARNING, where, what, hint)
