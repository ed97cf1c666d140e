"""Links that change, measured by the gradients of real agents: nine namespaces of the WAN lab.

    python -m benchmarks.geo_links [--quick] [--json]

Needs root, gcc, networkx. `netstorm9` at a SCALE, drawn anew every 18 s; ranks exchange what a MobileNet
would at that scale, by `tcp` under the topology `fapt`, a fixed number of steps, with measuring and without.
What rank 0 has heard of each link is held against its rate at that time.

    rate_error_median, rate_error_p90   share by which figures are off what TCP can carry on a link: 1448 of
                                        the 1514 bytes of a packet are elements
    change_noticed_seconds_p50, …_p90   from a change to the first figure within a tenth of the new rate
    updates_seconds                     between looks at what has arrived
    awareness_gain                      step time without measuring over that with it
    step_seconds, step_seconds_without
    changes, versions                   draws in the run, and routes that were bound
    versions_mixed_in_a_step            steps whose routes differ between ranks
    results_wrong                       results that are not the mean
"""

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
import numpy as np

from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.hostagent import AgentConfig, Group
from mltswitch.lab.wan import WanNetwork, agent_fields, running_wan
from mltswitch.overlay.wan import Wan, known_wan
from mltswitch.training.agents import AgentNode
from mltswitch.training.job import Job, make_job

SCALE: Final = 10
ELEMENTS: Final = 4_231_976 // SCALE**2
LAYERS: Final = 8
UPDATE_SECONDS: Final = 0.5
STEPS, QUICK_STEPS = 300, 80
NEAR: Final = 0.1
TCP_SHARE: Final = 1448 / 1514
PORT: Final = 20_801
Ends = tuple[int, int]


