"""SONiC in particular: what it writes, reads, refuses, and what it leaves alone."""

import copy
import json
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Any

import pytest

from mltswitch.capabilities import AlphaLimit, BitRate, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.targets import Change, PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.database import load, queue_keys, queues_in
from mltswitch.targets.state import SegmentRouteState, SegmentRouting
from switchsim.sonic import SonicDevice
from tests.targets.sonic.device import apply, read
from tests.targets.stories import Actor, Case, play, stories

CAPABILITIES = TARGET.hardware(None)

FILE = "mltswitch.json"
OTHERS = tuple(dscp for dscp in range(64) if dscp not in {48, 56, 10, 12})
QUEUES = (
    QueueState(7, (48, 56), None, AlphaLimit(-7)),
    QueueState(6, (10,), 18432, AlphaLimit(-6)),
    QueueState(1, (12,), 61440, AlphaLimit(-4)),
    QueueState(0, OTHERS, None, AlphaLimit(0)),
)
UP_QUEUES = (*QUEUES[:1], replace(QUEUES[1], ecn_threshold_bytes=24576), *QUEUES[2:])
STATE = SwitchState(
    (
        PortState("Ethernet4", True, None, UP_QUEUES),
        PortState("Ethernet0", False, None, QUEUES),
        PortState("Ethernet8", True, None, UP_QUEUES),
    ),
    (
        RouteState(IPv4Network("10.101.0.0/16"), IPv4Address("10.20.0.2"), "Ethernet4"),
        RouteState(IPv4Network("10.101.0.1/32"), IPv4Address("10.10.0.2"), "Ethernet0"),
    ),
)


GUARANTEEING = replace(
    CAPABILITIES,
    minimum_bandwidth=TARGET.hardware("trident3").minimum_bandwidth,
    maximum_bandwidth=TARGET.hardware("trident3").maximum_bandwidth,
)
CAPPED = replace(
    STATE,
    ports=tuple(
        replace(
            port,
            queues=(
                port.queues[0],
                replace(port.queues[1], maximum=BitRate(10**10)),
                *port.queues[2:3],
                replace(port.queues[3], minimum=BitRate(5 * 10**9)),
            ),
        )
        for port in STATE.ports
    ),
)
HOST_QUEUES = (
    replace(QUEUES[0], dscps=()),
    *QUEUES[1:3],
    replace(QUEUES[3], dscps=tuple(sorted((*OTHERS, 48, 56)))),
)
SEGMENTS = SegmentRouting(
    IPv6Network("fd00:6d6c:1::/48"),
    (SegmentRouteState(IPv6Network("fd00:6d6c:2001::/48"), IPv6Address("fd00:6d6c:3000::1"), "Ethernet4"),),
)


def with_second(**changed: Any) -> SwitchState:
    """The plan with another port Ethernet0."""
    first, second, third = STATE.ports
    return replace(STATE, ports=(first, replace(second, **changed), third))


def with_queue_6(**changed: Any) -> SwitchState:
    return with_second(queues=(QUEUES[0], replace(QUEUES[1], **changed), *QUEUES[2:]))


def enter(device: SonicDevice, commands: Iterable[str]) -> None:
    for command in commands:
        line = command if command.startswith("sudo ") else f"sudo sonic-db-cli CONFIG_DB {command}"
        assert device.execute("admin", line).status == 0


def operations(change: Change) -> list[str]:
    """What the patches of a push do, each with its path."""
    patches = [json.loads(step.stdin) for step in change.steps if step.stdin]
    return [f"{entry['op']} {entry['path']}" for patch in patches for entry in patch]


SONIC = Actor(
    target=TARGET,
    new=SonicDevice,
    read=read,
    apply=apply,
    enter=enter,
    entered=operations,
    plans={
        "PLAN": STATE,
        "LOWER": with_queue_6(ecn_threshold_bytes=6144),
        "WIDER": with_queue_6(ecn_threshold_bytes=614400, limit=AlphaLimit(0)),
        "ALIKE": replace(
            STATE, ports=tuple(replace(port, trusted=True, queues=QUEUES) for port in STATE.ports)
        ),
        "HOST": with_second(queues=HOST_QUEUES, trusted=True),
        "HOST_UNTRUSTED": with_second(queues=HOST_QUEUES),
        "CAPPED": CAPPED,
        "SEGMENTS": replace(STATE, segment_routing=SEGMENTS),
        "OTHER_PORTS": SwitchState(STATE.ports[1:], ()),
        "ROUTES": SwitchState((), STATE.routes),
        "ETHERNET200": SwitchState((replace(STATE.ports[0], name="Ethernet200"),), ()),
    },
)


