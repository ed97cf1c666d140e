"""What our P4 program costs on BMv2, beside the least that forwards IPv4, and how long a push takes.

    python -m benchmarks.bmv2_throughput [--quick] [--json]

Needs root and simple_switch_grpc. One switch, two ports, frames of 1,514 bytes. The two programs take turns
on the same process: load, one route, warm up, measure. A rate is what the switch forwards when it always has
something to do: so many frames are on their way that it never idles, and a next one is sent only when one has
come out, so none is lost and the sender takes no time from the switch. The sender hands the kernel whole
batches of finished frames (sendmmsg(2)), and the receiver asks the kernel for its count alone.

    ours_packets_per_second         mltswitch/p4/mlt.p4, a trusted port, a queue with S and L
    basic_packets_per_second        benchmarks/basic_forwarding.p4; both are medians over the turns
    ratio_to_basic_forwarding       median over the turns of ours over basic: below 1, ours is slower
    ratio_lowest, ratio_highest     of the turns
    ours_cpu_microseconds           processor time of the switch for one packet, all its threads, median
    basic_cpu_microseconds          which says the same on a machine that has other things to do
    turns                           how many
    push_seconds_8_switches         `mltswitch push` of a plan to two spines and six leaves, from start to end
    pushed_lines                    table entries and meters that it wrote
"""

import ctypes
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
import yaml

from benchmarks.basic_forwarding import basic_forwarding
from benchmarks.figures import print_figures
from mltswitch.errors import MachineError, MltswitchError
from mltswitch.lab import NamespaceHandle
from mltswitch.lab.bmv2_node import (
    PROGRAM,
    QUIET_COMMANDS,
    PortDescription,
    SwitchDescription,
    bmv2_command,
)
from mltswitch.p4.control import open_switch
from mltswitch.p4.program import Program, shipped_program
from mltswitch.p4.switch import Switch

TURNS: Final = 9
QUICK_TURNS: Final = 3
WARM_UP_SECONDS: Final = 0.5
SECONDS: Final = 3.0
QUICK_SECONDS: Final = 1.0
FRAME_BYTES: Final = 1514
ON_THEIR_WAY: Final = 24
"""A port takes 32 frames at once (libpcap's ring of 2 MiB, of frames as long as its default snaplen)."""
PATIENCE_SECONDS: Final = 5.0
"""Without a frame for so long, one was lost."""
POLL_SECONDS: Final = 20e-6

_SOL_PACKET: Final = 263
_PACKET_STATISTICS: Final = 6
_ETH_P_IP: Final = 0x0800
_STATISTICS: Final = struct.Struct("@II")
_SWITCH_MAC: Final = "02:4d:0a:00:01:01"
_NEIGHBOUR_MAC: Final = "02:4d:0a:00:02:02"
_TOS: Final = 34 << 2 | 2

OUR_LINES: Final = (
    f"table_add ports trust 1 {_SWITCH_MAC} =>",
    f"table_add classes set_queue 1 {_SWITCH_MAC} 34 => 5",
    "table_add queues set_threshold_and_limit 2 5 => 1000000 2000000 0 1514",
    "table_add ipv4_routes forward 10.0.2.0/24 => 2",
    f"table_add neighbours set_neighbour 2 => {_SWITCH_MAC} {_NEIGHBOUR_MAC}",
)
BASIC_LINES: Final = (f"table_add ipv4_routes forward 10.0.2.0/24 => 2 {_NEIGHBOUR_MAC}",)

_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one program."""

    packets_per_second: float
    cpu_microseconds: float
    """Processor time of the switch for one packet."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Both programs, one after the other."""

    ours: Speed
    basic: Speed

    @property
    def ratio(self) -> float:
        """Of the rates, ours over basic."""
        return self.ours.packets_per_second / self.basic.packets_per_second


