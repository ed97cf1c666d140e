"""The FASTPATH emulator: what it takes, what it refuses, what it shows, and netmiko against it."""

import pytest

from switchsim.device import CommandLine
from switchsim.icos import INCOMPLETE, INVALID, SAVED, IcosDevice
from switchsim.icos_sheet import DEFAULT_CURVE
from tests.switchsim.conftest import Connect, Serve

PARMS = "random-detect queue-parms"


def session_of(device: IcosDevice, *lines: str) -> CommandLine:
    session = device.open_session("admin")
    for line in ("enable", *lines):
        assert session.enter(line).text == "", line
    return session


def small() -> IcosDevice:
    return IcosDevice("sw1", 4, "0/{n}")


def test_modes_and_prompts() -> None:
    session = small().open_session("admin")
    seen = [session.prompt]
    for line in ("enable", "configure", "interface 0/1", "datacenter-bridging", "exit", "exit", "exit"):
        assert session.enter(line).text == ""
        seen.append(session.prompt)
    inside = "(sw1) (Interface 0/1)#"
    assert seen == [
        *("(sw1) >", "(sw1) #", "(sw1) (Config)#", inside, "(sw1) (config-if-dcb)#"),
        *(inside, "(sw1) (Config)#", "(sw1) #"),
    ]
    assert session.enter("exit").closes
    assert session_of(small(), "configure", "interface 0/1", "end").prompt == "(sw1) #"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("reload",), INVALID),
        (("cos-queue strict",), INCOMPLETE),
        (("cos-queue strict 7",), "% Invalid input: '7': queue is a number from 0 to 6 [emulator]\n"),
        (("classofservice trust l3",), INVALID),
        (("classofservice ip-dscp-mapping 64 1",), "ipdscp is a number from 0 to 63 or a name"),
        (("classofservice ip-dscp-mapping 48 7",), "queue is a number from 0 to 6"),
        (("interface 0/9",), "An invalid interface has been used for this function\n"),
        (("interface 0/1", "classofservice ip-dscp-mapping 10 1"), INVALID),
        (("interface 0/1", "write memory confirm"), INVALID),
        (("write memory confirm",), INVALID),
        (("show running-config",), INVALID),
        (("priority-flow-control mode on",), INVALID),
        (("interface 0/1", "priority-flow-control mode on"), INVALID),
        (("vlan priority 1",), INVALID),
        ((f"{PARMS} 1 min-thresh 1 1 1 max-thresh 1 1 1 1 drop-prob-scale 1 1 1 1",), "min-thresh is a n"),
        ((f"{PARMS} 1 min-thresh 1 1 1 1 max-thresh 1 1 1 1 drop-prob-scale 1 1 1 101",), "from 0 to 100"),
        ((f"{PARMS} 1 min-thresh 1 1 1 1 drop-prob-scale 1 1 1 1",), INVALID),
        ((f"{PARMS} 1 min-thresh 1 1 1 1 max-thresh 1 1 1 1",), INCOMPLETE),
        (("random-detect exponential-weighting-constant 16",), "constant is a number from 0 to 15"),
        (("cos-queue min-bandwidth 1 2 3",), "bandwidths are 7 percentages"),
        (("cos-queue min-bandwidth 50 51 0 0 0 0 0",), "of at most 100 together"),
        (("class-map match-any c",), INVALID),
        (("class-map match-all default",), "and is not `default`"),
        ((f"class-map match-all {'c' * 32}",), "a name has 1 to 31 characters"),
        (("service-policy in p",), "there is no policy p"),
        (("no service-policy in p",), "policy p is not attached"),
        (("no class-map c",), "there is no class c"),
        (("no policy-map p",), "there is no policy p"),
        (("assign-queue 0",), INVALID),
        (("policy-map p out",), INVALID),
        (("ip route 10.0.0.0 255.0.255.0 10.0.0.1",), "write a subnet mask"),
        (("ip route 10.0.0.0/8 10.0.0.1",), "% Invalid input"),
        (("ip route 10.0.0.1 255.0.0.0 10.0.0.1",), "has host bits set"),
        (("no ip route 10.0.0.0 255.0.0.0 10.0.0.1",), "there is no such route"),
    ],
)
def test_what_is_refused_changes_nothing(lines: tuple[str, ...], text: str) -> None:
    device = small()
    before = device.configuration
    assert text in device.configure(*lines)
    assert device.configuration == before


