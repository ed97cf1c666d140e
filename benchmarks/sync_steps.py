"""Steps of five models by each synchronization, beside closed forms (OSP, figures 6a and 6d). All simulated.

    python -m benchmarks.sync_steps [--quick] [--json]

The nodes of production exchange a model over one server's link of 10 Gbit/s, full duplex and shared max-min
fairly, with a round trip of 0.1 ms (mltswitch/training/simulate.py). Gradients are ready at the end of
computing, which takes T_c. T_comm is one exchange of the whole model. All pieces are pushed at a time, and
results of small ones cross while large ones are still being pushed: that takes less than one direction after
the other, `Star.seconds`, by a share that the cut of the model into pieces gives (`overlap_MODEL`).

    BSP     T_c + T_comm
    OSP     T_c + (1 - s) T_comm, with s = min(0.8, T_c / T_comm)
    R2SP    the longer of T_c + T_comm / N, a rank alone, and of one direction for all N ranks

    closed_form_error, closed_form_error_bsp, _osp, _r2sp
                          largest relative error: all models, 8 and 12 workers, T_comm / T_c from 0.05 to 16.
                          OSP ranks slices by their means, here and where nothing else is said
    osp_sum_over_mean     a step of OSP that ranks by sums, the default, over one by means; ratio 2. What
                          stays is large, then, and of one size, and overlaps less
    osp_gain_at_RATIO     a step of BSP over one of OSP; closed forms: 1.8, 1.5 and 1.12
    slices_gain_vgg16     a step of OSP that ranks whole layers, as the paper does, over one of slices; both
                          by sums, ratio 2
    osp_over_asp, osp_over_r2sp, osp_over_asp_at_RATIO, osp_over_r2sp_at_RATIO
                          a step of OSP over one of the other, at the best ratio, and at each. Ranks compute
                          10 % faster to slower: equal ones would make ASP march in step, as BSP. On a full
                          duplex link OSP at best draws level with who keeps both directions busy, as R2SP
                          does and ASP might: its pushes meet, and share the link. Figure 6a shows OSP ahead
                          of both
    asp_outside           how far such a step of ASP is below R2SP's closed form, or above BSP's
    slow_rank_bsp, slow_rank_osp, slow_rank_asp, slow_rank_r2sp
                          a step over T_c, where one rank is 3 times slower and the others are as uneven;
                          harmonic mean of ranks, ratio 1
    star_seconds_MODEL    one direction, 8 workers
    seconds               that the benchmark took
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any, Final

import click

from benchmarks.figures import print_figures
from mltswitch.profile import bundled_profile
from mltswitch.training.axes import Network, topologies
from mltswitch.training.simulate import scaled_job, simulate

NETWORK: Final = Network(10e9, 50e-6)
MODELS: Final = ("resnet50", "vgg16", "inception-v3", "resnet101", "bert-base")
QUICK_MODELS: Final = ("resnet50", "vgg16")
WORKERS: Final = (8, 12)
RATIOS: Final = (0.05, 0.25, 0.5, 1.0, 1.25, 2.0, 4.0, 8.0, 16.0)
QUICK_RATIOS: Final = (0.25, 1.25, 2.0)
COMPARED: Final = (1.25, 2.0, 8.0)
"""Ratios with figures of their own, and uneven ranks."""
SPREAD: Final = 0.1
"""Of computing, more and less, where ranks are uneven."""
SLOW: Final = 3.0
STEPS: Final[Mapping[str, tuple[int, int]]] = {"bsp": (1, 1), "osp": (8, 2), "asp": (12, 12), "r2sp": (2, 4)}
"""Before times count, and after."""
PATIENT: Final = (("turn_seconds", 1e4),)
"""Of `r2sp`: longer than any T_c, or turns would pass to others meanwhile."""
MEANS: Final = (("importance", "mean"),)
LAYERS: Final = (("slice_bytes", None),)

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Case:
    """One job."""

    synchronization: str
    ratio: float
    """T_comm over T_c."""
    settings: tuple[tuple[str, Any], ...] = ()
    ranks: str = "equal"
    """Or `uneven`; or `slow`: one is, beside."""
    model: str = ""
    workers: int = 0

    @property
    def compute_seconds(self) -> list[float]:
        """Of each rank."""
        seconds, last = exchange_seconds(self.model, self.workers) / self.ratio, self.workers - 1
        spread = 0.0 if self.ranks == "equal" else SPREAD
        found = [seconds * (1 + spread * (2 * rank / last - 1)) for rank in range(self.workers)]
        return [seconds * SLOW, *found[1:]] if self.ranks == "slow" else found

    def closed_form(self, synchronization: str) -> float:
        """A step over T_c, of ranks that are equal."""
        exchange = exchange_seconds(self.model, self.workers)
        match synchronization:
            case "osp":
                return 1 + self.ratio * (1 - min(0.8, 1 / self.ratio))
            case "r2sp":
                direction = direction_seconds(self.model, self.workers) * self.ratio / exchange
                return max(1 + self.ratio / self.workers, direction)
            case _:
                return 1 + self.ratio


@cache
def exchange_seconds(model: str, workers: int) -> float:
    """T_comm, of the pieces as they are cut.

    All share the link: one is pushed when the smaller ones are, and as much of each larger one. Its result
    waits for those of smaller ones, and from some piece on the link sends results without a pause.
    """
    job, _ = scaled_job(bundled_profile(model), world=workers)
    counts = sorted((piece.count for piece in job.pieces), reverse=True)
    alone = max(count * number for number, count in enumerate(counts, 1))
    return direction_seconds(model, workers) * (1 + alone / job.elements)


def direction_seconds(model: str, workers: int) -> float:
    """All ranks' gradients, or all results."""
    job, share = scaled_job(bundled_profile(model), world=workers)
    network = replace(NETWORK, link_bps=NETWORK.link_bps * share)
    return topologies()[job.topology].seconds(job, network) / 2


