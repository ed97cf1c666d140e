"""Eight senders at once to one receiver: flow completion times of the host agent and of TCP.

    python -m benchmarks.agent_incast [--quick] [--json]

Needs root and gcc. Nine hosts, each a namespace with a line of its own, and one switch
(mltswitch/lab/star.c, because the lab's user-mode-linux does not sustain the rates; it runs before all
other processes), which runs the plan of benchmarks/agent_incast.yaml for ResNet-50. Eight sending agents,
one a host, are in one process, as are TCP's sending sockets; the receiver is another process. All
connections stay open; eight senders begin at the same instant of the clock that they share, and a flow's
time is from that instant to the receiver's having the whole tensor: for ours, to its completion within the
loss bound. The four transports take turns, incast by incast. TCP has the port's whole buffer as one drop-
tail queue (class background); ours has the S and L that the plan gives the last gradient class, which are
less. Random loss takes any packet, either way.

128k cases: 500 Mbit/s a port, or 100 where there are fewer processors than hosts; round trip 0.2 ms. The 4m
case: 800 Mbit/s, 2 ms, 1 %, where a flow's fair share is more than cubic can carry at that loss: 1.22 · MSS
/ (RTT · √loss).

    p99_ratio_to_limit_128k_loss0           p99 of ours with loss bound 10 % over the physical limit
    p50_ratio_to_limit_128k_loss0           which is the bytes of eight tensors over the port's rate
    p99_ratio_to_best_tcp_128k_loss0        over the better of cubic and BBR
    p99_ratio_to_cubic_128k_loss1pct        over cubic
    p99_ratio_to_cubic_4m_loss1pct_rtt2ms
    fair_share_mbps, cubic_can_carry_mbps, cubic_alone_mbps
                                            of the 4m case: the formula's, and measured with nobody beside it
    rate_mbps_CASE, buffer_bytes_CASE, threshold_bytes_CASE, limit_bytes_CASE
                                            fixed beforehand: the port, its buffer, our S and L
    limit_ms_CASE, p99_ratio_to_limit_CASE, round_trip_ms_CASE (by ping, before the case)
    switch_late_us_max_CASE                 how late the switch handed on a packet at worst: noise
    ours_p10_missing_share_CASE             of the packets, at completion

More crowds, at 100 Mbit/s a port without random loss (agent_crowd.py):

    p99_ratio_to_limit_16to1, p50_ratio_to_limit_16to1    sixteen senders of 128 KB
    p99_ratio_to_limit_8to2, p50_ratio_to_limit_8to2      eight senders to each of two receivers at once
    others_p99_ratio_to_limit_slow_sender   seven senders beside one with a twentieth of its share; the limit
                                            is that of the seven
    jain_two_jobs, jain_flows_of_two_jobs, port_share_two_jobs
                                            two agents of one host, which know nothing of each other
    jain_two_jobs_told, share_of_lower_job, port_share_of_both_equal, port_share_of_both_higher
                                            the same with `port_share`: of equal priority, and 7 before 0,
                                            which keeps a twentieth
    share_beside_cubic, port_share_beside_cubic
                                            four senders of ours and four of cubic in one queue: 1 is half
    core_loss_share, uplinks_share, jain_thin_uplinks
                                            eight pairs across two spines with 4:1 uplinks, sprayed: packets
                                            dropped there, and goodput over the uplinks' rate

and for each transport (ours_p0 and ours_p10 with loss bounds 0 and 10 %, cubic, bbr) and CASE (128k_loss0,
128k_loss01pct, 128k_loss1pct, 4m_loss1pct_rtt2ms)

    TRANSPORT_CASE_p50_ms, _p99_ms, _max_ms
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import click

from benchmarks.agent_crowd import crowds
from benchmarks.agent_network import StarEnds, percentile, running_star_ends
from benchmarks.figures import print_figures
from mltswitch.documents import load_document
from mltswitch.errors import MltswitchError
from mltswitch.lab import Queue, planned_queues, running_star
from mltswitch.plan import ClassKind, Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities

SENDERS: Final = 8
SMALL_RATE_BPS: Final = 500_000_000 if len(os.sched_getaffinity(0)) > SENDERS else 100_000_000
LARGE_RATE_BPS: Final = 800_000_000
BURST_PACKETS: Final = 1
MSS_BYTES: Final = 1448
MATHIS: Final = 1.22
"""Mathis et al., CCR 1997: what TCP carries at random loss, times RTT · √loss / MSS."""
LOSS_BOUNDS: Final = {"ours_p0": 0.0, "ours_p10": 0.1}
TRANSPORTS: Final = ("ours_p0", "ours_p10", "cubic", "bbr")
ALONE: Final = 5
ALONE_BYTES: Final = 8 << 20
PAUSE_SECONDS: Final = 0.02
FABRIC: Final = Path(__file__).with_name("agent_incast.yaml")


@dataclass(frozen=True, slots=True)
class Case:
    """What is sent through what."""

    name: str
    size_bytes: int
    rate_bps: int
    round_trip_seconds: float
    loss: float
    incasts: int
    quick_incasts: int
    """0: left out."""

    @property
    def limit_seconds(self) -> float:
        """Of eight tensors through the port, nothing else in the way."""
        return SENDERS * self.size_bytes * 8 / self.rate_bps


CASES: Final = (
    Case("128k_loss0", 128 << 10, SMALL_RATE_BPS, 0.2e-3, 0.0, 60, 20),
    Case("128k_loss01pct", 128 << 10, SMALL_RATE_BPS, 0.2e-3, 1e-3, 30, 0),
    Case("128k_loss1pct", 128 << 10, SMALL_RATE_BPS, 0.2e-3, 1e-2, 60, 20),
    Case("4m_loss1pct_rtt2ms", 4 << 20, LARGE_RATE_BPS, 2e-3, 1e-2, 15, 4),
)


@dataclass(slots=True)
class Found:
    """Of one case."""

    round_trip_seconds: float
    seconds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in TRANSPORTS})
    """Transport → flow completion times."""
    missing: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in LOSS_BOUNDS})
    """Ours → share of each flow's packets that was missing at its completion."""
    late_us: float = 0.0


