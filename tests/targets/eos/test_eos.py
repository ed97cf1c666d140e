"""EOS in particular: what it writes, reads, refuses, and in which order it changes a switch."""

import json
import re
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.targets import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.common import NOT_SAVED
from mltswitch.targets.eos import TARGET
from mltswitch.targets.eos.capabilities import HARDWARE
from mltswitch.targets.eos.read import RUNNING_CONFIG
from mltswitch.targets.state import differences, every_dscp_but
from switchsim.eos import EosDevice
from tests.targets.eos.device import (
    FAMILIES,
    MODELS,
    actions,
    apply,
    blocks_of,
    lines_of,
    policy_of,
    read,
    routes_of,
    send,
)

CAPABILITIES = TARGET.hardware(None)

FILE = "mltswitch.txt"
CONFIG = "show running-config"
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


def step_at(size: int) -> str:
    return (
        f"random-detect ecn minimum-threshold {size} bytes maximum-threshold {size} bytes "
        "max-mark-probability 100 weight 0"
    )


def pushed() -> EosDevice:
    device = EosDevice()
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    return device


def commands(device: EosDevice, wanted: SwitchState = STATE) -> list[str]:
    """What is sent, without what opens and commits the session."""
    steps = [step.command for step in TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps]
    return [step for step in steps if step != "end" and not step.startswith("configure session")]


def found(device: EosDevice) -> list[str]:
    return [str(difference) for difference in differences(STATE, read(device, STATE).state)]


def test_the_example_file() -> None:
    text = (Path(__file__).parent / "example.txt").read_text(encoding="utf-8")
    assert TARGET.render(STATE, CAPABILITIES) == {FILE: text}


def test_the_switch_takes_the_example_file_as_it_is_pasted() -> None:
    device = EosDevice()
    assert device.configure(*TARGET.render(STATE, CAPABILITIES)[FILE].splitlines()) == ""
    assert read(device, STATE).state == STATE


def test_a_chip_with_one_kind_of_queue() -> None:
    capabilities = HARDWARE["trident2"]
    queues = tuple(
        replace(queue, ecn_threshold_bytes=queue.ecn_threshold_bytes and 208 * queue.queue)
        for queue in QUEUES
    )
    state = replace(STATE, ports=tuple(replace(port, queues=queues) for port in STATE.ports))
    text = TARGET.render(state, capabilities)[FILE]
    assert "   tx-queue 5\n" in text
    assert "uc-tx-queue" not in text
    assert TARGET.parse({FILE: text}, capabilities) == state
    with pytest.raises(UserInputError, match=r"mltswitch.txt:3: not a line .*: ' tx-queue 6'"):
        TARGET.parse({FILE: text}, CAPABILITIES)
    device = EosDevice(queue_word="tx-queue", model=MODELS["trident2"])
    apply(device, TARGET.diff(read(device, state, capabilities), state, capabilities))
    assert read(device, state, capabilities).state == state


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("reload", r"mltswitch.txt:2: not a line that mltswitch writes"),
        ("qos map cos 0 to traffic-class 0", "mltswitch.txt:2: not a line"),
        ("qos map dscp 10 to traffic-class 7", "mltswitch.txt:2: not a line"),
        ("qos map dscp 64 to traffic-class 6", "mltswitch.txt:2: not a list"),
        ("qos map dscp 10 10 to traffic-class 6", "mltswitch.txt:2: not a list"),
        ("interface Ethernet2/1-9", "mltswitch.txt:2: not a line"),
        ("interface Ethernet2/1\n   qos trust cos", "mltswitch.txt:3: not a line"),
        ("interface Ethernet2/1\n  qos trust dscp", "mltswitch.txt:3: not "),
        ("interface Ethernet2/1\n   qos trust dscp; reload", "mltswitch.txt:3: not a line"),
        ("interface Ethernet2/1\n   uc-tx-queue 5\n      bandwidth percent 5", "mltswitch.txt:4: not a line"),
        ("interface Ethernet2/1\n   tx-queue 5\n      priority strict", "mltswitch.txt:3: not a line"),
        ("! fine\rreload", "mltswitch.txt:2: not a line"),
        ("banner motd\nreload\nEOF", "mltswitch.txt:2: not a line"),
        ("ip route 10.0.0.1/8 Ethernet1/1 10.0.0.1", "mltswitch.txt:2: 10.0.0.1/8 has host bits set"),
        (
            "interface Ethernet2/1\n   uc-tx-queue 3\n      priority strict",
            "mltswitch.txt: port Ethernet1/1: EOS",
        ),
        ("interface Ethernet9/1\n   qos trust dscp", "mltswitch.txt: a port has no queues"),
        (
            "interface Ethernet2/1\n   uc-tx-queue 5\n      random-detect ecn minimum-threshold 18432 bytes "
            "maximum-threshold 20480 bytes max-mark-probability 100 weight 0",
            "mltswitch.txt:4: minimum and maximum differ",
        ),
    ],
)
def test_a_line_outside_the_grammar_is_refused(line: str, what: str) -> None:
    first, *rest = TARGET.render(STATE, CAPABILITIES)[FILE].split("\n")
    with pytest.raises(UserInputError, match=what):
        TARGET.parse({FILE: "\n".join([first, line, *rest])}, CAPABILITIES)


