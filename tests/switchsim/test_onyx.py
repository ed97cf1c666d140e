"""Onyx lines: accepted with their effect, or refused without any."""

import json
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsim import OnyxDevice
from switchsim.onyx_sheet import SHEET


def _congestion(ports: str, traffic_class: int, rest: str) -> str:
    return f"interface ethernet {ports} traffic-class {traffic_class} congestion-control {rest}"


ACCEPTED = [
    "no cli default prefix-modes enable",
    "interface ethernet 1/1 qos trust L3",
    "interface ethernet 1/1-1/4 qos trust both",
    "int eth 1/1 qos tr port",
    "interface ethernet 1/1 no qos trust",
    "no interface ethernet 1/1 qos trust",
    "interface ethernet 1/1 qos map dscp 48 to switch-priority 6",
    "interface ethernet 1/1 qos map dscp 0 8 63 to switch-priority 0",
    "interface ethernet 1/1 traffic-class 6 bind switch-priority 6",
    "interface ethernet 1/1 traffic-class 6 bind switch-priority 5 6",
    _congestion("1/1", 6, "both minimum-absolute 60 maximum-absolute 60"),
    _congestion("1/1", 0, "red minimum-absolute 1 maximum-absolute 2"),
    _congestion("1/1", 7, "ecn minimum-relative 5 maximum-relative 100"),
    "interface ethernet 1/1 no traffic-class 6 congestion-control",
    "no interface ethernet 1/1 traffic-class 6 congestion-control",
    "interface ethernet 1/1 traffic-class 6 dcb ets strict",
    "interface ethernet 1/1 traffic-class 0 dcb ets wrr 20",
    "interface ethernet 1/1 bandwidth shape 1.2G",
    "interface ethernet 1/1 no bandwidth shape",
    "interface ethernet 1/1 no qos rewrite dscp",
    "interface ethernet 1/1 no qos rewrite pcp",
    "interface ethernet 1/1 no switchport force",
    "interface ethernet 1/1 mtu 9216 force",
    "dcb priority-flow-control enable force",
    "dcb priority-flow-control priority 3 enable",
    "interface ethernet 1/1 dcb priority-flow-control mode on force",
    "ip routing vrf default",
    "ip route vrf default 10.8.1.0/24 10.0.1.2",
    "ip route vrf default 10.8.2.0/24 10.0.1.2 120",
    "ip route vrf default 10.8.3.0/24 null0",
    "advanced buffer management force",
    "configuration write",
    "write memory",
    "configuration write to before-plan no-switch",
    "show running-config",
    "show interfaces ethernet 1/4 congestion-control | json-print",
]

