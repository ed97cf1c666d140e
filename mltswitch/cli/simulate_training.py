"""`mltswitch train simulate`: how long steps of a model take by each synchronization, in virtual time."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click

from mltswitch.cli.bars import Advance, progress_bar
from mltswitch.cli.networks import load_routes, network_of_job
from mltswitch.cli.numbers import NumberRange, parsed
from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.cli.settings import FAPT, chosen_topology, topology_options
from mltswitch.documents import parse_yaml
from mltswitch.errors import UserInputError
from mltswitch.profile import resolve_profile
from mltswitch.training.axes import Network, axes_of, synchronizations, topologies
from mltswitch.training.fabric import FabricNetwork
from mltswitch.training.simulate import STEPS, WARM_UP, Simulated, forward_gain, scaled_job, simulate
from mltswitch.units import format_bps, format_seconds, parse_bps

WIDTH: Final = 60
"""Characters that a timeline is wide."""
SIGNS: Final = {"computing": "=", "waiting": ">", "passing": "-", "later": "."}
ALL: Final = "all"


@click.command(
    "simulate",
    epilog="\b\nExamples:\n"
    "  mltswitch train simulate --compute 0.5\n"
    "  mltswitch train simulate --model vgg16 --compute 3.5 --sync bsp,osp --setting osp.slice_bytes=null\n"
    "  mltswitch train simulate --compute 0.2 --slow 0=3 --topology ring --rate 25Gbps --json\n"
    "  mltswitch train simulate --compute 0.15 --backward-share 0.67 --sync bsp --servers 0 --forward",
)
@click.option("--model", default="resnet50", metavar="NAME", help="A profile, or its file; resnet50.")
@click.option("--workers", type=click.IntRange(2, 128), default=8, help="Ranks; 8.")
@click.option("--compute", type=NumberRange(1e-6, 1e5), required=True, help="Of a rank for a step [s].")
@click.option("--spread", type=NumberRange(0, 0.9), default=0.0, help="Ranks take so much less to more; 0.")
@click.option(
    "--slow",
    "slow_texts",
    multiple=True,
    metavar="RANK=FACTOR",
    help="That rank computes FACTOR times as long.",
)
@click.option("--batch", type=click.IntRange(1, 10**9), default=64, help="Samples in a rank's step; 64.")
@click.option("--backward-share", type=NumberRange(0, 1), default=0.0, help="Of computing; 0.")
@click.option("--rate", metavar="RATE", help="Of each link, in each direction; 10Gbps.")
@click.option(
    "--network",
    "network_text",
    metavar="NETWORK",
    help="In the place of --rate: see `mltswitch topology --help`.",
)
@click.option("--rtt", "rtt_ms", type=NumberRange(0, 10_000), help="Round trip [ms]; 0.1.")
@click.option("--sync", "names_text", default=ALL, metavar="NAME[,NAME]", help="Synchronizations; all.")
@click.option(
    "--setting",
    "--sync-setting",
    "setting_texts",
    multiple=True,
    metavar="[SYNC.]NAME=VALUE",
    help="Of one synchronization, or of all: ssp.staleness=1, say; again for more.",
)
@click.option("--forward", is_flag=True, help="bsp also with forward passes that wait layer by layer.")
@topology_options
@click.option("--servers", type=click.IntRange(0, 128), help="0: ranks serve; 1 where there can be any.")
@click.option("--steps", type=click.IntRange(1, 10_000), default=STEPS, help=f"That are measured; {STEPS}.")
@json_option
def simulate_command(
    model: str,
    workers: int,
    compute: float,
    spread: float,
    slow_texts: Sequence[str],
    batch: int,
    backward_share: float,
    rate: str | None,
    network_text: str | None,
    rtt_ms: float | None,
    names_text: str,
    setting_texts: Sequence[str],
    forward: bool,
    topology: str | None,
    topology_texts: Sequence[str],
    routes_file: Path | None,
    servers: int | None,
    steps: int,
    as_json: bool,
) -> None:
    """Simulate the time of a training step.

    Synchronizations are compared before you train. The code of production exchanges a smaller model with the
    same proportions over links that share max-min fairly in both directions: the network alone limits,
    without losses. Gradients become ready in the last --backward-share of computing, or all at its end. `osp`
    tunes what goes later before times count. Ranks that are all equally fast march in step, and `asp` is then
    no faster than `bsp`: --spread sets them apart. With --forward, `bsp` runs a second time as `MltForward`
    does it, and its gain stands beside the most that a closed form allows.
    """
    profile = resolve_profile(model)
    names = [*synchronizations()] if names_text == ALL else names_text.split(",")
    settings = _settings(setting_texts, names)
    topology, of_topology = chosen_topology(topology, topology_texts, routes_file)
    if routes_file is not None and servers is None:
        servers = of_topology["routes"]["servers"]
    network = _network(network_text, rate, rtt_ms, workers, topology, servers)
    of_topology = _in_network(network, topology, of_topology, routes_file)
    common: dict[str, Any] = {"topology": topology, "topology_settings": of_topology, "servers": servers}
    left_out: dict[str, str] = {}
    for name in names:
        try:
            scaled_job(profile, world=workers, synchronization=name, settings=settings[name], **common)
        except UserInputError as error:
            if names_text != ALL or error.where != "topology" or len(left_out) == len(names) - 1:
                raise
            left_out[name] = str(error)
    seconds = _compute_seconds(compute, workers, spread, slow_texts)
    names = [name for name in names if name not in left_out]
    common |= {"batch": batch, "backward_share": backward_share, "steps": steps}
    ways = [(name, False) for name in names]
    if forward:
        ways += [("bsp", True)]
        if "bsp" not in names:
            raise UserInputError(
                f"{names_text!r:.60} lacks it", where="--sync", expected="bsp, for --forward"
            )
    with progress_bar() as advance:
        found = [
            simulate(
                profile,
                network,
                seconds,
                synchronization=name,
                settings=settings[name],
                forward=is_forward,
                advance=_part(advance, name, number, len(ways), WARM_UP + steps + 1),
                **common,
            )
            for number, (name, is_forward) in enumerate(ways)
        ]
    head = {
        "kind": "simulated",
        "model": profile.name,
        "compute_seconds": seconds,
        "rate_bps": network.link_bps,
    }
    head |= {"round_trip_seconds": 2 * network.latency_seconds, "network": network_text, **common}
    gain = None
    if forward:
        of_job = ("topology", "topology_settings", "servers")
        job, share = scaled_job(profile, world=workers, **{name: common[name] for name in of_job})
        small = Network(network.link_bps * share, network.latency_seconds)
        exchange_seconds = axes_of(job)[1].seconds(job, small)
        plain = found[names.index("bsp")]
        gain = {
            "simulated": plain.step_seconds / found[-1].step_seconds,
            "at_most": forward_gain(max(seconds), backward_share, exchange_seconds),
        }
    if as_json:
        print_json({**head, "synchronizations": found, "left_out": left_out, "forward_gain": gain})
    else:
        where = network_text or format_bps(network.link_bps)
        title = f"{profile.name}, {workers} workers, {topology}, {where} (simulated)"
        _print(title, workers, found)
        for reason in left_out.values():
            click.echo(f"Left out: {reason}")
        if gain is not None:
            said = f"{gain['simulated']:.2f} times as fast as bsp (simulated)"
            click.echo(f"Forward passes that wait layer by layer: {said}, {gain['at_most']:.2f} at most")


def _settings(texts: Iterable[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By synchronization."""
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in texts:
        name, sign, value = text.partition("=")
        owner, dot, setting = name.rpartition(".")
        if not setting or not sign or (dot and owner not in found):
            expected = f"NAME=VALUE, or one of {', '.join(names)} and .NAME=VALUE"
            raise UserInputError(f"{text!r:.60}", where="--setting", expected=expected)
        for each in [owner] if dot else names:
            found[each][setting] = parse_yaml(value, where=f"--setting {name}")
    return found


