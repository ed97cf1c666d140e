"""The fabric as the lab builds it: namespaces, cables, addresses and the rack's existing routes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from itertools import groupby
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.lab.model import BMV2_PLATFORM, LINUX_PLATFORM, DeviceAddress
from mltswitch.plan import Fabric, Port, Switch, Topology, underlay
from mltswitch.targets.bmv2.ports import numbered

PREFIX: Final = "mlt-"
"""Every network namespace of ours starts with it, and none of anybody else's is touched."""
MANAGEMENT_NAMESPACE: Final = PREFIX + "mgmt"
MANAGEMENT_NETWORK: Final = IPv4Network("169.254.0.0/16")
"""Link-local (RFC 3927), so that it cannot collide with a fabric's addresses."""
MANAGEMENT_PORT: Final = "mgmt0"

_MAXIMUM_INTERFACE_NAME: Final = 15


@dataclass(frozen=True, slots=True)
class LabPort:
    """One port of a switch; without a namespace at the other end it is a dummy that is up."""

    name: str
    number: int
    """BMv2's; 0 elsewhere."""
    rate_bps: int
    address: IPv4Address
    peer_address: IPv4Address
    peer_namespace: str
    peer_port: str
    peer_is_host: bool


@dataclass(frozen=True, slots=True)
class LabRoute:
    """One route of the rack; several next hops share the load."""

    prefix: IPv4Network
    next_hops: tuple[IPv4Address, ...]


@dataclass(frozen=True, slots=True)
class LabSwitch:
    """One switch: a namespace, under Linux with an SSH server on its management interface."""

    name: str
    namespace: str
    management_address: IPv4Address
    ports: tuple[LabPort, ...]
    routes: tuple[LabRoute, ...]


@dataclass(frozen=True, slots=True)
class LabHost:
    """One host; the namespace is empty behind an emulated switch."""

    name: str
    namespace: str
    interface: str
    leaf: str
    address: IPv4Address
    gateway: IPv4Address
    aliases: tuple[tuple[str, IPv4Address], ...]


@dataclass(frozen=True, slots=True)
class LabEmulator:
    """One emulated command line."""

    name: str
    kind: str
    hardware: str
    """As the fabric names it; empty: the kind's own."""
    ports: int
    neighbours: tuple[tuple[str, str, str], ...]
    """Port, and the name and port at the other end of its cable."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything that `up` creates, known before anything is created."""

    fabric: str
    platform: str
    """Of `switches`: what forwards packets."""
    mtu_bytes: int
    switches: tuple[LabSwitch, ...]
    hosts: tuple[LabHost, ...]
    emulators: tuple[LabEmulator, ...]
    devices: tuple[DeviceAddress, ...]

    @property
    def real_hosts(self) -> tuple[LabHost, ...]:
        """Hosts that exist as a namespace."""
        return tuple(host for host in self.hosts if host.namespace)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All namespaces, the management network first; BMv2 switches have none, and no link to it."""
        if not self.switches:
            return ()
        return (
            *((MANAGEMENT_NAMESPACE,) if self.platform == LINUX_PLATFORM else ()),
            *(switch.namespace for switch in self.switches),
            *(host.namespace for host in self.real_hosts),
        )


def lay_out(fabric: Fabric, devices: Sequence[DeviceAddress], *, with_switches: bool) -> Layout:
    """The lab of one fabric; raises UserInputError for a device or a port name that cannot be built.

    `with_switches` is false where this machine can run no Linux switch: emulators are all that is left.
    """
    topology = Topology(fabric)
    _check_devices(topology, devices)
    _check_addresses(topology)
    platform = forwarding_platform(fabric)
    forwarding = [switch for switch in topology.switches if switch.platform == platform]
    real = {switch.name for switch in forwarding} if with_switches else set[str]()
    real_hosts = {host.name for host in topology.hosts if host.leaf in real}
    switches = tuple(
        LabSwitch(
            name=switch.name,
            namespace=PREFIX + switch.name,
            management_address=MANAGEMENT_NETWORK.network_address + 0x100 + position,
            ports=tuple(_lab_ports(switch, real | real_hosts)),
            routes=_underlay(fabric, topology, switch, real),
        )
        for position, switch in enumerate(forwarding, start=1)
        if switch.name in real
    )
    hosts = tuple(
        LabHost(
            name=host.name,
            namespace=PREFIX + host.name if host.name in real_hosts else "",
            interface=host.interface,
            leaf=host.leaf,
            address=host.address,
            gateway=host.gateway,
            aliases=host.aliases,
        )
        for host in topology.hosts
    )
    emulators = tuple(_emulators(topology))
    return Layout(fabric.name, platform, fabric.ports.mtu_bytes, switches, hosts, emulators, tuple(devices))


def _emulators(topology: Topology) -> Iterator[LabEmulator]:
    from switchsim import KINDS

    for switch in topology.switches:
        if kind := KINDS.get(switch.platform):
            yield LabEmulator(
                switch.name,
                switch.platform,
                switch.hardware or "",
                max(kind.usual_ports, _highest_port(switch, kind.lanes_per_port)),
                tuple((port.name, port.peer, port.peer_port) for port in switch.ports),
            )


def forwarding_platform(fabric: Fabric) -> str:
    """The platform of the fabric's switches that forward packets in a lab; raises UserInputError for two."""
    platforms = {switch.platform for switch in Topology(fabric).switches}
    if {LINUX_PLATFORM, BMV2_PLATFORM} <= platforms:
        raise UserInputError(
            "a lab has either linux switches or bmv2 switches that forward packets", where="topology"
        )
    return BMV2_PLATFORM if BMV2_PLATFORM in platforms else LINUX_PLATFORM


