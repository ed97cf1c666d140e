"""Whether what a loss bound leaves out is spread evenly, and what training makes of it.

    python -m benchmarks.agent_missing [--burst N] [--quick] [--json]

Needs root and gcc. Two hosts on mltswitch/lab/star.c, 1 Gbit/s, random loss both ways; one tensor of
new random float32 a round by the public face with its defaults and a loss bound of 10 %. SIZE is 25mb or
1mb (1.2 MB), CASE loss0, loss1pct or loss20pct. Elements are missing by whole packets.

    missing_share_loss0                     of the elements, all rounds of both sizes: loss buys nothing there
    largest_share_of_rounds_an_element_missed
                                            of 25 MB at 20 %
    largest_over_mean_SIZE_CASE             the same over the mean share, and what it would be if each packet
    largest_over_mean_by_chance_SIZE_CASE   of each round were missing by lot: of thousands some often are
    largest_slice_over_mean_SIZE_CASE       of a hundred slices of the tensor
    last_over_first_quarter_SIZE_CASE       missing share of the tensor's last quarter over its first
    missing_share_SIZE_CASE, important_missing_share_SIZE_CASE, rounds
    seconds_SIZE_CASE                       median of a round
    sent_over_needed_SIZE_CASE              packets sent, over those of the tensors

Digits (scikit-learn's data, read without importing it; left out where it is not installed): two layers
trained by numpy, gradients pushed to a server by one tensor a step with bound 10 %, at 20 % loss and at
none; lossless is the same without a network. Means over the seeds, which set weights and order.

    accuracy_lossless, accuracy_bound10_CASE, digits_missing_share_CASE, seeds
    accuracy_difference_CASE                lossless less the bound's
"""

import gzip
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median
from typing import Final

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.agent_ends import CONTROL_PORT, agent_fields, agents, connect, open_agent, post
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab import Star, one_queue, running_star

RATE_BPS: Final = 1_000_000_000
QUEUE_BYTES: Final = 512_000
LOSS_BOUND: Final = 0.1
LOSSES: Final = {"loss0": 0.0, "loss1pct": 0.01, "loss20pct": 0.2}
SIZES: Final = {"25mb": 25_000_000, "1mb": 1_200_000}
ROUNDS: Final = 30
QUICK_ROUNDS: Final = 8
SEEDS: Final = 5
QUICK_SEEDS: Final = 1
SLICES: Final = 100
HIDDEN: Final = 512
EPOCHS: Final = 12
BATCH: Final = 64
LEARNING_RATE: Final = 0.1
TRAINED: Final = 1437
"""Of 1,797 digits; the others are for the test."""

Figures = dict[str, float]
Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Round:
    """One tensor."""

    arrived: NDArray[np.bool_]
    important_missing_share: float
    seconds: float
    packets_sent: int


def exchange(gradient: Vector, buffer: Vector, loss_bound: float, slot: int = 0) -> Round:
    """Push a tensor from the worker to the server."""
    receive = post("server", "worker", buffer, sends=False, slot=slot, loss_bound=loss_bound)
    send = post("worker", "server", gradient, sends=True, slot=slot)
    received, sent = receive.wait(), send.wait()
    important = sent.statistics.important_packets or 0
    arrived = received.statistics.important_received or 0
    return Round(
        received.arrived,
        1 - arrived / important if important else 0.0,
        received.statistics.seconds,
        sent.statistics.packets_sent,
    )


