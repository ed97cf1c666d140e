"""How fast the network simulator is, and how much memory it takes.

    python -m benchmarks.network_speed [--quick] [--json]

144 hosts of 100 Gbit/s on 9 leaves and 4 spines; 108 workers push ResNet-50, sliced over 36 servers, both
spread over all racks; each of MLT's flows has a rate of its own, for that of a pair takes much longer. A hop
is a packet sent by one port, acknowledgements included. Each transport runs in a process of its own, once
with an empty cache of machine code, then again; `first_run_seconds` and `warm_start_seconds` are the time
from the start of that process to the end of a run of one flow. `ratio_to_ns3` is of hops in a second of CPU,
where ns-3 is installed: DCTCP in a permutation of the hosts, for ns-3 cannot open a push's connections.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time, time
from typing import Any, Final

import click

from benchmarks import network_ns3
from mltswitch.app.simulated_network import ground_of
from mltswitch.documents import validate
from mltswitch.network.records import FLOW_EVENTS
from mltswitch.network.scenario import Scenario
from mltswitch.network.simulation import staged
from mltswitch.network.world import World

FABRIC: Final = {
    "leaves": 9,
    "spines": 4,
    "hosts_per_leaf": 16,
    "rate": "100Gbps",
    "delay": 3e-6,
}
"""Four cables there and four back: a round trip of 24 µs (MLT, section 6.2)."""
THRESHOLDS: Final = {"kind": "thresholds", "classes": [{"s": "64kB", "l": "256kB"}] * 4}
TRANSPORTS: Final[dict[str, Any]] = {
    "dctcp": "dctcp",
    "mlt": {"transport": {"name": "mlt", "rates": "flow"}, "switch": THRESHOLDS},
}


def measured(name: str, quick: bool) -> dict[str, float]:
    """Figures of one transport, in this process."""
    workload = {"kind": "parameter-server", "profile": "resnet50", "mapping": "sliced"}
    document = {
        "schema": "mltswitch/simulation/v1",
        "name": "speed",
        "fabric": FABRIC,
        "buffer": "512kB",
        "hosts": "in-turn",
        "workload": workload | ({"workers": 27} if quick else {"workers": 108}) | {"servers": 36},
        "transports": [TRANSPORTS[name]],
    }
    scenario = validate(document, Scenario, where="scenario")
    ground = ground_of(scenario, Path())
    play = scenario.plays[0]
    network, flows = staged(scenario, ground, play, "transports[0]", 1)
    small = World(network, flows[:1], play.transport.settings(), seed=1, spraying=play.sprays)
    while small.advance():
        pass
    ready_at = time()
    world = World(network, flows, play.transport.settings(), seed=1, spraying=play.sprays)
    begun = process_time()
    while world.advance():
        pass
    seconds = process_time() - begun
    tables = sum(world.tables[table].nbytes for table in ("flows", "words", "starts", "tasks", "followers"))
    tables += sum(table.nbytes for table in world.heaps[FLOW_EVENTS])
    return {
        "ready_at": ready_at,
        "hops": world.count("hop_count"),
        "seconds": seconds,
        "hops_per_second": world.count("hop_count") / seconds,
        "flows": len(flows),
        "bytes_per_flow": tables / len(flows),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "open_flows": len(flows) - world.count("finished"),
    }


def in_process(name: str, quick: bool, cache: str) -> dict[str, float]:
    """The same in a new process, with this folder for machine code."""
    call = [sys.executable, "-m", "benchmarks.network_speed", "--one", name, *(["--quick"] * quick)]
    started = time()
    said = subprocess.run(
        call, check=True, capture_output=True, text=True, env=os.environ | {"NUMBA_CACHE_DIR": cache}
    )
    found: dict[str, float] = json.loads(said.stdout)
    return found | {"ready_seconds": found["ready_at"] - started}


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the workers.")
@click.option("--json", "as_json", is_flag=True, help="One flat object of figures.")
@click.option("--one", type=click.Choice(tuple(TRANSPORTS)), hidden=True)
def main(quick: bool, as_json: bool, one: str | None) -> None:
    """Speed and memory of the network simulator."""
    if one is not None:
        click.echo(json.dumps(measured(one, quick)))
        return
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in TRANSPORTS:
            cold, warm = in_process(name, quick, cache), in_process(name, quick, cache)
            figures.setdefault("first_run_seconds", cold["ready_seconds"])
            figures[f"hops_per_second_{name}"] = max(cold["hops_per_second"], warm["hops_per_second"])
            figures[f"hops_{name}"] = warm["hops"]
            figures[f"open_flows_{name}"] = warm["open_flows"]
            for figure in ("bytes_per_flow", "peak_mb"):
                figures[figure] = max(figures.get(figure, 0.0), warm[figure])
            figures["warm_start_seconds"] = max(figures.get("warm_start_seconds", 0.0), warm["ready_seconds"])
        binary = network_ns3.program(Path(cache))
        if binary is None:
            click.echo(f"ratio_to_ns3 is left out: {network_ns3.MISSING}", err=True)
        else:
            figures |= network_ns3.speeds(binary)
    if as_json:
        click.echo(json.dumps(figures))
        return
    for name, value in figures.items():
        click.echo(f"{name}: {value:,.4g} (measured)")


if __name__ == "__main__":
    main()
