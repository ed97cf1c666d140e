"""Cumulus in particular: what it writes, reads, refuses, and what it leaves alone."""

import json
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.targets import Change, PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.cumulus import TARGET
from mltswitch.targets.state import SegmentRouting, differences, every_dscp_but
from switchsim.cumulus import CumulusDevice
from tests.targets.cumulus.device import apply, read, run
from tests.targets.stories import Actor, Case, play, stories

CAPABILITIES = TARGET.hardware(None)

COMMANDS = "mltswitch.txt"
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
THEIR_LIST = (
    "set acl theirs type ipv4",
    "set acl theirs rule 10 match ip source-ip 10.9.0.0/16",
    "set acl theirs rule 10 action deny",
    "set interface swp1-2,swp9 acl theirs outbound",
    "set interface swp1-2 acl theirs inbound control-plane",
    "set interface swp3 acl theirs inbound",
)
OWN_ACLS = ["mlt-host-ipv4", "mlt-host-ipv6", "mlt-untrusted-ipv4", "mlt-untrusted-ipv6"]


def with_queue(number: int, **changed: Any) -> tuple[QueueState, ...]:
    return tuple(replace(each, **changed) if each.queue == number else each for each in QUEUES)


def with_ports(state: SwitchState, **changed: Any) -> SwitchState:
    return replace(state, ports=tuple(replace(port, **changed) for port in state.ports))


def enter(device: CumulusDevice, lines: Iterable[str]) -> None:
    run(device, *(f"nv {line}" for line in lines), "nv config apply -y")


def commands(change: Change) -> list[str]:
    """All but the last, which applies them."""
    return [step.command.removeprefix("nv ") for step in change.steps[:-1]]


CUMULUS = Actor(
    target=TARGET,
    new=CumulusDevice,
    read=read,
    apply=apply,
    enter=enter,
    entered=commands,
    plans={
        "STATE": STATE,
        "LOWER": with_ports(STATE, queues=with_queue(6, ecn_threshold_bytes=6144)),
        "ONE_PORT": SwitchState((PortState("swp1", True, None, QUEUES),), ()),
        "ONE_PORT_LOWER": SwitchState(
            (PortState("swp1", True, None, with_queue(6, ecn_threshold_bytes=6144)),), ()
        ),
        "SHAPED": SHAPED,
        "UNSHAPED": with_ports(SHAPED, queues=QUEUES),
        "REWRITING": REWRITING,
        "NOT_REWRITING": SwitchState(with_ports(REWRITING, rewritten=()).ports, ()),
        "HOSTS": with_ports(STATE, queues=HOST_QUEUES),
    },
)


STORIES = stories(Path(__file__).parent / "stories.txt", {"ALL_BUT_5": str(every_dscp_but(5))})


@pytest.mark.parametrize("case", STORIES)
def test_story(case: Case) -> None:
    play(case, CUMULUS)


def push(device: CumulusDevice, wanted: SwitchState) -> list[str]:
    """What it enters."""
    change = CUMULUS.change(device, wanted)
    apply(device, change)
    assert read(device, wanted).state == wanted
    return commands(change)


def enter_without_end(device: CumulusDevice, wanted: SwitchState) -> None:
    """A push that breaks before its last command."""
    run(device, *(step.command for step in CUMULUS.change(device, wanted).steps[:-1]))


@pytest.mark.parametrize(
    ("first", "second", "table", "use", "stay"),
    [
        ("SHAPED", "UNSHAPED", "qos egress-shaper", "profile mlt-swp1", ["mlt-swp1"]),
        ("REWRITING", "NOT_REWRITING", "acl", "mlt-host-ipv4 inbound", ["mlt-host-ipv4"]),
        ("STATE", "ONE_PORT", "qos mapping", "profile mlt-untrusted", ["mlt", "mlt-untrusted"]),
    ],
)
def test_what_ports_share_goes_when_no_port_has_it_any_more(
    first: str, second: str, table: str, use: str, stay: list[str]
) -> None:
    """Also with a port that is not the plan's, to which somebody gave it."""
    device, wanted = CUMULUS.pushed(CUMULUS.plans[first]), CUMULUS.plans[second]
    enter(device, [f"set interface swp9 {table} {use}"])
    if "swp2" not in {port.name for port in wanted.ports}:
        enter(device, ["unset interface swp2 qos"])
    push(device, wanted)
    shared: Any = device.applied
    for name in table.split():
        shared = shared[name]
    assert sorted(shared) == stay
    enter(device, [f"unset interface swp9 {table.split(maxsplit=1)[0]}"])
    assert commands(CUMULUS.change(device, wanted)) == [f"unset {table} {stay[-1]}"]


def test_a_profile_stays_while_another_port_has_it() -> None:
    device = CUMULUS.pushed(STATE, CUMULUS.plans["ONE_PORT_LOWER"])
    assert sorted(device.applied["qos"]["congestion-control"]) == ["mlt-swp1", "mlt-swp2"]
    enter(device, ["unset interface swp2 qos"])
    push(device, CUMULUS.plans["ONE_PORT"])
    assert sorted(device.applied["qos"]["congestion-control"]) == ["mlt-swp1"]


