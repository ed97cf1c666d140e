"""Lines, faults and readings of the BMv2 target, one by one."""

import re
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Any

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.p4.program import FOLDER, MAIN_SOURCE
from mltswitch.plan import NO_ADDRESS, Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import (
    PortState,
    QueueState,
    RouteState,
    SegmentRouting,
    SwitchState,
    hardware_capabilities,
    target_for,
)
from mltswitch.targets.bmv2 import TARGET, sheet
from mltswitch.targets.bmv2.capabilities import MAXIMUM_GROUPS
from mltswitch.targets.bmv2.ports import numbered, port_number
from mltswitch.targets.common import UNKNOWN
from mltswitch.targets.state import differences
from tests.plan.examples import SMALL
from tests.targets.bmv2.device import CAPABILITIES, Switch, apply, diff, read, rendered

REST = tuple(dscp for dscp in range(64) if dscp not in {34, 40, 48})
OWN = "02:4d:0a:14:01:0{}"
QUEUES = (
    QueueState(7, (48,), None, BytesLimit(24_224)),
    QueueState(6, (40,), None, BytesLimit(48_448), None, BitRate(1_000_000)),
    QueueState(5, (34,), 3_028, BytesLimit(4_542)),
    QueueState(0, REST, None, BytesLimit(48_448)),
)
UNTRUSTED = tuple(replace(queue, dscps=tuple(range(64)) if queue.queue == 0 else ()) for queue in QUEUES)
NEAR, FAR, HOST = IPv4Address("10.20.0.2"), IPv4Address("10.20.0.6"), IPv4Address("10.10.1.6")
HOST_QUEUES = (
    replace(QUEUES[0], dscps=()),
    *QUEUES[1:3],
    replace(QUEUES[3], dscps=tuple(sorted((*REST, 48)))),
)


def port(
    name: str, queues: tuple[QueueState, ...], *, trusted: bool = True, rewritten: tuple[int, ...] = ()
) -> PortState:
    own = OWN.format(name[-1])
    return PortState(name, trusted, None, queues, rewritten=rewritten, hardware_address=own, mtu_bytes=1500)


STATE = SwitchState(
    (
        port("eth1", QUEUES),
        port("eth2", HOST_QUEUES, rewritten=(48,)),
        port("eth3", UNTRUSTED, trusted=False, rewritten=tuple(range(1, 64))),
    ),
    (
        RouteState(IPv4Network("10.101.0.0/16"), NEAR, "eth1"),
        RouteState(IPv4Network("10.102.0.0/16"), FAR, "eth2"),
        RouteState(IPv4Network("10.10.1.6/32"), HOST, "eth3"),
        RouteState(IPv4Network("10.10.0.0/16"), NEAR, "eth1"),
        RouteState(IPv4Network("10.10.0.0/16"), FAR, "eth2"),
        RouteState(IPv4Network("10.10.1.0/24"), NO_ADDRESS, ""),
    ),
    packet_spraying=True,
)
LINES = """\
set_queue_depth 16384
meter_set_rates policers 4095 0:16384 0:16384
table_add queues set_limit 1 7 => 24224 0 1514
table_add queues set_limit 1 6 => 48448 1 1514
table_add queues set_threshold_and_limit 1 5 => 3028 4542 0 1514
table_add queues set_limit 1 0 => 48448 0 1514
meter_set_rates policers 14 0.125:48448 0.125:48448
meter_set_rates policers 22 0.125:48448 0.125:48448
table_add classes set_queue 1 02:4d:0a:14:01:01 34 => 5
table_add classes set_queue 1 02:4d:0a:14:01:01 40 => 6
table_add classes set_queue 1 02:4d:0a:14:01:01 48 => 7
table_add classes set_queue_and_dscp 2 02:4d:0a:14:01:02 48 => 0 0
table_add ports trust 1 02:4d:0a:14:01:01 =>
table_add ports trust 2 02:4d:0a:14:01:02 =>
table_add ports distrust 3 02:4d:0a:14:01:03 => 0
table_add neighbours set_neighbour 3 => 02:4d:0a:14:01:03 02:4d:0a:0a:01:06
table_add ipv4_routes forward 10.101.0.0/16 => 1
table_add ipv4_routes forward 10.10.1.6/32 => 3
table_add groups forward 1 => 1 2
table_add ipv4_routes share_packets 10.10.0.0/16 => 1
table_add ipv4_routes discard 10.10.1.0/24 =>
"""