def job_of(wan: Wan, update_seconds: float) -> Job:
    """Over all sites."""
    settings = {
        "overlay": wan.overlay().model_dump(mode="json", by_alias=True),
        "update_seconds": update_seconds,
        "probe_bytes": 2_000_000 // SCALE**2,
    }
    return make_job(
        [(f"layer-{number}", ELEMENTS // LAYERS) for number in range(LAYERS)],
        world=len(wan.nodes),
        topology="fapt",
        topology_settings=settings,
        transport="tcp",
        piece_bytes=4_000,
        deadline_seconds=120.0,
        check_every=0,
    )


def work(rank: int, folder: Path, steps: int, update_seconds: float) -> None:
    """One rank, in its namespace: a line for each step, with what it has heard of links."""
    wan = Wan.model_validate_json((folder / "wan.json").read_text(encoding="utf-8"))
    job = job_of(wan, update_seconds)
    fields = json.loads((folder / f"{rank}.json").read_text(encoding="utf-8"))
    with Group(rank, job.world, f"file://{folder}/{update_seconds}", config=AgentConfig(**fields)) as group:
        node = AgentNode(job, rank, group.agent, group.names)
        vectors = np.zeros((2, 2, job.elements), np.float32)
        for step in range(steps):
            own, result = vectors[step % 2]
            own[:] = rank + step
            node.ready(step, range(len(job.pieces)), own, result)
            node.computed(step, 0.0, 0.0, own, result)
            node.wait(step)
            changes = node.node.changes
            told = {} if changes is None or rank else {**changes.measured}
            line = {
                "at": time.monotonic(),
                "version": node.node.version_of(step),
                "is_right": bool((result == step + (job.world - 1) / 2).all()),
                "rates": [[*ends, *figure] for ends, figure in told.items()],
            }
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        node.close()


@dataclass(frozen=True, slots=True)
class Run:
    """What became of all steps."""

    lines: Sequence[Sequence[Mapping[str, Any]]]
    """Of each rank, one a step."""
    drawn_seconds: Sequence[float]
    """When each draw began."""
    wan: Wan

    @property
    def step_seconds(self) -> float:
        """Mean, but for the first."""
        own = self.lines[0]
        return float(own[-1]["at"] - own[0]["at"]) / (len(own) - 1)

    def told(self) -> Mapping[Ends, list[tuple[float, int, float]]]:
        """Of each link, figures that rank 0 has heard: when, under which draw, and over the true rate."""
        rates = [self._rates(draw) for draw in range(len(self.drawn_seconds))]
        found: defaultdict[Ends, dict[float, tuple[float, int, float]]] = defaultdict(dict)
        for line in self.lines[0]:
            for source, target, bps, at_ns in line["rates"]:
                at = at_ns / 1e9
                draw = max(0, int(np.searchsorted(self.drawn_seconds, at)) - 1)
                found[source, target][at] = at, draw, bps / (TCP_SHARE * rates[draw][source, target])
        return {ends: [*each.values()] for ends, each in found.items()}

    def _rates(self, draw: int) -> Mapping[Ends, int]:
        places = {name: rank for rank, name in enumerate(self.wan.nodes)}
        links = self.wan.overlay(draw).links
        return {(places[link.source], places[link.target]): link.rate_bps for link in links}

    def noticed_seconds(self) -> list[float]:
        """Of each change, and each link that is measured before the next one."""
        found = []
        for figures in self.told().values():
            for draw in range(1, len(self.drawn_seconds)):
                near = [at for at, which, ratio in figures if which == draw and abs(ratio - 1) <= NEAR]
                if near:
                    found.append(near[0] - self.drawn_seconds[draw])
        return found


def train(wan: Wan, folder: Path, steps: int, update_seconds: float) -> Run:
    """Raises MltswitchError."""
    assert wan.changes is not None, "its links change"  # noqa: S101
    lines: list[list[Mapping[str, Any]]] = [[] for _ in wan.nodes]
    with running_wan(wan) as network:
        command = [sys.executable, "-m", "benchmarks.geo_links", "--folder", str(folder)]
        options = ["--steps", str(steps), "--update-seconds", str(update_seconds)]
        for rank in range(len(wan.nodes)):
            address = network.addresses(rank)[0]
            fields = agent_fields(address, PORT, wan.most_bps())
            (folder / f"{rank}.json").write_text(json.dumps(fields), encoding="utf-8")
        processes = [
            network.start(rank, [*command, "--rank", str(rank), *options]) for rank in range(len(lines))
        ]

        def read(rank: int) -> None:
            lines[rank] += [processes[rank].answer() for _ in range(steps)]

        readers = [threading.Thread(target=read, args=(rank,), daemon=True) for rank in range(len(lines))]
        try:
            for reader in readers:
                reader.start()
            drawn_seconds = _change(network, wan.changes.every_seconds, readers)
        finally:
            for process in processes:
                process.__exit__()
    return Run(lines, drawn_seconds, wan)


def _change(network: WanNetwork, every_seconds: float, readers: Sequence[threading.Thread]) -> list[float]:
    found = [time.monotonic()]
    while any(reader.is_alive() for reader in readers):
        readers[0].join(max(0.0, found[-1] + every_seconds - time.monotonic()))
        if readers[0].is_alive():
            found.append(time.monotonic())
            network.draw(len(found) - 1)
        else:
            for reader in readers:
                reader.join()
    return found


def measure(*, quick: bool) -> dict[str, float]:
    """All figures; raises MltswitchError."""
    wan, steps = known_wan("netstorm9").scaled(SCALE), QUICK_STEPS if quick else STEPS
    with TemporaryDirectory(prefix="mltswitch-geo-") as name:
        folder = Path(name)
        (folder / "wan.json").write_text(wan.model_dump_json(by_alias=True), encoding="utf-8")
        aware, without = (train(wan, folder, steps, seconds) for seconds in (UPDATE_SECONDS, 0.0))
    errors = [abs(ratio - 1) for figures in aware.told().values() for _, _, ratio in figures]
    noticed = aware.noticed_seconds()
    versions = [{line["version"] for line in step} for step in zip(*aware.lines, strict=True)]
    return {
        "rate_error_median": median(errors),
        "rate_error_p90": float(np.percentile(errors, 90)),
        "change_noticed_seconds_p50": median(noticed),
        "change_noticed_seconds_p90": float(np.percentile(noticed, 90)),
        "updates_seconds": UPDATE_SECONDS,
        "awareness_gain": without.step_seconds / aware.step_seconds,
        "step_seconds": aware.step_seconds,
        "step_seconds_without": without.step_seconds,
        "changes": float(len(aware.drawn_seconds) - 1),
        "versions": float(len(set.union(*versions))),
        "versions_mixed_in_a_step": float(sum(len(each) > 1 for each in versions)),
        "results_wrong": float(
            sum(not line["is_right"] for run in (aware, without) for own in run.lines for line in own)
        ),
    }


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="A quarter of the steps.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--rank", type=int, hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
@click.option("--steps", type=int, default=0, hidden=True)
@click.option("--update-seconds", type=float, default=0.0, hidden=True)
def main(
    quick: bool, as_json: bool, rank: int | None, folder: Path | None, steps: int, update_seconds: float
) -> None:
    """The benchmark, or one of its ranks."""
    if rank is not None and folder is not None:
        work(rank, folder, steps, update_seconds)
        return
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
