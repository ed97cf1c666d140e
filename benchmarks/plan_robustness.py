"""How plans stand what they were not made for: random racks, in a simulator, beside two other choices.

Every rack has a model, a rate, a buffer, a packet size and a burst of its own. Its plan, the optimum for the
planned load alone, and static thresholds (equal limits, S as DCTCP has it: 65 packets at 10 Gbit/s, in
proportion to the rate) are simulated at the planned load, over the plan's scenarios, and at loads and incasts
outside of them. Extra rounds are summed over all racks; a ratio below 1 is in the plan's favour.
"""

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import click
import numpy as np

from benchmarks.figures import print_figures
from mltswitch.capabilities import BytesLimit
from mltswitch.documents import validate
from mltswitch.errors import UserInputError
from mltswitch.plan import Fabric, Plan, ScenarioPrediction
from mltswitch.planning import build_plan
from mltswitch.planning.predict import path_losses
from mltswitch.planning.thresholds import ClassCurves
from mltswitch.profile import resolve_profile
from mltswitch.queueing import SimulationSettings
from mltswitch.targets import hardware_capabilities

SEED: Final = 18
MODELS: Final = ("resnet50", "bert-base", "gpt2-small", "vgg16", "googlenet")
DSCPS: Final = (34, 36, 26, 28, 18, 20, 10, 12)
DCTCP_BYTES: Final = 65 * 1500
"""K of DCTCP at 10 Gbit/s (Alizadeh et al. 2010, section 3.4)."""
OUTSIDE: Final = (
    ScenarioPrediction(name="load 1.25", load_factor=1.25, weight=1),
    ScenarioPrediction(name="load 1.05, 2 senders", load_factor=1.05, senders=2, weight=1),
    ScenarioPrediction(name="8 senders", load_factor=1.0, senders=8, weight=1),
    ScenarioPrediction(name="load 0.9, 16 senders", load_factor=0.9, senders=16, weight=1),
)
"""Loads and incasts that no plan here is made for."""


@dataclass(frozen=True, slots=True)
class Rack:
    """What a plan is made of."""

    model: str
    fabric: Fabric


@dataclass(frozen=True, slots=True)
class Outcome:
    """Extra rounds of each choice in each kind of situation, and how the plan holds."""

    rounds: dict[tuple[str, str], float]
    says_it_holds: bool
    holds: bool
    important_outside: float


