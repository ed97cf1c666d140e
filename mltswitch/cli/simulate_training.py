"""`mltswitch train simulate`: how long steps of a model take by each synchronization, in virtual time."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import click
from rich.console import RenderableType

from mltswitch.app.simulated_steps import ALL, Steps, Training, simulated_steps
from mltswitch.cli.command import command, flag, option
from mltswitch.cli.options import PATH, RATE, NumberRange
from mltswitch.cli.output import Answer, progress, progress_bar, table
from mltswitch.training.simulate import STEPS, Simulated
from mltswitch.units import format_bps, format_seconds

WIDTH: Final = 60
"""Width of a timeline in characters."""
SIGNS: Final = {"computing": "=", "waiting": ">", "passing": "-", "later": "."}


TOPOLOGY: Final[Any] = {
    "topology": option("Who adds up; star, or tree with --routes.", metavar="NAME"),
    "topology_texts": option(
        "Of the topology, `in_degree=2` of a tree, say; again for more.",
        None,
        "--topology-setting",
        multiple=True,
        metavar="NAME=VALUE",
    ),
    "routes_file": option("Trees of `topology plan`, for these ranks.", PATH, "--routes"),
}
TRAINING: Final[Any] = {
    "model": option("A profile, or its file; resnet50.", default="resnet50", metavar="NAME"),
    "workers": option("Ranks; 8.", click.IntRange(2, 128), default=8),
    "compute": option("Of a rank for a step [s].", NumberRange(1e-6, 1e5), required=True),
    "spread": option("Ranks take so much less to more; 0.", NumberRange(0, 0.9), default=0.0),
    "slow_texts": option(
        "That rank computes FACTOR times as long.", None, "--slow", multiple=True, metavar="RANK=FACTOR"
    ),
    "batch": option("Samples in a rank's step; 64.", click.IntRange(1, 10**9), default=64),
    "backward_share": option("Of computing; 0.", NumberRange(0, 1), default=0.0),
    "rate_bps": option("Of each link, in each direction; 10Gbps.", RATE, "--rate"),
    "network_text": option(
        "In the place of --rate: see `mltswitch topology --help`.", None, "--network", metavar="NETWORK"
    ),
    "rtt_ms": option("Round trip [ms]; 0.1.", NumberRange(0, 10_000), "--rtt"),
    "names_text": option("Synchronizations; all.", None, "--sync", default=ALL, metavar="NAME[,NAME]"),
    "setting_texts": option(
        "Of one synchronization, or of all: ssp.staleness=1, say; again for more.",
        None,
        "--setting",
        "--sync-setting",
        multiple=True,
        metavar="[SYNC.]NAME=VALUE",
    ),
    "forward": flag("bsp also with forward passes that wait layer by layer."),
    **TOPOLOGY,
    "servers": option("0: ranks serve; 1 where there can be any.", click.IntRange(0, 128)),
    "steps": option(f"That are measured; {STEPS}.", click.IntRange(1, 10_000), default=STEPS),
}


@command(
    "mltswitch train simulate --compute 0.5",
    "mltswitch train simulate --model vgg16 --compute 3.5 --sync bsp,osp --setting osp.slice_bytes=null",
    "mltswitch train simulate --compute 0.2 --slow 0=3 --topology ring --rate 25Gbps --json",
    "mltswitch train simulate --compute 0.15 --backward-share 0.67 --sync bsp --servers 0 --forward",
    name="simulate",
)
def simulate_command(job: Training = TRAINING) -> Answer:
    """Simulate the time of a training step.

    Synchronizations are compared before you train. The code of production exchanges a smaller model with the
    same proportions over links that share max-min fairly in both directions: the network alone limits,
    without losses. Gradients become ready in the last --backward-share of computing, or all at its end. `osp`
    tunes what goes later before times count. Ranks that are all equally fast march in step, and `asp` is then
    no faster than `bsp`: --spread sets them apart. With --forward, `bsp` runs a second time as `MltForward`
    does it, and its gain stands beside the most that a closed form allows.
    """
    found = simulated_steps(job, tell=progress, bar=progress_bar)
    document = found.head | {
        "synchronizations": found.synchronizations,
        "left_out": found.left_out,
        "forward_gain": found.forward_gain,
    }
    return Answer(document, _text(found, job.workers))


def _text(found: Steps, workers: int) -> Iterator[RenderableType]:
    head = found.head
    where = head["network"] or format_bps(found.link_bps)
    rows = [
        (
            _title(each),
            f"{each.step_seconds:.4g}",
            f"{each.synchronization_seconds:.4g}",
            f"{each.samples_per_second:.4g}",
            f"{100 * each.later_share:.1f}" if each.later_share else "-",
        )
        for each in found.synchronizations
    ]
    yield table(
        f"{head['model']}, {workers} workers, {head['topology']}, {where} (simulated)",
        "synchronization | step [s] | of which synchronizing [s] | samples/s # | later [%]",
        rows,
    )
    for each in found.synchronizations:
        yield f"{_title(each)}, one step of {format_seconds(each.timeline_seconds)} (simulated)"
        lines = [_line(each, rank) for rank in range(workers)]
        for (line, later), ranks in groupby(range(workers), key=lines.__getitem__):
            first, *others = ranks
            yield f"{f'ranks {first}-{others[-1]}' if others else f'rank {first}':>14} {line}"
            if later.strip():
                yield f"{'':14} {later}"
    yield "= computing   > waiting for what the next step needs (RS)   . exchanging the rest (ICS)"
    if any(each.forward for each in found.synchronizations):
        yield "- a forward pass, which computes each layer as its sum comes"
    yield from (f"Left out: {reason}" for reason in found.left_out.values())
    if (gain := found.forward_gain) is not None:
        said = f"{gain['simulated']:.2f} times as fast as bsp (simulated)"
        yield f"Forward passes that wait layer by layer: {said}, {gain['at_most']:.2f} at most"


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
