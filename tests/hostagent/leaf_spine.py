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
from functools import partial
from typing import Any, Final

import numpy as np

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.datapaths import DataPaths
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.spraying.modes import BySegments
from mltswitch.hostagent.spraying.paths import PathSettings
from mltswitch.hostagent.spraying.planned import PlannedSpray, planned_spray
from mltswitch.hostagent.spraying.setup import setup_commands
from mltswitch.hostagent.spraying.sprayer import PathSprayer, PathStatistics
from mltswitch.hostagent.spraying.standing import State
from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE, Bursts
from mltswitch.hostagent.transport.hello import LocalEnd, PeerHello, Secrets, decode_hello, encode_hello
from mltswitch.hostagent.transport.rate import RateSettings
from mltswitch.lab.namespaces import NamespaceHandle
from mltswitch.plan import Plan
from tests.hostagent.spraying.test_paths import plan_with
from tests.hostagent.spraying.test_paths_in_the_kernel import network

HOSTS: Final = ("host1", "host3")
SPINES: Final = 2
DSCP, CONTROL_DSCP = 34, 40
RATE_BPS: Final = 150e6
"""So slow that a tensor is on its way for seconds."""
SHARED_ELEMENTS: Final = 1_500_000
LONG_ELEMENTS: Final = 4_000_000
SOURCE_PORTS: Final = 12
"""So many that no hash puts all of them on one spine: once in 2,000 kernels, whose seed is random at boot."""
MIDDLE_PACKETS: Final = 200
"""Of that tensor have left: it is on its way."""
PATIENCE_SECONDS: Final = 60.0
ATTEMPTS: Final = 10
TOS_STEP: Final = 5
"""Coprime to 4: all code points of ECN come up."""


def fabric(plan: Plan, path_settings: PathSettings) -> Iterator[str]:
    """Everything that root does."""
    yield from network(plan)
    for host, peer in (HOSTS, HOSTS[::-1]):
        for command in setup_commands(plan, host, peer, path_settings):
            if not command.startswith("#"):
                yield f"ip netns exec {host} {command}"
    if plan.paths.mode == "entropy":
        yield from equal_cost_routes(plan)
    if path_settings.is_sticky:
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


def control_address(plan: Plan, name: str, planned: PlannedSpray) -> str:
    """Where an agent listens."""
    if not isinstance(planned.spray, BySegments):
        return planned.addresses[0]
    (host,) = [host for host in plan.topology.hosts if host.name == name]
    return str(host.aliases[0][1])


def settings_of(plan: Plan, host: str, path_settings: PathSettings) -> AgentSettings:
    """Of an agent on that host."""
    planned = planned_spray(plan, host, path_settings)
    return AgentSettings(
        name=host,
        addresses=planned.addresses,
        spray=planned.spray,
        data_port=planned.first_port or 18515,
        security=Plaintext(beyond_loopback=True),
        rate=RateSettings.for_network(RATE_BPS, queue_bytes=0, noise_ns=10**9),
        control_dscp=CONTROL_DSCP,
        listen=Endpoint(control_address(plan, host, planned), 18516),
    )


