"""A bench's figures, and how it runs a team: workers and a network that answer as scripts say."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.lab import running_star
from mltswitch.lab.programs import need
from mltswitch.training.bench import (
    GRADIENT_DSCP,
    Case,
    CaseResult,
    Contender,
    Method,
    Settings,
    Team,
    running_team,
)
from mltswitch.training.bench.run import BLOCK

CASE = Case("loss 1 %", 100_000_000, 2e-3, 0.01, 96_000)
ELEMENTS = 1_000_000
SECONDS = {"compute": 0.01, "gloo": 0.2, "gloo-ring": 0.3, "mlt": 0.1}


class Worker:
    """Answers at once; each method's steps take what `SECONDS` says."""

    def __init__(self, network: "Network", rank: int) -> None:
        self.network = network
        self.rank = rank
        self.requests: list[dict[str, Any]] = []
        self.late_error = ""

    def tell(self, line: str) -> None:
        self.requests.append(json.loads(line))

    def answer(self) -> dict[str, Any]:
        request = self.requests[-1]
        name = request.get("name", "")
        match request["do"]:
            case "join":
                return {"target": 0.5}
            case "open":
                layers = {"0": 600_000, "1": 400_000} if request["method"] == "mlt" else {}
                return {"elements": ELEMENTS, "layers": len(layers), "of_layers": layers}
            case "steps":
                late = {"error": self.late_error, "at": 2.0} if self.late_error else {}
                errors = [late, {"error": "steps: rank 0 is gone", "at": 1.0}]
                if name == self.network.failing and errors[self.rank]:
                    return errors[self.rank]
                missing = {"1": 1000} if name == "mlt" else {}
                seconds = [SECONDS[name]] * request["count"]
                return {"seconds": seconds, "cpu_seconds": 0.001, "missing": missing, "later_share": 0.25}
            case "accuracy":
                return {"accuracy": 0.9}
        return {"digest": str(self.rank) if name == "compute" else "same"}


class Rival(Worker):
    """Listens, and is told to go."""

    def __init__(self, failed: int) -> None:
        self.is_asked = False
        self.failed = failed

    def answer(self) -> dict[str, Any]:
        self.is_asked = True
        return {"flows": 100, "failed": self.failed, "reason": "no route"}

    def tell(self, line: str) -> None:
        assert self.is_asked
        assert line in {"go", "how many"}