def text_of(state: SwitchState) -> str:
    return TARGET.render(state, CAPABILITIES)["mltswitch.txt"]


def told(switch: Switch, wanted: SwitchState = STATE) -> list[str]:
    return [str(each) for each in differences(wanted, read(switch, wanted).state)]


def test_the_lines_are_those_of_the_command_line() -> None:
    lines = text_of(STATE).splitlines()
    places = [lines.index(line) for line in LINES.splitlines()]
    assert places == sorted(places)
    assert not [line for line in lines if line.startswith("table_add classes set_queue 3")]
    other_order = TARGET.parse({"mltswitch.txt": "\n".join(reversed(lines))}, CAPABILITIES)
    assert sorted(port.name for port in other_order.ports) == ["eth1", "eth2", "eth3"]


MISFIT = "does not fit the other lines"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("set_queue_depth 16384", "set_queue_depth 64", "mltswitch.txt:3: does not fit"),
        ("policers 4095 0:16384 0:16384", "policers 4095 0:64 0:64", "mltswitch.txt:4: does not fit"),
        ("=> 3028 4542 0", "=> 3028 4542 1", "does not fit the other lines"),
        ("=> 3028 4542 0", "=> 5000 4542 0", "port eth1: the ECN threshold 5000 B lies above the limit"),
        ("=> 3028 4542 0", "=> 03028 4542 0", UNKNOWN),
        ("set_limit 1 7", "set_limit 1 8", UNKNOWN),
        ("set_limit 1 7", "set_limit 9 7", "port eth9: its MTU or MAC address is missing"),
        ("24224 0 1514", "24224 0 1515", MISFIT),
        ("10.101.0.0/16 =>", "10.101.0.1/16 =>", UNKNOWN),
        ("02:4d:0a:14:00:06\n", "02:00:0a:14:00:06\n", MISFIT),
        ("groups forward 1 => 1 2", "groups forward 1 => 1 1", "stands twice"),
        ("groups forward 1 => 1 2", "groups forward 1 => 1", MISFIT),
        ("share_packets 10.10.0.0/16 => 1", "share_packets 10.10.0.0/16 => 2", MISFIT),
        ("03 => 0\n", "03 => 9\n", MISFIT),
        ("discard 10.10.1.0/24 =>", "discard 10.10.1.0/24 => 1", UNKNOWN),
        ("discard 10.10.1.0/24 =>", "discard 10.10.1.0/24 =>\nregister_write x 0 1", UNKNOWN),
        (
            "table_add ipv4_routes discard",
            "table_add ipv4_routes discard 10.10.1.0/24 =>\ntable_add ipv4_routes discard",
            MISFIT,
        ),
        ("0.125:48448 0.125:48448", "0.125:48448 0.125:48449", MISFIT),
        ("table_add queues set_limit 2 0 => 48448 0 1514\n", "", "port eth2: its queues are 7, 6, 5"),
        ("table_add neighbours set_neighbour 2 => 02:4d:0a:14:01:02 02:4d:0a:14:00:06\n", "", MISFIT),
        ("# queues", "# que\tues", "has a control character"),
    ],
)
def test_a_line_that_does_not_belong_is_refused(old: str, new: str, problem: str) -> None:
    text = text_of(STATE)
    assert old in text
    with pytest.raises(UserInputError, match=r"mltswitch\.txt") as caught:
        TARGET.parse({"mltswitch.txt": text.replace(old, new, 1)}, CAPABILITIES)
    assert problem in str(caught.value)