REFUSED = [
    "foo",
    "interface",
    "interface ethernet",
    "interface ethernet 1/5 qos trust L3",  # four ports
    "interface ethernet 1/0 qos trust L3",
    "interface ethernet 2/1 qos trust L3",
    "interface ethernet 1/4-1/5 qos trust L3",
    "interface ethernet 1/3-1/1 qos trust L3",
    "interface ethernet 1/1-4 qos trust L3",
    "interface port-channel 1 qos trust L3",
    "interface ethernet 1/1 qos trust l3",
    "interface ethernet 1/1 qos trust",
    "interface ethernet 1/1 qos trust L3 now",
    "interface ethernet 1/1 qos map dscp 64 to switch-priority 6",
    "interface ethernet 1/1 qos map dscp to switch-priority 6",
    "interface ethernet 1/1 qos map dscp 48 to traffic-class 6",  # the map has two stages
    "interface ethernet 1/1 qos map dscp 48 to switch-priority 8",
    "interface ethernet 1/1 traffic-class 8 bind switch-priority 6",
    "interface ethernet 1/1 traffic-class 6 bind switch-priority",
    "interface ethernet 1/1 traffic-class 6 congestion-control both minimum-absolute 60",
    _congestion("1/1", 6, "both minimum-absolute 61 maximum-absolute 60"),
    _congestion("1/1", 6, "both minimum-absolute 0 maximum-absolute 60"),
    _congestion("1/1", 6, "both minimum-absolute 60K maximum-absolute 60K"),
    _congestion("1/1", 6, "both minimum-absolute 60 maximum-absolute 99999"),
    _congestion("1/1", 6, "both minimum-absolute 60 maximum-relative 60"),
    _congestion("1/1", 6, "both minimum-relative 5 maximum-relative 101"),
    _congestion("1/1", 6, "mark minimum-absolute 60 maximum-absolute 60"),
    _congestion("1/1", 6, "both minimum-absolute -1 maximum-absolute 60"),
    _congestion("1/1", 6, "both minimum-absolute \uff16 maximum-absolute 60"),
    "interface ethernet 1/1 traffic-class 6 dcb ets wrr 0",
    "interface ethernet 1/1 traffic-class 6 dcb ets wrr",
    "interface ethernet 1/1 traffic-class 6 bandwidth shape 10G",  # no source has such words
    "interface ethernet 1/1 traffic-class 0 bandwidth guaranteed 10G",
    "interface ethernet 1/1 no traffic-class 6 bandwidth shape",
    "interface ethernet 1/1 bandwidth shape",
    "interface ethernet 1/1 bandwidth shape 10",
    "interface ethernet 1/1 bandwidth shape 0G",
    "interface ethernet 1/1 bandwidth shape 0.0005G",
    "interface ethernet 1/1 bandwidth shape 10T",
    "interface ethernet 1/1 bandwidth guaranteed 10G",
    "interface ethernet 1/1 no switchport",  # wants force
    "interface ethernet 1/1 mtu 9216",
    "dcb priority-flow-control enable",
    "interface ethernet 1/1 ip address 10.0.1.1/30 primary",  # still a switch port
    "ip route vrf default 10.8.1.1/24 10.0.1.2",  # host bits
    "ip route vrf default 10.8.1.0 10.0.1.2",
    "ip route vrf default 10.8.1.0/255.255.255.0 10.0.1.2",
    "ip route vrf default 10.8.1.0/24",
    "ip route vrf mlt 10.8.1.0/24 10.0.1.2",
    "ip route vrf default 10.8.1.0/24 10.0.1.2 0",
    "ip route vrf default 10.8.1.0/24 null1",
    "no ip route vrf default 10.8.1.0/24",
    "pool ePool1 size 1M type dynamic",  # simple buffer mode
    "interface ethernet 1/1 egress-buffer ePort.tc6 map pool ePool0 reserved 1500 shared alpha 2",
    "qos trust L3 | json-print",
    "interface ethernet 1/1 qos trust L3 | json-print",
    "show running-config | json-print",
    "show interfaces ethernet 1/9 congestion-control | json-print",
    "show interfaces ethernet 1/1 congestion-control | grep TC",
    "| json-print",
    "s",  # show, or nothing
    "configure terminal",
    "enable",
]


@pytest.fixture
def device() -> OnyxDevice:
    return OnyxDevice(ports=4)


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepted(device: OnyxDevice, line: str) -> None:
    assert not device.configure(line).startswith("%")


@pytest.mark.parametrize("line", REFUSED)
def test_refused_without_effect(device: OnyxDevice, line: str) -> None:
    before = device.configuration, dict(device.files)
    assert device.configure(line).startswith("%")
    assert (device.configuration, dict(device.files)) == before


WORDS = [
    *sorted({word for command in SHEET.commands for word in command.pattern if isinstance(word, str)}),
    *("1/1", "1/1-1/9", "1/4", "0", "6", "8", "60", "both", "L3", "10.0.0.0/24", "10.0.0.1"),
    *("show", "|", "json-print"),
]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=12).map(" ".join))
def test_a_refused_line_never_changes_anything_and_none_raises(line: str) -> None:
    device = OnyxDevice(ports=4)
    before = device.configuration
    if device.configure(line).startswith("%"):
        assert device.configuration == before


