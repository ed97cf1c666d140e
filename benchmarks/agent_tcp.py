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

import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import click
import numpy as np

from benchmarks.agent_network import Pair, Program, module, need, running_pair
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.hostagent import Agent, AgentConfig, Transfer

MTU: Final = 1500
TENSOR_BYTES: Final = 25_000_000
IN_FLIGHT: Final = 3
ALONE: Final = 8
TURNS: Final = 7
QUICK_TURNS: Final = 2
SECONDS: Final = 2.0
QUICK_SECONDS: Final = 0.6
CONTROL_PORT: Final = 20_811
IPERF3_PORT: Final = 20_511
PATIENCE_SECONDS: Final = 50.0


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one contender in one turn."""

    gbps: float
    sender_cpu_seconds_per_gb: float
    receiver_cpu_seconds_per_gb: float
    completion_ms: float = 0.0


def iperf3(pair: Pair, seconds: float, streams: int) -> Speed:
    """Its processor times are percents of the run."""
    server = ["iperf3", "--server", "--one-off", "--forceflush", "--port", str(IPERF3_PORT)]
    client = ["iperf3", "--client", pair.receiver_addresses[0], "--port", str(IPERF3_PORT), "--json"]
    client += ["--time", str(max(1, round(seconds))), "--parallel", str(streams)]
    with Program(pair.receiver, server) as listening:
        listening.wait_for("listening")
        with Program(pair.sender, client) as sending:
            end = json.loads(sending.rest())["end"]
    received, cpu = end["sum_received"], end["cpu_utilization_percent"]
    per_gb = received["seconds"] / 100 / (received["bytes"] / 1e9)
    return Speed(received["bits_per_second"] / 1e9, cpu["host_total"] * per_gb, cpu["remote_total"] * per_gb)


def ours(pair: Pair, seconds: float, streams: int) -> Speed:
    """Tensors one by one, which tells how many fill the time, then a stream."""
    with (
        Program(pair.receiver, command("receiver", pair, streams)) as receiver,
        Program(pair.sender, command("sender", pair, streams)) as sender,
    ):
        for end in (receiver, sender):
            end.wait_for("connected")
        run(sender, receiver, count=2, in_flight=1)  # memory is touched, windows have grown
        alone, _ = run(sender, receiver, count=ALONE, in_flight=1)
        count = max(2 * IN_FLIGHT, round(seconds / median(alone["seconds_each"])))
        sent, received = run(sender, receiver, count=count, in_flight=IN_FLIGHT)
    gigabytes = count * TENSOR_BYTES / 1e9
    return Speed(
        gigabytes * 8 / sent["seconds"],
        sent["cpu_seconds"] / gigabytes,
        received["cpu_seconds"] / gigabytes,
        median(alone["seconds_each"]) * 1e3,
    )


def run(sender: Program, receiver: Program, **stream: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A stream; the receiver's memory is posted before the sender's clock starts."""
    receiver.tell(json.dumps(stream))
    receiver.wait_for("posted")
    sender.tell(json.dumps(stream))
    sender.wait_for("posted")
    return sender.answer(), receiver.answer()


def command(name: str, pair: Pair, streams: int) -> list[str]:
    """Of one of our ends."""
    addresses = pair.sender_addresses if name == "sender" else pair.receiver_addresses
    return module("agent_tcp", "--end", name, addresses[0], pair.receiver_addresses[0], str(streams))


