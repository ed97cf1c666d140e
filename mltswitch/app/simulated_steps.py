"""Simulates steps of a training with each synchronization."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mltswitch.app import Bar, Tell
from mltswitch.app.networks import load_routes, network_of_job
from mltswitch.app.settings import Topology
from mltswitch.documents import parse_yaml
from mltswitch.errors import UserInputError
from mltswitch.profile import resolve_profile
from mltswitch.training.axes import Network, axes_of, synchronizations, topologies
from mltswitch.training.fabric import FabricNetwork
from mltswitch.training.simulate import WARM_UP, Simulated, forward_gain, scaled_job, simulate

FAPT: Final = "fapt"
"""Name of the topology whose trees are made from the network."""
ALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(Topology):
    """What is trained, over what, and how: the options of `mltswitch train simulate`."""

    model: str
    workers: int
    compute: float
    """Seconds that a rank computes in each step."""
    spread: float
    slow_texts: Sequence[str]
    """Slow ranks, each as `RANK=FACTOR`."""
    batch: int
    backward_share: float
    rate_bps: int | None
    network_text: str | None
    rtt_ms: float | None
    names_text: str
    """Names of synchronizations, separated by commas, or `all`."""
    setting_texts: Sequence[str]
    """Settings of synchronizations, each as `[SYNC.]NAME=VALUE`."""
    forward: bool
    servers: int | None
    steps: int


@dataclass(frozen=True, slots=True)
class Steps:
    """The simulated steps, with their figures by each synchronization."""

    head: dict[str, Any]
    """The entries of the printed document that are about the job, and come first."""
    link_bps: float
    synchronizations: list[Simulated]
    left_out: dict[str, str]
    """Synchronization → why it does not suit the topology."""
    forward_gain: dict[str, float] | None


def simulated_steps(job: Training, *, tell: Tell, bar: Bar) -> Steps:
    """Simulate steps by each synchronization; raises UserInputError naming the option."""
    profile = resolve_profile(job.model)
    names = [*synchronizations()] if job.names_text == ALL else job.names_text.split(",")
    settings = _settings(job.setting_texts, names)
    topology, of_topology = job.chosen()
    servers, routes_file = job.servers, job.routes_file
    if routes_file is not None and servers is None:
        servers = of_topology["routes"]["servers"]
    network = _network(job.network_text, job.rate_bps, job.rtt_ms, job.workers, topology, servers)
    of_topology = _in_network(network, topology, of_topology, routes_file, tell)
    of_job: dict[str, Any] = {"topology": topology, "topology_settings": of_topology, "servers": servers}
    left_out: dict[str, str] = {}
    for name in names:
        try:
            scaled_job(profile, world=job.workers, synchronization=name, settings=settings[name], **of_job)
        except UserInputError as error:
            if job.names_text != ALL or error.where != "topology" or len(left_out) == len(names) - 1:
                raise
            left_out[name] = str(error)
    seconds = _compute_seconds(job.compute, job.workers, job.spread, job.slow_texts)
    names = [name for name in names if name not in left_out]
    common = of_job | {
        "batch": job.batch,
        "backward_share": job.backward_share,
        "steps": job.steps,
    }
    ways = [(name, False) for name in names]
    if job.forward:
        ways += [("bsp", True)]
        if "bsp" not in names:
            what = f"{job.names_text!r:.60} lacks it"
            raise UserInputError(what, where="--sync", expected="bsp, for --forward")
    part = WARM_UP + job.steps + 1
    found: list[Simulated] = []
    with bar() as advance:
        for number, (name, is_forward) in enumerate(ways):

            def stepped(step: int, name: str = name, number: int = number) -> None:
                advance(name, number * part + step, len(ways) * part)

            found.append(
                simulate(
                    profile,
                    network,
                    seconds,
                    synchronization=name,
                    settings=settings[name],
                    forward=is_forward,
                    advance=stepped,
                    **common,
                )
            )
    gain = None
    if job.forward:
        plain, share = scaled_job(profile, world=job.workers, **of_job)
        exchange_seconds = axes_of(plain)[1].seconds(
            plain, Network(network.link_bps * share, network.latency_seconds)
        )
        gain = {
            "simulated": found[names.index("bsp")].step_seconds / found[-1].step_seconds,
            "at_most": forward_gain(max(seconds), job.backward_share, exchange_seconds),
        }
    head = {
        "kind": "simulated",
        "model": profile.name,
        "compute_seconds": seconds,
        "rate_bps": network.link_bps,
        "round_trip_seconds": 2 * network.latency_seconds,
        "network": job.network_text,
        **common,
    }
    return Steps(head, network.link_bps, found, left_out, gain)


def _settings(texts: Iterable[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By synchronization."""
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in texts:
        name, sign, value = text.partition("=")
        owner, dot, setting = name.rpartition(".")
        if not setting or not sign or (dot and owner not in found):
            expected = f"NAME=VALUE, or one of {', '.join(names)} and .NAME=VALUE"
            raise UserInputError(f"{text!r:.60}", where="--setting", expected=expected)
        for each in [owner] if dot else names:
            found[each][setting] = parse_yaml(value, where=f"--setting {name}")
    return found


