"""What a plan is for: which packets are lost under overload, with its thresholds and without.

    python -m benchmarks.agent_importance [--quick] [--json]

Needs root and gcc. Eight senders offer 1.5 times what the receiver's port carries (500 Mbit/s,
benchmarks/agent_switch.c), each at a steady eighth of it, tagging by magnitude: about half of the packets
are important. With the plan, the port has the queues of benchmarks/agent_incast.yaml's plan, the last
gradient class with S at half of L; with the plan off, it has one drop-tail queue of the same L. The two
take turns. The switch itself counts what it drops.

    plan_important_lost, plan_unimportant_lost   share of the packets that came to the port
    off_important_lost, off_unimportant_lost     the same without the plan
    plan_marked                                  share of the important packets that were marked CE
    important_saved                              off_important_lost less plan_important_lost
    offered_load                                 bits that came over bits that the port carries
    important_share                              of the packets that came
    threshold_bytes, limit_bytes                 S and L with the plan
    turns                                        how many
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import click

from benchmarks.agent_ends import Settings, running_agents
from benchmarks.agent_incast import RATE_BPS, SENDERS, incast_plan, plan_control_dscp, port_queues
from benchmarks.agent_switch import LINK_BYTES, Queue, Star, one_queue, running_star
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError

OVERLOAD: Final = 1.5
TENSOR_BYTES: Final = 4 << 20
IN_FLIGHT: Final = 2
LOSS_BOUND: Final = 1 / 3
"""What such an overload must lose."""
SECONDS: Final = 3.0
WARM_UP_SECONDS: Final = 0.5
TURNS: Final = 5
QUICK_TURNS: Final = 1
QUICK_SECONDS: Final = 1.0
PACKET_BYTES: Final = 1500


@dataclass(frozen=True, slots=True)
class Turn:
    """What the switch counted at one queue."""

    seconds: float
    counts: Mapping[str, int]

    def lost(self, kind: str) -> float:
        """Share of the important or the unimportant packets."""
        return self.counts[f"{kind}_dropped"] / max(1, self.counts[kind])

    @property
    def packets(self) -> int:
        """That came."""
        return self.counts["important"] + self.counts["unimportant"]


def overload_queues() -> tuple[tuple[Queue, ...], int]:
    """The plan's queues with S at half of L for the last gradient class, and that class's place."""
    queues = list(port_queues(incast_plan()))
    place = len(queues) - 2
    limit = queues[place].limit_bytes
    queues[place] = Queue(limit // 2, limit, queues[place].dscps)
    return tuple(queues), place


def take_turn(star: Star, queues: Sequence[Queue], place: int, seconds: float) -> Turn:
    """Overload one kind of port; raises MachineError."""
    plan = incast_plan()
    star.set_queues(queues)
    settings = Settings(
        payload_bytes=PACKET_BYTES - 28,
        line_rate_bps=RATE_BPS * OVERLOAD / SENDERS,
        is_steady=True,
        dscp=plan.gradient_classes[-1].dscp[0],
        control_dscp=plan_control_dscp(plan),
    )
    with ExitStack() as stack:
        receiver, senders = running_agents(stack, star, settings, senders=SENDERS)
        start_ns = time.monotonic_ns() + 100_000_000
        command: dict[str, Any] = {
            "op": "stream",
            "size_bytes": TENSOR_BYTES,
            "in_flight": IN_FLIGHT,
            "loss_bound": LOSS_BOUND,
            "until_ns": start_ns + round((WARM_UP_SECONDS + seconds) * 1e9),
        }
        for end in (receiver, *senders):
            end.tell(json.dumps(command))
        time.sleep(max(0.0, (start_ns - time.monotonic_ns()) / 1e9 + WARM_UP_SECONDS))
        star.report()
        started = time.monotonic()
        time.sleep(seconds)
        return Turn(time.monotonic() - started, star.report()["queues"][place])


def figures(planned: Sequence[Turn], off: Sequence[Turn], queue: Queue) -> dict[str, float]:
    """Medians over the turns."""
    found = {
        f"{name}_{kind}_lost": median(turn.lost(kind) for turn in turns)
        for name, turns in (("plan", planned), ("off", off))
        for kind in ("important", "unimportant")
    }
    both = [*planned, *off]
    bits = (PACKET_BYTES + LINK_BYTES) * 8
    return found | {
        "plan_marked": median(turn.counts["marked"] / max(1, turn.counts["important"]) for turn in planned),
        "important_saved": found["off_important_lost"] - found["plan_important_lost"],
        "offered_load": median(turn.packets * bits / turn.seconds / RATE_BPS for turn in both),
        "important_share": median(turn.counts["important"] / max(1, turn.packets) for turn in both),
        "threshold_bytes": float(queue.threshold_bytes),
        "limit_bytes": float(queue.limit_bytes),
        "turns": float(len(planned)),
    }


def measure(turns: int, seconds: float) -> dict[str, float]:
    """With the plan and without, in turn; raises MachineError."""
    queues, place = overload_queues()
    planned, off = [], []
    with running_star(SENDERS + 1) as star:
        star.set_rate(RATE_BPS)
        for number in range(turns):
            planned.append(take_turn(star, queues, place, seconds))
            off.append(take_turn(star, one_queue(queues[place].limit_bytes), 0, seconds))
            click.echo(
                f"turn {number + 1}: {figures(planned[-1:], off[-1:], queues[place])}",
                err=True,
            )
    return figures(planned, off, queues[place])


@click.command()
@click.option("--quick", is_flag=True, help="One short turn.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Loss of important and unimportant packets under overload, with a plan and without."""
    try:
        found = measure(QUICK_TURNS if quick else TURNS, QUICK_SECONDS if quick else SECONDS)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
