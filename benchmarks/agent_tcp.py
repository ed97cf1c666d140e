"""The host agent's `tcp` transport beside iperf3: whether the baseline is as fast as plain TCP.

    python -m benchmarks.agent_tcp [--quick] [--json] [--streams N]

Needs root and iperf3. Two network namespaces, one veth cable, MTU 1500, tensors of 25 MB of random float32,
three on their way, two processes, a control channel in plain text, the same number of TCP connections for the
data with the kernel's own congestion control at both contenders. They take turns, the first one changes, and
every figure is the median over the turns; the ratio is the median of the turns' own ratios. Goodput counts
the tensors' bytes alone.

    goodput_gbps                    of tensors, Gbit/s
    iperf3_gbps                     of iperf3
    ratio_to_iperf3                 ours over iperf3
    cpu_seconds_per_gb_sender, cpu_seconds_per_gb_receiver
                                    processor time of each of our ends for 10^9 bytes of tensors
    iperf3_cpu_seconds_per_gb_sender, iperf3_cpu_seconds_per_gb_receiver
                                    of iperf3's ends
    completion_ms                   of one tensor with nothing else on its way
    turns                           how many
"""

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, Final

import click

from benchmarks.agent_ends import CONTROL_PORT, Worker, agent_fields, connect, open_agent, stream
from benchmarks.agent_goodput import (
    IN_FLIGHT,
    LINE_RATE_BPS,
    QUICK_SECONDS,
    QUICK_TURNS,
    SECONDS,
    TENSOR_BYTES,
    Speed,
    speed,
    tcp,
)
from benchmarks.agent_network import Pair, running_pair
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab.programs import need

MTU: Final = 1500
ALONE: Final = 8
TURNS: Final = 7


def ours(pair: Pair, seconds: float, streams: int) -> Speed:
    """Tensors one by one, which tells how many fill the time, then a stream."""
    ends = {
        "receiver": (pair.receiver, pair.receiver_addresses),
        "sender": (pair.sender, pair.sender_addresses),
    }
    workers = {}
    with ExitStack() as stack:
        for name, (host, addresses) in ends.items():
            more = {"transport": "tcp", "tcp": {"streams": streams}}
            workers[name] = stack.enter_context(Worker(host))
            workers[name].call(open_agent, agent_fields(name, addresses[:1], LINE_RATE_BPS, **more))
        place = f"{pair.receiver_addresses[0]}:{CONTROL_PORT}"
        workers["sender"].call(connect, "sender", "receiver", place)

        def run(count: int, in_flight: int) -> tuple[dict[str, Any], dict[str, Any]]:
            arguments = TENSOR_BYTES, count, in_flight
            workers["receiver"].start(stream, False, "receiver", "sender", *arguments)
            sent = workers["sender"].call(stream, True, "sender", "receiver", *arguments)
            return sent, workers["receiver"].result()

        run(2, 1)  # windows have grown
        alone, _ = run(ALONE, 1)
        sent, received = run(max(2 * IN_FLIGHT, round(seconds / alone["completion_seconds"])), IN_FLIGHT)
    return speed(sent, received, completion_ms=alone["completion_seconds"] * 1e3)


def take_turns(turns: int, seconds: float, streams: int) -> list[tuple[Speed, Speed]]:
    """Ours and iperf3, each turn beginning with the other one; raises MachineError."""
    need("iperf3")
    found = []
    with running_pair() as pair:
        pair.use_mtu(MTU)
        for number in range(turns):
            if number % 2:
                plain, own = tcp(pair, seconds, streams), ours(pair, seconds, streams)
            else:
                own, plain = ours(pair, seconds, streams), tcp(pair, seconds, streams)
            found.append((own, plain))
            gbps = own.bits_per_second / 1e9, plain.bits_per_second / 1e9
            click.echo(f"turn {number + 1}: {gbps[0]:.2f} Gbit/s, iperf3 {gbps[1]:.2f}", err=True)
    return found


def figures(turns: Sequence[tuple[Speed, Speed]]) -> dict[str, float]:
    """Medians over the turns."""
    found = {"ratio_to_iperf3": median(own.bits_per_second / plain.bits_per_second for own, plain in turns)}
    for which, (goodput, prefix) in enumerate((("goodput_gbps", ""), ("iperf3_gbps", "iperf3_"))):
        speeds = [turn[which] for turn in turns]
        sender = [entry.sender_cpu_seconds_per_gb for entry in speeds]
        receiver = [entry.cpu_seconds_per_gb - entry.sender_cpu_seconds_per_gb for entry in speeds]
        found[goodput] = median(entry.bits_per_second for entry in speeds) / 1e9
        found[f"{prefix}cpu_seconds_per_gb_sender"] = median(sender)
        found[f"{prefix}cpu_seconds_per_gb_receiver"] = median(receiver)
    found["completion_ms"] = median(own.extra["completion_ms"] for own, _ in turns)
    return found | {"turns": float(len(turns))}


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter turns.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--streams", default=1, show_default=True, help="TCP connections of each contender.")
def main(quick: bool, as_json: bool, streams: int) -> None:
    """Goodput of whole tensors over TCP, beside iperf3."""
    turns, seconds = (QUICK_TURNS, QUICK_SECONDS) if quick else (TURNS, SECONDS)
    try:
        found = figures(take_turns(turns, seconds, streams))
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
