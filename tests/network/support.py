"""Small networks, and runs of them."""

from pathlib import Path
from typing import Any

from mltswitch.app.simulated_network import ground_of
from mltswitch.documents import validate
from mltswitch.network.fabric import BY_RANK, PLAIN, TRIM, Network, Rule, SwitchRules
from mltswitch.network.results import Run
from mltswitch.network.scenario import LeafSpineNetwork, Scenario
from mltswitch.network.simulation import check, play_one
from mltswitch.network.transports.parameters import Ndp, Pfabric
from mltswitch.network.workloads import Flow
from mltswitch.network.world import World
from mltswitch.plan import Topology

GBPS = 10**9
MICROSECOND = 10**6
"""In picoseconds."""


def network(
    *,
    leaves: int = 2,
    spines: int = 2,
    hosts_per_leaf: int = 4,
    rules: tuple[Rule, ...] = (Rule(),),
    buffer_bytes: int = 512_000,
    delay_seconds: float = 2e-6,
    loss: float = 0.0,
    answer_class: int = 0,
    discipline: int = PLAIN,
) -> Network:
    """A leaf-spine of 10 Gbit/s in which every port has the same queues."""
    shape = LeafSpineNetwork(
        leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, rate="10Gbps", delay=delay_seconds
    )
    names = tuple(f"class{place}" for place in range(len(rules)))
    switch_rules = SwitchRules(
        names,
        (answer_class,) * len(rules),
        tuple(range(len(rules))),
        lambda _switch, _port: rules,
        lambda switch, port: (f"{switch.name}:{port.name}", buffer_bytes),
        discipline,
    )
    return Network(Topology(shape.fabric()), switch_rules, loss)


def made_for(transport: Any, limit_bytes: int, loss: float = 0.0, **shape: int) -> Network:
    """Switches as a transport needs them, whose data goes in the last class."""
    rules: tuple[Rule, ...]
    rules, discipline, buffer_bytes = (Rule(), Rule(limit_bytes / 3, limit_bytes)), PLAIN, 2 * limit_bytes
    if isinstance(transport, Pfabric):
        rules, discipline, buffer_bytes = (Rule(),), BY_RANK, limit_bytes
    elif isinstance(transport, Ndp):
        rules, discipline = (Rule(), Rule(limit=limit_bytes)), TRIM
    return network(rules=rules, buffer_bytes=buffer_bytes, loss=loss, discipline=discipline, **shape)


def world(
    net: Network,
    flows: list[Flow],
    transport: Any,
    *,
    seed: int = 1,
    spraying: bool = False,
) -> World:
    """A run that has not begun."""
    return World(net, flows, transport.settings(), seed=seed, spraying=spraying)


def scenario(**changes: Any) -> Scenario:
    """A scenario of the least words, with some changed."""
    document: dict[str, Any] = {
        "schema": "mltswitch/simulation/v1",
        "name": "test",
        "fabric": {"leaves": 2, "spines": 2, "hosts_per_leaf": 4, "rate": "10Gbps", "delay": 2e-6},
        "buffer": "512KB",
        "workload": {"kind": "incast", "senders": 4, "size": "300kB"},
        "transports": ["dctcp"],
    }
    return validate(document | changes, Scenario, where="scenario.yaml")


def play(**changes: Any) -> list[Run]:
    """All runs of a scenario by numbers."""
    made = scenario(**changes)
    ground = ground_of(made, Path())
    check(made, ground)
    return [
        play_one(made, ground, place, seed, lambda _done, _flows: None)
        for place in range(len(made.plays))
        for seed in made.seeds
    ]
