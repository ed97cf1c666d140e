"""OSP beside BSP on real transports: what overlapping gains a training whose network is its bottleneck.

    python -m benchmarks.sync_lab [--quick] [--json]

Needs root, gcc, torch and scikit-learn; run it from the folder above `benchmarks`. Four workers and a server
of its own for each method, all in namespaces around one switch (mltswitch/lab/star.c): 100 Mbit/s a port, a
round trip of 0.2 ms, one drop-tail queue of 256 kB. Computing is a pause, exact, and all gradients (0.9 MB)
are there at its end. BSP and OSP take turns over `tcp` (cubic), `mlt` and `ltp`, all lossless, so that they
carry the same bytes. OSP tunes its share by its own times; steps until it is steady do not count.

CELL is RATIO_LOSS: T_comm / T_c is 1 or 2, and packets are lost never or at 1 %. T_comm is the step of BSP
less that of the same workers that exchange nothing; the pauses are made from the mean of three measured
before. It is below star_seconds, the topology's own figure: results go out while other pieces come in.

    osp_over_bsp_TRANSPORT          step of BSP over that of OSP, mean of both ratios, without loss
    osp_over_bsp_TRANSPORT_CELL     in each cell
    least_ratio_to_simulated_gain   the least of gain / simulated_gain, of all cells; also by transport
    simulated_gain_TRANSPORT_CELL   (T_c + T_comm) / (T_c + (1 - s) T_comm), s = min(0.8, T_c / T_comm), with
                                    the cell's own times; in virtual time it is right within 3 %
    exchange_seconds_TRANSPORT_CELL T_comm
    later_share_TRANSPORT_CELL      what OSP synchronized later in the end; the ideal is s
    ratio_TRANSPORT_CELL            T_comm / T_c as measured in the cell
    ranks_agree_TRANSPORT_CELL      1: all workers had the same bits in the end, by both methods
    cpu_load_CELL                   of all processors, which carry workers, server and switch
    real_KEY                        the same over `ltp` for a small convolutional network that computes for
                                    real, while the agents' threads need the same processors; its share
                                    grows as the loss falls, and OSP's accuracy is beside that of BSP
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

import click
import torch
from torch import nn

from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab import running_star
from mltswitch.training.axes import Network, topologies
from mltswitch.training.bench import Case, CaseResult, Contender, Settings, Team, running_team
from mltswitch.training.job import make_job
from mltswitch.training.tolerance import TrainingTask, load_task

WORKERS: Final = 4
RATE_BPS: Final = 100_000_000
ROUND_TRIP: Final = 0.2e-3
QUEUE_BYTES: Final = 256_000
TRANSPORTS: Final = ("tcp", "mlt", "ltp")
WIDTHS: Final = (64, 384, 384, 128, 10)
PIECE_BYTES: Final = 32 << 10
"""Of slices, too: 3 % of the model, so that the share that is synchronized later can be what is best."""
MOST_SHARE: Final = 0.8
RATIOS: Final = {"ratio1": 1, "ratio2": 2}
LOSSES: Final = {"loss0": 0.0, "loss1pct": 0.01}
STEPS, WARM_UP = 10, 8
QUICK_STEPS, QUICK_WARM_UP = 6, 6
REAL_STEPS: Final = 40
REAL_BATCHES: Final = 4
"""Of 16 images, in one."""

Figures = dict[str, float]


class Squares(nn.Sequential):  # type: ignore[misc]  # its base is torch's
    """Its loss needs no data, and its gradients are twice its parameters."""

    def forward(self, _batch: object) -> torch.Tensor:
        """The sum of all squares."""
        return torch.stack([parameter.square().sum() for parameter in self.parameters()]).sum()


def squares() -> TrainingTask:
    """What has gradients and costs nothing."""
    return replace(
        load_task("digits"),
        model=lambda: Squares(*[nn.Linear(*widths) for widths in pairwise(WIDTHS)]),
        batches=lambda *_: [None],
        loss=lambda model, batch: model(batch),
        metric=lambda _: 0.0,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    )


def convolutions() -> TrainingTask:
    """Digits by a network that computes about as long as its gradients take to cross."""
    task = load_task("digits")

    def model() -> nn.Module:
        images = [nn.Unflatten(1, (1, 8, 8)), nn.Upsample(scale_factor=4)]
        layers = [nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
        head = [nn.MaxPool2d(4), nn.Flatten(), nn.Linear(64 * 64, 48), nn.ReLU(), nn.Linear(48, 10)]
        return nn.Sequential(*images, *layers, *head)

    def batches(seed: int, rank: int, ranks: int) -> Iterator[Any]:
        source = iter(task.batches(seed, rank, ranks))
        while True:
            inputs, labels = zip(*(next(source) for _ in range(REAL_BATCHES)), strict=True)
            yield torch.cat(inputs), torch.cat(labels)

    optimizer = partial(torch.optim.Adam, lr=2e-3)
    return replace(task, model=model, batches=batches, optimizer=optimizer)


def contender(transport: str, synchronization: str, growth: str = "none") -> Contender:
    """One method."""
    tuned = {"growth": growth, "steps_per_epoch": 2, "slice_bytes": PIECE_BYTES}
    options = {
        "synchronization": synchronization,
        "transport": transport,
        "piece_bytes": PIECE_BYTES,
        "settings": tuned if synchronization == "osp" else {},
    }
    return Contender(method="mlt", options=options, config={"tcp": {"congestion_control": "cubic"}})


def case_of(name: str, loss: float = 0.0, pause_seconds: float = 0.0) -> Case:
    """Of the one network."""
    case = Case(name, RATE_BPS, ROUND_TRIP, loss, QUEUE_BYTES, has_plan=False)
    return replace(case, pause_seconds=pause_seconds)


def run(team: Team, case: Case, contenders: dict[str, Contender], steps: int, warm_up: int) -> CaseResult:
    """Two turns of each method."""
    return team.run(case, steps, lambda *_: None, contenders, block=steps // 2, warm_up=warm_up)


def gains(result: CaseResult, bsp: str, osp: str) -> Figures:
    """Of one pair in one cell."""
    computing = fmean(result.methods["compute"].step_seconds)
    exchange = result.communication_seconds(bsp)
    share = min(MOST_SHARE, computing / exchange)
    step_seconds = {name: fmean(result.methods[name].step_seconds) for name in (bsp, osp)}
    return {
        "osp_over_bsp": step_seconds[bsp] / step_seconds[osp],
        "simulated_gain": (computing + exchange) / (computing + (1 - share) * exchange),
        "exchange_seconds": exchange,
        "ratio": exchange / computing,
        "later_share": result.methods[osp].later_shares[-1],
        "ranks_agree": float(all(result.methods[name].ranks_agree for name in step_seconds)),
    }


def paused(*, quick: bool) -> Figures:
    """Computing by a pause, in all cells; raises MltswitchError."""
    settings = Settings(workers=WORKERS, servers=1, task=f"{__spec__.name}:squares", loss_bound=0.0)
    methods = {f"{name} {kind}": contender(name, kind) for name in TRANSPORTS for kind in ("bsp", "osp")}
    steps, warm_up = (QUICK_STEPS, QUICK_WARM_UP) if quick else (STEPS, WARM_UP)
    cells = [("ratio2", "loss0")] if quick else [(ratio, loss) for loss in LOSSES for ratio in RATIOS]
    found: Figures = {}
    with running_star(WORKERS + 1) as star:
        star.set_rate(RATE_BPS)
        with running_team(star, settings) as team:
            exchanging = {name: method for name, method in methods.items() if name.endswith("bsp")}
            alone = run(team, case_of("alone"), exchanging, 4, 2)
            seconds = fmean(map(alone.communication_seconds, exchanging))
            job = make_job([("model", alone.elements)], world=WORKERS, servers=1)
            found["star_seconds"] = topologies()["star"].seconds(job, Network(RATE_BPS, ROUND_TRIP / 2))
            for ratio, loss in cells:
                cell = f"{ratio}_{loss}"
                case = case_of(cell, LOSSES[loss], seconds / RATIOS[ratio])
                result = run(team, case, methods, steps, warm_up)
                for name in TRANSPORTS:
                    for key, value in gains(result, f"{name} bsp", f"{name} osp").items():
                        found[f"{key}_{name}_{cell}"] = value
                loads = [fmean(method.cpu_load) for method in result.methods.values()]
                found[f"cpu_load_{cell}"] = fmean(loads)
                said = ", ".join(f"{name} {found[f'osp_over_bsp_{name}_{cell}']:.3f}" for name in TRANSPORTS)
                click.echo(f"{cell}: {said}", err=True)
    keys: Figures = {}
    for name in TRANSPORTS:
        clean = [found[f"osp_over_bsp_{name}_{ratio}_{loss}"] for ratio, loss in cells if loss == "loss0"]
        keys[f"osp_over_bsp_{name}"] = fmean(clean)
    ratios = {
        name: min(
            found[f"osp_over_bsp_{name}_{ratio}_{loss}"] / found[f"simulated_gain_{name}_{ratio}_{loss}"]
            for ratio, loss in cells
        )
        for name in TRANSPORTS
    }
    keys["least_ratio_to_simulated_gain"] = min(ratios.values())
    keys |= {f"least_ratio_to_simulated_gain_{name}": ratio for name, ratio in ratios.items()}
    return keys | found


def computed() -> Figures:
    """Computing for real; raises MltswitchError."""
    settings = Settings(workers=WORKERS, servers=1, task=f"{__spec__.name}:convolutions", loss_bound=0.0)
    methods = {"bsp": contender("ltp", "bsp"), "osp": contender("ltp", "osp", growth="loss")}
    with running_star(WORKERS + 1) as star:
        star.set_rate(RATE_BPS)
        with running_team(star, settings) as team:
            result = run(team, case_of("real"), methods, REAL_STEPS, WARM_UP)
    found = gains(result, "bsp", "osp")
    found |= {f"accuracy_{name}": result.methods[name].final_accuracy for name in methods}
    return {f"real_{key}": value for key, value in found.items()}


@click.command()
@click.option("--quick", is_flag=True, help="One cell, few steps, nothing that computes for real.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """OSP over BSP on real transports."""
    try:
        found = paused(quick=quick)
        if not quick:
            found |= computed()
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
