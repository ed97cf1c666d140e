"""Communication time of training over a network that loses packets, beside gloo over TCP in the same network.

    python -m benchmarks.train_loss [--quick] [--json]

Needs root, gcc, torch and scikit-learn. Workers in namespaces of their own around one switch
(mltswitch/lab/star.c) train the same model from the same parameters and batches by DistributedDataParallel,
with gloo over TCP, and with the host agent (`mlt`, loss bound p = 10 %, sharded parameter servers); they take
turns of five steps. Communication time: the mean step less the mean step of the same workers that exchange
nothing. `incast`: a port's buffer holds eight packets, and gloo exchanges as parameter servers do, too (every
worker sends to all others at once); `gloo_ring` is gloo's own algorithm through the same ports.

The processors carry all workers and the switch: where cpu_load is near 1, they are the limit, not the link.

    communication_ratio_to_gloo_CASE    gloo's communication time over ours: above 1, ours is faster
    communication_ratio_to_gloo_ring_incast
    final_accuracy_gap                  of gloo over ours, the largest of all cases; negative: ours is better
    fair_share_mbps, tcp_can_carry_mbps of the case loss1pct_rtt2ms: 1.22 · MSS / (RTT · √loss)

and for each case

    rate_mbps_CASE, round_trip_ms_CASE, loss_CASE, loss_bound, workers_CASE, buffer_bytes_CASE
    limit_ms_CASE                       of the link alone, for the gradients' bytes
    compute_ms_CASE, METHOD_communication_ms_CASE, METHOD_step_p99_ms_CASE, METHOD_accuracy_CASE
    METHOD_goodput_mbps_CASE            2 (k - 1) / k of the gradients over the communication time
    METHOD_cpu_load_CASE                busy share of all processors, whoever used them
    METHOD_cpu_ms_CASE, METHOD_switch_ms_CASE    processor time a step, of all workers and of the switch
    missing_share_CLASS_CASE            elements that sums were without
"""

from collections.abc import Iterator, Sequence
from math import ceil
from statistics import fmean
from typing import Final

import click

from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab import running_star
from mltswitch.training.bench import Case, CaseResult, Settings, running_team

LOSS_BOUND: Final = 0.1
SMALL: Final = Settings(workers=4, task="digits", loss_bound=LOSS_BOUND)
LARGE: Final = Settings(workers=2, task="digits-wide", loss_bound=LOSS_BOUND)
STEPS: Final = {SMALL: 100, LARGE: 30}
QUICK_STEPS: Final = {SMALL: 30, LARGE: 10}
SMALL_RATE: Final = 10_000_000
LARGE_RATE: Final = 300_000_000
BUFFER_BYTES: Final = 128_000
SMALL_BUFFER_BYTES: Final = 8 * 1514
LOSSES: Final = {"loss0": 0.0, "loss001pct": 1e-4, "loss01pct": 1e-3, "loss05pct": 5e-3, "loss1pct": 1e-2}
QUICK: Final = ("loss0", "loss1pct", "incast", "loss0_rtt2ms", "loss1pct_rtt2ms")
LARGE_CASE: Final = "loss1pct_rtt2ms"


def cases() -> Iterator[tuple[Settings, Case]]:
    """All cases, those of the same workers together."""
    for suffix, round_trip in {"": 0.2e-3, "_rtt2ms_small": 2e-3}.items():
        for name, loss in LOSSES.items():
            yield SMALL, Case(name + suffix, SMALL_RATE, round_trip, loss, BUFFER_BYTES)
    yield SMALL, Case("incast", SMALL_RATE, 0.2e-3, 0.0, SMALL_BUFFER_BYTES, is_incast=True)
    for name in ("loss0", "loss1pct"):
        yield LARGE, Case(f"{name}_rtt2ms", LARGE_RATE, 2e-3, LOSSES[name], 2 * BUFFER_BYTES)


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
        result.methods["gloo"].final_accuracy - result.methods["mlt"].final_accuracy for result in results
    )
    found["loss_bound"] = LOSS_BOUND
    for result in results:
        found |= _of_case(result)
    return found


def _of_case(result: CaseResult) -> dict[str, float]:
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
    for settings in (SMALL, LARGE):
        chosen = [case for of, case in cases() if of == settings and (not quick or case.name in QUICK)]
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
