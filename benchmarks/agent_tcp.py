"""The host agent's `tcp` transport beside iperf3: whether the baseline is as fast as plain TCP.

    python -m benchmarks.agent_tcp [--quick] [--json] [--profile]

Needs root and iperf3. Two network namespaces, one veth cable, MTU 1500, tensors of 25 MB of random float32,
three on their way, two processes, a control channel with TLS, one TCP connection for the data with the
kernel's own congestion control at both contenders. They take turns, the first one changes, and every figure
is the median over the turns; the ratio is the median of the turns' own ratios. Goodput counts the tensors'
bytes alone.

    goodput_gbps                    of tensors, Gbit/s
    iperf3_gbps                     of iperf3, one stream
    ratio_to_iperf3                 ours over iperf3
    cpu_seconds_per_gb_sender, cpu_seconds_per_gb_receiver
                                    processor time of each of our ends for 10^9 bytes of tensors
    iperf3_cpu_seconds_per_gb_sender, iperf3_cpu_seconds_per_gb_receiver
                                    of iperf3's ends
    completion_ms                   of one tensor with nothing else on its way
    turns                           how many
"""

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from benchmarks.agent_ends import Settings, completed, start
from benchmarks.agent_goodput import BYTES_PER_GB, TENSOR_BYTES, Speed, tcp
from benchmarks.agent_network import Pair, Program, need, running_pair
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError

MTU: Final = 1500
LINE_RATE_BPS: Final = 100e9
"""Not looked at by this transport; the cable has none."""
IN_FLIGHT: Final = 3
ALONE: Final = 4
TURNS: Final = 7
QUICK_TURNS: Final = 2
SECONDS: Final = 2.0
QUICK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ours:
    """What one turn of ours came to."""

    bits_per_second: float
    sender_cpu_seconds_per_gb: float
    receiver_cpu_seconds_per_gb: float
    completion_seconds: float


@dataclass(frozen=True, slots=True)
class Turn:
    """Both contenders, one after the other."""

    ours: Ours
    iperf3: Speed


def of_both(alone: dict[str, Any], sent: dict[str, Any], received: dict[str, Any]) -> Ours:
    """What our two processes say."""
    gigabytes = sent["bytes"] / BYTES_PER_GB
    return Ours(
        sent["bytes"] * 8 / sent["seconds"],
        sent["cpu_seconds"] / gigabytes,
        received["cpu_seconds"] / gigabytes,
        alone["completion_seconds"],
    )


def ours(pair: Pair, seconds: float, profile: str = "") -> Ours:
    """Tensors one by one, which tells how many fill the time, then a stream of them."""
    settings = Settings(payload_bytes=1472, line_rate_bps=LINE_RATE_BPS, transport="tcp", profile=profile)
    with ExitStack() as stack:
        ends = completed(stack, settings, pair.receiver_addresses, [pair.sender_addresses])
        receiver, (sender,) = start(stack, pair.receiver, [pair.sender], ends)
        alone, _ = _stream(sender, receiver, count=ALONE, in_flight=1)
        count = max(2 * IN_FLIGHT, round(seconds * ALONE / alone["seconds"]))
        sent, received = _stream(sender, receiver, count=count, in_flight=IN_FLIGHT)
    return of_both(alone, sent, received)


def _stream(sender: Program, receiver: Program, **command: int) -> tuple[dict[str, Any], dict[str, Any]]:
    line = json.dumps(command | {"op": "stream", "size_bytes": TENSOR_BYTES, "loss_bound": 0.0})
    receiver.tell(line)
    sender.tell(line)
    return sender.answer(), receiver.answer()


def take_turns(turns: int, seconds: float) -> list[Turn]:
    """Each turn begins with the other one; raises MachineError."""
    need("iperf3")
    found = []
    with running_pair() as pair:
        pair.use_mtu(MTU)
        for number in range(turns):
            if number % 2:
                plain, own = tcp(pair, seconds), ours(pair, seconds)
            else:
                own, plain = ours(pair, seconds), tcp(pair, seconds)
            found.append(Turn(own, plain))
            gbps = own.bits_per_second / 1e9, plain.bits_per_second / 1e9
            click.echo(f"turn {number + 1}: {gbps[0]:.2f} Gbit/s, iperf3 {gbps[1]:.2f}", err=True)
    return found


def figures(turns: Sequence[Turn]) -> dict[str, float]:
    """Medians over the turns."""
    both = [turn.iperf3.cpu_seconds_per_gb for turn in turns]
    sender = [turn.iperf3.sender_cpu_seconds_per_gb for turn in turns]
    return {
        "goodput_gbps": median(turn.ours.bits_per_second for turn in turns) / 1e9,
        "iperf3_gbps": median(turn.iperf3.bits_per_second for turn in turns) / 1e9,
        "ratio_to_iperf3": median(turn.ours.bits_per_second / turn.iperf3.bits_per_second for turn in turns),
        "cpu_seconds_per_gb_sender": median(turn.ours.sender_cpu_seconds_per_gb for turn in turns),
        "cpu_seconds_per_gb_receiver": median(turn.ours.receiver_cpu_seconds_per_gb for turn in turns),
        "iperf3_cpu_seconds_per_gb_sender": median(sender),
        "iperf3_cpu_seconds_per_gb_receiver": median(
            total - own for total, own in zip(both, sender, strict=True)
        ),
        "completion_ms": 1e3 * median(turn.ours.completion_seconds for turn in turns),
        "turns": float(len(turns)),
    }


def profile(seconds: float) -> None:
    """Where the time goes at both ends."""
    with running_pair() as pair, tempfile.TemporaryDirectory(prefix="mltswitch-tcp-") as folder:
        pair.use_mtu(MTU)
        reached = ours(pair, seconds, profile=folder)
        click.echo(f"profiled: {reached.bits_per_second / 1e9:.2f} Gbit/s")
        for end in ("send", "receive"):
            click.echo(Path(folder, f"{end}.txt").read_text(encoding="utf-8"))


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter turns.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--profile", "profiled", is_flag=True, help="Instead: where ours spends its time.")
def main(quick: bool, as_json: bool, profiled: bool) -> None:
    """Goodput of whole tensors over TCP, beside iperf3."""
    seconds = QUICK_SECONDS if quick else SECONDS
    try:
        if profiled:
            profile(seconds)
            return
        found = figures(take_turns(QUICK_TURNS if quick else TURNS, seconds))
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
