"""Onyx in particular: what it writes, reads, refuses, and in which order it changes a switch."""

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.targets import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.onyx import TARGET
from mltswitch.targets.state import SegmentRouting, differences
from switchsim.onyx import OnyxDevice
from switchsim.settings import Fact, Facts
from tests.targets.onyx.device import apply, read

CAPABILITIES = TARGET.hardware(None)

FILE = "mltswitch.txt"
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


def pushed() -> OnyxDevice:
    device = OnyxDevice()
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    return device


def commands(device: OnyxDevice, wanted: SwitchState = STATE) -> list[str]:
    return [step.command for step in TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps]


HOST_QUEUES = (
    replace(QUEUES[0], dscps=()),
    *QUEUES[1:3],
    replace(QUEUES[3], dscps=tuple(sorted((*OTHERS, 48, 56)))),
)
HOSTS = SwitchState((PortState("1/3", True, None, HOST_QUEUES), PortState("1/4", True, None, QUEUES)), ())


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("reload", "mltswitch.txt:2: not a line that mltswitch writes"),
        ("interface ethernet 1/2 qos trust both", "mltswitch.txt:2: not a line"),
        ("interface ethernet 1/2-1/9 qos trust L3", "mltswitch.txt:2: not a line"),
        ("interface ethernet 1/2 qos trust L3; reload", "mltswitch.txt:2: not a line"),
        ("## fine\rreload", "mltswitch.txt:2: not a line"),
        ("interface ethernet 1/2 qos map dscp 64 to switch-priority 6", "mltswitch.txt:2: not a list"),
        ("ip route vrf default 10.0.0.1/8 10.0.0.1", "mltswitch.txt:2: 10.0.0.1/8 has host bits set"),
        (
            "interface ethernet 1/2 traffic-class 3 bind switch-priority 6",
            "mltswitch.txt:2: does not fit the other",
        ),
        (
            "interface ethernet 1/2 traffic-class 3 dcb ets strict",
            "lacks the line 'interface ethernet 1/2 no traffic-class 3 congestion-control'",
        ),
        ("interface ethernet 1/2 qos trust L3", r"mltswitch.txt:\d+: does not fit the other"),
        ("interface ethernet 1/2 traffic-class 6 bandwidth shape 1G", "mltswitch.txt:2: not a line"),
        ("interface ethernet 1/2 traffic-class 0 bandwidth guaranteed 1G", "mltswitch.txt:2: not a line"),
        ("interface ethernet 1/2 bandwidth shape 1G", "mltswitch.txt:2: not a line"),
        ("ip route vrf default 10.101.0.1/32 10.10.0.2", r"mltswitch.txt:\d+: does not fit the other"),
        ("interface ethernet 1/9 qos trust L3", "mltswitch.txt: lacks the line 'interface ethernet 1/9 no"),
        (
            "interface ethernet 1/2 traffic-class 6 congestion-control both "
            "minimum-absolute 18 maximum-absolute 24",
            "mltswitch.txt:2: minimum and maximum differ",
        ),
    ],
)
def test_a_line_outside_the_grammar_is_refused(line: str, what: str) -> None:
    first, *rest = TARGET.render(STATE, CAPABILITIES)[FILE].split("\n")
    with pytest.raises(UserInputError, match=what):
        TARGET.parse({FILE: "\n".join([first, line, *rest])}, CAPABILITIES)


def test_a_missing_line_is_refused() -> None:
    text = TARGET.render(STATE, CAPABILITIES)[FILE].replace(
        "interface ethernet 1/1 traffic-class 6 dcb ets strict\n", ""
    )
    with pytest.raises(UserInputError, match="lacks the line 'interface ethernet 1/1 traffic-class 6 dcb"):
        TARGET.parse({FILE: text}, CAPABILITIES)


