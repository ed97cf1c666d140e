"""EOS in particular: what it writes, reads, refuses, and in which order it changes a switch."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from mltswitch.capabilities import BitRate, PortShare, Unlimited
from mltswitch.targets import Change, PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.eos import TARGET
from mltswitch.targets.eos.read import RUNNING_CONFIG
from mltswitch.targets.state import every_dscp_but
from switchsim.eos import EosDevice
from tests.targets.eos.device import apply, read
from tests.targets.stories import Actor, Case, check_plan, play, stories

CAPABILITIES = TARGET.hardware(None)

HERE = Path(__file__).parent
FILE = "mltswitch.txt"
SESSIONS = "show configuration sessions detail | json"
OTHERS = tuple(dscp for dscp in range(64) if dscp not in {48, 56, 10, 12})
QUEUES = (
    QueueState(6, (48, 56), None, Unlimited()),
    QueueState(5, (10,), 18432, Unlimited()),
    QueueState(4, (12,), 61440, Unlimited()),
    QueueState(0, OTHERS, None, Unlimited()),
)
STATE = SwitchState(
    (PortState("Ethernet2/1", True, None, QUEUES), PortState("Ethernet1/1", False, None, QUEUES)),
    (
        RouteState(IPv4Network("10.101.0.0/16"), IPv4Address("10.20.0.2"), "Ethernet2/1"),
        RouteState(IPv4Network("10.101.0.1/32"), IPv4Address("10.10.0.2"), "Ethernet1/1"),
    ),
)
ONE, TWO = STATE.ports


def with_queue(number: int, **changed: object) -> tuple[QueueState, ...]:
    return tuple(replace(each, **changed) if each.queue == number else each for each in QUEUES)  # type: ignore[arg-type]  # any field


def with_hosts(*control: int) -> SwitchState:
    """Two ports to spines, one to a host, and one whose packets are not trusted."""
    others = sorted({*OTHERS, 48, 56} - {*control})
    fabric = (replace(QUEUES[0], dscps=control), *QUEUES[1:3], replace(QUEUES[3], dscps=tuple(others)))
    every = tuple(sorted((*others, *control)))
    hosts = (replace(QUEUES[0], dscps=()), *QUEUES[1:3], replace(QUEUES[3], dscps=every))
    ports = (
        replace(ONE, queues=fabric),
        replace(TWO, queues=fabric),
        PortState("Ethernet5/1", True, None, hosts, rewritten=control),
        PortState("Ethernet6/1", False, None, fabric, rewritten=every_dscp_but(9)),
    )
    return replace(STATE, ports=ports, background_dscp=9)


HOSTS = with_hosts(48, 56)
FABRIC = replace(
    STATE, ports=tuple(replace(port, queues=QUEUES, rewritten=()) for port in HOSTS.ports), background_dscp=0
)
BOUNDED = tuple(
    replace(queue, ecn_threshold_bytes=None, maximum=BitRate(5_000_000_000)) if queue.queue == 5 else queue
    for queue in with_queue(0, minimum=PortShare(5))
)
PLANS = {
    "STATE": STATE,
    "LOWER": SwitchState((replace(ONE, queues=with_queue(5, ecn_threshold_bytes=6144)),), STATE.routes[:1]),
    "HOSTS": HOSTS,
    "HOSTS_ALONE": SwitchState(HOSTS.ports[2:3], (), background_dscp=9),
    "OTHER_CONTROL": with_hosts(48, 50),
    "FABRIC": FABRIC,
    "BOUNDED": SwitchState((replace(ONE, queues=BOUNDED),), ()),
    "FREE": SwitchState((ONE,), ()),
}


def enter(device: EosDevice, lines: list[str]) -> None:
    assert device.configure(*lines) == "", lines


def entered(change: Change) -> list[str]:
    """What is sent, without what opens and commits the session."""
    steps = (step.command for step in change.steps)
    return [step for step in steps if step != "end" and not step.startswith("configure session")]


EOS = Actor(
    target=TARGET,
    new=EosDevice,
    read=read,
    apply=apply,
    enter=enter,
    entered=entered,
    plans=PLANS,
    shown=RUNNING_CONFIG,
    shown_end="end\n",
)
WORDS = {"REST": " ".join(map(str, OTHERS)), "ALL_BUT_9": str(every_dscp_but(9))}


@pytest.mark.parametrize("case", stories(HERE / "stories.txt", WORDS))
def test_what_the_manual_of_cases_says(case: Case) -> None:
    play(case, EOS)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_reads_back_and_runs(name: str) -> None:
    check_plan(PLANS[name], EOS)
