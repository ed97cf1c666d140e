"""Trees of real workers beside parameter servers without, and beside what the flow simulation says of both.

    python -m benchmarks.tree_real [--quick] [--json]

Needs root, gcc, torch and scikit-learn. Eight workers and one parameter server in namespaces of their own
around one switch (mltswitch/lab/star.c), whose ports are so slow that they decide; the workers exchange what
a ResNet-50 over DIVISOR would, without a loss bound, and take turns of five steps. Communication time: the
mean step less the mean step of the same workers that exchange nothing. D: the in-degree. On two leaves, half
of the workers on each and the server on the first, trees enter each rack once; their routes are made of an
overlay.

    ratio_to_star_dD_TRANSPORT          communication time over that of the star by the same transport
    measured_ratio_to_simulated_METHOD  communication time over that of one exchange of max-min fair flows in
                                        as many pieces, packets' headers included
    uplink_bytes_ratio_to_star          what the ports between the leaves carried, rack-aware tree over star
    ratio_to_star_racks_mlt             communication time likewise
    parameters_differ                   1: a method whose ranks ended with other bits than each other

and METHOD_communication_ms, METHOD_simulated_ms, METHOD_cpu_load.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

import click

from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab import running_leaf_spine, running_star
from mltswitch.overlay.document import Overlay, OverlayLink, OverlayNode
from mltswitch.overlay.exchange import Exchange, simulate_routes
from mltswitch.overlay.policies import route
from mltswitch.training.bench import Case, CaseResult, Contender, Settings, running_team
from mltswitch.units import BITS_PER_BYTE

WORKERS: Final = 8
RATE_BPS: Final = 20_000_000
ROUND_TRIP_SECONDS: Final = 0.4e-3
BUFFER_BYTES: Final = 128_000
DIVISOR: Final = 256
TASK: Final = f"shape:resnet50/{DIVISOR}@0.1"
SETTINGS: Final = Settings(workers=WORKERS, servers=1, task=TASK, loss_bound=0.0)
PIECES: Final = 16
"""Of a job with one root on such a line: `training.job.make_job`."""
WIRE_SHARE: Final = {"tcp": 1448 / 1514, "mlt": 1432 / 1514}
"""Of a full packet's bytes on the line, elements."""
OVERSUBSCRIPTION: Final = 4.0
STEPS, QUICK_STEPS = 20, 5


def overlay_of(*, has_leaves: bool) -> Overlay:
    """The bench's network: hosts are its workers and, last, its server."""
    hosts = [f"host{number}" for number in range(WORKERS + 1)]
    leaf_of = {
        host: f"leaf{number // (WORKERS // 2) % 2 if has_leaves else 0}" for number, host in enumerate(hosts)
    }
    nodes = [
        OverlayNode(name=host, rank=number, rack=leaf_of[host]) for number, host in enumerate(hosts[:WORKERS])
    ]
    nodes.append(OverlayNode(name=hosts[WORKERS], server=0, rack=leaf_of[hosts[WORKERS]]))
    rates = dict.fromkeys(leaf_of.items(), RATE_BPS)
    if has_leaves:
        uplink_bps = round((WORKERS + 1) * RATE_BPS / (2 * OVERSUBSCRIPTION))
        rates |= {(leaf, "spine"): uplink_bps for leaf in ("leaf0", "leaf1")}
        nodes.append(OverlayNode(name="spine"))
    nodes += [OverlayNode(name=leaf) for leaf in dict.fromkeys(leaf_of.values())]
    links = [
        OverlayLink(source=one, target=other, rate=rate, delay_seconds=ROUND_TRIP_SECONDS / 4)
        for ends, rate in rates.items()
        for one, other in (ends, ends[::-1])
    ]
    return Overlay(nodes=tuple(nodes), links=tuple(links))