def test_a_missing_line_is_refused() -> None:
    text = TARGET.render(STATE, CAPABILITIES)[FILE].replace("   qos cos 1\n", "")
    with pytest.raises(UserInputError, match="lacks the line 'interface Ethernet1/1 / qos cos 1'"):
        TARGET.parse({FILE: text}, CAPABILITIES)
    text = TARGET.render(STATE, CAPABILITIES)[FILE].replace("      priority strict\n", "", 1)
    with pytest.raises(
        UserInputError, match="lacks the line 'interface Ethernet2/1 / uc-tx-queue 6 / priority"
    ):
        TARGET.parse({FILE: text}, CAPABILITIES)


def test_what_eos_cannot_express_is_refused() -> None:
    port = STATE.ports[0]
    for ports, what in [
        ((replace(port, shaped_bps=10**9),), "not shaped"),
        ((replace(port, name="eth1"),), "port eth1: is no name for a port"),
        ((replace(port, queues=(replace(QUEUES[1], limit=BytesLimit(9)),)),), "the limit 9 B"),
        (
            (replace(port, queues=(replace(QUEUES[1], queue=7), QUEUES[3])),),
            "queue 7: is no queue that a plan may use",
        ),
        ((replace(port, queues=(replace(QUEUES[1], ecn_threshold_bytes=0), QUEUES[3])),), "threshold 0"),
        ((replace(port, queues=(*QUEUES[:3], replace(QUEUES[3], dscps=()))),), "no code point leads"),
        (
            (port, replace(STATE.ports[1], queues=(*QUEUES[:2], replace(QUEUES[2], dscps=()), QUEUES[3]))),
            "one DSCP map",
        ),
    ]:
        with pytest.raises(UnsupportedPlanError, match=what):
            TARGET.render(SwitchState(ports, ()), CAPABILITIES)


def test_a_routed_port_trusts_dscp_by_default() -> None:
    device = EosDevice()
    device.configure("interface Ethernet2/1", "no switchport")
    assert read(device, STATE).state.ports[0].trusted
    assert "qos trust dscp" not in commands(device)


def test_the_session_is_committed_with_a_timer_and_confirmed() -> None:
    device = EosDevice()
    change = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
    steps = [step.command for step in change.steps]
    assert steps[:2] == ["end", "configure session mltswitch-1"]
    assert steps[-2:] == ["end", "configure session mltswitch-1 commit timer 00:10:00"]
    assert [step.command for step in change.save] == [
        "end",
        "configure session mltswitch-1 commit",
        "write memory",
    ]
    before = device.configuration
    send(device, change.steps[:-1])
    assert device.configuration == before
    assert change.text.startswith(
        "configure session mltswitch-1\n   interface Ethernet2/1\n      uc-tx-queue 5\n"
        "         random-detect ecn count\n"
    )


def test_a_change_that_waits_for_its_confirmation() -> None:
    device = EosDevice()
    send(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES).steps)
    running = read(device, STATE)
    assert [step.command for step in TARGET.diff(running, STATE, CAPABILITIES).save] == [
        "end",
        "configure session mltswitch-1 commit",
        "write memory",
    ]
    other = SwitchState(STATE.ports[:1], ())
    with pytest.raises(DeviceError, match="a push waits to be confirmed, in config session mltswitch-1"):
        TARGET.diff(
            read(device, SwitchState((replace(other.ports[0], trusted=False),), ())),
            _distrusting(),
            CAPABILITIES,
        )


def _distrusting() -> SwitchState:
    return SwitchState((replace(STATE.ports[0], trusted=False),), ())


def test_sessions_of_others_are_left_alone() -> None:
    device = EosDevice()
    session = device.open_session("other")
    for line in ("enable", "configure session theirs", "ip routing", "end"):
        assert session.enter(line).text == ""
    steps = [step.command for step in TARGET.diff(read(device, STATE), STATE, CAPABILITIES).steps]
    assert "configure session theirs abort" not in steps
    assert device.sessions.by_name["theirs"].state == "pending"


