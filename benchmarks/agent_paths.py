"""One of four paths turns grey or dies: the host agent's goodput meanwhile, and how soon it notices.

    python -m benchmarks.agent_paths [--quick] [--json]

Needs root and gcc. Two hosts, four paths of 125 Mbit/s each through benchmarks/agent_switch.c, tensors of 1
MB one after the other, four on their way, loss bound 0 (what is lost must come again). After some seconds
one path drops 5 % of its packets (`grey`) or all (`dead`), and some seconds later it is sound again.
Figures are medians over the turns.

For each KIND, grey and dead:

    KIND_before_mbps, KIND_during_mbps, KIND_after_mbps
                             goodput of whole tensors; `during` and `after` begin with the change
    KIND_during_ratio, KIND_after_ratio
                             over before; three of four paths are 0.75
    KIND_leave_ms            from the change to the last 20 ms in which the path carried a tenth of its share
    KIND_left                share of the turns in which it was left at all
    KIND_return_ms           from the end of the trouble to the first 20 ms in which it carried a tenth of
                             its share again, absent where it did not in any turn
    KIND_returned            share of the turns in which it was used again before the end
    turns                    how many
"""

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import click

from benchmarks.agent_ends import Settings, running_agents
from benchmarks.agent_switch import Star, one_queue, running_star
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError

PATHS: Final = 4
PATH_BPS: Final = 125_000_000
QUEUE_BYTES: Final = 64_000
ROUND_TRIP_SECONDS: Final = 0.5e-3
TENSOR_BYTES: Final = 1 << 20
IN_FLIGHT: Final = 4
TROUBLED: Final = 1
KINDS: Final = {"grey": 0.05, "dead": 1.0}
SAMPLE_SECONDS: Final = 0.02
WARM_UP_SECONDS: Final = 0.5
BEFORE_SECONDS: Final = 2.0
DURING_SECONDS: Final = 4.0
AFTER_SECONDS: Final = 6.0
USED_SHARE: Final = 0.1
TURNS: Final = 5
QUICK_TURNS: Final = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """Bytes that came to the switch on each path since the sample before."""

    at_seconds: float
    path_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One trouble, from before to after; times from the start of the stream."""

    samples: tuple[Sample, ...]
    completed_seconds: tuple[float, ...]
    """When a tensor was complete."""
    broken_seconds: float
    mended_seconds: float
    end_seconds: float

    def goodput_bps(self, start: float, end: float) -> float:
        """Of the tensors that completed meanwhile."""
        count = sum(start <= moment < end for moment in self.completed_seconds)
        return count * TENSOR_BYTES * 8 / (end - start)

    @property
    def usual_bytes(self) -> float:
        """What the path carried in a sample before the trouble; its used share is counted from it."""
        return median(
            sample.path_bytes[TROUBLED]
            for sample in self.samples
            if WARM_UP_SECONDS <= sample.at_seconds < self.broken_seconds
        )

    @property
    def leave_seconds(self) -> float | None:
        """Until it was no longer used; None: it was to the end of the trouble."""
        used = self._used(self.broken_seconds, self.mended_seconds)
        last = used[-1] if used else self.broken_seconds
        is_left = self.mended_seconds - last > 2 * SAMPLE_SECONDS
        return last - self.broken_seconds if is_left else None

    @property
    def return_seconds(self) -> float | None:
        """Until it was used again; None: it was not."""
        used = self._used(self.mended_seconds, self.end_seconds)
        return used[0] - self.mended_seconds if used else None

    def _used(self, start: float, end: float) -> list[float]:
        least = USED_SHARE * self.usual_bytes
        return [
            sample.at_seconds
            for sample in self.samples
            if start + SAMPLE_SECONDS < sample.at_seconds <= end and sample.path_bytes[TROUBLED] >= least
        ]


def take_turn(star: Star, loss: float) -> Turn:
    """A stream through a path's trouble; raises MachineError."""
    settings = Settings(payload_bytes=1472, line_rate_bps=PATH_BPS * PATHS)
    with ExitStack() as stack:
        receiver, (sender,) = running_agents(stack, star, settings, senders=1)
        seconds = WARM_UP_SECONDS + BEFORE_SECONDS + DURING_SECONDS + AFTER_SECONDS
        start_ns = time.monotonic_ns() + 100_000_000
        command: dict[str, Any] = {
            "op": "stream",
            "size_bytes": TENSOR_BYTES,
            "in_flight": IN_FLIGHT,
            "loss_bound": 0.0,
            "until_ns": start_ns + round(seconds * 1e9),
        }
        for end in (receiver, sender):
            end.tell(json.dumps(command))
        broken = WARM_UP_SECONDS + BEFORE_SECONDS
        mended = broken + DURING_SECONDS
        losses = [(broken, loss), (mended, 0.0)]
        samples, changed = [], []
        star.report()
        while (now := (time.monotonic_ns() - start_ns) / 1e9) < seconds:
            if losses and now >= losses[0][0]:
                star.set_loss(losses.pop(0)[1], path=TROUBLED)
                changed.append((time.monotonic_ns() - start_ns) / 1e9)
            samples.append(Sample(now, tuple(star.report()["path_bytes"])))
            time.sleep(SAMPLE_SECONDS)
        answer = receiver.answer()
    completed = tuple((moment - start_ns) / 1e9 for moment in answer["completed_ns"])
    began, stopped = changed
    return Turn(tuple(samples), completed, began, stopped, seconds)


def figures(kind: str, turns: Sequence[Turn]) -> dict[str, float]:
    """Medians over the turns of one kind of trouble."""
    before = [turn.goodput_bps(WARM_UP_SECONDS, turn.broken_seconds) for turn in turns]
    during = [turn.goodput_bps(turn.broken_seconds, turn.mended_seconds) for turn in turns]
    after = [turn.goodput_bps(turn.mended_seconds, turn.end_seconds) for turn in turns]
    left = [turn.leave_seconds for turn in turns]
    returned = [turn.return_seconds for turn in turns]
    found = {
        f"{kind}_before_mbps": median(before) / 1e6,
        f"{kind}_during_mbps": median(during) / 1e6,
        f"{kind}_after_mbps": median(after) / 1e6,
        f"{kind}_during_ratio": median(now / was for now, was in zip(during, before, strict=True)),
        f"{kind}_after_ratio": median(now / was for now, was in zip(after, before, strict=True)),
    }
    for key, share, times in (("leave_ms", "left", left), ("return_ms", "returned", returned)):
        known = [value for value in times if value is not None]
        found[f"{kind}_{share}"] = len(known) / len(times)
        if known:
            found[f"{kind}_{key}"] = median(known) * 1e3
    return found


def measure(turns: int) -> dict[str, float]:
    """Both kinds in turn; raises MachineError."""
    found: dict[str, list[Turn]] = {kind: [] for kind in KINDS}
    with running_star(2, PATHS) as star:
        star.set_rate(PATH_BPS)
        star.set_queues(one_queue(QUEUE_BYTES))
        star.set_round_trip(ROUND_TRIP_SECONDS, star.round_trip_seconds())
        for number in range(turns):
            for kind, loss in KINDS.items():
                turn = take_turn(star, loss)
                found[kind].append(turn)
                click.echo(f"turn {number + 1}, {kind}: {figures(kind, [turn])}", err=True)
    return {key: value for kind, each in found.items() for key, value in figures(kind, each).items()} | {
        "turns": float(turns)
    }


@click.command()
@click.option("--quick", is_flag=True, help="One turn.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Goodput around a path's trouble, and the time to leave it and to come back."""
    try:
        found = measure(QUICK_TURNS if quick else TURNS)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