def spread(rounds: list[Round]) -> Figures:
    """Of one size at one loss."""
    missing = ~np.array([entry.arrived for entry in rounds])
    by_packet, mean = missing.mean(axis=0), float(missing.mean())
    quarter = max(1, missing.shape[1] // 4)
    first, last = float(by_packet[:quarter].mean()), float(by_packet[-quarter:].mean())
    drawn = np.random.default_rng(0).binomial(len(rounds), mean, (200, missing.shape[1])).max(axis=1)
    found = {
        "missing_share": mean,
        "important_missing_share": fmean(entry.important_missing_share for entry in rounds),
        "largest_share_missed": float(by_packet.max()),
        "seconds": median(entry.seconds for entry in rounds),
        "sent_over_needed": sum(entry.packets_sent for entry in rounds) / missing.size,
    }
    if mean:
        found["largest_over_mean"] = found["largest_share_missed"] / mean
        found["largest_over_mean_by_chance"] = float(np.median(drawn)) / len(rounds) / mean
        slices = [float(part.mean()) for part in np.array_split(by_packet, min(SLICES, by_packet.size))]
        found["largest_slice_over_mean"] = max(slices) / mean
    if first:
        found["last_over_first_quarter"] = last / first
    return found


def even(star: Star, count: int, sizes: dict[str, int]) -> Figures:
    """Every size at every loss."""
    found: Figures = {"rounds": float(count)}
    lossless: list[float] = []
    for case, loss in LOSSES.items():
        star.set_loss(loss)
        for size, size_bytes in sizes.items():
            random = np.random.default_rng(1)
            pool = random.standard_normal(size_bytes // 2, dtype=np.float32)
            buffer = np.empty(size_bytes // 4, np.float32)
            rounds = []
            for _ in range(count):
                start = int(random.integers(len(pool) - len(buffer)))
                rounds.append(exchange(pool[start : start + len(buffer)], buffer, LOSS_BOUND))
            figures = spread(rounds)
            if not loss:
                lossless.append(figures["missing_share"])
            found |= {f"{key}_{size}_{case}": value for key, value in figures.items()}
            click.echo(f"{size}, {case}: {figures}", err=True)
    star.set_loss(0.0)
    largest = next(
        key for key in found if key.endswith(f"{next(iter(sizes))}_loss20pct") and "largest_share" in key
    )
    return {
        "missing_share_loss0": fmean(lossless),
        "largest_share_of_rounds_an_element_missed": found[largest],
    } | found


def digits() -> tuple[Vector, NDArray[np.int64]] | None:
    """Pictures of 64 numbers from 0 to 1, and what they show; None without scikit-learn."""
    place = find_spec("sklearn")
    if place is None or place.origin is None:
        return None
    with gzip.open(Path(place.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    pictures: Vector = table[:, :64] / np.float32(16)
    return pictures, table[:, 64].astype(np.int64)


Push = Callable[[Vector], Vector]
"""A gradient → what the server has of it."""


def trained_accuracy(pictures: Vector, labels: NDArray[np.int64], seed: int, push: Push) -> float:
    """Of two layers on the test digits, after training with gradients that went through `push`."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(labels))
    train, test = order[:TRAINED], order[TRAINED:]
    shapes = ((64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,))
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    weights = np.zeros(ends[-1], np.float32)
    first, bias, second, last = (
        part.reshape(shape) for part, shape in zip(np.split(weights, ends[:-1]), shapes, strict=True)
    )
    first += random.standard_normal(first.shape, dtype=np.float32) / 8
    second += random.standard_normal(second.shape, dtype=np.float32) / np.sqrt(HIDDEN, dtype=np.float32)
    for _ in range(EPOCHS):
        for at in np.split(random.permutation(train), range(BATCH, TRAINED, BATCH)):
            hidden = np.maximum(pictures[at] @ first + bias, 0)
            scores = np.exp(hidden @ second + last)
            errors = scores / scores.sum(axis=1, keepdims=True)
            errors[np.arange(len(at)), labels[at]] -= 1
            errors /= len(at)
            back = (errors @ second.T) * (hidden > 0)
            parts = (pictures[at].T @ back, back.sum(axis=0), hidden.T @ errors, errors.sum(axis=0))
            weights -= LEARNING_RATE * push(np.concatenate([part.ravel() for part in parts]))
    chosen = (np.maximum(pictures[test] @ first + bias, 0) @ second + last).argmax(axis=1)
    return float((chosen == labels[test]).mean())


def training(star: Star, seeds: int) -> Figures:
    """Accuracy without a bound, and with one at two losses."""
    data = digits()
    if data is None:
        click.echo("digits are left out: scikit-learn is not installed", err=True)
        return {}
    buffer: Vector = np.empty(0, np.float32)
    missing: list[float] = []

    def push(gradient: Vector) -> Vector:
        nonlocal buffer
        if buffer.size != gradient.size:
            buffer = np.empty_like(gradient)
        missing.append(1 - float(exchange(gradient, buffer, LOSS_BOUND, slot=1).arrived.mean()))
        return buffer

    lossless = [trained_accuracy(*data, seed, lambda gradient: gradient) for seed in range(seeds)]
    found = {"accuracy_lossless": fmean(lossless), "seeds": float(seeds)}
    for case in ("loss0", "loss20pct"):
        star.set_loss(LOSSES[case])
        missing.clear()
        accuracy = fmean(trained_accuracy(*data, seed, push) for seed in range(seeds))
        found[f"accuracy_bound10_{case}"] = accuracy
        found[f"accuracy_difference_{case}"] = found["accuracy_lossless"] - accuracy
        found[f"digits_missing_share_{case}"] = fmean(missing)
    return found


def measure(
    rounds: int, seeds: int, sizes: dict[str, int] | None = None, burst_packets: int | None = None
) -> Figures:
    """Everything; raises MachineError, AgentError."""
    with running_star(2) as star, ExitStack() as stack:
        star.set_rate(RATE_BPS)
        star.set_queues(one_queue(QUEUE_BYTES))
        for number, name in enumerate(("worker", "server")):
            more = {"queue": QUEUE_BYTES, "burst_packets": burst_packets}
            fields = agent_fields(name, star.addresses(number), RATE_BPS, **more)
            open_agent(fields, star.hosts[number])
            stack.callback(agents[name].close)
        connect("worker", "server", f"{star.addresses(1)[0]}:{CONTROL_PORT}")
        return even(star, rounds, sizes or SIZES) | training(star, seeds)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer rounds and seeds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--burst", type=int, help="Packets that share a path and a DSCP/ECN byte; else the default.")
def main(quick: bool, as_json: bool, burst: int | None) -> None:
    """What a loss bound leaves out."""
    try:
        rounds, seeds = (QUICK_ROUNDS, QUICK_SEEDS) if quick else (ROUNDS, SEEDS)
        found = measure(rounds, seeds, burst_packets=burst)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
