"""Two agents and a leaf-spine fabric of namespaces between them, in one spray mode: what happened, as JSON.

    unshare -n -m python -m tests.hostagent.leaf_spine MODE

MODE is `alias`, `srv6`, `srv6 sticky` or `entropy`. Everything that is made goes with the process.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import numpy as np

from mltswitch.hostagent import Agent, AgentConfig
from mltswitch.hostagent.planned import _spraying
from mltswitch.hostagent.spraying import Spraying
from mltswitch.hostagent.spraying.paths import host_of, setup_commands
from mltswitch.hostagent.telemetry.events import PathChanged
from mltswitch.hostagent.transport.records import PathSnapshot
from mltswitch.lab.namespaces import NamespaceHandle
from mltswitch.plan import Plan
from tests.hostagent.ends import Notes
from tests.hostagent.spraying.test_paths import plan_with
from tests.hostagent.spraying.test_paths_in_the_kernel import network

HOSTS: Final = ("host1", "host3")
SPINES: Final = 2
DSCP, CONTROL_DSCP = 34, 40
LINE_RATE: Final = "150Mbps"
"""So slow that a tensor is on its way for seconds."""
SHARED_ELEMENTS: Final = 1_500_000
LONG_ELEMENTS: Final = 4_000_000
SOURCE_PORTS: Final = 12
"""So many that no hash puts all of them on one spine: once in 2,000 kernels, whose seed is random at boot."""
MIDDLE_PACKETS: Final = 200
"""Of that tensor have left: it is on its way."""
PATIENCE_SECONDS: Final = 60.0
ATTEMPTS: Final = 10
CODE_POINTS: Final = range(0, 64, 9)


def fabric(plan: Plan, options: Spraying) -> Iterator[str]:
    """Everything that root does."""
    yield from network(plan)
    for host, peer in (HOSTS, HOSTS[::-1]):
        for command in setup_commands(plan, host, peer, options):
            if not command.startswith("#"):
                yield f"ip netns exec {host} {command}"
    if plan.paths.mode == "entropy":
        yield from equal_cost_routes(plan)
    if options.sticky:
        yield from control_addresses(plan)


def equal_cost_routes(plan: Plan) -> Iterator[str]:
    """What `entropy` takes for granted: as a fabric has it that somebody else configures.

    TCP goes by the first spine, so that a test that breaks the other one keeps the control channel.
    """
    for host in plan.topology.hosts:
        yield f"ip -n {host.name} route add default via {host.gateway}"
    for spine in ("spine1", "spine2"):
        for port in plan.topology.switch(spine).ports:
            number = int(port.peer.removeprefix("leaf")) - 1
            yield f"ip -n {spine} route add 10.10.{number}.0/24 via {port.peer_address}"
    for leaf, far in (("leaf1", 1), ("leaf2", 0)):
        ports = plan.topology.switch(leaf).ports
        hops = [str(port.peer_address) for port in ports if port.peer.startswith("spine")]
        each = " ".join(f"nexthop via {hop}" for hop in hops)
        yield f"ip netns exec {leaf} sysctl -qw net.ipv4.fib_multipath_hash_policy=1"
        yield f"ip -n {leaf} route add 10.10.{far}.0/24 {each}"
        yield f"ip -n {leaf} route add 10.10.{far}.0/24 via {hops[0]} table 100"
        yield f"ip -n {leaf} rule add ipproto tcp lookup 100"


def control_addresses(plan: Plan) -> Iterator[str]:
    """Of IPv4, by way of the first spine: addresses for segments are reached with a header alone."""
    for host in plan.topology.hosts:
        (_, alias), (_, prefix) = host.aliases[0], host.alias_prefixes[0]
        yield f"ip -n {host.name} addr add {alias}/32 dev {host.interface}"
        yield f"ip -n {host.name} route add {prefix} via {host.gateway} src {alias}"


def opened(plan: Plan, name: str, *, is_sticky: bool) -> Agent:
    """An agent on that host, in its namespace."""
    host = host_of(plan, name)
    spraying, addresses = _spraying(plan, host, Spraying(sticky=is_sticky, source_ports=SOURCE_PORTS))
    control = str(host.aliases[0][1]) if is_sticky else addresses[0]
    config = AgentConfig(
        name=name,
        listen=f"[{control}]:18516" if ":" in control else f"{control}:18516",
        addresses=addresses if plan.paths.mode != "entropy" else addresses[:1],
        spraying=spraying,
        plaintext=True,
        line_rate=LINE_RATE,
        classes={"control_dscp": CONTROL_DSCP, "gradient_dscp": [DSCP]},
    )
    with NamespaceHandle(name).entered():
        return Agent(config)


def forwarded(plan: Plan) -> list[int]:
    """Packets that have come to each spine from the sender's leaf."""
    found = []
    for spine in range(1, SPINES + 1):
        (port,) = [port for port in plan.topology.switch(f"spine{spine}").ports if port.peer == "leaf1"]
        command = ["ip", "-n", f"spine{spine}", "-s", "-j", "link", "show", port.name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout)[0]["stats64"]["rx"]["packets"])
    return found


