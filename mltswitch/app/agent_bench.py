"""Measures what exchanging tensors costs on this machine: two agents in one process, over loopback."""

import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np

from mltswitch.hostagent import Agent, AgentConfig, Transfer

SENDER: Final = "sender"
RECEIVER: Final = "receiver"
IN_FLIGHT: Final = 2
"""How many tensors are posted at the same time."""
DEADLINE_SECONDS: Final = 60.0
BYTES_PER_GB: Final = 1e9
CASES: Final = (("mlt", 1, False), ("mlt", 4, False), ("mlt", 16, False), ("mlt", None, False),
                ("mlt", None, True), ("ltp", 1, False), ("ltp", 16, False), ("ltp", None, False),
                ("tcp", None, False))  # fmt: skip
"""Measured cases: transport, packets of a burst (None: as many as the kernel takes), datagrams with a tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFigures:
    """Measured figures of one stream of whole tensors."""

    transport: str
    burst_packets: int | None
    """Packets of a burst; None: as many as the kernel takes, or TCP, which has no such packets."""
    authenticate: bool
    tensors: int
    goodput_bps: float
    cpu_seconds_per_gb: float
    """Processor time of both ends together, in seconds for each gigabyte."""
    resent_share: float
    """Share of the packets that were sent again."""


def run_bench(
    *,
    elements: int,
    mtu_bytes: int,
    seconds: float,
    advance: Callable[[str, int, int], None],
    wanted: Collection[str] = (),
) -> list[StreamFigures]:
    """Measure a stream for each case, in about so many seconds in all; valid for this machine and loopback
    only.

    Args:
        advance: called with what is being measured, and with progress.
        wanted: names of transports; empty: all.

    Raises MachineError.
    """
    streams = []
    cases = [case for case in CASES if not wanted or case[0] in wanted]
    for number, (transport, burst, has_tags) in enumerate(cases):
        advance(f"{transport}, bursts of {burst or 'many'}", number, len(cases))
        own = {
            "transport": transport,
            "burst_packets": burst,
            "authenticate": has_tags,
            "mtu_bytes": mtu_bytes,
            "listen": "127.0.0.1:0",
        }
        streams.append(_stream(AgentConfig.model_validate(own), elements, seconds / len(cases)))
    return streams


def _stream(config: AgentConfig, elements: int, seconds: float) -> StreamFigures:
    data = np.random.default_rng(1).standard_normal(elements, np.float32)
    memory = [np.zeros_like(data) for _ in range(IN_FLIGHT)]
    posted: deque[tuple[Transfer, Transfer]] = deque()
    ended = resent = packets = 0
    began = cpu_began = 0.0
    near, far = (config.model_copy(update={"name": name}) for name in (SENDER, RECEIVER))
    with Agent(near) as sender, Agent(far) as receiver:
        sender.connect(RECEIVER, receiver.listening_at)
        receiver.wait_for_peers([SENDER])
        for number in count():
            if len(posted) == IN_FLIGHT:
                there, here = posted.popleft()
                there.wait()
                statistics = here.wait().statistics
                ended += 1
                resent += statistics.packets_resent
                packets += statistics.packets
                if not began and ended == IN_FLIGHT:  # warm
                    began, cpu_began, ended, resent, packets = time.monotonic(), time.process_time(), 0, 0, 0
                elif began and ended >= IN_FLIGHT and time.monotonic() - began >= seconds:
                    break
            options: dict[str, Any] = {"round_number": number, "deadline_seconds": DEADLINE_SECONDS}
            there = receiver.post_receive(SENDER, memory[number % IN_FLIGHT], tensor=0, **options)
            posted.append((there, sender.post_send(RECEIVER, data, tensor=0, **options)))
        took, cpu_seconds = time.monotonic() - began, time.process_time() - cpu_began
    return StreamFigures(
        transport=config.transport,
        burst_packets=config.burst_packets,
        authenticate=bool(config.authenticate),
        tensors=ended,
        goodput_bps=ended * data.nbytes * 8 / took,
        cpu_seconds_per_gb=cpu_seconds / (ended * data.nbytes) * BYTES_PER_GB,
        resent_share=resent / packets,
    )
