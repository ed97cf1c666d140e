"""EOS lines: accepted with their effect, or refused without any; modes, prompts and config sessions."""

import json
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsim.eos import EosDevice, EosSession
from switchsim.eos_settings import Route
from tests.targets.eos.device import actions, lines_of

PORT = "interface Ethernet1/1"
QUEUE = "uc-tx-queue 5"
ECN = "random-detect ecn minimum-threshold 60 kbytes maximum-threshold 60 kbytes"

ACCEPTED = [
    ("qos map dscp 8 49 to traffic-class 6",),
    ("qos map dscp 48 to traffic-class 6 drop-precedence 1",),
    ("qos map cos 0 to traffic-class 0",),
    ("qos map traffic-class 6 to tx-queue 5",),
    ("qos rewrite dscp",),
    ("qos random-detect ecn allow non-ect",),
    ("ip routing",),
    ("ip route 10.8.1.0/24 10.0.1.2",),
    ("ip route 10.8.1.0/24 Ethernet1/1 10.0.1.2 120",),
    ("ip route 10.8.1.0/24 Null0",),
    (PORT, "qos trust dscp"),
    ("int eth1/1", "no qos trust"),
    (PORT, "qos cos 3"),
    (PORT, "qos dscp 63"),
    (PORT, "service-profile MLT"),
    (PORT, "no switchport", "ip address 10.0.1.1/30"),
    (PORT, QUEUE, "no priority"),
    (PORT, QUEUE, ECN),
    (PORT, QUEUE, f"{ECN} max-mark-probability 100"),
    (PORT, QUEUE, f"{ECN} weight 0"),
    (PORT, QUEUE, f"{ECN} max-mark-probability 100 weight 15"),
    (PORT, QUEUE, "random-detect ecn count"),
    (
        *(PORT, QUEUE),
        "random-detect drop minimum-threshold 1 bytes maximum-threshold 2 bytes drop-probability 5",
    ),
    (PORT, QUEUE, "bandwidth percent 20"),
    (PORT, QUEUE, "bandwidth guaranteed percent 20"),
    (PORT, QUEUE, "no priority", "uc-tx-queue 4", "no priority"),
    (PORT, QUEUE, "no priority", "qos trust dscp"),
    ("qos profile MLT", "qos trust dscp", QUEUE, ECN),
    (PORT, QUEUE, "bandwidth guaranteed 5000 kbps"),
    (PORT, QUEUE, "shape rate 5000 kbps"),
    (PORT, "service-policy type qos input later"),
    ("ip access-list a", "49 permit ip any any dscp 48", "permit ip any any dscp ef", "deny ip any any"),
    ("ipv6 access-list a", "10 permit ipv6 any any dscp cs1"),
    ("class-map type qos match-any c", "match ip access-group a", "match vlan 7", "match cos 3"),
    ("policy-map type quality-of-service p", "class c", "set traffic-class 0", "set dscp 46"),
    ("policy-map type quality-of-service p", "class c", "set cos 1", "class d", "set drop-precedence 1"),
    (PORT, "priority-flow-control on", "priority-flow-control priority 3 no-drop"),
]