def test_effects(device: OnyxDevice) -> None:
    answer = device.configure(
        "interface ethernet 1/1-1/2 qos trust L3",
        "interface ethernet 1/1 qos map dscp 48 49 to switch-priority 2",
        "interface ethernet 1/1 traffic-class 6 bind switch-priority 2 3",
        _congestion("1/1", 6, "both minimum-absolute 61 maximum-absolute 61"),
        "interface ethernet 1/1 traffic-class 6 dcb ets strict",
        "interface ethernet 1/1 no switchport force",
        "interface ethernet 1/1 ip address 10.0.1.1/30 primary",
        "ip route vrf default 10.8.1.0/24 10.0.1.2",
    )
    assert not answer
    assert [device.fact(port, "trust") for port in ("1/1", "1/2", "1/3")] == ["L3", "L3", "L2"]
    assert [device.fact("1/1", "switch-priority", dscp) for dscp in range(47, 51)] == [5, 2, 2, 6]
    assert [device.fact("1/1", "traffic-class", n) for n in range(8)] == [0, 1, 6, 6, 4, 5, 6, 7]
    assert device.fact("1/1", "scheduling", 6) == "strict"
    # 61 KB is no multiple of the chip's 6,144 B: kept as configured, not as rounded
    assert device.fact("1/1", "congestion-control", 6) == ("absolute", "both", 61, 61)
    assert device.fact("1/1", "address") == IPv4Interface("10.0.1.1/30")
    assert device.fact("", "route", IPv4Network("10.8.1.0/24"), IPv4Address("10.0.1.2")) == 1


def test_a_range_with_a_missing_port_changes_none(device: OnyxDevice) -> None:
    assert device.configure("interface ethernet 1/3-1/6 qos trust L3").startswith("% Invalid input")
    assert device.fact("1/3", "trust") == "L2"


def test_a_repeated_threshold_overwrites_and_no_removes(device: OnyxDevice) -> None:
    line = "interface ethernet 1/1 traffic-class 6 congestion-control"
    device.configure(f"{line} both minimum-absolute 60 maximum-absolute 60")
    device.configure(f"{line} ecn minimum-absolute 6 maximum-absolute 12")
    assert device.fact("1/1", "congestion-control", 6) == ("absolute", "ecn", 6, 12)
    device.configure("interface ethernet 1/1 no traffic-class 6 congestion-control")
    assert device.fact("1/1", "congestion-control", 6) is None


def test_buffers_need_the_advanced_mode_and_forget_without_it(device: OnyxDevice) -> None:
    line = "interface ethernet 1/1 egress-buffer ePort.tc6 map pool ePool0 reserved 1500 shared alpha 2"
    assert not device.configure("advanced buffer management force", "pool ePool0 size 5M type dynamic", line)
    assert f"   {line}\n" in device.configure("show running-config")
    device.configure("no advanced buffer management force")
    assert device.fact("1/1", "egress-buffer", 6) is None


def test_prefix_modes_are_on_by_default(device: OnyxDevice) -> None:
    session = device.open_session("admin")
    for line in ("enable", "conf t", "interface ethernet 1/2"):
        assert not session.enter(line).text
    assert session.prompt == "onyx1 [standalone: master] (config interface ethernet 1/2) # "
    assert not session.enter("qos trust L3").text
    assert session.enter("interface ethernet 1/1 qos trust L3").text.startswith("%")
    session.enter("exit")
    session.enter("no cli default prefix-modes enable")
    assert session.enter("interface ethernet 1/2").text.startswith("% Incomplete")
    assert (device.fact("1/2", "trust"), device.fact("1/1", "trust")) == ("L3", "L2")


def test_modes_and_prompts(device: OnyxDevice) -> None:
    session = device.open_session("admin")
    assert session.prompt == "onyx1 [standalone: master] > "
    for line in ("interface ethernet 1/1 qos trust L3", "show running-config", "configure terminal"):
        assert session.enter(line).text.startswith("%")
    session.enter("enable")
    assert session.prompt == "onyx1 [standalone: master] # "
    assert session.enter("interface ethernet 1/1 qos trust L3").text.startswith("% Unrecognized command")
    session.enter("configure terminal")
    assert session.prompt == "onyx1 [standalone: master] (config) # "
    assert not session.enter("exit").closes
    assert session.enter("exit").closes


