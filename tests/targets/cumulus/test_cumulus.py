"""Cumulus in particular: what it writes, reads, refuses, and what it leaves alone."""

import json
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.targets import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.cumulus import TARGET
from mltswitch.targets.state import SegmentRouting, differences, every_dscp_but
from switchsim.cumulus import CumulusDevice
from tests.targets.cumulus.device import apply, read, run

CAPABILITIES = TARGET.hardware(None)

COMMANDS, YAML = "mltswitch.txt", "mltswitch.yaml"
CONFIG, PENDING = "nv config show -o json", "nv config diff -o json"
UNSAVED = "nv config diff startup applied -o json || echo unread"
OTHERS = tuple(dscp for dscp in range(64) if dscp not in {48, 56, 10, 12})
QUEUES = (
    QueueState(7, (48, 56), None, Unlimited()),
    QueueState(6, (10,), 18432, Unlimited()),
    QueueState(5, (12,), 61440, Unlimited()),
    QueueState(0, OTHERS, None, Unlimited()),
)
STATE = SwitchState(
    (PortState("swp2", True, None, QUEUES), PortState("swp1", False, None, QUEUES)),
    (
        RouteState(IPv4Network("10.101.0.0/16"), IPv4Address("10.20.0.2"), ""),
        RouteState(IPv4Network("10.101.0.1/32"), IPv4Address("10.10.0.2"), ""),
    ),
)


FABRIC_QUEUES = (
    QUEUES[0],
    replace(QUEUES[1], maximum=BitRate(2_500_000_000)),
    QUEUES[2],
    replace(QUEUES[3], minimum=BitRate(5_000_000_000)),
)
HOST_QUEUES = (
    replace(FABRIC_QUEUES[0], dscps=()),
    *FABRIC_QUEUES[1:3],
    replace(FABRIC_QUEUES[3], dscps=tuple(sorted((*OTHERS, 48, 56)))),
)
SHAPED = SwitchState(
    (
        PortState("swp1", True, None, HOST_QUEUES),
        PortState("swp2", False, None, HOST_QUEUES),
        PortState("swp3", True, None, FABRIC_QUEUES),
        PortState("swp4", False, None, FABRIC_QUEUES),
        PortState("swp5", True, None, QUEUES),
    ),
    (),
)


REWRITING = SwitchState(
    (
        PortState("swp1", True, None, HOST_QUEUES, rewritten=(48, 56)),
        PortState("swp2", False, None, FABRIC_QUEUES, rewritten=every_dscp_but(5)),
        PortState("swp3", True, None, FABRIC_QUEUES),
        PortState("swp4", True, None, HOST_QUEUES, rewritten=(48, 56)),
    ),
    (),
    background_dscp=5,
)
OWN_ACLS = ["mlt-host-ipv4", "mlt-host-ipv6", "mlt-untrusted-ipv4", "mlt-untrusted-ipv6"]


def pushed(state: SwitchState = STATE) -> CumulusDevice:
    device = CumulusDevice()
    apply(device, TARGET.diff(read(device, state), state, CAPABILITIES))
    return device


def commands(device: CumulusDevice, wanted: SwitchState = STATE) -> list[str]:
    return [step.command for step in TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps[:-1]]


def found(device: CumulusDevice, wanted: SwitchState = STATE) -> list[str]:
    return [str(difference) for difference in differences(wanted, read(device, wanted).state)]


def by_hand(device: CumulusDevice, *lines: str) -> None:
    run(device, *lines, "nv config apply -y")


def with_queue(number: int, **changed: Any) -> tuple[QueueState, ...]:
    return tuple(replace(each, **changed) if each.queue == number else each for each in QUEUES)


def test_bandwidths_of_an_older_plan_are_taken_away() -> None:
    device = pushed(SHAPED)
    by_hand(device, "nv set interface swp9 qos egress-shaper profile mlt-swp1")
    ports = tuple(replace(port, queues=QUEUES) for port in SHAPED.ports)
    wanted = replace(SHAPED, ports=ports)
    change = TARGET.diff(read(device, wanted), wanted, CAPABILITIES)
    assert "nv unset interface swp1 qos egress-shaper" in change.text
    apply(device, change)
    assert read(device, wanted).state == wanted
    assert list(device.applied["qos"]["egress-shaper"]) == ["mlt-swp1"]
    by_hand(device, "nv unset interface swp9 qos")
    assert commands(device, wanted) == ["nv unset qos egress-shaper mlt-swp1"]