@pytest.mark.parametrize(
    ("by_hand", "difference"),
    [
        (
            ("interface Ethernet2/1", "uc-tx-queue 5", step_at(61440)),
            "port Ethernet2/1, queue 5: ecn_threshold_bytes expected 18432, found 61440",
        ),
        (
            (
                *("interface Ethernet2/1", "uc-tx-queue 5"),
                "random-detect ecn minimum-threshold 18 kbytes maximum-threshold 18 kbytes",
            ),
            "port Ethernet2/1: configuration expected as planned, found queue 5 random-detect ecn "
            "minimum-threshold 18 kbytes maximum-threshold 18 kbytes",
        ),
        (
            ("interface Ethernet2/1", "uc-tx-queue 5", step_at(18432).replace("weight 0", "weight 3")),
            "port Ethernet2/1, queue 5: ecn_threshold_bytes expected 18432, found None",
        ),
        (
            ("interface Ethernet2/1", "uc-tx-queue 6", step_at(2048)),
            "port Ethernet2/1, queue 6: ecn_threshold_bytes expected None, found 2048",
        ),
        (
            ("interface Ethernet2/1", "uc-tx-queue 0", "no priority"),
            "port Ethernet2/1: configuration expected as planned, found queue 0 no priority",
        ),
        (
            ("interface Ethernet2/1", "qos trust cos"),
            "port Ethernet2/1: configuration expected as planned, found qos trust cos",
        ),
        (("interface Ethernet1/1", "qos trust dscp"), "port Ethernet1/1: trusted expected False, found True"),
        (
            ("interface Ethernet1/1", "qos cos 5"),
            "port Ethernet1/1: configuration expected as planned, found qos cos 5, which leads to queue 5",
        ),
        (
            ("interface Ethernet1/1", "qos dscp 10"),
            "port Ethernet1/1: configuration expected as planned, found qos dscp 10, which leads to queue 5",
        ),
        (
            ("qos map dscp 10 to traffic-class 0",),
            "port Ethernet2/1, queue 5: dscps expected (10,), found ()",
        ),
        (
            ("qos map dscp 10 to traffic-class 5 drop-precedence 1",),
            "port Ethernet2/1: configuration expected as planned, found qos map dscp 10 to traffic-class 5 "
            "drop-precedence 1",
        ),
        (
            ("qos map traffic-class 5 to tx-queue 0",),
            "port Ethernet2/1, queue 5: dscps expected (10,), found ()",
        ),
        (
            ("interface Ethernet2/1", "uc-tx-queue 5", "shape rate 9 kbps"),
            "port Ethernet2/1, queue 5: maximum expected None, found 9000 bit/s",
        ),
        (
            ("interface Ethernet2/1", "uc-tx-queue 5", "shape rate 9 percent"),
            "port Ethernet2/1, queue 5: maximum expected None, found 9 %",
        ),
        (
            ("interface Ethernet2/1", "uc-tx-queue 0", "bandwidth guaranteed percent 9"),
            "port Ethernet2/1, queue 0: minimum expected None, found 9 %",
        ),
        (
            ("interface Ethernet2/1", "uc-tx-queue 5", "no random-detect ecn count"),
            "port Ethernet2/1: configuration expected as planned, found queue 5 no random-detect ecn count",
        ),
        (
            ("ip route 10.101.0.0/16 10.20.0.6",),
            "routes: route 10.101.0.0/16 expected via 10.20.0.2 Ethernet2/1, found via 10.20.0.6",
        ),
        (
            ("ip route 10.101.3.0/24 Ethernet2/1 10.20.0.2 5",),
            "routes: route 10.101.3.0/24 expected absent, found via 10.20.0.2 Ethernet2/1 5",
        ),
        (
            ("ip route 10.101.3.0/24 Null0 9",),
            "routes: route 10.101.3.0/24 expected absent, found via 0.0.0.0 Null0 9",
        ),
    ],
)
def test_a_change_by_hand_is_found_and_mended_by_one_line(by_hand: tuple[str, ...], difference: str) -> None:
    device = pushed()
    former = device.configuration
    assert device.configure(*by_hand) == ""
    assert difference in found(device)
    change = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
    setting = [line for line in commands(device) if not line.startswith(("interface ", "uc-tx-queue "))]
    assert len(setting) == 1
    apply(device, change)
    assert commands(device) == []
    assert read(device, STATE).state == STATE
    after = device.configuration
    assert after.blocks[""] == former.blocks[""]


def test_another_distance_of_our_route_is_found_and_mended() -> None:
    device = pushed()
    assert device.configure("ip route 10.101.0.0/16 Ethernet2/1 10.20.0.2 5") == ""
    assert commands(device) == [
        "no ip route 10.101.0.0/16 Ethernet2/1 10.20.0.2 5",
        "ip route 10.101.0.0/16 Ethernet2/1 10.20.0.2",
    ]
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert read(device, STATE).state == STATE


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (("service-profile theirs",), "service-profile theirs"),
        (("shape rate 50 percent",), "shape rate 50 percent"),
        (("uc-tx-queue 5", "shape rate 9 pps"), "queue 5 shape rate 9 pps"),
        (("uc-tx-queue 0", "bandwidth percent 9"), "queue 0 bandwidth percent 9"),
        (("service-policy type qos input theirs",), "service-policy type qos input theirs"),
        (("uc-tx-queue 7", "no priority"), "queue 7 no priority"),
        (
            (
                "uc-tx-queue 5",
                "random-detect drop minimum-threshold 9 kbytes maximum-threshold 9 kbytes drop-probability 9",
            ),
            "queue 5 random-detect drop minimum-threshold 9 kbytes maximum-threshold 9 kbytes "
            "drop-probability 9",
        ),
        (("flowcontrol receive on",), "flowcontrol receive on"),
        (("flowcontrol send on",), "flowcontrol send on"),
        (("flowcontrol receive on", "flowcontrol receive off"), None),
        (("uc-tx-queue 3", "no priority"), None),
        (("uc-tx-queue 5", "random-detect ecn count"), None),
        (("mtu 9214",), None),
        (("qos cos 5",), None),
    ],
)
def test_a_foreign_setting_of_our_port_is_found_and_kept(lines: tuple[str, ...], fault: str | None) -> None:
    device = pushed()
    assert device.configure("interface Ethernet2/1", *lines) == ""
    expected = f"port Ethernet2/1: configuration expected as planned, found {fault}"
    assert found(device) == ([] if fault is None else [expected])
    assert commands(device) == []


