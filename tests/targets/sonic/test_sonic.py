"""SONiC in particular: what it writes, reads, refuses, and what it leaves alone."""

import copy
import json
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from mltswitch.capabilities import AlphaLimit, BitRate, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.targets import Change, PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.database import load, queue_keys, queues_in
from mltswitch.targets.state import SegmentRouteState, SegmentRouting, differences
from switchsim.sonic import SonicDevice
from tests.targets.sonic.device import apply, read

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


def pushed() -> SonicDevice:
    device = SonicDevice()
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    return device


def operations(device: SonicDevice, wanted: SwitchState = STATE) -> list[tuple[str, str]]:
    steps = TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps
    patches = [json.loads(step.stdin) for step in steps if step.stdin]
    return [(entry["op"], entry["path"]) for patch in patches for entry in patch]


def by_hand(device: SonicDevice, command: str) -> None:
    assert device.execute("admin", f"sudo sonic-db-cli CONFIG_DB {command}").status == 0


@pytest.mark.parametrize(
    ("path", "value", "what"),
    [
        (
            ("PORT", "Ethernet0"),
            {"admin_status": "down"},
            r"PORT\|Ethernet0: is nothing that mltswitch writes",
        ),
        (("PORT",), {}, "PORT: is nothing that mltswitch writes"),
        (("WRED_PROFILE", "MLT_Q6_Ethernet4", "green_min_threshold"), "1", "queue 6 wred_profile"),
        (("WRED_PROFILE", "AZURE"), {"ecn": "ecn_none"}, r"WRED_PROFILE\|AZURE: is nothing"),
        (
            ("SCHEDULER", "mlt_strict", "weight"),
            "5",
            r"queue 7 scheduler mlt_strict \(type STRICT, weight 5\)",
        ),
        (("SCHEDULER", "mlt_strict", "cir"), "5", "queue 7 scheduler mlt_strict"),
        (("BUFFER_PROFILE", "MLT_Q6_Ethernet4", "static_th"), "5", "queue 6 buffer profile MLT_Q6_Ethernet4"),
        (("SRV6_SID_LIST", "X"), {"path": "fd00::1"}, r"SRV6_SID_LIST\|X: is nothing that mltswitch writes"),
        (("QUEUE", "Ethernet4|5-6"), {}, r"QUEUE has Ethernet4\|6 and Ethernet4\|5-6 for queue 6"),
        (("QUEUE", "Ethernet4|3"), {"scheduler": "mlt_strict"}, r"QUEUE\|Ethernet4\|3: is nothing"),
        (("TC_TO_QUEUE_MAP", "MLT", "6"), "3", r"DSCP_TO_TC_MAP\|MLT: is \{"),
        (("STATIC_ROUTE", "10.9.0.0/16"), {"nexthop": "10.0.0.1", "ifname": "Ethernet4"}, "STATIC_ROUTE"),
        (("STATIC_ROUTE", "default|10.101.0.0/16", "blackhole"), "true", "STATIC_ROUTE"),
    ],
)
def test_an_object_that_does_not_belong_is_refused(path: tuple[str, ...], value: object, what: str) -> None:
    tables = json.loads(TARGET.render(STATE, CAPABILITIES)[FILE])
    place = tables
    for part in path[:-1]:
        place = place.setdefault(part, {})
    place[path[-1]] = value
    with pytest.raises(UserInputError, match=what):
        TARGET.parse({FILE: json.dumps(tables)}, CAPABILITIES)


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


def test_what_sonic_cannot_express_is_refused() -> None:
    port = STATE.ports[0]
    for changed, what in [
        (replace(port, shaped_bps=10**9), "not shaped"),
        (replace(port, name="eth1"), "port eth1: is no name for a port"),
        (replace(port, queues=(replace(QUEUES[1], ecn_threshold_bytes=2**31),)), "ECN threshold 2147483648"),
        (
            replace(port, queues=(replace(QUEUES[1], limit=Unlimited()),)),
            "the limit none .expected a share of the pool",
        ),
        (replace(port, queues=()), "port Ethernet4: has no queues"),
        (replace(port, queues=(replace(QUEUES[0], minimum=PortShare(5)),)), "a minimum of 5 %"),
        (replace(port, queues=(replace(QUEUES[0], minimum=BitRate(12)),)), "in steps of 8 bit/s"),
        (
            replace(port, queues=(replace(QUEUES[0], maximum=BitRate(8)),)),
            "a maximum of 8 bit/s .expected 16 to",
        ),
        (
            replace(port, queues=(replace(QUEUES[0], minimum=BitRate(160), maximum=BitRate(80)),)),
            "its minimum 160 bit/s is above its maximum 80 bit/s",
        ),
    ]:
        with pytest.raises(UnsupportedPlanError, match=what):
            TARGET.render(SwitchState((changed,), ()), GUARANTEEING)


