"""`mltswitch topology`: trees by which sums go up and results down, planned, compared and drawn."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from mltswitch.app.exchanges import Job, compared, longest_way
from mltswitch.app.networks import load_routes
from mltswitch.app.settings import named_values
from mltswitch.cli.command import JSON, argument, command, flag, group, option
from mltswitch.cli.options import PATH, SEED, NumberRange, output_file
from mltswitch.cli.output import Answer, console, measured_rate, progress, table
from mltswitch.documents import dump_yaml
from mltswitch.hostagent.telemetry.links import LinkWatch
from mltswitch.outputs import check_output, write_outputs
from mltswitch.overlay.exchange import simulate_routes
from mltswitch.overlay.policies import route
from mltswitch.report import plotly_script, routes_report
from mltswitch.units import BITS_PER_BYTE, format_bps, format_bytes, format_seconds
from mltswitch.version import __version__

SHOWN: Final = 8
"""How many trees or links a table shows."""
ROUTES: Final[Any] = option("Their file.", PATH, "--routes", required=True)


JOB: Final[Any] = {
    "network": argument("NETWORK"),
    "ranks": option("Of the job; a rank on every host.", click.IntRange(2, 100_000)),
    "servers": option("0: ranks serve; 0.", click.IntRange(0, 100_000), default=0),
    "seed": option("Ranks and servers by chance.", SEED),
    "size": option("Of all gradients of a rank; 100MB.", metavar="SIZE"),
    "model": option("In the place of --size: a profile, or its file.", metavar="NAME"),
    "pieces": option("Into which a root's part is cut; 4.", click.IntRange(1, 64), default=4),
}


@command(
    "mltswitch topology plan plan.yaml --setting in_degree=rack -o routes.yaml",
    "mltswitch topology plan fabric.yaml --ranks 8 --setting in_degree=auto --model vgg16 --json",
    name="plan",
)
def plan_command(
    job: Job = JOB,
    policy_name: str = option("Who makes the trees; tree.", None, "--policy", default="tree", metavar="NAME"),
    setting_texts: tuple[str, ...] = option(
        "Of the policy; again for more.", None, "--setting", multiple=True, metavar="NAME=VALUE"
    ),
    output: Path | None = output_file("Write the routes here."),
) -> Answer:
    """Make routes for the ranks of a job in a network.

    Policies are `star`, where all ranks send to each root, and `tree` with `in_degree` (a number, `rack`: one
    aggregator a rack, or `auto`: what the simulation finds shortest), `placement` (`spread` or `fixed`) and
    `locality` (`rack` or `none`). Between sites with slow, unequal links: `fapt` with `roots` (fastest ways,
    the best roots), `packed` with `parts` (the fullest link as empty as can be) and `mst`. A job takes the
    routes by `--routes` of `train bench` and `train simulate`.
    """
    if output is not None:
        check_output(output)
    case = job.case()
    routes = route(case.overlay, policy_name, named_values("--setting", setting_texts), case.exchange)
    if output is not None:
        write_outputs([(output, dump_yaml(routes))])
        progress(f"Written: {output}")

    def text() -> Iterator[RenderableType]:
        yield (
            f"{routes.policy}: {len(routes.trees)} trees over {routes.ranks} ranks, at most {routes.depth} "
            f"hops to a root and {routes.in_degree} children of a node"
        )
        rows = [
            (case.names[each.root], f"{100 * each.share:.3g}", longest_way(each, case.names))
            for each in routes.trees[:SHOWN]
        ]
        more = f", the first {SHOWN} of {len(routes.trees)}" if len(routes.trees) > SHOWN else ""
        yield table(f"Trees{more}", "root | share [%] | the longest way to it", rows)

    return Answer(routes, text())


@command(
    "mltswitch topology compare plan.yaml --model resnet50",
    "mltswitch topology compare fat-tree:16@10Gbps/4 --ranks 800 --servers 50 --seed 1 --pieces 1 --json",
    name="compare",
)
def compare_command(job: Job = JOB) -> Answer:
    """Simulate an exchange by every policy, and by the ring where ranks serve.

    Flows share the network max-min fairly, as TCP's or granted ones do when they last; losses, queues and
    computing are left out. A node sends a piece on when all of it has come. Between sites, `whole` is
    the time where nodes forward all that a root sums at once, of which `fapt`'s sum of delays speaks.
    """
    case = job.case()
    found = compared(case, progress)
    best = min(found, key=lambda entry: entry["seconds"])
    document = {
        "kind": "simulated",
        "ranks": len(case.overlay.ranks),
        "servers": len(case.overlay.servers),
        "size_bytes": case.size_bytes,
        "pieces": case.exchange.pieces,
        "best": best["name"],
        "policies": found,
    }

    def text() -> Iterator[RenderableType]:
        has_whole = any("whole_seconds" in entry for entry in found)
        rows = [
            (
                entry["name"],
                format_seconds(entry["seconds"]),
                *([format_seconds(entry.get("whole_seconds"))] * has_whole),
                f"{entry['ratio_to_star']:.2f}",
                entry["hops"],
                entry["in_degree"],
                f"{entry['busiest_link_models']:.2f}",
                f"{entry['all_links_models']:.1f}",
            )
            for entry in found
        ]
        columns = (
            f"policy | exchange #{' | whole #' * has_whole} | over star # | hops # | children # | "
            "busiest link [models] | all links [models]"
        )
        yield table(f"{case} (simulated)", columns, rows)
        yield f"Shortest: {best['name']}, {best['ratio_to_star']:.2f} of the star's time"

    return Answer(document, text())


@command(
    "mltswitch topology simulate plan.yaml --routes routes.yaml --model resnet50",
    "mltswitch topology simulate overlay.yaml --routes routes.yaml --size 25MB --json",
    name="simulate",
)
def simulate_command(job: Job = JOB, routes_file: Path = ROUTES) -> Answer:
    """Simulate one exchange by routes: how long it takes, and what each link carries."""
    case = job.case()
    times = simulate_routes(case.overlay, load_routes(routes_file, case.overlay, progress), case.exchange)
    loads = case.loads(times)
    carried = np.array([load.bits for load in loads]) / BITS_PER_BYTE
    links = [
        {"source": each.source, "target": each.target, "bytes": each.bits / BITS_PER_BYTE, "busy": each.busy}
        for each in loads
    ]
    document = {
        "kind": "simulated",
        "seconds": times.seconds,
        "size_bytes": case.size_bytes,
        **{f"link_bytes_p{share}": float(np.percentile(carried, share)) for share in (50, 90, 99, 100)},
        "links": links,
    }
    rows = [
        (
            f"{each.source} > {each.target}",
            format_bps(each.rate_bps),
            format_bytes(round(each.bits / BITS_PER_BYTE)),
            f"{100 * each.busy:.0f}",
        )
        for each in loads[:SHOWN]
    ]
    title = f"{case}: the busiest links (simulated)"
    took = f"The exchange takes {format_seconds(times.seconds)}"
    return Answer(document, (table(title, "link | rate # | carries # | busy [%]", rows), took))


@command(
    "mltswitch topology show plan.yaml --routes routes.yaml -o trees.html",
    "mltswitch topology show overlay.yaml --routes routes.yaml --trees 2 --model resnet50 -o trees.html",
    name="show",
)
def show_command(
    job: Job = JOB,
    routes_file: Path = ROUTES,
    tree_count: int = option("That are drawn; 4.", click.IntRange(1, 64), "--trees", default=4),
    output: Path = output_file("The page.", required=True),
) -> Answer:
    """Draw trees and the load of links by one exchange, as a page (extra: report)."""
    plotly_script()
    check_output(output)
    case = job.case()
    routes = load_routes(routes_file, case.overlay, progress)
    times = simulate_routes(case.overlay, routes, case.exchange)
    links = [(f"{load.source} > {load.target}", load.busy) for load in case.loads(times)]
    head = {
        "Exchange": f"{case}, {format_seconds(times.seconds)} (simulated)",
        "Routes": f"{routes.policy} {routes.settings or ''} (sha256 {routes.sha256()})",
        "Tool": f"mltswitch {__version__}",
    }
    names = case.names
    drawn = [(names[each.root], {names[a]: names[b] for a, b in each.tree.items()}) for each in routes.trees]
    title, count = f"{routes.policy}: {len(routes.trees)} trees", min(tree_count, len(drawn))
    write_outputs([(output, routes_report(title, head.items(), drawn[:tree_count], links))])
    line = f"{output}: {count} of {len(drawn)} trees, and {len(links)} links"
    return Answer({"page": str(output), "seconds": times.seconds, "trees": count}, (line,))


@command(
    "mltswitch topology watch /run/mltswitch-wan/traces",
    "mltswitch topology watch traces/host1-0.jsonl --once --json",
    "mltswitch topology watch traces --every 5 --json > links.jsonl",
    name="watch",
)
def watch_command(
    traces: tuple[Path, ...] = argument("TRACE…", PATH, nargs=-1, required=True),
    once: bool = flag("Show what is known now, and end."),
    every: float = option("Between looks; 1.", NumberRange(0.1, 3600), default=1.0, metavar="SECONDS"),
    as_json: bool = JSON,
) -> None:
    """Show what a job over the topology `fapt` knows of its links and routes, live. Ctrl-C ends it.

    TRACE is a trace of an agent of the job, or a folder of such traces: all ranks know the same, and the one
    that told last is shown. `said` is a link's rate in the job's settings, `measured` what its target has
    measured, `age` how long ago. Without --once, --json prints one object a look, each on one line.
    """
    looks = _looks(LinkWatch(traces), None if once else every)
    with suppress(KeyboardInterrupt):
        if as_json:
            for known in looks:
                click.echo(json.dumps(known, ensure_ascii=False, indent=2 if once else None))
        elif once or not sys.stdout.isatty():
            for known in looks:
                console().print(_links_shown(known))
        else:
            with Live(console=console(), auto_refresh=False) as live:
                for known in looks:
                    live.update(_links_shown(known), refresh=True)


def _looks(watch: LinkWatch, every_seconds: float | None) -> Iterator[dict[str, Any] | None]:
    yield watch.read()
    while every_seconds is not None:
        sys.stdout.flush()
        time.sleep(every_seconds)
        yield watch.read()


def _links_shown(known: dict[str, Any] | None) -> Group:
    if known is None:
        return Group(Text("No job over fapt has told of its links here."))
    rows = [
        (
            link["source"],
            link["target"],
            format_bps(link["said_bps"]),
            measured_rate(link["measured_bps"]),
            format_seconds(link["age_seconds"]),
        )
        for link in known["links"]
    ]
    bound = f"Routes of version {known['version']}, bound {format_seconds(known['version_age_seconds'])} ago"
    refused = f"{known['refused']} reports refused" if known["refused"] else ""
    words = "; ".join(filter(None, (bound, refused, known["problem"])))
    return Group(table("Links", "from | to | said # | measured # | age #", rows), Text(words))


topology = group(
    "topology",
    """Trees for a job's exchange: who adds up on the way.

    NETWORK is a file, an overlay, a WAN, a plan or a fabric, or a word: `netstorm9:7`, say, or
    `fat-tree:PORTS@RATE/OVERSUBSCRIPTION`: three tiers of switches with so many ports, whose racks' uplinks
    are slower by the last number.
    """,
    *(plan_command, compare_command, simulate_command, show_command, watch_command),
    examples=("mltswitch topology compare fat-tree:8@10Gbps/4 --servers 8 --model resnet50",),
)
