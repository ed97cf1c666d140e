"""How fast whole tensors cross one cable: the host agent beside TCP, gloo and what C can do with UDP.

    python -m benchmarks.agent_goodput [--quick] [--json]

Needs root, gcc and iperf3; torch for gloo, which is left out without it. Two network namespaces, one veth
cable, four addresses a side (four paths), tensors of 25 MB of random float32. Ours goes through the public
face with TLS, importance by magnitude and a loss bound of 1 %, two processes, three tensors on their way.
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
    ratio_with_mac                  with a tag on every datagram over without, MTU 1500
    ratio_busy_thread               with a thread at each end that computes in Python all the time, over none
    ratio_busy_elsewhere            with these two threads in processes of their own: what the processors,
    tcp_ratio_busy_elsewhere        not the interpreter's lock, take from ours and from iperf3

    cpu_ratio_to_mlt                processor time for 10^9 bytes by the transport ltp over that by mlt (which
                                    is what is called ours here), in the worst of n = 1, 16, max at MTU 1500

For each contender, `WHO_mtuMTU`, WHO being ours_n1, ours_n16, ours_max, ltp_n1, ltp_n16, ltp_max,
ours_max_mac, ours_max_busy, ours_max_elsewhere, tcp, tcp_elsewhere, gloo, sendmmsg and ceiling:

    WHO_gbps                        Gbit/s of tensors
    WHO_cpu_seconds_per_gb          processor time of sender and receiver together for 10^9 bytes of tensors
    WHO_sender_cpu_seconds_per_gb   the sender's share of it
    cpu_seconds_per_gb, tcp_cpu_seconds_per_gb
                                    of ours_max and tcp at MTU 1500 once more

and where the contender tells it

    WHO_lost_share                  of the packets (ours: at completion)
    WHO_resent_share                of the packets, sent again
    WHO_completion_ms               of one tensor, from its post
    turns                           how many
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from benchmarks.agent_ends import (
    BYTES_PER_GB,
    CONTROL_PORT,
    Worker,
    agent_fields,
    connect,
    new_keys,
    open_agent,
    spin,
    stream,
)
from benchmarks.agent_network import Pair, running_pair
from benchmarks.agent_rivals import gloo_open, gloo_stream, has_gloo
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab.programs import Program, compiled, need
from mltswitch.lab.star import INTERFACE

DATAGRAMS: Final = Path(__file__).with_name("agent_datagrams.c")
TENSOR_BYTES: Final = 25_000_000
MTUS: Final = (1500, 9000)
TURNS: Final = 5
QUICK_TURNS: Final = 2
SECONDS: Final = 1.5
QUICK_SECONDS: Final = 0.6
IP_UDP_BYTES: Final = 28
LARGEST_DATAGRAM_BYTES: Final = 65_507
"""Of a burst: one IPv4 datagram to the kernel (65,535 bytes less 28 of headers)."""
LOSS_BOUND: Final = 0.01
IN_FLIGHT: Final = 3
GLOO_IN_FLIGHT: Final = 2
WARM_UP: Final = 4
LINE_RATE_BPS: Final = 100e9
"""Of the cable, which has none: what it carries is what the processors manage."""
NAP_MICROSECONDS: Final = 300
"""Of the C receivers when a batch was not full: they are slower without."""
PORT: Final = 20_511
BURSTS: Final = {1500: {"n1": 1, "n16": 16, "max": 0}, 9000: {"max": 0}}


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one contender in one turn."""

    bits_per_second: float
    cpu_seconds_per_gb: float
    sender_cpu_seconds_per_gb: float
    extra: Mapping[str, float]
    """What only some can tell, by the ends of their keys."""


Contender = Callable[[], Speed]


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


def tcp(pair: Pair, seconds: float, streams: int = 1) -> Speed:
    """Iperf3."""
    server = ["iperf3", "--server", "--one-off", "--forceflush", "--port", str(PORT)]
    client = ["iperf3", "--client", pair.receiver_addresses[0], "--port", str(PORT), "--json"]
    client += ["--time", str(max(1, round(seconds))), "--parallel", str(streams)]
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


