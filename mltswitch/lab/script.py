"""The shell scripts that build the lab: a pure function of its layout, the same in every kernel.

One `ip -batch` makes namespaces and cables, then one shell per namespace sets it up, because starting a
process is what costs time inside user-mode-linux.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from typing import Final

from mltswitch.lab.bmv2_node import (
    QUIET_COMMANDS,
    HostDescription,
    host_commands,
    ip_batch,
    neighbour,
    offloads_off,
)
from mltswitch.lab.layout import MANAGEMENT_NAMESPACE, MANAGEMENT_NETWORK, MANAGEMENT_PORT, Layout
from mltswitch.lab.paths import LabPaths
from mltswitch.plan import Host, Switch
from mltswitch.wire.hardware_address import hardware_address

HEADER: Final = "#!/bin/sh\nset -eu\nPATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin\nexport PATH\n"
SWITCH_FILES: Final = "/run/mltswitch"
"""Folder of a switch's sshd files: a tmpfs of its own that only root can change (StrictModes)."""

_GATEWAY: Final = MANAGEMENT_NETWORK.network_address + 1
"""This machine in the management network."""

_FORWARDING: Final = """\
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy"""
_SSHD_CONFIG: Final = f"""\
Port 22
ListenAddress {{address}}
HostKey {SWITCH_FILES}/host_key
AuthorizedKeysFile {SWITCH_FILES}/authorized_keys
PidFile /run/sshd.pid
PermitRootLogin prohibit-password
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes yes
UseDNS no
AllowTcpForwarding no
AllowAgentForwarding no
X11Forwarding no
PrintMotd no
PrintLastLog no
MaxStartups 100
SetEnv PATH=/usr/sbin:/usr/bin:/sbin:/bin
Subsystem sftp internal-sftp
"""
_ACCOUNTS: Final = """\
root:x:0:0:root:/root:/bin/bash
sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin
nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin
"""
_SHADOW: Final = "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\nnobody:*:19000:0:99999:7:::\n"


def native_script(layout: Layout, paths: LabPaths) -> str:
    """The script that builds switches, hosts and cables as namespaces of the kernel that runs it."""
    return "\n".join(
        [
            HEADER,
            ip_batch([*_namespaces(layout.namespaces), *_switch_links(layout), *_cables(layout)]),
            _management_bridge(layout, address=f"{_GATEWAY}/{MANAGEMENT_NETWORK.prefixlen}"),
            *(_switch_setup(switch, layout, paths, log=True) for switch in layout.switches),
            *(host_setup(host, layout) for host in layout.real_hosts),
        ]
    )


def cable_batch(layout: Layout) -> str:
    """`ip -batch` lines for namespaces and cables without management, for switches that are processes."""
    return ip_batch([*_namespaces(layout.namespaces), *_cables(layout)])


def switches_script(layout: Layout, paths: LabPaths) -> str:
    """The script for a kernel with switches alone, which reach hosts and management by `vec` devices."""
    vectors = vector_devices(layout)
    to_hosts = [(switch, port) for switch, port in layout.cables() if port.peer_is_host]
    links = [
        *_namespaces((MANAGEMENT_NAMESPACE, *(layout.namespace(switch.name) for switch in layout.switches))),
        *_switch_links(layout),
        *_cables(layout, to_hosts=False),
        f"link set {vectors[MANAGEMENT_NAMESPACE]} netns {MANAGEMENT_NAMESPACE}",
    ]
    for switch, port in to_hosts:
        vector = vectors[layout.namespace(port.peer)]
        links.append(f"link set {vector} address {hardware_address(port.address)}")
        links.append(f"link set {vector} netns {layout.namespace(switch.name)} name {port.name}")
    return "\n".join(
        [
            HEADER,
            ip_batch(links),
            _management_bridge(layout, also=vectors[MANAGEMENT_NAMESPACE]),
            *(_switch_setup(switch, layout, paths, log=False) for switch in layout.switches),
        ]
    )