def test_lines_of_other_features_are_left_alone() -> None:
    running = read(pushed(), STATE)
    foreign = (
        "interface Ethernet2/1\n   traffic-policy input theirs\n   !\n   mc-tx-queue 1\n      no priority\n"
        "   !\n   tx-queue 5\n      no priority\n!\n"
        "banner motd\ninterface Ethernet2/1\n   no qos trust\nEOF\n!\n"
        "qos map exp 6 to traffic-class 6\nqos map traffic-class 5 to dscp 40\n"
        "qos map traffic-class 5 to mc-tx-queue 1\nqos map dscp to traffic-class name theirs\n"
        "ip route vrf red 10.101.4.0/24 10.20.0.2\nend\n"
    )
    config = running.answers[CONFIG].removesuffix("end\n") + foreign
    state = TARGET.read({**running.answers, CONFIG: config}, STATE, CAPABILITIES).state
    assert [str(difference) for difference in differences(STATE, state)] == [
        f"port Ethernet2/1: configuration expected as planned, found {line}"
        for line in ("traffic-policy input theirs", "tx-queue 5")
    ]


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("ip route 10.101.3.0 255.255.255.0 10.20.0.2", ""),
        (
            "ip route vrf default 10.101.3.0/24 Ethernet2/1 10.20.0.2 10 tag 5 name x",
            "Ethernet2/1 10 tag 5 name x",
        ),
        ("ip route 10.101.3.0/24 Ethernet2/1", "Ethernet2/1"),
        ("ip route 10.101.3.0/24 Null0", ""),
        ("ip route 10.101.3.0/24 Null0 10", "Null0 10"),
    ],
)
def test_every_form_of_a_route_is_read_and_removed_as_it_stands(line: str, port: str) -> None:
    running = read(pushed(), STATE)
    config = running.answers[CONFIG] + f"{line}\n"
    state = TARGET.read({**running.answers, CONFIG: config}, STATE, CAPABILITIES)
    hop = IPv4Address("10.20.0.2" if "10.20" in line else "0.0.0.0")  # noqa: S104 (no address to listen on)
    assert state.state.routes == (*STATE.routes, RouteState(IPv4Network("10.101.3.0/24"), hop, port))
    removal = TARGET.diff(state, STATE, CAPABILITIES).steps[2].command
    assert removal == f"no {line}".replace("vrf default ", "").replace(".0 255.255.255.0", ".0/24")


@pytest.mark.parametrize("line", ["ip route 10.101.3.0/33 10.20.0.2", "ip route 10.101.3.0"])
def test_a_route_that_cannot_be_read_is_one_error(line: str) -> None:
    answers = read(pushed(), STATE).answers
    with pytest.raises(DeviceError, match=f"^show running-config: cannot read '{line}'"):
        TARGET.read({**answers, CONFIG: answers[CONFIG] + line}, STATE, CAPABILITIES)


@pytest.mark.parametrize(
    ("text", "dscps"),
    [
        ("10 12", (10, 12)),
        ("10,12", (10, 12)),
        ("10-12", (10, 11, 12)),
        ("cs1 af11", (8, 10, 12)),
        ("8 10", (8, 10, 12)),
    ],
)
def test_every_form_of_a_list_of_code_points_is_read(text: str, dscps: tuple[int, ...]) -> None:
    running = read(pushed(), STATE)
    config = running.answers[CONFIG] + f"qos map dscp {text} to traffic-class 4\n"
    state = TARGET.read({**running.answers, CONFIG: config}, STATE, CAPABILITIES).state
    assert state.ports[0].queues[2].dscps == dscps


@pytest.mark.parametrize(
    "line",
    [
        "qos map dscp 10 to traffic-class 5 drop-precedence 3",
        "qos map dscp cs9 to traffic-class 5",
        "qos map dscp 64 to traffic-class 5",
        "qos map dscp 10 to traffic-class 8",
        "qos map cos cs1 to traffic-class 5",
        "qos map traffic-class 5 to traffic-class 5",
        "qos map traffic-class 5 to uc-tx-queue five",
        "qos map dscp 10 to tx-queue 5",
    ],
)
def test_a_map_that_cannot_be_read_is_one_error(line: str) -> None:
    answers = read(pushed(), STATE).answers
    with pytest.raises(DeviceError, match=f"^show running-config: cannot read '{line}'"):
        TARGET.read({**answers, CONFIG: f"{answers[CONFIG]}{line}\n"}, STATE, CAPABILITIES)


def test_a_member_of_a_port_channel_is_refused() -> None:
    device = pushed()
    assert device.configure("interface Ethernet3/1", "channel-group 8 mode active") == ""
    assert found(device) == []
    assert device.configure("interface Ethernet2/1", "channel-group 7 mode active") == ""
    with pytest.raises(
        DeviceError,
        match=r"^port Ethernet2/1: it is a member of a port channel \(channel-group 7 mode active\)",
    ):
        read(device, STATE)


def test_a_model_tells_its_chip() -> None:
    for chip, model in MODELS.items():
        assert read(EosDevice(model=model), STATE, HARDWARE[chip]).notes == ()
        assert TARGET.hardware_of(model) == {chip}
    [note] = read(EosDevice(model="DCS-7050QX-32S-F"), STATE, HARDWARE["trident2"]).notes
    assert note == "whether DCS-7050QX-32S-F has the chip trident2, for which the plan was made, is not known"


def test_what_is_not_saved_is_a_note() -> None:
    device = pushed()
    assert read(device, STATE).notes == ()
    device.configure("interface Ethernet9/1", "mtu 9214")
    assert read(device, STATE).notes == (NOT_SAVED,)


def test_what_waits_for_its_confirmation_is_told() -> None:
    device = EosDevice()
    change = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
    send(device, change.steps)
    [sentence] = read(device, STATE).unconfirmed
    assert sentence.startswith("config session mltswitch-1 waits to be confirmed, and the switch undoes it")
    assert found(device) == []
    send(device, change.save)
    assert read(device, STATE).unconfirmed == ()
    theirs = device.open_session("other")
    for line in ("enable", "configure session theirs", "ip routing", "commit timer 00:05:00"):
        assert theirs.enter(line).text == ""
    assert read(device, STATE).unconfirmed == ()