def test_another_file_is_refused() -> None:
    with pytest.raises(UserInputError, match="the files are routes"):
        TARGET.parse({"routes": ""}, CAPABILITIES)


def first_port(**changes: Any) -> SwitchState:
    return replace(STATE, ports=(replace(STATE.ports[0], **changes),), routes=())


def first_queue(**changes: Any) -> SwitchState:
    return first_port(queues=(replace(QUEUES[0], **changes), *QUEUES[1:]))


def routed(*routes: RouteState) -> SwitchState:
    return replace(STATE, routes=routes)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (replace(STATE, segment_routing=SegmentRouting(IPv6Network("fd00::/48"), ())), "has no SRv6"),
        (first_port(shaped_bps=10**9), "port eth1: ports have the rate of their link, they are not shaped"),
        (first_port(name="s1-eth1"), "is no name for a port"),
        (first_port(name="eth255"), "not 255"),
        (first_port(name="eth511"), "0 to 510"),
        (first_port(trusted=False), "is not trusted"),
        (first_port(rewritten=(34,)), "that it rewrites"),
        (first_port(mtu_bytes=None), "MTU or MAC address is missing"),
        (first_port(queues=QUEUES[:3]), "its queues are 7, 6, 5"),
        (first_port(queues=QUEUES[1:]), "do not share all 64"),
        (first_queue(limit=Unlimited()), "port eth1, queue 7: the limit none"),
        (first_queue(limit=BytesLimit(557_057)), "at most 557056"),
        (first_queue(minimum=PortShare(5)), "no command is known that gives a queue a minimum"),
        (first_queue(maximum=PortShare(5)), "a maximum of 5 %"),
        (first_queue(maximum=BitRate(12)), "in steps of 8 bit/s"),
        (first_queue(ecn_threshold_bytes=0), "port eth1, queue 7: ECN threshold 0 B"),
        (replace(STATE, ports=STATE.ports[:1]), "route 10.102.0.0/16: leads to 'eth2', which is no port of"),
        (routed(STATE.routes[0]._replace(port="eth9")), "no port of the plan"),
        (routed(STATE.routes[0], STATE.routes[0]), "stands twice"),
        (routed(STATE.routes[3], STATE.routes[0], STATE.routes[4]), "stands twice"),
        (routed(STATE.routes[0], STATE.routes[2]._replace(port="eth1")), "a second neighbour"),
    ],
)
def test_what_the_tables_cannot_say_is_refused(state: SwitchState, problem: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=re.escape(problem)):
        TARGET.render(state, CAPABILITIES)


@pytest.mark.parametrize(("name", "number"), {"eth3": 3, "s1-eth3": 3, "3": 3, "eth0": 0, "p007": 7}.items())
def test_the_number_of_a_port_ends_its_name(name: str, number: int) -> None:
    assert port_number(name) == number


@pytest.mark.parametrize("name", ["eth", "", "3a", "eth1000000000", "eth٣", "eth3\n", "-3", "eth 3"])
def test_a_name_without_a_number_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedPlanError, match="does not end with the number"):
        port_number(name)


@pytest.mark.parametrize("name", ["eth1", "s1-eth1"])
def test_a_number_given_twice_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedPlanError, match="as eth1 is"):
        numbered(["eth1", "eth2", name])


@pytest.mark.parametrize(
    ("text", "rate"),
    {"0.000001": 1, "0.125": 125_000, "1": 10**6, "12.5": 12_500_000, "0.00001": 10}.items(),
)
def test_rates_are_bytes_a_microsecond(text: str, rate: int) -> None:
    """A switch tells them with all their decimals."""
    line, fact = "meter_set_rates policers 14 {0}:1514 {0}:1514", (sheet.METERS, 14)
    assert sheet.added(fact, (rate, 1514, rate, 1514)) == line.format(text)
    found = sheet.read_line(line.format(f"{float(text):.6f}"))
    assert found is not None
    assert found.facts == ((fact, (rate, 1514, rate, 1514)),)


