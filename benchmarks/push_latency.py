"""How long the first push of a switch with 20 ports takes, near by and far away, beside netmiko.

    python -m benchmarks.push_latency [--quick] [--json]

The switches are the lab's emulators (--quick: Onyx and ICOS), which answer at once, over real SSH through a
relay that holds every byte back for half of the round-trip time, 0 or 20 ms. A push is the whole of it:
connect, ask who answers, read, change, read back, compare, save.

`netmiko` is its own send_config_set with the lines of that change, all of them in one call, told to stop at
an error, on a second switch. Only the lines are timed there, so they are held against the same part of the
push. SONiC and Cumulus get commands in a shell, which netmiko has no such call for.

    <platform>_<ms>ms_seconds           the push
    <platform>_<ms>ms_round_trips       how often it waited for the switch, SSH's own handshake included
    <platform>_<ms>ms_lines             of configuration, the save included
    <platform>_<ms>ms_apply_seconds     the part of the push in which they were sent
    <platform>_<ms>ms_netmiko_seconds   the same lines by netmiko
    <platform>_<ms>ms_ratio_to_netmiko  netmiko's seconds over apply_seconds: above 1, mltswitch is faster
"""

import os
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from netmiko import ConnectHandler

from benchmarks.figures import print_figures
from mltswitch.deploy import Fleet, Question, Status, push
from mltswitch.deploy.connector import connect
from mltswitch.deploy.session import Session
from mltswitch.deploy.state_directory import STATE_VARIABLE
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device, Inventory
from mltswitch.lab.keys import create_key
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import SessionKind, Step, Target, hardware_capabilities, target_for
from switchsim import (
    CumulusDevice,
    EmulatorServer,
    EosDevice,
    IcosDevice,
    OnyxDevice,
    SonicDevice,
    load_authorized_keys,
    load_host_key,
)
from switchsim.dell_sonic import DellSonicDevice
from switchsim.device import EmulatedDevice

SPINES: Final = 4
HOSTS: Final = 16
"""With the spines, the leaf's 20 ports."""
ROUND_TRIPS_MS: Final = (0, 20)
MADE: Final[Mapping[str, Callable[[], EmulatedDevice]]] = {
    "onyx": lambda: OnyxDevice(ports=SPINES + HOSTS, model="MSN2700-CS2F"),
    "icos": lambda: IcosDevice(ports=SPINES + HOSTS),
    "eos": EosDevice,
    "dell-sonic": DellSonicDevice,
    "sonic": lambda: SonicDevice(ports=32),
    "cumulus": lambda: CumulusDevice(ports=SPINES + HOSTS),
}
BOXES: Final[Mapping[str, dict[str, object]]] = {
    "onyx": {"hardware": "sn2700"},
    "icos": {"port_names": {"pattern": "te1/0/{n}"}},
    "dell-sonic": {"port_names": {"pattern": "Eth1/{n}"}},
}
"""Where the platform's default hardware has fewer ports, or its ports other names than the emulator's."""
QUICK: Final = ("onyx", "icos")
_CHUNK_BYTES: Final = 1 << 16


class Relay:
    """Forwards one connection after the other, each byte late by half of the round-trip time."""

    def __init__(self, port: int, round_trip_seconds: float) -> None:
        self.round_trips = 0
        self._server_spoke = True
        self._late = round_trip_seconds / 2
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no further connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._forward(client, server, is_client=True)
            self._forward(server, client, is_client=False)

    def _forward(self, source: socket.socket, sink: socket.socket, *, is_client: bool) -> None:
        waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

        def read() -> None:
            data = b"-"
            while data:
                try:
                    data = source.recv(_CHUNK_BYTES)
                except OSError:
                    data = b""
                # A round trip begins where the client speaks after it has heard something.
                self.round_trips += is_client and self._server_spoke
                self._server_spoke = not is_client
                waiting.put((time.monotonic() + self._late, data))

        def write() -> None:
            data = b"-"
            while data:
                due, data = waiting.get()
                time.sleep(max(0.0, due - time.monotonic()))
                with suppress(OSError):
                    sink.sendall(data) if data else sink.shutdown(socket.SHUT_WR)

        threading.Thread(target=read, daemon=True).start()
        threading.Thread(target=write, daemon=True).start()


@dataclass(slots=True)
class Timed:
    """A session that keeps the lines sent through it, and how long they took."""

    session: Session
    lines: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def ask(self, command: str) -> str:
        """As the session does."""
        return self.session.ask(command)

    def ask_all(self, commands: Sequence[str]) -> dict[str, str]:
        """As the session does."""
        return self.session.ask_all(commands)

    def hang_up(self) -> None:
        """As the session does."""
        self.session.hang_up()

    def apply(self, steps: Sequence[Step]) -> None:
        """As the session does, timed."""
        started = time.perf_counter()
        self.session.apply(steps)
        self.seconds += time.perf_counter() - started
        self.lines += [step.command for step in steps]