def test_flow_control_on_a_priority_of_ours_is_refused() -> None:
    device = EosDevice()
    lines = (
        ("interface Ethernet2/1", "priority-flow-control priority 3 no-drop", "priority-flow-control on"),
        ("interface Ethernet3/1", "priority-flow-control priority 5 no-drop", "priority-flow-control on"),
        ("interface Ethernet1/1", "priority-flow-control priority 5 no-drop"),
    )
    for line in lines:
        assert device.configure(*line) == ""
        assert read(device, STATE).state.ports
    device.configure("interface Ethernet1/1", "priority-flow-control on")
    with pytest.raises(
        DeviceError, match=r"^port Ethernet1/1: PFC is on for priority 5, which the plan uses"
    ):
        read(device, STATE)
    device.configure("priority-flow-control all off")
    assert read(device, STATE).state.ports


def test_flow_control_in_a_qos_profile_is_refused() -> None:
    device = EosDevice()
    device.configure(
        "qos profile roce", "priority-flow-control on", "priority-flow-control priority 4 no-drop"
    )
    assert read(device, STATE).state.ports
    device.configure("interface Ethernet2/1", "service-profile roce")
    with pytest.raises(DeviceError, match=r"^port Ethernet2/1: PFC is on for priority 4"):
        read(device, STATE)


@pytest.mark.parametrize(
    "line",
    [
        "qos random-detect ecn allow non-ect",
        "qos random-detect ecn allow non-ect chip-based",
        "qos rewrite dscp",
    ],
)
def test_a_setting_of_the_switch_that_breaks_the_plan_is_refused(line: str) -> None:
    device = pushed()
    assert device.configure(line) == ""
    with pytest.raises(DeviceError, match=f"the whole switch has '{line}'"):
        read(device, STATE)


HOST_QUEUES = (
    replace(QUEUES[0], dscps=()),
    *QUEUES[1:3],
    replace(QUEUES[3], dscps=tuple(sorted((*OTHERS, 48, 56)))),
)
WITH_HOSTS = replace(
    STATE,
    ports=(
        *STATE.ports,
        PortState("Ethernet5/1", True, None, HOST_QUEUES, rewritten=(48, 56)),
        PortState("Ethernet6/1", False, None, QUEUES, rewritten=every_dscp_but(9)),
    ),
    background_dscp=9,
)
POLICY_LINES = [
    "ip access-list mltswitch-control-ipv4",
    "   49 permit ip any any dscp 48",
    "   57 permit ip any any dscp 56",
    "class-map type qos match-any mltswitch-control-ipv4",
    "   match ip access-group mltswitch-control-ipv4",
    "ipv6 access-list mltswitch-control-ipv6",
    "   49 permit ipv6 any any dscp 48",
    "   57 permit ipv6 any any dscp 56",
    "class-map type qos match-any mltswitch-control-ipv6",
    "   match ipv6 access-group mltswitch-control-ipv6",
    "policy-map type quality-of-service mltswitch-host",
    *("   class mltswitch-control-ipv4", "      set dscp 9", "      set traffic-class 0"),
    *("   class mltswitch-control-ipv6", "      set dscp 9", "      set traffic-class 0"),
    "! what ports send that are not trusted becomes background",
    "ip access-list mltswitch-any-ipv4",
    "   65 permit ip any any",
    "class-map type qos match-any mltswitch-any-ipv4",
    "   match ip access-group mltswitch-any-ipv4",
    "ipv6 access-list mltswitch-any-ipv6",
    "   65 permit ipv6 any any",
    "class-map type qos match-any mltswitch-any-ipv6",
    "   match ipv6 access-group mltswitch-any-ipv6",
    "policy-map type quality-of-service mltswitch-untrusted",
    *("   class mltswitch-any-ipv4", "      set dscp 9", "      set traffic-class 0"),
    *("   class mltswitch-any-ipv6", "      set dscp 9", "      set traffic-class 0"),
]


def serving(state: SwitchState) -> EosDevice:
    device = EosDevice()
    apply(device, TARGET.diff(read(device, state), state, CAPABILITIES))
    assert read(device, state).state == state
    assert commands(device, state) == []
    return device


def test_what_hosts_may_not_use_is_background_on_their_ports() -> None:
    text = TARGET.render(WITH_HOSTS, CAPABILITIES)[FILE]
    section = text.partition("! what hosts may not use becomes background\n")[2].partition("interface ")[0]
    assert [line for line in section.splitlines() if line.strip() != "!"] == POLICY_LINES
    assert (
        "interface Ethernet5/1\n   service-policy type qos input mltswitch-host\n   qos trust dscp\n" in text
    )
    assert text.count("service-policy") == 2
    assert "qos map dscp 48 56 to traffic-class 6\n" in text
    assert TARGET.parse({FILE: text}, CAPABILITIES) == WITH_HOSTS
    running = serving(WITH_HOSTS).configuration
    ports = [policy_of(running, f"Ethernet{n}/1") for n in (1, 2, 5, 6)]
    made_background = {"dscp": "9", "traffic-class": "0"}
    for family in FAMILIES:
        for dscp, hosts in ((48, made_background), (46, {})):
            found = [actions(running, port, family, dscp) for port in ports]
            assert found == [{}, {}, hosts, made_background]


