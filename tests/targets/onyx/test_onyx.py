"""Onyx in particular: what it writes, reads, refuses, and in which order it changes a switch."""

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError
from mltswitch.targets import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.onyx import TARGET
from mltswitch.targets.state import SegmentRouting, differences
from switchsim.onyx import OnyxDevice
from switchsim.settings import Facts
from tests.targets.onyx.device import apply, read
from tests.targets.stories import Actor, Case, check_plan, play, stories

CAPABILITIES = TARGET.hardware(None)

CONFIG = "show running-config"
OTHERS = tuple(dscp for dscp in range(64) if dscp not in {48, 56, 10, 12})
QUEUES = (
    QueueState(7, (48, 56), None, Unlimited()),
    QueueState(6, (10,), 18432, Unlimited()),
    QueueState(5, (12,), 61440, Unlimited()),
    QueueState(0, OTHERS, None, Unlimited()),
)
STATE = SwitchState(
    (PortState("1/2", True, None, QUEUES), PortState("1/1", False, None, QUEUES)),
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


FOUR = QueueState(4, (14,), 61440, Unlimited())
BACKGROUND = replace(QUEUES[3], dscps=tuple(dscp for dscp in OTHERS if dscp != 14))
LOWER = with_queue(6, ecn_threshold_bytes=6144)
PLANS = {
    "STATE": STATE,
    "LOWER": SwitchState((replace(ONE, trusted=False, queues=LOWER),), STATE.routes[:1]),
    "FOUR": SwitchState((replace(ONE, queues=(*QUEUES[:3], FOUR, BACKGROUND)),), STATE.routes),
}


def enter(device: OnyxDevice, lines: list[str]) -> None:
    for line in lines:
        assert not line or line.startswith("##") or device.configure(line) == "", line


ONYX = Actor(
    target=TARGET,
    new=OnyxDevice,
    read=read,
    apply=apply,
    enter=enter,
    entered=lambda change: [step.command for step in change.steps[1:]],
    plans=PLANS,
    shown=CONFIG,
)


@pytest.mark.parametrize("case", stories(Path(__file__).parent / "stories.txt", {}))
def test_what_the_manual_of_cases_says(case: Case) -> None:
    play(case, ONYX)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_reads_back_and_runs(name: str) -> None:
    check_plan(PLANS[name], ONYX)


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (one(shaped_bps=10**9), "not shaped"),
        (one(name="eth1"), "port eth1: is no name for a port"),
        (one(queues=with_queue(6, ecn_threshold_bytes=1000)), "ECN threshold 1000 B"),
        (one(queues=with_queue(6, ecn_threshold_bytes=0)), "ECN threshold 0 B"),
        (one(queues=with_queue(6, limit=BytesLimit(9))), "the limit 9 B"),
        (one(queues=with_queue(0, minimum=PortShare(5))), "port 1/2, queue 0: no command is known"),
        (one(queues=with_queue(6, maximum=BitRate(10**9))), "port 1/2, queue 6: no command is known"),
        (replace(STATE, packet_spraying=True), "packet by packet"),
        (replace(STATE, segment_routing=SegmentRouting(None, ())), "no SRv6"),
    ],
)
def test_what_onyx_cannot_express_is_refused(state: SwitchState, what: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=what):
        TARGET.render(state, CAPABILITIES)


def test_only_one_route_is_missing_at_a_time() -> None:
    prefixes = [IPv4Network(f"10.101.{n}.0/24") for n in range(6)]
    wanted = replace(STATE, routes=tuple(RouteState(each, IPv4Address("10.20.0.2"), "") for each in prefixes))
    device = OnyxDevice()
    for n, prefix in enumerate(prefixes):
        enter(device, [f"ip route vrf default {prefix} 10.20.0.2 {n + 2}"])
    enter(device, ["ip route vrf default 10.101.0.0/24 10.20.0.9"])
    lines = [line for line in ONYX.entered(ONYX.change(device, wanted)) if "route" in line]
    for line in lines:
        enter(device, [line])
        assert len({*prefixes} - {route.prefix for route in read(device, wanted).state.routes}) <= 1
    assert lines[-1] == "no ip route vrf default 10.101.0.0/24 10.20.0.9"
    assert read(device, wanted).state.routes == wanted.routes