def test_an_access_list_of_somebody_else_stays() -> None:
    """It is refused only where packets could escape it or ours."""
    device = CumulusDevice()
    enter(device, THEIR_LIST)
    theirs = device.applied["acl"]["theirs"]
    push(device, REWRITING)
    assert differences(REWRITING, read(device, REWRITING).state) == ()
    enter(device, ["set interface swp4 acl theirs inbound"])
    with pytest.raises(DeviceError, match=r"^port swp4: has the access list theirs inbound, as the plan's"):
        read(device, REWRITING)
    assert device.applied["acl"]["theirs"] == theirs


def test_a_push_with_access_lists_that_broke_is_dropped_by_the_next() -> None:
    device = CUMULUS.pushed(SHAPED)
    enter_without_end(device, REWRITING)
    push(device, REWRITING)
    assert sorted(device.applied["acl"]) == OWN_ACLS
    run(device, "nv set acl theirs type ipv4")
    with pytest.raises(DeviceError, match="`nv set acl theirs type ipv4` for one"):
        CUMULUS.change(device, SHAPED)


def test_a_missing_file_is_refused() -> None:
    files = TARGET.render(STATE, CAPABILITIES)
    with pytest.raises(UserInputError, match=r"the files are mltswitch\.txt"):
        TARGET.parse({COMMANDS: files[COMMANDS]}, CAPABILITIES)


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


def test_spraying_by_the_switch_is_refused() -> None:
    with pytest.raises(UnsupportedPlanError, match="cannot be told to choose paths packet by packet"):
        TARGET.render(replace(STATE, packet_spraying=True), CAPABILITIES)
    with pytest.raises(UnsupportedPlanError, match="has no SRv6"):
        TARGET.render(replace(STATE, segment_routing=SegmentRouting(None, ())), CAPABILITIES)


def test_a_switch_as_delivered_keeps_its_queue_map() -> None:
    change = CUMULUS.change(CumulusDevice(), STATE)
    assert not any("egress-queue-mapping" in line for line in commands(change))


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
    assert push(device, STATE) != []
    run(device, "nv set system hostname other")
    assert CUMULUS.change(device, STATE).is_empty


@pytest.mark.parametrize("before", [SwitchState((), ()), SHAPED])
def test_what_a_push_that_broke_left_pending_is_dropped_by_the_next(before: SwitchState) -> None:
    device = CUMULUS.pushed(before)
    whole = commands(CUMULUS.change(device, STATE))
    for number in range(1, len(whole) + 1):
        run(device, *(f"nv {line}" for line in whole[:number]))
        assert commands(CUMULUS.change(device, STATE)) == ["config detach", *whole]
        run(device, "nv config detach")
    enter_without_end(device, STATE)
    push(device, STATE)
    assert CUMULUS.change(device, STATE).is_empty


def test_what_the_push_of_another_plan_left_pending_is_dropped_where_it_is_ours() -> None:
    device, wanted = CumulusDevice(), CUMULUS.plans["HOSTS"]
    enter_without_end(device, STATE)
    assert push(device, wanted)[0] == "config detach"
    assert sorted(device.applied["qos"]["mapping"]) == ["mlt-host", "mlt-host-untrusted"]


@pytest.mark.parametrize(
    "line",
    [
        "set interface swp9 qos mapping profile mlt",
        "set interface swp2 qos pfc profile theirs",
        "set interface swp2 qos mapping profile theirs",
        "set qos mapping theirs trust l3",
        "set vrf default router static 10.101.3.0/24 via 10.20.0.2",
        "unset interface swp2 link mtu",
        "unset interface swp1 qos mapping",  # told as `… mapping profile`
    ],
)
def test_a_revision_with_one_change_of_somebody_else_is_left_pending(line: str) -> None:
    device, lower = CUMULUS.pushed(STATE), CUMULUS.plans["LOWER"]
    enter_without_end(device, lower)
    assert commands(CUMULUS.change(device, lower))[0] == "config detach"
    run(device, f"nv {line}")
    told = f"{line} profile" if line.endswith("swp1 qos mapping") else line
    with pytest.raises(DeviceError, match=f"`nv {told}` for one"):
        CUMULUS.change(device, lower)


@pytest.mark.parametrize("text", ["", "\n", "[]", "{}"])
def test_every_form_of_no_pending_change(text: str) -> None:
    answers = {**read(CumulusDevice(), STATE).answers, PENDING: text}
    assert not TARGET.diff(TARGET.read(answers, STATE, CAPABILITIES), STATE, CAPABILITIES).is_empty


def test_a_threshold_is_two_commands_and_says_how_to_go_back() -> None:
    both = ["min-threshold", "max-threshold"]
    line = "nv set qos congestion-control mlt-swp2 traffic-class 6"
    assert CUMULUS.change(CUMULUS.pushed(STATE), CUMULUS.plans["LOWER"]).text.splitlines() == [
        *(f"{line} {which} 6144" for which in both),
        "# back to the state before:",
        *(f"#   {line} {which} 18432" for which in both),
    ]


def shown(config: Any, version: str = "Cumulus Linux 5.5.1") -> dict[str, str]:
    return {CONFIG: json.dumps([{"header": {"version": version}}, {"set": config}]), PENDING: "", UNSAVED: ""}


def test_ranges_and_single_entries_are_read_together() -> None:
    device = CUMULUS.pushed(STATE)
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
