"""How fast whole tensors cross one cable: the host agent beside TCP, gloo and what C can do with UDP.

    python -m benchmarks.agent_goodput [--quick] [--json] [--profile]

Needs root, gcc and iperf3; torch for gloo, which is left out without it. Two network namespaces, one veth
cable, four addresses a side (four paths), tensors of 25 MB of random float32. Ours goes through the public
interface with TLS, tagging by magnitude and a loss bound of 1 %, two processes, three tensors on their way.
All take turns in the same run, in another order each turn, and every figure is the median over the turns; a
ratio is the median of the turns' own ratios, because the machine changes from turn to turn. Goodput counts
the tensors' bytes alone.

Ratios, ours over the peer; n packets share a path and a DSCP/ECN byte (n = 1 is per packet, max what UDP
takes):

    ratio_to_sendmmsg_n1_mtu1500    n = 1 over the C loop of sendmmsg and recvmmsg
    ratio_to_tcp_n16_mtu1500        n = 16 over iperf3, one TCP stream
    ratio_to_tcp_max_mtu1500, ratio_to_tcp_max_mtu9000
    ratio_to_ceiling_max_mtu1500, ratio_to_ceiling_max_mtu9000
                                    over the C loop of UDP_SEGMENT and UDP_GRO with the same n
    ratio_to_gloo_max_mtu1500, ratio_to_gloo_max_mtu9000
                                    over torch's gloo, isend and irecv; absent without torch

For each contender, `WHO_mtuMTU`, WHO being ours_n1, ours_n4, ours_n16, ours_max, ours_max_all, tcp, gloo,
sendmmsg and ceiling; ours_max_all is ours_max where every packet is important, and shows what importance by
magnitude costs:

    WHO_gbps                        Gbit/s of tensors
    WHO_cpu_seconds_per_gb          processor time of sender and receiver together for 10^9 bytes of tensors
    WHO_sender_cpu_seconds_per_gb   the sender's share of it, where both are processes of their own

and where the contender tells it

    WHO_lost_share                  of the packets (ours: at completion)
    WHO_resent_share                of the packets, sent again
    WHO_completion_ms               of one tensor with nothing else on its way
    turns                           how many
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from benchmarks.agent_ends import Settings, completed, start
from benchmarks.agent_network import INTERFACE, Pair, Program, compiled, module, need, running_pair
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError

TENSOR_BYTES: Final = 25_000_000
MTUS: Final = (1500, 9000)
TURNS: Final = 7
QUICK_TURNS: Final = 2
SECONDS: Final = 1.5
QUICK_SECONDS: Final = 0.6
IP_UDP_BYTES: Final = 28
LARGEST_DATAGRAM_BYTES: Final = 65_507
"""Of a burst: one IPv4 datagram to the kernel (65,535 bytes less 28 of headers)."""
LOSS_BOUND: Final = 0.01
IN_FLIGHT: Final = 3
ALONE: Final = 4
LINE_RATE_BPS: Final = 100e9
"""Of the cable, which has none: what it carries is what the processors manage."""
NAP_MICROSECONDS: Final = 300
"""Of the C receivers when a batch was not full: they are slower without."""
PORT: Final = 20_511
BURSTS: Final = {1500: {"n1": 1, "n4": 4, "n16": 16}, 9000: {"n1": 1, "n4": 4}}
BYTES_PER_GB: Final = 1e9


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one contender in one turn."""

    bits_per_second: float
    cpu_seconds_per_gb: float
    sender_cpu_seconds_per_gb: float
    extra: Mapping[str, float]
    """What only some can tell, by the ends of their keys."""


Contender = Callable[[], Speed | None]


def packet_bytes(mtu_bytes: int) -> int:
    """UDP payload of a full packet."""
    return mtu_bytes - IP_UDP_BYTES


