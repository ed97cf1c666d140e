"""BMv2 switches and their hosts: `network.json`, the commands that set a node up, and a BMv2's start and end.

This file and mininet_bmv2.py need nothing of mltswitch, so that the system's Python can run them, which has
Debian's mininet. The lab's own namespaces are set up by the same commands.
"""

import ctypes
import errno
import functools
import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypedDict, get_args, get_origin, is_typeddict

PROGRAM: Final = "simple_switch_grpc"
GRPC_PORT: Final = 9559
THRIFT_PORT: Final = 9090
CPU_PORT: Final = 255
QUEUES: Final = 8
NAMESPACE_PREFIX: Final = "mlt-"
"""Prefix of the names of all the lab's network namespaces; no other namespace is touched."""
START_SECONDS: Final = 30.0
LOOPBACK_SERVER: Final = f"127.0.0.1:{GRPC_PORT}"
RUN: Final = Path("/run")
"""The folder, writable by root alone, in which each switch of mininet's `mn` has its own folder."""
END_SECONDS: Final = 5.0
"""A switch that has not ended within these seconds of being told to is killed."""

BURST_FRAMES: Final = 8
"""Burst of a link's token bucket, in frames: what a switch may catch up after it was not scheduled."""
LINK_BACKLOG_BYTES: Final = 1_000_000
"""Queue of a link's token bucket, longer than a send buffer, so that the link blocks BMv2 and never drops."""
SEND_BUFFER_BYTES: Final = 1
"""Requested send buffer, which the kernel raises to two frames: all else waits in BMv2's own queues."""

_PIDFD_GETFD: Final = 438
_LISTENING: Final = "0A"
_POLL_SECONDS: Final = 0.02


class _Kind(NamedTuple):
    """What one value of the file must be, beside its type."""

    holds: Callable[[Any], object]
    words: str


def _is_address(kind: type[IPv4Address], found: str) -> bool:
    try:
        kind(found)
    except ValueError:
        return False
    return True


def _whole_number(first: int, last: int) -> _Kind:
    return _Kind(range(first, last + 1).__contains__, f"whole number from {first} to {last}")


_NODE: Final = _Kind(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}").fullmatch, "name that a node or an interface can have"
)
_INTERFACE: Final = _Kind(re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}").fullmatch, _NODE.words)
_MAC: Final = _Kind(re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}").fullmatch, "MAC address")
_ADDRESS: Final = _Kind(functools.partial(_is_address, IPv4Address), "IPv4 address")
_WITH_LENGTH: Final = _Kind(functools.partial(_is_address, IPv4Interface), _ADDRESS.words)
_TEXT: Final = _Kind(re.compile(r"[^\0]*").fullmatch, "text")
_COUNT: Final = _whole_number(0, sys.maxsize - 1)
_LOG_LEVELS: Final = ("trace", "debug", "info", "warn", "error", "off")
_LOG_LEVEL: Final = _Kind(_LOG_LEVELS.__contains__, f"log level of {', '.join(_LOG_LEVELS)}")
_MTU: Final = _whole_number(68, 65535)


class PortDescription(TypedDict):
    """One switch port in `network.json`: `number` is BMv2's, `name` the interface's; rate 0 is unlimited."""

    number: Annotated[int, _COUNT]
    name: Annotated[str, _INTERFACE]
    mac: Annotated[str, _MAC]
    rate_bps: Annotated[int, _COUNT]


class SwitchDescription(TypedDict):
    """One switch in `network.json`; an empty `pcap_folder` captures nothing.

    `notifications_file` is where older versions of BMv2 make a socket for what they tell of learning and
    ageing. Where it is empty the mininet switch has a folder for it and for its P4Runtime socket.
    """

    name: Annotated[str, _NODE]
    log_level: Annotated[str, _LOG_LEVEL]
    log_file: Annotated[str, _TEXT]
    pcap_folder: Annotated[str, _TEXT]
    notifications_file: Annotated[str, _TEXT]
    ports: list[PortDescription]


