"""How long small tensors take: the host agent beside gloo and plain TCP.

    python -m benchmarks.agent_latency [--quick] [--json]

Needs root; torch for gloo, without which its figures are absent. Two network namespaces, one veth cable,
MTU 1500, two processes. The contenders take turns, and figures are medians over the turns; ratios are
medians of the turns' own ratios. Ours goes through the public face, with TLS and without tags; memory for a
tensor is posted while the one before is on its way. `busy`: a thread at each end computes in Python all the
time.

    p50_ratio_to_gloo, p50_ratio_to_gloo_busy, p50_ratio_to_tcp
                                4 KB there and back, ours over the other
    WHO_p50_us, WHO_p99_us      of ours, gloo, tcp, and ours_busy, gloo_busy, tcp_busy
    cpu_ms_per_small_tensor     processor time for each tensor that an end sends or receives, the busier end's
    gloo_cpu_ms_per_small_tensor
    goodput_ratio_1mb_to_gloo   1 MB one way, two on their way; WHO_1mb_gbps
    bucket_ms                   200 tensors of 4 KB in one post, until the sender knows that all have arrived
    bucket_ratio_to_gloo        over gloo's 200 isend and irecv
    bucket_cpu_ms_per_tensor    as above
    turns                       how many
"""

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from benchmarks.agent_ends import (
    CONTROL_PORT,
    Worker,
    agent_fields,
    both,
    bucket,
    connect,
    new_keys,
    open_agent,
    spin,
    stream,
    there_and_back,
)
from benchmarks.agent_network import Pair, running_pair
from benchmarks.agent_rivals import (
    gloo_open,
    gloo_stream,
    gloo_there_and_back,
    has_gloo,
    tcp_accept,
    tcp_connect,
    tcp_listen,
    tcp_there_and_back,
)
from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab.star import INTERFACE

SMALL_BYTES: Final = 4096
LARGE_BYTES: Final = 1_000_000
BUCKET_TENSORS: Final = 200
IN_FLIGHT: Final = 2
LINE_RATE_BPS: Final = 100e9
TURNS: Final = 7
QUICK_TURNS: Final = 2
ROUNDS: Final = 1000
BUSY_ROUNDS: Final = 60
"""Each may wait for the interpreter's lock several times, 5 ms each."""
STREAMED: Final = 200
BUCKETS: Final = 20
WARM_UP: Final = 20

Figures = dict[str, float]


class Ends:
    """Two processes, and in each of them all contenders, connected."""

    def __init__(self, pair: Pair, caller: Worker, answerer: Worker, folder: Path) -> None:
        self._ends = caller, answerer
        self._names = {True: ("caller", "answerer"), False: ("answerer", "caller")}
        address = pair.receiver_addresses[0]
        keys = new_keys(folder, "caller", "answerer")
        addresses = {"caller": pair.sender_addresses[0], "answerer": address}
        for end, name in zip(self._ends, addresses, strict=True):
            end.call(
                open_agent,
                agent_fields(name, [addresses[name]], LINE_RATE_BPS, keys=keys[name], authenticate=False),
            )
        caller.call(connect, "caller", "answerer", f"{address}:{CONTROL_PORT}")
        answerer.call(tcp_listen, 1)
        answerer.start(tcp_accept, 1)
        caller.call(tcp_connect, 0, address)
        answerer.result()
        self.contenders = {
            "ours": partial(self._ours, there_and_back),
            "tcp": partial(both, *self._ends, tcp_there_and_back),
        }
        if has_gloo():
            both(*self._ends, gloo_open, address, INTERFACE)
            self.contenders["gloo"] = partial(both, *self._ends, gloo_there_and_back)

    def _ours(self, function: Any, *arguments: Any) -> Any:
        for is_first, end in zip((True, False), self._ends, strict=True):
            end.start(function, is_first, *self._names[is_first], *arguments)
        return [end.result() for end in self._ends]

    def latency(self, is_busy: bool, rounds: int) -> Figures:
        """Of all contenders."""
        ending = "_busy" if is_busy else ""
        for end in self._ends:
            end.call(spin, is_busy)
        found = {}
        for name, contender in self.contenders.items():
            contender(SMALL_BYTES, 2 if is_busy else WARM_UP)
            answers = contender(SMALL_BYTES, rounds)
            seconds = sorted(answers[0]["seconds"])
            for share in (50, 99):
                at = max(0, ceil(share / 100 * rounds) - 1)
                found[f"{name}{ending}_p{share}_us"] = seconds[at] * 1e6
            if not is_busy:
                found[f"{name}_cpu_ms_per_small_tensor"] = cpu_ms(answers, 2 * rounds)
        for end in self._ends:
            end.call(spin, False)
        return found

    def streams(self, count: int, buckets: int) -> Figures:
        """Of 1 MB tensors and of buckets; ours, and gloo."""
        found = {}
        ours = {
            "1mb": (stream, LARGE_BYTES, count, IN_FLIGHT),
            "bucket": (bucket, SMALL_BYTES, BUCKET_TENSORS, buckets),
        }
        for arguments in ours.values():
            self._ours(*arguments[:-1], 2) if arguments[0] is bucket else self._ours(*arguments)
        sent, _ = self._ours(*ours["1mb"])
        found["ours_1mb_gbps"] = 8 * sent["bytes"] / sent["seconds"] / 1e9
        answers = self._ours(*ours["bucket"])
        found["bucket_ms"] = median(answers[0]["seconds"]) * 1e3
        found["bucket_cpu_ms_per_tensor"] = cpu_ms(answers, buckets * BUCKET_TENSORS)
        if "gloo" in self.contenders:
            both(*self._ends, gloo_stream, LARGE_BYTES, WARM_UP, IN_FLIGHT)
            sent, _ = both(*self._ends, gloo_stream, LARGE_BYTES, count, IN_FLIGHT)
            found["gloo_1mb_gbps"] = 8 * sent["bytes"] / sent["seconds"] / 1e9
            times = [
                both(*self._ends, gloo_stream, SMALL_BYTES, BUCKET_TENSORS, BUCKET_TENSORS)[0]["seconds"]
                for _ in range(buckets)
            ]
            found["gloo_bucket_ms"] = median(times) * 1e3
        return found