def test_a_foreign_shaper_is_reported_or_replaced() -> None:
    device = pushed(SHAPED)
    by_hand(
        device,
        "nv set qos egress-shaper theirs port-max-rate 1000000",
        "nv set interface swp1,swp5 qos egress-shaper profile theirs",
    )
    shown = "configuration expected as planned, found qos egress-shaper profile theirs"
    assert {f"port swp1: {shown}", f"port swp5: {shown}"} <= set(found(device, SHAPED))
    assert commands(device, SHAPED) == ["nv set interface swp1 qos egress-shaper profile mlt-swp1"]


def test_another_access_list_is_refused_only_where_packets_could_escape_it_or_ours() -> None:
    device = CumulusDevice()
    by_hand(
        device,
        "nv set acl theirs type ipv4",
        "nv set acl theirs rule 10 match ip source-ip 10.9.0.0/16",
        "nv set acl theirs rule 10 action deny",
        "nv set interface swp1-2,swp9 acl theirs outbound",
        "nv set interface swp1-2 acl theirs inbound control-plane",
        "nv set interface swp3 acl theirs inbound",
    )
    theirs = device.applied["acl"]["theirs"]
    apply(device, TARGET.diff(read(device, REWRITING), REWRITING, CAPABILITIES))
    assert (found(device, REWRITING), commands(device, REWRITING)) == ([], [])
    by_hand(device, "nv set acl marks type ipv4", "nv set acl marks rule 10 action set class 7")
    by_hand(device, "nv set interface swp3 acl marks inbound")
    assert found(device, REWRITING) == [
        "port swp3: configuration expected as planned, found acl marks inbound"
    ]
    by_hand(device, "nv set interface swp4 acl theirs inbound")
    with pytest.raises(DeviceError, match=r"^port swp4: has the access list theirs inbound, as the plan's"):
        read(device, REWRITING)
    assert device.applied["acl"]["theirs"] == theirs


def test_access_lists_go_when_no_port_has_them_any_more() -> None:
    device = pushed(REWRITING)
    by_hand(device, "nv set interface swp9 acl mlt-host-ipv4 inbound")
    wanted = SwitchState(tuple(replace(port, rewritten=()) for port in REWRITING.ports), ())
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert read(device, wanted).state == wanted
    assert list(device.applied["acl"]) == ["mlt-host-ipv4"]
    by_hand(device, "nv unset interface swp9 acl")
    assert commands(device, wanted) == ["nv unset acl mlt-host-ipv4"]


