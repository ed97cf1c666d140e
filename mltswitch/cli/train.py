"""`mltswitch train`: training jobs over the host agent; `bench` measures one, `serve` is one's server."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Final

import click
from click.core import ParameterSource
from rich.console import RenderableType

from mltswitch.app.settings import Topology, named_values
from mltswitch.app.simulated_steps import FAPT
from mltswitch.app.training_bench import (
    bench_document,
    case_on_wan,
    cases_of,
    has_ladder,
    network_of,
    running_network,
    settings_on_wan,
)
from mltswitch.cli.advise import BUSY, advise_command
from mltswitch.cli.agent_options import load_settings
from mltswitch.cli.command import command, flag, group, option
from mltswitch.cli.options import PATH, RATE, SEED, SIZE, NumberRange, Parsed, output_file
from mltswitch.cli.output import Answer, figure, progress, progress_bar, table
from mltswitch.cli.simulate_training import TOPOLOGY, simulate_command
from mltswitch.cli.wan import SCALE
from mltswitch.errors import UserInputError
from mltswitch.outputs import check_output, write_outputs
from mltswitch.overlay.wan import Wan, known_wan
from mltswitch.report import Rung, Training, TrainingCase, plotly_script, training_report
from mltswitch.sweep import parse_numbers
from mltswitch.training.agents import serve
from mltswitch.training.bench import GRADIENT_DSCP, TASKS, CaseResult, Settings, running_team
from mltswitch.training.bench.ladder import GLOO, advice, advice_on, ladder_of, rungs, said
from mltswitch.units import format_seconds
from mltswitch.version import __version__

LOSSES: Final = "0,0.0001,0.001,0.005,0.01"
MOST_WORKERS: Final = 16
MOST_HOSTS: Final = 32
MOST_SPINES: Final = 7
OF_ONE_SWITCH: Final = {
    "losses",
    "incast",
    "rtt_ms",
    "rate_bps",
    "buffer_bytes",
    "servers",
    "colocated",
    "spines",
    "background",
    "ladder",
}
"""Options that have no meaning with --wan, whose document describes its links and workers."""
COLUMNS: Final = (
    "step [ms]",
    "communication [ms]",
    "goodput [Mbit/s]",
    "accuracy",
    "time to target [s]",
    *(f"missing in gradient-{number} [%]" for number in range(len(GRADIENT_DSCP))),
    "lost and dropped [%]",
    "processor load [%]",
)


@command(
    "sudo mltswitch train bench",
    "sudo mltswitch train bench --workers 2 --model digits-wide --rate 50Mbps --rtt 2 --loss 0,0.01",
    "sudo mltswitch train bench --topology ring --transport tcp --no-incast -o bench.html --json",
    "sudo mltswitch train bench --ladder --model digits-wide --loss 0,0.01 --rate 50Mbps",
    "sudo mltswitch train bench --ladder --model shape:vgg16/256@0.5 --spines 2 --background 0.3",
    "sudo mltswitch train bench --wan netstorm9 --topology fapt --transport tcp --model shape:alexnet/100",
)
def bench(
    *,
    workers: int | None = option("Namespaces; 4, or the WAN's sites.", click.IntRange(2, MOST_WORKERS)),
    model: str = option(
        f"{', '.join(TASKS)}, shape:PROFILE/DIVISOR@SECONDS, or PACKAGE.MODULE:FACTORY; digits.",
        default="digits",
        metavar="NAME",
    ),
    steps: int = option("Of each method and case; 60.", click.IntRange(5, 100_000), default=60),
    losses: tuple[float, ...] = option(
        f"Of packets, at random; {LOSSES}.",
        Parsed("list", lambda text: parse_numbers(text, 0, 0.5)),
        "--loss",
        default=LOSSES,
    ),
    incast: bool = option(
        "With an eighth of the buffer, all to all; with.", None, "--incast/--no-incast", default=True
    ),
    rtt_ms: float = option("Round trip [ms]; 0.2.", NumberRange(0.1, 10_000), "--rtt", default=0.2),
    rate_bps: int = option("Of each port and worker; 10Mbps.", RATE, "--rate", default="10Mbps"),
    buffer_bytes: int = option("Of each port; 96kB.", SIZE, "--buffer", default="96kB"),
    loss_bound: float = option("Gradients that may miss; 0.1.", NumberRange(0, 0.99), default=0.1),
    synchronization: str = option("Synchronization; bsp.", None, "--sync", default="bsp", metavar="NAME"),
    settings_texts: tuple[str, ...] = option(
        "Of the synchronization, `staleness=3`, say; again for more.",
        None,
        "--sync-setting",
        multiple=True,
        metavar="NAME=VALUE",
    ),
    servers: int = option("More namespaces; 0.", click.IntRange(0, MOST_WORKERS), default=0),
    colocated: int | None = option("Worker that adds up all.", click.IntRange(min=0), metavar="RANK"),
    continues: bool = flag("Go on without a worker that is gone.", "--continue"),
    topology: Topology = TOPOLOGY,
    transport: str = option("How tensors cross; mlt.", default="mlt", metavar="NAME"),
    spines: int = option("Two leaves, 4:1, not one switch; 0.", click.IntRange(0, MOST_SPINES), default=0),
    background: float = option(
        "Of a link: other people's flows between the leaves; 0.", NumberRange(0, 1), default=0.0
    ),
    wan_name: str | None = option(
        "One worker a site: netstorm9, mesh5:7, or a file.", None, "--wan", metavar="WAN"
    ),
    scale: float = option("The WAN is slower by it; 10.", NumberRange(1, 1e6), default=SCALE),
    awareness: bool = option(
        "`fapt` measures links and plans anew; it does.", None, "--awareness/--no-awareness", default=True
    ),
    auxiliary: bool = option(
        "`fapt` passes pieces on where a link is busy; not.",
        None,
        "--auxiliary/--no-auxiliary",
        default=False,
    ),
    ladder: bool = flag("MLT's parts one by one, on top of gloo and tcp."),
    seed: int = option("Of parameters and batches; 0.", SEED, default=0),
    output: Path | None = output_file("HTML page with plots."),
) -> Answer:
    """Train a small model by our agent and by gloo.

    Each worker has its own namespace on this machine. Both take turns in the same network, a switch with the
    given rate, delay and losses. Communication time is the mean step less the mean step that exchanges
    nothing. In the case `incast` gloo exchanges as parameter servers do, and gloo-ring is its own algorithm.
    With --spines there are two leaves with half of the workers and as many other hosts each, whose flows
    have the sizes of a web search's and the load --background. With --ladder the parts of MLT are added one
    by one, `bsp` over `mlt`, and the output says which one pays. With --wan each worker is on a site of a WAN
    (`lab wan`) whose links have rates, delays and losses of their own, and change. Needs root, gcc, torch and
    scikit-learn.
    """
    name, of_topology = topology.chosen()
    wan = None if wan_name is None else known_wan(wan_name).scaled(scale)
    workers = workers or (4 if wan is None else len(wan.nodes))
    if wan is not None:
        _check_wan(wan, workers=workers)
        if name == FAPT:
            of_topology = settings_on_wan(wan, scale, awareness=awareness, auxiliary=auxiliary) | of_topology
    settings = Settings(
        workers=workers,
        task=model,
        seed=seed,
        loss_bound=loss_bound,
        synchronization=synchronization,
        synchronization_settings=tuple(named_values("--sync-setting", settings_texts).items()),
        topology_settings=tuple(of_topology.items()),
        servers=servers,
        colocated=colocated,
        continues=continues,
        topology=name,
        transport=transport,
        rivals=(workers + servers + 1) // 2 * 2 if spines else 0,
    )
    cases = cases_of(losses, rtt_ms / 1e3, rate_bps, buffer_bytes, incast=incast)
    if wan is not None:
        cases = [case_on_wan(wan)]
    if background and not spines:
        raise UserInputError("there is one switch", where="--background", expected="--spines beside it")
    if spines and settings.hosts > MOST_HOSTS:
        problem = f"{workers + servers} workers and servers"
        raise UserInputError(problem, where="--spines", expected=f"at most {MOST_HOSTS // 2}")
    cases = [replace(case, background=background) for case in cases]
    if ladder and (synchronization, transport, servers) != ("bsp", "mlt", 0):
        problem = f"{synchronization} over {transport} with {servers} servers"
        raise UserInputError(problem, where="--ladder", expected="bsp over mlt without servers")
    contenders = rungs(GRADIENT_DSCP, has_paths=spines > 1) if ladder else None
    if output is not None:
        plotly_script()
        check_output(output)
    settings.check()
    progress("starting the workers")
    with running_network(settings, spines, cases[0].rate_bps, wan) as network:
        network.set_rate(cases[0].rate_bps)
        with running_team(network, settings) as team, progress_bar() as advance:
            results = [team.run(case, steps, advance, contenders) for case in cases]
    if output is not None:
        write_outputs([(output, _page(settings, results, is_ladder=ladder))])
    return Answer(bench_document(settings, spines, results), _text(settings, results, output))


@command(
    "mltswitch train serve --world 2 --rendezvous file:///shared/job-7",
    "MASTER_ADDR=host1 MASTER_PORT=29500 mltswitch train serve --world 8 -c agent.yaml --json",
    name="serve",
)
def serve_command(
    server: int = option("Number of this server, from 0; 0.", click.IntRange(min=0), default=0),
    world: int = option("Ranks; WORLD_SIZE.", click.IntRange(min=1), envvar="WORLD_SIZE", required=True),
    servers: int = option("Of the job, as MltState has it; 1.", click.IntRange(min=1), default=1),
    rendezvous: str = option(
        "Where all meet: file:///PATH, or env://, the port after MASTER_PORT at MASTER_ADDR; env://.",
        default="env://",
        metavar="PLACE",
    ),
    config: Path | None = option(
        "This host's agent; by default loopback.",
        PATH,
        "-c",
        "--config",
        variable="AGENT_CONFIG",
        metavar="FILE",
    ),
    timeout: float = option("Until all have come [s]; 60.", NumberRange(0.001, 1e6), default=60.0),
) -> Answer:
    """Be a parameter server of a training job.

    It is no rank, and adds up gradients until the ranks say goodbye.

    The ranks have `MltState(model, servers=…, rendezvous=…)` with the same values. Needs no torch.
    """
    if server >= servers:
        raise UserInputError(f"is {server} of {servers}", where="--server", expected="0 to --servers - 1")
    settings = None if config is None else load_settings(config, {})
    progress(f"server {server} waits for the ranks ({world}) at {rendezvous}")
    began = time.monotonic()
    job = serve(server, world, servers, rendezvous, config=settings, timeout_seconds=timeout)
    fields = ("world", "servers", "element_type", "loss_bound", "topology", "synchronization", "transport")
    found = {"server": server, **{name: getattr(job, name) for name in fields}, "elements": job.elements}
    found |= {"layers": len(job.layers), "pieces": len(job.pieces), "seconds": time.monotonic() - began}
    line = (
        f"The ranks ({world}) have said goodbye after {format_seconds(found['seconds'])}; "
        f"the model has {len(job.layers)} layers, {job.elements:,} elements"
    )
    return Answer(found, (line,))


def _check_wan(wan: Wan, *, workers: int) -> None:
    if workers != len(wan.nodes):
        raise UserInputError(f"{workers}", where="--workers", expected=f"{len(wan.nodes)}, one a site")
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in OF_ONE_SWITCH and source is ParameterSource.COMMANDLINE:
            problem = "the WAN says what its links are, and there are workers on sites alone"
            raise UserInputError(problem, where=parameter.opts[0], expected="no --wan")


def _row(result: CaseResult, name: str) -> tuple[str, ...]:
    method = result.methods[name]
    seconds = method.seconds_to(result.target)
    missing = [f"{100 * share:.2f}" for share in method.missing_share] or ["-"] * len(GRADIENT_DSCP)
    return (
        f"{1e3 * fmean(method.step_seconds):.1f}",
        f"{1e3 * result.communication_seconds(name):.1f}",
        f"{result.goodput_bps(name) / 1e6:.1f}",
        f"{method.final_accuracy:.3f}",
        "-" if seconds is None else f"{seconds:.1f}",
        *missing,
        f"{100 * (method.lost_at_random + method.dropped) / max(method.packets, 1):.2f}",
        f"{100 * fmean(method.cpu_load):.0f}",
    )


def _exchanging(result: CaseResult) -> list[str]:
    return [name for name in result.methods if name != "compute"]


def _rungs(result: CaseResult) -> tuple[Rung, ...]:
    ladder = ladder_of(result)
    return tuple(
        Rung(rung.name, rung.step_seconds, "gloo" if rung.name in GLOO else rung.verdict) for rung in ladder
    )


def _page(settings: Settings, results: Sequence[CaseResult], *, is_ladder: bool) -> str:
    head = {"Model": settings.task, "Workers": str(settings.workers)}
    head |= {
        name.replace("_", " "): str(value)
        for name, value in settings.options.items()
        if value is not None and value != {}
    }
    cases = [
        TrainingCase(
            result.case.name,
            network_of(result),
            tuple(
                Training(name, method.step_seconds, method.accuracies, _row(result, name))
                for name, method in result.methods.items()
                if name != "compute"
            ),
            _rungs(result) if is_ladder else (),
        )
        for result in results
    ]
    head["Tool"] = f"mltswitch {__version__}"
    return training_report(f"{settings.task}: training beside gloo", head.items(), COLUMNS, cases)


def _ladder_text(result: CaseResult) -> Iterator[RenderableType]:
    ladder = ladder_of(result)
    rows = [
        (
            rung.name,
            f"{1e3 * rung.step_seconds:.1f}",
            f"{rung.over_gloo:.2f}",
            figure(rung.gain, "+.1f", 100),
            rung.verdict or "-",
        )
        for rung in ladder
    ]
    columns = "rung | step [ms] # | times gloo's better # | over the rung before [%] # | "
    yield table(f"The ladder, {result.case.name} (measured)", columns, rows)
    yield said(ladder)
    yield advice(ladder)


def _text(settings: Settings, results: Sequence[CaseResult], output: Path | None) -> Iterator[RenderableType]:
    for result in results:
        rows = [(name, *_row(result, name)) for name in _exchanging(result)]
        job = f"{settings.task}, {settings.workers} workers, {result.case.name}"
        title = f"{job} (measured): {network_of(result)}"
        yield table(title, " | ".join(("method", *COLUMNS)), rows)
        if has_ladder(result):
            yield from _ladder_text(result)
        else:
            ours, theirs = settings.transport, "gloo"
            ratio = result.communication_seconds(theirs) / result.communication_seconds(ours)
            yield f"Communication time of gloo over ours: {ratio:.2f}"
            steps = {name: fmean(method.step_seconds) for name, method in result.methods.items()}
            best = min(each for name, each in steps.items() if name.startswith(theirs))
            yield advice_on(ours, best / steps[ours])
        if max(fmean(result.methods[name].cpu_load) for name in _exchanging(result)) > BUSY:
            yield "The processors were the limit, and not the link: lower --rate, or take fewer workers"
        apart = [name for name in _exchanging(result) if not result.methods[name].ranks_agree]
        if apart:
            yield f"The workers' parameters differ after training: {', '.join(apart)}"
    if output is not None:
        yield f"Written: {output}"


train = group(
    "train",
    "Train models over the host agent.",
    *(simulate_command, advise_command, bench, serve_command),
    examples=("mltswitch train simulate --compute 0.5",),
)
