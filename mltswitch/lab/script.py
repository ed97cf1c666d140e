"""The shell scripts that build the lab: a pure function of its layout, the same in every kernel.

One `ip -batch` makes namespaces and cables, then one shell per namespace sets it up, because starting a
process is what costs time inside user-mode-linux.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from typing import Final

from mltswitch.lab.layout import (
    MANAGEMENT_NAMESPACE,
    MANAGEMENT_NETWORK,
    MANAGEMENT_PORT,
    LabHost,
    LabPort,
    LabSwitch,
    Layout,
)
from mltswitch.lab.paths import LabPaths
from mltswitch.wire.hardware_address import hardware_address

HEADER: Final = "#!/bin/sh\nset -eu\nPATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin\nexport PATH\n"
SWITCH_FILES: Final = "/run/mltswitch"
"""Where a switch finds its sshd's files: a tmpfs of its own that only root can change (StrictModes)."""

# Alias addresses take another path back than forth; IPv6 would only add its own chatter to the queues.
_SYSCTLS: Final = """\
for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >"$file"; done
for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do [ ! -e "$file" ] || echo 1 >"$file"; done
"""
_FORWARDING: Final = """\
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy
"""
# A burst that an offload leaves whole crosses a queue as one packet, and a checksum left to an offload
# is wrong on a tap. Not every device and kernel knows every name, and user-mode-linux's devices forget
# the setting when they open: after the interface is up, and one by one where all at once is refused.
_OFFLOADS: Final = ("tx", "tso", "gso", "gro", "tx-udp-segmentation")

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
    """Switches, hosts and cables as namespaces of the kernel that runs the script."""
    cables = [
        *_namespaces(layout.namespaces),
        *_management_cables(layout),
        *_dummies(layout),
        *_switch_cables(layout),
        *_host_cables(layout),
    ]
    gateway = str(MANAGEMENT_NETWORK.network_address + 1)
    return "\n".join(
        [
            HEADER,
            _batch(cables),
            *_management_bridge(layout, address=f"{gateway}/{MANAGEMENT_NETWORK.prefixlen}"),
            *(_switch_setup(switch, layout, paths, log=True) for switch in layout.switches),
            *(_host_setup(host) for host in layout.real_hosts),
        ]
    )


def cable_batch(layout: Layout) -> str:
    """Namespaces and the cables between them, without management: for switches that are processes."""
    return _batch([*_namespaces(layout.namespaces), *_switch_cables(layout), *_host_cables(layout)])


def switches_script(layout: Layout, paths: LabPaths) -> str:
    """The switches alone, for a kernel that reaches hosts and management by its `vec` devices."""
    vectors = vector_devices(layout)
    places = {port.peer_namespace: (switch, port) for switch in layout.switches for port in switch.ports}
    cables = [
        *_namespaces((MANAGEMENT_NAMESPACE, *(switch.namespace for switch in layout.switches))),
        *_management_cables(layout),
        *_dummies(layout),
        *_switch_cables(layout),
        f"link set {vectors[MANAGEMENT_NAMESPACE]} netns {MANAGEMENT_NAMESPACE}",
    ]
    for host in layout.real_hosts:
        switch, port = places[host.namespace]
        vector = vectors[host.namespace]
        cables.append(f"link set {vector} address {hardware_address(port.address)}")
        cables.append(f"link set {vector} netns {switch.namespace} name {port.name}")
    return "\n".join(
        [
            HEADER,
            _batch(cables),
            *_management_bridge(layout, also=vectors[MANAGEMENT_NAMESPACE]),
            *(_switch_setup(switch, layout, paths, log=False) for switch in layout.switches),
        ]
    )


def taps_script(layout: Layout) -> str:
    """This side of a user-mode-linux instance: namespaces, and one tap per `vec` device to be opened."""
    hosts = [host.namespace for host in layout.real_hosts]
    gateway = MANAGEMENT_NETWORK.network_address + 1
    lines = [
        "link set lo up",
        *(f"tuntap add dev {_tap(vector)} mode tap" for vector in vector_devices(layout).values()),
        *(
            f"link set {_tap(vector)} mtu {layout.mtu_bytes}"
            for name, vector in vector_devices(layout).items()
            if name != MANAGEMENT_NAMESPACE
        ),
        f"addr add {gateway}/{MANAGEMENT_NETWORK.prefixlen} dev {_tap('vec0')}",
        f"link set {_tap('vec0')} up",
    ]
    quiet = f"ip netns exec {MANAGEMENT_NAMESPACE} sh -eu <<'END'\n{_SYSCTLS}END\n"
    return "\n".join(
        [
            HEADER,
            _batch(_namespaces((MANAGEMENT_NAMESPACE, *hosts))),
            quiet,
            _batch(lines, MANAGEMENT_NAMESPACE),
        ]
    )