def taps_script(layout: Layout) -> str:
    """The script for the outside of user-mode-linux: namespaces, and a tap for each `vec` device."""
    vectors = vector_devices(layout)
    lines = [
        "link set lo up",
        *(f"tuntap add dev {_tap(vector)} mode tap" for vector in vectors.values()),
        *(
            f"link set {_tap(vector)} mtu {layout.fabric.ports.mtu_bytes}"
            for name, vector in vectors.items()
            if name != MANAGEMENT_NAMESPACE
        ),
        f"addr add {_GATEWAY}/{MANAGEMENT_NETWORK.prefixlen} dev {_tap('vec0')}",
        f"link set {_tap('vec0')} up",
    ]
    quiet = in_namespace(MANAGEMENT_NAMESPACE, QUIET_COMMANDS)
    return "\n".join([HEADER, ip_batch(_namespaces(vectors)), quiet, ip_batch(lines, MANAGEMENT_NAMESPACE)])


def hosts_script(layout: Layout) -> str:
    """The script that gives hosts their taps, once user-mode-linux has opened these in its own namespace."""
    vectors = vector_devices(layout)
    moves = [
        f"link set {_tap(vectors[layout.namespace(host.name)])} netns {layout.namespace(host.name)} "
        f"name {host.interface} address {hardware_address(host.address)}"
        for host in layout.real_hosts
    ]
    return "\n".join(
        [
            HEADER,
            ip_batch(moves, MANAGEMENT_NAMESPACE),
            in_namespace(MANAGEMENT_NAMESPACE, offloads_off(_tap(vectors[MANAGEMENT_NAMESPACE]))),
            *(host_setup(host, layout) for host in layout.real_hosts),
        ]
    )


def vector_devices(layout: Layout) -> dict[str, str]:
    """The `vec` device inside user-mode-linux for each namespace outside to which one leads."""
    names = (MANAGEMENT_NAMESPACE, *(layout.namespace(host.name) for host in layout.real_hosts))
    return {name: f"vec{position}" for position, name in enumerate(names)}


def vector_arguments(layout: Layout) -> list[str]:
    """Kernel arguments that tie each `vec` device to its tap and set its MTU, which nothing else can."""
    mtu_bytes = layout.fabric.ports.mtu_bytes
    return [
        f"{vector}:transport=tap,ifname={_tap(vector)}"
        + (f",mtu={mtu_bytes}" if name != MANAGEMENT_NAMESPACE and mtu_bytes != 1500 else "")
        for name, vector in vector_devices(layout).items()
    ]


def switch_files(layout: Layout) -> dict[str, str]:
    """Contents of the files that every switch's sshd reads, by file name; keys are not among them."""
    files = {
        f"sshd_{switch.name}": _SSHD_CONFIG.format(address=layout.management_address(switch))
        for switch in layout.switches
    }
    return {"passwd": _ACCOUNTS, "shadow": _SHADOW, **files}


def in_namespace(namespace: str, commands: str, shell: str = "sh -eu") -> str:
    """A shell command that runs these shell commands in a namespace."""
    return f"ip netns exec {namespace} {shell} <<'END'\n{commands}\nEND\n"


def host_setup(host: Host, layout: Layout) -> str:
    """The commands that set a host's namespace up."""
    commands = host_commands(host_description(host), layout.fabric.ports.mtu_bytes)
    return in_namespace(layout.namespace(host.name), commands)


def host_description(host: Host) -> HostDescription:
    """A host of the fabric as `network.json` describes it."""
    return HostDescription(
        name=host.name,
        interface=host.interface,
        mac=hardware_address(host.address),
        addresses=[f"{host.address}/30", *(f"{alias}/32" for _, alias in host.aliases)],
        gateway=str(host.gateway),
        gateway_mac=hardware_address(host.gateway),
    )


def _tap(vector: str) -> str:
    return vector.replace("vec", "tap")


def _namespaces(names: Iterable[str]) -> Iterator[str]:
    return (f"netns add {name}" for name in names)


def _switch_links(layout: Layout) -> Iterator[str]:
    """A cable to the management bridge for each switch, and its ports that lead nowhere."""
    for position, switch in enumerate(layout.switches, start=1):
        mac, namespace = hardware_address(layout.management_address(switch)), layout.namespace(switch.name)
        yield (
            f"link add {MANAGEMENT_PORT} address {mac} netns {namespace} "
            f"type veth peer name port{position} netns {MANAGEMENT_NAMESPACE}"
        )
        for port in switch.ports:
            if not layout.namespace(port.peer):
                yield f"link add {_end(port.name, port.address, layout)} netns {namespace} type dummy"