def _network(
    text: str | None, rate: str | None, rtt_ms: float | None, ranks: int, topology: str, servers: int | None
) -> Network | FabricNetwork:
    latency_seconds = (0.1 if rtt_ms is None else rtt_ms) / 2e3
    if text is None:
        return parsed("--rate", lambda each: Network(parse_bps(each), latency_seconds), rate or "10Gbps")
    if rate is not None:
        raise UserInputError("has rates of its own", where="--network", expected="no --rate")
    if servers is None:
        servers = int(topology in topologies() and topologies()[topology].has_servers)
    overlay = network_of_job(text, ranks, servers)
    if overlay.graph.delays_seconds.any():
        if rtt_ms is not None:
            raise UserInputError("has delays of its own", where="--network", expected="no --rtt")
        latency_seconds = 0.0
    return FabricNetwork(overlay, latency_seconds=latency_seconds)


def _in_network(
    network: Network | FabricNetwork, topology: str, settings: dict[str, Any], routes_file: Path | None
) -> dict[str, Any]:
    """Trees hear of racks, or of links; routes that were made for another network are told."""
    if not isinstance(network, FabricNetwork):
        if routes_file is not None:
            progress("the routes are played on one switch between all ranks, for no --network is given")
    elif routes_file is not None:
        load_routes(routes_file, network.overlay)
    elif topology == "tree" and network.overlay.racks and "racks" not in settings:
        return {**settings, "racks": [*network.overlay.racks]}
    elif topology == FAPT:  # nothing changes here
        overlay = network.overlay.model_dump(mode="json", by_alias=True)
        return {"overlay": overlay, "update_seconds": 0, **settings}
    return settings