REFUSED = [
    "foo",
    "reload",
    "interface",
    "interface Ethernet5/1",
    "interface Ethernet0/1",
    "interface Vlan7",
    "qos map dscp 64 to traffic-class 6",
    "qos map dscp to traffic-class 6",
    "qos map dscp 10 to traffic-class 8",
    "qos map dscp 10 to traffic-class 6 drop-precedence 3",
    "qos map dscp 10 to tx-queue 6",
    "qos map traffic-class 7 to tx-queue 6",
    "qos map traffic-class 6 to tx-queue 7",
    "qos map traffic-class 6 to uc-tx-queue 6",
    "qos trust dscp",
    "ip route 10.8.1.1/24 10.0.1.2",
    "ip route 10.8.1.0 10.0.1.2",
    "ip route 10.8.1.0/24 Ethernet9/1 10.0.1.2",
    "ip route 10.8.1.0/24 10.0.1.2 0",
    "no ip route 10.8.1.0/24",
    "configure session x commit",
    "configure session x abort",
    "configure session x commit timer 10",
    "commit",
    "abort",
    f"{PORT}\nqos trust l3",
    f"{PORT}\nqos cos 8",
    f"{PORT}\nip address 10.0.1.1/30",
    f"{PORT}\ntx-queue 5",
    f"{PORT}\nuc-tx-queue 8",
    f"{PORT}\npriority strict",
    f"{PORT}\n{QUEUE}\npriority",
    f"{PORT}\n{QUEUE}\nrandom-detect ecn",
    f"{PORT}\n{QUEUE}\n{ECN.replace('minimum-threshold 60', 'minimum-threshold 61')}",
    f"{PORT}\n{QUEUE}\n{ECN.replace('60', '0')}",
    f"{PORT}\n{QUEUE}\n{ECN.replace('60', '256000001')}",
    f"{PORT}\n{QUEUE}\n{ECN.replace('kbytes', 'bytes', 1)}",
    f"{PORT}\n{QUEUE}\n{ECN} max-mark-probability 101",
    f"{PORT}\n{QUEUE}\n{ECN} weight 16",
    f"{PORT}\n{QUEUE}\n{ECN} weight 0 max-mark-probability 100",
    f"{PORT}\n{QUEUE}\nbandwidth percent 0",
    f"{PORT}\n{QUEUE}\nshape rate 0 kbps",
    f"{PORT}\n{QUEUE}\nno bandwidth",
    f"{PORT}\nno service-policy type qos input p",
    f"{PORT}\nservice-policy input p",
    "permit ip any any",
    "ip access-list a\n1 permit ipv6 any any",
    "ip access-list a\n1 permit ip any any dscp 64",
    "ip access-list a\n0 permit ip any any",
    "ip access-list a\nno 5 permit ip any any",
    "class-map type qos match-all c",
    "class-map type qos match-any c\nmatch ip dscp 48",
    "policy-map type quality-of-service p\nset traffic-class 0",
    "policy-map type quality-of-service p\nclass c\nset traffic-class 8",
    "show running-config | json",
    "show configuration sessions",
    "| json",
]


def entered(device: EosDevice, *lines: str) -> EosSession:
    session = device.open_session("admin")
    for line in ("enable", *lines):
        assert session.enter(line).text == "", line
    return session


@pytest.fixture
def device() -> EosDevice:
    return EosDevice(ports=4)


@pytest.mark.parametrize("lines", ACCEPTED)
def test_accepted_and_printed_so_that_it_can_be_entered_again(
    device: EosDevice, lines: tuple[str, ...]
) -> None:
    before = device.configuration
    assert device.configure(*lines) == ""
    assert device.configuration != before
    session = entered(device)
    printed = session.enter("show running-config").text
    again = EosDevice(ports=4)
    assert again.configure(*(line for line in printed.splitlines() if not line.startswith("hostname"))) == ""
    assert entered(again).enter("show running-config").text == printed


@pytest.mark.parametrize("line", REFUSED)
def test_refused_without_effect(device: EosDevice, line: str) -> None:
    *modes, last = line.split("\n")
    session = entered(device, "configure", *modes)
    before = device.configuration
    assert session.enter(last).text.startswith("% ")
    assert device.configuration == before


def test_effects(device: EosDevice) -> None:
    device.configure("qos map dscp 10 11 to traffic-class 5", PORT, "no qos trust", QUEUE, f"{ECN} weight 0")
    running = device.configuration
    assert [running.fact("class-of-dscp", dscp)[0] for dscp in range(8, 13)] == [0, 0, 5, 5, 0]
    assert lines_of(running, PORT) == ["no qos trust"]
    assert lines_of(running, PORT, QUEUE) == [f"{ECN} weight 0"]
    device.configure("ip route 10.8.1.0/24 Ethernet1/1 10.0.1.2", "ip route 10.8.1.0/24 10.0.1.6 7")
    device.configure("no ip route 10.8.1.0/24 10.0.1.6")
    assert device.configuration.routes == (
        Route(IPv4Network("10.8.1.0/24"), "Ethernet1/1", IPv4Address("10.0.1.2")),
    )