def _network(
    text: str | None,
    rate_bps: int | None,
    rtt_ms: float | None,
    ranks: int,
    topology: str,
    servers: int | None,
) -> Network | FabricNetwork:
    if rate_bps is not None and rate_bps < 1:
        raise UserInputError(f"{rate_bps} bit/s", where="--rate", expected="above 0")
    latency_seconds = (0.1 if rtt_ms is None else rtt_ms) / 2e3
    if text is None:
        return Network(10_000_000_000 if rate_bps is None else rate_bps, latency_seconds)
    if rate_bps is not None:
        raise UserInputError("has rates of its own", where="--network", expected="no --rate")
    if servers is None:
        servers = int(topology in topologies() and topologies()[topology].has_servers)
    overlay = network_of_job(text, ranks, servers)
    if overlay.graph.delays_seconds.any():
        if rtt_ms is not None:
            raise UserInputError("has delays of its own", where="--network", expected="no --rtt")
        latency_seconds = 0.0
    return FabricNetwork(overlay, latency_seconds=latency_seconds)


def _in_network(
    network: Network | FabricNetwork,
    topology: str,
    settings: dict[str, Any],
    routes_file: Path | None,
    tell: Tell,
) -> dict[str, Any]:
    """Trees hear of racks, or of links; routes that were made for another network are told."""
    if not isinstance(network, FabricNetwork):
        if routes_file is not None:
            tell("the routes are played on one switch between all ranks, for no --network is given")
    elif routes_file is not None:
        load_routes(routes_file, network.overlay, tell)
    elif topology == "tree" and network.overlay.racks and "racks" not in settings:
        return {**settings, "racks": [*network.overlay.racks]}
    elif topology == FAPT:  # nothing changes here
        overlay = network.overlay.model_dump(mode="json", by_alias=True)
        return {"overlay": overlay, "update_seconds": 0, **settings}
    return settings


def _compute_seconds(compute: float, workers: int, spread: float, slow_texts: Iterable[str]) -> list[float]:
    """Of each rank; a slow one is so beside its part of the spread."""
    seconds = [compute * (1 + spread * (2 * rank / (workers - 1) - 1)) for rank in range(workers)]
    for text in slow_texts:
        said = re.fullmatch(r"(\d{1,3})=(\d{1,3}(?:\.\d{1,9})?)", text)
        if said is None or int(said[1]) >= workers or not 0.01 <= float(said[2]) <= 100:
            expected = f"a rank, 0 to {workers - 1}, = and a factor, 0.01 to 100"
            raise UserInputError(f"{text!r:.60}", where="--slow", expected=expected)
        seconds[int(said[1])] *= float(said[2])
    return seconds
