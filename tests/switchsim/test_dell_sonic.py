"""The Enterprise SONiC emulator: what it takes, what it refuses, what it shows, and netmiko against it."""

import pytest

from switchsim.dell_sonic import (
    AMBIGUOUS,
    INCOMPLETE,
    INVALID,
    DellSonicDevice,
    DellSonicSession,
)
from switchsim.dell_sonic_modes import printed
from tests.switchsim.conftest import Connect, Serve

GREEN = "green minimum-threshold 60 maximum-threshold 60 drop-probability 100"
POLICY = ("qos wred-policy A", GREEN, "ecn all", "exit")
SCHEDULER = ("qos scheduler-policy S", "queue 7", "type strict", "exit", "exit")
MAPS = (
    "qos map dscp-tc M",
    "dscp 0-3,5,63 traffic-class 7",
    "qos map tc-queue M",
    "traffic-class 0-7 queue 1",
)
FLOWS = (
    *("class-map C match-type fields match-all", "match dscp 48", "policy-map P type qos"),
    *("class C priority 10", "exit", "class C priority 10", "set dscp 0", "set traffic-class 1"),
    *("exit", "exit", "interface Eth1/3", "service-policy type qos in P"),
)


def session_of(device: DellSonicDevice, *lines: str) -> DellSonicSession:
    session = device.open_session("admin")
    for line in ("sonic-cli", *lines):
        assert session.enter(line).text == "", line
    return session


def small() -> DellSonicDevice:
    return DellSonicDevice("sw1", 4)


def test_modes_and_prompts() -> None:
    session = small().open_session("admin")
    seen = [session.prompt]
    for line in (
        *(
            "sonic-cli",
            "configure terminal",
            "qos wred-policy A",
            "exit",
            "qos scheduler-policy S",
            "queue 3",
        ),
        *("exit", "port", "exit", "exit", "qos map dscp-tc M", "exit", "interface Eth1/1", "exit", "exit"),
        "exit",
    ):
        assert session.enter(line).text == "", line
        seen.append(session.prompt)
    config, scheduler = "sw1(config)# ", "sw1(conf-sched-policy-S)# "
    assert seen == [
        *("admin@sw1:~$ ", "sw1# ", config, "sw1(conf-wred-A)# ", config, scheduler),
        *("sw1(conf-scheduler-S-queue-3)# ", scheduler, "sw1(conf-scheduler-S-port)# ", scheduler, config),
        *("sw1(conf-dscp-tc-map-M)# ", config, "sw1(conf-if-Eth1/1)# ", config, "sw1# ", "admin@sw1:~$ "),
    ]
    assert "command not found" in session.enter("qos wred-policy A").text
    assert session.enter("exit").closes


