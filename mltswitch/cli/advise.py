"""`mltswitch train advise`: whether a job gains by MLT on the user's own hosts, and by which of its parts."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from mltswitch.cli.agent_options import load_settings
from mltswitch.cli.command import command, flag, option
from mltswitch.cli.options import PATH, NumberRange
from mltswitch.cli.output import Answer, progress_bar
from mltswitch.profile import import_torch, resolve_profile
from mltswitch.training.bench.ladder import GLOO, advice, said
from mltswitch.units import format_bps, format_ratio, format_seconds

if TYPE_CHECKING:
    from mltswitch.training.bench.advise import Advice

BUSY: Final = 0.9
"""Share of the processors' time above which processors are the limit, not the network."""
SHORT: Final = 10.0
"""The shortest measurement in seconds that tells more than noise does."""


@command(
    "torchrun --nnodes 4 --nproc-per-node 1 --rdzv-endpoint host1:29400 --no-python \\\n"
    "    mltswitch train advise --model resnet50 --step 0.25 -c agent.yaml",
    "MASTER_ADDR=host1 MASTER_PORT=29500 RANK=0 WORLD_SIZE=2 \\\n"
    "    mltswitch train advise --model my-model.yaml --step 0.4 --plaintext --json",
    name="advise",
)
def advise_command(
    model: str = option("Profile: a bundled one, or your model's.", required=True, metavar="NAME|FILE"),
    compute_seconds: float = option(
        "Computing of one step, without exchange.",
        NumberRange(0, 1e4),
        "--step",
        required=True,
        metavar="SECONDS",
    ),
    config: Path | None = option(
        "This host's agent; by default its address towards the first rank.",
        PATH,
        "-c",
        "--config",
        variable="AGENT_CONFIG",
        metavar="FILE",
    ),
    plaintext: bool = flag("Without a file: no keys, on a network that is yours alone."),
    loss_bound: float = option("Gradients that may miss; 0.1.", NumberRange(0, 0.99), default=0.1),
    seconds: float = option("In all, about; 60.", NumberRange(SHORT, 3600), default=60.0, metavar="SECONDS"),
) -> Answer | None:
    """Say whether a job gains by MLT on these hosts.

    Start it on every host as you start the job, one rank a host: by torchrun, or with MASTER_ADDR,
    MASTER_PORT, RANK and WORLD_SIZE. It measures the network by TCP, and then a model of yours' shape by gloo
    and by the parts of MLT, one added to the other; the first rank says in five lines what it found. Needs
    torch, and between the hosts MASTER_PORT, UDP, and TCP at 20811 to 20820 and at ports that the system and
    gloo choose.
    """
    settings = None if config is None else load_settings(config, {})
    import_torch()
    from mltswitch.training.bench.advise import advise

    with progress_bar() as advance:
        found = advise(
            model,
            compute_seconds,
            config=settings,
            plaintext=plaintext,
            loss_bound=loss_bound,
            seconds=seconds,
            advance=advance,
        )
    return None if found is None else advice_answer(model, found)


def advice_answer(model: str, found: "Advice") -> Answer:
    """The answer that the first rank prints."""
    figures = found.result.document() | {
        "links": found.links,
        "divisor": found.divisor,
        "ladder": found.ladder,
        "advice": advice(found.ladder),
    }
    return Answer({"kind": "measured", "model": model, **figures}, advice_lines(model, found))


def _about(value: float) -> float:
    """With as many digits as a measurement has."""
    return float(f"{value:.3g}")


def advice_lines(model: str, found: "Advice") -> Iterator[str]:
    """Lines on the measured network, the model and each rung of the ladder; what pays; and what to do."""
    links, ladder, divisor, profile = found.links, found.ladder, found.divisor, resolve_profile(model)
    parts = [f"{links.hosts} hosts: a flow alone has {format_bps(_about(links.alone_bps))}"]
    if links.line_bps is not None:
        parts[0] += f" of a line of {format_bps(_about(links.line_bps))}"
    parts += [
        f"{format_bps(_about(links.ring_bps))} where each host sends to the next",
        f"{format_bps(_about(links.incast_bps))} come where all send to one",
        f"a tenth of the time {format_ratio(links.steadiness)} of its rate",
        f"round trip {format_seconds(links.round_trip_seconds)}",
        f"{format_ratio(links.loss_share)} lost",
    ]
    yield ", ".join(parts)
    parts = [f"{profile.name}: {_about(profile.total_bytes / 1e6):g} MB of gradients"]
    if divisor > 1:
        parts.append(f"measured {divisor} times smaller")
    parts += [
        f"computing {format_seconds(found.result.compute_seconds * divisor)} a step",
        f"the link alone {format_seconds(found.result.limit_seconds * divisor)}",
    ]
    yield ", ".join(parts)
    steps = {rung.name: rung.step_seconds * divisor for rung in ladder}
    best = min(GLOO, key=steps.__getitem__)
    ours = ", ".join(f"{rung.name} {rung.over_gloo:.2f}" for rung in ladder if rung.name not in GLOO)
    yield f"{best} takes {format_seconds(steps[best])} a step; times as fast: {ours}"
    yield said(ladder)
    busiest = max(fmean(found.result.methods[rung.name].cpu_load) for rung in ladder)
    limit = f" (the first host's processors were busy to {format_ratio(busiest)})" if busiest > BUSY else ""
    yield advice(ladder) + limit
