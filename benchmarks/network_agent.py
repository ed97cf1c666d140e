"""The agent's compiled data plane behind simulated switches, and MLT's printed law behind the same ones.

    python -m benchmarks.network_agent [--quick] [--json]

20 seeds (3 with --quick) of eight senders to one receiver and of sixteen senders to each of four receivers,
128 KB and 4 MB a flow, without loss and with 1 % on each link; 10 Gbit/s, cables of 2 µs, two leaves and two
spines, 2 MB a port, S 1.5 MB and L 2 MB, nothing may be missing. Flow completion times of all seeds together.
For each CASE (8to1_128k_loss0 and so on):

    p50_ms_CASE, p99_ms_CASE            of the data plane
    p50_ratio_to_limit_CASE             over the bytes of all flows to one receiver through its port
    sent_over_needed_CASE
    paper_p50_gap_CASE, _p99_gap, _sent_gap
                                        of the law `paper` against it, relative: no model of the data plane,
                                        and so a measure of how far a fabric of agents is from the paper's
    hops_per_second_compiled            packets sent by ports, of all cases, per second of processor time
"""

from pathlib import Path
from time import process_time
from typing import Any, Final

import click
import numpy as np

from benchmarks.figures import print_figures
from mltswitch.app.simulated_network import ground_of
from mltswitch.documents import validate
from mltswitch.network.cosimulation import CosimulatedWorld
from mltswitch.network.scenario import Scenario
from mltswitch.network.simulation import staged
from mltswitch.network.transports.parameters import MltAgent
from mltswitch.network.units import PICOSECONDS
from mltswitch.network.workloads import Flow
from mltswitch.network.world import World

RATE_BPS: Final = 10_000_000_000
CROWDS: Final = {"8to1": (8, 1), "16to4": (16, 4)}
SIZES_BYTES: Final = {"128k": 128_000, "4m": 4_000_000}
LOSSES: Final = {"loss0": 0.0, "loss1pct": 0.01}
SWITCH: Final = {"kind": "thresholds", "classes": [{"s": "1500kB", "l": "2MB"}]}
LAWS: Final[dict[str, dict[str, Any]]] = {
    "compiled": {"law": "compiled"},
    "paper": {"law": "paper", "loss_bound": 0.0},
}
PACKET: Final = (1432, 68)
"""Payload and headers, the same for both laws."""


def played(law: str, crowd: str, size_bytes: int, loss: float, seed: int) -> World:
    """One run, ended."""
    senders, receivers = CROWDS[crowd]
    document: dict[str, Any] = {
        "schema": "mltswitch/simulation/v1",
        "name": "agent",
        "fabric": {"leaves": 2, "spines": 2, "hosts_per_leaf": 10, "rate": RATE_BPS, "delay": 2e-6},
        "buffer": "2MB",
        "link_loss": loss,
        "workload": {"kind": "incast", "senders": senders, "size": size_bytes},
        "transports": [
            {
                "transport": {"name": "mlt", "payload": PACKET[0], "header": PACKET[1], **LAWS[law]},
                "switch": SWITCH,
            }
        ],
    }
    scenario = validate(document, Scenario, where="scenario")
    ground = ground_of(scenario, Path())
    play = scenario.plays[0]
    network, _ = staged(scenario, ground, play, "transports[0]", seed)
    last = network.hosts - receivers
    flows = [
        Flow(sender * last // senders, last + receiver, size_bytes, 1)
        for receiver in range(receivers)
        for sender in range(senders)
    ]
    settings = play.transport.settings()
    world = World(network, flows, settings, seed=seed, spraying=True)
    if isinstance(play.transport, MltAgent):
        world = CosimulatedWorld(network, flows, settings, seed=seed, spraying=True, transport=play.transport)
    while world.advance():
        pass
    return world


def compared(crowd: str, size: str, loss: str, seeds: int) -> tuple[dict[str, float], int, float]:
    """Figures of one case, and the data plane's hops and seconds."""
    size_bytes, case = SIZES_BYTES[size], f"{crowd}_{size}_{loss}"
    found: dict[str, tuple[float, float, float]] = {}
    hops, seconds = 0, 0.0
    for law in LAWS:
        times, sent = [], 0
        for seed in range(1, seeds + 1):
            begun = process_time()
            world = played(law, crowd, size_bytes, LOSSES[loss], seed)
            if law == "compiled":
                hops, seconds = hops + world.count("hop_count"), seconds + process_time() - begun
            times.append((world.flows["finish"] - world.flows["start"]) / PICOSECONDS)
            sent += int(world.flows["sent_packets"].sum())
        p50, p99 = np.quantile(np.concatenate(times), (0.5, 0.99))
        found[law] = float(p50), float(p99), sent / (seeds * int(world.flows["packets"].sum()))
    senders, _ = CROWDS[crowd]
    limit = senders * -(-size_bytes // PACKET[0]) * sum(PACKET) * 8 / RATE_BPS
    p50, p99, sent_share = found["compiled"]
    figures = {"p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3, "p50_ratio_to_limit": p50 / limit}
    figures["sent_over_needed"] = sent_share
    for name, ours, theirs in zip(("p50", "p99", "sent"), found["paper"], found["compiled"], strict=True):
        figures[f"paper_{name}_gap"] = ours / theirs - 1
    return {f"{name}_{case}": value for name, value in figures.items()}, hops, seconds


@click.command()
@click.option("--quick", is_flag=True, help="Three seeds instead of twenty.")
@click.option("--json", "as_json", is_flag=True, help="One flat object of figures.")
def main(quick: bool, as_json: bool) -> None:
    """The compiled data plane behind simulated switches."""
    figures: dict[str, float] = {}
    hops, seconds = 0, 0.0
    for crowd in CROWDS:
        for size in SIZES_BYTES:
            for loss in LOSSES:
                more, case_hops, case_seconds = compared(crowd, size, loss, 3 if quick else 20)
                figures |= more
                hops, seconds = hops + case_hops, seconds + case_seconds
    figures["hops_per_second_compiled"] = hops / seconds
    print_figures(figures, as_json=as_json)


if __name__ == "__main__":
    main()