def test_inner_modes_know_the_commands_of_outer_ones() -> None:
    device = small()
    session = session_of(device, "configure terminal", "interface Eth1/1", "qos map dscp-tc M")
    assert session.prompt == "sw1(conf-dscp-tc-map-M)# "
    assert "interface Eth1/1" in session.enter("show running-configuration").text
    assert session.enter("write memory").text == ""
    assert device.saved == device.configuration
    assert session.enter("interface Eth 1/2").text == ""
    assert session.prompt == "sw1(conf-if-Eth1/2)# "
    assert session.enter("end").text == ""
    assert session.prompt == "sw1# "


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("reload",), INVALID),
        (("qos wred-policy",), INCOMPLETE),
        (("no qos",), INCOMPLETE),
        (("qos map tc M",), AMBIGUOUS),
        (("qos wred-policy a.b",), "a name has at most 32 characters"),
        (("qos wred-policy " + "a" * 33,), "a name has at most 32 characters"),
        ((*POLICY[:1], GREEN.replace("60", "0")), "minimum is a number from 1 to 12480"),
        ((*POLICY[:1], GREEN.replace("60", "12481")), "minimum is a number from 1 to 12480"),
        ((*POLICY[:1], GREEN.replace("100", "101")), "probability is a number from 0 to 100"),
        (
            (*POLICY[:1], GREEN.replace("imum-threshold 60 d", "imum-threshold 59 d")),
            "%Error: Green max thresh",
        ),
        ((*POLICY[:1], "ecn on"), "ecn is one of none, green, all"),
        ((*POLICY[:1], "yellow minimum-threshold 1 maximum-threshold 1 drop-probability 1"), INVALID),
        (("no qos wred-policy A",), "%Error: Resource not found\n"),
        (("no qos scheduler-policy A",), "%Error: Instance Not found\n"),
        (("no qos map dscp-tc A",), "%Error: Resource not found\n"),
        (("qos scheduler-policy S", "queue 48"), "queue is a number from 0 to 47"),
        (("qos scheduler-policy S", "no queue 1"), "%Error: Instance Not found"),
        (("interface Eth1/1", "queue 1 wred-policy A"), "%Error: No instance found for 'A'"),
        (("interface Eth1/1", "scheduler-policy S"), "%Error: No instance found for S"),
        (("interface Eth1/1", "qos-map dscp-tc M"), "%Error: No instance found for 'M'"),
        (("interface Eth1/1", "no qos-map dscp-tc"), "%Error: Resource not found"),
        (("interface Eth1/1", "no queue 1 wred-policy"), "%Error: Resource not found"),
        (("interface Eth1/1", "queue 8 wred-policy A"), "queue is a number from 0 to 7"),
        (("interface Eth1/9",), "%Error: Interface not found"),
        (("interface Ethernet0",), "%Error: Interface not found"),
        (("dscp 1 traffic-class 1",), INVALID),
        (("ip route 10.0.0.1/8 10.0.0.1",), "has host bits set"),
        (("ip route 10.0.0.0 255.0.0.0 10.0.0.1",), "% Error"),
        (("ip route 10.0.0.0/8",), INCOMPLETE),
        (("ip route 10.0.0.0/8 10.0.0.1 interface Eth1/9",), "%Error: No instance found for 'Eth1/9'"),
        (("no ip route 10.0.0.0/8 10.0.0.1",), "%Error: Resource not found"),
        (("no class-map C",), "%Error: Resource not found"),
        (("no policy-map P",), "%Error: Resource not found"),
        (("class-map C match-type fields match-all", "match dscp 64"), "dscp is a number from 0 to 63"),
        (("policy-map P type qos", "class C priority 1"), "%Error: No instance found for 'C'"),
        ((*FLOWS[:5], "class C priority 2"), "%Error: Field update not allowed"),
        ((*FLOWS[:4], "no class-map C"), "%Error: class-map C is in use"),
        ((*FLOWS, "no policy-map P"), "%Error: policy-map P is in use"),
        ((*FLOWS, "service-policy type qos in P"), "%Error: P policy already applied"),
        (("interface Eth1/1", "service-policy type qos in P"), "%Error: No instance found for 'P'"),
    ],
)
def test_what_is_refused_changes_nothing(lines: tuple[str, ...], text: str) -> None:
    device = small()
    before = device.configuration
    assert text in device.configure(*lines)
    if len(lines) == 1:
        assert device.configuration == before