def contender(overlay: Overlay, transport: str, degree: int | None) -> Contender:
    """A star, or a tree of that in-degree by routes of the overlay."""
    options: dict[str, Any] = {"transport": transport}
    if degree is not None:
        routes = route(overlay, "tree", {"in_degree": degree}, Exchange(1.0))
        options |= {"topology": "tree", "topology_settings": routes.topology_settings}
    return Contender(method="mlt", options=options)


def simulated_seconds(overlay: Overlay, transport: str, degree: int | None, elements: int) -> float:
    """One exchange by flows."""
    how: tuple[str, dict[str, Any]] = ("star", {}) if degree is None else ("tree", {"in_degree": degree})
    exchange = Exchange(elements * 4 * BITS_PER_BYTE / WIRE_SHARE[transport], PIECES)
    return simulate_routes(overlay, route(overlay, *how, exchange), exchange).seconds


METHODS: Final = {
    "star_tcp": ("tcp", None),
    "d2_tcp": ("tcp", 2),
    "d4_tcp": ("tcp", 4),
    "star_mlt": ("mlt", None),
    "d2_mlt": ("mlt", 2),
}
RACKS: Final = {"leaves_star_mlt": ("mlt", None), "leaves_d2_mlt": ("mlt", 2)}


def measure_case(methods: dict[str, tuple[str, int | None]], *, has_leaves: bool, steps: int) -> CaseResult:
    """All methods of a network."""
    overlay, hosts = overlay_of(has_leaves=has_leaves), SETTINGS.hosts
    network: Any = running_star(hosts)
    if has_leaves:
        network = running_leaf_spine(
            hosts, 1, RATE_BPS, oversubscription=OVERSUBSCRIPTION, in_turn=WORKERS // 2
        )
    case = Case("leaves" if has_leaves else "switch", RATE_BPS, ROUND_TRIP_SECONDS, 0.0, BUFFER_BYTES)
    contenders = {name: contender(overlay, *how) for name, how in methods.items()}
    with network as running:
        running.set_rate(RATE_BPS)
        with running_team(running, SETTINGS) as team:
            return team.run(case, steps, lambda *_: None, contenders)


def figures(results: Sequence[tuple[CaseResult, dict[str, tuple[str, int | None]]]]) -> dict[str, float]:
    """What the module's text says."""
    found: dict[str, float] = {}
    for result, methods in results:
        overlay = overlay_of(has_leaves=result.case.name == "leaves")
        for name, (transport, degree) in methods.items():
            seconds = result.communication_seconds(name)
            simulated = simulated_seconds(overlay, transport, degree, result.elements)
            found[f"measured_ratio_to_simulated_{name}"] = seconds / simulated
            found[f"{name}_communication_ms"] = seconds * 1e3
            found[f"{name}_simulated_ms"] = simulated * 1e3
            found[f"{name}_cpu_load"] = fmean(result.methods[name].cpu_load)
    for name in ("d2_tcp", "d4_tcp", "d2_mlt"):
        star = f"star_{name.partition('_')[2]}"
        found[f"ratio_to_star_{name}"] = found[f"{name}_communication_ms"] / found[f"{star}_communication_ms"]
    leaves = results[-1][0].methods
    found["uplink_bytes_ratio_to_star"] = (
        leaves["leaves_d2_mlt"].core_bytes / leaves["leaves_star_mlt"].core_bytes
    )
    found["ratio_to_star_racks_mlt"] = (
        found["leaves_d2_mlt_communication_ms"] / found["leaves_star_mlt_communication_ms"]
    )
    every = (
        method for result, _ in results for method in result.methods.values() if method.name != "compute"
    )
    found["parameters_differ"] = float(not all(method.ranks_agree for method in every))
    return found


def measure(*, quick: bool) -> dict[str, float]:
    """Both networks; raises MltswitchError."""
    steps = QUICK_STEPS if quick else STEPS
    one = measure_case(METHODS, has_leaves=False, steps=steps)
    two = measure_case(RACKS, has_leaves=True, steps=steps)
    return figures([(one, METHODS), (two, RACKS)])


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the steps.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Trees of workers over parameter servers without, measured and simulated."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