@pytest.mark.parametrize("case", stories(Path(__file__).parent / "stories.txt", {}))
def test_story(case: Case) -> None:
    play(case, SONIC)


@pytest.mark.parametrize("text", ["", "[]", '{"QUEUE": []}', '{"QUEUE": {"a": {"b": 1}}}', "[" * 100_000])
def test_text_that_is_no_configuration_is_one_error(text: str) -> None:
    with pytest.raises(UserInputError, match="no configuration"):
        TARGET.parse({FILE: text}, CAPABILITIES)
    with pytest.raises(DeviceError, match="cannot read"):
        TARGET.read({"show runningconfiguration all": text.replace("{}", "")}, STATE, CAPABILITIES)


def test_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="'QUEUE' stands twice"):
        load('{"QUEUE": {}, "QUEUE": {}}')


def test_queue_keys() -> None:
    assert queues_in("Ethernet0|1-3") == ("Ethernet0", range(1, 4))
    assert not queues_in("Ethernet0|5-2")[1]
    assert queues_in("switch1|asic0|Ethernet0|1")[0] == ""
    assert list(queue_keys("Ethernet0", [1, 2, 3, 5])) == ["Ethernet0|1-3", "Ethernet0|5"]


PORT = STATE.ports[0]


@pytest.mark.parametrize(
    ("port", "what"),
    [
        (replace(PORT, shaped_bps=10**9), "not shaped"),
        (replace(PORT, name="eth1"), "port eth1: is no name for a port"),
        (replace(PORT, queues=()), "port Ethernet4: has no queues"),
        *(
            (replace(PORT, queues=(replace(queue, **changed),)), what)
            for queue, changed, what in (
                (QUEUES[1], {"ecn_threshold_bytes": 2**31}, "ECN threshold 2147483648"),
                (QUEUES[1], {"limit": Unlimited()}, "the limit none .expected a share of the pool"),
                (QUEUES[0], {"minimum": PortShare(5)}, "a minimum of 5 %"),
                (QUEUES[0], {"minimum": BitRate(12)}, "in steps of 8 bit/s"),
                (QUEUES[0], {"maximum": BitRate(8)}, "a maximum of 8 bit/s .expected 16 to"),
                (
                    QUEUES[0],
                    {"minimum": BitRate(160), "maximum": BitRate(80)},
                    "its minimum 160 bit/s is above its maximum 80 bit/s",
                ),
            )
        ),
    ],
)
def test_what_sonic_cannot_express_is_refused(port: PortState, what: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=what):
        TARGET.render(SwitchState((port,), ()), GUARANTEEING)


def test_ranges_of_the_vendor_are_split_and_lossless_queues_kept() -> None:
    database = SONIC.pushed(STATE).config_db
    queues = {key: entry["profile"] for key, entry in database["BUFFER_QUEUE"].items() if "Ethernet4|" in key}
    assert queues == {
        "Ethernet4|0": "MLT_Q0_Ethernet4",
        "Ethernet4|1": "MLT_Q1_Ethernet4",
        "Ethernet4|2": "q_lossy_profile",
        "Ethernet4|3-4": "egress_lossless_profile",
        "Ethernet4|5": "q_lossy_profile",
        "Ethernet4|6": "MLT_Q6_Ethernet4",
        "Ethernet4|7": "MLT_Q7_Ethernet4",
    }
    before = SonicDevice().config_db
    assert database["QUEUE"]["Ethernet4|3"] == before["QUEUE"]["Ethernet4|3"]
    assert database["PORT_QOS_MAP"]["Ethernet4"]["pfc_enable"] == "3,4"
    for table in ("PORT", "BUFFER_POOL", "BUFFER_PG", "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"):
        assert database[table] == before[table]
    for table in ("QUEUE", "BUFFER_QUEUE", "PORT_QOS_MAP"):
        theirs = {
            key: entry for key, entry in database[table].items() if key.startswith(("global", "Ethernet12"))
        }
        assert theirs.items() <= before[table].items()


def test_the_first_push_says_which_ports_go_down_and_leaves_a_checkpoint() -> None:
    device = SonicDevice()
    before = device.config_db
    change = SONIC.change(device, STATE)
    assert "takes down for a moment: Ethernet4, Ethernet0, Ethernet8" in change.text.splitlines()[0]
    apply(device, change)
    [name] = device.checkpoints
    assert f"sudo config rollback {name}" in change.text
    assert device.execute("admin", f"sudo config rollback {name}").status == 0
    assert device.config_db == before