class Incast:
    """Both processes, and in them all transports' ends around one switch."""

    def __init__(self, ends: StarEnds, own_round_trip_seconds: float) -> None:
        self.star = ends.star
        self._ends = ends
        self._own_round_trip_seconds = own_round_trip_seconds

    def prepare(self, case: Case) -> float:
        """Set the switch; returns the round trip as ping finds it."""
        self.star.set_loss(0.0)
        self.star.set_round_trip(case.round_trip_seconds, self._own_round_trip_seconds)
        found = self.star.round_trip_seconds()
        self.star.set_loss(case.loss)
        return found

    def measure(self, case: Case, incasts: int) -> Found:
        """One case, the transports in turn, after one incast each that does not count."""
        found = Found(self.prepare(case))
        for number in range(incasts + 1):
            for name in TRANSPORTS[number % 4 :] + TRANSPORTS[: number % 4]:
                self.star.report()
                seconds, missing = self.flows(name, case.size_bytes, range(SENDERS))
                found.late_us = max(found.late_us, self.star.report()["late_max_us"])
                if number:
                    found.seconds[name] += seconds
                    if name in found.missing:
                        found.missing[name] += missing
                time.sleep(PAUSE_SECONDS)
        return found

    def flows(
        self, transport: str, size_bytes: int, senders: Sequence[int]
    ) -> tuple[Sequence[float], Sequence[float]]:
        """One incast: seconds and missing share of each flow."""
        if transport in LOSS_BOUNDS:
            bound = LOSS_BOUNDS[transport]
            found = self._ends.flows("default", size_bytes, senders, loss_bound=bound)
        else:
            found = self._ends.flows(transport, size_bytes, senders)
        return found.seconds, found.missing


def incast_plan(rate_bps: int) -> Plan:
    """Of ResNet-50 on the fabric beside this module, at another rate."""
    fabric = load_document(FABRIC, Fabric)
    ports = fabric.ports.model_copy(update={"rate": f"{rate_bps // 1_000_000}Mbps"})
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
def running_incast(plan: Plan, rate_bps: int) -> Iterator[Incast]:
    """Hosts, switch and every transport's ends, connected; raises MachineError."""
    with running_star(SENDERS + 1) as star:
        star.set_rate(rate_bps)
        star.set_queues(port_queues(plan))
        own = star.round_trip_seconds()
        control = next(entry.dscp[0] for entry in plan.classes if entry.kind is ClassKind.CONTROL)
        more: dict[str, Any] = {
            "queue": port_queues(plan)[-2].threshold_bytes,
            "classes": {"control_dscp": control, "gradient_dscp": [plan.gradient_classes[-1].dscp[0]]},
            "burst_packets": BURST_PACKETS,
        }
        with running_star_ends(star, rate_bps, **more) as ends:
            yield Incast(ends, own)