def test_unsaved_changes_show(device: OnyxDevice) -> None:
    assert "Unsaved changes : no" in device.configure("show configuration files")
    device.configure("interface ethernet 1/1 qos trust L3")
    assert "Unsaved changes : yes" in device.configure("show configuration files")
    assert "Unsaved changes : no" in device.configure("write memory", "show configuration files")


def test_running_config_compresses_ranges_and_outdents_no(device: OnyxDevice) -> None:
    device.configure(
        "interface ethernet 1/1-1/4 qos trust L3",
        _congestion("1/1", 6, "both minimum-absolute 60 maximum-absolute 60"),
        _congestion("1/3-1/4", 6, "both minimum-absolute 60 maximum-absolute 60"),
        "interface ethernet 1/2 no qos rewrite pcp",
    )
    lines = device.configure("show running-config").splitlines()
    congestion = "traffic-class 6 congestion-control both minimum-absolute 60 maximum-absolute 60"
    assert "no cli default prefix-modes enable" in lines
    assert "   interface ethernet 1/1-1/4 qos trust L3" in lines
    assert f"   interface ethernet 1/1 {congestion}" in lines
    assert f"   interface ethernet 1/3-1/4 {congestion}" in lines
    assert "no interface ethernet 1/2 qos rewrite pcp" in lines


def test_running_config_restores_the_configuration(device: OnyxDevice) -> None:
    device.configure(*(line for line in ACCEPTED if not line.startswith("show")))
    device.configure(
        "interface ethernet 1/1 ip address 10.0.1.1/30 primary", "pool ePool0 size 5M type static"
    )
    text = device.configure("show running-config")
    other = OnyxDevice(ports=4)
    for line in text.splitlines():
        if line and not line.startswith("##") and "hostname" not in line:
            assert not other.configure(line.strip()), line
    assert other.configuration == device.configuration


def test_json_shows(device: OnyxDevice) -> None:
    device.configure(
        _congestion("1/1", 2, "red minimum-relative 9 maximum-relative 90"),
        _congestion("1/1", 3, "ecn minimum-absolute 500 maximum-absolute 1550"),
        "interface ethernet 1/1 traffic-class 2 dcb ets strict",
        "interface ethernet 1/1 traffic-class 3 dcb ets strict",
        "interface ethernet 1/1 qos trust both",
    )
    congestion = json.loads(device.configure("show interfaces ethernet 1/1 congestion-control | json-print"))
    assert congestion[0] == {"Interface ethernet": "1/1", "ECN marked packets": "0"}
    assert congestion[1] == {"header": "TC-0", "Mode": "none"}
    assert (congestion[3]["Mode"], congestion[3]["Maximum threshold"]) == ("RED", "90%")
    assert (congestion[4]["Mode"], congestion[4]["Minimum threshold"]) == ("ECN", "500 KB")
    ets = json.loads(device.configure("show dcb ets interface ethernet 1/1 | json-print"))
    per_class = ets[0]["Eth1/1"][2]["ETS per TC"][0]
    shares = [per_class[str(index)][0]["W(%)"] for index in range(8)]
    assert shares == ["17", "17", "0", "0", "16", "17", "16", "17"]  # a real switch's, with the same weights
    assert per_class["3"][0]["S.Mode"] == "Strict"
    qos = json.loads(device.configure("show qos interface ethernet 1/1 | json-print"))[0]["Eth1/1"]
    assert qos[0]["Trust mode"] == "both"
    mapping = qos[1]["PCP(DEI); DSCP to switch-priority mapping"][0]["3(0) 3(1)"][0]
    assert mapping == {"switch-priority": "3", "DSCP": "24 25 26 27 28 29 30 31"}


