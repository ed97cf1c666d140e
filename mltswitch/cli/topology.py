"""`mltswitch topology`: trees by which sums go up and results down, planned, compared and drawn."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
import numpy as np
from rich.console import Group
from rich.live import Live
from rich.text import Text

from mltswitch import __version__
from mltswitch.cli.networks import known_network, load_routes
from mltswitch.cli.numbers import NumberRange, parsed
from mltswitch.cli.output import console, json_option, measured_rate, print_json, progress, table
from mltswitch.cli.settings import named_values
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.hostagent.telemetry.links import LinkWatch
from mltswitch.outputs import check_output, write_outputs
from mltswitch.overlay.document import Overlay, seated
from mltswitch.overlay.exchange import Exchange, simulate_ring, simulate_routes
from mltswitch.overlay.policies import policies, route
from mltswitch.overlay.simulation import Times
from mltswitch.overlay.trees import RACK
from mltswitch.profile import resolve_profile
from mltswitch.report import plotly_script, routes_report
from mltswitch.units import BITS_PER_BYTE, format_bps, format_bytes, format_seconds, parse_bytes

RING: Final = "ring"
"""No policy, for its sums take no trees; it stands beside them where ranks serve."""
BETWEEN_SITES: Final = ("fapt", "mst", "packed")
"""Policies for networks of slow, unequal links between hosts."""
SHOWN: Final = 8
"""Trees or links of a table."""
Command = TypeVar("Command", bound=Callable[..., Any])


class Case(NamedTuple):
    """A network with a job in it, and what the job exchanges."""

    overlay: Overlay
    exchange: Exchange

    @property
    def size_bytes(self) -> int:
        """Of all gradients of a rank."""
        return round(self.exchange.size_bits / BITS_PER_BYTE)


def _network_options(command: Command) -> Command:
    for option in (
        click.argument("network", metavar="NETWORK"),
        click.option("--ranks", type=click.IntRange(2, 100_000), help="Of the job; a rank on every host."),
        click.option("--servers", type=click.IntRange(0, 100_000), default=0, help="0: ranks serve; 0."),
        click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="Ranks and servers by chance."),
        click.option("--size", "size_text", metavar="SIZE", help="Of all gradients of a rank; 100MB."),
        click.option("--model", metavar="NAME", help="In the place of --size: a profile, or its file."),
        click.option(
            "--pieces",
            type=click.IntRange(1, 64),
            default=4,
            help="Into which a root's part is cut; 4.",
        ),
    )[::-1]:
        command = option(command)
    return command


def _case(
    network: str,
    ranks: int | None,
    servers: int,
    seed: int | None,
    size_text: str | None,
    model: str | None,
    pieces: int,
) -> Case:
    if model is not None and size_text is not None:
        raise UserInputError("goes without --model", where="--size")
    size_bytes = parsed("--size", parse_bytes, size_text or "100MB")
    if model is not None:
        size_bytes = sum(
            4 * tensor.elements for layer in resolve_profile(model).layers for tensor in layer.tensors
        )
    overlay, is_seated = known_network(network)
    if is_seated and (ranks, servers, seed) != (None, 0, None):
        problem = "an overlay says where its ranks and servers are"
        raise UserInputError(problem, where="--ranks", hint="leave --ranks, --servers and --seed away")
    if not is_seated:
        overlay = seated(overlay, ranks, servers, seed)
    if size_bytes < 1:
        raise UserInputError(f"{size_bytes}", where="--size", expected="a byte or more")
    if len({node.name for node in overlay.members}) < 2:
        raise UserInputError("has one host in it", where="NETWORK", expected="a job on two or more")
    return Case(overlay, Exchange(float(size_bytes * BITS_PER_BYTE), pieces, seed or 0))


@click.group(
    epilog="\b\nExample:\n  mltswitch topology compare fat-tree:8@10Gbps/4 --servers 8 --model resnet50"
)
def topology() -> None:
    """Trees for a job's exchange: who adds up on the way.

    NETWORK is a file, an overlay, a WAN, a plan or a fabric, or a word: `netstorm9:7`, say, or
    `fat-tree:PORTS@RATE/OVERSUBSCRIPTION`: three tiers of switches with so many ports, whose racks' uplinks
    are slower by the last number.
    """


@topology.command(
    "plan",
    epilog="\b\nExamples:\n"
    "  mltswitch topology plan plan.yaml --setting in_degree=rack -o routes.yaml\n"
    "  mltswitch topology plan fabric.yaml --ranks 8 --setting in_degree=auto --model vgg16 --json",
)
@_network_options
@click.option("--policy", "policy_name", default="tree", metavar="NAME", help="Who makes the trees; tree.")
@click.option(
    "--setting", "setting_texts", multiple=True, metavar="NAME=VALUE", help="Of the policy; again for more."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the routes here."
)
@json_option
def plan_command(
    policy_name: str, setting_texts: Sequence[str], output: Path | None, as_json: bool, **options: Any
) -> None:
    """Make routes for the ranks of a job in a network.

    Policies are `star`, where all ranks send to each root, and `tree` with `in_degree` (a number, `rack`: one
    aggregator a rack, or `auto`: what the simulation finds shortest), `placement` (`spread` or `fixed`) and
    `locality` (`rack` or `none`). Between sites with slow, unequal links: `fapt` with `roots` (fastest ways,
    the best roots), `packed` with `parts` (the fullest link as empty as can be) and `mst`. A job takes the
    routes by `--routes` of `train bench` and `train simulate`.
    """
    if output is not None:
        check_output(output)
    case = _case(**options)
    settings = named_values("--setting", setting_texts)
    routes = route(case.overlay, policy_name, settings, case.exchange)
    if output is not None:
        write_outputs([(output, dump_yaml(routes))])
        progress(f"Written: {output}")
    if as_json:
        print_json(routes)
        return
    click.echo(
        f"{routes.policy}: {len(routes.trees)} trees over {routes.ranks} ranks, at most {routes.depth} hops "
        f"to a root and {routes.in_degree} children of a node"
    )
    names = [node.name for node in case.overlay.members]
    rows = [
        (names[each.root], f"{100 * each.share:.3g}", _way(each.tree, each.root, names))
        for each in routes.trees[:SHOWN]
    ]
    more = f", the first {SHOWN} of {len(routes.trees)}" if len(routes.trees) > SHOWN else ""
    console().print(table(f"Trees{more}", ("root", "share [%]", "the longest way to it"), rows))


def _way(tree: Any, root: int, names: Sequence[str]) -> str:
    ways = []
    for rank in tree:
        way = [rank]
        while way[-1] != root:
            way.append(tree[way[-1]])
        ways.append(way)
    return " > ".join(names[node] for node in max(ways, key=len, default=[root]))


class _Candidate(NamedTuple):
    name: str
    policy: str
    settings: dict[str, Any]


def _candidates(overlay: Overlay) -> list[_Candidate]:
    ranks, found = len(overlay.ranks), [_Candidate("star", "star", {})]
    for degree in (2, 4, 8):
        if degree < ranks:
            settings = {"in_degree": degree}
            found += [_Candidate(f"tree, in_degree {degree}", "tree", settings)]
            if overlay.racks:
                far = settings | {"locality": "none"}
                found += [_Candidate(f"tree, in_degree {degree}, locality none", "tree", far)]
    if overlay.racks:
        found.append(_Candidate("tree, in_degree rack", "tree", {"in_degree": RACK}))
    if not overlay.servers:
        found.append(_Candidate(RING, RING, {}))
    others = policies().keys() - {"star", "tree"}
    if any(node.rank is None and node.server is None for node in overlay.nodes):
        progress(f"left out: {', '.join(BETWEEN_SITES)}: below switches all ways are alike")
        others -= {*BETWEEN_SITES}
    else:
        found.append(_Candidate("fapt, roots 1", "fapt", {"roots": 1}))
    return found + [_Candidate(name, name, {}) for name in sorted(others)]


@topology.command(
    "compare",
    epilog="\b\nExamples:\n"
    "  mltswitch topology compare plan.yaml --model resnet50\n"
    "  mltswitch topology compare fat-tree:16@10Gbps/4 --ranks 800 --servers 50 --seed 1 --pieces 1 --json",
)
@_network_options
@json_option
def compare_command(as_json: bool, **options: Any) -> None:
    """Simulate an exchange by every policy, and by the ring where ranks serve.

    Flows share the network max-min fairly, as TCP's or granted ones do when they last; losses, queues and
    computing are left out. A node sends a piece on when all of it has come. Between sites, `whole` is
    the time where nodes forward all that a root sums at once, of which `fapt`'s sum of delays speaks.
    """
    case = _case(**options)
    found: list[dict[str, Any]] = []
    candidates = [*_candidates(case.overlay)]
    is_between_sites = any(policy in BETWEEN_SITES for _, policy, _ in candidates)
    whole = case.exchange._replace(pieces=1)
    for name, policy, settings in candidates:
        whole_seconds = None
        progress(f"{name} …")
        if policy == RING:
            ranks = len(case.overlay.ranks)
            times, shape = simulate_ring(case.overlay, case.exchange), (2 * ranks - 2, 1)
        else:
            try:
                routes = route(case.overlay, policy, settings, case.exchange)
            except UserInputError as error:  # of its kind of network
                progress(f"left out: {error}")
                continue
            times = simulate_routes(case.overlay, routes, case.exchange)
            shape = routes.depth, routes.in_degree
            if is_between_sites:
                whole_seconds = simulate_routes(case.overlay, routes, whole).seconds
        models = times.link_bits / case.exchange.size_bits
        entry = {"name": name, "policy": policy, "settings": settings, "seconds": times.seconds}
        entry |= {} if whole_seconds is None else {"whole_seconds": whole_seconds}
        entry |= {"ratio_to_star": times.seconds / (found[0]["seconds"] if found else times.seconds)}
        entry |= dict(zip(("hops", "in_degree"), shape, strict=True))
        entry |= {
            "busiest_link_models": float(models.max(initial=0.0)),
            "all_links_models": float(models.sum()),
        }
        found.append(entry)
    best = min(found, key=lambda entry: entry["seconds"])
    if as_json:
        facts = {"ranks": len(case.overlay.ranks), "servers": len(case.overlay.servers)}
        print_json(
            {"kind": "simulated", **facts, "size_bytes": case.size_bytes, "pieces": case.exchange.pieces}
            | {"best": best["name"], "policies": found}
        )
        return
    rows = [
        (
            entry["name"],
            format_seconds(entry["seconds"]),
            *([format_seconds(entry.get("whole_seconds"))] * is_between_sites),
            f"{entry['ratio_to_star']:.2f}",
            entry["hops"],
            entry["in_degree"],
            f"{entry['busiest_link_models']:.2f}",
            f"{entry['all_links_models']:.1f}",
        )
        for entry in found
    ]
    columns = (
        "policy",
        "exchange #",
        *(["whole #"] * is_between_sites),
        "over star #",
        "hops #",
        "children #",
        "busiest link [models]",
        "all links [models]",
    )
    console().print(table(f"{_said(case)} (simulated)", columns, rows))
    click.echo(f"Shortest: {best['name']}, {best['ratio_to_star']:.2f} of the star's time")


def _said(case: Case) -> str:
    ranks, servers = len(case.overlay.ranks), len(case.overlay.servers)
    who = f"{servers} servers" if servers else "who serve each other"
    return f"{format_bytes(case.size_bytes)} of {ranks} ranks, {who}"


@topology.command(
    "simulate",
    epilog="\b\nExamples:\n"
    "  mltswitch topology simulate plan.yaml --routes routes.yaml --model resnet50\n"
    "  mltswitch topology simulate overlay.yaml --routes routes.yaml --size 25MB --json",
)
@_network_options
@click.option("--routes", "routes_file", type=click.Path(path_type=Path), required=True, help="Their file.")
@json_option
def simulate_command(routes_file: Path, as_json: bool, **options: Any) -> None:
    """Simulate one exchange by routes: how long it takes, and what each link carries."""
    case = _case(**options)
    routes = load_routes(routes_file, case.overlay)
    times = simulate_routes(case.overlay, routes, case.exchange)
    loads = _loads(case, times)
    carried = np.array([load.bits for load in loads]) / BITS_PER_BYTE
    if as_json:
        found = {"kind": "simulated", "seconds": times.seconds, "size_bytes": case.size_bytes}
        shares = {f"link_bytes_p{share}": float(np.percentile(carried, share)) for share in (50, 90, 99, 100)}
        links = [
            {
                "source": load.source,
                "target": load.target,
                "bytes": load.bits / BITS_PER_BYTE,
                "busy": load.busy,
            }
            for load in loads
        ]
        print_json(found | shares | {"links": links})
        return
    rows = [
        (
            f"{load.source} > {load.target}",
            format_bps(load.rate_bps),
            format_bytes(round(load.bits / BITS_PER_BYTE)),
            f"{100 * load.busy:.0f}",
        )
        for load in loads[:SHOWN]
    ]
    columns = ("link", "rate #", "carries #", "busy [%]")
    console().print(table(f"{_said(case)}: the busiest links (simulated)", columns, rows))
    click.echo(f"The exchange takes {format_seconds(times.seconds)}")


class _Load(NamedTuple):
    busy: float
    """Share of the exchange's time."""
    bits: float
    rate_bps: float
    source: str
    target: str