@contextmanager
def reached(platform: str, round_trip_seconds: float, folder: Path) -> Iterator[tuple[Device, Relay]]:
    """A switch fresh from the factory, as one reaches it by the relay."""
    switch = MADE[platform]()
    server = EmulatorServer(
        switch,
        host_key=load_host_key(folder / "host"),
        authorized_keys=load_authorized_keys(folder / "id.pub"),
    )
    with server:
        relay = Relay(server.port, round_trip_seconds)
        known = folder / f"known_hosts-{relay.port}"
        host_key = (folder / "host.pub").read_text(encoding="ascii")
        known.write_text(f"[127.0.0.1]:{relay.port} {host_key}", encoding="ascii")
        yield (
            Device(
                name=switch.name,
                platform=platform,
                switch="leaf1",
                address="127.0.0.1",
                port=relay.port,
                user=server.username,
                key_file=folder / "id",
                known_hosts_file=known,
                password=None,
                groups=("all",),
            ),
            relay,
        )
        relay.close()


def plan_of(platform: str) -> Plan:
    """A leaf with 20 ports."""
    group = {"platform": platform, **BOXES.get(platform, {})}
    spines = {f"spine{n + 1}": f"10.{101 + n}.0.0/16" for n in range(SPINES)}
    document = {
        "schema": "mltswitch/fabric/v1",
        "name": "push-latency",
        "topology": {
            "leaf_spine": {
                "spines": group | {"count": SPINES},
                "leaves": group | {"count": 1},
                "hosts_per_leaf": HOSTS,
            }
        },
        "addressing": {"hosts": "10.10.0.0/16", "links": "10.20.0.0/16", "alias": spines},
        "ports": {"rate": "10Gbps", "buffer": "600kB"},
        "traffic": {"load": 0.9, "burst_packets": 8},
        "classes": {"control": {"dscp": [40]}, "gradients": {"dscp": [34, 36]}},
    }
    profile = resolve_profile("resnet50")
    return build_plan(profile, Fabric.model_validate(document), hardware_capabilities, "paper")


def measure(platform: str, plan: Plan, round_trip_ms: int, folder: Path) -> dict[str, float]:
    """One first push, and netmiko with the same lines."""
    timed: list[Timed] = []

    @contextmanager
    def connector(device: Device, target: Target) -> Iterator[Timed]:
        with connect(device, target) as session:
            timed.append(Timed(session))
            yield timed[-1]

    with reached(platform, round_trip_ms / 1000, folder) as (device, relay):
        started = time.perf_counter()
        inventory = Inventory((device,), folder)
        [report] = push(plan, inventory, accept=[*Question], fleet=Fleet(connector=connector)).devices
        seconds = time.perf_counter() - started
        if report.status is not Status.CHANGED:
            raise DeviceError(f"the push ended with {report.status}: {report.error}", where=platform)
    lines = [line for each in timed for line in each.lines]
    apply_seconds = sum(each.seconds for each in timed)
    found = {
        "seconds": seconds,
        "round_trips": float(relay.round_trips),
        "lines": float(len(lines)),
        "apply_seconds": apply_seconds,
    }
    target = target_for(platform)
    if target.session is SessionKind.CLI:
        with reached(platform, round_trip_ms / 1000, folder) as (device, _):
            found["netmiko_seconds"] = netmiko_seconds(device, target, without_marks(target, lines))
        found["ratio_to_netmiko"] = found["netmiko_seconds"] / apply_seconds
    return {f"{platform}_{round_trip_ms}ms_{name}": value for name, value in found.items()}


def without_marks(target: Target, lines: Sequence[str]) -> list[str]:
    """The lines without those by which a push says that it is at work: they were sent by themselves."""
    lock = target.guard.lock
    marks = lock.configured if lock is not None else None
    return [line for line in lines if marks is None or not marks.search(line)]


def netmiko_seconds(device: Device, target: Target, lines: Sequence[str]) -> float:
    """What netmiko's own call takes for these lines, in a session that is open."""
    with ConnectHandler(
        device_type=target.dialect or "linux",
        host=device.address,
        port=device.port,
        username=device.user,
        use_keys=True,
        key_file=str(device.key_file),
        ssh_strict=True,
        alt_host_keys=True,
        alt_key_file=str(device.known_hosts_file),
    ) as connection:
        connection.enable()
        started = time.perf_counter()
        connection.send_config_set(lines, error_pattern=r"(?m)^%", exit_config_mode=False, read_timeout=60)
        return time.perf_counter() - started


@click.command()
@click.option("--quick", is_flag=True, help="Two platforms.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Push to each platform at each round-trip time, and print the figures."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="mltswitch-push-latency-") as name:
        folder = Path(name)
        os.environ[STATE_VARIABLE] = str(folder / "state")
        for key in ("host", "id"):
            create_key(folder / key, "benchmark")
        for platform in QUICK if quick else MADE:
            plan = plan_of(platform)
            for round_trip in ROUND_TRIPS_MS:
                found |= measure(platform, plan, round_trip, folder)
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