def _compute_seconds(compute: float, workers: int, spread: float, slow_texts: Iterable[str]) -> list[float]:
    """Of each rank; a slow one is so beside its part of the spread."""
    seconds = [compute * (1 + spread * (2 * rank / (workers - 1) - 1)) for rank in range(workers)]
    for text in slow_texts:
        said = re.fullmatch(r"(\d{1,3})=(\d{1,3}(?:\.\d{1,9})?)", text)
        if said is None or int(said[1]) >= workers or not 0.01 <= float(said[2]) <= 100:
            expected = f"a rank, 0 to {workers - 1}, = and a factor, 0.01 to 100"
            raise UserInputError(f"{text!r:.60}", where="--slow", expected=expected)
        seconds[int(said[1])] *= float(said[2])
    return seconds


def _part(advance: Advance, name: str, number: int, parts: int, steps: int) -> Any:
    return lambda step: advance(name, number * steps + step, parts * steps)


def _print(title: str, workers: int, found: Sequence[Simulated]) -> None:
    columns = ("synchronization", "step [s]", "of which synchronizing [s]", "samples/s #", "later [%]")
    rows = [
        (
            _title(each),
            f"{each.step_seconds:.4g}",
            f"{each.synchronization_seconds:.4g}",
            f"{each.samples_per_second:.4g}",
            f"{100 * each.later_share:.1f}" if each.later_share else "-",
        )
        for each in found
    ]
    console().print(table(title, columns, rows))
    for each in found:
        taken = format_seconds(each.timeline_seconds)
        click.echo(f"{_title(each)}, one step of {taken} (simulated)")
        lines = [_line(each, rank) for rank in range(workers)]
        for (line, later), ranks in groupby(range(workers), key=lines.__getitem__):
            first, *others = ranks
            click.echo(f"{f'ranks {first}-{others[-1]}' if others else f'rank {first}':>14} {line}")
            if later.strip():
                click.echo(f"{'':14} {later}")
    click.echo("= computing   > waiting for what the next step needs (RS)   . exchanging the rest (ICS)")
    if any(each.forward for each in found):
        click.echo("- a forward pass, which computes each layer as its sum comes")


def _title(found: Simulated) -> str:
    return f"{found.synchronization}, layer by layer" if found.forward else found.synchronization


def _line(found: Simulated, rank: int) -> tuple[str, str]:
    """What a rank does, and what is exchanged later, in each column."""
    lines = {"computing": [" "] * WIDTH, "later": [" "] * WIDTH}
    for span in found.timeline:
        if span.rank == rank:
            bounds = (span.begin_seconds, span.end_seconds)
            first, end = (round(WIDTH * seconds / found.timeline_seconds) for seconds in bounds)
            line = lines["later" if span.activity == "later" else "computing"]
            line[first:end] = SIGNS[span.activity] * (end - first)
    return "".join(lines["computing"]), "".join(lines["later"])
