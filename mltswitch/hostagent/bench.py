"""What tensors cost on this machine: two agents in one process, over loopback."""

import os
import platform
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

from mltswitch.errors import MachineError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.security.keys import make_keys

SENDER: Final = "sender"
RECEIVER: Final = "receiver"
HANDSHAKES: Final = 5
IN_FLIGHT: Final = 2
"""Tensors that are posted at the same time."""
DEADLINE_SECONDS: Final = 60.0
BYTES_PER_GB: Final = 1e9
BITS_PER_BYTE: Final = 8


class Case(NamedTuple):
    """One stream of tensors."""

    transport: str
    burst_packets: int | None = None
    """None: as many as the kernel takes; over TCP there are no packets of ours."""
    authenticate: bool = False


CASES: Final = (Case("mlt", 1), Case("mlt", 4), Case("mlt", 16), Case("mlt"), Case("mlt", None, authenticate=True), Case("tcp"))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFigures:
    """Of one stream of whole tensors; all measured."""

    transport: str
    burst_packets: int | None
    authenticate: bool
    tensors: int
    goodput_bps: float
    cpu_seconds_per_gb: float
    """Of both ends together."""
    resent_share: float
    """Of the packets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeFigures:
    """From `connect` until it returns; medians, processor time of both ends together."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """All of it measured, and true of this machine and of loopback alone."""

    kernel: str
    processors: int
    size_bytes: int
    """Of one tensor."""
    mtu_bytes: int
    streams: tuple[StreamFigures, ...]
    plain_handshake: HandshakeFigures
    tls_handshake: HandshakeFigures | None
    why_no_tls: str
    """Empty where it was measured."""


def run_bench(
    *, size_bytes: int, mtu_bytes: int, seconds: float, advance: Callable[[str, int, int], None]
) -> BenchResult:
    """Everything, in about so many seconds; raises MachineError. `advance` is told what is measured."""
    plain, tls, why = _handshakes(), None, ""
    with tempfile.TemporaryDirectory(prefix="mltswitch-bench-") as folder:
        try:
            make_keys(Path(folder) / "job", [SENDER, RECEIVER])
            tls = _handshakes(Path(folder) / "job" / "hosts")
        except MachineError as error:  # cryptography is an extra
            why = str(error)
    streams = []
    for number, case in enumerate(CASES):
        advance(f"{case.transport}, bursts of {case.burst_packets or 'many'}", number, len(CASES))
        streams.append(_stream(case, size_bytes // 4, mtu_bytes, seconds / len(CASES)))
    return BenchResult(
        kernel=platform.release(),
        processors=os.cpu_count() or 1,
        size_bytes=size_bytes // 4 * 4,
        mtu_bytes=mtu_bytes,
        streams=tuple(streams),
        plain_handshake=plain,
        tls_handshake=tls,
        why_no_tls=why,
    )


@contextmanager
def _pair(keys: Path | None = None, **fields: Any) -> Iterator[tuple[Agent, Agent]]:
    def opened(name: str) -> Agent:
        folder = None if keys is None else str(keys / name)
        return Agent(AgentConfig(name=name, listen="127.0.0.1:0", keys=folder, **fields))

    with opened(SENDER) as sender, opened(RECEIVER) as receiver:
        yield sender, receiver


def _handshakes(keys: Path | None = None) -> HandshakeFigures:
    """Each with agents of its own: nothing is resumed, and no connection is there already."""
    seconds, cpu_seconds = [], []
    for _ in range(HANDSHAKES):
        with _pair(keys) as (sender, receiver):
            began, cpu_began = time.monotonic(), time.process_time()
            sender.connect(RECEIVER, receiver.listening_at)
            seconds.append(time.monotonic() - began)
            receiver.wait_for_peers([SENDER])
            cpu_seconds.append(time.process_time() - cpu_began)
    return HandshakeFigures(seconds=median(seconds), cpu_seconds=median(cpu_seconds))


def _stream(case: Case, elements: int, mtu_bytes: int, seconds: float) -> StreamFigures:
    data = np.random.default_rng(1).standard_normal(elements, np.float32)
    memory = [np.zeros_like(data) for _ in range(IN_FLIGHT)]
    fields = {"transport": case.transport, "mtu_bytes": mtu_bytes, "authenticate": case.authenticate}
    with _pair(**fields) as (sender, receiver):
        sender.connect(RECEIVER, receiver.listening_at)
        receiver.wait_for_peers([SENDER])
        posted, ended, resent, packets = deque[Any](), 0, 0, 0
        began = cpu_began = 0.0
        for number in count():
            if len(posted) == IN_FLIGHT:
                there, here = posted.popleft()
                there.wait()
                statistics = here.wait().statistics
                ended, resent = ended + 1, resent + statistics.packets_resent
                packets += statistics.packets
                if not began and ended == IN_FLIGHT:  # warm
                    began, cpu_began, ended, resent, packets = time.monotonic(), time.process_time(), 0, 0, 0
                elif began and time.monotonic() - began >= seconds and ended >= IN_FLIGHT:
                    break
            options = {"tensor": 0, "round_number": number, "deadline_seconds": DEADLINE_SECONDS}
            there = receiver.post_receive(SENDER, memory[number % IN_FLIGHT], **options)
            here = sender.post_send(RECEIVER, data, burst_packets=case.burst_packets, **options)
            posted.append((there, here))
        took, cpu_seconds = time.monotonic() - began, time.process_time() - cpu_began
    return StreamFigures(
        **case._asdict(),
        tensors=ended,
        goodput_bps=ended * data.nbytes * BITS_PER_BYTE / took,
        cpu_seconds_per_gb=cpu_seconds / (ended * data.nbytes) * BYTES_PER_GB,
        resent_share=resent / packets,
    )