def _check_addresses(topology: Topology) -> None:
    for host in topology.hosts:
        if host.is_explicit or host.address.is_unspecified:
            raise UserInputError(
                f"the lab builds hosts whose addresses follow the rule, not {host.name}",
                where="addressing.hosts",
            )
    for switch in topology.switches:
        for port in switch.ports:
            if port.lag or port.address.is_unspecified:
                problem = f"in the link aggregation group {port.lag}" if port.lag else "without an address"
                raise UserInputError(f"the lab builds no port {problem}", where=f"{switch.name}:{port.name}")


def _check_devices(topology: Topology, devices: Sequence[DeviceAddress]) -> None:
    places: dict[tuple[str, int], str] = {}
    for device in devices:
        switch = topology.switch(device.name)
        if switch.platform != device.platform:
            raise UserInputError(
                f"the inventory says platform {device.platform}", where=device.name, expected=switch.platform
            )
        _check_loopback(device)
        for port in (device.port, device.thrift_port):
            other = places.setdefault((device.address, port), device.name) if port else device.name
            if other != device.name or device.port == device.thrift_port:
                raise UserInputError(
                    f"{device.address} port {port} is given to {other} as well", where=device.name
                )


def _check_loopback(device: DeviceAddress) -> None:
    """Who reaches a switch of the lab reaches a shell of root's."""
    try:
        is_loopback = IPv4Address(device.address).is_loopback
    except AddressValueError:
        is_loopback = False
    if not is_loopback:
        raise UserInputError(
            f"the lab does not listen on {device.address}",
            where=device.name,
            expected="an address of 127.0.0.0/8, which only this machine reaches",
        )


def _lab_ports(switch: Switch, real: set[str]) -> Iterator[LabPort]:
    is_bmv2 = switch.platform == BMV2_PLATFORM
    numbers = numbered(port.name for port in switch.ports) if is_bmv2 else {}
    for port in switch.ports:
        yield _lab_port(switch, port, numbers.get(port.name, 0), real)


def _lab_port(switch: Switch, port: Port, number: int, real: set[str]) -> LabPort:
    where = f"{switch.name}:{port.name}"
    if len(port.name) > _MAXIMUM_INTERFACE_NAME or "/" in port.name or port.name in {MANAGEMENT_PORT, "lo"}:
        raise UserInputError(
            "is no free name of a Linux interface",
            where=where,
            expected=f"at most {_MAXIMUM_INTERFACE_NAME} characters, no '/', not lo or {MANAGEMENT_PORT}",
        )
    peer = PREFIX + port.peer if port.peer in real else ""
    return LabPort(
        name=port.name,
        number=number,
        rate_bps=port.rate_bps,
        address=port.address,
        peer_address=port.peer_address,
        peer_namespace=peer,
        peer_port=port.peer_port,
        peer_is_host=port.peer_is_host,
    )


def _underlay(fabric: Fabric, topology: Topology, switch: Switch, real: set[str]) -> tuple[LabRoute, ...]:
    """What the rack routes without us (mltswitch/plan/underlay.py).

    Spines and leaves that are emulated are left out: nothing is forwarded behind them.
    """
    routes = underlay(fabric.addressing, topology, switch, lambda port: port.peer in real)
    return tuple(
        LabRoute(prefix, tuple(route.next_hop for route in alike))
        for prefix, alike in groupby(routes, lambda route: route.prefix)
    )


def _highest_port(switch: Switch, lanes_per_port: int) -> int:
    """How many ports a box needs at least that has all those of the fabric."""
    highest = 0
    for port in switch.ports:
        digits = port.name[len(port.name.rstrip("0123456789")) :]
        number = int(digits) if digits else 0
        highest = max(highest, number // lanes_per_port + 1 if lanes_per_port > 1 else number)
    return highest
