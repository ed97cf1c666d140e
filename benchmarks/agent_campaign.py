"""The host agent's transport in virtual time, under every fault that networks, hosts and attackers have.

    python -m benchmarks.agent_campaign [--quick] [--json] [--scenarios N] [--seed S] [--jobs J]
    python -m benchmarks.agent_campaign --fuzz N
    python -m benchmarks.agent_campaign --replay SEED

Each scenario is drawn from its seed: tensors, bounds, deadlines, cancels, links that lose, reorder, double,
corrupt and delay, hosts that freeze or die, control channels that break, forged and replayed datagrams. What
must hold stands in tests/hostagent/virtual/play.py. Every failure is printed with the command that plays it
again.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter
from typing import Final, TypeVar

import click

from tests.hostagent.virtual.campaign import Failure, Tally, play, tally
from tests.hostagent.virtual.fuzz import FuzzTally, fuzz

FULL_SCENARIOS: Final = 100_000
QUICK_SCENARIOS: Final = 2_000
SCENARIOS_AT_ONCE: Final = 250
INPUTS_AT_ONCE: Final = 20_000
SHOWN_FAILURES: Final = 20

Result = TypeVar("Result")


def spread(work: Callable[[range], Result], whole: range, at_once: int, jobs: int) -> Iterator[Result]:
    """Parts of a range, on so many processors."""
    parts = [whole[first : first + at_once] for first in range(0, len(whole), at_once)]
    if jobs == 1:
        yield from map(work, parts)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, parts)


def run_campaign(first_seed: int, scenarios: int, jobs: int) -> Tally:
    """All of them; failures are in the tally."""
    whole = Tally()
    for part in spread(tally, range(first_seed, first_seed + scenarios), SCENARIOS_AT_ONCE, jobs):
        whole.add(part)
    return whole


def run_fuzz(first_seed: int, inputs: int, jobs: int) -> FuzzTally:
    """So many inputs at least; failures are in the tally."""
    whole = FuzzTally()
    parts = range(first_seed, first_seed + -(-inputs // INPUTS_AT_ONCE))
    for part in spread(_fuzz_part, parts, 1, jobs):
        whole.add(part)
    return whole


def _fuzz_part(seeds: range) -> FuzzTally:
    whole = FuzzTally()
    for seed in seeds:
        whole.add(fuzz(seed, INPUTS_AT_ONCE))
    return whole


def figures(found: Tally, seconds: float) -> dict[str, float]:
    """One flat object."""
    return {
        "scenarios": found.scenarios,
        "failures": len(found.failures),
        "scenarios_per_second": found.scenarios / seconds,
        "transfers_complete": found.complete,
        "transfers_complete_with_loss": found.incomplete_within_bound,
        "datagrams": found.datagrams,
        "datagrams_refused": found.refused,
        "connections_lost": found.lost_connections,
        "seconds": seconds,
        **{f"ended_by_{name}": count for name, count in sorted(found.errors.items())},
    }


def report_failures(failures: list[Failure], command: str) -> None:
    """What failed, how often, and how to see it again."""
    kinds = Counter(failure.what.splitlines()[0][:120] for failure in failures)
    for what, count in kinds.most_common():
        click.echo(f"{count} times {what}", err=True)
    for failure in failures[:SHOWN_FAILURES]:
        click.echo(f"python -m benchmarks.agent_campaign {command} {failure.seed}", err=True)


@click.command()
@click.option("--quick", is_flag=True, help=f"{QUICK_SCENARIOS} scenarios.")
@click.option("--json", "as_json", is_flag=True, help="One flat object of figures.")
@click.option("--scenarios", type=click.IntRange(1), help=f"How many; {FULL_SCENARIOS} by default.")
@click.option("--seed", default=0, show_default=True, help="Of the first; the others follow.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count(), help="Processes.")
@click.option(
    "--fuzz", "inputs", type=click.IntRange(1), help="Fuzz codecs and connections with so many inputs."
)
@click.option("--replay", type=int, help="Play the scenario of this seed alone, and fail as it does.")
def main(
    quick: bool,
    as_json: bool,
    scenarios: int | None,
    seed: int,
    jobs: int,
    inputs: int | None,
    replay: int | None,
) -> None:
    """Scenarios in virtual time, or fuzzing."""
    if replay is not None:
        click.echo(f"{play(replay)}")
        return
    started = perf_counter()
    if inputs is not None:
        fuzzed = run_fuzz(seed, inputs, jobs)
        found = fuzzed.figures() | {"seconds": perf_counter() - started}
        failures, command = fuzzed.failures, f"--fuzz {INPUTS_AT_ONCE} --jobs 1 --seed"
    else:
        many = scenarios or (QUICK_SCENARIOS if quick else FULL_SCENARIOS)
        tallied = run_campaign(seed, many, jobs)
        found = figures(tallied, perf_counter() - started)
        failures, command = tallied.failures, "--replay"
    if as_json:
        click.echo(json.dumps(found))
    else:
        for name, figure in found.items():
            click.echo(f"{name}: {figure:,.6g} (measured)")
    report_failures(failures, command)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
