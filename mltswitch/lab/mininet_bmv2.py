"""BMv2 switches in mininet: the lab's network, and a `bmv2` switch for topologies of your own.

Needs Debian's mininet and BMv2, and of mltswitch only bmv2_node.py in the same folder:

    sudo mn --custom mininet_bmv2.py --topo mltswitch,network.json --switch bmv2 --controller none
    sudo mn --custom mininet_bmv2.py --topo tree,2 --mac --arp --switch bmv2 --controller none
    sudo python3 mininet_bmv2.py network.json      # without a prompt, until SIGTERM

Every switch has a network namespace of its own, `mlt-NAME` for ip-netns(8), where no host reaches its
servers: thrift at port 9090, and P4Runtime at `unix:/run/mlt-NAME/p4runtime`, or at port 9559 in the lab.

What is wrong with the input ends `mn` at once. After any other exception mn cleans up: it kills processes by
name (ping and OpenFlow controllers, whose ever they are), and deletes all *.log and *.out in /tmp.
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

if __package__:
    from mltswitch.lab import bmv2_node
else:  # alone; mn executes the file without a folder that it could import from
    sys.path.append(str(Path(sys._getframe().f_code.co_filename).resolve().parent))
    import bmv2_node  # type: ignore[import-not-found,no-redef]

try:
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.node import Host, Switch
    from mininet.topo import Topo
except ImportError:  # the lab's own Python may have none, and reads only what is said here
    Host = Switch = Topo = object

READY_LINE: Final = "mltswitch: ready"


def _run(node: Any, commands: str) -> None:
    """Commands inside a mininet node; raises RuntimeError with what they said."""
    output, errors, code = node.pexec(["sh", "-euc", commands])
    if code:
        raise RuntimeError(f"{node.name}: {errors or output}")


_named: Final[set[str]] = set()


def _take_name(name: str) -> None:
    _named.discard(name)
    subprocess.run(
        ["ip", "netns", "delete", bmv2_node.NAMESPACE_PREFIX + name], check=False, stderr=subprocess.DEVNULL
    )


@atexit.register
def _take_all_names() -> None:
    for name in sorted(_named):
        _take_name(name)


class _Named:
    """A mininet node whose namespace is known to ip-netns(8), until the node or mininet ends."""

    name: str
    pid: int

    def give_name(self) -> None:
        """Make the namespace known."""
        attach = ["ip", "netns", "attach", bmv2_node.NAMESPACE_PREFIX + self.name, str(self.pid)]
        subprocess.run(attach, check=True)
        _named.add(self.name)

    def terminate(self) -> None:
        """End the node, and take the name from its namespace."""
        super().terminate()  # type: ignore[misc]  # mininet's
        _take_name(self.name)


class LabHost(_Named, Host):  # type: ignore[misc]  # mininet has no types
    """A host as `network.json` describes it."""

    def __init__(
        self, name: str, description: bmv2_node.HostDescription, mtu_bytes: int, **params: Any
    ) -> None:
        super().__init__(name, **params)
        self.description, self.mtu_bytes = description, mtu_bytes
        self.give_name()

    def config(self, **_params: Any) -> dict[str, Any]:
        """Set the addresses, route and neighbour from `network.json` instead of mininet's own address."""
        _run(self, bmv2_node.host_commands(self.description, self.mtu_bytes))
        return {}


class BMv2Switch(_Named, Switch):  # type: ignore[misc]  # likewise
    """A BMv2 switch in its own namespace; one that `network.json` lacks has the links that mininet made."""

    def __init__(
        self,
        name: str,
        description: bmv2_node.SwitchDescription | None = None,
        *,
        mtu_bytes: int = 1500,
        rate_bps: int = 0,
        log_level: str = "off",
        **params: Any,
    ) -> None:
        if shutil.which(bmv2_node.PROGRAM) is None:
            raise bmv2_node.InputError(f"{bmv2_node.PROGRAM} is not installed")
        self.options = bmv2_node.SwitchOptions(mtu_bytes=mtu_bytes, rate_bps=rate_bps, log_level=log_level)
        bmv2_node.check(self.options, bmv2_node.SwitchOptions, "")
        params.setdefault("dpid", "1")  # OpenFlow's, which BMv2 does not have
        super().__init__(name, **{**params, "inNamespace": True})
        self.description = description
        self.process: subprocess.Popen[bytes] | None = None
        self.give_name()

    def start(self, _controllers: object) -> None:
        """Start BMv2; returns when it serves gRPC."""
        description, server = self.description or self._described(), bmv2_node.LOOPBACK_SERVER
        if not description["notifications_file"]:
            folder = bmv2_node.run_folder(self.name)
            folder.mkdir(mode=0o700, exist_ok=True)
            description = {**description, "notifications_file": str(folder / "notifications")}
            server = bmv2_node.p4runtime_address(self.name)
        _run(self, bmv2_node.switch_commands(description, self.options["mtu_bytes"]))
        with Path(description["log_file"] or os.devnull).open("ab") as log:
            self.process = self.popen(
                bmv2_node.bmv2_command(description, server), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        bmv2_node.finish_start(self.process.pid, self.name, server)

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803  (mininet's own name)
        """End BMv2."""
        if self.process is not None:
            bmv2_node.end_switch(self.process)
            self.process = None
        shutil.rmtree(bmv2_node.run_folder(self.name), ignore_errors=True)
        super().stop(deleteIntfs)

    def _described(self) -> bmv2_node.SwitchDescription:
        rate_bps = self.options["rate_bps"]
        return bmv2_node.SwitchDescription(
            name=self.name,
            ports=[
                bmv2_node.PortDescription(
                    number=number, name=interface.name, mac=interface.MAC(), rate_bps=rate_bps
                )
                for number, interface in self.intfs.items()
            ],
            log_level=self.options["log_level"],
            log_file="",
            pcap_folder="",
            notifications_file="",
        )


class NetworkTopo(Topo):  # type: ignore[misc]  # likewise
    """The network of a `network.json`, as `mltswitch lab network` writes it."""

    def build(self, *files: object, **others: object) -> None:
        """Add the nodes and links of FILE in `--topo mltswitch,FILE`; raises bmv2_node.InputError."""
        if len(files) != 1 or others:
            raise bmv2_node.InputError(
                "--topo mltswitch,FILE: FILE is what `mltswitch lab network` has written"
            )
        network = bmv2_node.read_network(str(files[0]))
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
            nodes, options = [], dict[str, Any]()
            for side, end in enumerate((link["a"], link["b"]), start=1):
                node, _, options[f"intfName{side}"] = end.partition(":")
                options[f"addr{side}"], options[f"port{side}"] = ends[end]
                nodes.append(node)
            self.addLink(*nodes, **options)


topos = {"mltswitch": NetworkTopo}
switches = {"bmv2": BMv2Switch}


def main(arguments: list[str]) -> int:
    """Build the network of a `network.json` and remove it on SIGTERM; returns an exit code."""
    setLogLevel("info")
    Mininet.inited = True  # else it would raise limits of the whole machine, for good
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        topology = NetworkTopo(arguments[0])
    except bmv2_node.InputError as error:
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
