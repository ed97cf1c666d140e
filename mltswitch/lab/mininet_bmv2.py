"""BMv2 switches in mininet: the lab's network, and a `bmv2` switch for topologies of your own.

Stands alone: needs Debian's mininet and BMv2, and nothing of mltswitch, so the system's Python can run it. It
is one file, because `mn` executes it without a folder that it could import others from.

    sudo mn --custom mininet_bmv2.py --topo mltswitch,network.json --switch bmv2 --controller none
    sudo mn --custom mininet_bmv2.py --topo tree,2 --mac --arp --switch bmv2 --controller none
    sudo python3 mininet_bmv2.py network.json      # without a prompt, until SIGTERM

Every switch has a network namespace of its own, `mlt-NAME` for ip-netns(8), where no host reaches its
servers: thrift at port 9090, and P4Runtime at `unix:/run/mlt-NAME/p4runtime`, or at port 9559 in the lab.
Without mininet the module still imports: the lab's own namespaces are set up by the same commands.

What is wrong with the input ends `mn` at once. After any other exception mn cleans up: it kills processes by
name (ping and OpenFlow controllers, whose ever they are), and deletes all *.log and *.out in /tmp.
"""

import atexit
import ctypes
import errno
import functools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import IO, Annotated, Any, Final, NamedTuple, TypedDict, get_args, get_origin, is_typeddict

try:
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.node import Host, Switch
    from mininet.topo import Topo
except ImportError:  # the commands below need none of it
    Host = Switch = Topo = object

PROGRAM: Final = "simple_switch_grpc"
GRPC_PORT: Final = 9559
THRIFT_PORT: Final = 9090
CPU_PORT: Final = 255
QUEUES: Final = 8
NAMESPACE_PREFIX: Final = "mlt-"
READY_LINE: Final = "mltswitch: ready"
START_SECONDS: Final = 30.0
LOOPBACK_SERVER: Final = f"127.0.0.1:{GRPC_PORT}"
RUN: Final = Path("/run")
"""Below it, where only root writes, each switch of `mn` has a folder that only root enters."""
END_SECONDS: Final = 5.0
"""A switch that was told to end and did not is killed."""

BURST_FRAMES: Final = 8
"""Of the link's token bucket: a switch that was not served for so long makes up for it; the rate holds."""
LINK_BACKLOG_BYTES: Final = 1_000_000
"""More than a send buffer holds: the link must never drop, it must keep BMv2 waiting."""
SEND_BUFFER_BYTES: Final = 1
"""The kernel makes it the least it allows, two frames: all else waits in BMv2, where it has a priority."""

_PIDFD_GETFD: Final = 438
_LISTENING: Final = "0A"
_POLL_SECONDS: Final = 0.02


class _Kind(NamedTuple):
    """What one value of the file must be."""

    holds: Callable[[object], bool]
    words: str


def _text_like(pattern: str, words: str) -> _Kind:
    like = re.compile(pattern)
    return _Kind(lambda found: isinstance(found, str) and like.fullmatch(found) is not None, words)


def _whole_number(allowed: range) -> _Kind:
    words = f"whole number from {allowed[0]} to {allowed[-1]}"
    return _Kind(lambda found: type(found) is int and found in allowed, words)


def _address(kind: type[IPv4Address]) -> _Kind:
    def holds(found: object) -> bool:
        try:
            kind(str(found))  # of a whole number they would make an address
        except ValueError:
            return False
        return True

    return _Kind(holds, "IPv4 address")


