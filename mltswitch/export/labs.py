"""A folder that starts the plan's network of real images, pushes the plan to it and says what came of it.

Passwords stay in environment variables, which the inventory names. `verify.sh` is one text for both tools.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Final

import yaml

from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError, every
from mltswitch.export.images import HOST_KIND
from mltswitch.export.network import HostNode, LabNetwork, LinkEnd, SwitchNode
from mltswitch.plan import Plan

_SCRIPTS: Final = files("mltswitch.export").joinpath("scripts")
KNOWN_HOSTS: Final = "../known_hosts"
"""Beside the inventory: what lies in it is read as a part of it."""
LONGEST_NAME: Final = 32
"""Of a lab, in characters: containers and networks are named after it."""
LINUX: Final = "linux"
"""netlab's name of a host."""


def containerlab_files(network: LabNetwork, plan: Plan, host_image: str) -> dict[str, str]:
    """Name → text of a folder for containerlab; raises UserInputError naming a port that an image lacks.

    Which image is started is said by environment variables, or else by the topology file.
    """
    by_name = {node.name: node for node in network.switches}
    kinds = {node.image.kind: {"image": _by_variable(node)} for node in network.switches}
    nodes: dict[str, Any] = {}
    for node in network.switches:
        entry = nodes[node.name] = {"kind": node.image.kind, "mgmt-ipv4": str(node.address)}
        if node.image.kind == HOST_KIND:  # hosts are of the same kind, and run another image
            entry |= kinds.pop(HOST_KIND, {"image": _by_variable(node)})
        if node.image.has_commands and (addresses := _addresses(node.name, network)):
            entry |= {"sysctls": {"net.ipv4.ip_forward": 1}, "exec": addresses}
    for host in network.hosts:
        entry = {"kind": HOST_KIND, "image": f"${{HOST_IMAGE:={host_image}}}", "mgmt-ipv4": str(host.address)}
        nodes[host.name] = entry | {"exec": _host_commands(host, network)}
    topology: dict[str, Any] = {"kinds": kinds, "nodes": nodes}
    topology["links"] = every(_brief(ends, by_name) for ends in network.links)
    name = _lab_name(network)
    document = {
        "name": name,
        "mgmt": {"network": f"{name}-mgmt", "ipv4-subnet": str(network.management)},
        "topology": {key: value for key, value in topology.items() if value},
    }
    commands = {
        "TOOL": "containerlab",
        "DEPLOY": "$containerlab deploy --reconfigure --topo topology.clab.yaml",
        "DESTROY": "$containerlab destroy --cleanup --topo topology.clab.yaml",
    }
    return _folder(network, plan, "topology.clab.yaml", document, commands)


def netlab_files(network: LabNetwork, plan: Plan, host_image: str) -> dict[str, str]:
    """Name → text of a folder for netlab; raises UserInputError naming what netlab has no device for.

    Where one image is a virtual machine, netlab's libvirt is the first provider and containers are its
    second (netlab, docs/labs/multi-provider.md).
    """
    by_name = {node.name: node for node in network.switches}
    providers = every(_provider(node) for node in network.switches)
    main = next((each for each in providers if each != "clab"), "clab")
    nodes: dict[str, Any] = {}
    for node, provider in zip(network.switches, providers, strict=True):
        entry = nodes[node.name] = {"device": node.image.netlab_device, "mgmt": {"ipv4": str(node.address)}}
        if provider == "clab":
            entry["image"] = node.image.image
        if provider != main:
            entry["provider"] = provider
    for host in network.hosts:
        nodes[host.name] = {
            "device": LINUX,
            "image": host_image,
            "mgmt": {"ipv4": str(host.address)},
            **({"provider": "clab"} if main != "clab" else {}),
        }
    document = {
        "name": _lab_name(network).replace(".", "_"),
        "provider": main,
        "addressing": {"mgmt": {"ipv4": str(network.management), "start": _start(network)}},
        "defaults": {
            "devices": {
                node.image.netlab_device: dict(node.image.netlab_defaults)
                for node in network.switches
                if node.image.netlab_defaults
            }
        },
        "nodes": nodes,
        "links": every(_detailed(ends, by_name) for ends in network.links),
    }
    commands = {"TOOL": "netlab", "DEPLOY": "netlab up topology.yml", "DESTROY": "netlab down --cleanup"}
    return _folder(network, plan, "topology.yml", document, commands)


