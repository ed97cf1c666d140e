"""What transports lose and carry over links that are slower than agents believe: three sites of the WAN lab.

    python -m benchmarks.geo_transports [--quick] [--json]

Needs root and gcc. Agents believe that lines carry 155 Mbit/s. Into the hub lead a link of 20 Mbit/s from the
site `slow`, and one of 155 Mbit/s from the site `fast`: 30 ms each way, 0.02 % of packets lost at random, and
a queue of QUEUES: `deep` is that of a WAN document, `short` is a tenth of a second of the slow link. Senders
have three tensors of 2 MB on their way; receivers want all of each. The first period is not counted.

`alone`: only the slow link carries; `shared`: both do, and the hub grants to both. `…_capped`: after each
period, each sender has `Channel.set_rate` of HEADROOM times what the hub has measured of its link; `…_known`:
of HEADROOM times its true rate, and none on the fast link. `tcp_bbr` only where the kernel has it.

    QUEUE_LOAD_CONTENDER_link_share, …_fast_share  goodput over the slow and the fast link, of their rates
    …_dropped_share                                packets for which the slow link's queue had no room
    …_lost_share                                   packets that the slow link has lost at random
    …_resent_share                                 packets sent again over the slow link (not of TCP)
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, Final

import click

from benchmarks import agent_ends as ends
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.hostagent import Transfer
from mltswitch.lab.star import LINK_BYTES, MTU_BYTES
from mltswitch.lab.wan import WanNetwork, running_wan
from mltswitch.overlay.wan import QUEUE_BYTES, Wan, WanLink
from mltswitch.training.links import Arrival, Links
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

HUB, SLOW, FAST = SITES = ("hub", "slow", "fast")
RATES_BPS: Final = {SLOW: 20_000_000, FAST: 155_000_000}
LINE_BPS: Final = RATES_BPS[FAST]  # as every agent believes
DELAY_SECONDS, LOSS = 0.03, 0.0002
QUEUES: Final = {"deep": QUEUE_BYTES, "short": 250_000}
LOADS: Final = {"alone": [SLOW], "shared": [SLOW, FAST]}
CONTENDERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "mlt": ("mlt", {}),
    "ltp": ("ltp", {}),
    "bbr": ("mlt", {"rate_control": "bbr"}),
    "timely": ("mlt", {"rate_control": "timely"}),
    "tcp_cubic": ("tcp", {"congestion_control": "cubic", "chunk_bytes": 1 << 16}),
    "tcp_bbr": ("tcp", {"congestion_control": "bbr", "chunk_bytes": 1 << 16}),
    "mlt_capped": ("mlt", {}),
    "ltp_capped": ("ltp", {}),
    "mlt_known": ("mlt", {}),
}
"""Transport, and its section of the agent's file."""
KERNEL_CONTROLS: Final = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
TENSOR_BYTES, IN_FLIGHT = 2_000_000, 3
HEADROOM, LOOK_SECONDS = 1.25, 0.005
PERIOD_SECONDS, PERIODS, QUICK_PERIODS = 4.0, 4, 1
GRACE_SECONDS: Final = 0.5  # until what was under way has come


def wan_of(queue_bytes: int) -> Wan:
    """The three sites."""
    same: dict[str, Any] = {"delay_seconds": DELAY_SECONDS, "loss": LOSS, "queue": queue_bytes}
    links = [
        WanLink(source=source, target=target, rate=rate_bps, **same)
        for site, rate_bps in RATES_BPS.items()
        for source, target in ((site, HUB), (HUB, site))
    ]
    return Wan(nodes=SITES, links=tuple(links))