def longest_burst(mtu_bytes: int) -> int:
    """Most full packets that UDP_SEGMENT takes at once."""
    return min(64, LARGEST_DATAGRAM_BYTES // packet_bytes(mtu_bytes))


def speed(sent: Mapping[str, Any], received: Mapping[str, Any], **extra: float) -> Speed:
    """Of two processes that say what they sent, how long it took and what it cost."""
    gigabytes = sent["bytes"] / BYTES_PER_GB
    both = sent["cpu_seconds"] + received["cpu_seconds"]
    return Speed(
        sent["bytes"] * 8 / sent["seconds"], both / gigabytes, sent["cpu_seconds"] / gigabytes, extra
    )


def tcp(pair: Pair, seconds: float) -> Speed:
    """Iperf3, one stream."""
    server = ["iperf3", "--server", "--one-off", "--forceflush", "--port", str(PORT)]
    client = ["iperf3", "--client", pair.receiver_addresses[0], "--port", str(PORT), "--json"]
    client += ["--time", str(max(1, round(seconds)))]
    with Program(pair.receiver, server) as listening:
        listening.wait_for("listening")
        with Program(pair.sender, client) as sending:
            return tcp_speed(json.loads(sending.rest()))


def tcp_speed(report: Mapping[str, Any]) -> Speed:
    """What iperf3's report says: its processor times are percents of the run."""
    end = report["end"]
    received, cpu = end["sum_received"], end["cpu_utilization_percent"]
    per_gb = received["seconds"] / 100 / (received["bytes"] / BYTES_PER_GB)
    both = (cpu["host_total"] + cpu["remote_total"]) * per_gb
    return Speed(received["bits_per_second"], both, cpu["host_total"] * per_gb, {})


def c_loop(pair: Pair, program: Path, mode: str, mtu_bytes: int, seconds: float) -> Speed:
    """The C program, `plain` or `offload`."""
    receiver = [str(program), "receive", str(PORT), mode, str(NAP_MICROSECONDS)]
    sizes = [packet_bytes(mtu_bytes), longest_burst(mtu_bytes) if mode == "offload" else 1, TENSOR_BYTES]
    sender = [str(program), "send", str(PORT), mode, *map(str, [*sizes, seconds]), *pair.receiver_addresses]
    with Program(pair.receiver, receiver) as receiving:
        receiving.wait_for("ready")
        with Program(pair.sender, sender) as sending:
            sent = sending.answer()
            return speed(sent, receiving.answer(), lost_share=sent["lost_bytes"] / sent["bytes"])


def gloo(pair: Pair, seconds: float) -> Speed:
    """Torch's gloo."""
    arguments = (pair.receiver_addresses[0], INTERFACE, str(TENSOR_BYTES), str(seconds))
    with Program(pair.receiver, module("agent_gloo", "receive", *arguments)) as receiving:
        receiving.wait_for("starting")
        with Program(pair.sender, module("agent_gloo", "send", *arguments)) as sending:
            sending.wait_for("starting")
            return speed(sending.answer(), receiving.answer())


def has_torch() -> bool:
    """Whether gloo can take part."""
    try:
        from torch import distributed  # noqa: PLC0415  (an extra)
    except ImportError:
        return False
    return bool(distributed.is_gloo_available())


def ours(
    pair: Pair,
    burst_packets: int,
    mtu_bytes: int,
    seconds: float,
    profile: str = "",
    transport: str = "mlt",
    policy: str = "magnitude",
) -> Speed:
    """The host agent, both ends: tensors one by one, which tells how many fill the time, then a stream."""
    settings = Settings(
        payload_bytes=packet_bytes(mtu_bytes),
        line_rate_bps=LINE_RATE_BPS,
        is_steady=True,  # no switch, and so no queue that round trips could tell of
        burst_packets=burst_packets,
        profile=profile,
        transport=transport,
        policy=policy,
    )
    with ExitStack() as stack:
        ends = completed(stack, settings, pair.receiver_addresses, [pair.sender_addresses])
        receiver, (sender,) = start(stack, pair.receiver, [pair.sender], ends)
        _prepare(receiver, sender)
        alone, _ = _stream(sender, receiver, count=ALONE, in_flight=1)
        count = max(2 * IN_FLIGHT, round(seconds * ALONE / alone["seconds"]))
        sent, received = _stream(sender, receiver, count=count, in_flight=IN_FLIGHT)
    arrived = sent | {"bytes": sent["bytes"] * (1 - received["lost_share"])}
    return speed(
        arrived,
        received,
        lost_share=received["lost_share"],
        resent_share=sent["resent_share"],
        completion_ms=1e3 * alone["completion_seconds"],
    )


def _prepare(*ends: Program) -> None:
    for end in ends:
        end.tell(json.dumps({"op": "prepare", "size_bytes": TENSOR_BYTES, "in_flight": IN_FLIGHT}))
    for end in ends:
        end.answer()


def _stream(sender: Program, receiver: Program, **command: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both ends say of a stream."""
    line = json.dumps(command | {"op": "stream", "size_bytes": TENSOR_BYTES, "loss_bound": LOSS_BOUND})
    receiver.tell(line)
    sender.tell(line)
    return sender.answer(), receiver.answer()


def contenders(pair: Pair, program: Path, mtu_bytes: int, seconds: float) -> dict[str, Contender]:
    """Everybody at one MTU."""
    bursts = BURSTS[mtu_bytes] | {"max": longest_burst(mtu_bytes)}
    found: dict[str, Contender] = {
        f"ours_{name}": partial(ours, pair, burst, mtu_bytes, seconds) for name, burst in bursts.items()
    }
    found["ours_max_all"] = partial(ours, pair, bursts["max"], mtu_bytes, seconds, policy="all")
    found["tcp"] = partial(tcp, pair, seconds)
    found["sendmmsg"] = partial(c_loop, pair, program, "plain", mtu_bytes, seconds)
    found["ceiling"] = partial(c_loop, pair, program, "offload", mtu_bytes, seconds)
    if has_torch():
        found["gloo"] = partial(gloo, pair, seconds)
    return found


Turn = Mapping[str, Speed]
"""`WHO_mtuMTU` → what it reached."""


def take_turns(turns: int, seconds: float) -> list[Turn]:
    """Everybody once a turn, each turn from another start; raises MachineError."""
    need("iperf3")
    found: list[Turn] = []
    with tempfile.TemporaryDirectory(prefix="mltswitch-goodput-") as folder, running_pair() as pair:
        program = compiled("agent_datagrams.c", Path(folder))
        if not has_torch():
            click.echo("gloo is left out: torch is not installed", err=True)
        for number in range(turns):
            turn: dict[str, Speed] = {}
            for mtu in MTUS:
                pair.use_mtu(mtu)
                field = list(contenders(pair, program, mtu, seconds).items())
                start = number * 3 % len(field)
                for name, contender in field[start:] + field[:start]:
                    reached = contender()
                    if reached is not None:
                        turn[f"{name}_mtu{mtu}"] = reached
                        gbps = reached.bits_per_second / 1e9
                        click.echo(f"turn {number + 1}, {name}, MTU {mtu}: {gbps:.2f} Gbit/s", err=True)
            found.append(turn)
    return found


def figures(turns: Sequence[Turn]) -> dict[str, float]:
    """Medians over the turns."""
    ratios = {
        "ratio_to_sendmmsg_n1_mtu1500": ("ours_n1_mtu1500", "sendmmsg_mtu1500"),
        "ratio_to_tcp_n16_mtu1500": ("ours_n16_mtu1500", "tcp_mtu1500"),
    }
    for mtu in MTUS:
        for peer in ("tcp", "ceiling", "gloo"):
            ratios[f"ratio_to_{peer}_max_mtu{mtu}"] = (f"ours_max_mtu{mtu}", f"{peer}_mtu{mtu}")
    present = turns[0].keys()
    found = {
        key: median(turn[our].bits_per_second / turn[peer].bits_per_second for turn in turns)
        for key, (our, peer) in ratios.items()
        if our in present and peer in present
    }
    for who in present:
        speeds = [turn[who] for turn in turns]
        found[f"{who}_gbps"] = median(entry.bits_per_second for entry in speeds) / 1e9
        found[f"{who}_cpu_seconds_per_gb"] = median(entry.cpu_seconds_per_gb for entry in speeds)
        found[f"{who}_sender_cpu_seconds_per_gb"] = median(
            entry.sender_cpu_seconds_per_gb for entry in speeds
        )
        for key in speeds[0].extra:
            found[f"{who}_{key}"] = median(entry.extra[key] for entry in speeds)
    found["turns"] = float(len(turns))
    return found


def profile(seconds: float) -> None:
    """Where the time goes: both ends' functions by their own time, longest bursts."""
    with running_pair() as pair:
        for mtu in MTUS:
            pair.use_mtu(mtu)
            print_profile(f"MTU {mtu}", partial(ours, pair, longest_burst(mtu), mtu, seconds))


def print_profile(title: str, contender: Callable[[str], Speed]) -> None:
    """Of both ends of a contender, which is told in which folder to leave it."""
    with tempfile.TemporaryDirectory(prefix="mltswitch-profile-") as folder:
        reached = contender(folder)
        click.echo(f"{title}, profiled: {reached.bits_per_second / 1e9:.2f} Gbit/s")
        for end in ("send", "receive"):
            click.echo(Path(folder, f"{end}.txt").read_text(encoding="utf-8"))


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter turns.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--profile", "profiled", is_flag=True, help="Instead: where ours spends its time.")
def main(quick: bool, as_json: bool, profiled: bool) -> None:
    """Goodput of whole tensors, beside TCP, gloo and loops in C."""
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