def test_lines_may_stand_in_another_order_with_other_comments() -> None:
    text = TARGET.render(WITH_HOSTS, CAPABILITIES)[FILE]
    queues, classification, denied, ports, routes = re.split(
        r"! classification\n|! what hosts.*\n|(?<=!\n)(?=interface Ethernet2/1\n   qos)|! routes\n", text
    )
    moved = "".join([routes, "! ports\n", ports, "\n", denied, "   ! indented\n", classification, queues])
    assert moved != text
    assert TARGET.parse({FILE: moved}, CAPABILITIES) == WITH_HOSTS


def test_a_switch_with_ports_of_hosts_alone_rewrites_too() -> None:
    ports = (PortState("Ethernet5/1", True, None, HOST_QUEUES, rewritten=(48, 56)),)
    state = SwitchState(ports, (), background_dscp=9)
    text = TARGET.render(state, CAPABILITIES)[FILE]
    assert "      set dscp 9\n" in text
    assert TARGET.parse({FILE: text}, CAPABILITIES) == state
    serving(state)


def test_the_policies_go_with_the_last_port_that_needs_them() -> None:
    device = serving(WITH_HOSTS)
    ports = tuple(replace(port, queues=QUEUES, rewritten=()) for port in WITH_HOSTS.ports)
    fabric = replace(WITH_HOSTS, ports=ports, background_dscp=0)
    assert commands(device, fabric) == [
        *("interface Ethernet5/1", "no service-policy type qos input mltswitch-host"),
        *("interface Ethernet6/1", "no service-policy type qos input mltswitch-untrusted"),
        "no policy-map type quality-of-service mltswitch-host",
        "no policy-map type quality-of-service mltswitch-untrusted",
        "no class-map type qos match-any mltswitch-control-ipv4",
        "no class-map type qos match-any mltswitch-control-ipv6",
        "no class-map type qos match-any mltswitch-any-ipv4",
        "no class-map type qos match-any mltswitch-any-ipv6",
        "no ip access-list mltswitch-control-ipv4",
        "no ipv6 access-list mltswitch-control-ipv6",
        "no ip access-list mltswitch-any-ipv4",
        "no ipv6 access-list mltswitch-any-ipv6",
    ]
    assert device.configure("interface Ethernet9/1", "service-policy type qos input mltswitch-host") == ""
    left = [line for line in commands(device, fabric) if line.startswith("no policy-map")]
    assert left == ["no policy-map type quality-of-service mltswitch-untrusted"]
    apply(device, TARGET.diff(read(device, fabric), fabric, CAPABILITIES))
    assert read(device, fabric).state == fabric
    assert commands(device, fabric) == []


def test_other_code_points_change_single_entries() -> None:
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
    assert commands(device, wanted) == [
        *("ip access-list mltswitch-control-ipv4", "51 permit ip any any dscp 50"),
        *("ipv6 access-list mltswitch-control-ipv6", "51 permit ipv6 any any dscp 50"),
        "qos map dscp 48 50 to traffic-class 6",
        f"qos map dscp {' '.join(map(str, others.dscps))} to traffic-class 0",
        *("ip access-list mltswitch-control-ipv4", "no 57"),
        *("ipv6 access-list mltswitch-control-ipv6", "no 57"),
    ]
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert read(device, wanted).state == wanted


@pytest.mark.parametrize(
    "by_hand",
    [
        ("ip access-list mltswitch-control-ipv4", "no 49"),
        ("ipv6 access-list mltswitch-control-ipv6", "no 49"),
        ("ip access-list mltswitch-control-ipv4", "10 permit ip any any dscp ef"),
        ("ip access-list mltswitch-control-ipv4", "deny ip any any"),
        ("class-map type qos match-any mltswitch-control-ipv4", "match vlan 7"),
        (
            "class-map type qos match-any mltswitch-control-ipv6",
            "no match ipv6 access-group mltswitch-control-ipv6",
        ),
        (
            *("policy-map type quality-of-service mltswitch-host", "class mltswitch-control-ipv4"),
            "set traffic-class 3",
        ),
        (
            *("policy-map type quality-of-service mltswitch-host", "class mltswitch-control-ipv4"),
            "set dscp cs1",
        ),
        (
            *("policy-map type quality-of-service mltswitch-host", "class mltswitch-control-ipv4"),
            "set cos 3",
        ),
        ("policy-map type quality-of-service mltswitch-host", "no class mltswitch-control-ipv6"),
        ("policy-map type quality-of-service mltswitch-host", "class theirs", "set traffic-class 6"),
        ("no class-map type qos match-any mltswitch-control-ipv4",),
    ],
)
def test_a_change_of_our_policy_is_found_and_mended(by_hand: tuple[str, ...]) -> None:
    device = serving(WITH_HOSTS)
    before = device.configuration
    assert device.configure(*by_hand) == ""
    found = [str(each) for each in differences(WITH_HOSTS, read(device, WITH_HOSTS).state)]
    assert (
        "port Ethernet5/1: configuration expected as planned, found service-policy type qos input "
        "mltswitch-host, whose lines are not the plan's" in found
    )
    apply(device, TARGET.diff(read(device, WITH_HOSTS), WITH_HOSTS, CAPABILITIES))
    assert read(device, WITH_HOSTS).state == WITH_HOSTS
    assert blocks_of(device.configuration) == blocks_of(before)


def in_classes(policy: str, line: str) -> tuple[str, ...]:
    kind = "control" if policy == "mltswitch-host" else "any"
    classes = [(f"class mltswitch-{kind}-{family}", line) for family in ("ipv4", "ipv6")]
    return (f"policy-map type quality-of-service {policy}", *classes[0], *classes[1])


