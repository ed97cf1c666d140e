"""Communication time of training over a network that loses packets, beside gloo over TCP in the same network.

    python -m benchmarks.train_loss [--quick] [--json]

Needs root, gcc, torch and scikit-learn. Workers in namespaces of their own around one switch
(mltswitch/lab/star.c) train the same model from the same parameters and batches by DistributedDataParallel,
with gloo over TCP, and with the host agent (`mlt`, loss bound p = 10 %, sharded parameter servers); they take
turns of five steps. Communication time: the mean step less the mean step of the same workers that exchange
nothing. Groups of cases:

    lossN            two workers, a perceptron of 564,000 parameters at 50 Mbit/s, random loss N % either way
    incast           four workers at 20 Mbit/s, ports with a buffer of 16 packets; gloo exchanges as parameter
                     servers do, too (every worker sends to all others at once); `gloo_ring` is its own way
    loss1pct_rtt2ms  two workers at 200 Mbit/s, more than one TCP connection carries at this loss
    digitsN          two workers, the small perceptron, until it has learned: accuracy

The processors carry all workers and the switch: where cpu_load is near 1, they are the limit, not the link.

    communication_ratio_to_gloo_CASE    gloo's communication time over ours: above 1, ours is faster
    communication_ratio_to_gloo_ring_incast
    final_accuracy_gap                  of gloo over ours, the larger one of the cases digitsN; negative: ours
                                        is better
    fair_share_mbps, tcp_can_carry_mbps of the case loss1pct_rtt2ms: 1.22 · MSS / (RTT · √loss)

and for each case

    rate_mbps_CASE, round_trip_ms_CASE, loss_CASE, workers_CASE, buffer_bytes_CASE; loss_bound: p
    limit_ms_CASE                       of the link alone, for the gradients' bytes
    compute_ms_CASE, METHOD_communication_ms_CASE, METHOD_step_p99_ms_CASE, METHOD_accuracy_CASE
    METHOD_goodput_mbps_CASE            2 (k - 1) / k of the gradients over the communication time
    METHOD_seconds_to_accuracy_CASE     of training, to the task's target; missing where it was not reached
    METHOD_cpu_load_CASE                busy share of all processors, whoever used them
    METHOD_cpu_ms_CASE, METHOD_switch_ms_CASE    processor time a step, of all workers and of the switch
    METHOD_ranks_agree_CASE             1: all workers had the same parameters in the end, bit by bit
    missing_share_gradient_N_CASE       elements of the class that sums were without
"""

from collections.abc import Sequence
from math import ceil
from statistics import fmean
from typing import Final

import click

from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab import running_star
from mltswitch.training.bench import Case, CaseResult, Settings, running_team

LOSS_BOUND: Final = 0.1
WIDE: Final = Settings(workers=2, task="digits-wide", loss_bound=LOSS_BOUND)
FOUR: Final = Settings(workers=4, task="digits-wide", loss_bound=LOSS_BOUND)
SMALL: Final = Settings(workers=2, task="digits", loss_bound=LOSS_BOUND)
STEPS: Final = {WIDE: 30, FOUR: 10, SMALL: 250}
QUICK_STEPS: Final = {WIDE: 10, FOUR: 5, SMALL: 100}
RATE: Final = 50_000_000
INCAST_RATE: Final = 20_000_000
LARGE_RATE: Final = 200_000_000
BUFFER_BYTES: Final = 128_000
INCAST_BUFFER_BYTES: Final = 16 * 1514
LARGE_BUFFER_BYTES: Final = 256_000
ACCURACY: Final = ("loss0", "loss1pct")
SHORT, LONG = 0.2e-3, 2e-3
"""Round trips."""
LOSSES: Final = {"loss0": 0.0, "loss001pct": 1e-4, "loss01pct": 1e-3, "loss05pct": 5e-3, "loss1pct": 1e-2}
LARGE_CASE: Final = "loss1pct_rtt2ms"
QUICK: Final = ("loss0", "loss1pct", LARGE_CASE, "incast", "digits_loss1pct")
"""Cases of the main keys."""


