"""Trees between sites, measured: nine namespaces, the links of `netstorm9` between them, and real agents.

    python -m benchmarks.geo_real [--quick] [--json]

Needs root, gcc, torch, networkx and numba. Rates and delays are a SCALE of the authors', queues and the model
(the shape of AlexNet) its square, so that an exchange takes as much less; rates are those of draw SEED, and
do not change. Methods take turns. Communication time: the mean step less the mean step of the same workers
that exchange nothing.

    star: all send to the site with most rates, the network forwards; bkt: a balanced binary tree; mst,
    fapt1, fapt9, packed: policies of `topology plan`, with one root or nine; fapt9_paths: with auxiliary
    paths; fapt9_mlt, fapt9_ltp_loss: other transports, with a bound of 0 and of a tenth

    METHOD_seconds, METHOD_simulated_seconds
    measured_ratio_to_simulated_METHOD  communication time over that of one exchange of max-min fair flows in
                                        as many pieces, packets' headers included
    fapt9_speedup_over_star, …_simulated, fapt1_speedup_over_bkt, roots9_gain, packed_speedup_over_fapt9,
    auxiliary_gain                      each over the other; flows know no paths
    parameters_differ                   1: a method whose ranks ended with other bits than each other
    METHOD_cpu_load
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

import click

from benchmarks.figures import print_figures
from benchmarks.geo_simulation import BINARY
from mltswitch.errors import MltswitchError
from mltswitch.lab.wan import running_wan
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.exchange import Exchange, simulate_routes
from mltswitch.overlay.policies import route
from mltswitch.overlay.routes import Routes, row
from mltswitch.overlay.trees import star, tree
from mltswitch.overlay.wan import LEAST_QUEUE_BYTES, Wan, known_wan
from mltswitch.training.bench import Case, CaseResult, Contender, Settings, running_team
from mltswitch.units import BITS_PER_BYTE

SCALE: Final = 10
SEED: Final = 0
MODEL_DIVISOR: Final = SCALE**2
PIECE_BYTES: Final = 4_000_000 // MODEL_DIVISOR
"""A million elements at the authors' scale."""
WIRE_SHARE: Final = {"tcp": 1448 / 1514, "mlt": 1432 / 1514, "ltp": 1432 / 1514}
"""Of a full packet's bytes on the line, elements."""
METHODS: Final[Mapping[str, tuple[str, Mapping[str, Any], str, float]]] = {
    "star": ("star", {}, "tcp", 0.0),
    "bkt": ("tree", BINARY, "tcp", 0.0),
    "mst": ("mst", {}, "tcp", 0.0),
    "fapt1": ("fapt", {"roots": 1}, "tcp", 0.0),
    "fapt9": ("fapt", {}, "tcp", 0.0),
    "fapt9_paths": ("fapt", {}, "tcp", 0.0),
    "packed": ("packed", {}, "tcp", 0.0),
    "fapt9_mlt": ("fapt", {}, "mlt", 0.0),
    "fapt9_ltp_loss": ("fapt", {}, "ltp", 0.1),
}
"""Policy, its settings, transport and bound."""
TASK: Final = f"shape:alexnet/{MODEL_DIVISOR}"
DEADLINE_SECONDS: Final = 300.0
STEPS, QUICK_STEPS = 4, 2


def routes_of(overlay: Overlay, name: str) -> Routes:
    """Of a method; raises MltswitchError."""
    policy, settings, _, _ = METHODS[name]
    if name not in {"star", "bkt"}:
        return route(overlay, policy, settings, Exchange(1e9))
    rates_bps: Counter[str] = Counter()
    for link in overlay.links:
        rates_bps.update({link.source: link.rate_bps, link.target: link.rate_bps})
    ranks = len(overlay.ranks)
    root = max(range(ranks), key=lambda rank: rates_bps[overlay.ranks[rank].name])
    parents = star(root, ranks) if name == "star" else tree(root, range(ranks), {}, 2)
    trees = (row(root, 1.0, parents, parents, ranks),)
    return Routes(policy=policy, overlay=overlay.sha256(), ranks=ranks, trees=trees)


def contender(overlay: Overlay, routes: Routes, name: str) -> Contender:
    """Workers with a method's routes."""
    _, _, transport, bound = METHODS[name]
    options: dict[str, Any] = {
        "transport": transport,
        "loss_bound": bound,
        "topology": "tree",
        "topology_settings": routes.topology_settings,
        "piece_bytes": PIECE_BYTES,
        "deadline_seconds": DEADLINE_SECONDS,
    }
    if name == "fapt9_paths":
        plain = overlay.model_dump(mode="json", by_alias=True, exclude_none=True)
        settings = {"overlay": plain, "update_seconds": 0, "auxiliary": "sooner", **routes.topology_settings}
        options |= {"topology": "fapt", "topology_settings": settings}
    return Contender(method="mlt", options=options)


def simulated_seconds(overlay: Overlay, routes: Routes, name: str, elements: int) -> float:
    """One exchange by flows."""
    transport = METHODS[name][2]
    pieces = max(1, round(elements * 4 / PIECE_BYTES / len(routes.trees)))
    exchange = Exchange(elements * 4 * BITS_PER_BYTE / WIRE_SHARE[transport], pieces)
    return simulate_routes(overlay, routes, exchange).seconds


def measured(wan: Wan, names: Sequence[str], steps: int) -> tuple[CaseResult, Mapping[str, Routes]]:
    """All methods in turns; raises MltswitchError."""
    overlay = wan.overlay()
    routes = {name: routes_of(overlay, name) for name in names}
    settings = Settings(workers=len(wan.nodes), task=TASK, loss_bound=0.0)
    fastest_bps = max(link.rate_bps for link in overlay.links)
    case = Case("wan", fastest_bps, 0.0, 0.0, LEAST_QUEUE_BYTES)
    contenders = {name: contender(overlay, routes[name], name) for name in names}
    with running_wan(wan) as network, running_team(network, settings) as team:
        found = team.run(case, steps, lambda *_: None, contenders, block=1, warm_up=1)
    return found, routes


def measure(*, quick: bool) -> dict[str, float]:
    """All figures; raises MltswitchError."""
    wan = known_wan(f"netstorm9:{SEED}").scaled(SCALE)
    overlay = wan.overlay()
    result, all_routes = measured(wan, [*METHODS], QUICK_STEPS if quick else STEPS)
    found: dict[str, float] = {}
    for name, routes in all_routes.items():
        seconds = found[f"{name}_seconds"] = result.communication_seconds(name)
        simulated = found[f"{name}_simulated_seconds"] = simulated_seconds(
            overlay, routes, name, result.elements
        )
        found[f"measured_ratio_to_simulated_{name}"] = seconds / simulated
        found[f"{name}_cpu_load"] = fmean(result.methods[name].cpu_load)
    for figure, slower, faster in (
        ("fapt9_speedup_over_star", "star", "fapt9"),
        ("fapt1_speedup_over_bkt", "bkt", "fapt1"),
        ("roots9_gain", "fapt1", "fapt9"),
        ("auxiliary_gain", "fapt9", "fapt9_paths"),
        ("packed_speedup_over_fapt9", "fapt9", "packed"),
    ):
        for suffix in ("", "_simulated"):
            found[figure + suffix] = found[f"{slower}{suffix}_seconds"] / found[f"{faster}{suffix}_seconds"]
    found["parameters_differ"] = float(
        not all(method.ranks_agree for name, method in result.methods.items() if name != "compute")
    )
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Half of the steps.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Trees between sites, measured and simulated."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