def test_a_threshold_takes_no_port_down_and_waits_for_its_room() -> None:
    device = SONIC.pushed(STATE)
    assert "takes down" not in SONIC.change(device, SONIC.plans["LOWER"]).text
    assert len([step for step in SONIC.change(device, SONIC.plans["WIDER"]).steps if step.stdin]) == 2


def test_a_second_push_after_a_half_done_one_keeps_the_state_before_both() -> None:
    device = SonicDevice()
    before = copy.deepcopy(device.config_db)
    change = SONIC.change(device, STATE)
    apply(device, Change(change.steps[:1]))
    [first] = device.checkpoints
    enter(device, ["hset 'SCHEDULER|mlt_strict' type STRICT"])
    apply(device, SONIC.change(device, STATE))
    assert len(device.checkpoints) == 2
    assert device.execute("admin", f"sudo config rollback {first}").status == 0
    assert device.config_db == before


def test_a_patch_leaves_no_file_behind_even_where_it_is_refused() -> None:
    device = SonicDevice()
    steps = SONIC.change(device, STATE).steps
    assert [step.command for step in steps[1:]] == ["cat | sudo config apply-patch /dev/stdin"]
    assert all(step.seconds == 900 for step in steps[1:])
    device.config_db["PORT"]["Ethernet4"]["speed"] = "fast"
    assert device.execute("admin", steps[1].command, steps[1].stdin.encode).status == 2
    assert device.files.paths("/tmp") == []  # noqa: S108 (a folder of the emulated switch)


def test_a_patch_that_arrives_in_part_changes_nothing() -> None:
    device = SonicDevice()
    before = copy.deepcopy(device.config_db)
    [step] = SONIC.change(device, STATE).steps[1:]
    assert device.execute("admin", step.command, lambda: step.stdin.encode()[:-10]).status == 2
    assert device.config_db == before


def test_a_plan_for_another_model_is_refused() -> None:
    queues = tuple(replace(queue, ecn_threshold_bytes=None) for queue in QUEUES)
    wanted = SwitchState((PortState("Ethernet4", True, None, queues),), ())
    device = SonicDevice(box="trident3")
    what = (
        r"^DEVICE_METADATA, x86_64-arista_7050cx3_32s: the device is a trident3, and .* rounded to a sn2700"
    )
    with pytest.raises(DeviceError, match=what):
        read(device, wanted)
    assert read(device, wanted, TARGET.hardware("trident3")).state.ports
    metadata = device.config_db["DEVICE_METADATA"]["localhost"]
    del metadata["platform"]
    with pytest.raises(DeviceError, match=r"^DEVICE_METADATA, Arista-7050CX3-32S-C32: the device is a trid"):
        read(device, wanted)
    # A box that nobody knows tells its chip by its pool alone.
    metadata["platform"] = "x86_64-somebody-r0"
    with pytest.raises(DeviceError, match=r"has 24709632 B, .* \(expected 4580864 B\)"):
        read(device, wanted)


def test_text_among_the_tables_is_left_out_of_an_answer_alone() -> None:
    answer = json.dumps(SONIC.pushed(STATE).config_db | {"bgpraw": "!\n"})
    answers = {**read(SONIC.pushed(STATE), STATE).answers, "show runningconfiguration all": answer}
    assert TARGET.read(answers, STATE, CAPABILITIES).state == STATE
    with pytest.raises(UserInputError, match="bgpraw is no table"):
        TARGET.parse({FILE: answer}, CAPABILITIES)


def test_a_device_without_queues_of_its_own() -> None:
    device = SonicDevice()
    for table in ("QUEUE", "BUFFER_QUEUE", "PORT_QOS_MAP", "WRED_PROFILE", "SCHEDULER"):
        del device.config_db[table]
    apply(device, SONIC.change(device, STATE))
    assert read(device, STATE).state == STATE


def test_bandwidths_are_bytes_a_second_of_strict_queues() -> None:
    tables = json.loads(TARGET.render(CAPPED, GUARANTEEING)[FILE])
    assert tables["QUEUE"]["Ethernet8|6"]["scheduler"] == "MLT_MAX_Q6_Ethernet4"
    assert tables["SCHEDULER"] == {
        "mlt_strict": {"type": "STRICT"},
        "MLT_MAX_Q6_Ethernet4": {
            "type": "STRICT",
            "meter_type": "bytes",
            "cir": "1",
            "pir": "1250000000",
        },
        "MLT_MIN_Q0_Ethernet4": {"type": "STRICT", "meter_type": "bytes", "cir": "625000000"},
        "MLT_MAX_Q6_Ethernet0": {
            "type": "STRICT",
            "meter_type": "bytes",
            "cir": "1",
            "pir": "1250000000",
        },
        "MLT_MIN_Q0_Ethernet0": {"type": "STRICT", "meter_type": "bytes", "cir": "625000000"},
    }
    both = replace(QUEUES[3], minimum=BitRate(800), maximum=BitRate(8000))
    state = SwitchState((replace(STATE.ports[0], queues=(*QUEUES[:3], both)),), ())
    assert TARGET.parse(TARGET.render(state, GUARANTEEING), GUARANTEEING) == state