def test_a_global_line_concerns_every_port_and_an_interface_line_one() -> None:
    device = small()
    assert device.configure("classofservice trust untrusted", "cos-queue strict 1 2") == ""
    assert device.configure("interface 0/2", "classofservice trust ip-dscp", "no cos-queue strict 2") == ""
    trusts = [device.fact(port, "trust") for port in device.ports]
    assert trusts == ["untrusted", "ip-dscp", "untrusted", "untrusted"]
    assert [n for n in range(7) if device.fact("0/1", "strict", n)] == [1, 2]
    assert [n for n in range(7) if device.fact("0/2", "strict", n)] == [1]


def test_red_parameters() -> None:
    device = small()
    line = f"{PARMS} 1 3 min-thresh 13 14 15 16 max-thresh 13 90 80 10 drop-prob-scale 100 10 10 25 ecn"
    assert device.configure("interface 0/1", line) == ""
    curve = ("ecn", *(13, 14, 15, 16), *(13, 90, 80, 17), *(100, 10, 10, 25))
    curves = [device.fact("0/1", "curve", n) for n in range(7)]
    assert curves == [curve if n in {1, 3} else DEFAULT_CURVE for n in range(7)]
    assert not device.fact("0/1", "random-detect", 1)
    shown = session_of(device).enter("show interfaces random-detect 0/1").text
    assert " 13/ 14/ 15/ 16" in f" {shown}".replace("         13/", "  13/")
    assert [row.split()[-1] for row in shown.splitlines()[-7:]] == ["No", "Yes", "No", "Yes", *("No",) * 3]
    assert device.configure("interface 0/1", f"no {PARMS} 1 3") == ""
    assert device.fact("0/1", "curve", 1) == DEFAULT_CURVE


def test_what_a_policy_does_and_what_holds_it() -> None:
    device = small()
    lines = (
        *("class-map match-all c", "match ip dscp cs6", "exit", "class-map match-all d ipv6", "exit"),
        *("policy-map p in", "class c", "assign-queue 2", "exit", "class d", "exit", "exit"),
        *("policy-map q in", "exit", "interface 0/1", "service-policy in p"),
    )
    assert device.configure(*lines) == ""
    more = ("class-map match-all e ipv6", "match any", "exit", "policy-map r in", "class e", "mark ip-dscp 8")
    assert device.configure(*more) == ""
    found = device.fact("", "diffserv")
    assert found.actions("r", "ipv6", 3) == {"mark ip-dscp": 8} != found.actions("r", "ipv4", 3)
    assert {"match any", "mark ip-dscp cs1"} <= set(found.lines())
    assert [found.actions("p", "ipv4", dscp) for dscp in (48, 50)] == [{"assign-queue": 2}, {}]
    assert found.actions("p", "ipv6", 48) == {}
    for entered, text in (
        (("class-map match-all c", "match ip dscp 3"), "a match of a class cannot be changed"),
        (("class-map match-all c ipv6",), "class c is of ipv4"),
        (("no class-map c",), "class c is in use"),
        (("no policy-map p",), "policy p is in use"),
        (("interface 0/1", "service-policy in q"), "an interface has one policy"),
        (("policy-map p in", "class f"), "there is no class f"),
        (("policy-map p in", "no class f"), "class f is not in this policy"),
        (("policy-map p in", "class c", "assign-queue 7"), "queue is a number from 0 to 6"),
    ):
        assert text in device.configure(*entered)
        assert device.fact("", "diffserv") == found
    assert device.configure("no diffserv") == ""
    assert device.fact("", "diffserv").actions("p", "ipv4", 48) == {}
    undone = ("interface 0/1", "no service-policy in p", "exit", "no policy-map p", "no class-map c")
    assert device.configure(*undone) == ""
    session = session_of(device, "configure")
    prompts = []
    for line in ("class-map match-all d ipv6", "exit", "policy-map q in", "class d", "exit", "exit"):
        assert session.enter(line).text == ""
        prompts.append(session.prompt.partition(" ")[2])
    assert prompts == [
        *("(Config-classmap)#", "(Config)#", "(Config-policy-map)#", "(Config-policy-classmap)#"),
        *("(Config-policy-map)#", "(Config)#"),
    ]