def entered(host: str, make: Callable[[], Any]) -> Any:
    """Called in a host's namespace; threads that begin there stay there."""
    with NamespaceHandle(host).entered():
        return make()


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
        self._round = 0

    def paths(self) -> tuple[PathStatistics, ...]:
        """As the sender sees them."""
        sprayer = self._sender._engine.connection("host3").sprayer
        assert isinstance(sprayer, PathSprayer)
        return sprayer.statistics()

    def post(self, elements: int) -> Callable[[], bool]:
        """Begin to send a tensor; the answer waits and says whether all of it is right."""
        self._round += 1
        original = np.random.default_rng(self._round).standard_normal(elements).astype(np.float32)
        buffer = np.zeros_like(original)
        there = self._receiver.post_recv("host1", buffer, tensor=1, round_number=self._round)
        here = self._sender.post_send(
            "host3", original, tensor=1, round_number=self._round, dscp=DSCP, burst_packets=1
        )

        def wait() -> bool:
            there.wait(PATIENCE_SECONDS)
            here.wait(PATIENCE_SECONDS)
            return bool((buffer == original).all())

        return wait

    def shares(self) -> dict[str, Any]:
        """A tensor over sound paths; another one where the machine was too busy to answer on all of them."""
        for _ in range(ATTEMPTS):
            before, sent = forwarded(self._plan), [path.sent_packets for path in self.paths()]
            times_left = sum(path.times_left for path in self.paths())
            were_sound = all(path.state is State.ACTIVE for path in self.paths())
            is_right = self.post(SHARED_ELEMENTS)()
            after, paths = forwarded(self._plan), self.paths()
            are_sound = all(path.state is State.ACTIVE for path in paths)
            if were_sound and are_sound and sum(path.times_left for path in paths) == times_left:
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
        left = self._until(lambda states: State.LEFT in states)
        is_right = wait()
        states = [path.state for path in self.paths()]
        mended = time.monotonic()
        set_forwarding(spine, is_on=True)
        while time.monotonic() - mended < PATIENCE_SECONDS and left:
            is_right &= self.post(SHARED_ELEMENTS // 10)()
            if State.LEFT not in [path.state for path in self.paths()]:
                break
        return {
            "is_right": is_right,
            "states_while_broken": states,
            "states_at_the_end": [path.state for path in self.paths()],
        }

    def _until(self, is_so: Callable[[list[State]], bool]) -> bool:
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            if is_so([path.state for path in self.paths()]):
                return True
            time.sleep(0.005)
        return False


def bytes_kept(ends: dict[str, AgentSettings]) -> dict[str, Any]:
    """DSCP/ECN bytes on every path: how many were sent, and how many came as they were."""
    with ExitStack() as stack:
        opened: dict[str, DataPaths] = {}
        for host, settings in ends.items():
            opened[host] = entered(host, partial(DataPaths, settings))
            stack.callback(opened[host].close)
        receivers = [DatagramReceiver(entry.socket, 64) for entry in opened["host3"].sockets]
        hello = hello_of("host3", opened["host3"])
        output = entered("host1", lambda: opened["host1"].to_peer(hello, lambda: RATE_BPS).output)
        paths, values = len(hello.data_addresses), np.arange(0, 256, TOS_STEP)
        sent = np.array([(path, tos) for tos in values for path in range(paths)])
        headers = np.zeros(len(sent), HEADER_DTYPE)
        headers["path"], headers["sequence"] = sent[:, 0], sent[:, 1]
        bursts = Bursts(
            headers=headers,
            tensor=np.zeros(1000, np.uint8),
            payload_offsets_bytes=np.zeros(len(sent), np.int64),
            payload_bytes=np.full(len(sent), 1000),
            starts=np.arange(len(sent) + 1),
            paths=sent[:, 0],
            tos=sent[:, 1].astype(np.uint8),
        )
        assert output.send(bursts) == len(sent)
        came: set[tuple[int, int]] = set()
        end = time.monotonic() + PATIENCE_SECONDS
        while len(came) < len(sent) and time.monotonic() < end:
            for receiver in receivers:
                for grid in receiver.receive():
                    found = grid.headers()
                    same = found["sequence"] == grid.tos[:, None]
                    came |= set(
                        zip(found["path"][same].tolist(), found["sequence"][same].tolist(), strict=True)
                    )
        return {
            "sent": len(sent),
            "kept": len(came),
            "refused": [entry.error for entry in output.refusals()],
        }


def hello_of(name: str, paths: DataPaths) -> PeerHello:
    """As a peer would get it."""
    local = LocalEnd(name, paths.addresses, 1 << 20, paths.payload_bytes, False, CONTROL_DSCP)
    return decode_hello(encode_hello(local, Secrets(1, bytes(32))))


def main(mode: str) -> None:
    """Print one line of JSON."""
    plan = plan_with(mode.removesuffix(" sticky"), spines=SPINES)
    path_settings = PathSettings(source_ports=SOURCE_PORTS, is_sticky=mode.endswith("sticky"))
    script = "\n".join(fabric(plan, path_settings))
    subprocess.run(["sh", "-eu"], input=script, text=True, check=True, capture_output=True)
    ends = {host: settings_of(plan, host, path_settings) for host in HOSTS}
    found: dict[str, Any] = {"bytes": bytes_kept(ends)}
    with ExitStack() as stack:
        agents = {host: stack.enter_context(entered(host, partial(Agent, ends[host]))) for host in HOSTS}
        at = agents["host3"].listening_at
        assert at is not None
        agents["host1"].connect("host3", at, PATIENCE_SECONDS)
        agents["host3"].wait_for_peers(["host1"], PATIENCE_SECONDS)
        play = Play(plan, agents["host1"], agents["host3"])
        found["shares"] = play.shares()
        found["fault"] = play.break_and_mend("spine2")
        found["payload_bytes"] = agents["host1"]._engine._paths.payload_bytes
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