def test_a_push_with_access_lists_that_broke_is_dropped_by_the_next() -> None:
    device = pushed(SHAPED)
    change = TARGET.diff(read(device, REWRITING), REWRITING, CAPABILITIES)
    run(device, *(step.command for step in change.steps[:-1]))
    apply(device, TARGET.diff(read(device, REWRITING), REWRITING, CAPABILITIES))
    assert sorted(device.applied["acl"]) == OWN_ACLS
    run(device, "nv set acl theirs type ipv4")
    with pytest.raises(DeviceError, match="`nv set acl theirs type ipv4` for one"):
        TARGET.diff(read(device, SHAPED), SHAPED, CAPABILITIES)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("reboot", r"mltswitch\.txt:2: not a line that mltswitch writes"),
        ("nv set qos mapping mlt trust both", "txt:2: not a line"),
        ("nv set qos mapping mlt-host trust port", "txt:2: not a line"),
        ("nv set qos egress-shaper mlt-swp2 port-max-rate 5", "txt:2: not a line"),
        ("nv set qos egress-shaper theirs traffic-class 6 max-rate 5", "txt:2: not a line"),
        ("nv set qos egress-shaper mlt-swp2 traffic-class 9 max-rate 5", "txt:2: not a line"),
        ("nv set qos egress-shaper mlt-swp2 traffic-class 6 max-rate 5", "txt:2: does not fit the other"),
        ("nv set acl mlt-host-ipv4 rule 10 match ip dscp 64", "txt:2: not a line"),
        ("nv set acl theirs type ipv4", "txt:2: not a line"),
        ("nv set interface swp2 acl mlt-host-ipv4 outbound", "txt:2: not a line"),
        ("nv set acl mlt-host-ipv4 rule 10 action set dscp 7", "txt:2: does not fit the other"),
        ("nv set interface swp2 acl mlt-host-ipv4 inbound", "txt: port swp2: no acl mlt-host-ipv4 type"),
        ("nv set interface swp2-9 qos mapping profile mlt", "txt:2: not a line"),
        ("nv set interface swp2 qos mapping profile mlt; reboot", "txt:2: not a line"),
        ("nv unset interface swp9 qos mapping profile", "txt:2: not a line"),
        ("# fine\rreboot", "txt:2: not a line"),
        ("nv set qos mapping mlt dscp 64 switch-priority 6", "txt:2: not a line"),
        ("nv set qos egress-scheduler mlt traffic-class 8 mode strict", "txt:2: not a line"),
        ("nv set vrf default router static 10.0.0.1/8 via 10.0.0.1", "txt:2: does not fit the other"),
        ("nv set vrf default router static 10.0.0.0/08 via 10.0.0.1", "txt:2: not a line"),
        ("nv set vrf default router static 10.0.0.0/33 via 10.0.0.1", "txt:2: not a line"),
        ("nv set vrf default router static 10.0.0.0/8 via 10.0.0.01", "txt:2: does not fit the other"),
        ("nv set qos mapping mlt trust l3", r"txt:\d+: qos mapping mlt trust is set twice"),
        (
            "nv set qos congestion-control mlt-swp9 traffic-class 3 ecn enable",
            "txt:2: does not fit the other",
        ),
        ("nv set interface swp9 qos mapping profile mlt", "txt: port swp9: qos mapping port-default-sp 0"),
    ],
)
def test_a_line_outside_the_grammar_is_refused(line: str, what: str) -> None:
    files = TARGET.render(STATE, CAPABILITIES)
    first, *rest = files[COMMANDS].split("\n")
    with pytest.raises(UserInputError, match=what):
        TARGET.parse({**files, COMMANDS: "\n".join([first, line, *rest])}, CAPABILITIES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("min-threshold: 18432", "min-threshold: 24576"),
        ("profile: mlt-swp2", "profile: mlt-swp2\n          extra: 1"),
        ("- set:", "- replace:"),
        ("- set:", "- header: {}\n- set:"),
    ],
)
def test_yaml_that_says_something_else_is_refused(old: str, new: str) -> None:
    files = TARGET.render(STATE, CAPABILITIES)
    assert old in files[YAML]
    with pytest.raises(UserInputError, match=r"^mltswitch\.yaml: is not in the form that mltswitch writes"):
        TARGET.parse({**files, YAML: files[YAML].replace(old, new, 1)}, CAPABILITIES)


def test_missing_files_and_lines_are_refused() -> None:
    files = TARGET.render(STATE, CAPABILITIES)
    with pytest.raises(UserInputError, match=r"the files are mltswitch\.txt"):
        TARGET.parse({COMMANDS: files[COMMANDS]}, CAPABILITIES)
    short = files[COMMANDS].replace("nv set qos mapping mlt-untrusted port-default-sp 0\n", "")
    with pytest.raises(UserInputError, match="lacks qos mapping mlt-untrusted port-default-sp 0"):
        TARGET.parse({**files, COMMANDS: short}, CAPABILITIES)
    astray = files[COMMANDS].replace("dscp 48,56 switch-priority 7", "dscp 48,56 switch-priority 3")
    with pytest.raises(UserInputError, match=r"mltswitch\.txt: port swp2: not every code point leads"):
        TARGET.parse({**files, COMMANDS: astray}, CAPABILITIES)


PORT = STATE.ports[0]
OTHER_MAP = (replace(QUEUES[0], dscps=(48,)), *QUEUES[1:3], replace(QUEUES[3], dscps=(*OTHERS, 56)))