class Ends:
    """A sender's and a receiver's process on a cable, and two more that only keep processors busy."""

    def __init__(self, stack: ExitStack, pair: Pair) -> None:
        self._pair = pair
        self.sender, self.receiver, *self._others = (
            stack.enter_context(Worker(host)) for host in (pair.sender, pair.receiver) * 2
        )
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mltswitch-goodput-"))
        self._keys = new_keys(
            Path(folder), *(f"{role}-{kind}" for kind in self._kinds() for role in ("tx", "rx"))
        )
        for kind, (mtu, is_tagged) in self._kinds().items():
            self._open(kind, mtu, is_tagged)
        if has_gloo():
            self.sender.start(gloo_open, True, pair.receiver_addresses[0], INTERFACE)
            self.receiver.call(gloo_open, False, pair.receiver_addresses[0], INTERFACE)
            self.sender.result()

    @staticmethod
    def _kinds() -> dict[str, tuple[int, bool]]:
        return {f"mtu{mtu}": (mtu, False) for mtu in MTUS} | {"mac": (MTUS[0], True)}

    def _open(self, kind: str, mtu_bytes: int, is_tagged: bool) -> None:
        port = CONTROL_PORT + [*self._kinds()].index(kind)
        ends = {
            f"rx-{kind}": (self.receiver, self._pair.receiver_addresses),
            f"tx-{kind}": (self.sender, self._pair.sender_addresses),
        }
        for name, (worker, addresses) in ends.items():
            more = {
                "listen": f"{addresses[0]}:{port}",
                "keys": self._keys[name],
                "authenticate": is_tagged,
                "mtu_bytes": mtu_bytes,
                "channels": {"ltp": "ltp"},
            }
            worker.call(open_agent, agent_fields(name, addresses, LINE_RATE_BPS, **more))
        self.sender.call(connect, f"tx-{kind}", f"rx-{kind}", f"{self._pair.receiver_addresses[0]}:{port}")

    def _stream(self, kind: str, channel: str, count: int, burst_packets: int) -> tuple[Any, Any]:
        ends, arguments = (f"tx-{kind}", f"rx-{kind}"), (TENSOR_BYTES, count, IN_FLIGHT)
        of_sends = {"channel": channel, "burst_packets": burst_packets or None}
        self.receiver.start(stream, False, *ends[::-1], *arguments, channel=channel, loss_bound=LOSS_BOUND)
        self.sender.start(stream, True, *ends, *arguments, **of_sends)
        return self.sender.result(), self.receiver.result()

    def ours(self, kind: str, seconds: float, burst_packets: int = 0, channel: str = "default") -> Speed:
        """The host agent, of one kind; bursts of 0 packets are as long as the kernel takes them."""
        warm, _ = self._stream(kind, channel, WARM_UP, burst_packets)
        count = max(2 * IN_FLIGHT, round(seconds * WARM_UP / warm["seconds"]))
        sent, received = self._stream(kind, channel, count, burst_packets)
        arrived = sent | {"bytes": sent["bytes"] * (1 - received["missing_share"])}
        return speed(
            arrived,
            received,
            lost_share=received["missing_share"],
            resent_share=sent["resent_share"],
            completion_ms=1e3 * sent["completion_seconds"],
        )

    @contextmanager
    def busy(self, *, elsewhere: bool) -> Iterator[None]:
        """A Python thread at each end, or in two other processes."""
        workers = self._others if elsewhere else [self.sender, self.receiver]
        for worker in workers:
            worker.call(spin, True)
        try:
            yield
        finally:
            for worker in workers:
                worker.call(spin, False)

    def gloo(self, seconds: float) -> Speed:
        """Torch's gloo."""
        count, sent, received = WARM_UP, {"seconds": 0.0}, {}
        for _ in range(2):
            self.receiver.start(gloo_stream, False, TENSOR_BYTES, count, GLOO_IN_FLIGHT)
            sent = self.sender.call(gloo_stream, True, TENSOR_BYTES, count, GLOO_IN_FLIGHT)
            received = self.receiver.result()
            count = max(WARM_UP, round(seconds * count / sent["seconds"]))
        return speed(sent, received)