def test_groups_end_where_the_register_of_the_program_does() -> None:
    found = re.search(r"^#define GROUPS (\d+)$", (FOLDER / MAIN_SOURCE).read_text(), re.MULTILINE)
    assert found is not None
    assert int(found[1]) == MAXIMUM_GROUPS


@pytest.mark.parametrize(
    "line",
    [
        "meter_set_rates policers 14 0.125:1514",
        "meter_set_rates policers 4096 0.125:1514 0.125:1514",
        "meter_set_rates others 14 0.125:1514 0.125:1514",
        "meter_set_rates policers 14 1e3:1514 1e3:1514",
        "meter_set_rates policers 14 -1:1514 0.125:1514",
        "table_add queues set_limit 1 7 => 1",
        "table_add queues set_limit 1 => 7 1 0 1514",
        "table_add queues drop 1 7 => 1 0 1514",
        "table_add groups forward 1 =>",
        "table_add groups forward 1 => 512",
        "table_modify_match queues set_limit 1 7 => 1 0 1514",
        "table_add ipv4_routes share_flows 10.10.0.0/16 => 256",
        "table_add ipv6_routes share_flows fd00::/48 => 256",
        "table_add classes set_queue 1 02:4d:0a:14:00:02 64 => 1",
        "table_add  queues set_limit 1 7 => 1 0 1514",
        "table_add groups forward 256 => 1",
        "table_add neighbours set_neighbour 1 => 02:4D:0a:14:00:02 02:4d:0a:14:00:02",
        "table_add ipv4_routes discard 10.0.0.0/255.0.0.0 =>",
        "table_add ipv6_routes discard FD00::/48 =>",
    ],
)
def test_what_is_no_line_of_ours(line: str) -> None:
    assert sheet.read_line(line) is None


def test_readings_that_no_value_of_the_state_says() -> None:
    switch = rendered(STATE)
    del switch.meters[14]
    switch.enter(
        "meter_set_rates policers 22 0.125:48448 0.25:48448",
        "table_modify_match neighbours set_neighbour 1 => 02:4d:0a:14:01:01 02:00:00:00:00:07",
        "table_delete_match neighbours 3",
        "table_add classes set_queue 3 02:00:00:00:00:09 34 => 5",
        "table_modify_match queues set_limit 3 7 => 24224 0 9014",
    )
    assert {*told(switch)} == {
        "port eth1, queue 6: maximum expected 1000000 bit/s, found None",
        "port eth1: configuration expected as planned, found queue 6 is policed by a meter without rates",
        "port eth1: configuration expected as planned, found sends from 02:4d:0a:14:01:01 to "
        "02:00:00:00:00:07",
        "port eth2: configuration expected as planned, found queue 6 is policed at 1000000 bit/s with bursts "
        "of 48448 B and at 2000000 bit/s with bursts of 48448 B",
        "port eth3: configuration expected as planned, found no neighbour",
        "port eth3: configuration expected as planned, found packets to 02:00:00:00:00:09 are taken, too",
        "port eth3: configuration expected as planned, found queue 7 takes frames of 9014 B",
        "routes: route 10.101.0.0/16 expected via 10.20.0.2 eth1, found via 0.0.0.0 eth1 02:00:00:00:00:07",
        "routes: route 10.10.1.6/32 expected via 10.10.1.6 eth3, found via 0.0.0.0 eth3",
        "routes: route 10.10.0.0/16 expected via 10.20.0.2 eth1 and via 10.20.0.6 eth2, found via 10.20.0.6 "
        "eth2 and via 0.0.0.0 eth1 02:00:00:00:00:07",
    }
    apply(switch, diff(switch, STATE).steps)
    assert told(switch) == []


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ("", "nothing says that BMv2's queues hold 16384 packets"),
        ("0:64 0:64", "BMv2's queues hold 64 packets"),
    ],
)
def test_the_depth_is_set_first_and_then_told(rates: str, said: str) -> None:
    switch = rendered(STATE)
    del switch.meters[4095]
    switch.enter(*[f"meter_set_rates policers 4095 {rates}"] if rates else [])
    found = differences(STATE, read(switch, STATE).state)
    assert [(each.port, each.found) for each in found] == [(port.name, said) for port in STATE.ports]
    sent = ["set_queue_depth 16384", "meter_set_rates policers 4095 0:16384 0:16384"]
    assert [step.command for step in diff(switch, STATE).steps] == sent
    assert [step.command for step in diff(Switch(), STATE).steps[:2]] == sent
    assert diff(Switch(), SwitchState((), ())).is_empty