def test_ranges_of_the_vendor_are_split_and_lossless_queues_kept() -> None:
    database = pushed().config_db
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
    change = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
    assert "takes down for a moment: Ethernet4, Ethernet0, Ethernet8" in change.text.splitlines()[0]
    apply(device, change)
    [name] = device.checkpoints
    assert f"sudo config rollback {name}" in change.text
    assert device.execute("admin", f"sudo config rollback {name}").status == 0
    assert device.config_db == before


def test_a_second_push_after_a_half_done_one_keeps_the_state_before_both() -> None:
    device = SonicDevice()
    before = copy.deepcopy(device.config_db)
    change = TARGET.diff(read(device, STATE), STATE, CAPABILITIES)
    apply(device, Change(change.steps[:1]))
    [first] = device.checkpoints
    by_hand(device, "hset 'SCHEDULER|mlt_strict' type STRICT")
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert len(device.checkpoints) == 2
    assert device.execute("admin", f"sudo config rollback {first}").status == 0
    assert device.config_db == before


def test_a_patch_leaves_no_file_behind_even_where_it_is_refused() -> None:
    device = SonicDevice()
    steps = TARGET.diff(read(device, STATE), STATE, CAPABILITIES).steps
    assert [step.command for step in steps[1:]] == ["cat | sudo config apply-patch /dev/stdin"]
    assert all(step.seconds == 900 for step in steps[1:])
    device.config_db["PORT"]["Ethernet4"]["speed"] = "fast"
    assert device.execute("admin", steps[1].command, steps[1].stdin.encode).status == 2
    assert device.files.paths("/tmp") == []  # noqa: S108 (a folder of the emulated switch)


def test_a_patch_that_arrives_in_part_changes_nothing() -> None:
    device = SonicDevice()
    before = copy.deepcopy(device.config_db)
    [step] = TARGET.diff(read(device, STATE), STATE, CAPABILITIES).steps[1:]
    assert device.execute("admin", step.command, lambda: step.stdin.encode()[:-10]).status == 2
    assert device.config_db == before


def test_a_new_threshold_changes_the_profile_in_place() -> None:
    device = pushed()
    queues = (QUEUES[0], replace(QUEUES[1], ecn_threshold_bytes=6144), *QUEUES[2:])
    wanted = replace(STATE, ports=(STATE.ports[0], replace(STATE.ports[1], queues=queues), STATE.ports[2]))
    assert operations(device, wanted) == [("replace", "/WRED_PROFILE/MLT_Q6_Ethernet0")]
    assert "takes down" not in TARGET.diff(read(device, wanted), wanted, CAPABILITIES).text