@pytest.mark.parametrize(
    ("by_hand", "found"),
    [
        ({("1/1", "default-switch-priority"): 6}, ["1/1: … default switch-priority 6"]),
        ({("1/2", "default-switch-priority"): 7}, ["1/2: … default switch-priority 7"]),
        ({("1/2", "shaper-mbps"): 1000}, ["1/2: … bandwidth shape 1000 Mbps"]),
        (
            {("1/2", "class-shaper-mbps", 6): 99},
            ["1/2: … traffic-class 6 BW Sh.(Mbps) 99 (set by somebody else, not ours to remove)"],
        ),
        (
            {("1/2", "class-guaranteed-mbps", 0): 1500},
            ["1/2: … traffic-class 0 BW Gr.(Mbps) 1500 (set by somebody else, not ours to remove)"],
        ),
        ({("1/2", "class-shaper-mbps", 3): 7}, []),  # no plan's class
        ({("1/2", "class-guaranteed-mbps", 3): 5}, []),
    ],
)
def test_a_setting_without_a_known_command_is_found_and_left(
    by_hand: Mapping[tuple[Any, ...], int], found: list[str]
) -> None:
    device = ONYX.pushed(STATE)
    device.configuration = Facts({**device.configuration, **by_hand})
    words = " configuration expected as planned, found "
    expected = [f"port {each}".replace(" … ", words) for each in found]
    assert [str(each) for each in differences(STATE, read(device, STATE).state)] == expected
    assert ONYX.change(device, STATE).is_empty
    before = device.configuration
    apply(device, ONYX.change(device, replace(STATE, ports=(replace(ONE, queues=LOWER), TWO))))
    changed = {fact for fact in before if before[fact] != device.configuration.get(fact)}
    assert changed == {("1/2", "congestion-control", 6)}
    assert before.keys() == device.configuration.keys()


@pytest.mark.parametrize(
    ("first_last", "names"),
    [
        ("1/2", ["1/2/1", "1/2/3"]),
        ("1/1-1/3", ["1/2/1", "1/2/3", "1/3/1"]),
        ("1/2/2-1/3/1", ["1/2/3", "1/3/1"]),
        ("1/2/1", ["1/2/1"]),
    ],
)
def test_split_ports_are_in_the_range_of_their_whole(first_last: str, names: list[str]) -> None:
    ports = tuple(PortState(name, True, None, QUEUES) for name in ("1/2/1", "1/2/3", "1/3/1"))
    answers = {CONFIG: f"   interface ethernet {first_last} traffic-class 6 red-profile bulk\n"}
    for query, answer in read(ONYX.pushed(STATE), STATE).answers.items():
        for port in ports:
            answers.setdefault(query.replace("ethernet 1/2 ", f"ethernet {port.name} "), answer)
    state = TARGET.read(answers, SwitchState(ports, ()), CAPABILITIES).state
    assert [port.name for port in state.ports if port.unexpected] == names


def test_flow_control_on_a_priority_of_no_class_is_told() -> None:
    device = OnyxDevice()
    on = ["dcb priority-flow-control priority 3 enable", "dcb priority-flow-control enable force"]
    enter(device, [*on, "interface ethernet 1/1-1/16 dcb priority-flow-control mode on force"])
    lossless = read(device, STATE).lossless[0]
    assert (lossless.priority, lossless.otherwise) == (3, "qos trust L2")
    apply(device, ONYX.change(device, STATE))
    assert {each.otherwise for each in read(device, STATE).lossless} == {""}


def test_answers_with_noise_and_other_words() -> None:
    answers = {
        query: f"[mlag-domain: master]\n{answer}\nother state: ready\n".replace('"BOTH"', '"ECN/RED"')
        for query, answer in read(ONYX.pushed(STATE), STATE).answers.items()
    }
    assert TARGET.read(answers, STATE, CAPABILITIES).state == STATE


@pytest.mark.parametrize("answer", ["", "% Unrecognized command", "{}", "[1, 2]", '[{"Trust mode": []}]'])
def test_an_answer_of_another_form_is_one_error(answer: str) -> None:
    with pytest.raises(DeviceError, match="another form"):
        TARGET.read(dict.fromkeys(TARGET.queries(STATE), answer), STATE, CAPABILITIES)


def test_a_number_of_a_port_that_is_too_long_is_one_error() -> None:
    answers = read(OnyxDevice(), STATE).answers
    line = f"interface ethernet 1/{'9' * 5000} mtu 9000\n"
    with pytest.raises(DeviceError):
        TARGET.read({**answers, CONFIG: answers[CONFIG] + line}, STATE, CAPABILITIES)