class _IoVector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _MessageHeader(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("vectors", ctypes.POINTER(_IoVector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    _fields_ = (("header", _MessageHeader), ("length", ctypes.c_uint))


class Sender:
    """Copies of one frame, sent by the batch."""

    def __init__(self, interface: str, frame: bytes, most: int) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((interface, 0))
        self._frame = ctypes.create_string_buffer(frame, len(frame))
        self._vector = _IoVector(ctypes.addressof(self._frame), len(frame))
        self._messages = (_Message * most)()
        for message in self._messages:
            message.header.vectors = ctypes.pointer(self._vector)
            message.header.vector_count = 1

    def send(self, count: int) -> None:
        """Send so many; raises OSError."""
        sent = 0
        while sent < count:
            done = _libc.sendmmsg(self._socket.fileno(), self._messages, count - sent, 0)
            if done < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "sendmmsg")
            sent += done

    def close(self) -> None:
        """No frame is sent any more."""
        self._socket.close()


class Counter:
    """How many IPv4 frames have come; the kernel counts them, and keeps none."""

    def __init__(self, interface: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._socket.bind((interface, _ETH_P_IP))

    def new(self) -> int:
        """Since the last call (packet(7), PACKET_STATISTICS)."""
        answer = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        return int(_STATISTICS.unpack(answer)[0])

    def close(self) -> None:
        """No frame is counted any more."""
        self._socket.close()


def forwarding_rate(sender: Sender, counter: Counter, seconds: float) -> float:
    """Packets per second with always ON_THEIR_WAY of them inside; raises MachineError when one is lost."""
    counter.new()
    sender.send(ON_THEIR_WAY)
    come = 0
    started = last = time.perf_counter()
    while (now := time.perf_counter()) < started + seconds:
        new = counter.new()
        if new:
            sender.send(new)
            come, last = come + new, now
        elif now > last + PATIENCE_SECONDS:
            raise MachineError("a packet was lost: nothing comes any more", where="BMv2")
        time.sleep(POLL_SECONDS)
    rate = come / (now - started)
    _let_out(counter)
    return rate


def _let_out(counter: Counter) -> None:
    """Wait for what is still inside, so that it disturbs no next measurement."""
    left = ON_THEIR_WAY
    deadline = time.perf_counter() + PATIENCE_SECONDS
    while left > 0:
        left -= counter.new()
        if time.perf_counter() > deadline:
            raise MachineError(f"{left} packets were lost", where="BMv2")
        time.sleep(POLL_SECONDS)


def probe_frame() -> bytes:
    """UDP in IPv4 in Ethernet, an important packet of the first gradient class."""
    payload = FRAME_BYTES - 14 - 20
    header = struct.pack(
        "!BBHHHBBH4s4s",
        *(0x45, _TOS, payload + 20, 0, 0, 64, 17, 0),
        socket.inet_aton("10.0.1.2"),
        socket.inet_aton("10.0.2.2"),
    )
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    ethernet = bytes.fromhex(_SWITCH_MAC.replace(":", "")) + bytes.fromhex("024d0a000102") + b"\x08\x00"
    udp = struct.pack("!HHHH", 47001, 47001, payload, 0)
    parts = (ethernet, header[:10], checksum.to_bytes(2, "big"), header[12:], udp, bytes(payload - 8))
    return b"".join(parts)


@contextmanager
def running_switch() -> Iterator[tuple[Switch, int, NamespaceHandle]]:
    """A switch with ports 1 and 2, its process, and a namespace beside it with their other ends h1 and h2."""
    if os.geteuid() != 0 or shutil.which(PROGRAM) is None:
        raise MachineError(f"needs root and {PROGRAM}")
    switch, hosts = (NamespaceHandle(f"mltswitch-bench-{os.getpid()}-{name}") for name in ("sw", "h"))
    folder = Path(tempfile.mkdtemp(prefix="mltswitch-bmv2-throughput-"))
    process = None
    try:
        _build(switch, hosts)
        address = f"unix:{folder / 'grpc'}"
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(switch.command(_command(address, folder)), stdout=log, stderr=log)
        _wait_for(folder / "grpc", process)
        with open_switch(address, device_id=1) as control:
            yield control, process.pid, hosts
    finally:
        if process is not None:
            process.kill()
            process.wait()
        for namespace in (switch, hosts):
            subprocess.run(["ip", "netns", "delete", namespace.name], check=False, capture_output=True)
        shutil.rmtree(folder)


def _command(address: str, folder: Path) -> list[str]:
    ports = [PortDescription(number=number, name=f"s{number}", mac="", rate_bps=0) for number in (1, 2)]
    command = bmv2_command(
        SwitchDescription(
            name="",
            ports=ports,
            log_level="off",
            log_file="",
            pcap_folder="",
            notifications_file=str(folder / "notifications"),
        )
    )
    return [address if word.startswith("127.0.0.1:") else word for word in command]


def _build(switch: NamespaceHandle, hosts: NamespaceHandle) -> None:
    lines = [f"netns add {switch.name}", f"netns add {hosts.name}"]
    lines += [
        f"link add s{number} netns {switch.name} type veth peer name h{number} netns {hosts.name}"
        for number in (1, 2)
    ]
    _ip(lines)
    for namespace, letter in ((switch, "s"), (hosts, "h")):
        subprocess.run(namespace.command(["sh", "-c", QUIET_COMMANDS]), check=True)
        _ip(["link set lo up", *(f"link set {letter}{number} up" for number in (1, 2))], namespace.name)


def _ip(lines: Sequence[str], namespace: str = "") -> None:
    command = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    subprocess.run(command, input="\n".join(lines), text=True, check=True)


def _wait_for(file: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS * 4
    while not file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise MachineError("did not start", where=PROGRAM)
        time.sleep(0.02)


def take_turns(turns: int, seconds: float) -> list[Turn]:
    """Both programs on one switch in turn; raises MachineError."""
    with running_switch() as (control, process, hosts):
        with hosts.entered():
            sender, counter = Sender("h1", probe_frame(), ON_THEIR_WAY), Counter("h2")
        try:
            measure = partial(_measure, control, process, sender, counter, seconds)
            return [_both(measure, ours_first=number % 2 == 0) for number in range(turns)]
        finally:
            sender.close()
            counter.close()


def _both(measure: Callable[[Program, Sequence[str]], Speed], *, ours_first: bool) -> Turn:
    """Whoever comes second may find another machine, so each comes first in every other turn."""
    if ours_first:
        ours = measure(shipped_program(), OUR_LINES)
        return Turn(ours, measure(basic_forwarding(), BASIC_LINES))
    basic = measure(basic_forwarding(), BASIC_LINES)
    return Turn(measure(shipped_program(), OUR_LINES), basic)


def _measure(
    control: Switch,
    process: int,
    sender: Sender,
    counter: Counter,
    seconds: float,
    program: Program,
    lines: Sequence[str],
) -> Speed:
    control.load(program)
    control.write(lines)
    forwarding_rate(sender, counter, WARM_UP_SECONDS)
    before = _cpu_seconds(process)
    rate = forwarding_rate(sender, counter, seconds)
    return Speed(rate, 1e6 * (_cpu_seconds(process) - before) / (rate * seconds))


def _cpu_seconds(process: int) -> float:
    """User and system time (proc(5), fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figures(turns: Sequence[Turn]) -> dict[str, float]:
    """Medians, and how far the turns' ratios lie apart."""
    ratios = [turn.ratio for turn in turns]
    return {
        "ours_packets_per_second": median(turn.ours.packets_per_second for turn in turns),
        "basic_packets_per_second": median(turn.basic.packets_per_second for turn in turns),
        "ratio_to_basic_forwarding": median(ratios),
        "ratio_lowest": min(ratios),
        "ratio_highest": max(ratios),
        "ours_cpu_microseconds": median(turn.ours.cpu_microseconds for turn in turns),
        "basic_cpu_microseconds": median(turn.basic.cpu_microseconds for turn in turns),
        "turns": float(len(turns)),
    }


def push_figures() -> dict[str, float]:
    """A lab of eight switches, and the push that makes them run a plan; raises MachineError."""
    folder = tempfile.mkdtemp(prefix="mltswitch-bmv2-push-")
    inventory, plan_file = Path(folder), f"{folder}/plan.yaml"
    try:
        (inventory / "fabric.yaml").write_text(yaml.safe_dump(_fabric(), sort_keys=False))
        (inventory / "hosts.yaml").write_text(yaml.safe_dump(_inventory()))
        _call("plan", "--profile", "resnet50", "--fabric", f"{folder}/fabric.yaml", "-o", plan_file)
        _call("lab", "up", "-i", folder, "--engine", "namespaces")
        started = time.perf_counter()
        _call("push", plan_file, "-i", folder)
        seconds = time.perf_counter() - started
        lines = sum(_lines(device["ansible_host"]) for device in _inventory()["all"]["hosts"].values())
    finally:
        _call("lab", "down", "-i", folder)
        shutil.rmtree(folder)  # only now: the lab's record of what runs lies in it
    return {"push_seconds_8_switches": seconds, "pushed_lines": float(lines)}


def _lines(address: str) -> int:
    with open_switch(f"{address}:9559", device_id=1, primary=False) as switch:
        return len(switch.entries()) + len(switch.meters())


def _fabric() -> dict[str, Any]:
    return {
        "schema": "mltswitch/fabric/v1",
        "name": "bmv2-push",
        "topology": {
            "leaf_spine": {
                "spines": {"count": 2, "platform": "bmv2"},
                "leaves": {"count": 6, "platform": "bmv2"},
                "hosts_per_leaf": 4,
            }
        },
        "addressing": {
            "hosts": "10.10.0.0/16",
            "links": "10.20.0.0/16",
            "alias": {"spine1": "10.101.0.0/16", "spine2": "10.102.0.0/16"},
        },
        "ports": {"rate": "10Mbps", "buffer": "256kB"},
        "traffic": {"load": 0.9},
        "classes": {"control": {"dscp": [40]}, "gradients": {"dscp": [34, 36, 26, 28, 18]}},
    }


def _inventory() -> dict[str, Any]:
    names = [*(f"spine{number}" for number in (1, 2)), *(f"leaf{number}" for number in range(1, 7))]
    return {
        "all": {
            "hosts": {
                name: {"ansible_host": f"127.77.7.{number}"} for number, name in enumerate(names, start=1)
            },
            "vars": {"mltswitch_platform": "bmv2", "ansible_port": 9559, "mltswitch_thrift_port": 9090},
        }
    }


def _call(*arguments: str) -> None:
    """Run our command as a user would; raises MachineError with its last line."""
    command = [sys.executable, "-m", "mltswitch", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise MachineError(last[0], where=f"mltswitch {' '.join(arguments[:2])}")


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter turns.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Packets per second with our program and with the least that forwards, and the time of a push."""
    try:
        turns = take_turns(QUICK_TURNS, QUICK_SECONDS) if quick else take_turns(TURNS, SECONDS)
        found = figures(turns) | push_figures()
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