def test_what_onyx_cannot_express_is_refused() -> None:
    for port, what in [
        (replace(STATE.ports[0], shaped_bps=10**9), "not shaped"),
        (replace(STATE.ports[0], name="eth1"), "port eth1: is no name for a port"),
        (
            replace(STATE.ports[0], queues=(replace(QUEUES[1], ecn_threshold_bytes=1000),)),
            "ECN threshold 1000 B",
        ),
        (replace(STATE.ports[0], queues=(replace(QUEUES[1], ecn_threshold_bytes=0),)), "ECN threshold 0 B"),
        (replace(STATE.ports[0], queues=(replace(QUEUES[1], limit=BytesLimit(9)),)), "the limit 9 B"),
        (
            replace(STATE.ports[0], queues=(replace(QUEUES[3], minimum=PortShare(5)),)),
            "port 1/2, queue 0: no command is known",
        ),
        (
            replace(STATE.ports[0], queues=(replace(QUEUES[1], maximum=BitRate(10**9)),)),
            "port 1/2, queue 6: no command is known",
        ),
    ]:
        with pytest.raises(UnsupportedPlanError, match=what):
            TARGET.render(SwitchState((port,), ()), CAPABILITIES)
    for state, what in [
        (replace(STATE, packet_spraying=True), "packet by packet"),
        (replace(STATE, segment_routing=SegmentRouting(None, ())), "no SRv6"),
    ]:
        with pytest.raises(UnsupportedPlanError, match=what):
            TARGET.render(state, CAPABILITIES)


def test_a_class_that_a_plan_adds_does_not_wait_behind_background() -> None:
    device = pushed()
    queues = (*QUEUES[:3], QueueState(4, (14,), 61440, Unlimited()), *QUEUES[3:])
    queues = (*queues[:-1], replace(queues[-1], dscps=tuple(dscp for dscp in OTHERS if dscp != 14)))
    wanted = SwitchState((replace(STATE.ports[0], queues=queues),), STATE.routes)
    assert [" ".join(line.split()[3:7]) for line in commands(device, wanted)[1:]] == [
        "traffic-class 4 dcb ets",
        "qos map dscp 14",
        "traffic-class 4 congestion-control both",
    ]


@pytest.mark.parametrize(
    ("by_hand", "found"),
    [
        (
            "interface ethernet 1/2 traffic-class 6 congestion-control both "
            "minimum-absolute 60 maximum-absolute 60",
            "port 1/2, queue 6: ecn_threshold_bytes expected 18432, found 61440",
        ),
        (
            "interface ethernet 1/2 traffic-class 6 congestion-control ecn "
            "minimum-absolute 18 maximum-absolute 18",
            "port 1/2, queue 6: ecn_threshold_bytes expected 18432, found None",
        ),
        (
            "interface ethernet 1/2 traffic-class 7 congestion-control red "
            "minimum-relative 5 maximum-relative 9",
            "port 1/2: configuration expected as planned, found traffic-class 7 congestion-control red "
            "minimum-relative 5 maximum-relative 9",
        ),
        (
            "interface ethernet 1/2 traffic-class 5 dcb ets wrr 20",
            "port 1/2: configuration expected as planned, found traffic-class 5 dcb ets wrr 20",
        ),
        ("interface ethernet 1/2 qos trust both", "port 1/2: trusted expected True, found False"),
        (
            "interface ethernet 1/2 qos rewrite dscp",
            "port 1/2: configuration expected as planned, found qos rewrite dscp",
        ),
        (
            "interface ethernet 1/2 traffic-class 0 bind switch-priority 6",
            "port 1/2, queue 6: dscps expected (10,), found ()",
        ),
        (
            "ip route vrf default 10.101.0.0/16 10.20.0.6",
            "routes: route 10.101.0.0/16 expected via 10.20.0.2, found via 10.20.0.6",
        ),
        (
            "ip route vrf default 10.101.3.0/24 10.20.0.6",
            "routes: route 10.101.3.0/24 expected absent, found via 10.20.0.6",
        ),
        (
            "ip route vrf default 10.101.3.0/24 10.20.0.2 5",
            "routes: route 10.101.3.0/24 expected absent, found via 10.20.0.2 5",
        ),
        (
            "ip route vrf default 10.101.3.0/24 null0 9",
            "routes: route 10.101.3.0/24 expected absent, found via 0.0.0.0 null0 9",
        ),
    ],
)
def test_a_change_by_hand_is_found_and_mended_by_one_line(by_hand: str, found: str) -> None:
    device = pushed()
    assert device.configure(by_hand) == ""
    assert found in {str(difference) for difference in differences(STATE, read(device, STATE).state)}
    change = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
    assert len(change.steps) == 2  # the preamble, and the line
    apply(device, change)
    assert commands(device) == []