def test_saving_asks_unless_told_not_to() -> None:
    device = small()
    device.configure("ip routing")
    session = session_of(device)
    assert session.enter("write memory").text.endswith("Are you sure you want to save? (y/n) ")
    assert session.prompt == ""
    assert "Not Saved" in session.enter("n").text
    assert device.saved != device.configuration
    session.enter("write memory")
    assert session.enter("y").text == SAVED
    assert device.saved == device.configuration
    device.configure("no ip routing")
    assert session.enter("write memory confirm").text == SAVED
    assert device.saved == device.configuration


def test_the_running_configuration_can_be_entered_again() -> None:
    device = small()
    lines = (
        *("ip routing", "ip route 10.0.0.0 255.0.0.0 10.0.0.1 5", "ip route 10.0.0.0 255.0.0.0 Null0"),
        *("classofservice ip-dscp-mapping ef 6", "classofservice ip-dscp-mapping af11 4"),
        *(
            "class-map match-all c ipv6",
            "match ip dscp cs6",
            "match vlan 3",
            "exit",
            "policy-map p in",
            "class c",
        ),
        *("assign-queue 2", "mark ip-dscp 4", "exit", "exit", "no diffserv"),
        *(
            "interface 0/2",
            "service-policy in p",
            "routing",
            "ip address 10.0.0.2 255.255.255.252",
            "vlan priority 3",
        ),
        *("cos-queue strict 6", "cos-queue random-detect 4", "cos-queue min-bandwidth 5 0 0 0 0 0 0"),
        f"{PARMS} 4 min-thresh 9 9 9 9 max-thresh 9 9 9 9 drop-prob-scale 100 100 100 100 ecn",
        *("random-detect exponential-weighting-constant 0", "traffic-shape 50", "shutdown"),
        *("datacenter-bridging", "priority-flow-control mode on", "priority-flow-control priority 3 no-drop"),
    )
    assert device.configure(*lines) == ""
    text = session_of(device).enter("show running-config").text
    again = small()
    head, _, body = text.partition("configure\n")
    assert all(line.startswith("!") for line in head.splitlines())
    assert again.configure(*body.splitlines()[:-1]) == ""
    assert again.configuration == device.configuration


def test_what_trust_means_is_shown() -> None:
    device = small()
    device.configure("interface 0/1", "classofservice trust untrusted", "vlan priority 5")
    session = session_of(device)
    assert "Trust Mode: Untrusted" in session.enter("show classofservice trust 0/1").text
    assert "Untrusted Traffic Class: 2" in session.enter("show classofservice trust 0/1").text
    assert "Trust Mode: Dot1P" in session.enter("show classofservice trust 0/2").text
    assert "46(ef)" in session.enter("show classofservice ip-dscp-mapping").text


def test_netmiko_configures_and_saves(serve: Serve, connect: Connect) -> None:
    connection = connect(serve(IcosDevice("sw1", 2)))
    lines = ["interface te1/0/1", "classofservice trust ip-dscp", "exit"]
    # Modes are changed by hand: the driver waits 2 s in silence whenever it asks for the mode.
    connection.send_command("configure", expect_string=r"\(Config\)#")
    assert "%" not in connection.send_config_set(lines, enter_config_mode=False, exit_config_mode=False)
    assert "% Invalid input" in connection.send_config_set(
        ["reload"], enter_config_mode=False, exit_config_mode=False
    )
    connection.send_command("exit", expect_string=r"\) #")
    assert "Trust Mode: IP DSCP" in connection.send_command("show classofservice trust te1/0/1")
    assert "Configuration Saved!" in connection.save_config("write memory confirm")
