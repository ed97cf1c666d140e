"""The network simulator beside ns-3: the same flows over the same paths, packet by packet.

    python -m benchmarks.network_ns3 [--quick] [--json]

It needs `pip install ns3` (or `--target` a folder of PYTHONPATH) and g++: network_ns3.cc is compiled against
that package. Equal in both: packets are 1,502 B on the line (1,460 B of data, and IP, TCP and PPP),
acknowledgements 42 B; connections are open before flows start; initial window 10, RTOmin 10 ms, no SACK, no
timestamps, no delayed acknowledgements, no limited transmit; acknowledgements go before data at a host, and a
queue has what waits without the packet on the line.

`loss_gap` and `mark_gap` are of bursts of datagrams in two classes, through RED queues below PRIO and through
`thresholds`; `fct_mean_gap` and `fct_p99_gap` the largest over transports and scenarios, of the flows of all
seeds together. DCTCP is ns-3's without what departs from the RFCs (`MendedDctcp` in network_ns3.cc names it);
`unmended_` figures are those of ns-3 as it is, in the incast of 64, where it differs most.
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shutil import which
from time import process_time
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray

from mltswitch.network.fabric import Network, Rule, SwitchRules
from mltswitch.network.scenario import LeafSpineNetwork
from mltswitch.network.transports.parameters import Dctcp, NewReno
from mltswitch.network.units import PICOSECONDS
from mltswitch.network.workloads import Flow
from mltswitch.network.world import World
from mltswitch.plan import Topology

PACKET_BYTES: Final = 1502
"""On the line; a queue disc of ns-3 counts 1,500 of them, without PPP's two."""
ACK_BYTES: Final = 42
PAYLOAD_BYTES: Final = 1460
DISC_BYTES: Final = 1500
BUFFER_PACKETS: Final = 340
MARKING_PACKETS: Final = 65
LIBRARIES: Final = ("core", "network", "internet", "traffic-control", "point-to-point")
MISSING: Final = (
    "ns-3 is missing: `pip install ns3` (or `--target` a folder of PYTHONPATH), and a g++ beside it"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A fabric and who sends to whom over it."""

    leaves: int
    spines: int
    hosts_per_leaf: int
    rate_bps: int
    flows: Callable[["Case", np.random.Generator], list[Flow]]
    delay_seconds: float = 2e-6

    @property
    def hosts(self) -> int:
        """In the whole fabric."""
        return self.leaves * self.hosts_per_leaf


def permutation(size_bytes: int) -> Callable[[Case, np.random.Generator], list[Flow]]:
    """Each host sends to another one, up to 50 µs late."""

    def flows(case: Case, random: np.random.Generator) -> list[Flow]:
        order = random.permutation(case.hosts)
        starts = random.integers(0, 50_000_000, case.hosts)
        ends = zip(order, np.roll(order, 1), starts, strict=True)
        return [Flow(int(one), int(other), size_bytes, 0, int(start)) for one, other, start in ends]

    return flows


def incast(senders: int, size_bytes: int) -> Callable[[Case, np.random.Generator], list[Flow]]:
    """So many hosts send to the last one, up to 50 µs late."""

    def flows(case: Case, random: np.random.Generator) -> list[Flow]:
        chosen = random.permutation(case.hosts - 1)[:senders]
        starts = random.integers(0, 50_000_000, senders)
        return [
            Flow(int(one), case.hosts - 1, size_bytes, 0, int(at))
            for one, at in zip(chosen, starts, strict=True)
        ]

    return flows


CASES: Final = {
    "permutation": Case(4, 4, 8, 10 * 10**9, permutation(1_000_000)),
    "incast16": Case(5, 4, 16, 10 * 10**9, incast(16, 500_000)),
    "incast64": Case(5, 4, 16, 10 * 10**9, incast(64, 250_000)),
}
TRANSPORTS: Final[dict[str, Dctcp | NewReno]] = {"dctcp": Dctcp(header=42), "newreno": NewReno(header=42)}
SPEED: Final = Case(9, 4, 16, 100 * 10**9, permutation(2_000_000), 3e-6)


def program(folder: Path) -> Path | None:
    """network_ns3.cc, compiled; None: ns-3 or g++ is missing."""
    try:
        place = Path(str(distribution("ns3").locate_file("ns3")))
    except PackageNotFoundError:
        return None
    libraries = [next(iter(place.glob(f"lib*/libns3*-{name}.so")), None) for name in LIBRARIES]
    compiler = which("g++")
    if compiler is None or None in libraries:
        return None
    made, source = folder / "network_ns3", Path(__file__).with_suffix(".cc")
    there = str(libraries[0].parent) if libraries[0] else ""
    call = [compiler, "-O2", "-std=c++20", "-w", f"-I{place / 'include'}", str(source), "-o", str(made)]
    call += [*map(str, libraries), f"-Wl,-rpath,{there}", "-Wl,--allow-shlib-undefined"]
    subprocess.run(call, check=True)
    return made


def network_of(case: Case, rules: Sequence[Rule], buffer_packets: int = BUFFER_PACKETS) -> Network:
    """The fabric of a case, with these classes at every port; answers go in the first one."""
    shape = LeafSpineNetwork(
        leaves=case.leaves,
        spines=case.spines,
        hosts_per_leaf=case.hosts_per_leaf,
        rate=case.rate_bps,
        delay=case.delay_seconds,
    )
    count = len(rules)
    switch_rules = SwitchRules(
        tuple(f"class{place}" for place in range(count)),
        (0,) * count,
        tuple(range(count)),
        lambda _switch, _port: tuple(rules),
        lambda switch, port: (f"{switch.name}:{port.name}", buffer_packets * PACKET_BYTES),
    )
    return Network(Topology(shape.fabric()), switch_rules, 0.0)


def transport_world(case: Case, name: str, flows: list[Flow], seed: int) -> World:
    """A run of TCP that has not begun, with ns-3's packets."""
    rule = Rule(float(MARKING_PACKETS * PACKET_BYTES)) if name == "dctcp" else Rule()
    settings = TRANSPORTS[name].settings() | {"answer_bytes": ACK_BYTES}
    return World(network_of(case, (rule,)), flows, settings, seed=seed, spraying=False)


def finished(world: World) -> World:
    """The same, at its end."""
    while world.advance():
        pass
    return world


def spines_of(world: World) -> list[tuple[int, int]]:
    """The spine that each flow takes, and that of its acknowledgements, as the run has drawn them."""
    topology, hops = world.network.topology, world.network.hops
    ports = [(switch, port) for switch in topology.switches for port in switch.ports]
    names = [switch.name for switch in topology.switches]
    spine_names = [name for name in names if name.startswith("spine")]

    def spine(first: int) -> int:
        if hops[first + 1] < 0:
            return 0  # both hosts are at one leaf
        return spine_names.index(ports[hops[first + 1] - world.network.hosts][0].name)

    return [(spine(int(row["path"])), spine(int(row["back"]))) for row in world.flows]


def played_by_ns3(
    binary: Path,
    case: Case,
    name: str,
    flows: Sequence[tuple[Any, ...]],
    classes: Sequence[tuple[int, int]],
    *,
    is_exact: bool = True,
) -> tuple[NDArray[np.float64], list[int], float]:
    """Completion times [s], the counters of the last line, and seconds of CPU."""
    least_rto = round(TRANSPORTS["dctcp"].least_rto_seconds * PICOSECONDS)
    delay = round(case.delay_seconds * PICOSECONDS)
    lines = [
        f"{case.leaves} {case.spines} {case.hosts_per_leaf} {case.rate_bps}bps {delay}",
        f"{name} {BUFFER_PACKETS * DISC_BYTES} 10 {least_rto} {int(is_exact)} {len(classes)}",
        *(f"{threshold} {limit}" for threshold, limit in classes),
        str(len(flows)),
        *(" ".join(map(str, flow)) for flow in flows),
    ]
    begun = sum(_children_seconds())
    said = subprocess.run([binary], input="\n".join(lines), check=True, capture_output=True, text=True).stdout
    seconds = sum(_children_seconds()) - begun
    *times, last = said.split("\n")[:-1]
    return (
        np.array([int(time) for time in times]) / PICOSECONDS,
        [int(word) for word in last.split()],
        seconds,
    )


def _children_seconds() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime, used.ru_stime


def with_spines(world: World, flows: Sequence[Flow]) -> list[tuple[int, ...]]:
    """Flows as the program reads them."""
    return [
        (flow.source, flow.destination, flow.size_bytes, flow.start_picoseconds, *way, 0, 0)
        for flow, way in zip(flows, spines_of(world), strict=True)
    ]


def completion_times(
    binary: Path, case: Case, name: str, seeds: int, law: str = ""
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of all flows of all seeds, here and there; `law` is ns-3's name, where it is another one."""
    ours, theirs = [], []
    threshold = MARKING_PACKETS * DISC_BYTES
    for seed in range(1, seeds + 1):
        flows = case.flows(case, np.random.default_rng(seed))
        world = finished(transport_world(case, name, flows, seed))
        ours.append((world.flows["finish"] - world.flows["start"]) / PICOSECONDS)
        found, _, _ = played_by_ns3(binary, case, law or name, with_spines(world, flows), [(threshold, 0)])
        if (found < 0).any():
            raise RuntimeError(f"{(found < 0).sum()} flows are open in ns-3")
        theirs.append(found)
    return np.concatenate(ours), np.concatenate(theirs)


RED_CLASSES: Final = ((16, 30), (24, 60))
"""S and L, in packets, of two classes in strict priority."""
RED: Final = Case(1, 0, 24, 10 * 10**9, lambda _case, _random: [])
BURST: Final = 8


def bursts(seed: int, seconds: float) -> tuple[list[Flow], list[int]]:
    """Bursts of packets at random times, from all hosts but the last one to that; and who is ECN-capable."""
    random = np.random.default_rng(seed)
    count = round(1.05 * RED.rate_bps / (PACKET_BYTES * 8) * seconds / BURST)
    times = random.integers(0, round(seconds * PICOSECONDS), count).tolist()
    sources = random.integers(RED.hosts - 1, size=count).tolist()
    classes, capable = random.integers(2, size=(2, count)).tolist()
    flows = [
        Flow(source, RED.hosts - 1, BURST * PAYLOAD_BYTES, 1 + place, time)
        for source, place, time in zip(sources, classes, times, strict=True)
    ]
    return flows, capable


def burst_world(flows: list[Flow], capable: list[int], seed: int) -> World:
    """A run of bursts, which TCP's first windows are: a second one comes after 1000 s."""
    rules = [Rule(), *(Rule(float(s * PACKET_BYTES), float(l * PACKET_BYTES)) for s, l in RED_CLASSES)]  # noqa: E741
    settings = NewReno(header=42, rto_min=1000.0, duplicate_acks=1000).settings()
    world = World(network_of(RED, rules, 1 << 20), flows, settings, seed=seed, spraying=False)
    rows = np.repeat(world.tables["settings"], 2)
    rows["transport"][1], rows["gain"][1] = Dctcp.number, 1 / 16
    world.tables["settings"] = rows
    world.state["settings"] = rows.ctypes.data
    world.flows["settings"] = capable
    while world.advance(until_picoseconds=PICOSECONDS) and world.next_picoseconds <= PICOSECONDS:
        pass
    return world


def red_gaps(binary: Path, seeds: int, seconds: float) -> dict[str, float]:
    """The largest differences of losses by class and kind, and of marks by class, over all seeds."""
    sent, lost, marked = np.zeros((2, 2)), np.zeros((2, 2, 2)), np.zeros((2, 2))
    limits = [(s * DISC_BYTES, (limit + 1) * DISC_BYTES - 1) for s, limit in ((1, 1), *RED_CLASSES)]
    for seed in range(1, seeds + 1):
        flows, capable = bursts(seed, seconds)
        world = burst_world(flows, capable, seed)
        port = [port.name for port in world.network.ports].index(f"leaf1:port{RED.hosts}")
        queues = world.tables["queues"].reshape(-1, 3)[port, 1:]
        datagrams = [
            (
                flow.source,
                flow.destination,
                BURST * 1472,
                flow.start_picoseconds,
                0,
                0,
                flow.traffic_class,
                ecn,
            )
            for flow, ecn in zip(flows, capable, strict=True)
        ]
        by_class = np.array(played_by_ns3(binary, RED, "udp", datagrams, limits)[1][1:]).reshape(3, 3)[1:]
        offered = queues["offered"][:, :2]
        sent += offered
        missing = offered - by_class[:, 1:]
        lost += np.stack([queues["dropped"][:, :2], missing])
        # RedQueueDisc::DoEnqueue also counts the marks of packets that its full queue then drops.
        marked += np.stack([queues["marked"], by_class[:, 0] - missing[:, 1]])
    figures = {
        "loss_gap": float(np.abs(lost[0] / lost[1] - 1).max()),
        "mark_gap": float(np.abs(marked[0] / marked[1] - 1).max()),
        "red_packets": float(sent.sum()),
    }
    for place in range(2):
        for kind, name in enumerate(("unimportant", "important")):
            figures[f"loss_{name}_class{place}"] = float(lost[0][place, kind] / sent[place, kind])
            figures[f"loss_{name}_class{place}_ns3"] = float(lost[1][place, kind] / sent[place, kind])
    return figures


def fct_gaps(binary: Path, seeds: int) -> dict[str, float]:
    """Mean and 99th percentile of completion times, and the largest differences."""
    figures: dict[str, float] = {}
    for case_name, case in CASES.items():
        for name in TRANSPORTS:
            ours, theirs = completion_times(binary, case, name, seeds)
            for figure, value in (("mean", np.mean), ("p99", lambda times: np.quantile(times, 0.99))):
                here, there = float(value(ours)), float(value(theirs))
                label = f"{name}_{case_name}_{figure}"
                figures |= {f"{label}_us": here * 1e6, f"{label}_us_ns3": there * 1e6}
                figures[f"{label}_gap"] = here / there - 1
                most = f"fct_{figure}_gap"
                figures[most] = max(figures.get(most, 0.0), abs(here / there - 1))
    ours, theirs = completion_times(binary, CASES["incast64"], "dctcp", seeds, "dctcp-unmended")
    figures["unmended_dctcp_incast64_mean_gap"] = float(ours.mean() / theirs.mean() - 1)
    figures["unmended_dctcp_incast64_p99_gap"] = float(
        np.quantile(ours, 0.99) / np.quantile(theirs, 0.99) - 1
    )
    return figures


def speeds(binary: Path) -> dict[str, float]:
    """Hops in a second of CPU, of DCTCP among 144 hosts; ns-3 has its own device queue, and `Table`."""
    flows = SPEED.flows(SPEED, np.random.default_rng(1))
    finished(transport_world(SPEED, "dctcp", flows[:1], 1))
    world = transport_world(SPEED, "dctcp", flows, 1)
    begun = process_time()
    finished(world)
    here = world.count("hop_count") / (process_time() - begun)
    threshold = MARKING_PACKETS * DISC_BYTES
    lines = with_spines(world, flows)
    _, counters, seconds = played_by_ns3(binary, SPEED, "dctcp", lines, [(threshold, 0)], is_exact=False)
    there = counters[0] / seconds
    return {"hops_per_second_ns3": there, "hops_per_second_beside_ns3": here, "ratio_to_ns3": here / there}


@click.command()
@click.option("--quick", is_flag=True, help="Two seeds in the place of ten.")
@click.option("--json", "as_json", is_flag=True, help="One flat object of figures.")
def main(quick: bool, as_json: bool) -> None:
    """Completion times, losses and marks beside ns-3's."""
    seeds = 2 if quick else 10
    with tempfile.TemporaryDirectory() as folder:
        binary = program(Path(folder))
        if binary is None:
            click.echo(MISSING, err=True)
            sys.exit(1)
        figures = red_gaps(binary, seeds, 0.03) | fct_gaps(binary, seeds)
    if as_json:
        click.echo(json.dumps(figures))
        return
    for name, value in figures.items():
        click.echo(f"{name}: {value:,.4g} (simulated)")


if __name__ == "__main__":
    main()