def test_what_a_port_is_told_to_trust_is_shown(device: EosDevice) -> None:
    for line, shown in [("no qos trust", ["no qos trust"]), ("qos trust cos", ["qos trust cos"])]:
        device.configure(PORT, line)
        assert lines_of(device.configuration, PORT) == shown
    device.configure(PORT, "default qos trust")
    assert lines_of(device.configuration, PORT) == []


def test_what_a_policy_does(device: EosDevice) -> None:
    device.configure(
        *("ip access-list a", "1 permit ip any any dscp 48", "5 permit ip any any dscp 50"),
        *(
            "1 permit ip any any dscp cs6",
            "no 5",
            "class-map type qos match-any c",
            "match ip access-group a",
        ),
        *(
            "policy-map type quality-of-service p",
            "class c",
            "set dscp cs1",
            "set traffic-class 2",
            "class d",
        ),
        *("class class-default", "set dscp 3"),
    )
    found = device.configuration
    assert [actions(found, "p", "ip", n) for n in (48, 50)] == [{"dscp": "cs1", "traffic-class": "2"}, {}]
    assert actions(found, "p", "ipv6", 48) == actions(found, "q", "ip", 48) == {}
    assert "      set dscp cs1\n" in entered(device).enter("show running-config").text
    other = ("ip access-list a", "1 permit ip any any dscp 10")
    assert device.configure(*other).startswith("% Invalid input: entry 1 is there already")
    device.configure("policy-map type quality-of-service p", "no class c")
    block = device.configuration.blocks["policy-map type quality-of-service p"]
    assert list(block.inner) == ["class d", "class class-default"]
    device.configure(
        *(
            "no policy-map type quality-of-service p",
            "no class-map type qos match-any c",
            "no ip access-list a",
        )
    )
    assert device.configuration == device.startup


def test_prompts_of_policies(device: EosDevice) -> None:
    session = entered(device, "configure")
    seen = []
    for line in (
        *("ip access-list a", "class-map type qos match-any c", "policy-map type quality-of-service p"),
        *("class c", "exit", "exit"),
    ):
        assert session.enter(line).text == ""
        seen.append(session.prompt)
    assert seen == [
        *("eos1(config-acl-a)#", "eos1(config-cmap-c)#", "eos1(config-pmap-p)#", "eos1(config-pmap-c-p)#"),
        *("eos1(config-pmap-p)#", "eos1(config)#"),
    ]


def test_prompts(device: EosDevice) -> None:
    session = device.open_session("admin")
    seen = [session.prompt]
    for line in ("enable", "configure terminal", PORT, QUEUE, "exit", "exit", "end"):
        assert session.enter(line).text == ""
        seen.append(session.prompt)
    assert seen == [
        "eos1>",
        "eos1#",
        "eos1(config)#",
        "eos1(config-if-Et1/1)#",
        "eos1(config-if-Et1/1-uc-txq-5)#",
        "eos1(config-if-Et1/1)#",
        "eos1(config)#",
        "eos1#",
    ]
    session.enter("configure session mltswitch-1")
    assert session.prompt == "eos1(config-s-mltswi)#"
    assert session.enter("exit").text == ""
    assert session.enter("exit").closes


def states(device: EosDevice) -> dict[str, str]:
    text = entered(device).enter("show configuration sessions detail | json").text
    return {name: entry["state"] for name, entry in json.loads(text)["sessions"].items()}