def test_an_unused_profile_is_removed_after_its_last_reference() -> None:
    device = pushed()
    wanted = replace(STATE, ports=tuple(replace(port, trusted=True, queues=QUEUES) for port in STATE.ports))
    found = operations(device, wanted)
    assert ("remove", "/DSCP_TO_TC_MAP/MLT_UNTRUSTED") in found
    assert found.index(("remove", "/WRED_PROFILE/MLT_Q6_Ethernet0")) > found.index(
        ("replace", "/QUEUE/Ethernet0|6")
    )
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert operations(device, wanted) == []


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (
            "hset 'WRED_PROFILE|MLT_Q6_Ethernet0' green_min_threshold 6144 green_max_threshold 6144",
            "port Ethernet0, queue 6: ecn_threshold_bytes expected 18432, found 6144",
        ),
        (
            "hset 'WRED_PROFILE|MLT_Q6_Ethernet0' ecn ecn_none",
            "port Ethernet0, queue 6: ecn_threshold_bytes expected 18432, found None",
        ),
        (
            "hset 'SCHEDULER|mlt_strict' type DWRR",
            "port Ethernet0: configuration expected as planned, found queue 6 scheduler mlt_strict "
            "(type DWRR)",
        ),
        (
            "hset 'BUFFER_PROFILE|MLT_Q6_Ethernet0' dynamic_th 3",
            "port Ethernet0, queue 6: limit expected alpha 2^-6, found alpha 2^3",
        ),
        (
            "hset 'DSCP_TO_TC_MAP|MLT' 10 3",
            "port Ethernet4, queue 6: dscps expected (10,), found ()",
        ),
        (
            "hset 'DSCP_TO_TC_MAP|MLT_UNTRUSTED' 10 6",
            "port Ethernet0: configuration expected as planned, found "
            "DSCP_TO_TC_MAP|MLT_UNTRUSTED is not background alone",
        ),
        (
            "hset 'PORT_QOS_MAP|Ethernet4' dscp_to_tc_map AZURE",
            "port Ethernet4: configuration expected as planned, found dscp_to_tc_map AZURE",
        ),
        (
            "hdel 'PORT_QOS_MAP|Ethernet4' tc_to_queue_map",
            "port Ethernet4, queue 6: dscps expected (10,), found ()",
        ),
        (
            "hset 'QUEUE|Ethernet0|5-6' scheduler scheduler.0",
            "port Ethernet0: configuration expected as planned, found QUEUE has Ethernet0|5-6 and "
            "Ethernet0|6 for queue 6",
        ),
        ("del 'BUFFER_QUEUE|Ethernet0|6'", "port Ethernet0, queue 6: limit expected alpha 2^-6, found none"),
        (
            "hset 'STATIC_ROUTE|10.101.3.0/24' nexthop 10.20.0.6 ifname Ethernet8",
            "routes: route 10.101.3.0/24 expected absent, found via 10.20.0.6 Ethernet8",
        ),
        (
            "hset 'STATIC_ROUTE|default|10.101.0.0/16' nexthop 10.20.0.2,10.20.0.6 "
            "ifname Ethernet4,Ethernet8",
            "routes: route 10.101.0.0/16 expected via 10.20.0.2 Ethernet4, found via 10.20.0.6 Ethernet8",
        ),
        (
            "hset 'STATIC_ROUTE|default|10.101.0.0/16' blackhole true",
            "routes: route 10.101.0.0/16 expected via 10.20.0.2 Ethernet4, found via 10.20.0.2 Ethernet4 "
            "blackhole true",
        ),
    ],
)
def test_a_change_by_hand_is_found_and_mended(command: str, found: str) -> None:
    device = pushed()
    by_hand(device, command)
    assert found in {str(difference) for difference in differences(STATE, read(device, STATE).state)}
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert read(device, STATE).state == STATE
    assert operations(device) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scheduler", "scheduler.0"),
        ("dot1p_to_tc_map", "AZURE"),
        ("tc_to_dscp_map", "AZURE"),
    ],
)
def test_a_foreign_setting_of_our_port_is_found_and_left(field: str, value: str) -> None:
    device = pushed()
    by_hand(device, f"hset 'PORT_QOS_MAP|Ethernet4' {field} {value}")
    assert [str(each) for each in differences(STATE, read(device, STATE).state)] == [
        f"port Ethernet4: configuration expected as planned, found {field} {value}"
    ]
    assert operations(device) == []


@pytest.mark.parametrize(
    "commands",
    [
        ("hset 'PORT_QOS_MAP|Ethernet4' pfc_enable 3,4,6",),
        (
            "hset 'PORT_QOS_MAP|Ethernet4' pfc_to_queue_map MOVED",
            "hset 'MAP_PFC_PRIORITY_TO_QUEUE|MOVED' 3 6 4 4",
        ),
    ],
)
def test_flow_control_on_a_queue_of_ours_is_refused(commands: tuple[str, ...]) -> None:
    device = SonicDevice()
    for command in commands:
        by_hand(device, command)
    with pytest.raises(DeviceError, match=r"^port Ethernet4: PFC is on for queue 6, which the plan uses"):
        read(device, STATE)
    others = SwitchState(STATE.ports[1:], ())
    assert read(device, others).state.ports