def step_over_computing(case: Case) -> float:
    """A step over T_c."""
    warm_up, steps = STEPS[case.synchronization]
    found = simulate(
        bundled_profile(case.model),
        NETWORK,
        case.compute_seconds,
        synchronization=case.synchronization,
        settings=dict(case.settings),
        warm_up=warm_up,
        steps=steps,
    )
    return found.step_seconds * case.ratio / exchange_seconds(case.model, case.workers)


def cases(models: Sequence[str], workers: Sequence[int], ratios: Sequence[float]) -> Iterator[Case]:
    """All of them."""
    settings = {"r2sp": PATIENT, "osp": MEANS}
    templates = [Case("osp", 2.0)]
    for ratio in ratios:
        templates += [Case(name, ratio, settings.get(name, ())) for name in ("bsp", "osp", "r2sp")]
        if ratio in COMPARED:
            names = ("asp", "osp", "r2sp")
            templates += [Case(name, ratio, settings.get(name, ()), "uneven") for name in names]
    templates += [Case(name, 1.0, settings.get(name, ()), "slow") for name in STEPS]
    for count in workers:
        for model in models:
            yield from (replace(template, model=model, workers=count) for template in templates)
        yield Case("osp", 2.0, LAYERS, model="vgg16", workers=count)


def figures(steps: Mapping[Case, float]) -> Figures:
    """From each case's step over T_c."""

    def over(one: Case, other: Case) -> float:
        """A step of one over a step of the other, mean over the models and workers that have both."""
        pairs = {
            case: replace(other, model=case.model, workers=case.workers)
            for case in steps
            if replace(case, model="", workers=0) == one
        }
        return fmean(steps[case] / steps[pair] for case, pair in pairs.items())

    errors: Figures = {}
    for case, step in steps.items():
        name, form = case.synchronization, case.closed_form(case.synchronization)
        if case.ranks == "equal" and (name != "osp" or case.settings == MEANS):
            errors[name] = max(errors.get(name, 0.0), abs(step / form - 1))
    found = {"closed_form_error": max(errors.values())}
    found |= {f"closed_form_error_{name}": error for name, error in errors.items()}
    found["osp_sum_over_mean"] = over(Case("osp", 2.0), Case("osp", 2.0, MEANS))
    found["slices_gain_vgg16"] = over(Case("osp", 2.0, LAYERS), Case("osp", 2.0))
    outside = [0.0]
    for ratio in sorted({case.ratio for case in steps if case.ranks == "uneven"}):
        found[f"osp_gain_at_{ratio:g}"] = over(Case("bsp", ratio), Case("osp", ratio, MEANS))
        for name, settings in (("asp", ()), ("r2sp", PATIENT)):
            other = Case(name, ratio, settings, "uneven")
            found[f"osp_over_{name}_at_{ratio:g}"] = over(Case("osp", ratio, MEANS, "uneven"), other)
    for case in steps:
        if case.synchronization == "asp" and case.ranks == "uneven":
            outside += [case.closed_form("r2sp") / steps[case] - 1]
            outside += [steps[case] / (case.closed_form("bsp") + SPREAD) - 1]
    found["asp_outside"] = max(outside)
    for name in ("asp", "r2sp"):
        prefix = f"osp_over_{name}"
        found[prefix] = min(value for key, value in found.items() if key.startswith(prefix))
    for name in STEPS:
        slow = [case for case in steps if case.ranks == "slow" and case.synchronization == name]
        found[f"slow_rank_{name}"] = fmean(steps[case] for case in slow)
    for model in {case.model: None for case in steps}:
        direction = direction_seconds(model, WORKERS[0])
        found[f"star_seconds_{model}"] = direction
        found[f"overlap_{model}"] = 1 - exchange_seconds(model, WORKERS[0]) / (2 * direction)
    return found


def measure(*, quick: bool) -> Figures:
    """All cases, or those of few models and ratios."""
    began = time.monotonic()
    chosen = [*(cases(QUICK_MODELS, WORKERS[:1], QUICK_RATIOS) if quick else cases(MODELS, WORKERS, RATIOS))]
    steps: dict[Case, float] = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for case, step in zip(chosen, pool.map(step_over_computing, chosen), strict=True):
            steps[case] = step
            form = case.closed_form(case.synchronization)
            click.echo(f"{case}: {step:.4f}, closed form of equal ranks {form:.4f}", err=True)
    return figures(steps) | {"seconds": time.monotonic() - began}


@click.command()
@click.option("--quick", is_flag=True, help="Two models, 8 workers, three ratios.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Simulate steps of every synchronization, and hold them against closed forms."""
    print_figures(measure(quick=quick), as_json=as_json)


if __name__ == "__main__":
    main()
