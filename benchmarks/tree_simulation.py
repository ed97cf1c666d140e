"""Trees of workers at the scale of MLNET's simulations: which one pays where, and what priorities add.

    python -m benchmarks.tree_simulation [--quick] [--json]

1,024 hosts of a three-tier network of 320 16-port switches with 10 Gbit/s links, 800 workers and P parameter
servers on hosts by chance; TCP as max-min fair flows, ECMP; one synchronous push and pull of a model that is
divided equally over the servers. `over4`: the uplinks of racks carry a quarter of what their hosts do;
`over1`: all of it. A node forwards a server's part when all of it has come, as the paper's does; --pieces
cuts it. Nobody computes: that would be the same for all.

    star: workers and servers talk to each other, the paper's BASELINE; rack: one aggregator a rack, which
    sends to the server; binary: in-degree 2 over all workers by chance; rack_aware_binary: in-degree 2, each
    rack entered once

    KIND_ratio_overX_pP                 makespan over that of star (figure 1)
    rack_aware_binary_ratio_to_rack_overX_pP
    star_seconds_overX_pP               for a model of a terabit
    crossing_over1                      the least P for which binary is slower than star; 0: none
    KIND_ratio_shared_over1_pP, crossing_shared_over1
                                        the same where all servers share 12 trees (8 to 16 agree with figure
                                        1a, which crosses at 300): nodes of the same rank in many trees wait
                                        for each other, and trees take as long for many servers as for few
    KIND_link_gbit_p50, _p99            what links carry, over1, 200 servers (figure 2)
    priority_median_ratio, priority_tail_ratio, priority_tree_median_ratio, priority_tree_tail_ratio,
    tree_median_ratio, priority_tree_ratio_to_tree
                                        20 jobs of 200 workers and 50 servers at once (figure 3): median and
                                        95th percentile of their makespans over those of star, with a priority
                                        of its own for each job, by chance; tree: rack
    seconds_full_scale                  this program's, for figure 1
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import click
import numpy as np

from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.overlay.exchange import add_tree
from mltswitch.overlay.graph import Graph, fat_tree
from mltswitch.overlay.simulation import Flows, Times, simulate
from mltswitch.overlay.trees import RACK, tree

PORTS: Final = 16
HOSTS: Final = 1024
HOSTS_OF_A_RACK: Final = 8
RATE_BPS: Final = 10e9
WORKERS: Final = 800
SERVERS: Final = (50, 100, 200, 300, 400)
QUICK_SERVERS: Final = (50, 400)
MODEL_BITS: Final = 1e12
OVERSUBSCRIPTIONS: Final = {"over4": 4.0, "over1": 1.0}
JOBS, WORKERS_OF_A_JOB, SERVERS_OF_A_JOB = 20, 200, 50
SHARED: Final = 12
ROOT: Final = -1
"""A server in its tree; it may be on the host of a worker, which is another node."""
Tree = Mapping[int, int]


def tree_of(kind: str, workers: Sequence[int], random: np.random.Generator) -> Tree:
    """Parents of workers, by host."""
    order = random.permutation(workers).tolist()
    racks = {host: host // HOSTS_OF_A_RACK for host in order}
    match kind:
        case "star":
            return dict.fromkeys(order, ROOT)
        case "rack":
            return tree(ROOT, order, racks, RACK)
        case "binary":
            return tree(ROOT, order, {}, 2)
    return tree(ROOT, order, racks, 2)


def _place(server: int, node: int) -> int:
    return server if node == ROOT else node


def one_job(graph: Graph, kind: str, servers: int, pieces: int, seed: int, trees: int = HOSTS) -> Times:
    """A push and a pull; servers share so many trees, at most."""
    random = np.random.default_rng(seed)
    workers = random.permutation(HOSTS)[:WORKERS].tolist()
    roots = random.permutation(HOSTS)[:servers]
    flows = Flows()
    grown = [tree_of(kind, workers, random) for _ in range(min(servers, trees))]
    for number, server in enumerate(roots.tolist()):
        parents = grown[number % len(grown)]
        add_tree(flows, parents, ROOT, partial(_place, server), MODEL_BITS / servers, pieces=pieces)
    return simulate(graph, flows, seed=seed)


def many_jobs(graph: Graph, kind: str, seed: int, *, has_priorities: bool) -> tuple[float, float]:
    """Median and 95th percentile of the makespans."""
    random = np.random.default_rng(seed)
    classes = random.permutation(JOBS) if has_priorities else np.zeros(JOBS, np.int64)
    flows, ends = Flows(), []
    for job in range(JOBS):
        workers = random.permutation(HOSTS)[:WORKERS_OF_A_JOB].tolist()
        roots = random.permutation(HOSTS)[:SERVERS_OF_A_JOB]
        bits, of_job = MODEL_BITS * WORKERS_OF_A_JOB / WORKERS / SERVERS_OF_A_JOB, []
        for server in roots.tolist():
            parents = tree_of(kind, workers, random)
            place, priority = partial(_place, server), int(classes[job])
            of_job += add_tree(flows, parents, ROOT, place, bits, traffic_class=priority)
        ends.append(of_job)
    times = simulate(graph, flows, seed=seed)
    makespans = [times.ends_seconds[each].max() for each in ends]
    return float(np.median(makespans)), float(np.percentile(makespans, 95))


KINDS: Final = ("rack", "binary", "rack_aware_binary")


def figure_1(counts: Sequence[int], pieces: int, seed: int) -> dict[str, float]:
    """Makespans by the number of servers."""
    found: dict[str, float] = {}
    for name, ratio in OVERSUBSCRIPTIONS.items():
        graph = fat_tree(PORTS, RATE_BPS, ratio)
        for servers in counts:
            case = f"{name}_p{servers}"
            star = found[f"star_seconds_{case}"] = one_job(graph, "star", servers, 1, seed).seconds
            for kind in KINDS:
                found[f"{kind}_ratio_{case}"] = one_job(graph, kind, servers, pieces, seed).seconds / star
            found[f"rack_aware_binary_ratio_to_rack_{case}"] = (
                found[f"rack_aware_binary_ratio_{case}"] / found[f"rack_ratio_{case}"]
            )
            shown = ", ".join(f"{kind} {found[f'{kind}_ratio_{case}']:.2f}" for kind in KINDS)
            if name == "over1":
                for kind in ("rack", "binary"):
                    shared = one_job(graph, kind, servers, pieces, seed, SHARED).seconds / star
                    found[f"{kind}_ratio_shared_{case}"] = shared
                    shown += f", {kind} {shared:.2f} of {SHARED} trees"
            click.echo(f"{case}: star {star:.0f} s; {shown}", err=True)
    for case in ("over1", "shared_over1"):
        slower = [servers for servers in counts if found[f"binary_ratio_{case}_p{servers}"] > 1]
        found[f"crossing_{case}"] = float(min(slower, default=0))
    return found


def figure_2(seed: int) -> dict[str, float]:
    """What links carry."""
    graph = fat_tree(PORTS, RATE_BPS)
    found: dict[str, float] = {}
    for kind in ("star", "rack", "binary"):
        carried = one_job(graph, kind, 200, 1, seed).link_bits / 1e9
        found |= {f"{kind}_link_gbit_p{share}": float(np.percentile(carried, share)) for share in (50, 99)}
    return found


def figure_3(seed: int) -> dict[str, float]:
    """Jobs with priorities."""
    graph = fat_tree(PORTS, RATE_BPS)
    found = {
        (kind, has): many_jobs(graph, kind, seed, has_priorities=has)
        for kind in ("star", "rack")
        for has in (False, True)
    }
    median, tail = found["star", False]
    return {
        "priority_median_ratio": found["star", True][0] / median,
        "priority_tail_ratio": found["star", True][1] / tail,
        "tree_median_ratio": found["rack", False][0] / median,
        "priority_tree_median_ratio": found["rack", True][0] / median,
        "priority_tree_tail_ratio": found["rack", True][1] / tail,
        "priority_tree_ratio_to_tree": found["rack", True][0] / found["rack", False][0],
    }


def measure(*, quick: bool, pieces: int = 1, seed: int = 1) -> dict[str, float]:
    """All figures, or figure 1 at both ends; raises MachineError."""
    began = time.monotonic()
    found = figure_1(QUICK_SERVERS if quick else SERVERS, pieces, seed)
    found["seconds_full_scale"] = time.monotonic() - began
    return found if quick else found | figure_2(seed) | figure_3(seed)


@click.command()
@click.option("--quick", is_flag=True, help="Figure 1 for the fewest and the most servers.")
@click.option("--pieces", type=click.IntRange(1, 64), default=1, help="Into which a server's part is cut; 1.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, pieces: int, as_json: bool) -> None:
    """Makespans of trees over those of parameter servers without."""
    try:
        found = measure(quick=quick, pieces=pieces)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