def cpu_ms(answers: Sequence[dict[str, Any]], tensors: int) -> float:
    """For each tensor, at the busier end."""
    busier: float = max(answer["cpu_seconds"] for answer in answers)
    return busier / tensors * 1e3


def figures(turns: Sequence[Figures]) -> Figures:
    """Medians over the turns."""
    ratios = {
        "p50_ratio_to_gloo": ("ours_p50_us", "gloo_p50_us"),
        "p50_ratio_to_gloo_busy": ("ours_busy_p50_us", "gloo_busy_p50_us"),
        "p50_ratio_to_tcp": ("ours_p50_us", "tcp_p50_us"),
        "goodput_ratio_1mb_to_gloo": ("ours_1mb_gbps", "gloo_1mb_gbps"),
        "bucket_ratio_to_gloo": ("bucket_ms", "gloo_bucket_ms"),
    }
    found = {
        key: median(turn[ours] / turn[other] for turn in turns)
        for key, (ours, other) in ratios.items()
        if other in turns[0]
    }
    every = {key: median(turn[key] for turn in turns) for key in turns[0]}
    found["cpu_ms_per_small_tensor"] = every.pop("ours_cpu_ms_per_small_tensor")
    return found | every | {"turns": float(len(turns))}


def measure(turns: int, scale: float = 1.0) -> Figures:
    """All contenders; raises MachineError."""
    taken: dict[int, Figures] = defaultdict(dict)
    with (
        tempfile.TemporaryDirectory(prefix="mltswitch-latency-") as folder,
        running_pair() as pair,
        ExitStack() as stack,
    ):
        caller, answerer = (stack.enter_context(Worker(host)) for host in (pair.sender, pair.receiver))
        ends = Ends(pair, caller, answerer, Path(folder))
        if not has_gloo():
            click.echo("gloo is left out: torch is not installed", err=True)
        for number in range(turns):
            taken[number] |= ends.latency(False, max(10, int(ROUNDS * scale)))
            taken[number] |= ends.latency(True, max(10, int(BUSY_ROUNDS * scale)))
            taken[number] |= ends.streams(max(10, int(STREAMED * scale)), max(2, int(BUCKETS * scale)))
            click.echo(
                f"turn {number + 1}: "
                + ", ".join(f"{key} {value:.4g}" for key, value in taken[number].items()),
                err=True,
            )
    return figures(list(taken.values()))


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter turns.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Small tensors, beside gloo and TCP."""
    try:
        found = measure(QUICK_TURNS, 0.3) if quick else measure(TURNS)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
