"""Enterprise SONiC in particular: what it writes, reads, refuses, and in which order it changes a switch."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError
from mltswitch.targets import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.dell_sonic import TARGET
from mltswitch.targets.dell_sonic.sheet import (
    QUEUES_NAME,
    dscp_map_of,
    number_list,
    numbers_of,
    rewriting_of,
    scheduler_of,
    wred_of,
)
from mltswitch.targets.state import SegmentRouting, differences, every_dscp_but
from switchsim.dell_sonic import DellSonicDevice
from tests.targets.dell_sonic.device import apply, lines_of, read
from tests.targets.stories import Actor, Case, check_plan, play, stories

CAPABILITIES = TARGET.hardware(None)

HERE = Path(__file__).parent
FILE = "mltswitch.txt"
CONFIG = "show running-configuration"
NO_BOX = {"show version": ""}
OTHERS = tuple(dscp for dscp in range(64) if dscp not in {48, 56, 8, 10, 12})
QUEUES = (
    QueueState(7, (48, 56), None, Unlimited()),
    QueueState(6, (8,), None, Unlimited(), None, BitRate(5_000_000_000)),
    QueueState(5, (10,), 60_000, Unlimited()),
    QueueState(2, (12,), 120_000, Unlimited()),
    QueueState(0, OTHERS, None, Unlimited(), BitRate(10_000_000_000)),
)
TO_HOSTS = (
    replace(QUEUES[0], dscps=()),
    *QUEUES[1:4],
    replace(QUEUES[4], dscps=tuple(sorted((*OTHERS, 48, 56)))),
)
STATE = SwitchState(
    (
        PortState("Eth1/2", True, None, QUEUES),
        PortState("Eth1/1", True, None, TO_HOSTS, rewritten=(48, 56)),
        PortState("Eth1/3", False, None, QUEUES, rewritten=every_dscp_but(0)),
    ),
    (
        RouteState(IPv4Network("10.101.0.0/16"), IPv4Address("10.20.0.2"), "Eth1/2"),
        RouteState(IPv4Network("10.101.0.1/32"), IPv4Address("10.10.0.2"), "Eth1/1"),
    ),
)
ONE = STATE.ports[0]


def with_queue(number: int, **changed: Any) -> tuple[QueueState, ...]:
    return tuple(replace(each, **changed) if each.queue == number else each for each in QUEUES)


def one(*queues: QueueState, **changed: Any) -> SwitchState:
    """A plan for the first port alone."""
    return SwitchState((replace(ONE, queues=queues or QUEUES, **changed),), STATE.routes)


FOUR = (*QUEUES[:3], replace(QUEUES[4], dscps=tuple(sorted((*OTHERS, 12)))))
UNCAPPED = (
    QUEUES[0],
    replace(QUEUES[1], dscps=(12,), maximum=None),
    QUEUES[2],
    replace(QUEUES[4], dscps=tuple(sorted((*OTHERS, 8)))),
)
THIRTY = with_queue(5, ecn_threshold_bytes=30_000)
NINE = replace(
    STATE, ports=(*STATE.ports[:2], replace(STATE.ports[2], rewritten=every_dscp_but(9))), background_dscp=9
)
LOWER = one(*with_queue(5, ecn_threshold_bytes=61_000), trusted=False)
PLANS = {
    "STATE": STATE,
    "ONE": one(),
    "FOUR_QUEUES": one(*FOUR),
    "UNCAPPED": one(*UNCAPPED),
    "THIRTY": SwitchState(tuple(replace(STATE.ports[n], queues=THIRTY) for n in (0, 2)), STATE.routes),
    "NINE": NINE,
    "LOWER": replace(LOWER, routes=STATE.routes[:1]),
}
WORDS = {
    "QUEUES": QUEUES_NAME,
    "ALL_BUT_0": str(every_dscp_but(0)),
    "MAP": dscp_map_of(QUEUES, trusted=True)[0],
    "HOST_MAP": dscp_map_of(TO_HOSTS, trusted=True)[0],
    "UNTRUSTED_MAP": dscp_map_of(QUEUES, trusted=False)[0],
    "MAP_OF_FOUR": dscp_map_of(FOUR, trusted=True)[0],
    "STRICT": scheduler_of(QUEUES)[0],
    "STRICT_FOUR": scheduler_of(FOUR)[0],
    "OF_HOSTS": rewriting_of((48, 56), 0)[0],
    "OF_ALL": rewriting_of(every_dscp_but(0), 0)[0],
    "OF_HOSTS_TO_9": rewriting_of((48, 56), 9)[0],
    "OF_ALL_TO_9": rewriting_of(every_dscp_but(9), 9)[0],
}
"""Names that say in a checksum what an object holds."""


def enter(device: DellSonicDevice, lines: list[str]) -> None:
    assert device.configure(*lines) == "", lines


DELL = Actor(
    target=TARGET,
    new=lambda: DellSonicDevice(ports=8),
    read=read,
    apply=apply,
    enter=enter,
    entered=lambda change: [step.command for step in change.steps if step.command != "exit"],
    plans=PLANS,
    shown=CONFIG,
)


@pytest.mark.parametrize("case", stories(HERE / "stories.txt", WORDS))
def test_what_the_manual_of_cases_says(case: Case) -> None:
    play(case, DELL)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_reads_back_and_runs(name: str) -> None:
    check_plan(PLANS[name], DELL)


def test_the_example_file() -> None:
    assert TARGET.render(STATE, CAPABILITIES) == {FILE: (HERE / "example.txt").read_text(encoding="utf-8")}


def test_lines_in_another_order_with_other_comments_say_the_same() -> None:
    head, *blocks = TARGET.render(STATE, CAPABILITIES)[FILE].split("\n\n")
    ports, routes = blocks[:-1], blocks[-1]
    text = "\n\n".join((head.replace("! thresholds", "! of ours: thresholds"), *ports, "!", routes))
    assert TARGET.parse({FILE: text.replace("\n ", "\n      ")}, CAPABILITIES) == STATE
    swapped = text.replace("  type strict\n  pir 5000000\n", "  pir 5000000\n  type strict\n")
    assert TARGET.parse({FILE: swapped}, CAPABILITIES) == STATE


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (one(shaped_bps=10**9), "not shaped"),
        (one(name="te1/0/1"), "port te1/0/1: is no name for a port"),
        (one(name="Eth1/2\nreload"), "is no name for a port"),
        (replace(STATE, ports=(replace(ONE, queues=()),)), "has no queues"),
        (one(QUEUES[1], QUEUES[0], *QUEUES[2:]), "its queues are 6, 7, 5"),
        (one(*with_queue(5, queue=4)), "queue 4: is no queue that a plan may use"),
        (one(*with_queue(5, dscps=())), "not every code point leads to one queue"),
        (one(*with_queue(5, ecn_threshold_bytes=60_001)), "queue 5: ECN threshold 60001 B"),
        (one(*with_queue(5, ecn_threshold_bytes=12_481_000)), "ECN threshold 12481000 B"),
        (one(*with_queue(5, limit=BytesLimit(9))), "the limit 9 B"),
        (one(*with_queue(5, minimum=PortShare(3))), "a minimum of 3 %"),
        (one(*with_queue(5, maximum=BitRate(31_000))), "a maximum of 31000 bit/s"),
        (
            one(*with_queue(5, minimum=BitRate(64_000), maximum=BitRate(32_000))),
            "its minimum 64000 bit/s is above its maximum",
        ),
        (replace(STATE, segment_routing=SegmentRouting(None, ())), "has no SRv6"),
        (replace(STATE, packet_spraying=True), "packet by packet"),
        (replace(STATE, routes=(STATE.routes[0]._replace(port="eth0"),)), "'eth0' is no name"),
    ],
)
def test_what_this_system_cannot_express_is_refused(state: SwitchState, what: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=what):
        TARGET.render(state, CAPABILITIES)


def test_names_say_what_an_object_holds() -> None:
    assert wred_of(60_000)[0] == "mltswitch-wred-60"
    names = {dscp_map_of(queues, trusted=True)[0] for queues in (QUEUES, TO_HOSTS, QUEUES[::-1])}
    assert len(names) == 3
    assert scheduler_of(QUEUES)[0] == scheduler_of(TO_HOSTS)[0]
    assert scheduler_of(QUEUES)[0] != scheduler_of(QUEUES[:4])[0]
    longest = WORDS["UNTRUSTED_MAP"]
    assert len(longest) <= 32
    assert longest.startswith("mltswitch-untrusted-")


@pytest.mark.parametrize("text", ["", "a", "5-3", "64", "0-", "-3", "1,,2", "1-2-3", "٣"])
def test_what_is_no_list_of_numbers(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|no range"):
        numbers_of(text)


def test_lists_of_numbers() -> None:
    assert number_list([0, 1, 2, 5, 63]) == "0-2,5,63"
    assert numbers_of("0-2,5,63") == (0, 1, 2, 5, 63)


def test_ports_share_what_is_equal() -> None:
    configuration = DELL.pushed(STATE).configuration
    for kind, names in [
        ("qos wred-policy", ["mltswitch-wred-60", "mltswitch-wred-120"]),
        ("qos scheduler-policy", [WORDS["STRICT"]]),
        ("qos map tc-queue", [QUEUES_NAME]),
        ("qos map dscp-tc", [WORDS[name] for name in ("MAP", "HOST_MAP", "UNTRUSTED_MAP")]),
    ]:
        assert configuration.heads(kind) == [f"{kind} {name}" for name in names]
    assert f"qos-map dscp-tc {WORDS['UNTRUSTED_MAP']}" in lines_of(configuration, "interface Eth1/3")


def test_an_old_object_of_ours_goes_when_no_port_uses_it_any_more() -> None:
    device = DELL.pushed(STATE, PLANS["THIRTY"])
    enter(device, ["interface Eth1/1", "no queue 5 wred-policy", "no qos-map dscp-tc"])
    assert DELL.entered(DELL.change(device, PLANS["THIRTY"])) == [
        "no qos wred-policy mltswitch-wred-60",
        f"no qos map dscp-tc {WORDS['HOST_MAP']}",
    ]


def test_rates_never_cross_on_the_way() -> None:
    device = DELL.pushed(STATE)
    for rates in ((4_000, 9_000), (1_000, 2_000), (3_000, 3_000), (50_000, 60_000)):
        low, high = (BitRate(rate * 1000) for rate in rates)
        former = (f"pir {max(rates) * 10}", "cir 20000", f"pir {20_000 + max(rates)}")
        device.configure(f"qos scheduler-policy {WORDS['STRICT']}", "queue 0", *former)  # may be refused
        queues = with_queue(0, minimum=low, maximum=high)
        wanted = replace(STATE, ports=(replace(ONE, queues=queues),))
        apply(device, DELL.change(device, wanted))
        in_queue = (f"qos scheduler-policy {scheduler_of(queues)[0]}", "queue 0")
        for by_hand in (("no cir", "pir 100", "cir 90"), ("pir 900000", "cir 800000"), ("no cir", "no pir")):
            enter(device, [*in_queue, *by_hand])
            apply(device, DELL.change(device, wanted))
            assert read(device, wanted).state == wanted
            enter(device, [*in_queue, "no cir"])
            apply(device, DELL.change(device, wanted))


@pytest.mark.parametrize(("runs", "name"), [("UNCAPPED", "ONE"), ("STATE", "NINE")])
def test_a_push_that_was_cut_off_goes_on_and_leaves_nothing_between(runs: str, name: str) -> None:
    wanted = PLANS[name]
    pushed = DELL.pushed(PLANS[runs])
    lines = [step.command for step in DELL.change(pushed, wanted).steps]
    apply(pushed, DELL.change(pushed, wanted))
    for end in range(len(lines)):
        device = DELL.pushed(PLANS[runs])
        enter(device, lines[:end])
        apply(device, DELL.change(device, wanted))
        assert read(device, wanted).state == wanted
        assert device.configuration.blocks.keys() == pushed.configuration.blocks.keys()


def test_policy_maps_of_ours_go_when_no_port_has_them_any_more() -> None:
    device = DELL.pushed(NINE)
    enter(device, ["interface Eth1/7", f"service-policy type qos in {WORDS['OF_ALL_TO_9']}"])
    apply(device, DELL.change(device, STATE))
    maps = {f"policy-map {WORDS[name]} type qos" for name in ("OF_HOSTS", "OF_ALL", "OF_ALL_TO_9")}
    assert {*device.configuration.heads("policy-map")} == maps
    for port in ("Eth1/1", "Eth1/3", "Eth1/7"):
        enter(device, [f"interface {port}", "no service-policy type qos in"])
    apply(device, DELL.change(device, replace(STATE, ports=STATE.ports[:1])))
    assert device.configuration.heads("policy-map") + device.configuration.heads("class-map") == []


def test_answers_with_and_without_indentation() -> None:
    config = read(DELL.pushed(STATE), STATE).answers[CONFIG]
    bare = "\n".join(line.strip() for line in config.splitlines())
    assert TARGET.read(NO_BOX | {CONFIG: bare}, STATE, CAPABILITIES).state == STATE
    pasted = (HERE / "z9664f.txt").read_text(encoding="utf-8")
    running = TARGET.read(NO_BOX | {CONFIG: pasted}, STATE, CAPABILITIES)
    first = running.state.ports[0]
    assert first.trusted
    assert "scheduler-policy ROCE: queue 6 type strict" not in first.unexpected
    assert "scheduler-policy ROCE: queue 0 type dwrr, weight 50" in first.unexpected
    assert {"qos-map dscp-tc ROCE", "qos-map dot1p-tc ROCE"} <= {*first.unexpected}
    assert first.queues[-1].dscps[:6] == (0, 1, 2, 3, 5, 6)
    outermost = ("!", "qos ", "interface ", "line ", "hardware")
    lines = (line if line.startswith(outermost) else f" {line}" for line in pasted.splitlines())
    indented = TARGET.read(NO_BOX | {CONFIG: "\n".join(lines)}, STATE, CAPABILITIES)
    assert indented.state == running.state


def test_a_box_with_another_chip_is_refused_and_one_that_nobody_knows_told() -> None:
    device = DellSonicDevice(ports=8)
    assert read(device, STATE).notes == ()
    device.box = "z9264f"
    with pytest.raises(DeviceError, match="x86_64-dellemc_z9264f_c3538-r0, hardware tomahawk2; nothing was"):
        read(device, STATE)
    device.box = "s9999f"
    [told] = read(device, STATE).notes
    assert told.startswith("whether x86_64-dellemc_s9999f_c3538-r0 is the hardware trident3, for which")


def test_a_port_that_the_switch_lacks() -> None:
    device = DELL.pushed(STATE)
    wanted = replace(STATE, ports=(*STATE.ports, replace(ONE, name="Eth1/99")))
    running = read(device, wanted)
    [absent] = differences(wanted, running.state)
    assert str(absent) == "port Eth1/99: configuration expected present, found absent"
    with pytest.raises(DeviceError, match=r"^port Eth1/99: the switch has no such port"):
        TARGET.diff(running, wanted, CAPABILITIES)


@pytest.mark.parametrize(
    "answer", ["", "\n!\n", "%Error: Could not connect to Management REST Server", "x" * 99]
)
def test_an_answer_without_interfaces_is_one_error(answer: str) -> None:
    with pytest.raises(DeviceError, match="the answer has no interface"):
        TARGET.read(NO_BOX | {CONFIG: answer}, STATE, CAPABILITIES)