def hosts_script(layout: Layout) -> str:
    """Give each host its tap; only after user-mode-linux opened it, which it does in its own namespace."""
    vectors = vector_devices(layout)
    moves = [
        f"link set {_tap(vectors[host.namespace])} netns {host.namespace} name {host.interface} "
        f"address {hardware_address(host.address)}"
        for host in layout.real_hosts
    ]
    return "\n".join(
        [
            HEADER,
            _batch(moves, MANAGEMENT_NAMESPACE),
            _offloads_in(MANAGEMENT_NAMESPACE, [_tap(vectors[MANAGEMENT_NAMESPACE])]),
            *(_host_setup(host) for host in layout.real_hosts),
        ]
    )


def vector_devices(layout: Layout) -> dict[str, str]:
    """Namespace outside → `vec` device inside that leads there."""
    names = (MANAGEMENT_NAMESPACE, *(host.namespace for host in layout.real_hosts))
    return {name: f"vec{position}" for position, name in enumerate(names)}


def vector_arguments(layout: Layout) -> list[str]:
    """Kernel arguments that tie each `vec` device to its tap; an MTU can be set nowhere else."""
    return [
        f"{vector}:transport=tap,ifname={_tap(vector)}"
        + (f",mtu={layout.mtu_bytes}" if name != MANAGEMENT_NAMESPACE and layout.mtu_bytes != 1500 else "")
        for name, vector in vector_devices(layout).items()
    ]


def switch_files(layout: Layout) -> dict[str, str]:
    """Files that every switch's sshd reads, by name; its keys come beside them."""
    files = {
        f"sshd_{switch.name}": _SSHD_CONFIG.format(address=switch.management_address)
        for switch in layout.switches
    }
    return {"passwd": _ACCOUNTS, "shadow": _SHADOW, **files}


def _tap(vector: str) -> str:
    return vector.replace("vec", "tap")


def _batch(lines: Iterable[str], namespace: str = "") -> str:
    command = f"ip -n {namespace} -batch -" if namespace else "ip -batch -"
    return "\n".join([f"{command} <<'END'", *lines, "END", ""])


def _namespaces(names: Iterable[str]) -> Iterator[str]:
    return (f"netns add {name}" for name in names)


def _management_cables(layout: Layout) -> Iterator[str]:
    for position, switch in enumerate(layout.switches, start=1):
        mac = hardware_address(switch.management_address)
        yield (
            f"link add {MANAGEMENT_PORT} address {mac} netns {switch.namespace} "
            f"type veth peer name port{position} netns {MANAGEMENT_NAMESPACE}"
        )


def _dummies(layout: Layout) -> Iterator[str]:
    """Ports that lead nowhere."""
    for switch in layout.switches:
        for port in switch.ports:
            if not port.peer_namespace:
                yield (
                    f"link add {port.name} mtu {layout.mtu_bytes} address {hardware_address(port.address)} "
                    f"netns {switch.namespace} type dummy"
                )


def _switch_cables(layout: Layout) -> Iterator[str]:
    """Cables between switches, each once."""
    for switch in layout.switches:
        for port in switch.ports:
            if port.peer_namespace and not port.peer_is_host and port.address < port.peer_address:
                yield _cable(switch, port, layout.mtu_bytes)


def _host_cables(layout: Layout) -> Iterator[str]:
    for switch in layout.switches:
        for port in switch.ports:
            if port.peer_is_host and port.peer_namespace:
                yield _cable(switch, port, layout.mtu_bytes)


def _cable(switch: LabSwitch, port: LabPort, mtu_bytes: int) -> str:
    return (
        f"link add {port.name} mtu {mtu_bytes} address {hardware_address(port.address)} "
        f"netns {switch.namespace} type veth "
        f"peer name {port.peer_port} mtu {mtu_bytes} address {hardware_address(port.peer_address)} "
        f"netns {port.peer_namespace}"
    )


