"""Trees between data centres, planned by the rates of their links: NetStorm's figures from flows.

    python -m benchmarks.geo_simulation [--quick] [--json]

`netstorm9` is the network of the NetStorm paper's experiments (section IX, as its authors' script has it):
nine sites, thirteen links, each direction drawn anew, 20 to 155 Mbit/s, with 30 ms. AlexNet's gradients (57
million elements, 228 MB) cross once, up and down, in pieces of a million elements; all figures are medians.

    draws
    fapt9_speedup_over_star             over one server at the first site, by shortest ways (paper 5.5 to 7.5)
    fapt9_speedup_over_sharded_star     over a server at each site: the fair baseline
    fapt1_speedup_over_bkt              over a balanced binary tree below the first site (paper 3.1)
    fapt1_time_ratio_to_mst_whole       over the greatest spanning tree, tensors forwarded whole
    fapt1_time_ratio_to_mst_pieces      in pieces, where the slowest link counts and no sum of delays
    roots9_gain                         fapt by its best root alone over fapt by nine (paper 2.8 in a mesh)
    roots9_gain_mesh                    likewise where all nine sites are linked with each other
    fapt_speedup_over_star_meshN        of N sites (figure 19b), each a root
    scaling_efficiency                  seconds of 5 sites over those of 15, with more links (paper 0.93)
    fapt9_speedup_over_star_47          over a star at any site, if no link carries over 47 Mbit/s: as one
                                        connection by cubic at 30 ms and 0.02 % of losses (paper 6.5 to 9.2)
    stale_ratio_to_fresh                fapt planned for the draw before, over fapt (paper 1.32)
    chunk_20m_ratio_to_1m               fapt in pieces of 20 million elements, over those of a million
    packed_speedup_over_fapt9           packed in pieces of a quarter million, over fapt in a million
    packed_speedup_over_fapt9_same      both in pieces of a million
    packed_ratio_to_bound               over the seconds that every cut needs to carry the model once each way
    packed_utilization_ratio_to_bound   of its fullest link alone
    packed_plan_seconds                 to plan, with 32 parts
    seconds                             of the benchmark
"""

import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Final

import click

from benchmarks.figures import print_figures
from mltswitch.overlay.document import Overlay, seated
from mltswitch.overlay.exchange import Exchange, simulate_routes
from mltswitch.overlay.policies import route
from mltswitch.overlay.policies.packed import fullest_seconds, seconds_at_least
from mltswitch.overlay.routes import Routes
from mltswitch.overlay.wan import known_wan

DRAWS, QUICK_DRAWS = 40, 6
ELEMENTS: Final = 57_000_000
SIZE_BITS: Final = 32.0 * ELEMENTS
SITES: Final = 9
MESHES: Final = (5, 10, 15)
CUBIC_BPS: Final = 47_000_000
BINARY: Final = {"in_degree": 2, "placement": "fixed", "locality": "none"}


def netstorm9(seed: int) -> Overlay:
    """A draw of it."""
    return known_wan(f"netstorm9:{seed}").overlay()


def planned(
    overlay: Overlay, policy: str, settings: Mapping[str, Any], elements: int = 1_000_000
) -> tuple[Routes, Exchange]:
    """Routes, and the exchange in pieces of so many elements."""
    routes = route(overlay, policy, settings, Exchange(SIZE_BITS))
    pieces = max(1, round(ELEMENTS / elements / len(routes.trees)))
    return routes, Exchange(SIZE_BITS, pieces)


def seconds_of(
    overlay: Overlay, policy: str, settings: Mapping[str, Any], elements: int = 1_000_000
) -> float:
    """Of one exchange."""
    return simulate_routes(overlay, *planned(overlay, policy, settings, elements)).seconds


def drawn(seed: int) -> dict[str, float]:
    """All figures of one draw."""
    overlay, before, mesh = netstorm9(seed), netstorm9(seed + 1_000), known_wan(f"mesh9:{seed}").overlay()
    one_server = seated(overlay, None, 1)
    fapt1, fapt9 = seconds_of(overlay, "fapt", {"roots": 1}), seconds_of(overlay, "fapt", {})
    bound = seconds_at_least(overlay) * SIZE_BITS
    capped = [link.model_copy(update={"rate_bps": min(link.rate_bps, CUBIC_BPS)}) for link in overlay.links]
    cubic = overlay.model_copy(update={"links": tuple(capped)})
    stars = [seconds_of(seated(cubic, None, 1, seed=site), "star", {}) for site in range(SITES)]
    meshes = {sites: known_wan(f"mesh{sites}:{seed}").overlay() for sites in MESHES}
    mesh_seconds = {sites: seconds_of(each, "fapt", {}) for sites, each in meshes.items()}
    routes, exchange = planned(before, "fapt", {})
    stale = simulate_routes(overlay, routes, exchange).seconds
    began = time.monotonic()
    packed, exchange = planned(overlay, "packed", {}, 250_000)
    plan_seconds = time.monotonic() - began
    packed_seconds = simulate_routes(overlay, packed, exchange).seconds
    whole = ELEMENTS
    return {
        "fapt9_speedup_over_star": seconds_of(one_server, "star", {}) / fapt9,
        "fapt9_speedup_over_sharded_star": seconds_of(overlay, "star", {}) / fapt9,
        "fapt1_speedup_over_bkt": seconds_of(one_server, "tree", BINARY) / fapt1,
        "fapt1_time_ratio_to_mst_whole": seconds_of(overlay, "fapt", {"roots": 1}, whole)
        / seconds_of(overlay, "mst", {}, whole),
        "fapt1_time_ratio_to_mst_pieces": fapt1 / seconds_of(overlay, "mst", {}),
        "roots9_gain": fapt1 / fapt9,
        "roots9_gain_mesh": seconds_of(mesh, "fapt", {"roots": 1}) / seconds_of(mesh, "fapt", {}),
        **{
            f"fapt_speedup_over_star_mesh{sites}": seconds_of(seated(each, None, 1), "star", {})
            / mesh_seconds[sites]
            for sites, each in meshes.items()
        },
        "scaling_efficiency": mesh_seconds[MESHES[0]] / mesh_seconds[MESHES[-1]],
        "fapt9_speedup_over_star_47": median(stars) / seconds_of(cubic, "fapt", {}),
        "stale_ratio_to_fresh": stale / fapt9,
        "chunk_20m_ratio_to_1m": seconds_of(overlay, "fapt", {}, 20_000_000) / fapt9,
        "packed_speedup_over_fapt9": fapt9 / packed_seconds,
        "packed_speedup_over_fapt9_same": fapt9 / seconds_of(overlay, "packed", {}),
        "packed_ratio_to_bound": packed_seconds / bound,
        "packed_utilization_ratio_to_bound": fullest_seconds(overlay, packed.trees) * SIZE_BITS / bound,
        "packed_plan_seconds": plan_seconds,
    }


def measure(draws: int) -> dict[str, float]:
    """Medians."""
    began = time.monotonic()
    found = [drawn(seed) for seed in range(draws)]
    medians = {name: median(each[name] for each in found) for name in found[0]}
    return {"draws": float(draws), **medians, "seconds": time.monotonic() - began}


@click.command()
@click.option("--quick", is_flag=True, help="Fewer draws.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Trees between data centres."""
    print_figures(measure(QUICK_DRAWS if quick else DRAWS), as_json=as_json)


if __name__ == "__main__":
    main()
