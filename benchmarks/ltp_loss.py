"""One sender over delay and random loss: goodput of `ltp` beside `mlt` and TCP (LTP, figure 4).

    python -m benchmarks.ltp_loss [--quick] [--json]

Needs root and gcc. The star of benchmarks/ltp_network.py with one sender; 4 MB (2 MB with --quick), loss
bound 0, so everything is delivered by everybody. The transports take turns, tensor by tensor, over
connections that stay open; one round that does not count comes first in each cell, and each round trip has
a network of its own. Goodput is the tensor's bits over the time from the post to the last byte's arrival,
the median of the rounds. Random loss takes any packet, either way.

    ratio_to_cubic_loss1pct_rtt40ms     goodput of ltp over cubic's
    least_ratio_to_bbr                  over the kernel's BBR, in the worst cell
    ratio_to_limit_loss0_rtt2ms         over the port's rate
    reverse_share                       bytes of IP packets that the receiver's host sends over those that
                                        the sender's host sends, by ltp, in the worst cell

and for each CELL, as loss1pct_rtt40ms (loss0, loss001pct, loss01pct, loss05pct, loss1pct; rtt02ms, rtt2ms,
rtt10ms, rtt40ms)

    TRANSPORT_mbps_CELL                 cubic, reno, bbr, mlt, ltp
    ratio_to_bbr_CELL, reverse_share_CELL
    resent_share_CELL, needless_share_CELL
                                        packets that ltp sent again over the tensor's, and those of them
                                        that had only been late
"""

from collections import defaultdict
from statistics import fmean, median
from typing import Final

import click

from benchmarks.agent_ends import bytes_out, heard
from benchmarks.agent_network import RECEIVER, StarEnds, sender_name
from benchmarks.figures import print_figures
from benchmarks.ltp_network import OURS, in_turn, limit_seconds, running_ltp
from mltswitch.errors import MltswitchError
from mltswitch.lab.star import INTERFACE

LOSSES: Final = {"loss0": 0.0, "loss001pct": 1e-4, "loss01pct": 1e-3, "loss05pct": 5e-3, "loss1pct": 1e-2}
ROUND_TRIPS: Final = {"rtt02ms": 0.2e-3, "rtt2ms": 2e-3, "rtt10ms": 10e-3, "rtt40ms": 40e-3}
QUICK_CELLS: Final = ("loss1pct_rtt02ms", "loss0_rtt2ms", "loss01pct_rtt10ms", "loss1pct_rtt40ms")
TRANSPORTS: Final = ("cubic", "reno", "bbr", *OURS)
SIZE_BYTES: Final = 4_000_000
ROUNDS: Final = 5
QUICK_SIZE_BYTES: Final = 2_000_000
QUICK_ROUNDS: Final = 3

Figures = dict[str, float]


def one_cell(ends: StarEnds, size_bytes: int, rounds: int) -> Figures:
    """All transports in turn: figures by the first part of their keys."""
    mbps: defaultdict[str, list[float]] = defaultdict(list)
    shares: defaultdict[str, list[float]] = defaultdict(list)
    sent_bytes = [0, 0]
    for number, name in in_turn(TRANSPORTS, rounds + 1):
        before = [end.call(bytes_out, INTERFACE) for end in (ends.senders, ends.receiver)]
        found = ends.flows(name, size_bytes)
        after = [end.call(bytes_out, INTERFACE) for end in (ends.senders, ends.receiver)]
        if not number:
            continue
        mbps[f"{name}_mbps"].append(size_bytes * 8 / found.seconds[0] / 1e6)
        if name == "ltp":
            sent_bytes = [sum(each) - first for *each, first in zip(sent_bytes, after, before, strict=True)]
            for key in ("resent", "needless"):
                shares[f"{key}_share"].append(found.told[f"packets_{key}"][0] / found.told["packets"][0])
    told = ends.senders.call(heard, sender_name(0), RECEIVER, "ltp")
    click.echo(f"ltp has heard {told}; its goodputs {mbps['ltp_mbps']}, bbr's {mbps['bbr_mbps']}", err=True)
    goodput = {key: median(values) for key, values in mbps.items()}
    return goodput | {
        "ratio_to_bbr": goodput["ltp_mbps"] / goodput["bbr_mbps"],
        "reverse_share": sent_bytes[1] / sent_bytes[0],
        **{key: fmean(values) for key, values in shares.items()},
    }


def figures(cells: dict[str, Figures], size_bytes: int) -> Figures:
    """The main ones, and each cell's."""
    lossy, clean = cells["loss1pct_rtt40ms"], cells["loss0_rtt2ms"]
    limit_mbps = size_bytes * 8 / limit_seconds(size_bytes) / 1e6
    return {
        "ratio_to_cubic_loss1pct_rtt40ms": lossy["ltp_mbps"] / lossy["cubic_mbps"],
        "least_ratio_to_bbr": min(found["ratio_to_bbr"] for found in cells.values()),
        "ratio_to_limit_loss0_rtt2ms": clean["ltp_mbps"] / limit_mbps,
        "reverse_share": max(found["reverse_share"] for found in cells.values()),
    } | {f"{key}_{cell}": value for cell, found in cells.items() for key, value in found.items()}


def measure(*, quick: bool) -> Figures:
    """All cells, or those behind the main keys and two more; raises MachineError."""
    size_bytes, rounds = (QUICK_SIZE_BYTES, QUICK_ROUNDS) if quick else (SIZE_BYTES, ROUNDS)
    cells = {}
    for round_trip, seconds in ROUND_TRIPS.items():
        with running_ltp(1, seconds) as ends:
            for loss, probability in LOSSES.items():
                cell = f"{loss}_{round_trip}"
                if quick and cell not in QUICK_CELLS:
                    continue
                ends.star.set_loss(probability)
                cells[cell] = one_cell(ends, size_bytes, rounds)
                click.echo(f"{cell}: {cells[cell]}", err=True)
    return figures(cells, size_bytes)


@click.command()
@click.option("--quick", is_flag=True, help="The cells of the main keys and two more, 2 MB, fewer rounds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Goodput over delay and random loss."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