def test_another_distance_of_our_route_is_found_and_mended() -> None:
    device = pushed()
    assert device.configure("ip route vrf default 10.101.0.0/16 10.20.0.2 5") == ""
    assert [str(difference) for difference in differences(STATE, read(device, STATE).state)] == [
        "routes: route 10.101.0.0/16 expected via 10.20.0.2, found via 10.20.0.2 5"
    ]
    assert commands(device)[1:] == [
        "no ip route vrf default 10.101.0.0/16 10.20.0.2",
        "ip route vrf default 10.101.0.0/16 10.20.0.2",
    ]
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert read(device, STATE).state == STATE


def test_only_one_route_is_missing_at_a_time() -> None:
    routes = tuple(
        RouteState(IPv4Network(f"10.101.{n}.0/24"), IPv4Address("10.20.0.2"), "") for n in range(6)
    )
    wanted = replace(STATE, routes=routes)
    device = OnyxDevice()
    for n in range(6):
        assert device.configure(f"ip route vrf default 10.101.{n}.0/24 10.20.0.2 {n + 2}") == ""
    assert device.configure("ip route vrf default 10.101.0.0/24 10.20.0.9") == ""
    lines = [line for line in commands(device, wanted) if "route" in line]
    for line in lines:
        assert device.configure(line) == ""
        left = {fact[2] for fact in device.configuration if fact[1] == "route"}
        assert len({route.prefix for route in routes} - left) <= 1
    assert lines[-1] == "no ip route vrf default 10.101.0.0/24 10.20.0.9"
    assert read(device, wanted).state.routes == routes


def test_a_second_distance_of_a_route_is_removed_and_the_route_kept() -> None:
    running = read(pushed(), STATE)
    second = (
        "ip route vrf default 10.101.0.0/16 10.20.0.2 5\nip route vrf default 10.101.0.0/16 10.20.0.2 6\n"
    )
    shown = TARGET.read({**running.answers, CONFIG: running.answers[CONFIG] + second}, STATE, CAPABILITIES)
    assert [step.command for step in TARGET.diff(shown, STATE, CAPABILITIES).steps[1:]] == [
        "no ip route vrf default 10.101.0.0/16 10.20.0.2",
        "ip route vrf default 10.101.0.0/16 10.20.0.2",
    ]


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("ip route 10.101.3.0 255.255.255.0 10.20.0.2", ""),
        ("   ip route vrf default 10.101.3.0 /24 10.20.0.2 10 ", "10"),
        ("ip route vrf default 10.101.3.0 255.255.255.0 null0", ""),
        ("ip route vrf default 10.101.3.0 255.255.255.0 null0 10", "null0 10"),
    ],
)
def test_every_form_of_a_route_is_read(line: str, port: str) -> None:
    running = read(pushed(), STATE)
    config = running.answers[CONFIG] + f"{line}\nip route vrf red 10.101.4.0/24 10.20.0.2\n"
    found = TARGET.read({**running.answers, CONFIG: config}, STATE, CAPABILITIES).state.routes
    hop = IPv4Address("0.0.0.0" if "null0" in line else "10.20.0.2")  # noqa: S104 (no address to listen on)
    assert found == (*STATE.routes, RouteState(IPv4Network("10.101.3.0/24"), hop, port))


@pytest.mark.parametrize("line", ["ip route vrf default 10.101.3.0/33 10.20.0.2", "ip route 10.101.3.0"])
def test_a_route_that_cannot_be_read_is_one_error(line: str) -> None:
    answers = read(pushed(), STATE).answers
    with pytest.raises(DeviceError, match=f"^show running-config: cannot read '{line}'"):
        TARGET.read({**answers, CONFIG: answers[CONFIG] + line}, STATE, CAPABILITIES)


