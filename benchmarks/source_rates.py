"""How well `completion` does for bursts that take time to arrive, beside bursts taken to come at once.

Random cells (benchmarks/cells.py) with senders as fast as the port, or 2, 4, 10 times faster, and importance
by packet or by burst; losses of 1e-3 and more against the simulator.
"""

import json
from dataclasses import replace

import click
import numpy as np

from benchmarks.cells import tuning_cells
from mltswitch.queueing import Batch, QueueTraffic, SimulationSettings, mean_burst_packets, predict

RATIOS = (1.0, 2.0, 4.0, 10.0)
LEAST_LOSS = 1e-3
SEED = 3


@click.command()
@click.option("--quick", is_flag=True, help="Fewer cells and packets.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Compare, and print medians and percentiles of predicted over simulated loss."""
    generator = np.random.default_rng(SEED)
    cells = [cell for cell in tuning_cells() if max(map(_burst, cell.traffic)) > 1]
    chosen = [cells[index] for index in generator.permutation(len(cells))[: 12 if quick else 100]]
    settings = SimulationSettings(500_000 if quick else 4_000_000)
    factors: dict[float, list[tuple[float, float]]] = {ratio: [] for ratio in RATIOS}
    for number, cell in enumerate(chosen):
        ratio = RATIOS[number % len(RATIOS)]
        importance = "packet" if generator.random() < 0.5 else "burst"
        slow = [
            replace(entry, arrivals=Batch(_burst(entry), "fixed", ratio), importance=importance)
            for entry in cell.traffic
        ]
        at_once = [replace(entry, arrivals=Batch(_burst(entry))) for entry in slow]
        simulated = predict(cell.port, slow, cell.thresholds, "simulate", simulation=settings)
        found = predict(cell.port, slow, cell.thresholds)
        plain = predict(cell.port, at_once, cell.thresholds)
        for field in ("loss_unimportant", "loss_important"):
            for referee, model, instant in zip(simulated, found, plain, strict=True):
                loss = getattr(referee, field)
                if loss >= LEAST_LOSS:
                    factors[ratio].append((getattr(model, field) / loss, getattr(instant, field) / loss))
    figures = _figures(factors)
    lines = [f"{key}: {value:.4g}" for key, value in figures.items()]
    click.echo(json.dumps(figures) if as_json else "\n".join(lines))


def _burst(offered: QueueTraffic) -> float:
    return mean_burst_packets(offered.arrivals)


def _figures(factors: dict[float, list[tuple[float, float]]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for ratio, pairs in factors.items():
        if not pairs:
            continue
        for column, name in enumerate(("completion", "at_once")):
            values = np.array([pair[column] for pair in pairs])
            key = f"ratio_{ratio:g}_{name}"
            figures[f"{key}_median"] = float(np.median(values))
            figures[f"{key}_p10"], figures[f"{key}_p90"] = (float(v) for v in np.percentile(values, [10, 90]))
            figures[f"{key}_within_factor_2"] = float(np.mean((values > 0.5) & (values < 2)))
        figures[f"ratio_{ratio:g}_comparisons"] = float(len(pairs))
    return figures


if __name__ == "__main__":
    main()
