"""What of MLT's section 6.2 (figures 14, 19 and 2) comes out of the packet simulator.

    python -m benchmarks.reproduce_mlt [--quick] [--figure mlt-fig14] [--hosts 36] [--state FOLDER] [--json]

Figures are `fig14_resnet50_tail_vs_dctcp` and so on: MLT's time over another transport's, less 1, in the
first reading and the largest size; others have reading and size behind their name. `fig19_tail_ms_rto25us`
is DCTCP's tail at 1/32 of the gradients, `fig19_mlt_tail_ms` MLT's. `--quick` plays figure 14 alone in its
first reading and its largest size, one push. Without, all readings, sizes and figures are played.
"""

import json
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import click

from mltswitch.app import Computing
from mltswitch.app.reproduced_network import Reproduced, reproduced_network, scenarios_of
from mltswitch.cli.output import progress, progress_bar
from mltswitch.network.reproduction import Reproduction, load_reproduction, reproduction_names

MOST_COMPRESSED: Final = "-x32"
FOR_FIGURE_19: Final = {"tail_ms_dctcp": "fig19_tail_ms_{}", "tail_ms_mlt": "fig19_mlt_tail_ms_{}"}


def named(found: Reproduced, largest: int) -> dict[str, float]:
    """The figures by their names."""
    reproduction = found.reproduction
    first, figure = next(iter(reproduction.readings)), reproduction.name.removeprefix("mlt-")
    figures: dict[str, float] = {}
    for each in found.compared:
        case = each.case
        is_first = (case.reading, case.hosts) == (first, largest)
        behind = "" if is_first else f"_{case.reading}_{case.hosts}"
        name = f"{figure}_{case.point}_{each.figure}"
        if figure == "fig19" and each.figure in FOR_FIGURE_19 and case.point.endswith(MOST_COMPRESSED):
            name = FOR_FIGURE_19[each.figure].format(case.point.removesuffix(MOST_COMPRESSED))
        figures[name + behind] = each.simulated.mean
        if each.simulated.half_width is not None:
            figures[f"{name}_error{behind}"] = each.simulated.half_width
    own = "fig19_mlt_tail_ms_rto25us"
    if own in figures:  # MLT has no RTOmin there
        figures["fig19_mlt_tail_ms"] = figures[own]
    return figures


def with_rounds(reproduction: Reproduction, rounds: int) -> Reproduction:
    """The same with so many rounds of training."""
    workload = reproduction.scenario["workload"] | {"rounds": rounds}
    return reproduction.model_copy(update={"scenario": reproduction.scenario | {"workload": workload}})


def played(
    name: str, choice: dict[str, Any], hosts: tuple[int, ...], rounds: int, processes: int, state: Path | None
) -> Any:
    """One figure of the paper."""
    reproduction = with_rounds(load_reproduction(name), rounds)
    sizes = hosts or reproduction.hosts
    scenarios = scenarios_of(reproduction, points=(), hosts=sizes, seeds=(), **choice)
    computing = Computing(processes, None, restart=False, tell=progress, bar=progress_bar)
    folder = None if state is None else state / name
    return reproduced_network(reproduction, scenarios, computing=computing, state=folder), max(sizes)


@click.command()
@click.option("--quick", is_flag=True, help="Figure 14 in its first reading and largest size.")
@click.option("--figure", "names", multiple=True, type=click.Choice(reproduction_names()))
@click.option("--hosts", multiple=True, type=int, help="Other sizes of the fabric.")
@click.option("--rounds", default=1, show_default=True, help="Rounds of training.")
@click.option("--processes", default=2, show_default=True)
@click.option("--state", type=click.Path(path_type=Path), help="Goes on from here when it was killed.")
@click.option("--json", "as_json", is_flag=True, help="One flat object of figures.")
def main(
    quick: bool,
    names: tuple[str, ...],
    hosts: tuple[int, ...],
    rounds: int,
    processes: int,
    state: Path | None,
    as_json: bool,
) -> None:
    """Play MLT's figures."""
    if state is not None:
        state.mkdir(exist_ok=True)
    begun = perf_counter()
    figures: dict[str, float] = {}
    for name in names or (("mlt-fig14",) if quick else reproduction_names()):
        reproduction = load_reproduction(name)
        readings = () if quick else tuple(reproduction.readings)
        sizes = hosts or (reproduction.hosts[-1:] if quick else ())
        found, largest = played(name, {"readings": readings}, sizes, rounds, processes, state)
        figures |= named(found, largest)
    figures["wall_minutes"] = (perf_counter() - begun) / 60
    if as_json:
        click.echo(json.dumps(figures))
        return
    for name, value in figures.items():
        click.echo(f"{name}: {value:,.4g} ({'measured' if name == 'wall_minutes' else 'simulated'})")


if __name__ == "__main__":
    main()