def test_a_config_session_takes_effect_as_a_whole() -> None:
    device = EosDevice(ports=1)
    session = entered(device, "configure session a", PORT, "qos trust dscp", "end")
    assert device.configuration == device.startup
    assert states(device) == {"a": "pending"}
    assert session.enter("configure session a commit").text == ""
    assert lines_of(device.configuration, PORT) == ["qos trust dscp"]
    assert states(device) == {"a": "completed"}
    assert session.enter("configure session a").text.startswith("% Invalid input: config session a is compl")
    assert session.enter("configure session a abort").text.startswith("% Invalid input")


def test_an_aborted_session_is_forgotten(device: EosDevice) -> None:
    session = entered(device, "configure session a", "ip routing", "abort")
    assert session.prompt == "eos1#"
    assert states(device) == {}
    entered(device, "configure session a", "ip routing", "commit")
    assert "ip routing" in lines_of(device.configuration, "")


def test_a_commit_that_is_not_confirmed_is_undone() -> None:
    now = [0.0]
    device = EosDevice(clock=lambda: now[0])
    entered(device, "configure session a", "ip routing", "end", "configure session a commit timer 00:01:00")
    now[0] = 59.0
    assert "ip routing" in lines_of(device.configuration, "")
    assert states(device) == {"a": "pendingCommitTimer"}
    session = entered(device, "configure session b")
    assert session.enter("commit").text.startswith("% Invalid input: another commit waits")
    now[0] = 60.0
    assert states(device)["a"] == "aborted"
    assert device.configuration == device.startup


def test_since_4_32_the_commit_timer_stands_at_the_top() -> None:
    now = [0.0]
    device = EosDevice(clock=lambda: now[0], release="4.32.0F")
    session = entered(device, "configure session a", "ip routing", "commit timer 00:01:00")
    shown = json.loads(session.enter("show configuration sessions detail | json").text)
    assert (shown["sessions"]["a"]["state"], shown["commitTimerSessionName"]) == ("committed", "a")
    assert shown["commitTimerExpireTime"] == 60.0
    now[0] = 60.0
    shown = json.loads(session.enter("show configuration sessions detail | json").text)
    assert (shown["sessions"], "commitTimerSessionName" in shown) == ({}, False)
    assert device.configuration == device.startup


def test_a_commit_that_is_confirmed_stays() -> None:
    now = [0.0]
    device = EosDevice(clock=lambda: now[0])
    session = entered(device, "configure session a", "ip routing", "end")
    for line in ("configure session a commit timer 00:01:00", "configure session a commit"):
        assert session.enter(line).text == ""
    now[0] = 3600.0
    assert states(device) == {"a": "completed"}
    assert "ip routing" in lines_of(device.configuration, "")
    assert session.enter("write memory").text == "Copy completed successfully.\n"
    assert device.startup == device.configuration


def test_an_abort_undoes_a_commit_that_waits(device: EosDevice) -> None:
    entered(
        device,
        *("configure session a", "ip routing", "end", "configure session a commit timer 00:01:00"),
        "configure session a abort",
    )
    assert device.configuration == device.startup


def test_a_session_that_somebody_else_aborts_takes_no_more_lines(device: EosDevice) -> None:
    session = entered(device, "configure session a")
    entered(device, "configure session a abort")
    assert session.enter("ip routing").text.startswith("% Invalid input: this config session is gone")
    assert device.configuration == device.startup


def test_too_many_pending_sessions(device: EosDevice) -> None:
    entered(device, *(line for name in "abcde" for line in (f"configure session {name}", "end")))
    assert entered(device).enter("configure session f").text.startswith("% Invalid input: there are too many")


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=40), max_size=8))
def test_no_line_ends_a_session_with_an_error(lines: list[str]) -> None:
    session = entered(EosDevice(ports=1), "configure session a")
    for line in lines:
        session.enter(line)
    assert session.prompt.startswith("eos1")


@pytest.mark.parametrize("arguments", [{"ports": 0}, {"ports": 65}, {"queue_word": "queue"}])
def test_a_switch_that_cannot_be(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        EosDevice(**arguments)  # type: ignore[arg-type]
