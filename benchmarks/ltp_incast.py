"""Eight senders at once to one receiver, over `ltp`'s gather, over `mlt` and over TCP (LTP, figures 3, 14).

    python -m benchmarks.ltp_incast [--quick] [--json]

Needs root and gcc. The star of benchmarks/ltp_network.py, a fresh one for each case; 1 MB from each of eight
senders that begin at the same instant; what counts is when the last of them has ended. cubic and bbr deliver
everything, mlt and ltp may leave out 20 %: mlt by its own rule, ltp by a gather of the eight with the
settings' defaults, which decides when that is worth it. The transports take turns, incast by incast, and the
first ones do not count. p99 is the nearest rank, with these numbers of rounds the longest.

CASE is loss0 and loss1pct (round trip 0.2 ms) and loss1pct_rtt40ms; random loss takes any packet, either way.

    last_p99_ratio_to_bbr_loss0         time of the last flow, ltp over the kernel's BBR
    last_p99_ratio_to_limit_loss1pct    over all bytes through the port's rate
    last_p99_ratio_to_cubic_loss1pct_rtt40ms
    delivered_share_loss0, delivered_share_loss1pct
                                        of the tensors' packets at ltp's completions
    slowed_last_ratio_to_waiting        in one round of twenty a random sender may send a fifth of its share;
                                        loss bound 0.9. Time of the last flow in such rounds, by a gather,
                                        over that when all is waited for: the means of either
    slowed_last_ms, slowed_waiting_ms   these means
    slowed_delivered_share              of the slowed sender's packets, by the gather
    slowed_others_p50_ms, slowed_others_max_ms
                                        the last flow in the other rounds, by the gather
    limit_ms

and for each TRANSPORT (cubic, bbr, mlt, ltp) and CASE

    TRANSPORT_CASE_last_p50_ms, _last_p99_ms, _delivered_share
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from statistics import fmean, median
from typing import Any, Final

import click

from benchmarks.agent_ends import heard, set_cap
from benchmarks.agent_network import RECEIVER, Flows, StarEnds, percentile, sender_name
from benchmarks.figures import print_figures
from benchmarks.ltp_network import OURS, RATE_BPS, in_turn, limit_seconds, running_ltp
from mltswitch.errors import MltswitchError

SENDERS: Final = 8
SIZE_BYTES: Final = 1_000_000
LIMIT_SECONDS: Final = limit_seconds(SENDERS * SIZE_BYTES)
TRANSPORTS: Final = ("cubic", "bbr", *OURS)
LOSS_BOUND: Final = 0.2
RECEIVES: Final[Mapping[str, dict[str, Any]]] = {
    "mlt": {"loss_bound": LOSS_BOUND},
    "ltp": {"loss_bound": LOSS_BOUND, "gather": {}},
}
WARM_UP: Final = 2
ROUNDS: Final = 40
QUICK_ROUNDS: Final = 8

SLOWED_LOSS_BOUND: Final = 0.9
SLOWED_BPS: Final = RATE_BPS / SENDERS / 5
SLOWED_EVERY: Final = 20
"""Rounds; so many also come before, in which nobody is slow and LT is learned."""
SLOWED: Final = 10
QUICK_SLOWED: Final = 2
SEED: Final = 1

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Case:
    """What the eight tensors cross."""

    name: str
    round_trip_seconds: float
    loss: float


CASES: Final = (
    Case("loss0", 0.2e-3, 0.0),
    Case("loss1pct", 0.2e-3, 1e-2),
    Case("loss1pct_rtt40ms", 40e-3, 1e-2),
)


def explain(ends: StarEnds, found: Flows) -> None:
    """For the reader of a figure that is short: what the slowest flow of ltp was, and what it had heard."""
    slowest = max(range(SENDERS), key=lambda number: found.seconds[number])
    told = {key: values[slowest] for key, values in found.told.items() if key != "ended_ns"}
    network = ends.senders.call(heard, sender_name(slowest), RECEIVER, "ltp")
    click.echo(f"ltp, slowest in {found.seconds[slowest] * 1e3:.0f} ms: {told} {network}", err=True)


def one_case(case: Case, rounds: int) -> Figures:
    """All transports in turn."""
    lasts: defaultdict[str, list[float]] = defaultdict(list)
    missing: defaultdict[str, list[float]] = defaultdict(list)
    endings: Counter[str] = Counter()
    with running_ltp(SENDERS, case.round_trip_seconds, case.loss) as ends:
        for number, name in in_turn(TRANSPORTS, WARM_UP + rounds):
            found = ends.flows(name, SIZE_BYTES, **RECEIVES.get(name, {}))
            if number < WARM_UP:
                continue
            if name == "ltp":
                endings.update(found.told["ending"])
                if max(found.seconds) > max(lasts[name], default=0.0):
                    explain(ends, found)
            lasts[name].append(max(found.seconds))
            missing[name] += found.missing
    click.echo(f"{case.name}: ltp ended by {dict(endings)}", err=True)
    figures = {}
    for name in TRANSPORTS:
        figures[f"{name}_{case.name}_last_p50_ms"] = median(lasts[name]) * 1e3
        figures[f"{name}_{case.name}_last_p99_ms"] = percentile(lasts[name], 0.99) * 1e3
        figures[f"{name}_{case.name}_delivered_share"] = 1 - fmean(missing[name])
    click.echo(f"{case.name}: {figures}", err=True)
    return figures


def slowed(blocks: int) -> Figures:
    """So many times twenty rounds, one of which has a slow sender."""
    random = Random(SEED)  # noqa: S311  (no secret)
    lasts: list[float] = []
    waited: list[float] = []
    others: list[float] = []
    delivered: list[float] = []
    with running_ltp(SENDERS, CASES[0].round_trip_seconds) as ends:

        def last(**of_receives: Any) -> tuple[float, Flows]:
            found = ends.flows("ltp", SIZE_BYTES, **of_receives)
            return max(found.seconds), found

        for block in range(1 + blocks):
            slow_round, sender = random.randrange(SLOWED_EVERY), random.randrange(SENDERS)
            for number in range(SLOWED_EVERY):
                is_slow = block > 0 and number == slow_round
                if is_slow:
                    ends.senders.call(set_cap, sender_name(sender), RECEIVER, "ltp", SLOWED_BPS)
                seconds, found = last(loss_bound=SLOWED_LOSS_BOUND, gather={})
                if is_slow:
                    explain(ends, found)
                    lasts.append(seconds)
                    delivered.append(1 - found.missing[sender])
                    waited.append(last(loss_bound=0.0)[0])
                    ends.senders.call(set_cap, sender_name(sender), RECEIVER, "ltp", None)
                elif block > 0:
                    others.append(seconds)
    return {
        "slowed_last_ratio_to_waiting": fmean(lasts) / fmean(waited),
        "slowed_last_ms": fmean(lasts) * 1e3,
        "slowed_waiting_ms": fmean(waited) * 1e3,
        "slowed_delivered_share": fmean(delivered),
        "slowed_others_p50_ms": median(others) * 1e3,
        "slowed_others_max_ms": max(others) * 1e3,
    }


def measure(*, quick: bool) -> Figures:
    """All cases; raises MachineError."""
    found: Figures = {}
    for case in CASES:
        found |= one_case(case, QUICK_ROUNDS if quick else ROUNDS)
    slow = slowed(QUICK_SLOWED if quick else SLOWED)

    def p99_ratio(case: str, other: str) -> float:
        return found[f"ltp_{case}_last_p99_ms"] / found[f"{other}_{case}_last_p99_ms"]

    return {
        "last_p99_ratio_to_bbr_loss0": p99_ratio("loss0", "bbr"),
        "last_p99_ratio_to_limit_loss1pct": found["ltp_loss1pct_last_p99_ms"] / LIMIT_SECONDS / 1e3,
        "last_p99_ratio_to_cubic_loss1pct_rtt40ms": p99_ratio("loss1pct_rtt40ms", "cubic"),
        "delivered_share_loss0": found["ltp_loss0_delivered_share"],
        "delivered_share_loss1pct": found["ltp_loss1pct_delivered_share"],
        **slow,
        "limit_ms": LIMIT_SECONDS * 1e3,
        **found,
    }


@click.command()
@click.option("--quick", is_flag=True, help="Fewer rounds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """The last of eight flows, and what a slow sender costs."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
