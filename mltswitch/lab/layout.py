"""The fabric as the lab builds it: which switches and hosts exist on this machine, and under which names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.lab.bmv2_node import NAMESPACE_PREFIX
from mltswitch.lab.model import BMV2_PLATFORM, LINUX_PLATFORM, DeviceAddress, DeviceKind
from mltswitch.plan import Fabric, Host, Port, Switch, Topology, underlay
from mltswitch.targets.bmv2.ports import numbered

MANAGEMENT_NAMESPACE: Final = NAMESPACE_PREFIX + "mgmt"
MANAGEMENT_NETWORK: Final = IPv4Network("169.254.0.0/16")
"""The management network; link-local (RFC 3927), so that it cannot collide with a fabric's addresses."""
MANAGEMENT_PORT: Final = "mgmt0"

_MAXIMUM_INTERFACE_NAME: Final = 15


@dataclass(frozen=True)
class Layout:
    """A fabric and the addresses of its devices, which determine everything that `up` creates."""

    fabric: Fabric
    devices: tuple[DeviceAddress, ...]
    with_switches: bool
    """False where this machine can run no switch that forwards packets: emulators are all that is left."""

    @cached_property
    def topology(self) -> Topology:
        """The fabric's switches and hosts, emulated ones too."""
        return Topology(self.fabric)

    @cached_property
    def platform(self) -> str:
        """Platform of the lab's switches that forward packets."""
        return forwarding_platform(self.topology)

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        """The switches that forward packets, each in a namespace of its own."""
        switches = self.topology.switches if self.with_switches else ()
        return tuple(switch for switch in switches if switch.platform == self.platform)

    @cached_property
    def real_hosts(self) -> tuple[Host, ...]:
        """The hosts that exist as a namespace: those behind a switch that forwards packets."""
        leaves = {switch.name for switch in self.switches}
        return tuple(host for host in self.topology.hosts if host.leaf in leaves)

    @cached_property
    def emulators(self) -> tuple[Switch, ...]:
        """The switches that the lab only emulates: they have a command line but forward no packets."""
        from switchsim import KINDS

        return tuple(switch for switch in self.topology.switches if switch.platform in KINDS)

    @cached_property
    def _real(self) -> dict[str, str]:
        names = [*(switch.name for switch in self.switches), *(host.name for host in self.real_hosts)]
        return {name: f"{NAMESPACE_PREFIX}{name}" for name in names}

    def namespace(self, name: str) -> str:
        """Name of the namespace of a switch or a host; empty for one that is not built."""
        return self._real.get(name, "")

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All namespaces' names, first the management network's, which a lab of BMv2 switches lacks."""
        management = (MANAGEMENT_NAMESPACE,) if self.switches and self.platform == LINUX_PLATFORM else ()
        return (*management, *self._real.values())

    def management_address(self, switch: Switch) -> IPv4Address:
        """The address at which a Linux switch is reached in the management network."""
        return MANAGEMENT_NETWORK.network_address + 0x101 + self.switches.index(switch)

    def cabled_ports(self, switch: Switch) -> tuple[Port, ...]:
        """The ports of a switch that lead to another namespace."""
        return tuple(port for port in switch.ports if port.peer in self._real)

    def cables(self) -> Iterator[tuple[Switch, Port]]:
        """Each cable of the lab once, by the switch and the port at one of its ends."""
        for switch in self.switches:
            for port in self.cabled_ports(switch):
                if port.peer_is_host or port.address < port.peer_address:
                    yield switch, port

    def routes(self, switch: Switch) -> dict[IPv4Network, list[IPv4Address]]:
        """A switch's underlay routes, which mltswitch does not manage: prefix to next hops, which share load.

        Spines and leaves that are emulated are left out: nothing is forwarded behind them.
        """
        routes: dict[IPv4Network, list[IPv4Address]] = {}
        real = self._real
        for route in underlay(self.fabric.addressing, self.topology, switch, lambda port: port.peer in real):
            routes.setdefault(route.prefix, []).append(route.next_hop)
        return routes

    def kind(self, device: DeviceAddress) -> DeviceKind:
        """What kind of server answers at the address of a device."""
        if device.platform == self.platform:
            return DeviceKind.REAL if self.with_switches else DeviceKind.ABSENT
        from switchsim import KINDS

        return DeviceKind.EMULATED if device.platform in KINDS else DeviceKind.ABSENT

    def reachable(self, switches: Sequence[Switch]) -> Iterator[tuple[Switch, DeviceAddress]]:
        """Those of the given switches that the inventory names, each with its device address."""
        places = {device.name: device for device in self.devices}
        return ((switch, places[switch.name]) for switch in switches if switch.name in places)


def lay_out(fabric: Fabric, devices: Sequence[DeviceAddress], *, with_switches: bool) -> Layout:
    """The lab of one fabric; raises UserInputError for a device or a port name that cannot be built."""
    layout = Layout(fabric, tuple(devices), with_switches)
    _check_devices(layout)
    _check_addresses(layout.topology)
    forwarding_platform(layout.topology)  # refuses two
    for switch in layout.switches:
        _check_port_names(switch)
    return layout


def forwarding_platform(topology: Topology) -> str:
    """The platform of the switches that forward packets in a lab; raises UserInputError if they have two."""
    platforms = {switch.platform for switch in topology.switches}
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


def _check_devices(layout: Layout) -> None:
    places: dict[tuple[str, int], str] = {}
    for device in layout.devices:
        switch = layout.topology.switch(device.name)
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


def _check_port_names(switch: Switch) -> None:
    if switch.platform == BMV2_PLATFORM:
        numbered(port.name for port in switch.ports)
    for port in switch.ports:
        name = port.name
        if len(name) > _MAXIMUM_INTERFACE_NAME or "/" in name or name in {MANAGEMENT_PORT, "lo"}:
            raise UserInputError(
                "is no free name of a Linux interface",
                where=f"{switch.name}:{name}",
                expected=f"at most {_MAXIMUM_INTERFACE_NAME} characters, no '/', not lo or {MANAGEMENT_PORT}",
            )
