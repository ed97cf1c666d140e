"""ICOS in particular: what it writes, reads, refuses, and in which order it changes a switch."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.targets import Lossless, PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.icos import TARGET
from mltswitch.targets.state import differences, every_dscp_but
from switchsim.icos import IcosDevice
from switchsim.icos_sheet import FAMILIES
from tests.targets.icos.device import actions, apply, classes_of, policies_of, policy_of, read

CAPABILITIES = TARGET.hardware(None)

N3000 = TARGET.hardware("n3000")
FILE = "mltswitch.txt"
EXAMPLE = Path(__file__).parent / "example.txt"
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


def pushed() -> IcosDevice:
    device = IcosDevice()
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    return device


def commands(device: IcosDevice, wanted: SwitchState = STATE) -> list[str]:
    return [step.command for step in TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps]


def found(device: IcosDevice) -> set[str]:
    return {str(difference) for difference in differences(STATE, read(device, STATE).state)}


def on_port(port: str, *lines: str) -> tuple[str, ...]:
    return (f"interface {port}", *lines, "exit")


def test_text_of_two_ports() -> None:
    assert TARGET.render(STATE, CAPABILITIES)[FILE] == EXAMPLE.read_text(encoding="utf-8")


def test_a_percent_is_other_bytes_on_another_model() -> None:
    capabilities = N3000
    queues = (QUEUES[0], replace(QUEUES[1], ecn_threshold_bytes=7 * 2954), QUEUES[3])
    queues = (*queues[:2], replace(queues[2], dscps=tuple(sorted((*OTHERS, 12)))))
    state = SwitchState((PortState("1/0/1", True, None, queues),), ())
    text = TARGET.render(state, capabilities)[FILE]
    assert "min-thresh 7 7 7 7 " in text
    assert TARGET.parse({FILE: text}, capabilities) == state
    assert TARGET.parse({FILE: text}, CAPABILITIES) != state


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("reload", "mltswitch.txt:2: not a line that mltswitch writes"),
        ("classofservice trust ip-dscp", "mltswitch.txt:2: not a line that mltswitch writes: 'class"),
        ("classofservice ip-dscp-mapping 64 6", "mltswitch.txt:2: not a line"),
        ("classofservice ip-dscp-mapping 48 7", "mltswitch.txt:2: not a line"),
        ("classofservice ip-dscp-mapping 48 5", "mltswitch.txt"),
        ("! fine\rreload", "mltswitch.txt:2: not a line"),
        ("ip route 10.0.0.1 255.0.0.0 10.0.0.1", "mltswitch.txt:2: 10.0.0.1/8 has host bits set"),
        ("ip route 10.0.0.0 0.255.255.255 10.0.0.1", "mltswitch.txt:2: "),
        ("ip route 10.0.0.0 255.0.0.0 10.0.0.1; reload", "mltswitch.txt:2: not a line"),
        ("interface te1/0/9\nreload\nexit", "mltswitch.txt:3: not a line that mltswitch writes"),
        ("interface te1/0/2\ncos-queue strict 3\nexit", "mltswitch.txt"),
        ("interface te1/0/9\nclassofservice trust ip-dscp\nexit", "lacks the line 'cos-queue strict' of"),
        ("interface te1/0/9\ninterface te1/0/8", "mltswitch.txt:3: not a line"),
        ("class-map match-all theirs ipv4\nexit", "mltswitch.txt:2: not a line"),
        ("class-map match-all mltswitch-64-ipv4 ipv4\nexit", "mltswitch.txt:2: not a line"),
        (
            "class-map match-all mltswitch-48-ipv4 ipv6\nmatch ip dscp 48\nexit",
            "mltswitch.txt:2: does not fit",
        ),
        ("class-map match-all mltswitch-48-ipv4 ipv4\nmatch ip dscp 64\nexit", "mltswitch.txt:3: not a line"),
        (
            "class-map match-all mltswitch-48-ipv4 ipv4\nmatch ip dscp 48\nexit",
            "mltswitch.txt:2: does not fit",
        ),
        ("policy-map mltswitch-host in\nclass theirs", "mltswitch.txt:3: not a line"),
        (
            "policy-map mltswitch-host in\nclass mltswitch-48-ipv4\nmark ip-dscp 64",
            "mltswitch.txt:4: not a line",
        ),
        (
            "policy-map mltswitch-host in\nclass mltswitch-any-ipv4\nassign-queue 0\nexit\nexit",
            "does not fit",
        ),
        ("class-map match-all mltswitch-any-ipv4 ipv4\nmatch ip dscp 48\nexit", "does not fit"),
        ("policy-map mltswitch-host in\nassign-queue 0", "mltswitch.txt:3: not a line"),
        ("interface te1/0/2\ncos-queue min-bandwidth 1 2 3\nexit", "mltswitch.txt:3: not a line"),
        (
            "interface te1/0/2\ncos-queue min-bandwidth 50 0 0 0 0 0 51\nexit",
            "mltswitch.txt:3: more than 100 % together",
        ),
        (
            "interface te1/0/2\nrandom-detect queue-parms 5 min-thresh 3 3 3 3 max-thresh 3 3 3 4 "
            "drop-prob-scale 100 100 100 100 ecn\nexit",
            "mltswitch.txt:3: not one certain step for all colours",
        ),
        (
            "interface te1/0/2\nrandom-detect queue-parms 6 min-thresh 3 3 3 3 max-thresh 3 3 3 3 "
            "drop-prob-scale 100 100 100 100 ecn\nexit",
            "mltswitch.txt:3: does not fit the other lines",
        ),
    ],
)
def test_a_line_outside_the_grammar_is_refused(line: str, what: str) -> None:
    first, *rest = TARGET.render(STATE, CAPABILITIES)[FILE].split("\n")
    with pytest.raises(UserInputError, match=what):
        TARGET.parse({FILE: "\n".join([first, line, *rest])}, CAPABILITIES)


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ("cos-queue strict 5\n", "port te1/0/1: FASTPATH has one DSCP map for all ports"),
        (
            "classofservice trust untrusted\n",
            "lacks the line .interface te1/0/1 / classofservice trust untrusted.",
        ),
        ("ip route 10.101.0.0 255.255.0.0 10.20.0.2\n", ""),
    ],
)
def test_a_missing_line_changes_or_breaks_the_state(missing: str, what: str) -> None:
    text = TARGET.render(STATE, CAPABILITIES)[FILE]
    assert missing in text
    text = text.replace(missing, "", 1)
    if what:
        with pytest.raises(UserInputError, match=what):
            TARGET.parse({FILE: text}, CAPABILITIES)
    else:
        assert TARGET.parse({FILE: text}, CAPABILITIES) == replace(STATE, routes=STATE.routes[1:])


def test_a_file_cut_short_is_refused() -> None:
    text = TARGET.render(STATE, CAPABILITIES)[FILE]
    with pytest.raises(UserInputError, match="'interface te1/0/2' is not left"):
        TARGET.parse({FILE: text[: text.index("exit")]}, CAPABILITIES)


def test_what_fastpath_cannot_express_is_refused() -> None:
    one = STATE.ports[0]
    for ports, what in [
        ((replace(one, shaped_bps=10**9),), "not shaped"),
        ((replace(one, name="Ethernet4"),), "port Ethernet4: is no name for a port"),
        ((replace(one, name="te1/0/2\nreload"),), "is no name for a port"),
        ((replace(one, queues=(replace(QUEUES[1], ecn_threshold_bytes=1000),)),), "ECN threshold 1000 B"),
        ((replace(one, queues=(replace(QUEUES[1], limit=BytesLimit(9)),)),), "the limit 9 B"),
        ((one, replace(one, name="te1/0/9", queues=QUEUES[:2])), "one DSCP map"),
    ]:
        with pytest.raises(UnsupportedPlanError, match=what):
            TARGET.render(SwitchState(ports, ()), CAPABILITIES)


def test_hardware_without_a_documented_scale_is_refused() -> None:
    for name in ("trident2", "trident3", "tomahawk2", "tomahawk3"):
        with pytest.raises(
            UserInputError,
            match=f"hardware '{name}' cannot be planned for: no public document.*one of n4000, n3000",
        ):
            TARGET.hardware(name)
    with pytest.raises(UserInputError, match=r"unknown hardware 'sn9999' .*n3000"):
        TARGET.hardware("sn9999")


EXPECTED = "port te1/0/2: configuration expected as planned, found "


@pytest.mark.parametrize(
    ("by_hand", "text"),
    [
        (
            on_port(
                "te1/0/2",
                "random-detect queue-parms 5 min-thresh 13 13 13 13 max-thresh 13 13 13 13 "
                "drop-prob-scale 100 100 100 100 ecn",
            ),
            "port te1/0/2, queue 5: ecn_threshold_bytes expected 20001, found 86671",
        ),
        (
            on_port(
                "te1/0/2",
                "random-detect queue-parms 5 min-thresh 3 3 3 3 max-thresh 3 3 3 3 "
                "drop-prob-scale 100 100 100 100",
            ),
            f"{EXPECTED}random-detect queue-parms 5 min-thresh 3 3 3 3 max-thresh 3 3 3 3 "
            "drop-prob-scale 100 100 100 100",
        ),
        (
            on_port(
                "te1/0/2",
                "random-detect queue-parms 5 min-thresh 200 3 3 3 max-thresh 200 3 3 3 "
                "drop-prob-scale 100 100 100 100 ecn",
            ),
            "port te1/0/2, queue 5: ecn_threshold_bytes expected 20001, found None",
        ),
        (
            on_port("te1/0/2", "no cos-queue random-detect 5"),
            "port te1/0/2, queue 5: ecn_threshold_bytes expected 20001, found None",
        ),
        (
            on_port("te1/0/2", "cos-queue random-detect 6"),
            f"{EXPECTED}random-detect queue-parms 6 min-thresh 40 30 20 100 max-thresh 100 90 80 100 "
            "drop-prob-scale 10 10 10 10",
        ),
        (on_port("te1/0/2", "no cos-queue strict 5"), f"{EXPECTED}no cos-queue strict 5"),
        (
            on_port("te1/0/2", "cos-queue min-bandwidth 0 0 0 0 0 5 0"),
            "port te1/0/2, queue 5: minimum expected None, found 5 %",
        ),
        (
            on_port("te1/0/2", "no random-detect exponential-weighting-constant"),
            f"{EXPECTED}random-detect exponential-weighting-constant 9",
        ),
        (
            on_port("te1/0/2", "classofservice dot1p-mapping 0 5"),
            f"{EXPECTED}classofservice dot1p-mapping 0 5",
        ),
        (
            on_port("te1/0/2", "classofservice trust untrusted"),
            "port te1/0/2: trusted expected True, found False",
        ),
        (("classofservice ip-dscp-mapping 10 0",), "port te1/0/2, queue 5: dscps expected (10,), found ()"),
        (
            ("ip route 10.101.0.0 255.255.0.0 10.20.0.6",),
            "routes: route 10.101.0.0/16 expected via 10.20.0.2, found via 10.20.0.6",
        ),
        (
            ("ip route 10.101.3.0 255.255.255.0 10.20.0.6",),
            "routes: route 10.101.3.0/24 expected absent, found via 10.20.0.6",
        ),
        (
            ("ip route 10.101.3.0 255.255.255.0 10.20.0.2 5",),
            "routes: route 10.101.3.0/24 expected absent, found via 10.20.0.2 5",
        ),
        (
            ("ip route 10.101.3.0 255.255.255.0 Null0 9",),
            "routes: route 10.101.3.0/24 expected absent, found via 0.0.0.0 Null0 9",
        ),
    ],
)
def test_a_change_is_found_and_mended_by_one_line(by_hand: tuple[str, ...], text: str) -> None:
    device = pushed()
    assert device.configure(*by_hand) == ""
    assert text in found(device)
    change = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
    assert len(change.steps) == len(by_hand)
    apply(device, change)
    assert commands(device) == []


def test_another_preference_of_our_route_is_found_and_mended() -> None:
    device = pushed()
    assert device.configure("ip route 10.101.0.0 255.255.0.0 10.20.0.2 5") == ""
    assert found(device) == {"routes: route 10.101.0.0/16 expected via 10.20.0.2, found via 10.20.0.2 5"}
    assert commands(device) == [
        "no ip route 10.101.0.0 255.255.0.0 10.20.0.2",
        "ip route 10.101.0.0 255.255.0.0 10.20.0.2",
    ]
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert read(device, STATE).state == STATE


@pytest.mark.parametrize(
    ("line", "hop", "port"),
    [
        ("ip route 10.101.3.0/24 10.20.0.2", "10.20.0.2", ""),
        ("  ip route 10.101.3.0 255.255.255.0 10.20.0.2 10 ", "10.20.0.2", "10"),
        ("ip route 10.101.3.0 255.255.255.0 interface te1/0/7", "0.0.0.0", "interface te1/0/7"),  # noqa: S104  (a route)
    ],
)
def test_every_form_of_a_route_is_read_and_can_be_removed(line: str, hop: str, port: str) -> None:
    running = read(pushed(), STATE)
    config = f"{running.answers[CONFIG]}{line}\nip route vrf red 10.101.4.0 255.255.255.0 10.20.0.2\n"
    state = TARGET.read({**running.answers, CONFIG: config}, STATE, CAPABILITIES)
    extra = RouteState(IPv4Network("10.101.3.0/24"), IPv4Address(hop), port)
    assert state.state.routes == (*STATE.routes, extra)
    [step] = TARGET.diff(state, STATE, CAPABILITIES).steps
    target = hop if extra.next_hop != IPv4Address(0) else port
    assert step.command == f"no ip route 10.101.3.0 255.255.255.0 {target}"


@pytest.mark.parametrize("line", ["ip route 10.101.3.0/33 10.20.0.2", "ip route 10.101.3.0"])
def test_a_route_that_cannot_be_read_is_one_error(line: str) -> None:
    answers = read(pushed(), STATE).answers
    with pytest.raises(DeviceError, match=f"^show running-config: cannot read '{line}'"):
        TARGET.read({**answers, CONFIG: answers[CONFIG] + line}, STATE, CAPABILITIES)


@pytest.mark.parametrize(
    ("by_hand", "text"),
    [
        ("vlan priority 6", "vlan priority 6"),
        ("traffic-shape 50", "traffic-shape 50"),
        ("service-policy in theirs", "service-policy in theirs"),
    ],
)
def test_a_foreign_setting_of_our_port_is_found_and_left(by_hand: str, text: str) -> None:
    device = pushed()
    assert device.configure("policy-map theirs in", "exit", *on_port("te1/0/2", by_hand)) == ""
    assert f"{EXPECTED}{text}" in found(device)
    assert commands(device) == []


def test_the_queue_of_a_priority_that_no_plan_uses_is_nobodys_business() -> None:
    answers = read(pushed(), STATE).answers
    shown = "show classofservice dot1p-mapping te1/0/2"
    last = "      7               3\n"
    assert last in answers[shown]
    answers = {**answers, shown: answers[shown].replace(last, "      7               7\n")}
    assert TARGET.read(answers, STATE, CAPABILITIES).state == STATE


def test_a_map_of_the_port_alone_is_found() -> None:
    answers = read(pushed(), STATE).answers
    block = "interface Te1/0/2\nclassofservice ip-dscp-mapping 10 0\n"
    own = answers[CONFIG].replace("interface te1/0/2\n", block)
    state = TARGET.read({**answers, CONFIG: own}, STATE, CAPABILITIES).state
    assert state.ports[0].unexpected == ("classofservice ip-dscp-mapping 10 0",)
    assert state.ports[1].unexpected == ()


def test_flow_control_on_a_queue_of_ours_is_refused() -> None:
    device = pushed()
    assert device.configure(*on_port("te1/0/2", "classofservice dot1p-mapping 3 5")) == ""
    inside = ("interface te1/0/2", "datacenter-bridging")
    assert device.configure(*inside, "priority-flow-control priority 3 no-drop") == ""
    assert read(device, STATE).state.ports  # not switched on
    assert device.configure(*inside, "priority-flow-control mode on") == ""
    with pytest.raises(DeviceError, match=r"^port te1/0/2: PFC is on for 802.1p priority 3, which leads"):
        read(device, STATE)
    assert device.configure(*on_port("te1/0/2", "classofservice dot1p-mapping 3 2")) == ""
    assert read(device, STATE).lossless == (Lossless("te1/0/2", 3, ()),)  # of no class
    assert commands(device) == []
    assert device.configure(*on_port("te1/0/2", "classofservice trust dot1p")) == ""
    assert read(device, STATE).lossless == (Lossless("te1/0/2", 3, (), "classofservice trust dot1p"),)


GUARANTEED = (*QUEUES[:3], replace(QUEUES[3], minimum=PortShare(5)))


def serving(state: SwitchState, device: IcosDevice | None = None) -> IcosDevice:
    device = device or IcosDevice()
    apply(device, TARGET.diff(read(device, state), state, CAPABILITIES))
    assert read(device, state).state == state
    assert commands(device, state) == []
    return device


def test_a_guaranteed_background_is_weighted() -> None:
    state = SwitchState((replace(STATE.ports[0], queues=GUARANTEED),), ())
    text = TARGET.render(state, CAPABILITIES)[FILE]
    assert (
        "no cos-queue strict 0\nno cos-queue random-detect 0\ncos-queue min-bandwidth 5 0 0 0 0 0 0\n" in text
    )
    assert TARGET.parse({FILE: text}, CAPABILITIES) == state
    device = serving(state)
    assert device.fact("te1/0/2", "min-bandwidth") == (5, 0, 0, 0, 0, 0, 0)
    assert [n for n in range(7) if device.fact("te1/0/2", "strict", n)] == [4, 5, 6]
    assert device.configure(*on_port("te1/0/2", "cos-queue strict 0")) == ""
    fault = "cos-queue strict 0, where its minimum bandwidth may not count"
    assert read(device, state).state.ports[0].unexpected == (fault,)
    plain = replace(state, ports=STATE.ports[:1])
    assert TARGET.diff(read(device, plain), plain, CAPABILITIES).stays == ()
    serving(plain, device)
    assert device.fact("te1/0/2", "min-bandwidth") == (0,) * 7


def test_guarantees_of_other_queues_stay() -> None:
    device = IcosDevice()
    device.configure(*on_port("te1/0/2", "cos-queue min-bandwidth 0 7 0 90 0 0 0"))
    state = SwitchState((replace(STATE.ports[0], queues=GUARANTEED),), ())
    with pytest.raises(DeviceError, match=r"^port te1/0/2: minimum .*: queue 1 has 7 %, queue 3 has 90 %"):
        commands(device, state)
    device.configure(*on_port("te1/0/2", "cos-queue min-bandwidth 0 7 0 9 0 0 0"))
    assert "cos-queue min-bandwidth 5 7 0 9 0 0 0" in commands(device, state)
    serving(state, device)


@pytest.mark.parametrize(
    ("queues", "what"),
    [
        ((QUEUES[0], replace(QUEUES[1], minimum=PortShare(5)), *QUEUES[2:]), "queue 5: only background"),
        ((*QUEUES[:3], replace(QUEUES[3], minimum=BitRate(1000))), "queue 0: a minimum of 1000 bit/s"),
        (
            (*QUEUES[:3], replace(QUEUES[3], maximum=PortShare(5))),
            "queue 0: no command is known that gives a queue a maximum",
        ),
        ((replace(QUEUES[0], queue=7), *QUEUES[1:]), "queue 7: is no queue that a plan may use"),
        ((), "has no queues"),
    ],
)
def test_bandwidths_and_queues_that_fastpath_does_not_have(queues: tuple[QueueState, ...], what: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=what):
        TARGET.render(SwitchState((replace(STATE.ports[0], queues=queues),), ()), CAPABILITIES)


HOST_QUEUES = (
    replace(QUEUES[0], dscps=()),
    *QUEUES[1:3],
    replace(QUEUES[3], dscps=tuple(sorted((*OTHERS, 48, 56)))),
)
WITH_HOSTS = replace(
    STATE,
    ports=(
        *STATE.ports,
        PortState("te1/0/5", True, None, HOST_QUEUES, rewritten=(48, 56)),
        PortState("te1/0/6", False, None, QUEUES, rewritten=every_dscp_but(9)),
    ),
    background_dscp=9,
)
POLICY = """class-map match-all mltswitch-48-ipv4 ipv4
match ip dscp 48
exit
class-map match-all mltswitch-48-ipv6 ipv6
match ip dscp 48
exit
class-map match-all mltswitch-56-ipv4 ipv4
match ip dscp 56
exit
class-map match-all mltswitch-56-ipv6 ipv6
match ip dscp 56
exit
policy-map mltswitch-host in
class mltswitch-48-ipv4
assign-queue 0
mark ip-dscp 9
exit
class mltswitch-48-ipv6
assign-queue 0
mark ip-dscp 9
exit
class mltswitch-56-ipv4
assign-queue 0
mark ip-dscp 9
exit
class mltswitch-56-ipv6
assign-queue 0
mark ip-dscp 9
exit
exit
"""


MADE_BACKGROUND = ("assign-queue 0", "mark ip-dscp 9")


def in_classes(policy: str, *lines: str) -> tuple[str, ...]:
    """From the configuration mode and back."""
    classes = ((f"class mltswitch-any-{family}", *lines, "exit") for family in FAMILIES)
    return (f"policy-map {policy} in", *(line for each in classes for line in each), "exit")


UNTRUSTED = """class-map match-all mltswitch-any-ipv4 ipv4
match any
exit
class-map match-all mltswitch-any-ipv6 ipv6
match any
exit
policy-map mltswitch-untrusted in
class mltswitch-any-ipv4
assign-queue 0
mark ip-dscp 9
exit
class mltswitch-any-ipv6
assign-queue 0
mark ip-dscp 9
exit
exit
"""


def test_what_hosts_may_not_use_is_background_on_their_ports() -> None:
    text = TARGET.render(WITH_HOSTS, CAPABILITIES)[FILE]
    assert f"! what hosts may not use becomes background\n{POLICY}" in text
    assert f"! what ports send that are not trusted becomes background\n{UNTRUSTED}" in text
    assert text.count("service-policy in mltswitch-host\n") == 1
    assert "te1/0/6\nservice-policy in mltswitch-untrusted\nclassofservice dot1p-mapping 0 0\n" in text
    assert "classofservice ip-dscp-mapping 48 6\n" in text
    assert TARGET.parse({FILE: text}, CAPABILITIES) == WITH_HOSTS
    running = serving(WITH_HOSTS)
    policies = [policy_of(running, f"te1/0/{n}") for n in (1, 2, 5, 6)]
    made_background = {"assign-queue": 0, "mark-ip-dscp": 9}
    for family in FAMILIES:
        for dscp, hosts in ((48, made_background), (46, {})):
            found = [actions(running, policy, family, dscp) for policy in policies]
            assert found == [{}, {}, hosts, made_background]


def test_lines_may_stand_in_another_order_with_other_comments() -> None:
    first, *blocks = TARGET.render(WITH_HOSTS, CAPABILITIES)[FILE].split("\n\n")
    text = "\n! ours\n\n".join([first, *reversed(blocks)]).replace("exit\n! ours", "exit\n\n! ours")
    found = TARGET.parse({FILE: text}, CAPABILITIES)
    assert set(found.ports) == set(WITH_HOSTS.ports)
    assert found.routes == WITH_HOSTS.routes


def test_a_switch_with_ports_of_hosts_alone_rewrites_too() -> None:
    ports = (PortState("te1/0/5", True, None, HOST_QUEUES, rewritten=(48, 56)),)
    state = SwitchState(ports, (), background_dscp=9)
    text = TARGET.render(state, CAPABILITIES)[FILE]
    assert POLICY in text
    assert TARGET.parse({FILE: text}, CAPABILITIES) == state
    serving(state)


def test_the_policies_go_with_the_last_port_that_needs_them() -> None:
    device = serving(WITH_HOSTS)
    ports = tuple(replace(port, queues=QUEUES, rewritten=()) for port in WITH_HOSTS.ports)
    fabric = replace(WITH_HOSTS, ports=ports, background_dscp=0)
    assert commands(device, fabric) == [
        *on_port("te1/0/5", "no service-policy in mltswitch-host"),
        *on_port("te1/0/6", "no service-policy in mltswitch-untrusted"),
        "no policy-map mltswitch-host",
        "no policy-map mltswitch-untrusted",
        *(f"no class-map mltswitch-{name}-{family}" for name in (48, 56, "any") for family in FAMILIES),
    ]
    assert device.configure(*on_port("te1/0/9", "service-policy in mltswitch-host")) == ""
    assert "no policy-map mltswitch-host" not in commands(device, fabric)
    serving(fabric, device)
    assert device.configure(*on_port("te1/0/9", "no service-policy in mltswitch-host")) == ""
    lent = ("policy-map theirs in", "class mltswitch-48-ipv4", "assign-queue 3")
    assert device.configure(*lent) == ""
    serving(fabric, device)
    assert classes_of(device) == ["mltswitch-48-ipv4"]
    assert list(policies_of(device.configuration)) == ["theirs"]


def test_other_code_points_change_single_classes() -> None:
    device = serving(WITH_HOSTS)
    network_control = replace(QUEUES[0], dscps=(48, 50))
    others = replace(QUEUES[3], dscps=tuple(sorted({*OTHERS, 56} - {50})))
    fabric_queues = (network_control, *QUEUES[1:3], others)
    host_queues = (
        replace(network_control, dscps=()),
        *QUEUES[1:3],
        replace(others, dscps=tuple(sorted((*others.dscps, 48, 50)))),
    )
    ports = tuple(
        replace(port, queues=host_queues, rewritten=(48, 50))
        if port.queues == HOST_QUEUES
        else replace(port, queues=fabric_queues)
        for port in WITH_HOSTS.ports
    )
    wanted = replace(WITH_HOSTS, ports=ports)
    new, old = ([f"mltswitch-{dscp}-{family}" for family in ("ipv4", "ipv6")] for dscp in (50, 56))
    assert commands(device, wanted) == [
        *("class-map match-all mltswitch-50-ipv4 ipv4", "match ip dscp 50", "exit"),
        *("class-map match-all mltswitch-50-ipv6 ipv6", "match ip dscp 50", "exit"),
        "policy-map mltswitch-host in",
        *(line for name in new for line in (f"class {name}", *MADE_BACKGROUND, "exit")),
        "exit",
        *("classofservice ip-dscp-mapping 56 0", "classofservice ip-dscp-mapping 50 6"),
        *("policy-map mltswitch-host in", *(f"no class {name}" for name in old), "exit"),
        *(f"no class-map {name}" for name in old),
    ]
    serving(wanted, device)


IN_POLICY = ("policy-map mltswitch-host in",)


@pytest.mark.parametrize(
    ("by_hand", "difference", "lines"),
    [
        (
            (
                *(
                    "policy-map mltswitch-untrusted in",
                    "no class mltswitch-any-ipv4",
                    "no class mltswitch-any-ipv6",
                ),
                *("class mltswitch-any-ipv4", "assign-queue 0", "exit"),
                *("class mltswitch-any-ipv6", "assign-queue 0"),
            ),
            f"6: rewritten expected {every_dscp_but(9)}, found ()",
            in_classes("mltswitch-untrusted", "mark ip-dscp 9"),
        ),
        (
            in_classes("mltswitch-untrusted", "mark ip-dscp cs1"),
            "6: configuration expected as planned, found service-policy in mltswitch-untrusted, "
            "which sets DSCP 8",
            in_classes("mltswitch-untrusted", "mark ip-dscp 9"),
        ),
        (
            in_classes("mltswitch-untrusted", "assign-queue 5"),
            "6: configuration expected as planned, found service-policy in mltswitch-untrusted, "
            "which leads to queue 5",
            in_classes("mltswitch-untrusted", "assign-queue 0"),
        ),
        (
            on_port(
                "te1/0/6", "no service-policy in mltswitch-untrusted", "service-policy in mltswitch-host"
            ),
            f"6: rewritten expected {every_dscp_but(9)}, found (48, 56)",
            on_port(
                "te1/0/6", "no service-policy in mltswitch-host", "service-policy in mltswitch-untrusted"
            ),
        ),
        (
            on_port(
                "te1/0/5", "no service-policy in mltswitch-host", "service-policy in mltswitch-untrusted"
            ),
            f"5: rewritten expected (48, 56), found {every_dscp_but(9)}",
            on_port(
                "te1/0/5", "no service-policy in mltswitch-untrusted", "service-policy in mltswitch-host"
            ),
        ),
    ],
)
def test_what_a_port_rewrites_is_found_and_mended(
    by_hand: tuple[str, ...], difference: str, lines: tuple[str, ...]
) -> None:
    device = serving(WITH_HOSTS)
    before = device.configuration
    assert device.configure(*by_hand) == ""
    found = [str(each) for each in differences(WITH_HOSTS, read(device, WITH_HOSTS).state)]
    assert f"port te1/0/{difference}" in found
    assert commands(device, WITH_HOSTS) == list(lines)
    serving(WITH_HOSTS, device)
    assert device.configuration == before


def test_what_no_policy_can_rewrite_is_refused() -> None:
    ports = (replace(WITH_HOSTS.ports[0], rewritten=(48, 56)), *WITH_HOSTS.ports[1:])
    with pytest.raises(UnsupportedPlanError, match="port te1/0/2: FASTPATH rewrites what a port"):
        TARGET.render(replace(WITH_HOSTS, ports=ports), CAPABILITIES)


@pytest.mark.parametrize(
    "by_hand",
    [
        (*IN_POLICY, "no class mltswitch-48-ipv6"),
        (*IN_POLICY, "no class mltswitch-48-ipv6", "exit", "no class-map mltswitch-48-ipv6"),
        (*IN_POLICY, "class mltswitch-48-ipv6", "assign-queue 3"),
        (*IN_POLICY, "class mltswitch-48-ipv6", "mark ip-dscp 3"),
        ("class-map match-all mltswitch-48-ipv4", "match vlan 7"),
        ("class-map match-all theirs", "match vlan 7", "exit", *IN_POLICY, "class theirs", "assign-queue 6"),
    ],
)
def test_a_change_of_our_policy_is_found_and_mended(by_hand: tuple[str, ...]) -> None:
    device = serving(WITH_HOSTS)
    before, classes = policies_of(device.configuration), set(classes_of(device))
    assert device.configure(*by_hand) == ""
    found = [str(each) for each in differences(WITH_HOSTS, read(device, WITH_HOSTS).state)]
    fault = "service-policy in mltswitch-host, whose lines are not the plan's"
    assert f"port te1/0/5: configuration expected as planned, found {fault}" in found
    serving(WITH_HOSTS, device)
    assert policies_of(device.configuration)["mltswitch-host"] == before["mltswitch-host"]
    assert set(classes_of(device)) - classes <= {"theirs"}


def test_a_class_of_ours_with_which_a_policy_does_more_is_made_anew() -> None:
    answers = dict(read(serving(WITH_HOSTS), WITH_HOSTS).answers)
    before, policy, lines = answers[CONFIG].partition("policy-map mltswitch-untrusted in\n")
    lines = lines.replace("mark ip-dscp 9\n", "mark ip-dscp 9\npolice-simple 64 8\n", 1)
    running = TARGET.read({**answers, CONFIG: before + policy + lines}, WITH_HOSTS, CAPABILITIES)
    assert [step.command for step in TARGET.diff(running, WITH_HOSTS, CAPABILITIES).steps] == [
        *("policy-map mltswitch-untrusted in", "no class mltswitch-any-ipv4"),
        *("class mltswitch-any-ipv4", *MADE_BACKGROUND, "exit", "exit"),
    ]


def test_what_stands_in_the_policys_place_is_refused() -> None:
    device = IcosDevice()
    device.configure("policy-map theirs in", "exit")
    for name in ("te1/0/5", "te1/0/6"):
        device.configure(*on_port(name, "service-policy in theirs"))
        with pytest.raises(DeviceError, match=f"^port {name}: it has the policy theirs where the plan needs"):
            read(device, WITH_HOSTS)
        device.configure(*on_port(name, "no service-policy in theirs"))
    device.configure("no diffserv")
    with pytest.raises(DeviceError, match=r"^DiffServ is off for the whole switch"):
        read(device, WITH_HOSTS)
    assert read(device, STATE).state.ports


def test_what_is_not_ours_stays() -> None:
    device = pushed()
    theirs = (
        *on_port("te1/0/3", "classofservice trust ip-dscp", "cos-queue random-detect 2"),
        *on_port("te1/0/2", "routing", "ip address 10.20.0.1 255.255.255.0", "cos-queue strict 3"),
        *on_port("te1/0/2", "classofservice dot1p-mapping 5 3"),
        "ip route 0.0.0.0 0.0.0.0 10.20.0.9 7",
        "ip routing",
    )
    assert device.configure(*theirs) == ""
    assert commands(device) == []
    before = device.configuration
    queues = (QUEUES[0], replace(QUEUES[1], ecn_threshold_bytes=PERCENT), *QUEUES[2:])
    wanted = SwitchState((PortState("te1/0/2", False, None, queues),), STATE.routes[:1])
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert read(device, wanted).state == wanted
    after = device.configuration
    changed = {fact for fact in {**before, **after} if before.get(fact) != after.get(fact)}
    routes = {fact for fact in changed if fact[1] == "route"}
    port = "interface te1/0/2"
    of_queue = {(port, what, 5) for what in ("strict", "random-detect", "curve")}
    assert routes
    assert routes.isdisjoint(after)
    assert changed - routes <= {(port, "trust"), (port, "min-bandwidth"), *of_queue}
    assert device.fact("", "route", IPv4Address(0), 0, IPv4Address("10.20.0.9")) == 7


def test_routes_change_one_by_one_and_are_added_first() -> None:
    device = pushed()
    for line in (
        "no ip route 10.101.0.0 255.255.0.0 10.20.0.2",
        "ip route 10.101.0.0 255.255.0.0 10.20.0.6",
        "ip route 10.101.0.1 255.255.255.255 10.10.0.2 7",
        "ip route 10.101.7.0 255.255.255.0 10.10.0.2",
    ):
        assert device.configure(line) == ""
    assert commands(device) == [
        "ip route 10.101.0.0 255.255.0.0 10.20.0.2",
        "no ip route 10.101.0.0 255.255.0.0 10.20.0.6",
        "no ip route 10.101.0.1 255.255.255.255 10.10.0.2",
        "ip route 10.101.0.1 255.255.255.255 10.10.0.2",
        "no ip route 10.101.7.0 255.255.255.0 10.10.0.2",
    ]
    serving(STATE, device)


def test_a_model_tells_the_scale_of_its_percents() -> None:
    for model in ("N4032F", "N4064"):
        assert read(IcosDevice(model=model), STATE).notes == ()
        assert TARGET.hardware_of(model) == ("n4000",)
    for model in ("N3048ET-ON", "N2024P", "N3132PX-ON", "N2128PX-ON"):
        assert TARGET.hardware_of(model) == ("n3000",)
    for model in ("N1548", "AS7712", "N3248TE-ON"):
        [note] = read(IcosDevice(model=model), STATE).notes
        assert note.startswith(
            f"whether {model} is the model n4000, for which the plan was made, is not known"
        )
    assert read(IcosDevice(model="N3048"), replace(STATE, ports=()), N3000).notes == ()