def test_schedulers() -> None:
    device = small()
    inside = ("qos scheduler-policy S", "queue 1")
    assert "can not be configured with weight" in device.configure(*inside, "weight 5", "type strict")
    assert device.configure(*inside, "no weight", "type strict", "pir 900", "cir 800") == ""
    head, queue = "qos scheduler-policy S", "queue 1"
    queues = device.configuration.blocks[head].inner
    assert printed(head, queues[queue], queue) == ["type strict", "pir 900", "cir 800"]
    for line, text in [
        ("weight 5", "%Error: Strict priority scheduling can not be configured with weight\n"),
        ("cir 901", "%Error: PIR must be greater than or equal to CIR\n"),
        ("pir 799", "%Error: PIR must be greater than or equal to CIR\n"),
        ("pir 31", "%Error: PIR must be greater than 32Kbp/4KBps/4000Bps\n"),
        ("cbs 249", "% Error: '249': cbs is a number from 250 to 125000000 [emulator]\n"),
    ]:
        assert device.configure(*inside, line) == text
    assert device.configure("interface Eth1/1", "scheduler-policy S") == ""
    assert device.configure(*inside, "pir 100000001") == (
        "%Error: PIR/CIR must be less than or equal to port speed\n"
    )
    assert device.configure("qos scheduler-policy S", "no queue 1") == (
        "%Error: Last scheduler used by interface cannot be deleted\n"
    )
    assert device.configure("no qos scheduler-policy S") == (
        "%Error: Disallow to delete an active scheduler policy\n"
    )
    assert device.configure("interface Eth1/1", "no scheduler-policy", "no qos scheduler-policy S") == ""
    assert device.configuration.heads("qos scheduler-policy") == []
    fast = ("qos scheduler-policy F", "queue 1", "cir 200000000", "exit", "exit", "interface Eth1/1")
    assert device.configure(*fast, "scheduler-policy F") == (
        "%Error: PIR/CIR must be less than or equal to port speed\n"
    )


def test_what_is_in_use_stays() -> None:
    device = small()
    bound = ("interface Eth1/1", "queue 5 wred-policy A", "qos-map dscp-tc M", "qos-map tc-queue M")
    assert device.configure(*POLICY, *MAPS, *bound) == ""
    before = device.configuration
    for lines in (("no qos wred-policy A",), ("qos wred-policy A", "no green"), ("no qos map dscp-tc M",)):
        assert "%Error" in device.configure(*lines)
    assert device.configuration == before
    assert device.configure("qos wred-policy E", "interface Eth1/1", "queue 4 wred-policy E") == (
        "%Error: Atleast one of the colors(GREEN/YELLOW/RED) must be present in WRED policy\n"
    )
    assert device.configuration.lines("qos wred-policy A") == [GREEN, "ecn all"]
    assert device.configuration.blocks["qos map dscp-tc M"].facts == {
        ("", "entry", n): 7 for n in (0, 1, 2, 3, 5, 63)
    }
    assert (
        device.configure("qos map dscp-tc M", "no dscp 0-3", "qos map tc-queue M", "no traffic-class 7") == ""
    )
    assert device.configuration.blocks["qos map dscp-tc M"].facts == {
        ("", "entry", 5): 7,
        ("", "entry", 63): 7,
    }


def test_routes() -> None:
    device = small()
    assert device.configure("ip route 10.1.0.0/16 10.0.0.1", "ip route 10.1.0.0/16 10.0.0.1 9") == ""
    assert device.configure("ip route 10.1.0.0/16 10.0.0.1 interface Eth1/2 tag 4 8") == ""
    assert device.configure("ip route 10.1.0.0/16 interface Eth1/2", "ip route 10.1.0.0/16 blackhole 3") == ""
    assert list(map(str, device.configuration.routes)) == [
        "ip route 10.1.0.0/16 10.0.0.1 9",
        "ip route 10.1.0.0/16 10.0.0.1 interface Eth1/2 tag 4 8",
        "ip route 10.1.0.0/16 interface Eth1/2",
        "ip route 10.1.0.0/16 blackhole 3",
    ]
    # What a line does not say of a next hop that exists stays.
    assert device.configure("ip route 10.1.0.0/16 10.0.0.1") == ""
    assert str(device.configuration.routes[-1]) == "ip route 10.1.0.0/16 10.0.0.1 9"
    assert device.configure("no ip route 10.1.0.0/16 10.0.0.1", "no ip route 10.1.0.0/16 blackhole") == ""
    assert len(device.configuration.routes) == 2