def while_busy(ends: Ends, elsewhere: bool, contender: Contender) -> Speed:
    """A contender beside two threads that compute in Python."""
    with ends.busy(elsewhere=elsewhere):
        return contender()


def contenders(ends: Ends, pair: Pair, program: Path, mtu: int, seconds: float) -> dict[str, Contender]:
    """Everybody at one MTU."""
    kind = f"mtu{mtu}"
    found: dict[str, Contender] = {
        f"ours_{name}": partial(ends.ours, kind, seconds, burst) for name, burst in BURSTS[mtu].items()
    }
    found["tcp"] = partial(tcp, pair, seconds)
    found["ceiling"] = partial(c_loop, pair, program, "offload", mtu, seconds)
    if mtu == MTUS[0]:
        for name, burst in BURSTS[mtu].items():
            found[f"ltp_{name}"] = partial(ends.ours, kind, seconds, burst, "ltp")
        found["ours_max_mac"] = partial(ends.ours, "mac", seconds)
        found["ours_max_busy"] = partial(while_busy, ends, False, found["ours_max"])
        found["ours_max_elsewhere"] = partial(while_busy, ends, True, found["ours_max"])
        found["tcp_elsewhere"] = partial(while_busy, ends, True, found["tcp"])
        found["sendmmsg"] = partial(c_loop, pair, program, "plain", mtu, seconds)
    if has_gloo():
        found["gloo"] = partial(ends.gloo, seconds)
    return found


Turn = Mapping[str, Speed]
"""`WHO_mtuMTU` → what it reached."""


def take_turns(turns: int, seconds: float) -> list[Turn]:
    """Everybody once a turn, each turn from another start; raises MachineError."""
    need("iperf3")
    found: list[Turn] = []
    with running_pair() as pair, ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mltswitch-goodput-"))
        program, ends = compiled(DATAGRAMS, Path(folder)), Ends(stack, pair)
        if not has_gloo():
            click.echo("gloo is left out: torch is not installed", err=True)
        for number in range(turns):
            turn: dict[str, Speed] = {}
            for mtu in MTUS:
                pair.use_mtu(mtu)
                field = list(contenders(ends, pair, program, mtu, seconds).items())
                start = number * 3 % len(field)
                for name, contender in field[start:] + field[:start]:
                    reached = turn[f"{name}_mtu{mtu}"] = contender()
                    gbps = reached.bits_per_second / 1e9
                    click.echo(f"turn {number + 1}, {name}, MTU {mtu}: {gbps:.2f} Gbit/s", err=True)
            found.append(turn)
    return found


def figures(turns: Sequence[Turn]) -> dict[str, float]:
    """Medians over the turns."""
    ratios = {
        "ratio_to_sendmmsg_n1_mtu1500": ("ours_n1_mtu1500", "sendmmsg_mtu1500"),
        "ratio_to_tcp_n16_mtu1500": ("ours_n16_mtu1500", "tcp_mtu1500"),
        "ratio_with_mac": ("ours_max_mac_mtu1500", "ours_max_mtu1500"),
        "ratio_busy_thread": ("ours_max_busy_mtu1500", "ours_max_mtu1500"),
        "ratio_busy_elsewhere": ("ours_max_elsewhere_mtu1500", "ours_max_mtu1500"),
        "tcp_ratio_busy_elsewhere": ("tcp_elsewhere_mtu1500", "tcp_mtu1500"),
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
    for key, who in (("", "ours_max_mtu1500"), ("tcp_", "tcp_mtu1500")):
        found[f"{key}cpu_seconds_per_gb"] = median(turn[who].cpu_seconds_per_gb for turn in turns)
    cpu_ratios = [
        median(turn[who].cpu_seconds_per_gb / turn[f"ours{who[3:]}"].cpu_seconds_per_gb for turn in turns)
        for who in present
        if who.startswith("ltp_")
    ]
    if cpu_ratios:
        found["cpu_ratio_to_mlt"] = max(cpu_ratios)
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


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter turns.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Goodput of whole tensors, beside TCP, gloo and loops in C."""
    try:
        found = figures(take_turns(QUICK_TURNS, QUICK_SECONDS) if quick else take_turns(TURNS, SECONDS))
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
