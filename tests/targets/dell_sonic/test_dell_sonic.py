"""Enterprise SONiC in particular: what it writes, reads, refuses, and in which order it changes a switch."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
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
from switchsim.dell_sonic import TABLE, DellSonicDevice
from tests.targets.dell_sonic.device import apply, lines_of, read, routes_of

CAPABILITIES = TARGET.hardware(None)

FILE = "mltswitch.txt"
EXAMPLE = Path(__file__).parent / "example.txt"
RUNNING = Path(__file__).parent / "z9664f.txt"
CONFIG = "show running-configuration"
VERSION = "show version"
NO_BOX = {VERSION: ""}
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
MAP = dscp_map_of(QUEUES, trusted=True)[0]
SCHEDULER = scheduler_of(QUEUES)[0]
OF_HOSTS = rewriting_of((48, 56), 0)[0]
OF_ALL = rewriting_of(every_dscp_but(0), 0)[0]
ON_PORT = "port Eth1/2: configuration expected as planned, found "


def pushed() -> DellSonicDevice:
    device = DellSonicDevice(ports=8)
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    return device


def commands(device: DellSonicDevice, wanted: SwitchState = STATE) -> list[str]:
    return [step.command for step in TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps]


def found(device: DellSonicDevice) -> set[str]:
    return {str(difference) for difference in differences(STATE, read(device, STATE).state)}


def on_port(port: str, *lines: str) -> tuple[str, ...]:
    return (f"interface {port}", *lines, "exit")


def in_queue(queue: int, *lines: str) -> tuple[str, ...]:
    return (f"qos scheduler-policy {SCHEDULER}", f"queue {queue}", *lines, "exit", "exit")


def test_text_of_three_ports() -> None:
    assert TARGET.render(STATE, CAPABILITIES)[FILE] == EXAMPLE.read_text(encoding="utf-8")


def test_lines_in_another_order_with_other_comments_say_the_same() -> None:
    head, *blocks = TARGET.render(STATE, CAPABILITIES)[FILE].split("\n\n")
    ports, routes = blocks[:-1], blocks[-1]
    text = "\n\n".join((head.replace("! thresholds", "! of ours: thresholds"), *ports, "!", routes))
    assert TARGET.parse({FILE: text.replace("\n ", "\n      ")}, CAPABILITIES) == STATE
    swapped = text.replace("  type strict\n  pir 5000000\n", "  pir 5000000\n  type strict\n")
    assert TARGET.parse({FILE: swapped}, CAPABILITIES) == STATE


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("reload", "mltswitch.txt:2: not a line that mltswitch writes: 'reload'"),
        ("write erase", "mltswitch.txt:2: not a line that mltswitch writes"),
        ("! fine\rreload", "mltswitch.txt:2: not a line that mltswitch writes"),
        ("interface Eth1/9\nexit", "mltswitch.txt:3: a mode without a line: 'exit'"),
        ("qos wred-policy A\nexit", "mltswitch.txt:3: a mode without a line"),
        ("qos scheduler-policy A\nqueue 1\nexit\nexit", "mltswitch.txt:4: a mode without a line: 'exit'"),
        ("interface Eth1/9\nreload", "mltswitch.txt:3: not a line that mltswitch writes: 'reload'"),
        (
            "interface Eth1/9\nqos-map dscp-tc x\nexit",
            "mltswitch.txt: interface Eth1/9 lacks a scheduler-policy with queues",
        ),
        ("interface Eth1/2\nshutdown\nexit", "mltswitch.txt:3: not a line that mltswitch writes: .shutdown"),
        ("interface Eth1/2\nqueue 1 wred-policy A\nexit", "mltswitch.txt:3: does not fit"),
        ("qos wred-policy A\ngreen 1\nexit", "mltswitch.txt:2: .*; line 3: does not fit"),
        ("ip route \t", "mltswitch.txt:2: not a line that"),
        ("ip route  10.0.0.0/8 10.20.0.6", "mltswitch.txt:2: not a line that"),
        ("ip route 10.0.0.0/8 \t", "mltswitch.txt:2: not a line that"),
        ("ip route 10.0.0.300/8 10.20.0.6", "mltswitch.txt:2: .*10.0.0.300"),
        ("qos wred-policy mltswitch-wred-60\nno green\nexit", "mltswitch.txt:3: not a line that .*no green"),
        ("qos map tc-queue mltswitch-queues\ntraffic-class 8 queue 1\nexit", "mltswitch.txt"),
        ("qos map dscp-tc x\ndscp 64 traffic-class 1\nexit", "mltswitch.txt:3: '64' is no range"),
        ("qos map dscp-tc x\ndscp 9-3 traffic-class 1\nexit", "mltswitch.txt:3: '9-3' is no range"),
        ("ip route 10.0.0.0/33 10.0.0.1 interface Eth1/1", "mltswitch.txt:2: '33' is not a valid netmask"),
        ("ip route 10.0.0.0/8", "mltswitch.txt:2: not a line that"),
        ("ip route 10.0.0.0/8 10.0.0.1 interface Eth1/1; reload", "mltswitch.txt"),
        ("ip route 10.0.0.0/8 10.0.0.1", "mltswitch.txt: route 10.0.0.0/8: '' is no name for a port"),
        ("qos scheduler-policy x\nport\npir 9\nexit\nexit", "mltswitch.txt"),
        ("class-map x match-type fields match-all\nexit", "mltswitch.txt:3: a mode without a line"),
        ("class-map x match-type acl\nmatch access-group ip y\nexit", "mltswitch.txt:2: not a line"),
        (
            "policy-map x type qos\nclass y priority 1\nset dscp 0\nexit\nexit",
            "mltswitch.txt:2: .*; line 4: does not",
        ),
        ("policy-map x type qos\nclass y priority 1\nexit\nexit", "mltswitch.txt:4: a mode without a line"),
        (
            "class-map mltswitch-class-48 match-type fields match-all\nmatch vlan 1\nexit",
            "interface Eth1/1: class",
        ),
    ],
)
def test_a_line_that_does_not_belong_is_refused(line: str, what: str) -> None:
    first, *rest = TARGET.render(STATE, CAPABILITIES)[FILE].split("\n")
    with pytest.raises(UserInputError, match=what):
        TARGET.parse({FILE: "\n".join([first, line, *rest])}, CAPABILITIES)


@pytest.mark.parametrize(
    ("missing", "what"),
    [
        ("  type strict\n", "mltswitch.txt:12: a mode without a line: ' exit'"),
        (" ecn all\n", "queue 5 wred-policy mltswitch-wred-60: green minimum-threshold 60"),
        (
            f" scheduler-policy {SCHEDULER}\n",
            "mltswitch.txt:10: not a line that mltswitch writes: 'qos queue 7'",
        ),
        (f" qos-map tc-queue {QUEUES_NAME}\n", "interface Eth1/2: no qos-map tc-queue"),
        (f" qos-map dscp-tc {MAP}\n", "interface Eth1/2: no qos-map dscp-tc"),
        (" traffic-class 3 queue 3\n", "qos map tc-queue mltswitch-queues is not one to one"),
        (" dscp 10 traffic-class 5\n", "interface Eth1/2: qos-map dscp-tc"),
        (" dscp 0-63 traffic-class 0\n", "mltswitch.txt:43: a mode without a line: 'exit'"),
        ("exit\n", "mltswitch.txt"),
        ("  pir 5000000\n", "interface Eth1/2: scheduler-policy mltswitch-strict"),
        (" match dscp 48\n", "mltswitch.txt:56: a mode without a line"),
        (" description any\n", "mltswitch.txt:62: a mode without a line"),
        ("  set dscp 0\n", "mltswitch.txt:66: a mode without a line: ' exit'"),
        (f" service-policy type qos in {OF_HOSTS}\n", "mltswitch.txt:[0-9]+: does not fit the other lines"),
        (f"policy-map {OF_HOSTS} type qos\n", "mltswitch.txt"),
    ],
)
def test_a_missing_line_is_missed(missing: str, what: str) -> None:
    text = TARGET.render(STATE, CAPABILITIES)[FILE]
    assert missing in text
    with pytest.raises(UserInputError, match=what):
        TARGET.parse({FILE: text.replace(missing, "", 1)}, CAPABILITIES)


def test_what_this_system_cannot_express_is_refused() -> None:
    one = STATE.ports[0]

    def with_queue(queue: QueueState) -> PortState:
        return replace(one, queues=(*QUEUES[:2], queue, *QUEUES[3:]))

    for ports, what in [
        ((replace(one, shaped_bps=10**9),), "not shaped"),
        ((replace(one, name="te1/0/1"),), "port te1/0/1: is no name for a port"),
        ((replace(one, name="Eth1/2\nreload"),), "is no name for a port"),
        ((replace(one, queues=()),), "has no queues"),
        ((replace(one, queues=(QUEUES[1], QUEUES[0], *QUEUES[2:])),), "its queues are 6, 7, 5"),
        ((with_queue(replace(QUEUES[2], queue=4)),), "queue 4: is no queue that a plan may use"),
        ((with_queue(replace(QUEUES[2], dscps=())),), "not every code point leads to one queue"),
        ((with_queue(replace(QUEUES[2], ecn_threshold_bytes=60_001)),), "queue 5: ECN threshold 60001 B"),
        ((with_queue(replace(QUEUES[2], ecn_threshold_bytes=12_481_000)),), "ECN threshold 12481000 B"),
        ((with_queue(replace(QUEUES[2], limit=BytesLimit(9))),), "the limit 9 B"),
        ((with_queue(replace(QUEUES[2], minimum=PortShare(3))),), "a minimum of 3 %"),
        ((with_queue(replace(QUEUES[2], maximum=BitRate(31_000))),), "a maximum of 31000 bit/s"),
        (
            (with_queue(replace(QUEUES[2], minimum=BitRate(64_000), maximum=BitRate(32_000))),),
            "its minimum 64000 bit/s is above its maximum",
        ),
    ]:
        with pytest.raises(UnsupportedPlanError, match=what):
            TARGET.render(SwitchState(ports, ()), CAPABILITIES)
    for state, what in [
        (replace(STATE, segment_routing=SegmentRouting(None, ())), "has no SRv6"),
        (replace(STATE, packet_spraying=True), "packet by packet"),
        (replace(STATE, routes=(STATE.routes[0]._replace(port="eth0"),)), "'eth0' is no name"),
    ]:
        with pytest.raises(UnsupportedPlanError, match=what):
            TARGET.render(state, CAPABILITIES)


def test_names_say_what_an_object_holds() -> None:
    assert wred_of(60_000)[0] == "mltswitch-wred-60"
    names = {dscp_map_of(queues, trusted=True)[0] for queues in (QUEUES, TO_HOSTS, QUEUES[::-1])}
    assert len(names) == 3
    assert scheduler_of(QUEUES)[0] == scheduler_of(TO_HOSTS)[0]
    assert scheduler_of(QUEUES)[0] != scheduler_of(QUEUES[:4])[0]
    longest = dscp_map_of(QUEUES, trusted=False)[0]
    assert len(longest) <= 32
    assert longest.startswith("mltswitch-untrusted-")


@pytest.mark.parametrize("text", ["", "a", "5-3", "64", "0-", "-3", "1,,2", "1-2-3", "٣"])
def test_what_is_no_list_of_numbers(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|no range"):
        numbers_of(text)


def test_lists_of_numbers() -> None:
    assert number_list([0, 1, 2, 5, 63]) == "0-2,5,63"
    assert numbers_of("0-2,5,63") == (0, 1, 2, 5, 63)


def test_three_ports_share_what_is_equal() -> None:
    configuration = pushed().configuration
    assert [
        configuration.heads(kind) for kind in ("qos wred-policy", "qos scheduler-policy", "qos map tc-queue")
    ] == [
        ["qos wred-policy mltswitch-wred-60", "qos wred-policy mltswitch-wred-120"],
        [f"qos scheduler-policy {SCHEDULER}"],
        [f"qos map tc-queue {QUEUES_NAME}"],
    ]
    # to spines, to hosts, and the one that believes nothing
    assert len(configuration.heads("qos map dscp-tc")) == 3
    lines = lines_of(configuration, "interface Eth1/3")
    assert any(line.startswith("qos-map dscp-tc mltswitch-untrusted-") for line in lines)


@pytest.mark.parametrize(
    ("by_hand", "text", "lines"),
    [
        (
            (
                "qos wred-policy mltswitch-wred-60",
                "green minimum-threshold 9 maximum-threshold 9 drop-probability 100",
            ),
            "port Eth1/2, queue 5: ecn_threshold_bytes expected 60000, found 9000",
            ["green minimum-threshold 60 maximum-threshold 60 drop-probability 100"],
        ),
        (
            (
                "qos wred-policy mltswitch-wred-60",
                "green minimum-threshold 60 maximum-threshold 90 drop-probability 100",
            ),
            f"{ON_PORT}queue 5 wred-policy mltswitch-wred-60: green minimum-threshold 60 "
            "maximum-threshold 90 drop-probability 100, ecn all",
            ["green minimum-threshold 60 maximum-threshold 60 drop-probability 100"],
        ),
        (
            (
                "qos wred-policy mltswitch-wred-60",
                "green minimum-threshold 20 maximum-threshold 90 drop-probability 5",
            ),
            f"{ON_PORT}queue 5 wred-policy mltswitch-wred-60: green minimum-threshold 20 "
            "maximum-threshold 90 drop-probability 5, ecn all",
            [
                "green minimum-threshold 90 maximum-threshold 90 drop-probability 100",
                "green minimum-threshold 60 maximum-threshold 60 drop-probability 100",
            ],
        ),
        (
            ("qos wred-policy mltswitch-wred-60", "no ecn"),
            "port Eth1/2, queue 5: ecn_threshold_bytes expected 60000, found None",
            ["ecn all"],
        ),
        (
            in_queue(6, "pir 6000000"),
            "port Eth1/2, queue 6: maximum expected 5000000000 bit/s, found 6000000000 bit/s",
            ["pir 5000000"],
        ),
        (
            in_queue(0, "no cir"),
            "port Eth1/2, queue 0: minimum expected 10000000000 bit/s, found None",
            ["cir 10000000"],
        ),
        (
            in_queue(5, "type dwrr", "weight 7"),
            f"{ON_PORT}scheduler-policy {SCHEDULER}: queue 5 type dwrr, weight 7",
            ["no weight", "type strict"],
        ),
        (
            in_queue(5, "cbs 9000", "pbs 9000"),
            f"{ON_PORT}scheduler-policy {SCHEDULER}: queue 5 type strict, cbs 9000, pbs 9000",
            ["no cbs", "no pbs"],
        ),
        (
            in_queue(6, "cir 6000", "meter-type packets"),
            "port Eth1/2, queue 6: minimum expected None, found 6000000 bit/s",
            ["no meter-type", "no cir"],
        ),
        (
            in_queue(3, "type dwrr"),
            f"{ON_PORT}scheduler-policy {SCHEDULER}: queue 3 type dwrr",
            ["no queue 3"],
        ),
        (
            (f"qos scheduler-policy {SCHEDULER}", "port", "pir 90000"),
            f"{ON_PORT}scheduler-policy {SCHEDULER}: port pir 90000",
            ["no port"],
        ),
        (
            (f"qos map dscp-tc {MAP}", "dscp 10 traffic-class 0", "dscp 8 traffic-class 5"),
            "port Eth1/2, queue 5: dscps expected (10,), found (8,)",
            ["dscp 8 traffic-class 6", "dscp 10 traffic-class 5"],
        ),
        (
            (f"qos map dscp-tc {MAP}", "no dscp 10"),
            "port Eth1/2, queue 5: dscps expected (10,), found ()",
            ["dscp 10 traffic-class 5"],
        ),
        (
            on_port("Eth1/2", "no queue 5 wred-policy"),
            "port Eth1/2, queue 5: ecn_threshold_bytes expected 60000, found None",
            ["queue 5 wred-policy mltswitch-wred-60"],
        ),
        (
            on_port("Eth1/2", "queue 6 wred-policy mltswitch-wred-60"),
            "port Eth1/2, queue 6: ecn_threshold_bytes expected None, found 60000",
            ["no queue 6 wred-policy"],
        ),
        (
            on_port("Eth1/2", "queue 1 wred-policy mltswitch-wred-60"),
            f"{ON_PORT}queue 1 wred-policy mltswitch-wred-60",
            ["no queue 1 wred-policy"],
        ),
        (
            on_port("Eth1/2", "no qos-map dscp-tc"),
            f"{ON_PORT}no qos-map dscp-tc",
            [f"qos-map dscp-tc {MAP}"],
        ),
        (
            on_port("Eth1/2", "no qos-map tc-queue"),
            f"{ON_PORT}no qos-map tc-queue",
            [f"qos-map tc-queue {QUEUES_NAME}"],
        ),
        (
            on_port("Eth1/2", "no scheduler-policy"),
            f"{ON_PORT}no scheduler-policy",
            [f"scheduler-policy {SCHEDULER}"],
        ),
    ],
)
def test_a_change_by_hand_is_found_and_mended(by_hand: tuple[str, ...], text: str, lines: list[str]) -> None:
    device = pushed()
    before = device.configuration
    assert device.configure(*by_hand) == ""
    assert text in found(device)
    change = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
    openers = ("qos ", "interface ", "queue 5", "queue 6", "queue 0", "exit")
    sent = [step.command for step in change.steps]
    assert [line for line in sent if not line.startswith(openers) or " wred-policy mlt" in line[5:]] == [
        line for line in sent if line in lines
    ]
    assert [line for line in sent if line in lines] == lines
    apply(device, change)
    assert commands(device) == []
    assert device.configuration == before


def test_a_map_that_believes_something_is_found_and_mended() -> None:
    device = pushed()
    name = dscp_map_of(QUEUES, trusted=False)[0]
    assert device.configure(f"qos map dscp-tc {name}", "dscp 10 traffic-class 5") == ""
    [text] = found(device)
    assert text == (
        "port Eth1/3: configuration expected as planned, found "
        f"qos map dscp-tc {name} leads elsewhere than to background"
    )
    assert commands(device) == [f"qos map dscp-tc {name}", "dscp 10 traffic-class 0", "exit"]
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert found(device) == set()


def test_somebody_elses_objects_are_replaced_on_our_ports_and_stay() -> None:
    device = pushed()
    theirs = (
        *("qos wred-policy ROCE", "green minimum-threshold 60 maximum-threshold 60 drop-probability 100"),
        *(
            "ecn green",
            "exit",
            "qos scheduler-policy ROCE",
            "queue 3",
            "type dwrr",
            "weight 50",
            "exit",
            "exit",
        ),
        *("qos map dscp-tc ROCE", "dscp 0-63 traffic-class 3", "exit"),
        *("qos map tc-queue ROCE", "traffic-class 3 queue 3", "exit"),
        *on_port("Eth1/2", "queue 5 wred-policy ROCE", "queue 3 wred-policy ROCE", "scheduler-policy ROCE"),
        *on_port("Eth1/2", "qos-map dscp-tc ROCE", "qos-map tc-queue ROCE"),
        *on_port("Eth1/7", "queue 5 wred-policy ROCE", "scheduler-policy ROCE", "qos-map dscp-tc ROCE"),
    )
    assert device.configure(*theirs) == ""
    before = device.configuration
    text = found(device)
    for line in (
        *("queue 5 wred-policy ROCE", "scheduler-policy ROCE: queue 5 empty", "scheduler-policy ROCE"),
        *("qos-map dscp-tc ROCE", "qos-map tc-queue ROCE"),
    ):
        assert f"{ON_PORT}{line}" in text
    # A tc-queue map of another form: thresholds are out of the way meanwhile.
    lines = commands(device)
    assert lines.index("no queue 5 wred-policy") < lines.index(f"qos-map tc-queue {QUEUES_NAME}")
    assert lines.index(f"qos-map dscp-tc {MAP}") < lines.index("queue 5 wred-policy mltswitch-wred-60")
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert read(device, STATE).state == STATE
    after = device.configuration
    assert [line for line in lines_of(after, "interface Eth1/2") if " wred-policy " in line] == [
        "queue 2 wred-policy mltswitch-wred-120",
        "queue 3 wred-policy ROCE",
        "queue 5 wred-policy mltswitch-wred-60",
    ]
    of_others = [head for head in before.blocks if "ROCE" in head or head == "interface Eth1/7"]
    assert [after.blocks[head] for head in of_others] == [before.blocks[head] for head in of_others]


def test_old_objects_of_ours_go_last_unless_a_port_uses_them() -> None:
    device = pushed()
    queues = (*QUEUES[:2], replace(QUEUES[2], ecn_threshold_bytes=30_000), *QUEUES[3:])
    ports = tuple(replace(port, queues=queues) for port in STATE.ports if port.name != "Eth1/1")
    wanted = SwitchState(ports, STATE.routes)
    lines = commands(device, wanted)
    assert not [line for line in lines if line.startswith("no qos")]  # Eth1/1 has the old ones still
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert device.configure(*on_port("Eth1/1", "no queue 5 wred-policy", "no qos-map dscp-tc")) == ""
    assert commands(device, wanted) == [
        "no qos wred-policy mltswitch-wred-60",
        f"no qos map dscp-tc {dscp_map_of(TO_HOSTS, trusted=True)[0]}",
    ]


def test_rates_never_cross_on_the_way() -> None:
    device = pushed()
    for rates in ((4_000, 9_000), (1_000, 2_000), (3_000, 3_000), (50_000, 60_000)):
        low, high = (BitRate(rate * 1000) for rate in rates)
        assert device.configure(
            *in_queue(0, f"pir {max(rates) * 10}", "cir 20000", f"pir {20_000 + max(rates)}")
        ) in {"", "%Error: PIR must be greater than or equal to CIR\n"}
        queues = (*QUEUES[:4], replace(QUEUES[4], minimum=low, maximum=high))
        wanted = replace(STATE, ports=(replace(STATE.ports[0], queues=queues),))
        apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
        name = scheduler_of(queues)[0]
        for by_hand in (("no cir", "pir 100", "cir 90"), ("pir 900000", "cir 800000"), ("no cir", "no pir")):
            assert device.configure(f"qos scheduler-policy {name}", "queue 0", *by_hand) == ""
            apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
            assert read(device, wanted).state == wanted
            assert device.configure(f"qos scheduler-policy {name}", "queue 0", "no cir") == ""
            apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))


@pytest.mark.parametrize(
    ("by_hand", "text", "lines"),
    [
        (
            "ip route 10.101.0.0/16 10.20.0.6 interface Eth1/3",
            "via 10.20.0.6 Eth1/3",
            ["no ip route 10.101.0.0/16 10.20.0.6 interface Eth1/3"],
        ),
        (
            "ip route 10.101.3.0/24 10.20.0.6",
            "via 10.20.0.6",
            ["no ip route 10.101.3.0/24 10.20.0.6"],
        ),
        (
            "ip route 10.101.3.0/24 interface Eth1/3 tag 7 9",
            "via 0.0.0.0 Eth1/3 tag 7 9",
            ["no ip route 10.101.3.0/24 interface Eth1/3"],
        ),
        (
            "ip route 10.101.3.0/24 blackhole 200",
            "via 0.0.0.0 blackhole 200",
            ["no ip route 10.101.3.0/24 blackhole"],
        ),
        (
            "ip route 10.101.0.0/16 10.20.0.2 interface Eth1/2 77",
            "via 10.20.0.2 Eth1/2 77",
            [
                "no ip route 10.101.0.0/16 10.20.0.2 interface Eth1/2",
                "ip route 10.101.0.0/16 10.20.0.2 interface Eth1/2",
            ],
        ),
    ],
)
def test_another_route_to_our_prefixes_is_found_and_mended(by_hand: str, text: str, lines: list[str]) -> None:
    device = pushed()
    assert device.configure(by_hand, "ip route 0.0.0.0/0 10.20.0.9") == ""
    assert any(line.endswith(text) for line in found(device))
    assert commands(device) == lines
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert read(device, STATE).state == STATE
    assert TABLE.printed(device.configuration)[-1 if len(lines) == 1 else 1] == "ip route 0.0.0.0/0 10.20.0.9"


def test_routes_change_one_by_one_and_the_new_one_comes_first() -> None:
    device = pushed()
    by_hand = (
        *("no ip route 10.101.0.0/16 10.20.0.2 interface Eth1/2", "ip route 10.101.0.0/16 10.20.0.6"),
        "ip route 10.101.0.0/16 10.20.0.10",
        *("no ip route 10.101.0.1/32 10.10.0.2 interface Eth1/1", "ip route 10.101.0.1/32 blackhole"),
    )
    assert device.configure(*by_hand) == ""
    assert commands(device) == [
        "ip route 10.101.0.0/16 10.20.0.2 interface Eth1/2",
        "no ip route 10.101.0.0/16 10.20.0.6",
        "no ip route 10.101.0.0/16 10.20.0.10",
        "no ip route 10.101.0.1/32 blackhole",
        "ip route 10.101.0.1/32 10.10.0.2 interface Eth1/1",
    ]


def served(queues: tuple[QueueState, ...]) -> SwitchState:
    return SwitchState((PortState("Eth1/2", True, None, queues),), STATE.routes)


def scheduling(device: DellSonicDevice, wanted: SwitchState) -> list[str]:
    kinds = ("scheduler-policy ", "qos-map dscp-tc", "qos-map tc-queue")
    return [line for line in commands(device, wanted) if line.startswith(kinds)]


def test_a_policy_that_lacks_a_queue_is_bound_when_no_packet_takes_it_any_more() -> None:
    four = (*QUEUES[:3], replace(QUEUES[4], dscps=tuple(sorted((*OTHERS, 12)))))
    device = DellSonicDevice(ports=8)
    apply(device, TARGET.diff(read(device, served(QUEUES)), served(QUEUES), CAPABILITIES))
    to_four, back = (
        (dscp_map_of(queues, trusted=True)[0], scheduler_of(queues)[0]) for queues in (four, QUEUES)
    )
    assert scheduling(device, served(four)) == [
        f"qos-map dscp-tc {to_four[0]}",
        f"scheduler-policy {to_four[1]}",
    ]
    apply(device, TARGET.diff(read(device, served(four)), served(four), CAPABILITIES))
    assert scheduling(device, served(QUEUES)) == [f"scheduler-policy {back[1]}", f"qos-map dscp-tc {back[0]}"]


def test_a_policy_stands_between_where_one_lacks_a_queue_and_the_other_has_a_cap() -> None:
    five = (
        QUEUES[0],
        replace(QUEUES[1], dscps=(12,), maximum=None),
        QUEUES[2],
        replace(QUEUES[4], dscps=tuple(sorted((*OTHERS, 8)))),
    )
    device = DellSonicDevice(ports=8)
    apply(device, TARGET.diff(read(device, served(five)), served(five), CAPABILITIES))
    before = device.configuration
    lines = commands(device, served(QUEUES))
    between = next(line for line in lines if line.startswith("qos scheduler-policy mltswitch-between-"))
    name = between.split()[-1]
    assert scheduling(device, served(QUEUES)) == [
        f"scheduler-policy {name}",
        f"qos-map dscp-tc {MAP}",
        f"scheduler-policy {SCHEDULER}",
    ]
    start = lines.index(between)
    body = [line for line in lines[start : lines.index(f"scheduler-policy {name}")] if "pir" in line]
    assert body == []
    assert f"no qos scheduler-policy {name}" in lines
    # Cut off in the middle, the next change goes on from there and leaves nothing of it.
    for end in range(start, len(lines)):
        device.configuration = before
        assert device.configure(*lines[:end]) == ""
        apply(device, TARGET.diff(read(device, served(QUEUES)), served(QUEUES), CAPABILITIES))
        heads = device.configuration.heads("qos scheduler-policy")
        assert heads == [f"qos scheduler-policy {SCHEDULER}"]
        assert read(device, served(QUEUES)).state == served(QUEUES)


@pytest.mark.parametrize(
    ("line", "hop", "port", "target"),
    [
        ("ip route 10.101.3.0/24 interface PortChannel 10", "0.0.0.0", "PortChannel 10", None),  # noqa: S104  (a route)
        (
            "ip route 10.101.3.0/24 10.20.0.2 nexthop-vrf Vrf-a track 3 9",
            "10.20.0.2",
            "nexthop-vrf Vrf-a track 3 9",
            "10.20.0.2 nexthop-vrf Vrf-a",
        ),
        (
            "ip route 10.101.3.0/24 10.20.0.2 interface Eth1/4 nexthop-vrf Vrf-a",
            "10.20.0.2",
            "Eth1/4 nexthop-vrf Vrf-a",
            "10.20.0.2 interface Eth1/4 nexthop-vrf Vrf-a",
        ),
    ],
)
def test_every_form_of_a_route_is_read_and_can_be_removed(
    line: str, hop: str, port: str, target: str | None
) -> None:
    running = read(pushed(), STATE)
    config = f"{running.answers[CONFIG]}{line}\nip route vrf Vrf-red 10.101.4.0/24 10.20.0.2\n"
    state = TARGET.read(NO_BOX | {CONFIG: config}, STATE, CAPABILITIES)
    extra = RouteState(IPv4Network("10.101.3.0/24"), IPv4Address(hop), port)
    assert state.state.routes == (*STATE.routes, extra)
    [step] = TARGET.diff(state, STATE, CAPABILITIES).steps
    assert step.command == f"no ip route 10.101.3.0/24 {target or f'interface {port}'}"


@pytest.mark.parametrize("line", ["ip route 10.101.3.0/33 10.20.0.2", "ip route 10.101.3.0/24"])
def test_a_route_that_cannot_be_read_is_one_error(line: str) -> None:
    answers = read(pushed(), STATE).answers
    with pytest.raises(DeviceError, match=f"^show running-configuration: cannot read '{line}'"):
        TARGET.read(NO_BOX | {CONFIG: f"{answers[CONFIG]}{line}\n"}, STATE, CAPABILITIES)


def test_flow_control_on_a_queue_of_ours_is_refused() -> None:
    device = pushed()
    assert device.configure(*on_port("Eth1/2", "priority-flow-control priority 3")) == ""
    assert read(device, STATE).state.ports  # of no class
    groups = ("qos map tc-pg G", "traffic-class 0-2,5-7 priority-group 7", "traffic-class 3 priority-group 3")
    assert device.configure(*groups, *on_port("Eth1/2", "qos-map tc-pg G")) == ""
    assert read(device, STATE).state == STATE
    assert device.configure("qos map tc-pg G", "traffic-class 5 priority-group 3") == ""
    with pytest.raises(
        DeviceError, match=r"^port Eth1/2: flow control is on for priority 3, which pauses traf"
    ):
        read(device, STATE)
    assert device.configure("qos map tc-pg G", "traffic-class 5 priority-group 7") == ""
    queues = ("qos map pfc-priority-queue Q", "pfc-priority 3 queue 2", "exit")
    assert device.configure(*queues, *on_port("Eth1/2", "qos-map pfc-priority-queue Q")) == ""
    with pytest.raises(DeviceError, match=r"which pauses queue 2 of the plan.*\n?.*no priority-flow-control"):
        read(device, STATE)


def test_asymmetric_flow_control_is_refused() -> None:
    device = pushed()
    assert device.configure(*on_port("Eth1/2", "priority-flow-control asymmetric")) == ""
    with pytest.raises(DeviceError, match=r"^port Eth1/2: asymmetric flow control heeds pause frames of ev"):
        read(device, STATE)
    away = ("qos map pfc-priority-queue Q", "pfc-priority 0-7 queue 3", "exit")
    assert device.configure(*away, *on_port("Eth1/2", "qos-map pfc-priority-queue Q")) == ""
    assert read(device, STATE).state == STATE


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ((), "flowcontrol receive on"),
        (("qos map dot1p-tc X", "dot1p 0-7 traffic-class 5", "exit"), "qos-map dot1p-tc X"),
        (("qos map tc-dscp X", "traffic-class 5 dscp 0", "exit"), "qos-map tc-dscp X"),
        (("policy-map X type qos", "exit"), "service-policy type qos in X"),
    ],
)
def test_what_classifies_in_another_way_is_found_and_left(lines: tuple[str, ...], text: str) -> None:
    device = pushed()
    assert device.configure(*lines, *on_port("Eth1/2", text)) == ""
    assert f"{ON_PORT}{text}" in found(device)
    assert commands(device) == []


def rewritten_by_hand(*lines: str) -> tuple[DellSonicDevice, list[str]]:
    """What verify says after lines by hand."""
    device = pushed()
    assert device.configure(*lines) == ""
    return device, sorted(found(device))


@pytest.mark.parametrize(
    ("by_hand", "text", "lines"),
    [
        (
            on_port("Eth1/1", "no service-policy type qos in"),
            "port Eth1/1: rewritten expected (48, 56), found ()",
            on_port("Eth1/1", f"service-policy type qos in {OF_HOSTS}"),
        ),
        (
            on_port("Eth1/2", f"service-policy type qos in {OF_HOSTS}"),
            "port Eth1/2: rewritten expected (), found (48, 56)",
            on_port("Eth1/2", "no service-policy type qos in"),
        ),
        (
            on_port("Eth1/1", "no service-policy type qos in", f"service-policy type qos in {OF_ALL}"),
            f"port Eth1/1: rewritten expected (48, 56), found {every_dscp_but(0)}",
            on_port("Eth1/1", "no service-policy type qos in", f"service-policy type qos in {OF_HOSTS}"),
        ),
        (
            (f"policy-map {OF_HOSTS} type qos", "class mltswitch-class-48 priority 10", "set dscp 8"),
            f"port Eth1/1: configuration expected as planned, found service-policy type qos in {OF_HOSTS}",
            (f"policy-map {OF_HOSTS} type qos", "class mltswitch-class-48 priority 10", "set dscp 0"),
        ),
        (
            ("class-map mltswitch-class-48 match-type fields match-all", "match dscp ef"),
            "port Eth1/1: configuration expected as planned, found "
            "no class-map mltswitch-class-48 match-type fields match-all: match dscp 48",
            ("class-map mltswitch-class-48 match-type fields match-all", "match dscp 48"),
        ),
    ],
)
def test_a_change_of_what_is_rewritten_is_found_and_mended(
    by_hand: tuple[str, ...], text: str, lines: tuple[str, ...]
) -> None:
    before = pushed().configuration
    device, texts = rewritten_by_hand(*by_hand)
    assert text in texts
    assert [line for line in commands(device) if line != "exit"] == [line for line in lines if line != "exit"]
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert device.configuration == before


def test_what_else_somebody_does_in_a_policy_map_of_ours_is_found_and_left() -> None:
    flow = ("class mltswitch-class-any priority 10", "set traffic-class 5")
    device, texts = rewritten_by_hand(f"policy-map {OF_ALL} type qos", *flow)
    assert texts == [f"port Eth1/3: configuration expected as planned, found {': '.join(flow)}"]
    assert commands(device) == []


def test_policy_maps_are_read_without_indentation_and_with_numbers() -> None:
    lines = read(pushed(), STATE).answers[CONFIG].splitlines()
    bare = "\n".join(line.strip() for line in lines)
    for text in (bare, bare.replace("match dscp cs6", "match dscp 48")):
        assert TARGET.read(NO_BOX | {CONFIG: text}, STATE, CAPABILITIES).state == STATE


def test_somebody_elses_policy_map_is_refused_where_the_plan_needs_its_own() -> None:
    device = pushed()
    theirs = ("policy-map X type qos", "exit")
    bound = on_port("Eth1/1", "no service-policy type qos in", "service-policy type qos in X")
    assert device.configure(*theirs, *bound) == ""
    with pytest.raises(
        DeviceError, match=r"^port Eth1/1: it has the policy-map X where the plan needs its own"
    ):
        read(device, STATE)
    answers = NO_BOX | {CONFIG: read(pushed(), STATE).answers[CONFIG].replace("in mltsw", "out mltsw")}
    first = TARGET.read(answers, STATE, CAPABILITIES).state.ports[1]
    assert (first.rewritten, first.unexpected) == ((), (f"service-policy type qos out {OF_HOSTS}",))


def test_another_background_is_rewritten_to_and_a_push_that_was_cut_off_goes_on() -> None:
    def moved(port: PortState) -> PortState:
        return replace(port, rewritten=every_dscp_but(9) if not port.trusted else port.rewritten)

    wanted = replace(STATE, ports=tuple(map(moved, STATE.ports)), background_dscp=9)
    before = pushed().configuration
    lines = commands(pushed(), wanted)
    names = [rewriting_of(port.rewritten, 9)[0] for port in wanted.ports[1:]]
    assert [line for line in lines if "service-policy" in line or line.startswith("no policy")] == [
        *("no service-policy type qos in", f"service-policy type qos in {names[0]}"),
        *("no service-policy type qos in", f"service-policy type qos in {names[1]}"),
        *(f"no policy-map {name}" for name in sorted((OF_HOSTS, OF_ALL))),
    ]
    for end in range(len(lines)):
        device = pushed()
        assert device.configure(*lines[:end]) == ""
        apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
        assert read(device, wanted).state == wanted
    # One that is bound where no plan looks stays.
    assert device.configure(*on_port("Eth1/7", f"service-policy type qos in {names[1]}")) == ""
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert set(device.configuration.heads("")) - set(before.heads("")) == {f"policy-map {names[1]} type qos"}
    without = replace(STATE, ports=(STATE.ports[0],))
    ports = ("Eth1/1", "Eth1/3", "Eth1/7")
    for port in ports:
        assert device.configure(*on_port(port, "no service-policy type qos in")) == ""
    apply(device, TARGET.diff(read(device, without), without, CAPABILITIES))
    assert device.configuration.heads("policy-map") + device.configuration.heads("class-map") == []


def test_a_line_of_another_release_in_an_object_of_ours_is_reported() -> None:
    answers = read(pushed(), STATE).answers
    for after, line, text in [
        ("qos wred-policy mltswitch-wred-60", " averaging weight 3", "mltswitch-wred-60: averaging weight 3"),
        (f"qos map dscp-tc {MAP}", " dscp cs1 traffic-class 1", f"{MAP}: dscp cs1 traffic-class 1"),
        (f"qos scheduler-policy {SCHEDULER}", " mode deep", f"{SCHEDULER}: mode deep"),
    ]:
        config = answers[CONFIG].replace(f"{after}\n", f"{after}\n{line}\n")
        state = TARGET.read(NO_BOX | {CONFIG: config}, STATE, CAPABILITIES).state
        assert text in state.ports[0].unexpected
    config = answers[CONFIG].replace("interface Eth1/2\n", "interface Eth1/2\n ars bind port_pro\n")
    assert TARGET.read(NO_BOX | {CONFIG: config}, STATE, CAPABILITIES).state == STATE


def test_yellow_and_red_of_newer_releases_are_taken_away() -> None:
    answers = read(pushed(), STATE).answers
    red = " red minimum-threshold 1 maximum-threshold 5 drop-probability 25\n"
    header = "qos wred-policy mltswitch-wred-60\n"
    running = TARGET.read(
        NO_BOX | {CONFIG: answers[CONFIG].replace(header, header + red)}, STATE, CAPABILITIES
    )
    assert running.state.ports[0].unexpected[0].startswith("queue 5 wred-policy mltswitch-wred-60: red min")
    assert [step.command for step in TARGET.diff(running, STATE, CAPABILITIES).steps] == [
        header.strip(),
        "no red",
        "exit",
    ]


def test_a_box_with_another_chip_is_refused_and_one_that_nobody_knows_told() -> None:
    device = pushed()
    assert read(device, STATE).notes == ()
    device.box = "z9264f"
    with pytest.raises(DeviceError, match="x86_64-dellemc_z9264f_c3538-r0, hardware tomahawk2; nothing was"):
        read(device, STATE)
    device.box = "s9999f"
    [told] = read(device, STATE).notes
    assert told.startswith("whether x86_64-dellemc_s9999f_c3538-r0 is the hardware trident3, for which")


def test_a_running_configuration_pasted_without_indentation() -> None:
    running = TARGET.read(NO_BOX | {CONFIG: RUNNING.read_text(encoding="utf-8")}, STATE, CAPABILITIES)
    one = running.state.ports[0]
    assert one.trusted
    assert "scheduler-policy ROCE: queue 6 type strict" not in one.unexpected
    assert "scheduler-policy ROCE: queue 0 type dwrr, weight 50" in one.unexpected
    assert "qos-map dscp-tc ROCE" in one.unexpected
    assert "qos-map dot1p-tc ROCE" in one.unexpected
    assert one.queues[-1].dscps[:6] == (0, 1, 2, 3, 5, 6)
    # The same with indentation, as the switch prints it.
    config = "\n".join(
        line if line.startswith(("!", "qos ", "interface ", "line ", "hardware")) else f" {line}"
        for line in RUNNING.read_text(encoding="utf-8").splitlines()
    )
    assert TARGET.read(NO_BOX | {CONFIG: config}, STATE, CAPABILITIES).state == running.state


def test_names_of_ports_with_a_space() -> None:
    answers = read(pushed(), STATE).answers
    config = answers[CONFIG].replace("interface Eth1/", "interface Eth 1/")
    assert TARGET.read(NO_BOX | {CONFIG: config}, STATE, CAPABILITIES).state == STATE


def test_a_port_that_the_switch_lacks() -> None:
    device = pushed()
    wanted = replace(STATE, ports=(*STATE.ports, replace(STATE.ports[0], name="Eth1/99")))
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


def test_what_is_not_ours_stays() -> None:
    device = pushed()
    theirs = (
        *on_port("Eth1/2", "ip address 10.20.0.1/30", "description spine1", "queue 3 wred-policy B"),
        *("ip route 0.0.0.0/0 10.20.0.9 7", "ip route 10.101.0.0/16 10.20.0.2 interface Eth1/2"),
    )
    lines = ("qos wred-policy B", "green minimum-threshold 1 maximum-threshold 2 drop-probability 3", "exit")
    assert device.configure(*lines, *theirs) == ""
    assert commands(device) == []
    before = device.configuration
    queues = (*QUEUES[:2], replace(QUEUES[2], ecn_threshold_bytes=61_000), *QUEUES[3:])
    wanted = SwitchState((PortState("Eth1/2", False, None, queues),), STATE.routes[:1])
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert read(device, wanted).state == wanted
    after = device.configuration
    port = "interface Eth1/2"
    of_plan = ("queue 5 wred-policy", "qos-map ")
    assert [line for line in lines_of(after, port) if not line.startswith(of_plan)] == [
        line for line in lines_of(before, port) if not line.startswith(of_plan)
    ]
    theirs_after = (head for head in before.blocks if head and "mltswitch" not in head and head != port)
    assert all(after.blocks[head] == before.blocks[head] for head in theirs_after)
    assert routes_of(after) < routes_of(before)


def test_a_threshold_is_out_of_the_way_where_neither_spares_what_the_other_does() -> None:
    device = pushed()
    lines = (
        "qos wred-policy B",
        "green minimum-threshold 1 maximum-threshold 900 drop-probability 9",
        "exit",
    )
    assert device.configure(*lines, *on_port("Eth1/2", "queue 5 wred-policy B")) == ""
    assert commands(device) == [
        *on_port("Eth1/2", "no queue 5 wred-policy", "queue 5 wred-policy mltswitch-wred-60"),
    ]