def test_routes_that_lead_elsewhere() -> None:
    switch = rendered(STATE)
    switch.enter(
        "table_modify_match ipv4_routes forward 10.101.0.0/16 => 8",
        "table_modify_match groups forward 1 => 1 3",
        "table_modify_match ipv4_routes share_flows 10.102.0.0/16 => 5",
        "table_modify_match ipv4_routes forward 10.10.1.0/24 => 1",
    )
    assert told(switch) == [
        "routes: route 10.101.0.0/16 expected via 10.20.0.2 eth1, found via 0.0.0.0 port 8",
        "routes: route 10.102.0.0/16 expected via 10.20.0.6 eth2, found via 0.0.0.0 (group 5 is missing)",
        "routes: route 10.10.0.0/16 expected via 10.20.0.2 eth1 and via 10.20.0.6 eth2, found via 10.20.0.2 "
        "eth1 and via 10.10.1.6 eth3",
        "routes: route 10.10.1.0/24 expected discarded, found via 10.20.0.2 eth1",
    ]
    change = diff(switch, STATE)
    assert change.text.splitlines() == [
        "# instead of: table_add ipv4_routes forward 10.101.0.0/16 => 8",
        "table_modify_match ipv4_routes forward 10.101.0.0/16 => 1",
        "# instead of: table_add ipv4_routes share_flows 10.102.0.0/16 => 5",
        "table_modify_match ipv4_routes forward 10.102.0.0/16 => 2",
        "# instead of: table_add groups forward 1 => 1 3",
        "table_modify_match groups forward 1 => 1 2",
        "# instead of: table_add ipv4_routes forward 10.10.1.0/24 => 1",
        "table_modify_match ipv4_routes discard 10.10.1.0/24 =>",
    ]
    apply(switch, change.steps)
    assert told(switch) == []


def test_a_code_point_more_is_a_line_a_port() -> None:
    """Of two ports, whose other code points stay."""

    def moved(queue: QueueState) -> QueueState:
        return replace(
            queue, dscps=tuple(sorted({*queue.dscps, 10} if queue.queue == 5 else {*queue.dscps} - {10}))
        )

    wider = [replace(port, queues=tuple(map(moved, port.queues))) for port in STATE.ports[:2]]
    change = diff(rendered(STATE), replace(STATE, ports=(*wider, STATE.ports[2])))
    assert [step.command for step in change.steps] == [
        "table_add classes set_queue 1 02:4d:0a:14:01:01 10 => 5",
        "table_add classes set_queue 2 02:4d:0a:14:01:02 10 => 5",
    ]


def test_numbers_run_out_where_foreign_entries_hold_them_all() -> None:
    switch = Switch()
    switch.enter(*(f"table_add ipv4_routes share_flows 192.168.{n}.0/24 => {n}" for n in range(1, 256)))
    with pytest.raises(DeviceError, match="no number left for a group"):
        diff(switch, STATE)


