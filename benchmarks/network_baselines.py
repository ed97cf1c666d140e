"""The simulator's baselines held against what their own papers show of them.

    python -m benchmarks.network_baselines [--quick] [--json]

DCTCP: two long flows share a port of 10 Gbit/s that marks above K packets; the paper's queue stays near K
(Alizadeh et al., SIGCOMM 2010, figure 1). PIAS and pFabric: flows of the web-search distribution at loads of
0.5 and 0.8 on three leaves and two spines; completion times over those of the same flows alone, which both
papers print beside DCTCP's (Bai et al., NSDI 2015; Alizadeh et al., SIGCOMM 2013). NDP: incasts, whose last
flow should end little after the receiver's line could have carried them all (Handley et al., SIGCOMM 2017).
"""

from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import print_figures
from mltswitch.app.simulated_network import ground_of
from mltswitch.documents import validate
from mltswitch.network.results import Run
from mltswitch.network.scenario import Scenario
from mltswitch.network.simulation import check, play_one
from mltswitch.network.transports.parameters import HEADER_BYTES, PAYLOAD_BYTES
from mltswitch.network.units import PICOSECONDS

RATE_BPS: Final = 10**10
DELAY_SECONDS: Final = 2e-6
SPINES: Final = 2
K: Final = 65
HOSTS_PER_LEAF: Final = 8
UPLINK_BPS: Final = RATE_BPS * HOSTS_PER_LEAF // SPINES
"""To each spine: nothing is oversubscribed."""
PACKET_BYTES: Final = PAYLOAD_BYTES + HEADER_BYTES
INCAST_BYTES: Final = 450_000
SMALL_BYTES, LARGE_BYTES = 100_000, 10_000_000
"""Up to the first flows are small, beyond the second large, as in the papers."""
SORTS: Final = ("small", "medium", "large")
TRANSPORTS: Final = ("dctcp", "pias", "pfabric")


def played(
    leaves: int, workload: dict[str, Any], transport: Any, seed: int, *, has_depths: bool = False
) -> Run:
    """One run on a leaf-spine of two spines."""
    fabric = {
        "leaves": leaves,
        "spines": SPINES,
        "hosts_per_leaf": HOSTS_PER_LEAF,
        "rate": RATE_BPS,
        "uplink_rate": UPLINK_BPS,
        "delay": DELAY_SECONDS,
    }
    document = {
        "schema": "mltswitch/simulation/v1",
        "name": "baselines",
        "fabric": fabric,
        "buffer": "512kB",
        "workload": workload,
        "transports": [transport],
    }
    scenario = validate(document, Scenario, where="scenario")
    ground = ground_of(scenario, Path())
    check(scenario, ground)
    return play_one(scenario, ground, 0, seed, lambda _done, _flows: None, has_depths=has_depths)


def queue_of_dctcp(size: str) -> dict[str, float]:
    """Packets that wait at the busiest port, once both flows have found their rates."""
    workload = {"kind": "incast", "senders": 2, "size": size}
    run = played(
        2, workload, {"transport": "dctcp", "switch": {"kind": "marking", "k": K}}, 1, has_depths=True
    )
    times = run.depths["time_seconds"]
    is_steady = (times > 0.2 * times[-1]) & (times < 0.9 * times[-1])
    depths = max((run.depths[name] for name in run.depths if name != "time_seconds"), key=np.sum)[is_steady]
    packets = depths / PACKET_BYTES
    return {
        "dctcp_queue_packets": float(packets.mean()),
        "dctcp_queue_p95_packets": float(np.quantile(packets, 0.95)),
        "dctcp_queue_over_k": float(packets.mean() / K),
    }


def alone_seconds(run: Run) -> NDArray[np.float64]:
    """Completion times of a run's flows over idle links: one packet after the other, stored and forwarded."""
    numbers = [
        np.array([int(str(name).removeprefix("host")) for name in run.flows[end]])
        for end in ("source", "destination")
    ]
    racks = [(each - 1) // HOSTS_PER_LEAF for each in numbers]
    is_near = racks[0] == racks[1]
    later_links = np.where(is_near, 1.0, 1.0 + 2 * RATE_BPS / UPLINK_BPS)
    sizes = run.flows["size_bytes"]
    on_line = sizes + run.flows["packets"] * HEADER_BYTES
    first = np.minimum(sizes + HEADER_BYTES, PACKET_BYTES)
    return np.asarray(
        8 * (on_line + later_links * first) / RATE_BPS + np.where(is_near, 2, 4) * DELAY_SECONDS
    )


def times_of_web_search(load: float, duration_seconds: float, seeds: range) -> dict[str, float]:
    """Mean and tail of completion times over those alone, by sort of flow; and mean beside DCTCP's."""
    found: dict[str, float] = {}
    at = f"load_{load}".replace(".", "_")
    for transport in TRANSPORTS:
        workload = {"kind": "background", "load": load, "duration": duration_seconds}
        runs = [played(3, workload, transport, seed) for seed in seeds]
        sizes = np.concatenate([run.flows["size_bytes"] for run in runs])
        times = np.concatenate([run.flows["fct_seconds"] for run in runs])
        slower = times / np.concatenate([alone_seconds(run) for run in runs])
        sorts = np.digitize(sizes, [SMALL_BYTES, LARGE_BYTES], right=True)
        for place, sort in enumerate(SORTS):
            found[f"{transport}_{sort}_mean_slowdown_{at}"] = float(slower[sorts == place].mean())
            if transport != TRANSPORTS[0]:
                mean = found[f"{transport}_{sort}_mean_slowdown_{at}"]
                other = found[f"{TRANSPORTS[0]}_{sort}_mean_slowdown_{at}"]
                found[f"{transport}_{sort}_mean_vs_dctcp_{at}"] = mean / other - 1
        found[f"{transport}_small_p99_slowdown_{at}"] = float(np.quantile(slower[sorts == 0], 0.99))
    return found


def incast_of_ndp(senders: int) -> float:
    """When the last of so many flows ends, over the time that the receiver's line needs for all."""
    leaves = senders // HOSTS_PER_LEAF + 1
    run = played(leaves, {"kind": "incast", "senders": senders, "size": INCAST_BYTES}, "ndp", 1)
    packets = -(-INCAST_BYTES // PAYLOAD_BYTES)
    limit_seconds = 8 * senders * (INCAST_BYTES + packets * HEADER_BYTES) / RATE_BPS
    return float(run.flows["end_picoseconds"].max() / PICOSECONDS / limit_seconds)


@click.command()
@click.option("--quick", is_flag=True, help="Shorter runs, one seed.")
@click.option("--json", "as_json", is_flag=True, help="One flat object of figures.")
def main(quick: bool, as_json: bool) -> None:
    """Hold the baselines against their papers."""
    found = queue_of_dctcp("20MB" if quick else "100MB")
    for load in (0.5, 0.8):
        duration_seconds, seeds = (0.05, range(1, 2)) if quick else (0.5, range(1, 6))
        found |= times_of_web_search(load, duration_seconds, seeds)
    for senders in (16, 64):
        found[f"ndp_incast_{senders}_over_limit"] = incast_of_ndp(senders)
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