def _cables(layout: Layout, *, to_hosts: bool = True) -> Iterator[str]:
    """Cables between switches, and where wanted those to hosts."""
    for switch, port in layout.cables():
        if to_hosts or not port.peer_is_host:
            yield (
                f"link add {_end(port.name, port.address, layout)} netns {layout.namespace(switch.name)} "
                f"type veth peer name {_end(port.peer_port, port.peer_address, layout)} "
                f"netns {layout.namespace(port.peer)}"
            )


def _end(name: str, address: IPv4Address, layout: Layout) -> str:
    return f"{name} mtu {layout.fabric.ports.mtu_bytes} address {hardware_address(address)}"


def _management_bridge(layout: Layout, *, address: str = "", also: str = "") -> str:
    """The bridge in the management network that joins the switches, and another device where one is named."""
    members = [f"port{position}" for position in range(1, len(layout.switches) + 1)]
    if also:
        members.append(also)
    lines = ["link set lo up", "link add name bridge0 type bridge", "link set bridge0 up"]
    for name in members:
        lines += [f"link set {name} master bridge0", f"link set {name} up"]
    if address:
        lines.append(f"addr add {address} dev bridge0")
    commands = [QUIET_COMMANDS, ip_batch(lines), *map(offloads_off, members)]
    return in_namespace(MANAGEMENT_NAMESPACE, "\n".join(commands))


def _switch_setup(switch: Switch, layout: Layout, paths: LabPaths, *, log: bool) -> str:
    cabled = layout.cabled_ports(switch)
    address = f"{layout.management_address(switch)}/{MANAGEMENT_NETWORK.prefixlen}"
    lines = [
        "link set lo up",
        f"link set {MANAGEMENT_PORT} up",
        f"addr add {address} dev {MANAGEMENT_PORT}",
    ]
    for port in switch.ports:
        lines += [f"link set {port.name} up", f"addr add {port.address}/30 dev {port.name}"]
    lines += [neighbour(port.peer_address, hardware_address(port.peer_address), port.name) for port in cabled]
    for prefix, next_hops in layout.routes(switch).items():
        lines.append(f"route add {prefix} " + " ".join(f"nexthop via {hop}" for hop in next_hops))
    commands = [
        f"echo {switch.name} >/proc/sys/kernel/hostname",
        QUIET_COMMANDS,
        _FORWARDING,
        ip_batch(lines),
        *(offloads_off(name) for name in (MANAGEMENT_PORT, *(port.name for port in cabled))),
    ]
    if any(device.name == switch.name for device in layout.devices):
        commands.append(_sshd(switch.name, paths, log=log))
    return in_namespace(layout.namespace(switch.name), "\n".join(commands), "unshare --uts sh -eu")


def _sshd(switch: str, paths: LabPaths, *, log: bool) -> str:
    """Start the switch's sshd in mounts of its own; its files are opened before anything hides them."""
    files = {
        3: paths.work / f"sshd_{switch}",
        4: paths.host_keys / switch,
        5: paths.authorized_keys,
        6: paths.work / "passwd",
        7: paths.work / "shadow",
    }
    names = {3: "sshd_config", 4: "host_key", 5: "authorized_keys", 6: "passwd", 7: "shadow"}
    opened = " ".join(f"{number}<'{path}'" for number, path in files.items())
    output = f"'{paths.logs / f'{switch}.log'}'" if log else "/proc/1/fd/1"
    closed = " ".join(f"{number}<&-" for number in files)
    return "".join(
        [
            f"exec {opened} 8>>{output}\n",
            "for place in /run /tmp /root /var/log; do mount -t tmpfs -o mode=755 tmpfs $place; done\n",
            f"chmod 1777 /tmp; mkdir /run/sshd {SWITCH_FILES}; umask 077\n",
            ": >/var/log/lastlog; echo 'set enable-bracketed-paste off' >/root/.inputrc\n",
            *(f"cat <&{number} >{SWITCH_FILES}/{name}\n" for number, name in names.items()),
            f"chmod 644 {SWITCH_FILES}/passwd\n",
            f"mount --bind {SWITCH_FILES}/passwd /etc/passwd\n",
            f"mount --bind {SWITCH_FILES}/shadow /etc/shadow\n",
            f"umask 022; exec {closed}\n",
            f"/usr/sbin/sshd -D -e -f {SWITCH_FILES}/sshd_config </dev/null >/dev/null 2>&8 8>&- &\n",
        ]
    )