def _management_bridge(layout: Layout, *, address: str = "", also: str = "") -> Iterator[str]:
    members = [f"port{position}" for position in range(1, len(layout.switches) + 1)]
    if also:
        members.append(also)
    yield f"ip netns exec {MANAGEMENT_NAMESPACE} sh -eu <<'END'\n{_SYSCTLS}END\n"
    yield _batch(
        [
            "link set lo up",
            "link add name bridge0 type bridge",
            "link set bridge0 up",
            *(
                line
                for name in members
                for line in (f"link set {name} master bridge0", f"link set {name} up")
            ),
            *([f"addr add {address} dev bridge0"] if address else []),
        ],
        MANAGEMENT_NAMESPACE,
    )
    yield _offloads_in(MANAGEMENT_NAMESPACE, members)


def _switch_setup(switch: LabSwitch, layout: Layout, paths: LabPaths, *, log: bool) -> str:
    cabled = [port for port in switch.ports if port.peer_namespace]
    addresses = [
        "link set lo up",
        f"link set {MANAGEMENT_PORT} up",
        f"addr add {switch.management_address}/{MANAGEMENT_NETWORK.prefixlen} dev {MANAGEMENT_PORT}",
    ]
    for port in switch.ports:
        addresses += [f"link set {port.name} up", f"addr add {port.address}/30 dev {port.name}"]
    addresses += [_neighbour(port.peer_address, port.name) for port in cabled]
    for route in switch.routes:
        hops = " ".join(f"nexthop via {hop}" for hop in route.next_hops)
        addresses.append(f"route add {route.prefix} {hops}")
    reachable = {device.name for device in layout.devices}
    return "".join(
        [
            f"ip netns exec {switch.namespace} unshare --uts sh -eu <<'END'\n",
            f"echo {switch.name} >/proc/sys/kernel/hostname\n",
            _SYSCTLS,
            _FORWARDING,
            "ip -batch - <<'ADDRESSES'\n" + "\n".join(addresses) + "\nADDRESSES\n",
            *(_offloads(name) for name in (MANAGEMENT_PORT, *(port.name for port in cabled))),
            _sshd(switch, paths, log=log) if switch.name in reachable else "",
            "END\n",
        ]
    )


def _host_setup(host: LabHost) -> str:
    addresses = [
        "link set lo up",
        f"link set {host.interface} up",
        f"addr add {host.address}/30 dev {host.interface}",
        *(f"addr add {alias}/32 dev {host.interface}" for _, alias in host.aliases),
        _neighbour(host.gateway, host.interface),
        f"route add default via {host.gateway} src {host.address}",
    ]
    return "".join(
        [
            f"ip netns exec {host.namespace} sh -eu <<'END'\n",
            _SYSCTLS,
            "ip -batch - <<'ADDRESSES'\n" + "\n".join(addresses) + "\nADDRESSES\n",
            _offloads(host.interface),
            "END\n",
        ]
    )


def _neighbour(address: IPv4Address, interface: str) -> str:
    # ARP would wait in the background queue, which an overloaded port may starve for longer than
    # an entry lives.
    mac = hardware_address(address)
    return f"neigh replace {address} lladdr {mac} nud permanent dev {interface}"


def _offloads(interface: str) -> str:
    together = " ".join(f"{name} off" for name in _OFFLOADS)
    return (
        f"ethtool -K {interface} {together} >/dev/null 2>&1 || "
        f"for feature in {' '.join(_OFFLOADS)}; do "
        f"ethtool -K {interface} $feature off >/dev/null 2>&1 || :; done\n"
    )


def _offloads_in(namespace: str, interfaces: Iterable[str]) -> str:
    return f"ip netns exec {namespace} sh -eu <<'END'\n{''.join(map(_offloads, interfaces))}END\n"


def _sshd(switch: LabSwitch, paths: LabPaths, *, log: bool) -> str:
    """Start the switch's sshd in mounts of its own; its files are opened before anything hides them."""
    files = {
        3: paths.work / f"sshd_{switch.name}",
        4: paths.host_keys / switch.name,
        5: paths.authorized_keys,
        6: paths.work / "passwd",
        7: paths.work / "shadow",
    }
    names = {3: "sshd_config", 4: "host_key", 5: "authorized_keys", 6: "passwd", 7: "shadow"}
    opened = " ".join(f"{number}<'{path}'" for number, path in files.items())
    output = f"'{paths.logs / f'{switch.name}.log'}'" if log else "/proc/1/fd/1"
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