@pytest.mark.parametrize(
    ("by_hand", "difference", "lines"),
    [
        # as a release left it that rewrote nothing
        (
            in_classes("mltswitch-host", "no set dscp"),
            "5/1: rewritten expected (48, 56), found ()",
            in_classes("mltswitch-host", "set dscp 9"),
        ),
        (
            in_classes("mltswitch-host", "set dscp af11"),
            "5/1: configuration expected as planned, found service-policy type qos input mltswitch-host, "
            "which sets DSCP 10",
            in_classes("mltswitch-host", "set dscp 9"),
        ),
        (
            in_classes("mltswitch-untrusted", "set traffic-class 5"),
            "6/1: configuration expected as planned, found service-policy type qos input "
            "mltswitch-untrusted, which leads to queue 5",
            in_classes("mltswitch-untrusted", "set traffic-class 0"),
        ),
        (
            ("ip access-list mltswitch-any-ipv4", "49 permit ip any any dscp 48"),
            "6/1: configuration expected as planned, found service-policy type qos input "
            "mltswitch-untrusted, whose lines are not the plan's",
            ("ip access-list mltswitch-any-ipv4", "no 49"),
        ),
        (
            ("interface Ethernet6/1", "service-policy type qos input mltswitch-host"),
            f"6/1: rewritten expected {every_dscp_but(9)}, found (48, 56)",
            (
                *("interface Ethernet6/1", "no service-policy type qos input mltswitch-host"),
                "service-policy type qos input mltswitch-untrusted",
            ),
        ),
        (
            ("interface Ethernet2/1", "service-policy type qos input mltswitch-untrusted"),
            f"2/1: rewritten expected (), found {every_dscp_but(9)}",
            ("interface Ethernet2/1", "no service-policy type qos input mltswitch-untrusted"),
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
    assert f"port Ethernet{difference}" in found
    assert commands(device, WITH_HOSTS) == list(lines)
    apply(device, TARGET.diff(read(device, WITH_HOSTS), WITH_HOSTS, CAPABILITIES))
    assert read(device, WITH_HOSTS).state == WITH_HOSTS
    assert blocks_of(device.configuration) == blocks_of(before)


@pytest.mark.parametrize("name", ["Ethernet5/1", "Ethernet6/1"])
def test_a_policy_of_others_where_the_plan_needs_its_own_is_refused(name: str) -> None:
    device = EosDevice()
    device.configure(f"interface {name}", "service-policy type qos input theirs")
    with pytest.raises(DeviceError, match=f"^port {name}: it has the policy map theirs where the plan"):
        read(device, WITH_HOSTS)


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, {"rewritten": (48, 56)}),
        (1, {"rewritten": (48, 56)}),
        (2, {"rewritten": ()}),
        (2, {"rewritten": (48,)}),
        (3, {"queues": HOST_QUEUES}),
        (3, {"rewritten": every_dscp_but(0)}),
    ],
)
def test_what_no_policy_can_rewrite_is_refused(number: int, change: dict[str, object]) -> None:
    ports = list(WITH_HOSTS.ports)
    ports[number] = replace(ports[number], **change)  # type: ignore[arg-type]  # any field
    with pytest.raises(UnsupportedPlanError, match=f"port {ports[number].name}: EOS rewrites what a port"):
        TARGET.render(replace(WITH_HOSTS, ports=tuple(ports)), CAPABILITIES)


def test_ports_with_maps_of_their_own_are_refused() -> None:
    shifted = (*QUEUES[:2], replace(QUEUES[2], dscps=(12, 13)), replace(QUEUES[3], dscps=OTHERS[:13]))
    for queues in (
        shifted,
        (replace(QUEUES[0], dscps=(10,)), replace(QUEUES[1], dscps=(48, 56)), *QUEUES[2:]),
    ):
        ports = (STATE.ports[0], replace(STATE.ports[1], queues=queues))
        with pytest.raises(UnsupportedPlanError, match="port Ethernet1/1: EOS has one DSCP map"):
            TARGET.render(SwitchState(ports, ()), CAPABILITIES)


BOUNDED = (
    QUEUES[0],
    replace(QUEUES[1], ecn_threshold_bytes=None, maximum=BitRate(5_000_000_000)),
    QUEUES[2],
    replace(QUEUES[3], minimum=PortShare(5)),
)


def test_a_guarantee_and_a_rate() -> None:
    state = SwitchState((PortState("Ethernet2/1", True, None, BOUNDED),), ())
    text = TARGET.render(state, CAPABILITIES)[FILE]
    assert (
        "   uc-tx-queue 0\n      priority strict\n      bandwidth guaranteed percent 5\n      no random"
        in text
    )
    assert "   uc-tx-queue 5\n      priority strict\n      shape rate 5000000 kbps\n      no random" in text
    assert TARGET.parse({FILE: text}, CAPABILITIES) == state
    device = serving(state)
    of_queues = [lines_of(device.configuration, "interface Ethernet2/1", f"uc-tx-queue {n}") for n in (0, 5)]
    assert of_queues == [["bandwidth guaranteed percent 5"], ["shape rate 5000000 kbps"]]
    free = replace(state, ports=STATE.ports[:1])
    lines = commands(device, free)
    order = [lines.index(line) for line in ("no shape rate", step_at(18432), "no bandwidth guaranteed")]
    assert order == sorted(order)
    apply(device, TARGET.diff(read(device, free), free, CAPABILITIES))
    assert read(device, free).state == free