class Network:
    """Notes what it is told."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.workers: list[Worker] = []
        self.losses: list[float] = []
        self.failed_flows = 0
        self.rivals: list[tuple[int, Sequence[str]]] = []
        self.served: list[tuple[int, Sequence[str]]] = []
        self.log: list[tuple[Any, ...]] = []

    def start(self, host: int, command: Sequence[str]) -> AbstractContextManager[Worker]:
        if "mltswitch.training.bench.rivals" in command:
            self.rivals.append((host, command[3:]))
            return nullcontext(Rival(self.failed_flows))
        if "serve" in command:
            self.served.append((host, command))
            return nullcontext(Worker(self, host))
        assert command[1:] == ["-m", "mltswitch.training.bench.worker"]
        self.workers.append(Worker(self, host))
        return nullcontext(self.workers[-1])

    def addresses(self, host: int) -> tuple[str, ...]:
        return (f"10.1.0.{host + 1}",)

    def routed_address(self, host: int) -> str:
        return f"10.9.0.{host + 1}"

    def leaf_of(self, host: int) -> int:
        return host % 2

    def set_rate(self, bits_per_second: int) -> None:
        self.log.append(("rate", bits_per_second))

    def set_round_trip(self, seconds: float, own_seconds: float) -> None:
        self.log.append(("rtt", seconds, own_seconds))

    def round_trip_seconds(self) -> float:
        return 1e-4

    def set_loss(self, probability: float) -> None:
        self.losses.append(probability)

    def set_classes(
        self, buffer_bytes: int, control_dscp: int, gradient_dscp: Sequence[int], marked_share: float
    ) -> None:
        self.log.append(("classes", buffer_bytes, len(gradient_dscp)))

    def set_buffer(self, size_bytes: int) -> None:
        self.log.append(("buffer", size_bytes))

    def report(self) -> dict[str, Any]:
        queue = {"important": 60, "unimportant": 40, "important_dropped": 1, "unimportant_dropped": 2}
        core = {"arrived": 105, "core_offered": 200, "core_dropped": 3, "core_bytes": 280_000}
        return {"cpu_seconds": 1.0, "random_lost": 5, "queues": [queue], **core}


def settings(**changes: Any) -> Settings:
    named: dict[str, Any] = {"workers": 2, "task": "digits"} | changes
    return Settings(**named)


def ran(
    case: Case,
    steps: int = BLOCK,
    contenders: Mapping[str, Contender] | None = None,
    *,
    network: Network | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    **run: Any,
) -> tuple[Network, CaseResult]:
    """A case of a team whose settings have these options, and the network that it ran over."""
    network = network or Network()
    with running_team(network, settings(**options)) as team:
        return network, team.run(case, steps, lambda *_: None, contenders, **run)


@pytest.fixture
def result() -> CaseResult:
    return ran(CASE, 2 * BLOCK)[1]


@pytest.mark.torch
def test_communication_is_what_the_steps_take_beyond_computing(result: CaseResult) -> None:
    assert result.communication_seconds("gloo") == pytest.approx(0.19)
    assert result.communication_seconds("mlt") == pytest.approx(0.09)
    volume = ELEMENTS * 4 * 8  # two workers: 2 (k - 1) / k is 1
    assert result.limit_seconds == pytest.approx(volume / 100e6)
    assert result.goodput_bps("mlt") == pytest.approx(volume / 0.09)
    assert result.tcp_limit_bps == pytest.approx(1.22 * 1448 * 8 / (2e-3 * 0.1))


@pytest.mark.torch
def test_losses_are_counted_by_class(result: CaseResult) -> None:
    ours = result.methods["mlt"]
    assert len(ours.missing_share) == len(GRADIENT_DSCP)
    steps = 2 * BLOCK  # those before the losses do not count
    # Two blocks, and both workers say that they miss 1000 elements of layer 1 in each.
    assert ours.missing_share == pytest.approx((0, 4000 / (400_000 * steps)))
    assert ours.delivered_share == pytest.approx(1 - 4000 / (ELEMENTS * steps))
    assert result.methods["gloo"].missing_share == ()
    assert (ours.packets, ours.lost_at_random, ours.dropped) == (2 * 105, 10, 6)
    assert ours.core_loss_share == pytest.approx(3 / 200)


@pytest.mark.torch
def test_what_the_json_says(result: CaseResult) -> None:
    found = result.document()
    assert [entry["method"] for entry in found["methods"]] == ["gloo", "mlt"]
    ours = found["methods"][1]
    assert ours["final_accuracy"] == pytest.approx(0.9)
    assert ours["seconds_to_accuracy"] is None  # two evaluations are too few to tell
    assert len(ours["steps"]) == 2 * BLOCK
    assert ours["ranks_agree"]


@pytest.mark.torch
def test_losses_begin_after_the_workers_have_met_and_end_with_the_case() -> None:
    network, _ = ran(CASE)
    assert network.losses == [0.0, 0.01, 0.0]
    assert ("classes", 96_000, len(GRADIENT_DSCP)) in network.log
    assert ("rtt", 2e-3, 1e-4) in network.log


@pytest.mark.torch
def test_under_incast_gloo_exchanges_in_both_ways() -> None:
    network, found = ran(Case("incast", 10_000_000, 2e-4, 0.0, 12_000, is_incast=True))
    opened = {r["name"]: r["method"] for r in network.workers[0].requests if r["do"] == "open"}
    assert opened == {"compute": "compute", "gloo": "gloo-incast", "gloo-ring": "gloo", "mlt": "mlt"}
    assert found.tcp_limit_bps is None


@pytest.mark.torch
def test_contenders_have_options_agents_and_ports_of_their_own() -> None:
    plain = replace(CASE, has_plan=False)
    contenders = {
        "gloo": Contender(method="mlt", options={"transport": "tcp"}, config={"tcp": {"streams": 2}}),
        "mlt": Contender(method="mlt"),
    }
    network, found = ran(plain, BLOCK, contenders)
    assert [*found.methods] == ["compute", "gloo", "mlt"]
    assert ("classes", plain.buffer_bytes, 0) in network.log
    _, other, ours = (r for r in network.workers[0].requests if r["do"] == "open")
    assert (other["options"]["transport"], ours["options"]["transport"]) == ("tcp", "mlt")
    assert (other["config"]["tcp"], "tcp" in ours["config"]) == ({"streams": 2}, False)
    assert other["config"]["listen"] != ours["config"]["listen"]
    assert ours["config"]["queue"] == plain.buffer_bytes


@pytest.mark.torch
def test_each_method_of_ours_has_its_servers_behind_the_workers() -> None:
    network, found = ran(CASE, options={"servers": 2})
    assert [host for host, _ in network.served] == [2, 3]
    assert [command[6] for _, command in network.served] == ["0", "1"]
    opened = {r["name"]: r["options"] for r in network.workers[1].requests if r["do"] == "open"}
    assert {name for name, options in opened.items() if "rendezvous" in options} == {"mlt"}
    assert all(opened["mlt"]["rendezvous"] in command for _, command in network.served)
    assert found.methods["mlt"].missing_share == ()


@pytest.mark.torch
def test_blocks_warm_up_and_pauses_are_the_callers() -> None:
    network, found = ran(replace(CASE, pause_seconds=0.5), 4, {}, block=2, warm_up=7)
    requests = [r for r in network.workers[0].requests if r["do"] in {"open", "steps"}]
    assert [r.get("count") for r in requests] == [None, 7, 2, 2]
    assert requests[0]["pause_seconds"] == 0.5
    assert found.methods["compute"].later_shares == [0.25, 0.25]


@pytest.mark.torch
@pytest.mark.parametrize("late_error", ["", "timed out"])
def test_the_worker_that_failed_first_is_named(late_error: str) -> None:
    with running_team(network := Network(failing="mlt"), settings()) as team:
        network.workers[0].late_error = late_error
        with pytest.raises(MachineError, match="worker 1: steps: rank 0 is gone"):
            team.run(CASE, BLOCK, lambda *_: None)


@pytest.mark.torch
def test_rivals_send_to_the_other_leaf_and_share_the_load() -> None:
    network, options = Network(), {"servers": 1, "rivals": 4}
    ran(CASE, BLOCK, {}, network=network, options=options)
    assert not network.rivals
    ran(replace(CASE, background=0.3, background_divisor=64), BLOCK, {}, network=network, options=options)
    assert [host for host, _ in network.rivals] == [3, 4, 5, 6]
    own, load, divisor, _, *targets = network.rivals[0][1]
    assert (own, divisor, targets) == ("10.9.0.4", "64", ["10.9.0.5", "10.9.0.7"])
    assert float(load) == pytest.approx(2 * 0.3 * CASE.rate_bps / 4)
    assert [entry for entry in network.log if entry[0] == "buffer"] == [("buffer", 2 * CASE.buffer_bytes)]


@pytest.mark.torch
def test_a_background_that_fails_is_no_background() -> None:
    network = Network()
    network.failed_flows = 3
    with pytest.raises(MachineError, match="no route"):
        ran(replace(CASE, background=0.3), BLOCK, {}, network=network, options={"rivals": 2})


@pytest.mark.torch
def test_who_does_not_spray_has_the_routed_address_alone() -> None:
    contenders = {"gloo": Contender(method="mlt", is_sprayed=False), "mlt": Contender(method="mlt")}
    network, _ = ran(CASE, BLOCK, contenders)
    _, routed, sprayed = (r["config"] for r in network.workers[1].requests if r["do"] == "open")
    assert (routed["addresses"], routed["listen"].partition(":")[0]) == (["10.9.0.2"], "10.9.0.2")
    assert (sprayed["addresses"], sprayed["listen"].partition(":")[0]) == (["10.1.0.2"], "10.1.0.2")


def test_time_to_accuracy_is_smoothed() -> None:
    lucky = Method("mlt", accuracies=[(1, 0.2), (2, 0.95), (3, 0.3), (4, 0.9), (5, 0.9), (6, 0.9)])
    assert lucky.seconds_to(0.8) == 6
    assert lucky.seconds_to(0.99) is None
    assert lucky.final_accuracy == pytest.approx(0.9)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({"synchronization": "x"}, "bsp"),
        ({"topology": "x"}, "ring, star"),
        ({"transport": "x"}, "mlt, tcp"),
        ({"task": "x"}, "digits"),
        ({"synchronization": "asp", "topology": "ring"}, "star"),
        ({"synchronization": "ssp", "synchronization_settings": (("staleness", -1),)}, "ssp.staleness"),
        ({"synchronization": "bsp", "synchronization_settings": (("share", 0.5),)}, "share"),
        ({"colocated": 2}, "a rank, 0 to 1"),
        ({"colocated": 0, "servers": 1}, "no servers"),
        ({"synchronization": "osp", "servers": 1, "continues": True}, "asp, ssp or r2sp"),
        ({"synchronization": "asp", "continues": True}, "with servers"),
        ({"topology": "ring", "servers": 1}, "ring has none"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], known: str) -> None:
    with pytest.raises(UserInputError, match=known):
        settings(**changes).check()


def test_a_team_asks_all_before_it_waits() -> None:
    network = Network()
    processes = [network.start(host, ["", "-m", "mltswitch.training.bench.worker"]) for host in range(2)]
    team = Team(network, settings(), [process.__enter__() for process in processes])
    assert team.target == 0.5
    assert [worker.requests[0]["rank"] for worker in network.workers] == [0, 1]


@pytest.mark.root
@pytest.mark.lab
@pytest.mark.torch
def test_every_synchronization_trains_over_every_transport() -> None:
    """With a server of its own, under loss; workers have the same bits after each block."""
    pytest.importorskip("sklearn")
    try:
        need("gcc", "ip", "tc", "ping")
    except MachineError as error:
        pytest.skip(str(error))
    later: dict[str, dict[str, Any]] = {"osp": {"share": 0.5, "slice_bytes": 4096}}
    contenders = {
        f"{name} over {transport}": Contender(
            method="mlt",
            options={
                "synchronization": name,
                "transport": transport,
                "settings": later.get(name, {}),
                "piece_bytes": 4096,
            },
        )
        for name in ("bsp", "osp", "asp", "ssp", "r2sp")
        for transport in ("tcp", "mlt", "ltp")
    }
    case = Case("loss", 50_000_000, 1e-3, 0.01, 96_000, pause_seconds=0.01)
    with running_star(3) as star:
        star.set_rate(case.rate_bps)
        with running_team(star, settings(servers=1)) as team:
            found = team.run(case, 4, lambda *_: None, contenders, block=2)
    assert min(found.methods["compute"].step_seconds) > case.pause_seconds
    for name in contenders:
        method = found.methods[name]
        assert method.ranks_agree, name
        assert (0.3 < method.later_shares[-1] <= 0.5) == name.startswith("osp"), name
