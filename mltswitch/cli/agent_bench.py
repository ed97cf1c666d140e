"""`mltswitch agent bench`: what tensors cost on this machine, by two agents in one process, over loopback."""

import time
from collections import deque
from itertools import count
from typing import Any, Final

import click
import numpy as np

from mltswitch.cli.bars import progress_bar
from mltswitch.cli.numbers import SIZE, NumberRange
from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.errors import UserInputError
from mltswitch.hostagent import Agent, AgentConfig, Transfer
from mltswitch.hostagent.transport.description import transports
from mltswitch.units import BITS_PER_BYTE, format_ratio

LEAST_BYTES, MOST_BYTES = 4, 1 << 30
COLUMNS: Final = ("transport", "n #", "tags", "tensors #", "goodput [Gbit/s]", "CPU [s/GB]", "sent again #")
SENDER: Final = "sender"
RECEIVER: Final = "receiver"
IN_FLIGHT: Final = 2
"""Tensors that are posted at the same time."""
DEADLINE_SECONDS: Final = 60.0
BYTES_PER_GB: Final = 1e9
CASES: Final = (("mlt", 1, False), ("mlt", 4, False), ("mlt", 16, False), ("mlt", None, False),
                ("mlt", None, True), ("ltp", 1, False), ("ltp", 16, False), ("ltp", None, False),
                ("tcp", None, False))  # fmt: skip
"""Transport, packets of a burst (None: as many as the kernel takes), whether each datagram has a tag."""


@click.command
@click.option("--seconds", type=NumberRange(1, 3600), default=10.0, help="For all streams; by default 10.")
@click.option("--size", "size_bytes", default="25MB", **SIZE, help="Of one tensor; by default 25MB.")
@click.option("--mtu", "mtu_bytes", type=click.IntRange(576, 65_536), default=1500, help="By default 1500.")
@click.option(
    "--transport",
    "wanted",
    multiple=True,
    type=click.Choice(list(transports())),
    help="Some; by default all.",
)
@json_option
def bench(seconds: float, size_bytes: int, mtu_bytes: int, wanted: tuple[str, ...], as_json: bool) -> None:
    """Measure the agent on this machine.

    Both ends are in one process, over loopback, without privileges. Whole tensors of float32 in bursts of n
    packets, with a tag on each datagram, and over TCP. There is no network: compare with other runs of this
    command.
    """
    if not LEAST_BYTES <= size_bytes <= MOST_BYTES:
        raise UserInputError(f"{size_bytes} bytes", where="--size", expected=f"{LEAST_BYTES} to {MOST_BYTES}")
    progress(f"measuring for about {seconds:g} s")
    cases = [case for case in CASES if not wanted or case[0] in wanted]
    streams: list[dict[str, Any]] = []
    with progress_bar() as advance:
        for number, (transport, burst, has_tags) in enumerate(cases):
            advance(f"{transport}, bursts of {burst or 'many'}", number, len(cases))
            case = {"transport": transport, "burst_packets": burst, "authenticate": has_tags}
            config = AgentConfig.model_validate(case | {"mtu_bytes": mtu_bytes, "listen": "127.0.0.1:0"})
            streams.append(case | _stream(config, size_bytes // 4, seconds / len(cases)))
    size_bytes -= size_bytes % 4  # whole elements
    if as_json:
        print_json({"size_bytes": size_bytes, "mtu_bytes": mtu_bytes, "streams": streams})
        return
    rows = [
        (
            entry["transport"],
            entry["burst_packets"] or ("most" if transports()[entry["transport"]].sends_datagrams else "-"),
            "yes" if entry["authenticate"] else "no",
            entry["tensors"],
            f"{entry['goodput_bps'] / 1e9:.2f}",
            f"{entry['cpu_seconds_per_gb']:.2f}",
            format_ratio(entry["resent_share"]),
        )
        for entry in streams
    ]
    title = f"Tensors of {size_bytes / 1e6:g} MB over loopback, MTU {mtu_bytes} (measured)"
    console().print(table(title, COLUMNS, rows))
    click.echo("Processor time is of both ends, which share this machine.")


def _stream(config: AgentConfig, elements: int, seconds: float) -> dict[str, float]:
    """Measures a stream of whole tensors, true of this machine and of loopback alone."""
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
    size_bytes = ended * data.nbytes
    return {
        "tensors": ended,
        "goodput_bps": size_bytes * BITS_PER_BYTE / took,
        "cpu_seconds_per_gb": cpu_seconds / size_bytes * BYTES_PER_GB,  # of both ends together
        "resent_share": resent / packets,
    }