def by_hand(device: OnyxDevice, changed: Mapping[Any, Any]) -> None:
    """What the emulated command line has no command for."""
    device.configuration = Facts({**device.configuration, **changed})


@pytest.mark.parametrize(
    ("port", "what", "value", "found"),
    [
        ("1/1", "default-switch-priority", 6, ["default switch-priority 6"]),
        ("1/2", "default-switch-priority", 7, ["default switch-priority 7"]),
        ("1/2", "shaper-mbps", 1000, ["bandwidth shape 1000 Mbps"]),
    ],
)
def test_a_foreign_setting_of_our_port_is_found(port: str, what: str, value: int, found: list[str]) -> None:
    device = pushed()
    by_hand(device, {(port, what): value})
    assert [str(each) for each in differences(STATE, read(device, STATE).state)] == [
        f"port {port}: configuration expected as planned, found {each}" for each in found
    ]
    assert commands(device) == []


def test_a_bandwidth_of_a_class_of_the_plan_is_found_and_left_alone() -> None:
    device = pushed()
    changed = {
        ("1/2", "class-shaper-mbps", 6): 99,
        ("1/2", "class-guaranteed-mbps", 0): 1500,
        ("1/2", "class-shaper-mbps", 3): 7,  # no plan's class
        ("1/2", "class-guaranteed-mbps", 3): 5,
    }
    by_hand(device, changed)
    start = "port 1/2: configuration expected as planned, found traffic-class"
    assert [str(each) for each in differences(STATE, read(device, STATE).state)] == [
        f"{start} 6 BW Sh.(Mbps) 99 (set by somebody else, not ours to remove)",
        f"{start} 0 BW Gr.(Mbps) 1500 (set by somebody else, not ours to remove)",
    ]
    assert commands(device) == []
    lower = (QUEUES[0], replace(QUEUES[1], ecn_threshold_bytes=6144), *QUEUES[2:])
    wanted = replace(STATE, ports=(replace(STATE.ports[0], queues=lower), STATE.ports[1]))
    before = device.configuration
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert changes(before, device.configuration) == {("1/2", "congestion-control", 6)}


@pytest.mark.parametrize(
    ("line", "ports"),
    [
        ("   interface ethernet 1/2 traffic-class 6 red-profile bulk", ["1/2"]),
        ("   interface ethernet 1/1-1/16 traffic-class 0 red-profile bulk", ["1/2", "1/1"]),
        ("   interface ethernet 1/2-1/9 traffic-class 0 dcb ets burst 5", ["1/2"]),
        ("no interface ethernet 1/1 traffic-class 7 red-profile", ["1/1"]),
        ("   interface ethernet 1/2 no traffic-class 7 red-profile", ["1/2"]),
        ("   interface ethernet 1/1/1-1/2/4 traffic-class 6 red-profile bulk", ["1/2"]),
        ("   interface ethernet 1/2 traffic-class 3 red-profile bulk", []),  # no plan's class
        ("   interface ethernet 1/3-1/16 traffic-class 6 red-profile bulk", []),
        ("   interface port-channel 1 traffic-class 6 red-profile bulk", []),
        ("   interface ethernet 1/2 traffic-class 6 congestion-control ecn", []),  # the shows tell
        ("   interface ethernet 1/2 no traffic-class 6 congestion-control", []),
        ("   interface ethernet 1/2 traffic-class 6 bind switch-priority 6", []),
        ("   interface ethernet 1/2 traffic-class 6 dcb ets wrr 12", []),
        ("   interface ethernet 1/2 traffic-class 6 dcb ets strict", []),
        ("## interface ethernet 1/2 traffic-class 6 red-profile bulk", []),
        ("   interface ethernet 1/2 flowcontrol receive on force", ["1/2"]),
        ("   interface ethernet 1/1-1/2 flowcontrol send on", ["1/2", "1/1"]),
        ("   interface ethernet 1/3-1/4 flowcontrol receive on force", []),
        ("no interface ethernet 1/2 flowcontrol receive force", []),
        ("   interface ethernet 1/2 flowcontrol receive off force", []),
    ],
)
def test_a_line_of_a_class_that_no_show_tells_is_found(line: str, ports: list[str]) -> None:
    running = read(pushed(), STATE)
    answers = {**running.answers, CONFIG: f"{running.answers[CONFIG]}{line}\n"}
    found = TARGET.read(answers, STATE, CAPABILITIES)
    assert [str(each) for each in differences(STATE, found.state)] == [
        f"port {port}: configuration expected as planned, found {line.strip()} "
        "(set by somebody else, not ours to remove)"
        for port in ports
    ]
    assert TARGET.diff(found, STATE, CAPABILITIES).is_empty