def test_asymmetric_flow_control_is_refused() -> None:
    device = pushed()
    by_hand(device, "hset 'PORT|Ethernet8' pfc_asym on")
    with pytest.raises(DeviceError, match=r"^port Ethernet8: asymmetric PFC heeds .* asymmetric off Etherne"):
        read(device, STATE)
    by_hand(device, "hset 'PORT|Ethernet8' pfc_asym off")
    assert read(device, STATE).state == STATE


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


def test_another_buffer_pool_is_refused() -> None:
    device = SonicDevice()
    pool = device.config_db["BUFFER_POOL"]["egress_lossy_pool"]
    pool["size"] = "7326924"
    with pytest.raises(DeviceError, match=r"has 7326924 B, .* \(expected 4580864 B\)"):
        read(device, STATE)
    del pool["size"]  # the dynamic buffer model
    assert read(device, STATE).state.ports
    assert read(device, SwitchState((), STATE.routes)).state.ports == ()


def test_text_among_the_tables_is_left_out_of_an_answer_alone() -> None:
    answer = json.dumps(pushed().config_db | {"bgpraw": "!\n"})
    answers = {**read(pushed(), STATE).answers, "show runningconfiguration all": answer}
    assert TARGET.read(answers, STATE, CAPABILITIES).state == STATE
    with pytest.raises(UserInputError, match="bgpraw is no table"):
        TARGET.parse({FILE: answer}, CAPABILITIES)


def test_routes_of_others_stay() -> None:
    device = pushed()
    by_hand(device, "hset 'STATIC_ROUTE|0.0.0.0/0' nexthop 10.20.0.9 ifname Ethernet8")
    by_hand(device, "hset 'STATIC_ROUTE|Vrf_red|10.101.3.0/24' nexthop 10.20.0.9 ifname Ethernet8")
    assert operations(device) == []


def test_a_device_without_queues_of_its_own() -> None:
    device = SonicDevice()
    for table in ("QUEUE", "BUFFER_QUEUE", "PORT_QOS_MAP", "WRED_PROFILE", "SCHEDULER"):
        del device.config_db[table]
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert read(device, STATE).state == STATE


def test_what_the_device_lacks_is_named() -> None:
    wanted = SwitchState((replace(STATE.ports[0], name="Ethernet200"),), ())
    device = SonicDevice()
    with pytest.raises(DeviceError, match="no port Ethernet200"):
        TARGET.diff(read(device, wanted), wanted, CAPABILITIES)
    assert [str(each) for each in differences(wanted, read(device, wanted).state)] == [
        "port Ethernet200: configuration expected present, found absent"
    ]
    device.config_db["BUFFER_POOL"]["egress_lossy_pool"]["mode"] = "static"
    with pytest.raises(DeviceError, match="egress_lossy_pool is static"):
        TARGET.diff(read(device, STATE), STATE, CAPABILITIES)


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


def test_bandwidths_come_change_in_place_and_go() -> None:
    device = pushed()
    apply(device, TARGET.diff(read(device, CAPPED), CAPPED, CAPABILITIES))
    assert read(device, CAPPED).state == CAPPED
    by_hand(device, "hset 'SCHEDULER|MLT_MAX_Q6_Ethernet4' pir 2500000000")
    found = [str(each) for each in differences(CAPPED, read(device, CAPPED).state)]
    assert found == [
        f"port Ethernet{n}, queue 6: maximum expected 10000000000 bit/s, found 20000000000 bit/s"
        for n in (4, 8)
    ]
    assert operations(device, CAPPED) == [("replace", "/SCHEDULER/MLT_MAX_Q6_Ethernet4")]
    assert ("remove", "/SCHEDULER/MLT_MAX_Q6_Ethernet4") in operations(device, STATE)
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert list(device.config_db["SCHEDULER"]) == ["scheduler.0", "scheduler.1", "mlt_strict"]


HOST_QUEUES = (replace(QUEUES[0], dscps=()), *QUEUES[1:3], replace(QUEUES[3], dscps=(*OTHERS, 48, 56)))
HOST_QUEUES = (*HOST_QUEUES[:3], replace(HOST_QUEUES[3], dscps=tuple(sorted(HOST_QUEUES[3].dscps))))


