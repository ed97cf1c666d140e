"""Eight senders at once to one receiver: flow completion times of the host agent and of TCP.

    python -m benchmarks.agent_incast [--quick] [--json]

Needs root and gcc. Nine hosts and one switch of 500 Mbit/s a port, or 100 where there are fewer processors
than hosts (benchmarks/agent_switch.c, because the lab's user-mode-linux does not sustain that rate; it runs
before all other processes), which runs the plan of benchmarks/agent_incast.yaml for ResNet-50. All
connections stay open; eight senders begin at the same instant of the clock that they share, and a flow's time
is from that instant to the receiver's having the whole tensor: for ours, to its completion within the loss
bound. The four transports take turns, incast by incast. TCP has the port's whole buffer as one drop-tail
queue (class background); ours has the S and L that the plan gives the last gradient class, which are less.
Random loss takes any packet, either way.

    rate_mbps, buffer_bytes, threshold_bytes, limit_bytes
                                            fixed beforehand: the port, its buffer, our S and L
    p99_ratio_to_best_tcp_128k_loss0        p99 of ours with loss bound 10 % over the better of cubic and BBR
    p99_ratio_to_cubic_128k_loss1pct        over cubic's; both at a round trip of 0.2 ms
    p99_ratio_to_cubic_4m_loss1pct_rtt2ms   the same for 4 MB at 2 ms, where a flow's fair share exceeds what
    cubic_alone_mbps_loss1pct_rtt2ms        cubic carries at that loss with nobody beside it
    fair_share_mbps                         the port's rate over eight
    p50_ratio_to_limit_128k_loss0           p50 of ours over the physical limit
    p99_ratio_to_limit_CASE                 p99 of ours over the physical limit
    limit_SIZE_ms                           which is the bytes of eight tensors over the port's rate
    round_trip_ms_CASE                      by ping, before the case
    switch_late_us_max                      how late the switch handed on a packet at worst: noise
    ours_p10_missing_share_CASE             of the packets, at completion

and for each transport (ours_p0 and ours_p10 with loss bounds 0 and 10 %, cubic, bbr) and CASE, such as
128k_rtt02ms_loss1pct (sizes 128k and 4m; round trips 0.2 and 2 ms; loss 0, 0.01, 0.1 and 1 %)

    TRANSPORT_CASE_p50_ms, _p99_ms, _max_ms
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from benchmarks.agent_ends import Settings, running_agents
from benchmarks.agent_network import Program, module
from benchmarks.agent_switch import Queue, Star, planned_queues, running_star
from benchmarks.figures import print_figures
from mltswitch.documents import load_document
from mltswitch.errors import MltswitchError
from mltswitch.plan import ClassKind, Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities

SENDERS: Final = 8
RATE_BPS: Final = 500_000_000 if len(os.sched_getaffinity(0)) > SENDERS else 100_000_000
"""Of each port. Hosts that share a processor or two cannot send and receive at 500 Mbit/s all together."""
KILO: Final = 1 << 10
PAYLOAD_BYTES: Final = 1472
SIZES: Final = {"128k": 128 * KILO, "4m": 4 * KILO * KILO}
ROUND_TRIPS: Final = {"rtt02ms": 0.2e-3, "rtt2ms": 2e-3}
LOSSES: Final = {"loss0": 0.0, "loss001pct": 1e-4, "loss01pct": 1e-3, "loss1pct": 1e-2}
LOSS_BOUNDS: Final = {"ours_p0": 0.0, "ours_p10": 0.1}
TRANSPORTS: Final = ("ours_p0", "ours_p10", "cubic", "bbr")
INCASTS: Final = {"128k": 60, "4m": 12}
QUICK_INCASTS: Final = {"128k": 20, "4m": 4}
QUICK_CASES: Final = ("128k_rtt02ms_loss0", "128k_rtt02ms_loss1pct", "4m_rtt2ms_loss1pct")
ALONE: Final = 5
ALONE_BYTES: Final = 8 << 20
LEAD_NS: Final = 40_000_000
"""From the word to the start: everybody must have heard it."""
PAUSE_SECONDS: Final = 0.02
FABRIC: Final = Path(__file__).with_name("agent_incast.yaml")


@dataclass(frozen=True, slots=True)
class Case:
    """What is sent through what."""

    size: str
    round_trip: str
    loss: str

    @property
    def name(self) -> str:
        """As in the keys."""
        return f"{self.size}_{self.round_trip}_{self.loss}"


@dataclass(slots=True)
class Found:
    """Of one case."""

    round_trip_seconds: float
    seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in TRANSPORTS})
    """Transport → flow completion times."""
    missing: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in LOSS_BOUNDS})
    """Ours → share of each flow's packets that was missing at its completion."""
    late_us: float = 0.0