@pytest.mark.parametrize(
    ("ports", "what"),
    [
        ((replace(PORT, shaped_bps=10**9),), "not shaped"),
        ((replace(PORT, name="eth1"),), "port eth1: is no name for a port"),
        ((replace(PORT, name="swp1\n"),), "is no name for a port"),
        ((replace(PORT, queues=with_queue(6, limit=BytesLimit(9))),), "the limit 9 B"),
        ((replace(PORT, queues=with_queue(6, ecn_threshold_bytes=0)),), "ECN threshold 0 B"),
        ((replace(PORT, queues=QUEUES[:3]),), "not every code point"),
        ((replace(PORT, queues=with_queue(0, minimum=PortShare(5))),), "a minimum of 5 %"),
        ((replace(PORT, queues=with_queue(6, maximum=BitRate(1500))),), "a maximum of 1500 bit/s"),
        ((replace(PORT, queues=with_queue(6, maximum=BitRate(2**31 * 1000))),), "in steps of 1000 bit/s"),
        ((PORT, replace(PORT, name="swp3", queues=OTHER_MAP)), "swp3: its code points lead elsewhere"),
        (
            (replace(PORT, rewritten=(48,)), replace(PORT, name="swp4", rewritten=(48, 56))),
            "swp4: rewrites other code points than swp2: one access",
        ),
    ],
)
def test_what_nvue_cannot_express_is_refused(ports: tuple[PortState, ...], what: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=what):
        TARGET.render(SwitchState(ports, ()), CAPABILITIES)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"packet_spraying": True}, "cannot be told to choose paths packet by packet"),
        ({"segment_routing": SegmentRouting(None, ())}, "has no SRv6"),
    ],
)
def test_spraying_by_the_switch_is_refused(changed: dict[str, Any], what: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=what):
        TARGET.render(replace(STATE, **changed), CAPABILITIES)


def test_a_switch_as_delivered_keeps_its_queue_map() -> None:
    assert not any("egress-queue-mapping" in line for line in commands(CumulusDevice()))


@pytest.mark.parametrize("case", (Path(__file__).parent / "by_hand.txt").read_text().split("\n\n")[1:])
def test_a_change_by_hand_is_found_and_mended(case: str) -> None:
    """Lines that somebody enters, = the difference that is found, > the commands that mend it."""
    name, *lines = case.strip().split("\n")
    wanted = {"[STATE]": STATE, "[SHAPED]": SHAPED, "[REWRITING]": REWRITING}[name]
    device = pushed(wanted)
    by_hand(device, *(f"nv {line}" for line in lines if line[0] not in "=>"))
    assert {line[2:] for line in lines if line[0] == "="} <= set(found(device, wanted))
    assert commands(device, wanted) == [line[2:] for line in lines if line[0] == ">"]
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert commands(device, wanted) == []
    assert read(device, wanted).state == wanted


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["qos egress-shaper slow port-max-rate 1000", "interface swp2 qos egress-shaper profile slow"],
            "qos egress-shaper profile slow",
        ),
        (["qos egress-shaper default-global port-max-rate 1000"], "qos egress-shaper profile default-global"),
        (
            ["qos link-pause stop tx enable", "interface swp2 qos link-pause profile stop"],
            "qos link-pause profile stop",
        ),
        (["qos remark default-global rewrite l3"], "qos remark rewrite l3"),
        (["qos roce"], "qos roce"),
        (["qos roce enable on", "qos roce mode lossless"], "qos roce enable on mode lossless"),
    ],
)
def test_a_foreign_setting_of_our_port_is_found(lines: list[str], expected: str) -> None:
    device = pushed()
    by_hand(device, *(f"nv set {line}" for line in lines))
    assert f"port swp2: configuration expected as planned, found {expected}" in found(device)
    assert commands(device) == []


@pytest.mark.parametrize(
    "lines",
    [
        ["qos remark default-global rewrite l2"],
        ["qos roce enable off"],
        ["qos pfc default-global switch-priority 3"],
        [
            *("qos pfc off switch-priority 6", "qos pfc off rx disable", "qos pfc off tx disable"),
            "interface swp2 qos pfc profile off",
        ],
        ["qos advance-buffer-config default-global egress-lossy-buffer traffic-class 3 shared-bytes 9"],
    ],
)
def test_a_foreign_setting_that_does_not_matter_is_left_alone(lines: list[str]) -> None:
    device = pushed()
    by_hand(device, *(f"nv set {line}" for line in lines))
    assert (found(device), commands(device)) == ([], [])


def test_flow_control_on_a_priority_of_ours_is_refused() -> None:
    device = pushed()
    by_hand(device, "nv set qos pfc lossless switch-priority 3,6")
    assert read(device, STATE).state == STATE
    by_hand(device, "nv set interface swp1 qos pfc profile lossless")
    with pytest.raises(
        DeviceError, match=r"^port swp1: PFC is on for switch priority 6, which the plan uses"
    ):
        read(device, STATE)
    by_hand(device, "nv unset interface swp1 qos pfc", "nv set qos pfc default-global switch-priority 7")
    with pytest.raises(DeviceError, match=r"^port swp2: PFC is on for switch priority 7"):
        read(device, STATE)


