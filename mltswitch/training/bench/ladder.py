"""MLT's own ablation: what each of its parts adds to those before, in one network and from the same seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

from mltswitch.training.bench.results import CaseResult, Contender
from mltswitch.training.bench.run import CONTROL_DSCP
from mltswitch.units import format_ratio

CLEAR: Final = 0.03
"""Share of a step's time by which a rung must differ from the one before to count as paying or costing."""
GLOO: Final = ("gloo-ring", "gloo-star")


@dataclass(frozen=True, slots=True)
class Rung:
    """One method of the ladder as measured in one case."""

    name: str
    step_seconds: float
    over_gloo: float
    """Step time of gloo's better topology over that of this rung; above 1 this rung is faster."""
    gain: float | None
    """Step time of the rung before over that of this one, less 1; None: the rung before is gloo, or there is
    none."""

    @property
    def verdict(self) -> str:
        """The word `pays` or `costs`; empty where the difference is not clear."""
        if self.gain is None or abs(self.gain) < CLEAR:
            return ""
        return "pays" if self.gain > 0 else "costs"


def rungs(
    gradient_dscp: Sequence[int], *, has_paths: bool = False, control_dscp: int = CONTROL_DSCP
) -> dict[str, Contender]:
    """The methods of the ladder by name, from gloo up; each adds one part of MLT to those before.

    `spraying` is a rung where there are paths to choose from; before it, flows go where they are routed.
    Before `credit` the rate is MLT's own law, TIMELY's (section 4.3). Before `importance` packets are in no
    class of the plan and none is important: a queue drops what does not fit, whatever it is.
    """

    def config(points: Sequence[int], importance: str, law: str) -> dict[str, Any]:
        return {
            "classes": {"control_dscp": control_dscp, "gradient_dscp": [*points]},
            "defaults": {"importance": importance},
            "mlt": {"rate_control": law},
        }

    plain, one, all_of_them = [0], gradient_dscp[:1], gradient_dscp
    ladder = {
        "gloo-ring": Contender(method="gloo"),
        "gloo-star": Contender(method="gloo-incast"),
        "tcp": Contender(
            method="mlt",
            options={"transport": "tcp", "loss_bound": 0.0},
            config={"classes": {"control_dscp": control_dscp, "gradient_dscp": plain}},
        ),
        "loss": Contender(method="mlt", config=config(plain, "none", "timely")),
        "importance": Contender(method="mlt", config=config(one, "magnitude", "timely")),
        "queues": Contender(method="mlt", config=config(all_of_them, "magnitude", "timely")),
    }
    ladder = {name: replace(contender, is_sprayed=False) for name, contender in ladder.items()}
    if has_paths:
        ladder["spraying"] = replace(ladder["queues"], is_sprayed=True)
    last = config(all_of_them, "magnitude", "credit")
    return ladder | {
        "credit": Contender(method="mlt", config=last),
        "forward": Contender(method="forward", config=last),
    }


def ladder_of(result: CaseResult) -> tuple[Rung, ...]:
    """The ladder of a measured case whose methods were those of `rungs`."""
    seconds = {name: fmean(method.step_seconds) for name, method in result.methods.items()}
    best = min(seconds[name] for name in GLOO)
    ours = [name for name in seconds if name not in {"compute", *GLOO}]
    before = dict(zip(ours[1:], ours, strict=False))
    return tuple(
        Rung(name, each, best / each, seconds[before[name]] / each - 1 if name in before else None)
        for name, each in seconds.items()
        if name != "compute"
    )


def said(ladder: Sequence[Rung]) -> str:
    """One line that names the rungs that pay and those that cost."""
    parts = []
    for verdict in ("pays", "costs"):
        found = [rung for rung in ladder if rung.verdict == verdict]
        named = ", ".join(f"{rung.name} ({format_ratio(abs(rung.gain or 0.0))})" for rung in found)
        parts += [f"{verdict}: {named}"] if found else []
    return "; ".join(parts) or "no rung differs clearly from the one before"


def advice(ladder: Sequence[Rung]) -> str:
    """One line that says which method to train with in this network."""
    best = max((rung for rung in ladder if rung.name not in GLOO), key=lambda rung: rung.over_gloo)
    return advice_on(best.name, best.over_gloo)


def advice_on(name: str, over_gloo: float) -> str:
    """One line of advice where a single method of ours was measured: its name, and gloo's step time over its
    own."""
    if over_gloo < 1 + CLEAR:
        how = f"{name}, the fastest of ours, makes a step {over_gloo:.2f} times as fast"
        return f"Stay with gloo (NCCL with GPUs): {how}"
    return f"Take {name}: a step is {over_gloo:.2f} times as fast as with gloo"
