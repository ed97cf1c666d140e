"""Host agents in the benchmarks' namespaces: their settings, their keys, and how they are started."""

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from benchmarks.agent_network import Program, module
from benchmarks.agent_switch import Star
from mltswitch.hostagent.control.keys import make_keys
from mltswitch.lab import NamespaceHandle

CONTROL_PORT: Final = 20_811
RECEIVER: Final = "receiver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of one agent; what differs between the ends is filled in when they are started."""

    payload_bytes: int
    """Of UDP, a packet."""
    line_rate_bps: float
    queue_bytes: int = 0
    """Where the switch begins to drop; 0: no queue but the sockets'."""
    is_steady: bool = False
    """Send at the line's rate whatever round trips say."""
    burst_packets: int = 1
    transport: str = "mlt"
    policy: str = "magnitude"
    """Of importance."""
    dscp: int = 34
    control_dscp: int = 40
    name: str = ""
    addresses: tuple[str, ...] = ()
    """Our own, one a path."""
    receiver_address: str = ""
    """Of the control channel."""
    senders: int = 1
    keys: str = ""
    """The folder of this host's keys."""
    profile: str = ""
    """A folder for what the profiler says; empty: none."""


def sender_name(number: int) -> str:
    """Of sender 0, 1, …"""
    return f"sender{number}"


def make_bench_keys(folder: Path, addresses: dict[str, Sequence[str]]) -> dict[str, str]:
    """Name → folder of its keys."""
    hosts = {name: [ip_address(entry) for entry in each] for name, each in addresses.items()}
    made = make_keys(folder, hosts, days=1, authority_days=2, now=datetime.now(UTC))
    return {host.name: str(host.folder) for host in made.hosts}


def start(
    stack: ExitStack, receiver: NamespaceHandle, senders: Sequence[NamespaceHandle], ends: Sequence[Settings]
) -> tuple[Program, list[Program]]:
    """A receiver's and the senders' processes, connected; `ends` begins with the receiver's settings."""
    programs = []
    for namespace, settings in zip((receiver, *senders), ends, strict=True):
        command = module("agent_peer", json.dumps(asdict(settings)))
        programs.append(stack.enter_context(Program(namespace, command)))
        if settings.name == RECEIVER:
            programs[0].wait_for("ready")
    for program in programs:
        program.wait_for("connected")
    return programs[0], programs[1:]


def completed(
    stack: ExitStack, settings: Settings, receiver: Sequence[str], senders: Sequence[Sequence[str]]
) -> list[Settings]:
    """The settings of every end, given their addresses; the receiver's first."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mltswitch-bench-keys-")))
    addresses = {RECEIVER: receiver} | {sender_name(number): each for number, each in enumerate(senders)}
    keys = make_bench_keys(folder / "keys", addresses)
    return [
        replace(
            settings,
            name=name,
            addresses=tuple(each),
            receiver_address=receiver[0],
            senders=len(senders),
            keys=keys[name],
        )
        for name, each in addresses.items()
    ]


def running_agents(
    stack: ExitStack, star: Star, settings: Settings, *, senders: int
) -> tuple[Program, list[Program]]:
    """Agents on the last host and on the first so many others of a star, connected."""
    last = len(star.hosts) - 1
    ends = completed(stack, settings, star.addresses(last), [star.addresses(n) for n in range(senders)])
    return start(stack, star.hosts[last], star.hosts[:senders], ends)