def test_split_ports_are_in_the_range_of_their_whole() -> None:
    ports = (
        PortState("1/2/1", True, None, QUEUES),
        PortState("1/2/3", True, None, QUEUES),
        PortState("1/3/1", True, None, QUEUES),
    )
    wanted = SwitchState(ports, ())
    running = read(pushed(), STATE)
    answers = dict(running.answers)
    for port in ports:
        for query in running.answers:
            answers[query.replace("ethernet 1/2 ", f"ethernet {port.name} ")] = running.answers[query]
    for first_last, names in [
        ("1/2", ["1/2/1", "1/2/3"]),
        ("1/1-1/3", ["1/2/1", "1/2/3", "1/3/1"]),
        ("1/2/2-1/3/1", ["1/2/3", "1/3/1"]),
        ("1/2/1", ["1/2/1"]),
    ]:
        line = f"   interface ethernet {first_last} traffic-class 6 red-profile bulk\n"
        state = TARGET.read({**answers, CONFIG: line}, wanted, CAPABILITIES).state
        assert [port.name for port in state.ports if port.unexpected] == names


def test_flow_control_on_a_priority_of_ours_is_refused() -> None:
    device = OnyxDevice()
    lines = (
        "dcb priority-flow-control priority 3 enable",
        "dcb priority-flow-control priority 6 enable",
        "interface ethernet 1/1-1/16 dcb priority-flow-control mode on force",
        "dcb priority-flow-control enable force",
    )
    for line in lines:
        assert read(device, STATE).state.ports
        assert device.configure(line) == ""
    with pytest.raises(DeviceError, match=r"^port 1/2: PFC is on for switch-priority 6, which the plan uses"):
        read(device, STATE)
    device.configure("interface ethernet 1/2 no dcb priority-flow-control mode force")
    with pytest.raises(DeviceError, match=r"^port 1/1: PFC is on for switch-priority 6"):
        read(device, STATE)
    device.configure("no dcb priority-flow-control priority 6 enable")
    lossless = read(device, STATE).lossless[0]
    assert (lossless.priority, lossless.otherwise) == (3, "qos trust L2")


def test_flow_control_on_a_priority_that_leads_to_a_class_of_ours_is_refused() -> None:
    device = pushed()
    for line in (
        "interface ethernet 1/1 dcb priority-flow-control mode on force",
        "dcb priority-flow-control priority 2 enable",
        "dcb priority-flow-control enable force",
    ):
        assert device.configure(line) == ""
    running = read(device, STATE)
    assert (running.state, [each.otherwise for each in running.lossless]) == (STATE, [""])
    assert device.configure("interface ethernet 1/2 traffic-class 5 bind switch-priority 2") == ""
    assert read(device, STATE).state.ports  # PFC is off on this port
    assert device.configure("interface ethernet 1/1 traffic-class 5 bind switch-priority 2") == ""
    with pytest.raises(
        DeviceError,
        match=r"^port 1/1: PFC is on for switch-priority 2, which leads to traffic class 5 of the plan: .*"
        r"`no dcb priority-flow-control priority 2 enable`",
    ):
        read(device, STATE)


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        (
            "   interface ethernet 1/1 channel-group 4 mode on",
            "port 1/1: is a member of a LAG, channel-group 4:",
        ),
        (
            "   interface ethernet 1/2-1/3 mlag-channel-group 12 mode active",
            "port 1/2: is a member of a LAG, mlag-channel-group 12:",
        ),
        ("   interface ethernet 1/3-1/4 channel-group 4 mode active", None),
        ("no interface ethernet 1/1 channel-group", None),
    ],
)
def test_a_member_of_a_lag_is_refused(line: str, refused: str | None) -> None:
    running = read(pushed(), STATE)
    answers = {**running.answers, CONFIG: f"{running.answers[CONFIG]}{line}\n"}
    if refused is None:
        assert TARGET.read(answers, STATE, CAPABILITIES).state == STATE
    else:
        with pytest.raises(DeviceError, match=f"^{refused}.* Take it out of the LAG"):
            TARGET.read(answers, STATE, CAPABILITIES)