def set_forwarding(spine: str, *, is_on: bool) -> None:
    """A spine that does not forward looks sound to its neighbours: the links stay up."""
    values = [f"net.{key}={int(is_on)}" for key in ("ipv4.ip_forward", "ipv6.conf.all.forwarding")]
    subprocess.run(["ip", "netns", "exec", spine, "sysctl", "-qw", *values], check=True)


class Play:
    """What the agents do, and what is seen of it."""

    def __init__(self, plan: Plan, sender: Agent, receiver: Agent) -> None:
        self._plan, self._sender, self._receiver = plan, sender, receiver
        self._round, self._notes = 0, Notes()
        sender.observe(self._notes)

    def paths(self) -> tuple[PathSnapshot, ...]:
        """As the sender sees them."""
        return self._sender.snapshot().peers["host3"]["default"].paths

    def states(self) -> list[str]:
        """Of all paths."""
        return [path.state for path in self.paths()]

    def post(self, elements: int, **options: Any) -> Callable[[], bool]:
        """Begin to send a tensor; the answer waits and says whether all of it is right."""
        self._round += 1
        original = np.random.default_rng(self._round).standard_normal(elements).astype(np.float32)
        buffer = np.zeros_like(original)
        there = self._receiver.post_receive("host1", buffer, tensor=1, round_number=self._round)
        here = self._sender.post_send(
            "host3", original, tensor=1, round_number=self._round, burst_packets=1, **options
        )

        def wait() -> bool:
            there.wait(PATIENCE_SECONDS)
            here.wait(PATIENCE_SECONDS)
            return bool((buffer == original).all())

        return wait

    def bytes_kept(self) -> dict[str, list[int]]:
        """DSCP/ECN bytes of data, and those that came."""
        for dscp in CODE_POINTS:
            for importance in ("all", "none"):
                self.post(20_000, dscp=dscp, importance=importance)()
        came = self._receiver.snapshot().peers["host1"]["default"].received_by_tos
        return {"sent": sorted(dscp << 2 | ecn for dscp in CODE_POINTS for ecn in (0, 2)), "came": [*came]}

    def shares(self) -> dict[str, Any]:
        """A tensor over sound paths; another one where the machine was too busy to answer on all of them."""
        for _ in range(ATTEMPTS):
            before, sent = forwarded(self._plan), [path.sent_packets for path in self.paths()]
            were_sound, changes = {*self.states()} == {"used"}, len(self._notes.of(PathChanged))
            is_right = self.post(SHARED_ELEMENTS)()
            after, paths = forwarded(self._plan), self.paths()
            if were_sound and len(self._notes.of(PathChanged)) == changes:
                break
        return {
            "is_right": is_right,
            "by_spine": [late - early for early, late in zip(before, after, strict=True)],
            "by_path": [path.sent_packets - early for path, early in zip(paths, sent, strict=True)],
        }

    def break_and_mend(self, spine: str) -> dict[str, Any]:
        """A spine stops to forward while a tensor is on its way, and forwards again when it has been left."""
        sent = sum(path.sent_packets for path in self.paths())
        wait = self.post(LONG_ELEMENTS)
        while sum(path.sent_packets for path in self.paths()) <= sent + MIDDLE_PACKETS:
            time.sleep(0.005)
        set_forwarding(spine, is_on=False)
        end = time.monotonic() + PATIENCE_SECONDS
        while "dead" not in self.states() and time.monotonic() < end:
            time.sleep(0.005)
        is_right = wait()
        states = self.states()
        set_forwarding(spine, is_on=True)
        end = time.monotonic() + PATIENCE_SECONDS
        while {*(at_the_end := self.states())} != {"used"} and time.monotonic() < end:
            is_right &= self.post(SHARED_ELEMENTS // 10)()
        return {"is_right": is_right, "while_broken": states, "at_the_end": at_the_end}


def main(mode: str) -> None:
    """Print one line of JSON."""
    plan = plan_with(mode.removesuffix(" sticky"), spines=SPINES)
    is_sticky = mode.endswith("sticky")
    options = Spraying(source_ports=SOURCE_PORTS, sticky=is_sticky)
    script = "\n".join(fabric(plan, options))
    subprocess.run(["sh", "-eu"], input=script, text=True, check=True, capture_output=True)
    with ExitStack() as stack:
        sender, receiver = (stack.enter_context(opened(plan, host, is_sticky=is_sticky)) for host in HOSTS)
        sender.connect("host3", receiver.listening_at, timeout_seconds=PATIENCE_SECONDS)
        receiver.wait_for_peers(["host1"], PATIENCE_SECONDS)
        play = Play(plan, sender, receiver)
        found: dict[str, Any] = {"shares": play.shares(), "bytes": play.bytes_kept()}
        found["fault"] = play.break_and_mend("spine2")
        found["datagram_bytes"] = sender.config.datagram_bytes
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
