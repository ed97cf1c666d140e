"""A real BMv2 switch, alone in a network namespace that ends with it; P4Runtime is a socket in a folder."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mltswitch.errors import DeviceError
from mltswitch.lab.bmv2_node import takes_notifications
from mltswitch.p4.control import open_switch

DEVICE_ID = 1
_CABLES = (
    "for n in 1 2; do ip link add eth$n type veth peer name host$n; "
    "ip link set eth$n up; ip link set host$n up; done"
)
_NO_CHATTER = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"
_START = f'{_NO_CHATTER}; ip link set lo up; {_CABLES}; exec "$@"'
_SEND = (
    "import socket, sys\n"
    "with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as port:\n"
    "    port.bind((sys.argv[1], 0))\n"
    "    [port.send(bytes.fromhex(frame)) for frame in sys.argv[2:]]\n"
)
_HEAR = (
    "import socket, sys\n"
    "with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as port:\n"
    "    port.bind((sys.argv[1], 0))\n"
    "    port.settimeout(60)\n"
    "    print(flush=True)\n"
    "    print(port.recv(65535).hex())\n"
)


@dataclass(frozen=True, slots=True)
class RunningSwitch:
    """BMv2 with the ports 1 and 2, and no program yet."""

    address: str
    process: subprocess.Popen[bytes]

    def send(self, port: int, *frames: bytes) -> None:
        """Frames that arrive at a port."""
        subprocess.run([*self._inside(_SEND, port), *(frame.hex() for frame in frames)], check=True)

    @contextmanager
    def hearing(self, port: int) -> Iterator[Callable[[], bytes]]:
        """The first frame that leaves by a port from here on."""
        with subprocess.Popen(self._inside(_HEAR, port), stdout=subprocess.PIPE, text=True) as listener:
            assert listener.stdout is not None
            listener.stdout.readline()
            try:
                yield lambda: bytes.fromhex(listener.communicate()[0])
            finally:
                listener.kill()

    def _inside(self, code: str, port: int) -> list[str]:
        """The command that runs Python beside the switch, at the other end of a port's cable."""
        return ["nsenter", "-t", str(self.process.pid), "-n", sys.executable, "-c", code, f"host{port}"]

    def kill(self) -> None:
        """It dies at once, and says nothing to anybody."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running_switch(folder: Path, *options: str) -> Iterator[RunningSwitch]:
    """One that answers, with eight priority queues where the options do not say otherwise.

    Skips the test where BMv2 or the right to make a namespace is missing.
    """
    if shutil.which("simple_switch_grpc") is None:
        pytest.skip("simple_switch_grpc is not installed (docs/p4.md says where to get it)")
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    address = f"unix:{folder / 'p4runtime'}"
    command = [
        *("unshare", "--net", "sh", "-c", _START, "sh"),
        *("simple_switch_grpc", "--no-p4", "--device-id", str(DEVICE_ID), "-i", "1@eth1", "-i", "2@eth2"),
        # where else all switches with this device id would share one socket in /tmp
        *(("--notifications-addr", f"ipc://{folder / 'notifications'}") if takes_notifications() else ()),
        *("-L", "off"),
        *("--", "--grpc-server-addr", address, "--cpu-port", "255"),
        *(options or ("--priority-queues", "8")),
    ]
    with (folder / "bmv2.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_until_it_answers(address, process, folder / "bmv2.log")
        yield RunningSwitch(address, process)
    finally:
        process.kill()
        process.wait()


def _wait_until_it_answers(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with open_switch(address, device_id=DEVICE_ID, primary=False) as switch:
                switch.cookie()
        except DeviceError as error:
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, str(error)
            time.sleep(0.05)
        else:
            return