def test_ports_of_hosts_have_a_map_of_their_own() -> None:
    first, second, third = STATE.ports
    wanted = replace(STATE, ports=(first, replace(second, queues=HOST_QUEUES, trusted=True), third))
    device = pushed()
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert read(device, wanted).state == wanted
    maps = device.config_db["DSCP_TO_TC_MAP"]
    assert (maps["MLT"]["48"], maps["MLT_HOST"]["48"], maps["MLT_HOST"]["10"]) == ("7", "0", "6")
    assert device.config_db["PORT_QOS_MAP"]["Ethernet0"]["dscp_to_tc_map"] == "MLT_HOST"
    assert "MLT_UNTRUSTED" not in maps
    doubtful = replace(STATE, ports=(first, replace(second, queues=HOST_QUEUES), third))
    apply(device, TARGET.diff(read(device, doubtful), doubtful, CAPABILITIES))
    assert read(device, doubtful).state == doubtful
    assert device.config_db["PORT_QOS_MAP"]["Ethernet0"]["dscp_to_tc_map"] == "MLT_HOST_UNTRUSTED"
    by_hand(device, "hset 'PORT_QOS_MAP|Ethernet0' dscp_to_tc_map MLT_UNTRUSTED")
    assert "port Ethernet0, queue 7: dscps expected (), found (48, 56)" in {
        str(each) for each in differences(doubtful, read(device, doubtful).state)
    }


SEGMENTS = SegmentRouting(
    IPv6Network("fd00:6d6c:1::/48"),
    (SegmentRouteState(IPv6Network("fd00:6d6c:2001::/48"), IPv6Address("fd00:6d6c:3000::1"), "Ethernet4"),),
)


def test_segment_routing_is_a_locator_its_segment_and_routes() -> None:
    wanted = replace(STATE, segment_routing=SEGMENTS)
    tables = json.loads(TARGET.render(wanted, CAPABILITIES)[FILE])
    assert tables["SRV6_MY_LOCATORS"] == {
        "MLT": {
            "prefix": "fd00:6d6c:1::",
            "block_len": "32",
            "node_len": "16",
            "func_len": "16",
            "arg_len": "0",
        }
    }
    assert tables["SRV6_MY_SIDS"] == {"MLT|fd00:6d6c:1::/48": {"action": "uN", "decap_dscp_mode": "uniform"}}
    assert tables["STATIC_ROUTE"]["default|fd00:6d6c:2001::/48"] == {
        "nexthop": "fd00:6d6c:3000::1",
        "ifname": "Ethernet4",
    }
    device = pushed()
    by_hand(device, "hset 'SRV6_MY_LOCATORS|other' prefix fd00:6d6c:9::")
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert read(device, wanted).state == wanted
    assert operations(device, wanted) == []


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (
            "hset 'SRV6_MY_LOCATORS|MLT' prefix fd00:6d6c:7::",
            "routes: segment routing locator expected fd00:6d6c:1::/48, found absent",
        ),
        (
            "hset 'SRV6_MY_SIDS|MLT|fd00:6d6c:1::/48' action uDT46",
            "routes: segment routing locator expected fd00:6d6c:1::/48, found absent",
        ),
        (
            "hset 'STATIC_ROUTE|fd00:6d6c:2001:5::/64' nexthop fd00:6d6c:3000::5 ifname Ethernet8",
            "routes: route fd00:6d6c:2001:5::/64 expected absent, found via fd00:6d6c:3000::5 Ethernet8",
        ),
    ],
)
def test_a_change_of_segment_routing_by_hand_is_found_and_mended(command: str, found: str) -> None:
    wanted = replace(STATE, segment_routing=SEGMENTS)
    device = SonicDevice()
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    by_hand(device, command)
    assert found in {str(each) for each in differences(wanted, read(device, wanted).state)}
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert read(device, wanted).state == wanted


def test_a_plan_without_segments_takes_our_locator_away_and_no_other() -> None:
    device = pushed()
    by_hand(device, "hset 'SRV6_MY_LOCATORS|other' prefix fd00:6d6c:9::")
    routed = replace(STATE, segment_routing=SEGMENTS)
    apply(device, TARGET.diff(read(device, routed), routed, CAPABILITIES))
    found = read(device, STATE).state
    assert found.segment_routing == SegmentRouting(SEGMENTS.locator, ())
    apply(device, TARGET.diff(read(device, STATE), STATE, CAPABILITIES))
    assert read(device, STATE).state == STATE
    assert list(device.config_db["SRV6_MY_LOCATORS"]) == ["other"]
    assert "SRV6_MY_SIDS" not in device.config_db


