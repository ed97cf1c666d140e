"""`mltswitch train`: training jobs over the host agent; `bench` measures one, `serve` is one's server."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from mltswitch import __version__
from mltswitch.cli.advise import advise_command
from mltswitch.cli.agent_options import load_settings
from mltswitch.cli.bars import progress_bar
from mltswitch.cli.numbers import NumberRange, parsed
from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.cli.settings import FAPT, chosen_topology, named_values, topology_options
from mltswitch.cli.simulate_training import simulate_command
from mltswitch.cli.wan import SCALE
from mltswitch.errors import UserInputError
from mltswitch.lab import Star, running_leaf_spine, running_star
from mltswitch.lab.wan import running_wan
from mltswitch.outputs import check_output, write_outputs
from mltswitch.overlay.wan import LEAST_QUEUE_BYTES, Wan, known_wan
from mltswitch.report import Rung, Training, TrainingCase, plotly_script, training_report
from mltswitch.sweep import parse_numbers
from mltswitch.training.agents import serve
from mltswitch.training.bench import GRADIENT_DSCP, TASKS, Case, CaseResult, Settings, running_team
from mltswitch.training.bench.ladder import GLOO, advice, advice_on, ladder_of, rungs, said
from mltswitch.training.changes import UpdateSettings
from mltswitch.units import format_bps, format_bytes, format_ratio, format_seconds, parse_bps, parse_bytes

LOSSES: Final = "0,0.0001,0.001,0.005,0.01"
INCAST_SHARE: Final = 1 / 8
"""Of the buffer, in the case `incast`."""
MOST_WORKERS: Final = 16
MOST_HOSTS: Final = 32
MOST_SPINES: Final = 7
WAN_CASE: Final = "wan"
OF_ONE_SWITCH: Final = {
    "losses",
    "incast",
    "rtt_ms",
    "rate",
    "buffer_size",
    "servers",
    "colocated",
    "spines",
    "background",
    "ladder",
}
"""Options of the other networks."""
BUSY: Final = 0.9
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
Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(epilog="\b\nExample:\n  mltswitch train simulate --compute 0.5")
def train() -> None:
    """Train models over the host agent."""


train.add_command(simulate_command)
train.add_command(advise_command)


@train.command(
    epilog="\b\nExamples:\n"
    "  sudo mltswitch train bench\n"
    "  sudo mltswitch train bench --workers 2 --model digits-wide --rate 50Mbps --rtt 2 --loss 0,0.01\n"
    "  sudo mltswitch train bench --topology ring --transport tcp --no-incast -o bench.html --json\n"
    "  sudo mltswitch train bench --ladder --model digits-wide --loss 0,0.01 --rate 50Mbps\n"
    "  sudo mltswitch train bench --ladder --model shape:vgg16/256@0.5 --spines 2 --background 0.3\n"
    "  sudo mltswitch train bench --wan netstorm9 --topology fapt --transport tcp --model shape:alexnet/100"
)
@click.option("--workers", type=click.IntRange(2, MOST_WORKERS), help="Namespaces; 4, or the WAN's sites.")
@click.option(
    "--model",
    default="digits",
    metavar="NAME",
    help=f"{', '.join(TASKS)}, shape:PROFILE/DIVISOR@SECONDS, or PACKAGE.MODULE:FACTORY; digits.",
)
@click.option("--steps", type=click.IntRange(5, 100_000), default=60, help="Of each method and case; 60.")
@click.option("--loss", "losses", default=LOSSES, metavar="LIST", help=f"Of packets, at random; {LOSSES}.")
@click.option("--incast/--no-incast", default=True, help="With an eighth of the buffer, all to all; with.")
@click.option("--rtt", "rtt_ms", type=NumberRange(0.1, 10_000), default=0.2, help="Round trip [ms]; 0.2.")
@click.option("--rate", default="10Mbps", metavar="RATE", help="Of each port and worker; 10Mbps.")
@click.option("--buffer", "buffer_size", default="96kB", metavar="SIZE", help="Of each port; 96kB.")
@click.option("--loss-bound", type=NumberRange(0, 0.99), default=0.1, help="Gradients that may miss; 0.1.")
@click.option("--sync", "synchronization", default="bsp", metavar="NAME", help="Synchronization; bsp.")
@click.option(
    "--sync-setting",
    "settings_texts",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of the synchronization, `staleness=3`, say; again for more.",
)
@click.option("--servers", type=click.IntRange(0, MOST_WORKERS), default=0, help="More namespaces; 0.")
@click.option("--colocated", type=click.IntRange(min=0), metavar="RANK", help="Worker that adds up all.")
@click.option("--continue", "continues", is_flag=True, help="Go on without a worker that is gone.")
@topology_options
@click.option("--transport", default="mlt", metavar="NAME", help="How tensors cross; mlt.")
@click.option(
    "--spines", type=click.IntRange(0, MOST_SPINES), default=0, help="Two leaves, 4:1, not one switch; 0."
)
@click.option(
    "--background",
    type=NumberRange(0, 1),
    default=0.0,
    help="Of a link: other people's flows between the leaves; 0.",
)
@click.option("--wan", "wan_name", metavar="WAN", help="One worker a site: netstorm9, mesh5:7, or a file.")
@click.option("--scale", type=NumberRange(1, 1e6), default=SCALE, help="The WAN is slower by it; 10.")
@click.option(
    "--awareness/--no-awareness", default=True, help="`fapt` measures links and plans anew; it does."
)
@click.option(
    "--auxiliary/--no-auxiliary", default=False, help="`fapt` passes pieces on where a link is busy; not."
)
@click.option("--ladder", is_flag=True, help="MLT's parts one by one, on top of gloo and tcp.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="Of parameters and batches; 0.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="HTML page with plots.")
@json_option
def bench(
    workers: int | None,
    model: str,
    steps: int,
    losses: str,
    incast: bool,
    rtt_ms: float,
    rate: str,
    buffer_size: str,
    loss_bound: float,
    synchronization: str,
    settings_texts: Sequence[str],
    servers: int,
    colocated: int | None,
    continues: bool,
    topology: str | None,
    topology_texts: Sequence[str],
    routes_file: Path | None,
    transport: str,
    spines: int,
    background: float,
    wan_name: str | None,
    scale: float,
    awareness: bool,
    auxiliary: bool,
    ladder: bool,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
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
    name, of_topology = chosen_topology(topology, topology_texts, routes_file)
    wan = None if wan_name is None else known_wan(wan_name).scaled(scale)
    workers = workers or (4 if wan is None else len(wan.nodes))
    if wan is not None:
        _check_wan(wan, workers=workers)
        if name == FAPT:
            of_topology = _of_wan(wan, scale, awareness=awareness, auxiliary=auxiliary) | of_topology
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
    cases = _cases(losses, incast, rtt_ms / 1e3, rate, buffer_size)
    if wan is not None:
        cases = [Case(WAN_CASE, wan.most_bps(), 0.0, 0.0, LEAST_QUEUE_BYTES)]
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
    with _running_network(settings, spines, cases[0].rate_bps, wan) as network:
        network.set_rate(cases[0].rate_bps)
        with running_team(network, settings) as team, progress_bar() as advance:
            results = [team.run(case, steps, advance, contenders) for case in cases]
    if output is not None:
        write_outputs([(output, _page(settings, results, is_ladder=ladder))])
    if as_json:
        print_json(_document(settings, spines, results))
    else:
        _print(settings, results, output)


@train.command(
    "serve",
    epilog="\b\nExamples:\n"
    "  mltswitch train serve --world 2 --rendezvous file:///shared/job-7\n"
    "  MASTER_ADDR=host1 MASTER_PORT=29500 mltswitch train serve --world 8 -c agent.yaml --json",
)
@click.option("--server", type=click.IntRange(min=0), default=0, help="Number of this server, from 0; 0.")
@click.option(
    "--world", type=click.IntRange(min=1), envvar="WORLD_SIZE", required=True, help="Ranks; WORLD_SIZE."
)
@click.option("--servers", type=click.IntRange(min=1), default=1, help="Of the job, as MltState has it; 1.")
@click.option(
    "--rendezvous",
    default="env://",
    metavar="PLACE",
    help="Where all meet: file:///PATH, or env://, the port after MASTER_PORT at MASTER_ADDR; env://.",
)
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    envvar="MLTSWITCH_AGENT_CONFIG",
    metavar="FILE",
    help="This host's agent; MLTSWITCH_AGENT_CONFIG, or loopback.",
)
@click.option("--timeout", type=NumberRange(0.001, 1e6), default=60.0, help="Until all have come [s]; 60.")
@json_option
def serve_command(
    server: int, world: int, servers: int, rendezvous: str, config: Path | None, timeout: float, as_json: bool
) -> None:
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
    if as_json:
        print_json(found)
    else:
        click.echo(
            f"The ranks ({world}) have said goodbye after {format_seconds(found['seconds'])}; "
            f"the model has {len(job.layers)} layers, {job.elements:,} elements"
        )


def _check_wan(wan: Wan, *, workers: int) -> None:
    if workers != len(wan.nodes):
        raise UserInputError(f"{workers}", where="--workers", expected=f"{len(wan.nodes)}, one a site")
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in OF_ONE_SWITCH and source is ParameterSource.COMMANDLINE:
            problem = "the WAN says what its links are, and there are workers on sites alone"
            raise UserInputError(problem, where=parameter.opts[0], expected="no --wan")


def _of_wan(wan: Wan, scale: float, *, awareness: bool, auxiliary: bool) -> dict[str, Any]:
    """Settings of the topology `fapt`."""
    probe_bytes = UpdateSettings.model_fields["probe_bytes"].default / scale**2
    return {
        "overlay": wan.overlay().model_dump(mode="json", by_alias=True),
        **({"probe_bytes": max(1, round(probe_bytes))} if awareness else {"update_seconds": 0}),
        **({"auxiliary": "sooner"} if auxiliary else {}),
    }


def _running_network(
    settings: Settings, spines: int, rate_bps: int, wan: Wan | None
) -> AbstractContextManager[Star]:
    if wan is not None:
        return running_wan(wan, is_changing=True)
    if not spines:
        return running_star(settings.hosts)
    return running_leaf_spine(settings.hosts, spines, rate_bps, in_turn=settings.rivals // 2)


def _cases(losses: str, incast: bool, round_trip: float, rate: str, buffer_size: str) -> list[Case]:
    rate_bps = parsed("--rate", parse_bps, rate)
    buffer_bytes = parsed("--buffer", parse_bytes, buffer_size)
    shares = parsed("--loss", lambda text: parse_numbers(text, 0, 0.5), losses)
    if not 1_000_000 <= rate_bps <= 10_000_000_000:
        raise UserInputError(format_bps(rate_bps), where="--rate", expected="1Mbps to 10Gbps")
    if not 16_000 <= buffer_bytes <= 1 << 30:
        raise UserInputError(format_bytes(buffer_bytes), where="--buffer", expected="16kB to 1GB")
    found = [
        Case(f"loss {format_ratio(share)}", rate_bps, round_trip, share, buffer_bytes) for share in shares
    ]
    if incast:
        found.append(Case("incast", rate_bps, round_trip, 0.0, int(buffer_bytes * INCAST_SHARE), True))
    return found


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


def _text(result: CaseResult) -> str:
    """The network of a case, and what bounds the communication time in it."""
    case, carried = result.case, result.tcp_limit_bps
    if case.name == WAN_CASE:
        return f"links of at most {format_bps(case.rate_bps)}, which change"
    tcp = f"; one TCP connection carries {format_bps(carried)} at this loss (Mathis)" if carried else ""
    return (
        f"{format_bps(case.rate_bps)}, round trip {format_seconds(case.round_trip_seconds)}, "
        f"loss {format_ratio(case.loss)}, buffer {format_bytes(case.buffer_bytes)}; the link alone takes "
        f"{format_seconds(result.limit_seconds)} a step{tcp}"
    )


def _print_ladder(result: CaseResult) -> None:
    ladder = ladder_of(result)
    rows = [
        (
            rung.name,
            f"{1e3 * rung.step_seconds:.1f}",
            f"{rung.over_gloo:.2f}",
            "-" if rung.gain is None else f"{100 * rung.gain:+.1f}",
            rung.verdict or "-",
        )
        for rung in ladder
    ]
    columns = ("rung", "step [ms] #", "times gloo's better #", "over the rung before [%] #", "")
    console().print(table(f"The ladder, {result.case.name} (measured)", columns, rows))
    click.echo(said(ladder))
    click.echo(advice(ladder))


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
            _text(result),
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


def _document(settings: Settings, spines: int, results: Sequence[CaseResult]) -> dict[str, Any]:
    return {
        "kind": "measured",
        "model": settings.task,
        "workers": settings.workers,
        "seed": settings.seed,
        "servers": settings.servers,
        "spines": spines,
        **settings.options,
        "target": results[0].target,
        "elements": results[0].elements,
        "cases": [_case_document(result) for result in results],
    }


def _case_document(result: CaseResult) -> dict[str, Any]:
    found = result.document() | ({"ladder": ladder_of(result)} if _is_ladder(result) else {})
    if result.case.name == WAN_CASE:  # which has no one of these
        names = ("round_trip_seconds", "loss", "buffer_bytes", "limit_seconds", "tcp_limit_bps")
        found |= {name: None for name in names if name in found}
    return found


def _is_ladder(result: CaseResult) -> bool:
    return {*GLOO} <= result.methods.keys()


def _print(settings: Settings, results: Sequence[CaseResult], output: Path | None) -> None:
    for result in results:
        rows = [(name, *_row(result, name)) for name in _exchanging(result)]
        title = f"{settings.task}, {settings.workers} workers, {result.case.name} (measured): {_text(result)}"
        console().print(table(title, ("method", *COLUMNS), rows))
        if _is_ladder(result):
            _print_ladder(result)
        else:
            ours, theirs = settings.transport, "gloo"
            ratio = result.communication_seconds(theirs) / result.communication_seconds(ours)
            click.echo(f"Communication time of gloo over ours: {ratio:.2f}")
            steps = {name: fmean(method.step_seconds) for name, method in result.methods.items()}
            best = min(each for name, each in steps.items() if name.startswith(theirs))
            click.echo(advice_on(ours, best / steps[ours]))
        if max(fmean(result.methods[name].cpu_load) for name in _exchanging(result)) > BUSY:
            click.echo("The processors were the limit, and not the link: lower --rate, or take fewer workers")
        apart = [name for name in _exchanging(result) if not result.methods[name].ranks_agree]
        if apart:
            click.echo(f"The workers' parameters differ after training: {', '.join(apart)}")
    if output is not None:
        click.echo(f"Written: {output}")
