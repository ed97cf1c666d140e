"""Training over `ltp`, beside `mlt` and TCP, where packets are lost (LTP, figures 12 to 14).

    python -m benchmarks.ltp_training [--quick] [--json]

Needs root, gcc, torch and scikit-learn. The bench of benchmarks/train_loss.py: workers in namespaces of their
own around one switch train by DistributedDataParallel, `bsp`, each of them the parameter server of its share
(`star`). All exchange by the host agent: over its transport `tcp` with the kernel's cubic, reno and bbr, over
`mlt`, and over `ltp`; the last two may leave out 20 % of a rank's gradients. They take turns of five steps.
Ports have one drop-tail queue of 128 kB for all: no switch here knows what is important.

Batch synchronization time (BST): a step less the mean step of the same workers that exchange nothing. A time
counts only beside its delivered share: what was left out is no speed. The processors carry all workers and
the switch: where cpu_load is near 1, they are the limit, not the link.

CASE is a task, and what its packets cross: pauseW_LOSS_RTT is W workers with gradients of 2.25 MB after a
pause of 20 ms, for which no processor computes; digits and textures compute for real, train until they have
learned, with five seeds or more (--quick: digits alone, bbr and ltp alone, two seeds).

    bst_ratio_to_bbr_loss0, bst_ratio_to_bbr_loss1pct
                                        mean BST of ltp over that of TCP with bbr; four workers, 0.2 ms
    throughput_ratio_to_cubic_loss1pct_rtt40ms
                                        samples/s of ltp over those of TCP with cubic; four workers
    final_accuracy_gap                  |ltp - tcp| of the mean over the seeds, the largest of the tasks; tcp
                                        is bbr, and gives every sum whole, as cubic and reno do
    accuracy_gap_CASE, ..._low, ..._high
                                        tcp less ltp, paired by seed, and Student's 95 % interval
    fair_share_mbps_CASE                of a port, for each of the flows that it carries at a time
    tcp_can_carry_mbps_CASE             1.22 · MSS / (round trip · √loss): one flow of cubic or reno, whatever
                                        the port could do

The paper's 30 times over cubic needs a fair share far above what cubic carries. At 0.2 ms and 1 % that is
700 Mbit/s, of which no port here has a part: nobody can be much faster there. At 40 ms it is 3.5 Mbit/s.

For each CASE and TRANSPORT (cubic, reno, bbr, mlt, ltp; means over seeds)

    TRANSPORT_bst_p50_ms_CASE, TRANSPORT_bst_p99_ms_CASE, TRANSPORT_samples_per_second_CASE
    TRANSPORT_delivered_share_CASE      of the elements that had to reach a sum
    and all that benchmarks/train_loss.py has for each case: TRANSPORT_communication_ms_CASE is the mean BST,
    TRANSPORT_cpu_load_CASE the processors' load, TRANSPORT_seconds_to_accuracy_CASE the time to accuracy
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Final

import click

from benchmarks.agent_network import percentile
from benchmarks.agent_rivals import CONGESTION_CONTROLS
from benchmarks.figures import print_figures
from benchmarks.ltp_loss import LOSSES, ROUND_TRIPS
from benchmarks.ltp_network import OURS, QUEUE_BYTES
from benchmarks.train_loss import case_figures
from benchmarks.train_parity import interval
from mltswitch.errors import MltswitchError
from mltswitch.lab import running_star
from mltswitch.training.bench import Case, CaseResult, Contender, Settings, load_bench_task, running_team

LOSS_BOUND: Final = 0.2
TRANSPORTS: Final = (*CONGESTION_CONTROLS, *OURS)
TCP: Final = "bbr"
"""Of the trainings whose accuracy is compared: the fastest one."""
RATE: Final[dict[int, int]] = {4: 50_000_000, 8: 20_000_000}
"""Of ports, by workers: more keeps two processors busy."""
SHORT, LONG = "rtt02ms", "rtt40ms"
KEY_CELLS: Final = ("loss0_rtt02ms", "loss1pct_rtt02ms", "loss1pct_rtt40ms")
STEPS: Final = 40
QUICK_STEPS: Final = 10
LEARNING: Final = {"digits": 200, "textures": 500}
"""Steps of a training, beyond the task's target."""
QUICK_LEARNING: Final = {"digits": 100}
LEARNING_CELL: Final = "loss1pct_rtt02ms"
SEEDS: Final = 5
QUICK_SEEDS: Final = 2

Figures = dict[str, float]


def contender(name: str) -> Contender:
    """One of TRANSPORTS."""
    if name in OURS:
        return Contender(method="mlt", options={"transport": name})
    options = {"transport": "tcp", "loss_bound": 0.0}
    return Contender(method="mlt", options=options, config={"tcp": {"congestion_control": name}})


def case_of(task: str, workers: int, cell: str) -> Case:
    """By its name, loss and round trip, as benchmarks/ltp_loss.py calls them."""
    loss, round_trip = cell.split("_")
    name = f"{task}{workers}_{cell}"
    return Case(name, RATE[workers], ROUND_TRIPS[round_trip], LOSSES[loss], QUEUE_BYTES, has_plan=False)