def _loads(case: Case, times: Times) -> list[_Load]:
    """Of all links, the busiest first."""
    seconds = times.seconds or 1.0
    found = [
        _Load(bits / link.rate_bps / seconds, bits, link.rate_bps, link.source, link.target)
        for link, bits in zip(case.overlay.graph.links, times.link_bits.tolist(), strict=True)
    ]
    return sorted(found, key=lambda load: (-load.busy, load.source, load.target))


@topology.command(
    "show",
    epilog="\b\nExamples:\n"
    "  mltswitch topology show plan.yaml --routes routes.yaml -o trees.html\n"
    "  mltswitch topology show overlay.yaml --routes routes.yaml --trees 2 --model resnet50 -o trees.html",
)
@_network_options
@click.option("--routes", "routes_file", type=click.Path(path_type=Path), required=True, help="Their file.")
@click.option("--trees", "tree_count", type=click.IntRange(1, 64), default=4, help="That are drawn; 4.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The page."
)
@json_option
def show_command(routes_file: Path, tree_count: int, output: Path, as_json: bool, **options: Any) -> None:
    """Draw trees and the load of links by one exchange, as a page (extra: report)."""
    plotly_script()
    check_output(output)
    case = _case(**options)
    routes = load_routes(routes_file, case.overlay)
    times = simulate_routes(case.overlay, routes, case.exchange)
    names = [node.name for node in case.overlay.members]
    links = [(f"{load.source} > {load.target}", load.busy) for load in _loads(case, times)]
    head = {
        "Exchange": f"{_said(case)}, {format_seconds(times.seconds)} (simulated)",
        "Routes": f"{routes.policy} {routes.settings or ''} (sha256 {routes.sha256()})",
        "Tool": f"mltswitch {__version__}",
    }
    drawn = [(names[each.root], {names[a]: names[b] for a, b in each.tree.items()}) for each in routes.trees]
    page = routes_report(
        f"{routes.policy}: {len(routes.trees)} trees", head.items(), drawn[:tree_count], links
    )
    write_outputs([(output, page)])
    if as_json:
        print_json({"page": str(output), "seconds": times.seconds, "trees": min(tree_count, len(drawn))})
    else:
        click.echo(f"{output}: {min(tree_count, len(drawn))} of {len(drawn)} trees, and {len(links)} links")


@topology.command(
    "watch",
    epilog="\b\nExamples:\n"
    "  mltswitch topology watch /run/mltswitch-wan/traces\n"
    "  mltswitch topology watch traces/host1-0.jsonl --once --json\n"
    "  mltswitch topology watch traces --every 5 --json > links.jsonl",
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Show what is known now, and end.")
@click.option(
    "--every", type=NumberRange(0.1, 3600), default=1.0, metavar="SECONDS", help="Between looks; 1."
)
@json_option
def watch_command(traces: Sequence[Path], once: bool, every: float, as_json: bool) -> None:
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
    return Group(table("Links", ("from", "to", "said #", "measured #", "age #"), rows), Text(words))