def test_the_running_configuration_makes_the_same_switch() -> None:
    device = small()
    lines = (
        *(*POLICY, *SCHEDULER, *MAPS, "qos map tc-pg G", "traffic-class 0-2,5-7 priority-group 7"),
        *(
            "qos scheduler-policy S",
            "queue 0",
            "pir 900",
            "cir 80",
            "meter-type bytes",
            "exit",
            "port",
            "pir 99",
        ),
        *("interface Eth1/2", "queue 5 wred-policy A", "scheduler-policy S", "qos-map dscp-tc M"),
        *("qos-map tc-queue M", "qos-map tc-pg G", "ip address 10.0.0.2/30", "description x", "shutdown"),
        *(
            "priority-flow-control priority 3",
            "ip route 10.1.0.0/16 10.0.0.1 interface Eth1/2 7",
            *FLOWS[:-2],
        ),
    )
    assert device.configure(*lines) == ""
    text = session_of(device).enter("show running-configuration").text
    assert " dscp 0-3,5,63 traffic-class 7\n" in text
    assert "\n match dscp cs6\n!\npolicy-map P type qos\n class C priority 10\n  set dscp 0\n" in text
    assert " !\n queue 0\n  meter-type bytes\n  pir 900\n  cir 80\n !\n queue 7\n  type strict\n" in text
    again = small()
    known = [line for line in text.splitlines() if not line.strip().startswith(_OTHERS)]
    # A queue's mode is left before the next one of its policy is opened.
    shown = [
        part
        for line in known
        for part in (("exit", line) if line.startswith((" queue 7", " port")) else (line,))
    ]
    assert again.configure(*shown) == ""
    assert again.configuration == device.configuration


_OTHERS = (
    "interface-naming",
    "line vty",
    "service-policy",
    "mtu",
    "fec",
    "unreliable",
    "priority-flow-control w",
)


def test_shows() -> None:
    device = small()
    bound = (
        "interface Eth1/1",
        "scheduler-policy S",
        "qos-map dscp-tc M",
        "priority-flow-control priority 3",
    )
    assert device.configure(*POLICY, *SCHEDULER, *MAPS, *bound) == ""
    session = session_of(device)
    text = session.enter("show qos wred-policy").text
    assert "ecn                    : ecn_all\ngreen-min-threshold    : 60          KBytes\n" in text
    text = session.enter("show qos scheduler-policy").text
    assert text == " Scheduler Policy: S\n   Queue: 7\n              type: strict\n"
    assert "DSCP-TC-MAP: M" in session.enter("show qos map dscp-tc").text
    assert "    7    1    \n" in session.enter("show qos map tc-queue").text
    text = session.enter("show qos interface Eth 1/1").text
    assert text == "    scheduler policy: S\n    dscp-tc-map: M\n    pfc-priority  : 3\n"
    text = session.enter("show running-configuration interface Eth1/1").text
    assert text.splitlines()[1] == "interface Eth1/1"
    assert " priority-flow-control priority 3" in text.splitlines()


def test_two_priorities_have_flow_control_at_most() -> None:
    device = small()
    lines = [f"priority-flow-control priority {number}" for number in (3, 4)]
    assert device.configure("interface Eth1/1", *lines) == ""
    assert "%Error: at most 2" in device.configure("interface Eth1/1", "priority-flow-control priority 5")
    assert device.configure("interface Eth1/1", "no priority-flow-control priority 3") == ""
    lines = device.configuration.lines("interface Eth1/1")
    assert [line for line in lines if line.startswith("priority-flow-control p")] == [
        "priority-flow-control priority 4"
    ]


def test_netmiko_configures_and_saves(serve: Serve, connect: Connect) -> None:
    connection = connect(serve(DellSonicDevice("sw1", 2)))
    assert connection.base_prompt == "sw1"
    # Modes are changed by hand: the driver waits 2 s in silence whenever it asks for the mode.
    connection.send_command("configure terminal", expect_string=r"\(config\)#")
    lines = [*POLICY, "interface Eth1/1", "queue 5 wred-policy A", "exit"]
    assert "%" not in connection.send_config_set(lines, enter_config_mode=False, exit_config_mode=False)
    assert INVALID.strip() in connection.send_config_set(
        ["reload"], enter_config_mode=False, exit_config_mode=False
    )
    connection.send_command("end", expect_string="sw1#")
    text = str(connection.send_command("show running-configuration interface Eth1/1"))
    assert " queue 5 wred-policy A" in text.splitlines()
    assert "Error" not in connection.save_config()