def test_what_is_not_ours_stays() -> None:
    device = pushed()
    theirs = (
        "interface ethernet 1/3 qos trust both",
        "interface ethernet 1/3 traffic-class 6 dcb ets wrr 20",
        "interface ethernet 1/2 traffic-class 3 congestion-control red minimum-relative 5 maximum-relative 9",
        "interface ethernet 1/3 bandwidth shape 10G",
        "interface ethernet 1/2 mtu 9216 force",
        "interface ethernet 1/2 dcb priority-flow-control mode on force",
        "dcb priority-flow-control priority 3 enable",
        "ip route vrf default 0.0.0.0/0 10.20.0.9 7",
        "ip routing vrf default",
    )
    for line in theirs:
        assert device.configure(line) == ""
    assert commands(device) == []
    before = device.configuration
    queues = (QUEUES[0], replace(QUEUES[1], ecn_threshold_bytes=6144), *QUEUES[2:])
    wanted = SwitchState((PortState("1/2", False, None, queues),), STATE.routes[:1])
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert read(device, wanted).state == wanted
    after = device.configuration
    changed = changes(before, after)
    routes = {fact for fact in changed if fact[1] == "route"}
    allowed = {("1/2", "trust"), ("1/2", "congestion-control", 6), ("1/2", "scheduling", 6)}
    assert routes
    assert routes.isdisjoint(after)
    assert changed - routes <= allowed
    assert device.fact("", "route", IPv4Network("0.0.0.0/0"), IPv4Address("10.20.0.9")) == 7


def changes(before: Facts, after: Facts) -> set[Fact]:
    """Facts with another value than before."""
    return {fact for fact in {**before, **after} if before.get(fact) != after.get(fact)}


def test_answers_with_noise_and_other_words() -> None:
    device = pushed()
    session = device.open_session("admin")
    session.enter("enable")
    answers = {
        query: f"[mlag-domain: master]\n{session.enter(query).text}\nother state: ready\n".replace(
            '"BOTH"', '"ECN/RED"'
        )
        for query in TARGET.queries(STATE)
    }
    assert TARGET.read(answers, STATE, CAPABILITIES).state == STATE


@pytest.mark.parametrize("answer", ["", "% Unrecognized command", "{}", "[1, 2]", '[{"Trust mode": []}]'])
def test_an_answer_of_another_form_is_one_error(answer: str) -> None:
    with pytest.raises(DeviceError, match="another form"):
        TARGET.read(dict.fromkeys(TARGET.queries(STATE), answer), STATE, CAPABILITIES)


CONGESTION = "show interfaces ethernet 1/2 congestion-control | json-print"


@pytest.mark.parametrize(
    ("query", "old", "new"),
    [
        (CONGESTION, '"TC-6"', '"TC 6"'),
        (CONGESTION, '"Maximum threshold": "18 KB"', '"Maximum threshold": "18 %"'),
        (CONFIG, "##\n", "interface ethernet 1/1-1/2-1/3 mtu 9000\n##\n"),
        (CONFIG, "##\n", f"interface ethernet 1/{'9' * 5000} mtu 9000\n##\n"),
    ],
)
def test_an_answer_that_says_something_else_than_known_is_not_taken_for_nothing(
    query: str, old: str, new: str
) -> None:
    answers = dict(read(pushed(), STATE).answers)
    assert old in answers[query]
    with pytest.raises(DeviceError):
        TARGET.read(answers | {query: answers[query].replace(old, new, 1)}, STATE, CAPABILITIES)