def test_a_switch_without_our_program_has_none_of_our_ports() -> None:
    for program, note in (("none", "it runs no program"), ("cookie 0x1", "it runs another program")):
        found = read(Switch(program), STATE)
        assert found.state == SwitchState((), ())
        assert note in found.notes[0]
        change = diff(Switch(program), STATE)
        assert [step.command for step in change.steps[:2]] == ["set_queue_depth 16384", "load_program"]
        assert change.save == ()


def plan_of(**changes: object) -> Plan:
    group = {"count": 2, "platform": "bmv2"}
    document = SMALL | {
        "topology": {"leaf_spine": {"spines": group, "leaves": group, "hosts_per_leaf": 2}},
        "ports": {"rate": "100Mbps", "buffer": "400kB"},
    }
    return build_plan(
        resolve_profile("resnet50"),
        Fabric.model_validate(document | changes),
        hardware_capabilities,
        "paper",
    )


def test_whoever_makes_the_links_shapes_them() -> None:
    shaped = TARGET.fit_to_hardware(
        plan_of(ports={"rate": "100Mbps", "buffer": "400kB", "shaped": True}), "leaf1"
    )
    assert {port.shaped_bps for port in shaped.state.ports} == {None}
    assert [text for text in shaped.unsupported if "shapes no port" in text and "100 Mbit/s" in text]
    plain = TARGET.fit_to_hardware(plan_of(), "leaf1")
    assert plain.state == shaped.state
    assert not [text for text in plain.unsupported if "shapes" in text]
    assert [text for text in plain.unsupported if "background is not guaranteed its" in text]


def test_a_leaf_reaches_every_host_and_a_spine_every_leaf() -> None:
    plan = plan_of()
    leaf, spine = (TARGET.fit_to_hardware(plan, name).state for name in ("leaf1", "spine1"))
    hosts = plan.fabric.addressing.hosts
    assert [route.port for route in leaf.routes if route.prefix == hosts] == ["eth3", "eth4"]
    own = [host for host in plan.topology.hosts if host.leaf == "leaf1"]
    for host in own:
        assert RouteState(IPv4Network(host.address), host.address, host.leaf_port) in leaf.routes
    for host in plan.topology.hosts:
        [route] = [route for route in spine.routes if host.address in route.prefix]
        assert route.port == f"eth{1 + int(host.leaf[-1]) - 1}"


@pytest.mark.parametrize("mode", ["alias", "packet", "p4"])
def test_spray_modes(mode: str) -> None:
    state = TARGET.fit_to_hardware(plan_of(spraying={"mode": mode}), "leaf1").state
    assert state.packet_spraying == (mode == "packet")
    assert "table_add neighbours set_neighbour 1 => " in text_of(state)
    assert ("share_packets" in text_of(state)) == (mode == "packet")


def test_hosts_may_not_say_what_network_control_says() -> None:
    """Trusted or not, here and behind the next switch."""
    plan = plan_of(trusted_ports=["leaf1:eth1", "leaf1:eth3"])
    ports = {port.name: port for port in TARGET.fit_to_hardware(plan, "leaf1").state.ports}
    assert (ports["eth1"].rewritten, ports["eth3"].rewritten) == ((48, 56), ())
    for name in ("eth2", "eth4"):
        assert not ports[name].trusted
        assert ports[name].rewritten == tuple(range(1, 64))


def test_no_other_switch_os_reads_our_source_route() -> None:
    for platform in ("linux", "onyx", "eos", "sonic", "cumulus", "icos", "dell-sonic"):
        assert "p4" not in target_for(platform).hardware(None).spray_modes
    group = {"count": 2, "platform": "linux"}
    mixed = {"topology": {"leaf_spine": {"spines": group, "leaves": group, "hosts_per_leaf": 2}}}
    with pytest.raises(UnsupportedPlanError) as caught:
        plan_of(spraying={"mode": "p4"}, **mixed)
    assert str(caught.value).isprintable()
    assert "software under linux has no configuration for the mode 'p4'" in str(caught.value)