CASES: Final = tuple(Case(size, trip, loss) for size in SIZES for trip in ROUND_TRIPS for loss in LOSSES)


class Ends:
    """Senders and receiver of one kind of transport."""

    def __init__(self, receiver: Program, senders: Sequence[Program]) -> None:
        self._receiver = receiver
        self._senders = senders

    def incast(self, senders: Sequence[int], **command: Any) -> tuple[list[float], dict[str, Any]]:
        """Seconds of each flow, and all that the receiver said; raises MachineError."""
        self._receiver.tell(json.dumps(command | {"senders": list(senders)}))
        self._receiver.wait_for("posted")
        at_ns = time.monotonic_ns() + LEAD_NS
        for number in senders:
            self._senders[number].tell(json.dumps(command | {"at_ns": at_ns}))
        answer = self._receiver.answer()
        for number in senders:
            self._senders[number].answer()
        return [(ended - at_ns) / 1e9 for ended in answer["completed_ns"]], answer


class Incast:
    """All transports' ends around one switch."""

    def __init__(self, star: Star, tcp: Ends, ours: Ends, own_round_trip_seconds: float) -> None:
        self._star = star
        self._tcp = tcp
        self._ours = ours
        self._own_round_trip_seconds = own_round_trip_seconds

    def prepare(self, round_trip: str, loss: str) -> float:
        """Set the switch; returns the round trip as ping finds it."""
        self._star.set_loss(0.0)
        self._star.set_round_trip(ROUND_TRIPS[round_trip], self._own_round_trip_seconds)
        found = self._star.round_trip_seconds()
        self._star.set_loss(LOSSES[loss])
        return found

    def measure(self, case: Case, incasts: int) -> Found:
        """One case, the transports in turn, after one incast each that does not count."""
        found = Found(self.prepare(case.round_trip, case.loss))
        for number in range(incasts + 1):
            for name in TRANSPORTS[number % 4 :] + TRANSPORTS[: number % 4]:
                self._star.report()
                seconds, answer = self.flows(name, SIZES[case.size], range(SENDERS))
                found.late_us = max(found.late_us, self._star.report()["late_max_us"])
                if number:
                    found.seconds[name] += seconds
                    if name in found.missing:
                        found.missing[name] += answer["missing_share"]
                time.sleep(PAUSE_SECONDS)
        return found

    def flows(
        self, transport: str, size_bytes: int, senders: Sequence[int]
    ) -> tuple[list[float], dict[str, Any]]:
        """One incast."""
        if transport not in LOSS_BOUNDS:
            return self._tcp.incast(senders, transport=transport, size_bytes=size_bytes)
        return self._ours.incast(senders, size_bytes=size_bytes, loss_bound=LOSS_BOUNDS[transport])


def incast_plan() -> Plan:
    """Of ResNet-50 on the fabric beside this module."""
    fabric = load_document(FABRIC, Fabric)
    ports = fabric.ports.model_copy(update={"rate": f"{RATE_BPS // 1_000_000}Mbps"})
    return build_plan(
        resolve_profile("resnet50"), fabric.model_copy(update={"ports": ports}), hardware_capabilities
    )


def port_queues(plan: Plan) -> tuple[Queue, ...]:
    """The receiver's port as the plan has it, but background, which TCP takes, has the whole buffer."""
    leaf = next(switch for switch in plan.topology.switches if switch.name == "leaf1")
    profile = plan.port_profile(leaf, leaf.ports[-1])
    *planned, background = planned_queues(plan, profile)
    return (*planned, Queue(profile.buffer_bytes, profile.buffer_bytes, background.dscps))


@contextmanager
def running_incast(plan: Plan) -> Iterator[Incast]:
    """Hosts, switch and every transport's ends, connected; raises MachineError."""
    with running_star(SENDERS + 1) as star, ExitStack() as stack:
        star.set_rate(RATE_BPS)
        star.set_queues(port_queues(plan))
        own = star.round_trip_seconds()
        last = plan.gradient_classes[-1]
        queue = port_queues(plan)[-2]
        settings = Settings(
            payload_bytes=PAYLOAD_BYTES,
            line_rate_bps=RATE_BPS,
            queue_bytes=queue.threshold_bytes,
            dscp=last.dscp[0],
            control_dscp=plan_control_dscp(plan),
        )
        ours = Ends(*running_agents(stack, star, settings, senders=SENDERS))
        yield Incast(star, tcp_ends(stack, star), ours, own)