def test_counters_of_marks_are_switched_on_and_kept() -> None:
    device = pushed()
    assert device.config_db["FLEX_COUNTER_TABLE"]["WRED_ECN_QUEUE"] == {"FLEX_COUNTER_STATUS": "enable"}
    by_hand(device, "hset 'FLEX_COUNTER_TABLE|WRED_ECN_QUEUE' POLL_INTERVAL 1000")
    assert operations(device) == []
    assert device.execute("admin", "sudo counterpoll wredqueue disable").status == 0
    assert [str(each) for each in differences(STATE, read(device, STATE).state)] == [
        "port Ethernet4: configuration expected as planned, found "
        "FLEX_COUNTER_TABLE|WRED_ECN_QUEUE FLEX_COUNTER_STATUS disable"
    ]
    assert operations(device) == [("replace", "/FLEX_COUNTER_TABLE/WRED_ECN_QUEUE/FLEX_COUNTER_STATUS")]


def test_room_for_a_threshold_comes_before_it() -> None:
    device = pushed()
    wider = (QUEUES[0], replace(QUEUES[1], ecn_threshold_bytes=614400, limit=AlphaLimit(0)), *QUEUES[2:])
    wanted = replace(STATE, ports=(STATE.ports[0], replace(STATE.ports[1], queues=wider), STATE.ports[2]))
    assert operations(device, wanted) == [
        ("replace", "/BUFFER_PROFILE/MLT_Q6_Ethernet0"),
        ("replace", "/WRED_PROFILE/MLT_Q6_Ethernet0"),
    ]
    assert (
        len([step for step in TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps if step.stdin])
        == 2
    )
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    assert operations(device) == [
        ("replace", "/WRED_PROFILE/MLT_Q6_Ethernet0"),
        ("replace", "/BUFFER_PROFILE/MLT_Q6_Ethernet0"),
    ]


@pytest.mark.parametrize("box", ["sn2100", "sn3700", "trident3", "tomahawk", "tomahawk2"])
def test_every_box_takes_its_own_plan(box: str) -> None:
    can = TARGET.hardware(box)
    step = can.threshold.step_bytes
    queues = (QUEUES[0], *(replace(q, ecn_threshold_bytes=step * 20) for q in QUEUES[1:3]), QUEUES[3])
    wanted = SwitchState((PortState("Ethernet4", True, None, queues),), ())
    device = SonicDevice(box=box)
    apply(device, TARGET.diff(read(device, wanted, can), wanted, can))
    assert read(device, wanted, can).state == wanted


def test_what_a_live_object_would_keep_is_refused() -> None:
    device = pushed()
    by_hand(device, "hset 'SCHEDULER|mlt_strict' pir 1000")
    with pytest.raises(DeviceError, match=r"SCHEDULER\|mlt_strict: a live object keeps pir"):
        operations(device)
    device = pushed()
    by_hand(device, "hset 'BUFFER_PROFILE|MLT_Q6_Ethernet0' pool ingress_lossy_pool")
    with pytest.raises(DeviceError, match="the pool of a live profile cannot be changed"):
        operations(device)


def test_the_way_back_goes_over_a_second_checkpoint_where_profiles_changed_names() -> None:
    device = pushed()
    before = copy.deepcopy(device.config_db)
    first, second, third = STATE.ports
    wanted = replace(STATE, ports=(second, third, replace(first, queues=QUEUES)))
    change = TARGET.diff(read(device, wanted), wanted, CAPABILITIES)
    apply(device, change)
    [line] = [line for line in change.text.splitlines() if line.startswith("# back to the state")]
    back = line.partition(": ")[2]
    assert back.count("sudo config rollback") == 2
    alone = device.execute("admin", back.partition(" && ")[2])
    assert (alone.status, b"BUFFER_PROFILE table is illegal" in alone.stderr) == (2, True)
    assert device.execute("admin", back).status == 0
    assert device.config_db == before
