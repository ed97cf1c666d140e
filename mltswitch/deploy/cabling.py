"""The plan's cabling, compared with what a device's neighbours say of themselves by LLDP."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mltswitch.deploy.identity import label
from mltswitch.deploy.session import quoted
from mltswitch.errors import printable
from mltswitch.inventory import Inventory
from mltswitch.plan import Plan
from mltswitch.plan.topology import Topology
from mltswitch.targets import Neighbour, target_for


@dataclass(frozen=True, slots=True)
class Cabling:
    """Where each port of the plan's switches leads, and the names by which the switches call themselves."""

    topology: Topology
    switch_called: Mapping[str, str]
    """First label of a host name → the switch, for names that belong to exactly one."""

    @classmethod
    def of(cls, plan: Plan, inventory: Inventory) -> "Cabling":
        """The cabling of a plan, by host names of fabric and inventory, or by `mltswitch_hostname`."""
        names = {switch.name: {switch.name} for switch in plan.topology.switches}
        for device in inventory.devices:
            names[device.switch] = {device.hostname} if device.hostname else {device.name, device.switch}
        called: dict[str, set[str]] = {}
        for switch, own in names.items():
            for name in own:
                called.setdefault(label(name), set()).add(switch)
        return cls(plan.topology, {name: each.pop() for name, each in called.items() if len(each) == 1})

    def contradictions(self, switch: str, told: Iterable[Neighbour]) -> Iterator[tuple[str, str, str]]:
        """(port, where its cable leads by the plan, where by LLDP) of each port that leads elsewhere.

        A neighbour that is none of the plan's switches contradicts nothing, nor does a name that is none of
        the plan's ports: some systems tell an alias or a MAC address.
        """
        ports = {_spelled(port.name): port for port in self.topology.switch(switch).ports}
        wrong: dict[str, tuple[str, str]] = {}
        right: set[str] = set()
        for each in told:
            port, peer = ports.get(_spelled(each.port)), self.switch_called.get(label(each.system))
            if port is None or peer is None:
                continue
            at = self._port_of(peer, each.ports)
            if peer == port.peer and at in {"", port.peer_port}:
                right.add(port.name)
            else:
                found = at or quoted(printable(next(iter(each.ports), "")))
                wrong[port.name] = (f"{port.peer} {port.peer_port}", f"{peer} {found}".rstrip())
        return ((name, *ends) for name, ends in wrong.items() if name not in right)

    def _port_of(self, switch: str, names: Iterable[str]) -> str:
        """The plan's port of a switch that goes by one of these names; empty where none does."""
        entry = self.topology.switch(switch)
        ports = {_spelled(port.name): port.name for port in entry.ports}
        known = (ports[name] for name in map(_spelled, names) if name in ports)
        return next(known, "") if target_for(entry.platform).tells_port_names else ""


def _spelled(port: str) -> str:
    return port.casefold().removeprefix("eth")
