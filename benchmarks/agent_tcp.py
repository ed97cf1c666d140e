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

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import click

from benchmarks.agent_goodput import QUICK_SECONDS, QUICK_TURNS, SECONDS, TURNS, Speed, print_profile, tcp
from benchmarks.agent_goodput import ours as ours_over
from benchmarks.agent_network import Pair, need, running_pair
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError

MTU: Final = 1500


@dataclass(frozen=True, slots=True)
class Turn:
    """Both contenders, one after the other."""

    ours: Speed
    iperf3: Speed


def ours(pair: Pair, seconds: float, profile: str = "") -> Speed:
    """Whole tensors over TCP; bursts are not looked at."""
    return ours_over(pair, 1, MTU, seconds, profile, "tcp")


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
    own, plain = [turn.ours for turn in turns], [turn.iperf3 for turn in turns]
    return {
        "goodput_gbps": median(entry.bits_per_second for entry in own) / 1e9,
        "iperf3_gbps": median(entry.bits_per_second for entry in plain) / 1e9,
        "ratio_to_iperf3": median(turn.ours.bits_per_second / turn.iperf3.bits_per_second for turn in turns),
        "cpu_seconds_per_gb_sender": median(entry.sender_cpu_seconds_per_gb for entry in own),
        "cpu_seconds_per_gb_receiver": median(map(receiver_cpu_seconds_per_gb, own)),
        "iperf3_cpu_seconds_per_gb_sender": median(entry.sender_cpu_seconds_per_gb for entry in plain),
        "iperf3_cpu_seconds_per_gb_receiver": median(map(receiver_cpu_seconds_per_gb, plain)),
        "completion_ms": median(entry.extra["completion_ms"] for entry in own),
        "turns": float(len(turns)),
    }


def receiver_cpu_seconds_per_gb(found: Speed) -> float:
    """What the sender does not use."""
    return found.cpu_seconds_per_gb - found.sender_cpu_seconds_per_gb


def profile(seconds: float) -> None:
    """Where the time goes at both ends."""
    with running_pair() as pair:
        pair.use_mtu(MTU)
        print_profile("tcp", lambda folder: ours(pair, seconds, folder))


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
