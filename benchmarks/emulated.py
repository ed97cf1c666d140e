"""Emulated switches for benchmarks of pushes: keys, an inventory, and a process that serves them all."""

import multiprocessing
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Final

import yaml

from mltswitch.inventory import Device
from mltswitch.lab.keys import create_key
from switchsim import KINDS, EmulatorServer, Faults, load_authorized_keys, load_host_key
from switchsim.device import EmulatedDevice

PORTS: Final = 16
"""Of each switch; the plans here concern fewer."""
_LAUNCHER: Final = (
    "import os, subprocess, sys\n"
    "process = subprocess.Popen(sys.argv[1:])\n"
    "_, status, usage = os.wait4(process.pid, 0)\n"
    "cpu_seconds = usage.ru_utime + usage.ru_stime\n"
    "print(os.waitstatus_to_exitcode(status), cpu_seconds, usage.ru_maxrss, file=sys.stderr)\n"
)
"""A process inherits the peak of the one that starts it, so a small one starts what is measured."""


class Rack:
    """A folder with keys, known hosts, and an inventory for mltswitch and Ansible alike."""

    def __init__(self, folder: Path, leaves: Iterable[Device]) -> None:
        self.folder = folder
        self.inventory = folder / "inventory.yaml"
        self.platforms = {leaf.name: leaf.platform for leaf in leaves}
        (folder / "hosts").mkdir(parents=True)
        create_key(folder / "id", "benchmark")
        for name in self.platforms:
            create_key(folder / "hosts" / name, name)

    def write(self, ports: Mapping[str, int]) -> None:
        """The inventory and the known hosts, for switches that listen at these ports."""
        known = self.folder / "known_hosts"
        lines = (
            f"[127.0.0.1]:{port} {(self.folder / 'hosts' / f'{name}.pub').read_text(encoding='ascii')}"
            for name, port in ports.items()
        )
        known.write_text("".join(lines), encoding="ascii")
        hosts = {
            name: {"ansible_port": port, "mltswitch_platform": self.platforms[name]}
            for name, port in ports.items()
        }
        everywhere = {
            "ansible_host": "127.0.0.1",
            "ansible_user": "admin",
            "ansible_ssh_private_key_file": str(self.folder / "id"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={known}",
        }
        text = yaml.safe_dump({"all": {"hosts": hosts, "vars": everywhere}})
        self.inventory.write_text(text, encoding="utf-8")

    def server(
        self, name: str, switch: EmulatedDevice | None = None, faults: Faults | None = None
    ) -> EmulatorServer:
        """A switch, where none is given as it comes from the factory, not started yet."""
        return EmulatorServer(
            switch or KINDS[self.platforms[name]](name, PORTS),
            host_key=load_host_key(self.folder / "hosts" / name),
            authorized_keys=load_authorized_keys(self.folder / "id.pub"),
            faults=faults,
        )

    @contextmanager
    def served(self) -> Iterator[float]:
        """All switches, from the factory, in one process of their own; MB that each costs it."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(self, there), daemon=True)
        process.start()
        there.close()
        try:
            ports, each_mb = here.recv()
            self.write(ports)
            yield each_mb
        finally:
            here.close()  # which is how the process learns that it may end
            process.join()


def _serve(rack: Rack, pipe: Connection) -> None:
    with ExitStack() as stack:
        before = _resident_mb()
        servers = [stack.enter_context(rack.server(name)) for name in rack.platforms]
        ports = {server.device.name: server.port for server in servers}
        pipe.send((ports, (_resident_mb() - before) / len(servers)))
        with stack, suppress(EOFError):
            pipe.recv()


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command did."""

    code: int
    seconds: float
    cpu_seconds: float
    """Of its processes that it has waited for, too."""
    peak_mb: float
    output: str
    errors: str


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Ran:
    """Run a command to its end."""
    started = perf_counter()
    done = subprocess.run(
        [sys.executable, "-S", "-c", _LAUNCHER, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = perf_counter() - started
    *errors, last = done.stderr.splitlines(keepends=True)
    code, cpu_seconds, peak_kib = last.split()
    return Ran(
        int(code), seconds, float(cpu_seconds), int(peak_kib) * 1024 / 1e6, done.stdout, "".join(errors)
    )