def tcp_ends(stack: ExitStack, star: Star) -> Ends:
    """A connection of each congestion control from every sender."""
    address = star.addresses(SENDERS)[0]
    command = module("agent_incast_tcp", "receive", str(SENDERS))
    receiver = stack.enter_context(Program(star.hosts[SENDERS], command))
    receiver.wait_for("ready")
    senders = []
    for number in range(SENDERS):
        command = module("agent_incast_tcp", "send", str(number), address)
        senders.append(stack.enter_context(Program(star.hosts[number], command)))
    for sender in senders:
        sender.wait_for("ready")
    receiver.wait_for("connected")
    return Ends(receiver, senders)


def plan_control_dscp(plan: Plan) -> int:
    """Of the class that control messages go in."""
    return next(entry.dscp[0] for entry in plan.classes if entry.kind is ClassKind.CONTROL)


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest value that so large a share does not exceed."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]


def limit_seconds(size: str) -> float:
    """Of eight tensors through the port, nothing else in the way."""
    return SENDERS * SIZES[size] * 8 / RATE_BPS


def figures(cases: dict[str, Found], alone_bps: Sequence[float]) -> dict[str, float]:
    """Percentiles, and ours over the others'."""
    found: dict[str, float] = {}

    def p99(transport: str, case: str) -> float:
        return percentile(cases[case].seconds[transport], 0.99)

    zero, lossy, large = QUICK_CASES
    found["p99_ratio_to_best_tcp_128k_loss0"] = p99("ours_p10", zero) / min(
        p99("cubic", zero), p99("bbr", zero)
    )
    found["p99_ratio_to_cubic_128k_loss1pct"] = p99("ours_p10", lossy) / p99("cubic", lossy)
    found["p99_ratio_to_cubic_4m_loss1pct_rtt2ms"] = p99("ours_p10", large) / p99("cubic", large)
    found["p50_ratio_to_limit_128k_loss0"] = percentile(cases[zero].seconds["ours_p10"], 0.5) / limit_seconds(
        "128k"
    )
    found["cubic_alone_mbps_loss1pct_rtt2ms"] = median(alone_bps) / 1e6
    found["fair_share_mbps"] = RATE_BPS / SENDERS / 1e6
    for size in SIZES:
        found[f"limit_{size}_ms"] = limit_seconds(size) * 1e3
    for name, case in cases.items():
        found[f"p99_ratio_to_limit_{name}"] = p99("ours_p10", name) / limit_seconds(name.partition("_")[0])
        found[f"round_trip_ms_{name}"] = case.round_trip_seconds * 1e3
        missing = case.missing["ours_p10"]
        found[f"ours_p10_missing_share_{name}"] = sum(missing) / len(missing)
        for transport, seconds in case.seconds.items():
            found[f"{transport}_{name}_p50_ms"] = percentile(seconds, 0.5) * 1e3
            found[f"{transport}_{name}_p99_ms"] = percentile(seconds, 0.99) * 1e3
            found[f"{transport}_{name}_max_ms"] = max(seconds) * 1e3
    found["switch_late_us_max"] = max(case.late_us for case in cases.values())
    return found


def measure(*, quick: bool) -> dict[str, float]:
    """All cases, or those behind the main keys; raises MachineError."""
    plan = incast_plan()
    queue = port_queues(plan)[-2]
    fixed = {
        "rate_mbps": RATE_BPS / 1e6,
        "buffer_bytes": float(port_queues(plan)[-1].limit_bytes),
        "threshold_bytes": float(queue.threshold_bytes),
        "limit_bytes": float(queue.limit_bytes),
    }
    click.echo(
        "fixed beforehand: " + ", ".join(f"{key} {value:,.0f}" for key, value in fixed.items()), err=True
    )
    counts = QUICK_INCASTS if quick else INCASTS
    cases: dict[str, Found] = {}
    with running_incast(plan) as incast:
        for case in CASES:
            if quick and case.name not in QUICK_CASES:
                continue
            cases[case.name] = incast.measure(case, counts[case.size])
            for transport, seconds in cases[case.name].seconds.items():
                click.echo(
                    f"{case.name}, {transport}: p50 {percentile(seconds, 0.5) * 1e3:.1f} ms, "
                    f"p99 {percentile(seconds, 0.99) * 1e3:.1f} ms, max {max(seconds) * 1e3:.1f} ms",
                    err=True,
                )
        incast.prepare("rtt2ms", "loss1pct")
        alone = [
            ALONE_BYTES * 8 / incast.flows("cubic", ALONE_BYTES, [number])[0][0] for number in range(ALONE)
        ]
    return fixed | figures(cases, alone)


@click.command()
@click.option("--quick", is_flag=True, help="The cases of the main keys, fewer incasts.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Flow completion times of an incast, beside TCP."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
