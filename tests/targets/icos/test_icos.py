"""ICOS in particular: what it writes, reads, refuses, and in which order it changes a switch."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets import Lossless, PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.icos import TARGET
from mltswitch.targets.state import every_dscp_but
from switchsim.icos import IcosDevice
from switchsim.icos_sheet import FAMILIES
from tests.targets.icos.device import actions, apply, policy_of, read
from tests.targets.stories import Actor, Case, check_plan, play, stories

CAPABILITIES = TARGET.hardware(None)

HERE = Path(__file__).parent
N3000 = TARGET.hardware("n3000")
FILE = "mltswitch.txt"
CONFIG = "show running-config"
PERCENT = 6667  # bytes of an N4000
OTHERS = tuple(dscp for dscp in range(64) if dscp not in {48, 56, 10, 12})
QUEUES = (
    QueueState(6, (48, 56), None, Unlimited()),
    QueueState(5, (10,), 3 * PERCENT, Unlimited()),
    QueueState(4, (12,), 9 * PERCENT, Unlimited()),
    QueueState(0, OTHERS, None, Unlimited()),
)
STATE = SwitchState(
    (PortState("te1/0/2", True, None, QUEUES), PortState("te1/0/1", False, None, QUEUES)),
    (
        RouteState(IPv4Network("10.101.0.0/16"), IPv4Address("10.20.0.2"), ""),
        RouteState(IPv4Network("10.101.0.1/32"), IPv4Address("10.10.0.2"), ""),
    ),
)
ONE, TWO = STATE.ports


def with_queue(number: int, **changed: Any) -> tuple[QueueState, ...]:
    return tuple(replace(each, **changed) if each.queue == number else each for each in QUEUES)


def one(**changed: Any) -> SwitchState:
    return SwitchState((replace(ONE, **changed),), ())


def with_hosts(*control: int) -> SwitchState:
    """Two ports to spines, one to a host, and one whose packets are not trusted."""
    others = sorted({*OTHERS, 48, 56} - {*control})
    fabric = (replace(QUEUES[0], dscps=control), *QUEUES[1:3], replace(QUEUES[3], dscps=tuple(others)))
    every = tuple(sorted((*others, *control)))
    hosts = (replace(QUEUES[0], dscps=()), *QUEUES[1:3], replace(QUEUES[3], dscps=every))
    ports = (
        replace(ONE, queues=fabric),
        replace(TWO, queues=fabric),
        PortState("te1/0/5", True, None, hosts, rewritten=control),
        PortState("te1/0/6", False, None, fabric, rewritten=every_dscp_but(9)),
    )
    return replace(STATE, ports=ports, background_dscp=9)


WITH_HOSTS = with_hosts(48, 56)
FABRIC = replace(
    STATE,
    ports=tuple(replace(port, queues=QUEUES, rewritten=()) for port in WITH_HOSTS.ports),
    background_dscp=0,
)
LOWER = with_queue(5, ecn_threshold_bytes=PERCENT)
PLANS = {
    "STATE": STATE,
    "LOWER": SwitchState((replace(ONE, trusted=False, queues=LOWER),), STATE.routes[:1]),
    "HOSTS": WITH_HOSTS,
    "HOSTS_ALONE": SwitchState(WITH_HOSTS.ports[2:3], (), background_dscp=9),
    "OTHER_CONTROL": with_hosts(48, 50),
    "FABRIC": FABRIC,
    "GUARANTEED": one(queues=with_queue(0, minimum=PortShare(5))),
    "FREE": one(),
}


def enter(device: IcosDevice, lines: list[str]) -> None:
    assert device.configure(*lines) == "", lines


ICOS = Actor(
    target=TARGET,
    new=IcosDevice,
    read=read,
    apply=apply,
    enter=enter,
    entered=lambda change: [step.command for step in change.steps if step.command != "exit"],
    plans=PLANS,
    shown=CONFIG,
)


def serving(plan: SwitchState) -> IcosDevice:
    device: IcosDevice = ICOS.pushed(plan)
    return device


WORDS = {"ALL_BUT_9": str(every_dscp_but(9))}


@pytest.mark.parametrize("case", stories(HERE / "stories.txt", WORDS))
def test_what_the_manual_of_cases_says(case: Case) -> None:
    play(case, ICOS)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_reads_back_and_runs(name: str) -> None:
    check_plan(PLANS[name], ICOS)


def test_the_example_file() -> None:
    assert TARGET.render(STATE, CAPABILITIES) == {FILE: (HERE / "example.txt").read_text(encoding="utf-8")}


def test_a_percent_is_other_bytes_on_another_model() -> None:
    queues = (
        QUEUES[0],
        replace(QUEUES[1], ecn_threshold_bytes=7 * 2954),
        replace(QUEUES[3], dscps=tuple(sorted((*OTHERS, 12)))),
    )
    state = SwitchState((PortState("1/0/1", True, None, queues),), ())
    text = TARGET.render(state, N3000)[FILE]
    assert "min-thresh 7 7 7 7 " in text
    assert TARGET.parse({FILE: text}, N3000) == state
    assert TARGET.parse({FILE: text}, CAPABILITIES) != state


def test_a_file_cut_short_is_refused() -> None:
    text = TARGET.render(STATE, CAPABILITIES)[FILE]
    with pytest.raises(UserInputError, match="'interface te1/0/2' is not left"):
        TARGET.parse({FILE: text[: text.index("exit")]}, CAPABILITIES)


def test_lines_may_stand_in_another_order_with_other_comments() -> None:
    first, *blocks = TARGET.render(WITH_HOSTS, CAPABILITIES)[FILE].split("\n\n")
    titles = "! what hosts may not use", "! what ports send that are not trusted"
    assert all(any(block.startswith(f"{title} becomes background\n") for block in blocks) for title in titles)
    text = "\n! ours\n\n".join([first, *reversed(blocks)]).replace("exit\n! ours", "exit\n\n! ours")
    found = TARGET.parse({FILE: text}, CAPABILITIES)
    assert (set(found.ports), found.routes) == (set(WITH_HOSTS.ports), WITH_HOSTS.routes)


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (one(shaped_bps=10**9), "not shaped"),
        (one(name="Ethernet4"), "port Ethernet4: is no name for a port"),
        (one(name="te1/0/2\nreload"), "is no name for a port"),
        (one(queues=(replace(QUEUES[1], ecn_threshold_bytes=1000),)), "ECN threshold 1000 B"),
        (one(queues=(replace(QUEUES[1], limit=BytesLimit(9)),)), "the limit 9 B"),
        (SwitchState((ONE, replace(ONE, name="te1/0/9", queues=QUEUES[:2])), ()), "one DSCP map"),
        (one(queues=with_queue(5, minimum=PortShare(5))), "queue 5: only background"),
        (one(queues=with_queue(0, minimum=BitRate(1000))), "queue 0: a minimum of 1000 bit/s"),
        (
            one(queues=with_queue(0, maximum=PortShare(5))),
            "queue 0: no command is known that gives a queue a maximum",
        ),
        (one(queues=with_queue(6, queue=7)), "queue 7: is no queue that a plan may use"),
        (one(queues=()), "has no queues"),
        (
            replace(
                WITH_HOSTS, ports=(replace(WITH_HOSTS.ports[0], rewritten=(48, 56)), *WITH_HOSTS.ports[1:])
            ),
            "port te1/0/2: FASTPATH rewrites what a port",
        ),
    ],
)
def test_what_fastpath_cannot_express_is_refused(state: SwitchState, what: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=what):
        TARGET.render(state, CAPABILITIES)


@pytest.mark.parametrize("name", ["trident2", "trident3", "tomahawk2", "tomahawk3"])
def test_hardware_without_a_documented_scale_is_refused(name: str) -> None:
    problem = f"hardware '{name}' cannot be planned for: no public document.*one of n4000, n3000"
    with pytest.raises(UserInputError, match=problem):
        TARGET.hardware(name)


def test_unknown_hardware_is_refused() -> None:
    with pytest.raises(UserInputError, match=r"unknown hardware 'sn9999' .*n3000"):
        TARGET.hardware("sn9999")


@pytest.mark.parametrize(
    ("by_hand", "lossless"),
    [
        ("classofservice dot1p-mapping 3 2", Lossless("te1/0/2", 3, ())),
        ("classofservice trust dot1p", Lossless("te1/0/2", 3, (), "classofservice trust dot1p")),
    ],
)
def test_flow_control_on_a_priority_of_no_class_is_told(by_hand: str, lossless: Lossless) -> None:
    device = ICOS.pushed(STATE)
    pfc = ("datacenter-bridging", "priority-flow-control priority 3 no-drop", "priority-flow-control mode on")
    enter(device, ["interface te1/0/2", "classofservice dot1p-mapping 3 2", by_hand, *pfc])
    assert read(device, STATE).lossless == (lossless,)


def test_what_the_policies_do_with_packets() -> None:
    running = ICOS.pushed(WITH_HOSTS)
    policies = [policy_of(running, f"te1/0/{n}") for n in (1, 2, 5, 6)]
    made_background = {"assign-queue": 0, "mark-ip-dscp": 9}
    for family in FAMILIES:
        for dscp, hosts in ((48, made_background), (46, {})):
            found = [actions(running, policy, family, dscp) for policy in policies]
            assert found == [{}, {}, hosts, made_background]


@pytest.mark.parametrize(
    ("model", "hardware"),
    [
        ("N4032F", ("n4000",)),
        ("N4064", ("n4000",)),
        ("N3048ET-ON", ("n3000",)),
        ("N2024P", ("n3000",)),
        ("N3132PX-ON", ("n3000",)),
        ("N2128PX-ON", ("n3000",)),
        ("N1548", None),
        ("AS7712", None),
        ("N3248TE-ON", None),
    ],
)
def test_a_model_tells_the_scale_of_its_percents(model: str, hardware: tuple[str, ...] | None) -> None:
    if hardware is None:
        [note] = read(IcosDevice(model=model), STATE).notes
        unknown = f"whether {model} is the model n4000, for which the plan was made, is not known"
        assert note.startswith(unknown)
    else:
        assert TARGET.hardware_of(model) == hardware
        wanted = STATE if hardware == ("n4000",) else replace(STATE, ports=())
        assert read(IcosDevice(model=model), wanted, TARGET.hardware(hardware[0])).notes == ()