def test_flow_control_on_a_priority_that_leads_to_a_class_of_ours_is_refused() -> None:
    device = pushed()
    by_hand(device, "nv set qos pfc default-global switch-priority 1")
    assert read(device, STATE).state == STATE
    by_hand(device, "nv set qos egress-queue-mapping default-global switch-priority 1 traffic-class 7")
    with pytest.raises(
        DeviceError,
        match=r"^port swp2: PFC is on for switch priority 1, which leads to traffic class 7 of the plan",
    ):
        read(device, STATE)


def test_pending_changes_of_somebody_else_are_not_applied_with_ours() -> None:
    device = CumulusDevice()
    run(device, "nv set system hostname other")
    running = read(device, STATE)
    with pytest.raises(
        DeviceError,
        match=r"changes are pending .* `nv set system hostname other` for one.* Apply them, or drop them "
        "with `nv config detach`",
    ):
        TARGET.diff(running, STATE, CAPABILITIES)
    run(device, "nv config detach")
    assert not TARGET.diff(read(device, STATE), STATE, CAPABILITIES).is_empty
    device = pushed()
    run(device, "nv set system hostname other")
    assert TARGET.diff(read(device, STATE), STATE, CAPABILITIES).is_empty


@pytest.mark.parametrize("before", [SwitchState((), ()), SHAPED])
def test_what_a_push_that_broke_left_pending_is_dropped_by_the_next(before: SwitchState) -> None:
    device = pushed(before)
    change = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
    for number in range(1, len(change.steps)):
        run(device, *(step.command for step in change.steps[:number]))
        again = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
        assert [step.command for step in again.steps] == [
            "nv config detach",
            *(step.command for step in change.steps),
        ]
        run(device, "nv config detach")
    run(device, *(step.command for step in change.steps[:-1]))
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert read(device, STATE).state == STATE
    assert found(device) == commands(device) == []


def test_what_the_push_of_another_plan_left_pending_is_dropped_where_it_is_ours() -> None:
    device = CumulusDevice()
    run(device, *(step.command for step in TARGET.diff(read(device, STATE), STATE, CAPABILITIES).steps[:-1]))
    wanted = replace(STATE, ports=tuple(replace(port, queues=HOST_QUEUES) for port in STATE.ports))
    assert commands(device, wanted)[0] == "nv config detach"
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert read(device, wanted).state == wanted
    assert sorted(device.applied["qos"]["mapping"]) == ["mlt-host", "mlt-host-untrusted"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("set interface swp9 qos mapping profile mlt", "set interface swp9 qos mapping profile mlt"),
        ("set interface swp2 qos pfc profile theirs", "set interface swp2 qos pfc profile theirs"),
        ("set interface swp2 qos mapping profile theirs", "set interface swp2 qos mapping profile theirs"),
        ("set qos mapping theirs trust l3", "set qos mapping theirs trust l3"),
        (
            "set vrf default router static 10.101.3.0/24 via 10.20.0.2",
            "set vrf default router static 10.101.3.0/24 via 10.20.0.2",
        ),
        ("unset interface swp2 link mtu", "unset interface swp2 link mtu"),
        ("unset interface swp1 qos mapping", "unset interface swp1 qos mapping profile"),
    ],
)
def test_a_revision_with_one_change_of_somebody_else_is_left_pending(line: str, told: str) -> None:
    device = pushed()
    lower = replace(
        STATE,
        ports=tuple(replace(port, queues=with_queue(6, ecn_threshold_bytes=6144)) for port in STATE.ports),
    )
    run(device, *(step.command for step in TARGET.diff(read(device, lower), lower, CAPABILITIES).steps[:-1]))
    assert commands(device, lower)[0] == "nv config detach"
    run(device, f"nv {line}")
    with pytest.raises(DeviceError, match=f"`nv {told}` for one"):
        TARGET.diff(read(device, lower), lower, CAPABILITIES)


@pytest.mark.parametrize("text", ["", "\n", "[]", "{}"])
def test_every_form_of_no_pending_change(text: str) -> None:
    running = read(CumulusDevice(), STATE)
    answers = {**running.answers, PENDING: text}
    assert not TARGET.diff(TARGET.read(answers, STATE, CAPABILITIES), STATE, CAPABILITIES).is_empty