class HostDescription(TypedDict):
    """One host in `network.json`; its first address is the one it sends from."""

    name: Annotated[str, _NODE]
    interface: Annotated[str, _INTERFACE]
    mac: Annotated[str, _MAC]
    gateway_mac: Annotated[str, _MAC]
    gateway: Annotated[str, _ADDRESS]
    addresses: list[Annotated[str, _WITH_LENGTH]]


class LinkDescription(TypedDict):
    """One cable in `network.json`; each of its two ends is written `node:interface`."""

    a: Annotated[str, _TEXT]
    b: Annotated[str, _TEXT]


class SwitchOptions(TypedDict):
    """The options behind `mn --switch bmv2,` for switches that no `network.json` describes."""

    mtu_bytes: Annotated[int, _MTU]
    rate_bps: Annotated[int, _COUNT]
    log_level: Annotated[str, _LOG_LEVEL]


class NetworkDescription(TypedDict):
    """The content of `network.json`: the switches, hosts and links of a network."""

    mtu_bytes: Annotated[int, _MTU]
    switches: list[SwitchDescription]
    hosts: list[HostDescription]
    links: list[LinkDescription]


class InputError(SystemExit):
    """An invalid `network.json` or option; not an Exception, so that `mn` ends without its clean-up."""


def read_network(network_file: str) -> NetworkDescription:
    """What a `network.json` says; raises InputError, which names the place, before anything is made."""
    try:
        network = json.loads(Path(network_file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{network_file}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{network_file}: is no JSON: {error}") from None
    try:
        check(network, NetworkDescription, "")
        _check_names(network)
    except InputError as error:
        raise InputError(f"{network_file}: {error}") from None
    found: NetworkDescription = network
    return found


def check(found: Any, shape: Any, place: str) -> None:
    """Raise InputError unless a value of `network.json` has the given type; `place` names it in the error."""
    if is_typeddict(shape):
        for key, inner in shape.__annotations__.items():
            where = f"{place}.{key}" if place else key
            if not isinstance(found, dict) or key not in found:
                raise InputError(f"{where}: is missing")
            check(found[key], inner, where)
    elif get_origin(shape) is list:
        if not isinstance(found, list):
            raise InputError(f"{place}: is no list")
        for number, member in enumerate(found):
            check(member, get_args(shape)[0], f"{place}[{number}]")
    else:
        base, kind = get_args(shape)
        if type(found) is not base or not kind.holds(found):
            raise InputError(f"{place}: {found!a} is no {kind.words}")


def _check_names(network: NetworkDescription) -> None:
    """Every node and port is there once, and every cable has two ends that are there."""
    known: set[str] = set()
    for place, name in _names(network):
        if name in known:
            raise InputError(f"{place}: {name!a} is there twice")
        known.add(name)
    for number, host in enumerate(network["hosts"]):
        if not host["addresses"]:
            raise InputError(f"hosts[{number}].addresses: is empty")
    for number, link in enumerate(network["links"]):
        for key, end in (("a", link["a"]), ("b", link["b"])):
            if ":" not in end or end not in known:
                raise InputError(f"links[{number}].{key}: {end!a} is no port that is described")


def _names(network: NetworkDescription) -> Iterator[tuple[str, str]]:
    """The places of all names in the file, and the names: a node's own, and `node:interface` of its ports."""
    for number, switch in enumerate(network["switches"]):
        yield f"switches[{number}].name", switch["name"]
        for position, port in enumerate(switch["ports"]):
            yield f"switches[{number}].ports[{position}].name", f"{switch['name']}:{port['name']}"
    for number, host in enumerate(network["hosts"]):
        yield f"hosts[{number}].name", host["name"]
        yield f"hosts[{number}].interface", f"{host['name']}:{host['interface']}"


def run_folder(name: str) -> Path:
    """The folder of a switch that mininet's `mn` runs; only root may enter it."""
    return RUN / f"{NAMESPACE_PREFIX}{name}"


def p4runtime_address(name: str) -> str:
    """The address at which a switch of mininet's `mn` serves P4Runtime."""
    return f"unix:{run_folder(name)}/p4runtime"


def bmv2_command(switch: SwitchDescription, server: str = LOOPBACK_SERVER) -> list[str]:
    """Command line of a BMv2 switch without a P4 program; `server` is its address for P4Runtime."""
    command = [shutil.which(PROGRAM) or PROGRAM, "--no-p4", "--device-id", "1", "-L", switch["log_level"]]
    if switch["log_level"] != "off":
        command.append("--log-console")
    if switch["pcap_folder"]:
        command.append(f"--pcap={switch['pcap_folder']}")
    for port in switch["ports"]:
        command += ["-i", f"{port['number']}@{port['name']}"]
    # Newer versions keep these to themselves; the others' own choice is one name in /tmp for all switches,
    # which anybody may take first.
    if takes_notifications():
        command += ["--notifications-addr", f"ipc://{switch['notifications_file']}"]
    command += ["--thrift-port", str(THRIFT_PORT), "--"]
    command += ["--grpc-server-addr", server]
    return [*command, "--cpu-port", str(CPU_PORT), "--priority-queues", str(QUEUES)]


@functools.cache
def takes_notifications() -> bool:
    """Whether BMv2 knows `--notifications-addr`: built without nanomsg it does not, and ends at once.

    BMv2's help tells (src/bm_sim/options_parse.cpp); if it cannot be read, the option is taken to exist.
    """
    try:
        told = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return (
        "--device-id" not in told.stdout + told.stderr or "--notifications-addr" in told.stdout + told.stderr
    )


def switch_commands(switch: SwitchDescription, mtu_bytes: int) -> str:
    """Shell commands that set a switch's namespace up.

    Its ports have no addresses: what they receive is BMv2's alone, and no host reaches the two servers.
    """
    ports = switch["ports"]
    lines = [
        "link set lo up",
        *(f"link set {_word(port['name'])} mtu {_word(mtu_bytes)} up" for port in ports),
    ]
    shaped = [
        link_rate_command(port["name"], port["rate_bps"], mtu_bytes) for port in ports if port["rate_bps"]
    ]
    offloads = [offloads_off(port["name"]) for port in ports]
    return "\n".join([QUIET_COMMANDS, ip_batch(lines), *offloads, *shaped])


def link_rate_command(interface: str, rate_bps: int, mtu_bytes: int) -> str:
    """Shell command that limits an interface's rate and blocks its sender, so that packets queue in BMv2."""
    burst = BURST_FRAMES * (mtu_bytes + 14)  # tc counts the Ethernet header, too
    return (
        f"tc qdisc replace dev {_word(interface)} root tbf rate {_word(rate_bps)}bit burst {_word(burst)} "
        f"limit {LINK_BACKLOG_BYTES}"
    )


def host_commands(host: HostDescription, mtu_bytes: int) -> str:
    """Shell commands that set a host's namespace up."""
    interface, gateway = _word(host["interface"]), _word(host["gateway"])
    source = _word(host["addresses"][0].partition("/")[0])
    lines = [
        "link set lo up",
        f"link set {interface} mtu {_word(mtu_bytes)} up",
        *(f"addr add {_word(address)} dev {interface}" for address in host["addresses"]),
        neighbour(gateway, _word(host["gateway_mac"]), interface),
        f"route add default via {gateway} src {source}",
    ]
    return "\n".join([QUIET_COMMANDS, ip_batch(lines), offloads_off(host["interface"])])


def neighbour(address: object, mac: str, interface: str) -> str:
    """An `ip` command line that adds a permanent neighbour entry.

    BMv2 answers no ARP, and on Linux it would wait in the background queue, which an overloaded port may
    starve for longer than an entry lives.
    """
    return f"neigh replace {address} lladdr {mac} nud permanent dev {interface}"


def ip_batch(lines: Iterable[str], namespace: str = "") -> str:
    """A shell command that gives these lines to one `ip -batch`, in another namespace if one is named."""
    inside = f" -n {namespace}" if namespace else ""
    return "\n".join([f"ip{inside} -batch - <<'LINES'", *lines, "LINES"])


def _word(value: object) -> str:
    """A value as one word of the shell, whatever it holds."""
    return shlex.quote(str(value))


# IPv6 would only add its own chatter to the queues; alias addresses take another path back than forth.
QUIET_COMMANDS: Final = (
    'for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do [ ! -e "$file" ] || echo 1 >"$file"; done\n'
    'for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >"$file"; done'
)
_OFFLOADS: Final = ("tx", "tso", "gso", "gro", "tx-udp-segmentation")


def offloads_off(interface: str) -> str:
    """Shell commands that turn off an interface's offloads: a merged burst would pass a queue as one packet.

    Not every device and kernel knows every name, and user-mode-linux's devices forget the setting when they
    open: after the interface is up, and one by one where all at once is refused.
    """
    change = f"ethtool -K {_word(interface)}"
    return (
        f"{change} {' '.join(f'{name} off' for name in _OFFLOADS)} >/dev/null 2>&1 || "
        f"for feature in {' '.join(_OFFLOADS)}; do {change} $feature off >/dev/null 2>&1 || :; done"
    )


def finish_start(process_id: int, name: str, server: str = LOOPBACK_SERVER) -> None:
    """Wait until a started BMv2 serves gRPC, then set the smallest send buffers; raises OSError.

    What waits in the buffer of a port's socket has left BMv2's queues and knows no priority any more. Linux
    grants 200 kB, which is 140 frames.
    """
    deadline = time.monotonic() + START_SECONDS
    while not _serves(process_id, name, server):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name}: BMv2 did not serve gRPC within {START_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
    shrink_send_buffers(process_id)


def _serves(process_id: int, name: str, server: str) -> bool:
    try:
        if not _runs_bmv2(process_id):
            return False
        if server == LOOPBACK_SERVER:
            return GRPC_PORT in listening_ports(process_id)
        with socket.socket(socket.AF_UNIX) as caller:
            return caller.connect_ex(server.partition(":")[2]) == 0
    except OSError:
        raise ChildProcessError(f"{name}: BMv2 ended while it started") from None


def _runs_bmv2(process_id: int) -> bool:
    """Whether the process became BMv2; until then it may stand in another namespace."""
    command = Path(f"/proc/{process_id}/comm").read_text(encoding="utf-8", errors="replace")
    return command.strip() == PROGRAM[:15]  # all that the kernel keeps of a name


def listening_ports(process_id: int) -> set[int]:
    """TCP ports that something listens on in the process's namespace; raises OSError once it has ended."""
    folder = Path(f"/proc/{process_id}/net")
    rows = [*tcp_rows(folder / "tcp"), *tcp_rows(folder / "tcp6")]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENING}


def tcp_rows(table: Path) -> list[list[str]]:
    """The sockets listed in a TCP table of the kernel (proc(5), /proc/net/tcp), each as its columns."""
    return [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]


def shrink_send_buffers(process_id: int) -> int:
    """Set SO_SNDBUF of every packet socket of a process (pidfd_getfd(2)); returns how many there were."""
    libc, count = ctypes.CDLL(None, use_errno=True), 0
    with os.fdopen(os.pidfd_open(process_id), "rb") as process:
        for entry in [*Path(f"/proc/{process_id}/fd").iterdir()]:
            descriptor = libc.syscall(_PIDFD_GETFD, process.fileno(), int(entry.name), 0)
            if descriptor < 0 and ctypes.get_errno() == errno.EBADF:
                continue  # closed meanwhile, as the connection is by which we look whether a BMv2 serves
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "pidfd_getfd")
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                continue
            with socket.socket(fileno=descriptor) as channel:
                if channel.family == socket.AF_PACKET:
                    channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                    count += 1
    return count


def end_switch(process: subprocess.Popen[bytes]) -> None:
    """Tell BMv2 to end, and kill it when it has not within `END_SECONDS`."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