def test_an_older_plan_takes_its_bandwidths_with_it() -> None:
    device = SONIC.pushed(CAPPED, STATE)
    assert list(device.config_db["SCHEDULER"]) == ["scheduler.0", "scheduler.1", "mlt_strict"]


@pytest.mark.parametrize(("plan", "name"), [("HOST", "MLT_HOST"), ("HOST_UNTRUSTED", "MLT_HOST_UNTRUSTED")])
def test_ports_of_hosts_have_a_map_of_their_own(plan: str, name: str) -> None:
    device = SONIC.pushed(STATE, SONIC.plans[plan])
    maps = device.config_db["DSCP_TO_TC_MAP"]
    assert device.config_db["PORT_QOS_MAP"]["Ethernet0"]["dscp_to_tc_map"] == name
    assert (maps["MLT"]["48"], maps["MLT_HOST"]["48"], maps["MLT_HOST"]["10"]) == ("7", "0", "6")
    assert "MLT_UNTRUSTED" not in maps


def test_segment_routing_is_a_locator_its_segment_and_routes() -> None:
    """A locator of somebody else stays, also where ours goes."""
    wanted = SONIC.plans["SEGMENTS"]
    tables = json.loads(TARGET.render(wanted, CAPABILITIES)[FILE])
    lengths = {"block_len": "32", "node_len": "16", "func_len": "16", "arg_len": "0"}
    assert tables["SRV6_MY_LOCATORS"] == {"MLT": {"prefix": "fd00:6d6c:1::"} | lengths}
    assert tables["SRV6_MY_SIDS"] == {"MLT|fd00:6d6c:1::/48": {"action": "uN", "decap_dscp_mode": "uniform"}}
    hop = {"nexthop": "fd00:6d6c:3000::1", "ifname": "Ethernet4"}
    assert tables["STATIC_ROUTE"]["default|fd00:6d6c:2001::/48"] == hop
    device = SONIC.pushed(STATE)
    enter(device, ["hset 'SRV6_MY_LOCATORS|other' prefix fd00:6d6c:9::"])
    apply(device, SONIC.change(device, wanted))
    assert read(device, wanted).state == wanted
    assert SONIC.change(device, wanted).is_empty
    assert read(device, STATE).state.segment_routing == SegmentRouting(SEGMENTS.locator, ())
    apply(device, SONIC.change(device, STATE))
    assert read(device, STATE).state == STATE
    assert list(device.config_db["SRV6_MY_LOCATORS"]) == ["other"]
    assert "SRV6_MY_SIDS" not in device.config_db


@pytest.mark.parametrize("box", ["sn2100", "sn3700", "trident3", "tomahawk", "tomahawk2"])
def test_every_box_takes_its_own_plan(box: str) -> None:
    can = TARGET.hardware(box)
    step = can.threshold.step_bytes
    queues = (QUEUES[0], *(replace(q, ecn_threshold_bytes=step * 20) for q in QUEUES[1:3]), QUEUES[3])
    wanted = SwitchState((PortState("Ethernet4", True, None, queues),), ())
    device = SonicDevice(box=box)
    apply(device, TARGET.diff(read(device, wanted, can), wanted, can))
    assert read(device, wanted, can).state == wanted


def test_the_way_back_goes_over_a_second_checkpoint_where_profiles_changed_names() -> None:
    device = SONIC.pushed(STATE)
    before = copy.deepcopy(device.config_db)
    first, second, third = STATE.ports
    wanted = replace(STATE, ports=(second, third, replace(first, queues=QUEUES)))
    change = SONIC.change(device, wanted)
    apply(device, change)
    [line] = [line for line in change.text.splitlines() if line.startswith("# back to the state")]
    back = line.partition(": ")[2]
    assert back.count("sudo config rollback") == 2
    alone = device.execute("admin", back.partition(" && ")[2])
    assert (alone.status, b"BUFFER_PROFILE table is illegal" in alone.stderr) == (2, True)
    assert device.execute("admin", back).status == 0
    assert device.config_db == before