def _lab_name(network: LabNetwork) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", network.name).strip("-.")[:LONGEST_NAME] or "mltswitch"


def _by_variable(node: SwitchNode) -> str:
    return f"${{{node.image.variable}:={node.image.image}}}"


def _start(network: LabNetwork) -> int:
    """Behind all addresses that are given, for what netlab itself numbers."""
    first = int(network.switches[0].address) - int(network.management.network_address)
    return first + len(network.switches) + len(network.hosts)


def _addresses(name: str, network: LabNetwork) -> list[str]:
    """What gives the ports of a Linux node their addresses."""
    ends = (end for ends in network.links for end in ends)
    return [
        f"ip address add {end.address} dev {shlex.quote(end.port)}"
        for end in ends
        if end.node == name and end.address
    ]


def _host_commands(host: HostNode, network: LabNetwork) -> list[str]:
    """What gives a host its addresses, one for each path, and the way to the others'."""
    up = [f"ip link set {host.interface(port)} up" for port in host.ports]
    if not (addresses := _addresses(host.name, network)):
        return up
    aliases = [
        f"ip address add {alias}/32 dev {host.interface(port)}"
        for port in host.ports
        for _, alias in port.aliases
    ]
    gateway = host.ports[0].gateway
    return [*up, *addresses, *aliases, *(f"ip route add {each} via {gateway}" for each in network.prefixes)]


def _brief(ends: tuple[LinkEnd, LinkEnd], by_name: Mapping[str, SwitchNode]) -> Callable[[], dict[str, Any]]:
    def link() -> dict[str, Any]:
        names = [
            f"{end.node}:{by_name[end.node].image.link_name(end.node, end.port)}"
            if end.node in by_name
            else f"{end.node}:{end.port}"
            for end in ends
        ]
        addresses = [
            end.address if end.node in by_name and by_name[end.node].image.has_link_addresses else ""
            for end in ends
        ]
        return {"endpoints": names} | ({"ipv4": addresses} if any(addresses) else {})

    return link


def _provider(node: SwitchNode) -> Callable[[], str]:
    def provider() -> str:
        if not node.image.netlab_device:
            raise UserInputError(
                f"netlab has no device for platform {node.switch.platform} of kind {node.image.kind}",
                where=node.name,
                hint="`mltswitch lab export containerlab` may have one",
            )
        return node.image.netlab_provider

    return provider


def _detailed(
    ends: tuple[LinkEnd, LinkEnd], by_name: Mapping[str, SwitchNode]
) -> Callable[[], dict[str, Any]]:
    def link() -> dict[str, Any]:
        document: dict[str, Any] = {}
        for end in ends:
            entry: dict[str, Any] = {"ipv4": end.address} if end.address else {}
            if end.node in by_name:
                entry["ifindex"] = by_name[end.node].image.port_index(end.node, end.port)
            document[end.node] = entry
        return document

    return link


def _folder(
    network: LabNetwork, plan: Plan, file: str, document: Mapping[str, Any], commands: Mapping[str, str]
) -> dict[str, str]:
    variables = dict.fromkeys(node.image.password_variable for node in network.switches)
    words = {
        **commands,
        "SWITCHES": " ".join(node.name for node in network.switches),
        "PASSWORDS": " ".join(variables),
    }
    script = _SCRIPTS.joinpath("verify.sh").read_text(encoding="utf-8")
    for word, meaning in words.items():
        script = script.replace(f"@{word}@", meaning)
    return {
        file: _yaml(document),
        "plan.yaml": dump_yaml(plan),
        "inventory/hosts.yaml": _yaml(_inventory(network)),
        "verify.sh": script,
    }


def _inventory(network: LabNetwork) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for node in network.switches:
        image = node.image
        variables = {
            "mltswitch_platform": image.platform,
            "ansible_user": image.user,
            "mltswitch_password_env": image.password_variable,
            "mltswitch_known_hosts_file": KNOWN_HOSTS,
        }
        group = groups.setdefault(image.platform.replace("-", "_"), {"vars": variables, "hosts": {}})
        group["hosts"][node.name] = {"ansible_host": str(node.address)}
    return {"all": {"children": groups}}


def _yaml(document: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True)
    return text