def cases() -> dict[Settings, list[Case]]:
    """By what they train."""
    found = [Case(name, RATE, SHORT, loss, BUFFER_BYTES) for name, loss in LOSSES.items()]
    found += [Case(f"{name}_rtt2ms_50mbps", RATE, LONG, loss, BUFFER_BYTES) for name, loss in LOSSES.items()]
    found.append(Case(LARGE_CASE, LARGE_RATE, LONG, LOSSES["loss1pct"], LARGE_BUFFER_BYTES))
    digits = [
        Case(f"digits_{name}", RATE, SHORT, LOSSES[name], BUFFER_BYTES) for name in ("loss0", "loss1pct")
    ]
    incast = Case("incast", INCAST_RATE, SHORT, 0.0, INCAST_BUFFER_BYTES, is_incast=True)
    return {WIDE: found, FOUR: [incast], SMALL: digits}


def figures(results: Sequence[CaseResult]) -> dict[str, float]:
    """Ratios and absolute figures of all cases."""
    found: dict[str, float] = {}
    for result in results:
        name, ours = f"communication_ratio_to_gloo_{result.case.name}", result.communication_seconds("mlt")
        found[name] = result.communication_seconds("gloo") / ours
        if result.case.is_incast:
            found["communication_ratio_to_gloo_ring_incast"] = (
                result.communication_seconds("gloo-ring") / ours
            )
    found["final_accuracy_gap"] = max(
        result.methods["gloo"].final_accuracy - result.methods["mlt"].final_accuracy
        for result in results
        if result.case.name.startswith("digits")
    )
    found["loss_bound"] = LOSS_BOUND
    for result in results:
        found |= case_figures(result)
    return found


def case_figures(result: CaseResult) -> dict[str, float]:
    """What the module's text says of each case."""
    case = result.case
    found = {
        "rate_mbps": case.rate_bps / 1e6,
        "round_trip_ms": case.round_trip_seconds * 1e3,
        "loss": case.loss,
        "workers": float(result.workers),
        "buffer_bytes": float(case.buffer_bytes),
        "limit_ms": result.limit_seconds * 1e3,
        "compute_ms": fmean(result.methods["compute"].step_seconds) * 1e3,
    }
    for name, method in result.methods.items():
        if name == "compute":
            continue
        steps, key = sorted(method.step_seconds), name.replace("-", "_")
        found |= {
            f"{key}_communication_ms": result.communication_seconds(name) * 1e3,
            f"{key}_step_p99_ms": steps[ceil(0.99 * len(steps)) - 1] * 1e3,
            f"{key}_goodput_mbps": result.goodput_bps(name) / 1e6,
            f"{key}_accuracy": method.final_accuracy,
            f"{key}_cpu_load": fmean(method.cpu_load),
            f"{key}_cpu_ms": method.cpu_seconds / len(steps) * 1e3,
            f"{key}_switch_ms": method.switch_cpu_seconds / len(steps) * 1e3,
            f"{key}_ranks_agree": float(method.ranks_agree),
        }
        if (seconds := method.seconds_to(result.target)) is not None:
            found[f"{key}_seconds_to_accuracy"] = seconds
    if "mlt" in result.methods:
        for number, share in enumerate(result.methods["mlt"].missing_share):
            found[f"missing_share_gradient_{number}"] = share
    figures_of_case = {f"{key}_{case.name}": value for key, value in found.items()}
    if case.name == LARGE_CASE and result.tcp_limit_bps is not None:
        figures_of_case["fair_share_mbps"] = case.rate_bps / (result.workers - 1) / 1e6
        figures_of_case["tcp_can_carry_mbps"] = result.tcp_limit_bps / 1e6
    return figures_of_case


def measure(*, quick: bool) -> dict[str, float]:
    """All cases, or those behind the main keys; raises MltswitchError."""
    results = []
    for settings, all_cases in cases().items():
        chosen = [case for case in all_cases if not quick or case.name in QUICK]
        steps = (QUICK_STEPS if quick else STEPS)[settings]
        with running_star(settings.workers) as star:
            star.set_rate(chosen[0].rate_bps)
            with running_team(star, settings) as team:
                for case in chosen:
                    results.append(team.run(case, steps, lambda _what, _done, _all: None))
                    click.echo(_line(results[-1]), err=True)
    return figures(results)


def _line(result: CaseResult) -> str:
    times = ", ".join(
        f"{name} {result.communication_seconds(name) * 1e3:.1f} ms at load {fmean(method.cpu_load):.2f}"
        for name, method in result.methods.items()
        if name != "compute"
    )
    return f"{result.case.name}: {times}; the link alone {result.limit_seconds * 1e3:.1f} ms"


@click.command()
@click.option("--quick", is_flag=True, help="The cases of the main keys, fewer steps.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Communication time of training where packets are lost, beside gloo."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