def test_a_threshold_is_two_commands_and_says_how_to_go_back() -> None:
    device = pushed()
    ports = tuple(replace(port, queues=with_queue(6, ecn_threshold_bytes=24576)) for port in STATE.ports)
    change = TARGET.diff(read(device, STATE), replace(STATE, ports=ports), CAPABILITIES)
    assert change.text.splitlines() == [
        "nv set qos congestion-control mlt-swp2 traffic-class 6 min-threshold 24576",
        "nv set qos congestion-control mlt-swp2 traffic-class 6 max-threshold 24576",
        "# back to the state before:",
        "#   nv set qos congestion-control mlt-swp2 traffic-class 6 min-threshold 18432",
        "#   nv set qos congestion-control mlt-swp2 traffic-class 6 max-threshold 18432",
    ]


def test_profiles_go_when_no_port_has_them_any_more() -> None:
    device = pushed()
    by_hand(device, "nv set interface swp9 qos mapping profile mlt-untrusted")
    wanted = SwitchState((PortState("swp1", True, None, QUEUES),), ())
    by_hand(device, "nv unset interface swp2 qos")
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert sorted(device.applied["qos"]["congestion-control"]) == ["mlt-swp1"]
    assert sorted(device.applied["qos"]["mapping"]) == ["mlt", "mlt-untrusted"]
    by_hand(device, "nv unset interface swp9 qos")
    assert commands(device, wanted) == ["nv unset qos mapping mlt-untrusted"]


def test_a_profile_stays_that_another_port_has() -> None:
    device = pushed()
    wanted = SwitchState((PortState("swp1", True, None, with_queue(6, ecn_threshold_bytes=6144)),), ())
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert sorted(device.applied["qos"]["congestion-control"]) == ["mlt-swp1", "mlt-swp2"]
    assert read(device, wanted).state == wanted


def shown(config: Any, version: str = "Cumulus Linux 5.5.1") -> dict[str, str]:
    return {CONFIG: json.dumps([{"header": {"version": version}}, {"set": config}]), PENDING: "", UNSAVED: ""}


def test_ranges_and_single_entries_are_read_together() -> None:
    device = pushed()
    config = json.loads(read(device, STATE).answers[CONFIG])[1]["set"]
    assert "swp1-16" in config["interface"] or "swp1-2" in config["interface"]
    interfaces = {
        "swp1-swp2,4": {"qos": {"egress-scheduler": {"profile": "mlt"}}},
        "swp1": {"qos": {"mapping": {"profile": "mlt-untrusted"}}},
        "swp2": {"qos": {"mapping": {"profile": "mlt"}}},
        "swp2,1": {"qos": {"congestion-control": {"profile": "mlt-swp2"}}},
    }
    assert TARGET.read(shown({**config, "interface": interfaces}), STATE, CAPABILITIES).state == STATE


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Error: nvued is not running",
        "[1]",
        '[{"set": {"interface": {"swp9-1": {}}}}]',
        '[{"set": {"qos": {"congestion-control": {"default-global": {"traffic-class": {"6": '
        '{"min-threshold": "much"}}}}}}}]',
        '[{"set": {}}, {"set": {}}]',
        "[" * 100_000,
    ],
)
def test_an_answer_of_another_form_is_one_error(answer: str) -> None:
    with pytest.raises(DeviceError, match="another form"):
        TARGET.read({CONFIG: answer, PENDING: "", UNSAVED: ""}, STATE, CAPABILITIES)


def test_what_a_device_says_is_quoted_in_commands() -> None:
    static = {
        "10.101.3.0/24": {"via": {"x; reboot": {}, "y\nreboot": {}}},
        "10.101.0.0/16": {"$(reboot)": 1, "via": {}},
    }
    config = {"vrf": {"default": {"router": {"static": static}}}}
    change = TARGET.diff(TARGET.read(shown(config), STATE, CAPABILITIES), STATE, CAPABILITIES)
    assert "nv unset vrf default router static 10.101.0.0/16 '$(reboot)'" in change.text
    assert "#   nv set vrf default router static 10.101.3.0/24 via 'x; reboot'" in change.text
    assert "reboot" not in {line.strip("' ") for line in change.text.splitlines()}