_NODE: Final = _text_like(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "name that a node or an interface can have")
_INTERFACE: Final = _text_like(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", _NODE.words)
_MAC: Final = _text_like(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}", "MAC address")
_TEXT: Final = _text_like(r"[^\0]*", "text")
_COUNT: Final = _whole_number(range(sys.maxsize))
_LOG_LEVEL: Final = _text_like(
    "trace|debug|info|warn|error|off", "log level of trace, debug, info, warn, error, off"
)
_MTU: Final = _whole_number(range(68, 65536))


class PortDescription(TypedDict):
    """One port: `number` is BMv2's, `name` the interface's; rate 0 is unlimited."""

    number: Annotated[int, _COUNT]
    name: Annotated[str, _INTERFACE]
    mac: Annotated[str, _MAC]
    rate_bps: Annotated[int, _COUNT]


class SwitchDescription(TypedDict):
    """One switch; an empty `pcap_folder` captures nothing.

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
    """One host; the first address is what it sends from."""

    name: Annotated[str, _NODE]
    interface: Annotated[str, _INTERFACE]
    mac: Annotated[str, _MAC]
    gateway_mac: Annotated[str, _MAC]
    gateway: Annotated[str, _address(IPv4Address)]
    addresses: list[Annotated[str, _address(IPv4Interface)]]


class LinkDescription(TypedDict):
    """One cable between two ends, each `node:interface`."""

    a: Annotated[str, _TEXT]
    b: Annotated[str, _TEXT]


class NetworkDescription(TypedDict):
    """What `network.json` holds."""

    mtu_bytes: Annotated[int, _MTU]
    switches: list[SwitchDescription]
    hosts: list[HostDescription]
    links: list[LinkDescription]


def run_folder(name: str) -> Path:
    """Of a switch that mn runs."""
    return RUN / f"{NAMESPACE_PREFIX}{name}"


def p4runtime_address(name: str) -> str:
    """Of a switch that mn runs."""
    return f"unix:{run_folder(name)}/p4runtime"


def bmv2_command(switch: SwitchDescription, server: str = LOOPBACK_SERVER) -> list[str]:
    """Command line of one switch without a program; `server` is where it listens for P4Runtime."""
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

    Its help says so (src/bm_sim/options_parse.cpp); one that cannot be asked is taken to know it.
    """
    try:
        told = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return (
        "--device-id" not in told.stdout + told.stderr or "--notifications-addr" in told.stdout + told.stderr
    )


def switch_commands(switch: SwitchDescription, mtu_bytes: int) -> str:
    """Shell commands that set its namespace up.

    Its ports have no addresses: what they receive is BMv2's alone, and no host reaches the two servers.
    """
    lines = [QUIET_COMMANDS, "ip link set lo up"]
    for port in switch["ports"]:
        name = port["name"]
        lines += [f"ip link set {_word(name)} mtu {_word(mtu_bytes)} up", _offloads_off(name)]
        if port["rate_bps"]:
            lines.append(link_rate_command(name, port["rate_bps"], mtu_bytes))
    return "\n".join(lines)


def link_rate_command(interface: str, rate_bps: int, mtu_bytes: int) -> str:
    """A link of this rate that keeps its sender waiting, so that packets queue up in BMv2."""
    burst = BURST_FRAMES * (mtu_bytes + 14)  # tc counts the Ethernet header, too
    return (
        f"tc qdisc replace dev {_word(interface)} root tbf rate {_word(rate_bps)}bit burst {_word(burst)} "
        f"limit {LINK_BACKLOG_BYTES}"
    )


def host_commands(host: HostDescription, mtu_bytes: int) -> str:
    """Shell commands that set its namespace up; BMv2 answers no ARP, so its neighbour is permanent."""
    interface, gateway = _word(host["interface"]), _word(host["gateway"])
    source = _word(host["addresses"][0].partition("/")[0])
    return "\n".join(
        [
            QUIET_COMMANDS,
            "ip link set lo up",
            f"ip link set {interface} mtu {_word(mtu_bytes)} up",
            *(f"ip addr add {_word(address)} dev {interface}" for address in host["addresses"]),
            f"ip neigh replace {gateway} lladdr {_word(host['gateway_mac'])} nud permanent dev {interface}",
            f"ip route add default via {gateway} src {source}",
            _offloads_off(host["interface"]),
        ]
    )


def _word(value: object) -> str:
    """A value as one word of the shell, whatever it holds."""
    return shlex.quote(str(value))


# IPv6 would only add its own chatter to the queues; alias addresses take another path back than forth.
QUIET_COMMANDS: Final = (
    'for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do [ ! -e "$file" ] || echo 1 >"$file"; done\n'
    'for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >"$file"; done'
)


def _offloads_off(interface: str) -> str:
    """A burst that an offload leaves whole would cross a queue as one packet, without its checksum."""
    features = ("tx", "tso", "gso", "gro", "tx-udp-segmentation")
    return (
        f"for feature in {' '.join(features)}; do "
        f"ethtool -K {_word(interface)} $feature off >/dev/null 2>&1 || :; done"
    )


def finish_start(process_id: int, name: str, server: str = LOOPBACK_SERVER) -> None:
    """Wait until a started BMv2 serves gRPC, then leave it the smallest send buffers; raises OSError.

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
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process_id}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == _LISTENING:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports


def shrink_send_buffers(process_id: int) -> int:
    """Set SO_SNDBUF of every packet socket of a process (pidfd_getfd(2)); returns how many there were."""
    count = 0
    with os.fdopen(os.pidfd_open(process_id), "rb") as process:
        for number in _socket_numbers(process_id):
            channel = _shared(process.fileno(), number)
            if channel is None:
                continue
            with channel:
                if channel.family == socket.AF_PACKET:
                    channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                    count += 1
    return count


def _socket_numbers(process_id: int) -> Iterator[int]:
    for entry in Path(f"/proc/{process_id}/fd").iterdir():
        try:
            if str(entry.readlink()).startswith("socket:"):
                yield int(entry.name)
        except FileNotFoundError:  # it was closed meanwhile
            continue


def _shared(process: int, number: int) -> socket.socket | None:
    """A socket of another process; none where it was closed meanwhile, or its number is another file's.

    The connection by which we look whether a BMv2 serves is closed there about then.
    """
    descriptor = -1
    try:
        descriptor = _duplicate(process, number)
        return socket.socket(fileno=descriptor)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        if error.errno not in {errno.EBADF, errno.ENOTSOCK}:
            raise
        return None


def _duplicate(process: int, number: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.syscall(_PIDFD_GETFD, process, number, 0))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "pidfd_getfd")
    return descriptor


def end_switch(process: subprocess.Popen[bytes]) -> None:
    """Tell BMv2 to end, and kill it when it has not within `END_SECONDS`."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _run(node: Any, commands: str) -> None:
    """Commands inside a mininet node; raises RuntimeError with what they said."""
    output, errors, code = node.pexec(["sh", "-euc", commands])
    if code:
        raise RuntimeError(f"{node.name}: {errors or output}")


_named: Final[set[str]] = set()


def _give_name(node: Any) -> None:
    """Make the node's namespace known to ip-netns(8), until the node or mininet ends."""
    subprocess.run(["ip", "netns", "attach", NAMESPACE_PREFIX + node.name, str(node.pid)], check=True)
    _named.add(node.name)


def _take_name(name: str) -> None:
    _named.discard(name)
    subprocess.run(["ip", "netns", "delete", NAMESPACE_PREFIX + name], check=False, stderr=subprocess.DEVNULL)


@atexit.register
def _take_all_names() -> None:
    for name in sorted(_named):
        _take_name(name)


class LabHost(Host):  # type: ignore[misc]  # mininet has no types
    """A host as `network.json` describes it."""

    def __init__(self, name: str, description: HostDescription, mtu_bytes: int, **params: Any) -> None:
        super().__init__(name, **params)
        self.description, self.mtu_bytes = description, mtu_bytes
        _give_name(self)

    def config(self, **_params: Any) -> dict[str, Any]:
        """Addresses, route and neighbour, in place of mininet's own address."""
        _run(self, host_commands(self.description, self.mtu_bytes))
        return {}

    def terminate(self) -> None:
        """Also take its namespace's name."""
        super().terminate()
        _take_name(self.name)


class BMv2Switch(Switch):  # type: ignore[misc]  # likewise
    """BMv2 in a namespace of its own; without a description it serves the links that mininet gave it."""

    def __init__(
        self,
        name: str,
        description: SwitchDescription | None = None,
        *,
        mtu_bytes: int = 1500,
        rate_bps: int = 0,
        log_level: str = "off",
        **params: Any,
    ) -> None:
        _check_switch(mtu_bytes, rate_bps, log_level)
        params.setdefault("dpid", "1")  # OpenFlow's, which BMv2 does not have
        super().__init__(name, **{**params, "inNamespace": True})
        self.description = description
        self.mtu_bytes, self.rate_bps, self.log_level = mtu_bytes, rate_bps, log_level
        self.process: subprocess.Popen[bytes] | None = None
        _give_name(self)

    def start(self, _controllers: object) -> None:
        """Start BMv2; returns when it serves gRPC."""
        description, server = self.description or self._described(), LOOPBACK_SERVER
        if not description["notifications_file"]:
            folder = run_folder(self.name)
            folder.mkdir(mode=0o700, exist_ok=True)
            description = {**description, "notifications_file": str(folder / "notifications")}
            server = p4runtime_address(self.name)
        _run(self, switch_commands(description, self.mtu_bytes))
        with _log(description) as log:
            self.process = self.popen(
                bmv2_command(description, server), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        finish_start(self.process.pid, self.name, server)

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803  (mininet's own name)
        """End BMv2."""
        if self.process is not None:
            end_switch(self.process)
            self.process = None
        shutil.rmtree(run_folder(self.name), ignore_errors=True)
        super().stop(deleteIntfs)

    def terminate(self) -> None:
        """Also take its namespace's name."""
        super().terminate()
        _take_name(self.name)

    def _described(self) -> SwitchDescription:
        ports = [
            PortDescription(number=number, name=interface.name, mac=interface.MAC(), rate_bps=self.rate_bps)
            for number, interface in self.intfs.items()
        ]
        return SwitchDescription(
            name=self.name,
            ports=ports,
            log_level=self.log_level,
            log_file="",
            pcap_folder="",
            notifications_file="",
        )


def _log(switch: SwitchDescription) -> IO[bytes]:
    return Path(switch["log_file"] or os.devnull).open("ab")


class InputError(SystemExit):
    """A `network.json` or an option that cannot be; no Exception, so that mn ends without its clean-up."""


def read_network(network_file: str) -> NetworkDescription:
    """What a `network.json` says; raises InputError, which names the place, before anything is made."""
    try:
        network = json.loads(Path(network_file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{network_file}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{network_file}: is no JSON: {error}") from None
    try:
        _check_shape(network, NetworkDescription, "")
        _check_names(network)
    except InputError as error:
        raise InputError(f"{network_file}: {error}") from None
    found: NetworkDescription = network
    return found


def _check_shape(found: Any, shape: Any, place: str) -> None:
    """Of a value that should be as a type above says; raises InputError."""
    if is_typeddict(shape):
        for key, inner in shape.__annotations__.items():
            where = f"{place}.{key}" if place else key
            if not isinstance(found, dict) or key not in found:
                raise InputError(f"{where}: is missing")
            _check_shape(found[key], inner, where)
    elif get_origin(shape) is list:
        if not isinstance(found, list):
            raise InputError(f"{place}: is no list")
        for number, member in enumerate(found):
            _check_shape(member, get_args(shape)[0], f"{place}[{number}]")
    else:
        _check_value(found, shape.__metadata__[0], place)


def _check_value(found: object, kind: _Kind, place: str) -> None:
    if not kind.holds(found):
        raise InputError(f"{place}: {found!a} is no {kind.words}")


def _check_switch(mtu_bytes: object, rate_bps: object, log_level: object) -> None:
    """What stands behind `--switch bmv2,`."""
    if shutil.which(PROGRAM) is None:
        raise InputError(f"{PROGRAM} is not installed")
    _check_value(mtu_bytes, _MTU, "mtu_bytes")
    _check_value(rate_bps, _COUNT, "rate_bps")
    _check_value(log_level, _LOG_LEVEL, "log_level")


def _check_names(network: NetworkDescription) -> None:
    """Every node and port is there once, and every cable has two ends that are there."""
    known: set[str] = set()

    def add(name: str, place: str) -> None:
        if name in known:
            raise InputError(f"{place}: {name!a} is there twice")
        known.add(name)

    for number, switch in enumerate(network["switches"]):
        add(switch["name"], f"switches[{number}].name")
        for position, port in enumerate(switch["ports"]):
            add(f"{switch['name']}:{port['name']}", f"switches[{number}].ports[{position}].name")
    for number, host in enumerate(network["hosts"]):
        add(host["name"], f"hosts[{number}].name")
        add(f"{host['name']}:{host['interface']}", f"hosts[{number}].interface")
        if not host["addresses"]:
            raise InputError(f"hosts[{number}].addresses: is empty")
    for number, link in enumerate(network["links"]):
        for key, end in (("a", link["a"]), ("b", link["b"])):
            if ":" not in end or end not in known:
                raise InputError(f"links[{number}].{key}: {end!a} is no port that is described")


class NetworkTopo(Topo):  # type: ignore[misc]  # likewise
    """The network of a `network.json`, as `mltswitch lab network` writes it."""

    def build(self, *files: object, **others: object) -> None:
        """Called by mininet with what stands behind `--topo mltswitch,`; raises InputError."""
        if len(files) != 1 or others:
            raise InputError("--topo mltswitch,FILE: FILE is what `mltswitch lab network` has written")
        network = read_network(str(files[0]))
        mtu_bytes = network["mtu_bytes"]
        ends: dict[str, tuple[str, int | None]] = {}
        for switch in network["switches"]:
            self.addSwitch(switch["name"], description=switch, mtu_bytes=mtu_bytes)
            for port in switch["ports"]:
                ends[f"{switch['name']}:{port['name']}"] = port["mac"], port["number"]
        for host in network["hosts"]:
            self.addHost(host["name"], cls=LabHost, description=host, mtu_bytes=mtu_bytes)
            ends[f"{host['name']}:{host['interface']}"] = host["mac"], None
        for link in network["links"]:
            (node_a, _, name_a), (node_b, _, name_b) = link["a"].partition(":"), link["b"].partition(":")
            (mac_a, port_a), (mac_b, port_b) = ends[link["a"]], ends[link["b"]]
            self.addLink(
                node_a,
                node_b,
                port1=port_a,
                port2=port_b,
                intfName1=name_a,
                intfName2=name_b,
                addr1=mac_a,
                addr2=mac_b,
            )


topos = {"mltswitch": NetworkTopo}
switches = {"bmv2": BMv2Switch}


def main(arguments: list[str]) -> int:
    """Build the network, say so, and take it away on SIGTERM; returns an exit code."""
    setLogLevel("info")
    Mininet.inited = True  # else it would raise limits of the whole machine, for good
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        topology = NetworkTopo(arguments[0])
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    network = Mininet(topo=topology, switch=BMv2Switch, controller=None, build=False)
    try:
        network.build()
        network.start()
        sys.stdout.write(f"{READY_LINE}\n")
        sys.stdout.flush()
        while True:
            signal.pause()
    finally:
        network.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