def serve_end(name: str, address: str, receiver: str, streams: str) -> None:
    """One of our ends: obeys lines of JSON until its input ends."""
    config = AgentConfig.model_validate(
        {
            "name": name,
            "addresses": (address,),
            "listen": f"{address}:{CONTROL_PORT}",
            "plaintext": True,
            "line_rate": "100Gbps",
            "classes": {"control_dscp": 40, "gradient_dscp": [34]},
            "transport": "tcp",
            "tcp": {"streams": int(streams)},
        }
    )
    peer = "sender" if name == "receiver" else "receiver"
    tensors = [
        np.random.default_rng(slot).standard_normal(TENSOR_BYTES // 4, dtype=np.float32)
        for slot in range(IN_FLIGHT)
    ]
    first_round = 0
    with Agent(config) as agent:
        if name == "sender":
            agent.connect(peer, f"{receiver}:{CONTROL_PORT}", timeout_seconds=PATIENCE_SECONDS)
        agent.wait_for_peers([peer], PATIENCE_SECONDS)
        print("connected", flush=True)
        post = agent.post_send if name == "sender" else agent.post_receive
        for line in sys.stdin:
            stream = json.loads(line)
            cpu, started = cpu_seconds(), time.monotonic()
            transfers: list[Transfer] = []
            seconds = []
            for number in range(stream["count"] + stream["in_flight"]):
                if number >= stream["in_flight"]:
                    done = transfers[number - stream["in_flight"]].wait(PATIENCE_SECONDS)
                    seconds.append(done.statistics.seconds)
                if number < stream["count"]:
                    slot = number % stream["in_flight"]
                    transfers.append(
                        post(peer, tensors[slot], tensor=slot, round_number=first_round + number)
                    )
                if number == 0:
                    print("posted", flush=True)
            elapsed = time.monotonic() - started
            first_round += stream["count"]
            found = {"seconds": elapsed, "cpu_seconds": cpu_seconds() - cpu, "seconds_each": seconds}
            print(json.dumps(found), flush=True)


def cpu_seconds() -> float:
    """User and system time of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def take_turns(turns: int, seconds: float, streams: int) -> list[tuple[Speed, Speed]]:
    """Ours and iperf3, each turn beginning with the other one; raises MachineError."""
    need("iperf3")
    found = []
    with running_pair() as pair:
        pair.use_mtu(MTU)
        for number in range(turns):
            if number % 2:
                plain, own = iperf3(pair, seconds, streams), ours(pair, seconds, streams)
            else:
                own, plain = ours(pair, seconds, streams), iperf3(pair, seconds, streams)
            found.append((own, plain))
            click.echo(f"turn {number + 1}: {own.gbps:.2f} Gbit/s, iperf3 {plain.gbps:.2f}", err=True)
    return found


def figures(turns: Sequence[tuple[Speed, Speed]]) -> dict[str, float]:
    """Medians over the turns."""
    own, plain = [turn[0] for turn in turns], [turn[1] for turn in turns]
    return {
        "goodput_gbps": median(speed.gbps for speed in own),
        "iperf3_gbps": median(speed.gbps for speed in plain),
        "ratio_to_iperf3": median(speed.gbps / other.gbps for speed, other in turns),
        "cpu_seconds_per_gb_sender": median(speed.sender_cpu_seconds_per_gb for speed in own),
        "cpu_seconds_per_gb_receiver": median(speed.receiver_cpu_seconds_per_gb for speed in own),
        "iperf3_cpu_seconds_per_gb_sender": median(speed.sender_cpu_seconds_per_gb for speed in plain),
        "iperf3_cpu_seconds_per_gb_receiver": median(speed.receiver_cpu_seconds_per_gb for speed in plain),
        "completion_ms": median(speed.completion_ms for speed in own),
        "turns": float(len(turns)),
    }


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter turns.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--streams", default=1, show_default=True, help="TCP connections of each contender.")
@click.option("--end", nargs=4, hidden=True, help="Serve as one of our ends.")
def main(quick: bool, as_json: bool, streams: int, end: tuple[str, str, str, str] | None) -> None:
    """Goodput of whole tensors over TCP, beside iperf3."""
    try:
        if end:
            serve_end(*end)
            return
        turns, seconds = (QUICK_TURNS, QUICK_SECONDS) if quick else (TURNS, SECONDS)
        found = figures(take_turns(turns, seconds, streams))
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