@click.command()
@click.option("--racks", type=click.IntRange(1, 10_000), default=200, show_default=True)
@click.option("--quick", is_flag=True, help="A dozen racks.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(racks: int, quick: bool, as_json: bool) -> None:
    """Plan, simulate and compare."""
    settings = SimulationSettings(300_000, replications=4) if quick else SimulationSettings(1_000_000, 1, 4)
    given = list(random_racks(12 if quick else racks))
    with ProcessPoolExecutor() as pool:
        outcomes = list(pool.map(examine, given, [settings] * len(given)))
    print_figures(figures([entry for entry in outcomes if entry is not None], len(given)), as_json=as_json)


def random_racks(count: int) -> Iterator[Rack]:
    """Racks that differ in all that a plan depends on; the same ones every time."""
    generator = np.random.default_rng(SEED)
    for _ in range(count):
        burst = int(generator.choice([1, 4, 7, 16, 45]))
        mtu = int(generator.choice([1500, 9000]))
        packets = int(np.exp(generator.uniform(np.log(150), np.log(900))))
        document: dict[str, Any] = {
            "schema": "mltswitch/fabric/v1",
            "name": "random",
            "topology": {
                "leaf_spine": {
                    "spines": {"count": 2, "platform": "linux"},
                    "leaves": {"count": 2, "platform": "linux"},
                    "hosts_per_leaf": 16,
                }
            },
            "addressing": {"hosts": "10.10.0.0/16", "links": "10.20.0.0/16", "alias": "10.64.0.0/10"},
            "ports": {
                "rate": int(generator.choice([10, 25, 100, 400])) * 10**9,
                "mtu_bytes": mtu,
                "buffer": packets * (mtu + 14),
            },
            "traffic": {"load": float(generator.uniform(0.6, 0.95)), "burst_packets": burst},
            "classes": {
                "control": {"dscp": [40]},
                "gradients": {"dscp": DSCPS[: int(generator.integers(1, 6))]},
            },
        }
        yield Rack(str(generator.choice(MODELS)), validate(document, Fabric, where="random"))


def examine(rack: Rack, settings: SimulationSettings) -> Outcome | None:
    """The three choices in the simulator; None: the buffer is too small for the rack's classes."""
    profile = resolve_profile(rack.model)
    load = rack.fabric.traffic.load
    try:
        plan = build_plan(profile, rack.fabric, hardware_capabilities)
        point = build_plan(profile, rack.fabric, hardware_capabilities, at_load=load)
    except UserInputError:
        return None
    curves = ClassCurves(profile, plan.classes)
    rounds: dict[tuple[str, str], float] = defaultdict(float)
    holds, important = True, 0.0
    situations = {
        "point": plan.scenarios[:1],
        "scenarios": plan.scenarios,
        "outside": OUTSIDE,
    }
    for choice, made in (("plan", plan), ("point", point), ("static", static_thresholds(plan))):
        for kind, scenarios in situations.items():
            for scenario in scenarios:
                losses = path_losses(_simulated(made), scenario, settings)
                rounds[choice, kind] += scenario.weight * sum(
                    float(curve(loss))
                    for name, own in losses.items()
                    for curve, loss in zip(curves[name], own, strict=True)
                )
                if choice == "plan" and kind == "outside":
                    important = max(important, *(loss for _, loss in losses.values()))
                if choice == "plan" and kind == "point":
                    holds = all(
                        own[0] <= (entry.loss_bound_unimportant or 0)
                        and own[1] <= (entry.loss_bound_important or 0)
                        for entry in plan.gradient_classes
                        for own in [losses[entry.name]]
                    )
    return Outcome(dict(rounds), not plan.unmet, holds, important)


def static_thresholds(plan: Plan) -> Plan:
    """Equal limits, and the S of DCTCP, whatever the class."""
    profiles = []
    for entry in plan.port_profiles:
        gradients = [queue for queue in entry.queues if queue.ecn_threshold_bytes is not None]
        total = sum(queue.limit.size_bytes for queue in gradients if isinstance(queue.limit, BytesLimit))
        limit = total // len(gradients)
        threshold = min(limit, max(entry.packet_bytes, DCTCP_BYTES * entry.rate_bps // 10**10))
        changed = {"ecn_threshold_bytes": threshold, "limit": BytesLimit(limit)}
        queues = tuple(
            queue.model_copy(update=changed) if queue in gradients else queue for queue in entry.queues
        )
        profiles.append(entry.model_copy(update={"queues": queues}))
    return plan.model_copy(update={"port_profiles": tuple(profiles)})


def _simulated(plan: Plan) -> Plan:
    return plan.model_copy(
        update={"provenance": plan.provenance.model_copy(update={"queueing_model": "simulate"})}
    )


def figures(outcomes: list[Outcome], racks: int) -> dict[str, float]:
    """What is printed."""

    def total(choice: str, kind: str) -> float:
        return sum(entry.rounds[choice, kind] for entry in outcomes)

    held = [entry for entry in outcomes if entry.says_it_holds]
    found = {
        "racks": float(racks),
        "racks_planned": float(len(outcomes)),
        "share_that_the_plan_says_hold": len(held) / len(outcomes),
        "share_holding_at_planned_load": sum(entry.holds for entry in held) / max(1, len(held)),
        "worst_important_loss_outside": max((entry.important_outside for entry in held), default=0.0),
        "median_important_loss_outside": float(np.median([entry.important_outside for entry in held])),
    }
    for kind, name in (("point", "at_the_point"), ("scenarios", "over_scenarios"), ("outside", "outside")):
        for choice, peer in (("point", "point_optimum"), ("static", "static_thresholds")):
            ratio = total("plan", kind) / total(choice, kind) if total(choice, kind) else float("nan")
            found[f"extra_rounds_ratio_to_{peer}_{name}"] = ratio
    return found


if __name__ == "__main__":
    main()