def test_only_active_routes_are_shown(device: OnyxDevice) -> None:
    device.configure("ip route vrf default 10.8.1.0/24 10.0.1.2")
    assert "10.8.1.0" not in device.configure("show ip route")
    device.configure(
        "interface ethernet 1/2 no switchport force", "interface ethernet 1/2 ip address 10.0.1.1/30"
    )
    line = next(
        line for line in device.configure("show ip route").splitlines() if line.startswith("10.8.1.0")
    )
    assert line.split()[1:5] == ["255.255.255.0", "10.0.1.2", "Eth1/2", "static"]


def test_shows_have_a_text_form(device: OnyxDevice) -> None:
    device.configure(_congestion("1/1", 6, "both minimum-absolute 60 maximum-absolute 60"))
    shown = device.configure("show interfaces ethernet 1/1 congestion-control")
    assert "header: TC-6\nMode: BOTH\nThreshold mode: absolute\nMinimum threshold: 60 KB\n" in shown
    assert json.loads(device.configure("show version | json-print"))["Product name"] == "Onyx"


def test_priority_flow_control(device: OnyxDevice) -> None:
    device.configure("dcb priority-flow-control enable force", "dcb priority-flow-control priority 3 enable")
    assert device.configuration == {("", "pfc"): True, ("", "pfc-priority", 3): True}
    device.configure("interface ethernet 1/2 dcb priority-flow-control mode on force")
    general, ports = json.loads(device.configure("show dcb priority-flow-control | json-print"))
    assert general == {
        "PFC": "enabled",
        "Priority Enabled List": "3",
        "Priority Disabled List": "0 1 2 4 5 6 7",
    }
    assert [ports[f"Eth1/{number}"][0]["PFC oper"] for number in (1, 2)] == ["Disabled", "Enabled"]
    device.configure(
        "no dcb priority-flow-control priority 3 enable", "no dcb priority-flow-control enable force"
    )
    assert device.configuration == {("1/2", "pfc-mode"): True}


def test_routes_are_removed_one_by_one_or_by_prefix(device: OnyxDevice) -> None:
    for hop in ("10.0.1.2", "10.0.2.2", "10.0.3.2"):
        device.configure(f"ip route vrf default 10.8.1.0/24 {hop}", f"ip route vrf default 10.8.1.0/24 {hop}")
    assert not device.configure("no ip route vrf default 10.8.1.0/24 10.0.2.2")
    assert [str(fact[-1]) for fact in device.configuration] == ["10.0.1.2", "10.0.3.2"]
    assert not device.configure("no ip route vrf default 10.8.1.0/24")
    assert device.configuration == {}


def test_the_shaper_of_a_port_is_set_shown_and_taken_away() -> None:
    device = OnyxDevice(ports=4)
    assert device.configure("interface ethernet 1/2 bandwidth shape 1.25G") == ""
    assert device.fact("1/2", "shaper-mbps") == 1250
    assert "interface ethernet 1/2 bandwidth shape 1.25G" in device.configure("show running-config")
    shown = device.configure("show dcb ets interface ethernet 1/2")
    assert "Interface Bandwidth Shape [Mbps]: 1250" in shown
    assert device.configure("interface ethernet 1/2 no bandwidth shape") == ""
    assert device.configuration == {}


def test_bandwidths_of_a_class_are_shown() -> None:
    device = OnyxDevice(ports=4)
    query = "show dcb ets interface ethernet 1/2 | json-print"
    as_delivered = json.loads(device.configure(query))[0]["Eth1/2"][2]["ETS per TC"][0]["6"][0]
    assert (as_delivered["BW Gr.(Mbps)"], as_delivered["BW Sh.(Mbps)"]) == ("0", "N/A")  # a real switch's
    bandwidths = {("1/2", "class-guaranteed-mbps", 6): 200, ("1/2", "class-shaper-mbps", 6): 300}
    device.configuration = bandwidths
    per_class = json.loads(device.configure(query))[0]["Eth1/2"][2]["ETS per TC"][0]
    assert (per_class["6"][0]["BW Gr.(Mbps)"], per_class["6"][0]["BW Sh.(Mbps)"]) == ("200", "300")
    assert per_class["5"][0]["BW Sh.(Mbps)"] == "N/A"
