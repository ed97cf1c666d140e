"""MLT's parts one by one, for models of three shapes on a leaf-spine network with other people's flows.

    python -m benchmarks.train_gain [--quick] [--json]

Needs root, gcc, torch and scikit-learn. Four workers, two a leaf, and as many other hosts; two leaves and two
spines (mltswitch/lab/star.c), whose uplinks carry a quarter of what the hosts' lines do, all ports with the
queues of a plan. The workers exchange what ResNet-50, VGG-16 and GPT-2 would, each over DIVISOR, and pause
where they would compute, so that two processors do not decide; the link alone takes as long as computing. The
other hosts' flows cross the uplinks in the background class, with sizes of a web search over the same
divisor, and loads of 0, 0.3 and 0.6 of a host's line. All rungs of a case take turns of five steps; gloo's
flows and those of rungs without spraying take the spine that they hash to.

    RUNG_ratio_to_gloo_MODEL_LOAD   step of gloo's better topology over the rung's: above 1, it is faster
    gain_percent_MODEL_LOAD         of the best rung of ours
    gain_percent_least, gain_percent_most, gain_percent_mean    over all cases
    paper_gain_percent_least, paper_gain_percent_most
                                    what MLT's authors report for such a network (12 to 62)
    core_loss_share_MODEL_LOAD      beside our last rung: of the packets that came to the uplinks' ports, the
                                    background's among them, those that did not fit

and for each case compute_ms_MODEL_LOAD, limit_ms_MODEL_LOAD (the uplinks alone, for the gradients and without
the background), RUNG_step_ms_MODEL_LOAD, RUNG_cpu_load_MODEL_LOAD, ranks_agree_MODEL_LOAD.
"""

from collections.abc import Mapping
from math import ceil
from statistics import fmean
from typing import Final

import click

from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab import running_leaf_spine
from mltswitch.profile import bundled_profile
from mltswitch.training.bench import GRADIENT_DSCP, Case, CaseResult, Settings, running_team
from mltswitch.training.bench.ladder import GLOO, ladder_of, rungs, said
from mltswitch.units import BITS_PER_BYTE

WORKERS: Final = 4
RIVALS: Final = 4
SPINES: Final = 2
RATE_BPS: Final = 25_000_000
ROUND_TRIP_SECONDS: Final = 0.2e-3
BUFFER_BYTES: Final = 128_000
LOSS_BOUND: Final = 0.1
DIVISORS: Final = {"resnet50": 128, "vgg16": 512, "gpt2-small": 512}
"""Some 200,000 to 270,000 elements each."""
LOADS: Final = {"0": 0.0, "03": 0.3, "06": 0.6}
QUICK: Final = (("gpt2-small", "0"), ("gpt2-small", "06"))
STEPS, QUICK_STEPS = 20, 5
PAPER_PERCENT: Final = (12.0, 62.0)
"""Wang et al., MLT, section 8: training speed over that of the state of the art."""


def link_seconds(elements: int) -> float:
    """The uplinks alone, for a ring that goes up from each leaf once: 2 (k - 1) / k of the gradients."""
    uplinks_bps = (WORKERS + RIVALS) / 2 * RATE_BPS / 4
    return 2 * (WORKERS - 1) / WORKERS * elements * 4 * BITS_PER_BYTE / uplinks_bps


def settings_of(model: str) -> Settings:
    """A task with the model's shape, whose computing takes as long as the link."""
    profile, divisor = bundled_profile(model), DIVISORS[model]
    elements = sum(ceil(tensor.elements / divisor) for layer in profile.layers for tensor in layer.tensors)
    task = f"shape:{model}/{divisor}@{link_seconds(elements):.3f}"
    return Settings(workers=WORKERS, rivals=RIVALS, task=task, loss_bound=LOSS_BOUND)


def figures(results: Mapping[tuple[str, str], CaseResult]) -> dict[str, float]:
    """What the module's text says."""
    found: dict[str, float] = {}
    gains = []
    for (model, load), result in results.items():
        ladder = ladder_of(result)
        gains.append(100 * (max(rung.over_gloo for rung in ladder if rung.name not in GLOO) - 1))
        case = f"{model.replace('-', '_')}_{load}"
        found[f"gain_percent_{case}"] = gains[-1]
        found[f"core_loss_share_{case}"] = result.methods[ladder[-1].name].core_loss_share
        found[f"compute_ms_{case}"] = fmean(result.methods["compute"].step_seconds) * 1e3
        found[f"limit_ms_{case}"] = link_seconds(result.elements) * 1e3
        found[f"ranks_agree_{case}"] = float(all(result.methods[rung.name].ranks_agree for rung in ladder))
        for rung in ladder:
            name = rung.name.replace("-", "_")
            found[f"{name}_ratio_to_gloo_{case}"] = rung.over_gloo
            found[f"{name}_step_ms_{case}"] = rung.step_seconds * 1e3
            found[f"{name}_cpu_load_{case}"] = fmean(result.methods[rung.name].cpu_load)
    return found | {
        "gain_percent_least": min(gains),
        "gain_percent_most": max(gains),
        "gain_percent_mean": fmean(gains),
        "paper_gain_percent_least": PAPER_PERCENT[0],
        "paper_gain_percent_most": PAPER_PERCENT[1],
    }


def measure(*, quick: bool) -> dict[str, float]:
    """All cases, or those of one model; raises MltswitchError."""
    results: dict[tuple[str, str], CaseResult] = {}
    contenders = rungs(GRADIENT_DSCP, has_paths=True)
    for model in DIVISORS:
        loads = [load for load in LOADS if not quick or (model, load) in QUICK]
        settings = settings_of(model)
        if not loads:
            continue
        with running_leaf_spine(settings.hosts, SPINES, RATE_BPS, in_turn=WORKERS // 2) as network:
            network.set_rate(RATE_BPS)
            with running_team(network, settings) as team:
                for load in loads:
                    case = Case(
                        f"{model}, load {LOADS[load]:g}",
                        RATE_BPS,
                        ROUND_TRIP_SECONDS,
                        0.0,
                        BUFFER_BYTES,
                        background=LOADS[load],
                        background_divisor=DIVISORS[model],
                    )
                    found = team.run(case, QUICK_STEPS if quick else STEPS, lambda *_: None, contenders)
                    results[model, load] = found
                    click.echo(_line(found), err=True)
    return figures(results)


def _line(result: CaseResult) -> str:
    ladder = ladder_of(result)
    steps = ", ".join(f"{rung.name} {rung.step_seconds * 1e3:.0f} ms" for rung in ladder)
    return f"{result.case.name}: {steps}; {said(ladder)}"


@click.command()
@click.option("--quick", is_flag=True, help="One model without and with background, fewer steps.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """What each part of MLT gains where the network is busy."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