def figures(cases: dict[Case, Found]) -> dict[str, float]:
    """Percentiles, and ours over the others'."""
    seconds = {case.name: found.seconds for case, found in cases.items()}
    limits = {case.name: case.limit_seconds for case in cases}

    def p99(transport: str, case: str) -> float:
        return percentile(seconds[case][transport], 0.99)

    zero, lossy, large = "128k_loss0", "128k_loss1pct", "4m_loss1pct_rtt2ms"
    best = min(p99("cubic", zero), p99("bbr", zero))
    found = {
        f"p99_ratio_to_limit_{zero}": p99("ours_p10", zero) / limits[zero],
        f"p50_ratio_to_limit_{zero}": percentile(seconds[zero]["ours_p10"], 0.5) / limits[zero],
        f"p99_ratio_to_best_tcp_{zero}": p99("ours_p10", zero) / best,
        f"p99_ratio_to_cubic_{lossy}": p99("ours_p10", lossy) / p99("cubic", lossy),
        f"p99_ratio_to_cubic_{large}": p99("ours_p10", large) / p99("cubic", large),
    }
    for case, each in cases.items():
        name = case.name
        found[f"limit_ms_{name}"] = case.limit_seconds * 1e3
        found[f"p99_ratio_to_limit_{name}"] = p99("ours_p10", name) / case.limit_seconds
        found[f"round_trip_ms_{name}"] = each.round_trip_seconds * 1e3
        found[f"switch_late_us_max_{name}"] = each.late_us
        found[f"ours_p10_missing_share_{name}"] = fmean(each.missing["ours_p10"])
        for transport, times in each.seconds.items():
            found[f"{transport}_{name}_p50_ms"] = percentile(times, 0.5) * 1e3
            found[f"{transport}_{name}_p99_ms"] = percentile(times, 0.99) * 1e3
            found[f"{transport}_{name}_max_ms"] = max(times) * 1e3
    return found


def measure(*, quick: bool) -> dict[str, float]:
    """All cases, or those behind the main keys; raises MachineError."""
    fixed: dict[str, float] = {}
    found: dict[Case, Found] = {}
    for rate_bps in dict.fromkeys(case.rate_bps for case in CASES):
        plan = incast_plan(rate_bps)
        queue, buffer = port_queues(plan)[-2:]
        with running_incast(plan, rate_bps) as incast:
            for case in CASES:
                incasts = case.quick_incasts if quick else case.incasts
                if case.rate_bps != rate_bps or not incasts:
                    continue
                fixed[f"rate_mbps_{case.name}"] = rate_bps / 1e6
                fixed[f"buffer_bytes_{case.name}"] = float(buffer.limit_bytes)
                fixed[f"threshold_bytes_{case.name}"] = float(queue.threshold_bytes)
                fixed[f"limit_bytes_{case.name}"] = float(queue.limit_bytes)
                found[case] = incast.measure(case, incasts)
                for transport, seconds in found[case].seconds.items():
                    click.echo(
                        f"{case.name}, {transport}: p50 {percentile(seconds, 0.5) * 1e3:.1f} ms, "
                        f"p99 {percentile(seconds, 0.99) * 1e3:.1f} ms, max {max(seconds) * 1e3:.1f} ms, "
                        f"limit {case.limit_seconds * 1e3:.1f} ms",
                        err=True,
                    )
            if rate_bps == LARGE_RATE_BPS:
                incast.prepare(CASES[-1])
                alone = [incast.flows("cubic", ALONE_BYTES, [number])[0][0] for number in range(ALONE)]
                fixed["cubic_alone_mbps"] = ALONE_BYTES * 8 / median(alone) / 1e6
    large = CASES[-1]
    fixed["fair_share_mbps"] = large.rate_bps / SENDERS / 1e6
    fixed["cubic_can_carry_mbps"] = (
        MATHIS * MSS_BYTES * 8 / (large.round_trip_seconds * sqrt(large.loss)) / 1e6
    )
    return figures(found) | fixed | crowds(quick=quick)


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
