"""Turns a fabric into an overlay network: its hosts are the ranks of a job, its leaves the racks."""

from collections import Counter

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay, OverlayLink, OverlayNode
from mltswitch.plan import Topology


def overlay_of(topology: Topology) -> Overlay:
    """The overlay of a fabric: every host is a rank, in order of host index; raises UserInputError without
    hosts.

    Parallel links between two nodes become one link with their summed rate, and a host with several ports is
    one node, in the rack of its first port.
    """
    racks = {host.machine or host.name: host.leaf for host in reversed(topology.hosts)}
    names = dict.fromkeys(host.machine or host.name for host in topology.hosts)
    machine_of = {host.name: host.machine or host.name for host in topology.hosts}
    if not names:
        raise UserInputError("has no hosts", where="fabric", expected="a host that may have a rank")
    rates = Counter[tuple[str, str]]()
    for switch in topology.switches:
        for port in switch.ports:
            peer = machine_of.get(port.peer, port.peer)
            rates[switch.name, peer] += port.rate_bps
            if port.peer_is_host:
                rates[peer, switch.name] += port.rate_bps
    nodes = [OverlayNode(name=name, rank=rank, rack=racks[name]) for rank, name in enumerate(names)]
    nodes += [OverlayNode(name=switch.name) for switch in topology.switches]
    links = [OverlayLink(source=ends[0], target=ends[1], rate=rate) for ends, rate in rates.items()]
    return Overlay(nodes=tuple(nodes), links=tuple(links))