@pytest.mark.parametrize(
    ("queue", "what"),
    [
        (replace(QUEUES[3], minimum=BitRate(1000)), "a minimum of 1000 bit/s"),
        (replace(QUEUES[3], maximum=PortShare(5)), "a maximum of 5 %"),
        (replace(QUEUES[3], maximum=BitRate(1500)), "a maximum of 1500 bit/s"),
    ],
)
def test_bandwidths_in_other_units_are_refused(queue: QueueState, what: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=f"queue 0: {what}"):
        TARGET.render(SwitchState((replace(STATE.ports[0], queues=(*QUEUES[:3], queue)),), ()), CAPABILITIES)


def test_a_port_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="there is no interface Ethernet2/1"):
        read(EosDevice(ports=1), STATE)


def test_what_already_runs_is_saved_again() -> None:
    device = pushed()
    device.saved = EosDevice().configuration
    change = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
    assert (change.steps, change.text) == ((), "")
    apply(device, change)
    assert device.saved == device.configuration


def test_what_is_not_ours_stays() -> None:
    device = pushed()
    theirs = (
        ("interface Ethernet3/1", "qos trust cos", "uc-tx-queue 5", step_at(9000)),
        ("interface Ethernet2/1", "uc-tx-queue 3", "no priority", "random-detect ecn count"),
        ("interface Ethernet2/1", "mtu 9214"),
        ("interface Ethernet2/1", "priority-flow-control priority 3 no-drop", "priority-flow-control on"),
        ("qos map cos 3 to traffic-class 5",),
        ("ip route 0.0.0.0/0 10.20.0.9 7",),
        ("ip routing",),
    )
    for lines in theirs:
        assert device.configure(*lines) == ""
    assert commands(device) == []
    before = device.configuration
    queues = (QUEUES[0], replace(QUEUES[1], ecn_threshold_bytes=6144), *QUEUES[2:])
    wanted = SwitchState((PortState("Ethernet2/1", True, None, queues),), STATE.routes[:1])
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    after = device.configuration
    assert read(device, wanted).state == wanted
    head, queue = "interface Ethernet2/1", "uc-tx-queue 5"
    place = f"{head}\n{queue}"
    assert {**blocks_of(after), place: before.blocks[place]} == blocks_of(before)
    assert routes_of(after) < routes_of(before)


@pytest.mark.parametrize("answer", ["", "% Invalid input", "{}", "[1, 2]", '{"sessions": {"x": 1}}'])
def test_an_answer_of_another_form_is_one_error(answer: str) -> None:
    answers = read(pushed(), STATE).answers
    for query in (SESSIONS, "show version | json"):
        with pytest.raises(DeviceError, match="another form"):
            TARGET.read({**answers, query: answer}, STATE, CAPABILITIES)


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ({"sessions": {"x": {"state": "pendingApproval"}}}, "config session x is 'pendingApproval'"),
        ({"sessions": {"x": {"state": ["committed"]}}}, "config session x is .'committed'"),
        ({"sessions": {"mltswitch-1": {"state": "Committed"}}}, "config session mltswitch-1 is 'Committed'"),
        ({"sessions": {}, "pendingTimers": {"x": 60}}, "pendingTimers: {'x': 60}"),
        ({"sessions": {}, "commitTimerExpireTime": 12.5}, "commitTimerSessionName does not say"),
    ],
)
def test_what_no_release_is_known_to_say_of_sessions_is_quoted(shown: dict[str, object], told: str) -> None:
    answers = read(pushed(), STATE).answers
    with pytest.raises(DeviceError, match=told) as caught:
        TARGET.read({**answers, SESSIONS: json.dumps(shown)}, STATE, CAPABILITIES)
    assert SESSIONS in str(caught.value)


def test_a_switch_that_saves_each_commit_is_not_pushed_to() -> None:
    running = read(EosDevice(), STATE)
    saving = {"sessions": {}, "saveToStartupConfigOnCommit": True}
    running = replace(running, answers={**running.answers, SESSIONS: json.dumps(saving)})
    with pytest.raises(DeviceError, match="saves each commit to its startup configuration"):
        TARGET.diff(running, STATE, CAPABILITIES)


def test_an_end_in_a_banner_is_no_end_of_the_configuration() -> None:
    device = EosDevice()
    answers = dict(read(device, STATE).answers)
    whole = "banner motd\nthis is the\nend\nEOF\n" + answers[RUNNING_CONFIG]
    TARGET.read(answers | {RUNNING_CONFIG: whole}, STATE, CAPABILITIES)
    with pytest.raises(DeviceError, match="is cut short"):
        TARGET.read(answers | {RUNNING_CONFIG: whole[: whole.rindex("end")]}, STATE, CAPABILITIES)


def test_a_line_below_a_line_of_our_class_goes_with_that() -> None:
    wanted = replace(STATE, ports=(replace(STATE.ports[0], rewritten=()), *STATE.ports[1:]))
    device = EosDevice()
    answers = dict(read(device, wanted).answers)
    begin = "policy-map type quality-of-service mltswitch-host\n   class mltswitch-control-ipv4\n"
    lines = f"{begin}      police rate 5 kbps\n         action drop\n"
    running = TARGET.read(answers | {RUNNING_CONFIG: lines + answers[RUNNING_CONFIG]}, wanted, CAPABILITIES)
    assert not any("action" in step.command for step in TARGET.diff(running, wanted, CAPABILITIES).steps)