def trainings(
    settings: Settings, cells: Sequence[str], steps: int, transports: Sequence[str]
) -> Iterator[CaseResult]:
    """Of one team, in each cell; raises MltswitchError."""
    with running_star(settings.workers) as star:
        star.set_rate(RATE[settings.workers])
        with running_team(star, settings) as team:
            for cell in cells:
                case = case_of(settings.task, settings.workers, cell)
                contenders = {name: contender(name) for name in transports}
                found = team.run(case, steps, lambda *_: None, contenders)
                click.echo(_line(found), err=True)
                yield found


def figures(result: CaseResult) -> Figures:
    """Of one case."""
    computing = fmean(result.methods["compute"].step_seconds)
    task = load_bench_task(result.case.name.split(str(result.workers))[0])
    batch = len(next(iter(task.batches(0, 0, result.workers)))[1])
    found = {"fair_share_mbps": result.case.rate_bps / (result.workers - 1) / 1e6}
    if result.tcp_limit_bps is not None:
        found["tcp_can_carry_mbps"] = result.tcp_limit_bps / 1e6
    for name, method in result.methods.items():
        if name == "compute":
            continue
        for key, share in {"p50": 0.5, "p99": 0.99}.items():
            found[f"{name}_bst_{key}_ms"] = (percentile(method.step_seconds, share) - computing) * 1e3
        found[f"{name}_samples_per_second"] = result.workers * batch / fmean(method.step_seconds)
        found[f"{name}_delivered_share"] = method.delivered_share
    return case_figures(result) | {f"{key}_{result.case.name}": value for key, value in found.items()}


def timed(workers: int, *, quick: bool) -> Figures:
    """The fixed pause, in all cells."""
    cells = [f"{loss}_{SHORT}" for loss in LOSSES] + [f"{loss}_{LONG}" for loss in ("loss0", "loss1pct")]
    chosen = KEY_CELLS if quick else cells
    settings = Settings(workers=workers, task="pause", loss_bound=LOSS_BOUND)
    found: Figures = {}
    for result in trainings(settings, chosen, QUICK_STEPS if quick else STEPS, TRANSPORTS):
        found |= figures(result)
    return found


def learned(task: str, workers: int, steps: int, seeds: int, transports: Sequence[str]) -> Figures:
    """Real training: figures are means over the seeds."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    gaps: list[float] = []
    for seed in range(seeds):
        settings = Settings(workers=workers, task=task, loss_bound=LOSS_BOUND, seed=seed)
        [result] = trainings(settings, [LEARNING_CELL], steps, transports)
        tcp, ours = (result.methods[name].final_accuracy for name in (TCP, "ltp"))
        click.echo(f"{task}, seed {seed}: accuracy {tcp:.4f} over tcp, {ours:.4f} over ltp", err=True)
        gaps.append(tcp - ours)
        for key, value in figures(result).items():
            values[key].append(value)
    name = case_of(task, workers, LEARNING_CELL).name
    return {key: fmean(each) for key, each in values.items()} | interval(f"accuracy_gap_{name}", gaps)


def measure(*, quick: bool) -> Figures:
    """All of it; raises MltswitchError."""
    found = timed(4, quick=quick)
    gaps = []
    for task, steps in (QUICK_LEARNING if quick else LEARNING).items():
        transports = (TCP, "ltp") if quick else TRANSPORTS
        found |= learned(task, 4, steps, QUICK_SEEDS if quick else SEEDS, transports)
        gaps.append(abs(found[f"accuracy_gap_{case_of(task, 4, LEARNING_CELL).name}"]))
    if not quick:
        found |= timed(8, quick=True)

    def ratio(what: str, other: str, cell: str) -> float:
        return found[f"ltp_{what}_pause4_{cell}"] / found[f"{other}_{what}_pause4_{cell}"]

    clean, lossy, far = KEY_CELLS
    keys = {
        "bst_ratio_to_bbr_loss0": ratio("communication_ms", "bbr", clean),
        "bst_ratio_to_bbr_loss1pct": ratio("communication_ms", "bbr", lossy),
        "throughput_ratio_to_cubic_loss1pct_rtt40ms": ratio("samples_per_second", "cubic", far),
        "final_accuracy_gap": max(gaps),
    }
    return keys | found


def _line(result: CaseResult) -> str:
    parts = [
        f"{name} {result.communication_seconds(name) * 1e3:.0f} ms"
        f" ({method.delivered_share:.3f} delivered, load {fmean(method.cpu_load):.2f})"
        for name, method in result.methods.items()
        if name != "compute"
    ]
    return (
        f"{result.case.name}: mean BST {', '.join(parts)}; the link alone {result.limit_seconds * 1e3:.0f} ms"
    )


@click.command()
@click.option("--quick", is_flag=True, help="The cases of the main keys, fewer steps and seeds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Synchronization times and accuracy of training over `ltp`, beside `mlt` and TCP."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