def carry(sends: bool, until_ns: int, name: str, peers: Sequence[str], period: int) -> Mapping[str, Any]:
    """Tensors to or from each peer until that instant: bytes that came, the rate measured, packets sent."""
    every: dict[str, list[Transfer]] = {peer: [] for peer in peers}
    options: dict[str, Any] = {} if sends else {"loss_bound": 0.0}
    while time.monotonic_ns() < until_ns:
        for peer, posted in every.items():
            if sum(each.completion is None for each in posted) < IN_FLIGHT:
                number, slot = divmod(len(posted), IN_FLIGHT)
                options |= {"sends": sends, "slot": IN_FLIGHT * period + slot, "round_number": number}
                posted.append(ends.post(name, peer, ends.random_tensor(TENSOR_BYTES, slot), **options))
        time.sleep(LOOK_SECONDS)
    found = {}
    for peer, posted in every.items():
        links, all_said = Links(1, 1), [each.progress for each in posted]
        for said in all_said:
            if said.first_ns:
                links.arrived(Arrival(0, said.bytes_received, said.first_ns, said.last_ns))
        counts = ("bytes_received", "packets_sent", "packets_resent")
        found[peer] = {key: sum(getattr(said, key) for said in all_said) for key in counts}
        found[peer]["measured_bps"] = links.rates_bps(()).get(0, 0.0)
        for each in posted:
            each.cancel()
    return found


def run(network: WanNetwork, contender: str, senders: Sequence[str], periods: int) -> Mapping[str, float]:
    """One contender with agents of its own; raises MltswitchError."""
    transport, section = CONTENDERS[contender]
    _, _, cap = contender.partition("_")
    total: Counter[str] = Counter()
    with ExitStack() as stack:
        workers: dict[str, ends.Worker] = {}
        for rank, site in enumerate(SITES):
            workers[site] = stack.enter_context(ends.Worker(network.hosts[rank]))
            more = {"transport": transport, transport: section}
            workers[site].call(
                ends.open_agent, ends.agent_fields(site, network.addresses(rank), LINE_BPS, **more)
            )
        for site in senders:
            workers[site].call(ends.connect, site, HUB, f"{network.addresses(0)[0]}:{ends.CONTROL_PORT}")
        if cap == "known":
            workers[SLOW].call(ends.set_cap, SLOW, HUB, "default", HEADROOM * RATES_BPS[SLOW])
        for period in range(1 + periods):
            network.carried()
            until_ns = time.monotonic_ns() + round(PERIOD_SECONDS * NANOSECONDS)
            workers[HUB].start(carry, False, until_ns, HUB, senders, period)
            for site in senders:
                workers[site].start(carry, True, until_ns, site, [HUB], period)
            arrived = workers[HUB].result()
            sent = {site: workers[site].result()[HUB] for site in senders}
            time.sleep(GRACE_SECONDS)
            link = network.carried()[SLOW, HUB]
            packets = link.size_bytes // (MTU_BYTES + LINK_BYTES) + link.dropped + link.lost
            if period:
                total.update({site: arrived[site]["bytes_received"] for site in senders})
                total.update({"packets": packets, "dropped": link.dropped, "lost": link.lost})
                total.update({key: sent[SLOW][key] for key in ("packets_sent", "packets_resent")})
            for site in senders if cap == "capped" else ():
                workers[site].call(
                    ends.set_cap, site, HUB, "default", HEADROOM * arrived[site]["measured_bps"]
                )
    found = {f"{key}_share": total[key] / total["packets"] for key in ("dropped", "lost")}
    for site, name in zip(senders, ("link_share", "fast_share"), strict=False):
        found[name] = total[site] * BITS_PER_BYTE / periods / PERIOD_SECONDS / RATES_BPS[site]
    if transport != "tcp":
        found["resent_share"] = total["packets_resent"] / total["packets_sent"]
    return found


def measure(*, quick: bool) -> dict[str, float]:
    """All figures; raises MltswitchError."""
    found: dict[str, float] = {}
    for queue, size_bytes in QUEUES.items():
        with running_wan(wan_of(size_bytes)) as network:
            for load, contender in product(LOADS, CONTENDERS):
                if contender != "tcp_bbr" or "bbr" in KERNEL_CONTROLS.read_text().split():
                    figures = run(network, contender, LOADS[load], QUICK_PERIODS if quick else PERIODS)
                    found |= {f"{queue}_{load}_{contender}_{name}": value for name, value in figures.items()}
    return found


@click.command()
@click.option("--quick", is_flag=True, help="One period in the place of four.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Transports over links that are slower than agents believe."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
