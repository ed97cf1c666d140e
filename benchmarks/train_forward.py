"""Steps whose forward pass waits layer by layer, beside DistributedDataParallel over gloo in one network.

    python -m benchmarks.train_forward [--quick] [--json]

Needs root, gcc, torch and scikit-learn. Four workers in namespaces of their own around one switch
(mltswitch/lab/star.c) train the same residual perceptron of 16 equal blocks from the same parameters and
batches, without a loss bound. Each block pauses in its forward and, twice as long, in its backward pass, so
that two processors do not decide; gloo's buckets are an eighth of the model, as DDP's are of one of 200 MB.
Cases are named by RHO, the link's time for the gradients over that of computing: 05, 1, 2.

    step_ratio_to_ddp_gloo_at_RHO       gloo's step over that of `MltForward`: above 1, ours is faster
    step_ratio_to_hook_at_RHO           of `mlt_hook`, which waits for all sums, over `MltForward`: its gain
    simulated_gain_at_RHO               what `train simulate --forward` says of it
    bound_at_RHO                        the closed form, for infinitely thin layers
    ratio_to_simulated_gain             of the measured gain over the simulated one, at RHO = 1
    unordered_ratio_to_hook_at_RHO      the gain with one gradient class: priorities switched off
    parameters_differ                   1: a case in which `mlt_hook` and `MltForward` ended with other bits

and for each case rate_mbps_RHO, compute_ms_RHO, METHOD_step_ms_RHO, METHOD_cpu_load_RHO.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

import click
from torch import nn

from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab import running_star
from mltswitch.profile import profile_of_module
from mltswitch.training.axes import Network
from mltswitch.training.bench import (
    Case,
    CaseResult,
    Contender,
    Settings,
    load_bench_task,
    running_team,
    shapes,
)
from mltswitch.training.bench.shapes import BACKWARD_SHARE
from mltswitch.training.simulate import forward_gain, simulate
from mltswitch.training.tolerance import TrainingTask

WORKERS: Final = 4
BLOCKS: Final = 16
WIDTH: Final = 188
COMPUTE_SECONDS: Final = 0.48
RATIOS: Final = {"05": 0.5, "1": 1.0, "2": 2.0}
GRADIENT_DSCP: Final = (34, 26, 36, 28, 38, 30)
"""As many classes as the switch has queues beside control and background."""
BUFFER_BYTES: Final = 128_000
ROUND_TRIP_SECONDS: Final = 0.2e-3
BUCKETS: Final = 8
STEPS, QUICK_STEPS = 30, 10
SETTINGS: Final = Settings(workers=WORKERS, task="benchmarks.train_forward:paused", loss_bound=0.0)
CONTENDERS: Final = ("gloo", "hook", "forward", "unordered")


def _pausing(values: Any) -> Any:
    return shapes.paused(values, COMPUTE_SECONDS / BLOCKS)


class _Block(nn.Module):  # type: ignore[misc]  # torch has no types here
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, values: Any) -> Any:
        found: Any = self.layer(values)
        return values + (_pausing(found) if self.training else found).relu()


def _model() -> Any:
    return nn.Sequential(nn.Linear(64, WIDTH), *(_Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, 10))


def paused() -> TrainingTask:
    """The digits, by a model that takes its time."""
    return replace(load_bench_task("digits"), model=_model)


def cases() -> list[Case]:
    """One for each ratio of communication to computing."""
    bits = 2 * (WORKERS - 1) / WORKERS * sum(each.numel() for each in _model().parameters()) * 32
    return [
        Case(
            f"rho{name}",
            round(bits / (ratio * COMPUTE_SECONDS)),
            ROUND_TRIP_SECONDS,
            0.0,
            BUFFER_BYTES,
            gradient_dscp=GRADIENT_DSCP,
        )
        for name, ratio in RATIOS.items()
    ]


def contenders() -> dict[str, Contender]:
    """By name."""
    bytes_of_all = sum(each.numel() for each in _model().parameters()) * 4
    buckets = {"bucket_cap_mb": bytes_of_all / BUCKETS / (1 << 20)}
    one_class = {"classes": {"control_dscp": 40, "gradient_dscp": GRADIENT_DSCP[:1]}}
    return {
        "gloo": Contender(method="gloo", ddp=buckets),
        "hook": Contender(method="mlt", ddp=buckets),
        "forward": Contender(method="forward"),
        "unordered": Contender(method="forward", config=one_class),
    }


def figures(results: Sequence[CaseResult]) -> dict[str, float]:
    """What the module's text says."""
    found: dict[str, float] = {}
    profile = profile_of_module("paused", _model())
    for name, result in zip(RATIOS, results, strict=True):
        step = {method: fmean(each.step_seconds) for method, each in result.methods.items()}
        network = Network(result.case.rate_bps, ROUND_TRIP_SECONDS / 2)
        computing = [step["compute"]] * WORKERS
        hook, forward = (
            simulate(
                profile,
                network,
                computing,
                backward_share=BACKWARD_SHARE,
                servers=0,
                forward=is_forward,
                classes=len(GRADIENT_DSCP),
            ).step_seconds
            for is_forward in (False, True)
        )
        found |= {
            f"step_ratio_to_ddp_gloo_at_{name}": step["gloo"] / step["forward"],
            f"step_ratio_to_hook_at_{name}": step["hook"] / step["forward"],
            f"simulated_gain_at_{name}": hook / forward,
            f"bound_at_{name}": forward_gain(step["compute"], BACKWARD_SHARE, result.limit_seconds),
            f"unordered_ratio_to_hook_at_{name}": step["hook"] / step["unordered"],
        }
    found["ratio_to_simulated_gain"] = found["step_ratio_to_hook_at_1"] / found["simulated_gain_at_1"]
    digests = [{each.methods[name].digest for name in ("hook", "forward", "unordered")} for each in results]
    agree = all(each.methods[name].ranks_agree for each in results for name in CONTENDERS)
    found["parameters_differ"] = float(not agree or any(len(each) > 1 for each in digests))
    for name, result in zip(RATIOS, results, strict=True):
        found[f"rate_mbps_{name}"] = result.case.rate_bps / 1e6
        found[f"compute_ms_{name}"] = fmean(result.methods["compute"].step_seconds) * 1e3
        for method in CONTENDERS:
            found[f"{method}_step_ms_{name}"] = fmean(result.methods[method].step_seconds) * 1e3
            found[f"{method}_cpu_load_{name}"] = fmean(result.methods[method].cpu_load)
    return found


def measure(*, quick: bool) -> dict[str, float]:
    """All cases; raises MltswitchError."""
    chosen = cases()
    with running_star(WORKERS) as star:
        star.set_rate(chosen[0].rate_bps)
        with running_team(star, SETTINGS) as team:
            results = [
                team.run(case, QUICK_STEPS if quick else STEPS, lambda *_: None, contenders())
                for case in chosen
            ]
    return figures(results)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer steps.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Steps whose forward pass waits layer by layer, beside gloo."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
