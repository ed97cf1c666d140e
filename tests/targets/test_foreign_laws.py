"""Settings of somebody else: what touches the plan is named and refused before the first line.

Each row of `FOREIGN` is written into what a switch answers before any push, where it stands in its running
configuration; P1 is a port of a host, P2 one of the fabric. What is expected is a part of a difference that
no line of a push removes, or nothing.
"""

import dataclasses
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mltswitch import deploy
from mltswitch.deploy import Fleet, Rollout, Session, Status
from mltswitch.deploy.cabling import Cabling
from mltswitch.deploy.prepare import Job
from mltswitch.errors import DeviceError, PreflightError, UnsupportedPlanError
from mltswitch.inventory import Device, Inventory
from mltswitch.plan import Plan
from mltswitch.targets import Change, RunningState, Step, Target, target_for
from mltswitch.targets.common import known_form
from mltswitch.targets.linux.answers import LINK_QUERY, QDISC_QUERY
from mltswitch.targets.linux.foreign import RULES_QUERY, elsewhere
from switchsim import KINDS
from tests.targets import test_other_classes as other_classes
from tests.targets.test_identity_laws import Typed, meant
from tests.targets.test_other_classes import ROCE, WITH_LOSSLESS

CONFIGURATION = {
    "cumulus": "nv config show -o json",
    "dell-sonic": "show running-configuration",
    "eos": "show running-config",
    "icos": "show running-config",
    "onyx": "show running-config",
    "sonic": "show runningconfiguration all",
}
"""Platform → the query whose answer has what somebody else set."""

MOST_SECONDS = 2.0
PFC = "priority-flow-control priority 0-20000000 no-drop"

FOREIGN: list[tuple[str, str, str]] = [
    # EOS: on a port, on what it belongs to, on the whole switch.
    *(
        ("eos", f"interface P1\n   {line}", line)
        for line in (
            "service-profile theirs",
            "storm-control broadcast level 10",
            "storm-control all level 1",
            "shape rate 50 percent",
            "traffic-policy input theirs",
            "service-policy type pbr input theirs",
            "flowcontrol receive on",
            "mmu queue profile theirs",
            "priority-flow-control priority 5-6 no-drop",
            "priority-flow-control priority 5 no-drop dlb",
            "priority-flow-control auto",
            "hold-back every-packet",
            "no hold-back",
            "default hold-back",
        )
    ),
    ("eos", "interface P2\n   service-policy type qos input theirs", "service-policy type qos input theirs"),
    ("eos", "interface P1\n   service-policy type qos input theirs", "refused: it has the policy map theirs"),
    ("eos", "interface P1.100\n   service-policy type qos input theirs", "interface P1.100: service-policy"),
    ("eos", "interface Vlan7\n   service-policy type qos input theirs", "interface Vlan7: service-policy"),
    ("eos", "platform trident mmu queue profile theirs apply", "mmu queue profile theirs apply"),
    ("eos", "qos something new", "qos something new"),
    ("eos", "priority-flow-control all", "priority-flow-control all"),
    ("eos", "interface P1\n   channel-group 7 mode active", "refused: it is a member of a port channel"),
    ("eos", "qos rewrite dscp", "refused: the whole switch has 'qos rewrite dscp'"),
    *(
        ("eos", f"interface P1\n   {line}", "")
        for line in (
            "description qos of queue 5",
            "mtu 9214",
            "ip address 10.0.0.1/31",
            "ipv6 enable",
            "ip access-group theirs in",
            "sflow enable",
            "ptp enable",
            "speed forced 100gfull",
            "spanning-tree portfast",
            "priority-flow-control on",
            "priority-flow-control priority 3 no-drop",
            "priority-flow-control pause watchdog port timer timeout 0.05 polling-interval auto",
            "bfd interval 300 min-rx 300 multiplier 3",
            "logging event link-status",
            "no storm-control broadcast",
            "no switchport",
            "default load-interval",
            "dcbx mode ieee",
            "load-interval 5",
        )
    ),
    ("eos", "policy-map type quality-of-service theirs\n   class theirs\n      set dscp 3", ""),
    ("eos", "qos profile theirs\n   qos trust dscp", ""),
    (
        "eos",
        "ntp qos dscp 46\nqueue-monitor length\nhardware counter feature qos in",
        "",
    ),
    (
        "eos",
        "interface Ethernet31/1\n   service-profile theirs\ninterface Vlan7\n   ip address 10.9.0.1/24",
        "",
    ),
    ("eos", "qos map dscp 0-20000000 to traffic-class 1", "refused: cannot read"),
    ("icos", f"interface P1\ndatacenter-bridging\n{PFC}\nexit\nexit", "refused: cannot read"),
    # Onyx: single ports and ranges, classes of the plan and others, pools.
    *(
        ("onyx", f"   interface ethernet {line}", line)
        for line in (
            "1/1-1/4 egress-buffer ePort.tc5 map pool ePool1 reserved 2048 shared alpha 1/16",
            "1/1 ingress-buffer iPort.pg5 map pool iPool1 type lossless reserved 9K shared alpha 2",
            "1/1 ingress-buffer iPort.pg3 bind switch-priority 3 5",
            "1/1,1/7 storm-control broadcast level 10",
            "1/1 flowcontrol receive on force",
            "1/1 traffic-class 5 bandwidth guaranteed 5",
            "1/1 hold-back every-packet",
            "1/1 no hold-back",
        )
    ),
    (
        "onyx",
        "   traffic pool roce type lossless\n   traffic pool roce map switch-priority 5",
        "traffic pool roce type",
    ),
    ("onyx", "   roce lossless", "roce lossless"),
    ("onyx", "   advanced buffer management force\n   pool ePool1 size 5242880 type dynamic", "pool ePool1"),
    ("onyx", "   interface vlan 7 qos trust L2", "interface vlan 7 qos trust L2"),
    (
        "onyx",
        "   ipv4 access-list theirs seq-number 10 permit ip any any action mark\n"
        "   interface ethernet 1/1 ipv4 port access-group theirs",
        "port access-group theirs",
    ),
    ("onyx", "   interface ethernet 1/1-1/2 channel-group 7 mode active", "refused: is a member of a LAG"),
    ("onyx", "   interface ethernet 1/1 mlag-channel-group 7 mode on", "refused: is a member of a LAG"),
    *(
        ("onyx", f"   {line}", "")
        for line in (
            "interface ethernet 1/1-1/16 speed 100G force",
            "interface ethernet 1/1 mtu 9216 force",
            "interface ethernet 1/1 description qos of queue 5",
            "interface ethernet 1/1 ip address 10.0.0.1/31 primary",
            "interface ethernet 1/1 egress-buffer ePort.tc3 map pool ePool1 reserved 2048 shared alpha 8",
            "interface ethernet 1/9-1/16 flowcontrol receive on force",
            "traffic pool roce type lossless\n   traffic pool roce map switch-priority 3",
            "interface port-channel 1 storm-control broadcast level 10",
            "interface vlan 7 ip address 10.9.0.1/24",
            "ip access-list theirs permit ip any any\n   lldp\n   protocol mlag",
        )
    ),
    # Enterprise SONiC: on a port, on a VLAN, on the whole switch.
    *(
        ("dell-sonic", f"interface P1\n {line}", line)
        for line in (
            "qos-map dot1p-tc theirs",
            "qos-map tc-dscp theirs",
            "qos-map something-new theirs",
            "storm-control broadcast kbps 1000",
            "flowcontrol both",
            "service-policy type qos out theirs",
            "buffer queue 5 theirs",
            "priority-flow-control priority 5 no-drop",
            "priority-flow-control priority 3,5 enable",
            "priority-flow-control on",
            "hold-back every-packet",
            "no hold-back",
        )
    ),
    ("dell-sonic", "interface P1\n channel-group 7", "refused: is a member of a LAG (channel-group 7)"),
    ("dell-sonic", "service-policy type qos in theirs", "service-policy type qos in theirs"),
    ("dell-sonic", "roce enable pfc-priority 5", "roce enable pfc-priority 5"),
    ("dell-sonic", "buffer profile theirs egress_lossy_pool 0 dynamic-threshold 1", "buffer profile theirs"),
    (
        "dell-sonic",
        "interface P1\n switchport access Vlan 7\ninterface Vlan7\n service-policy type qos in theirs",
        "interface Vlan7: service-policy type qos in theirs",
    ),
    ("dell-sonic", "interface P1.7\n service-policy type qos in theirs", "interface P1.7: service-policy"),
    *(
        ("dell-sonic", text, "")
        for text in (
            "interface P1\n description qos\n mtu 9216\n ipv6 enable\n no shutdown\n ars bind port_pro",
            "interface P1\n priority-flow-control watchdog on detect-time 200\n speed 100000\n fec RS",
            "interface P1\n priority-flow-control priority 3",
            "interface Eth1/31\n storm-control broadcast kbps 1000",
            "line vty\n service-policy type qos in oob-qos-policy",
            "buffer init lossless\nroce enable\nhardware\n access-list\n  counters per-entry",
        )
    ),
    # FASTPATH: on a port, on a VLAN, on the whole switch.
    *(
        ("icos", f"interface P1\n{line}\nexit", line)
        for line in (
            "storm-control broadcast level 5",
            "rate-limit 50",
            "service-policy out theirs",
            "vlan priority 6",
            "priority-flow-control priority 5 no-drop always",
            "priority-flow-control auto",
            "flowcontrol",
            "hold-back every-packet",
            "no hold-back",
        )
    ),
    ("icos", "interface P2\nservice-policy in theirs\nexit", "service-policy in theirs"),
    ("icos", "interface P1\nchannel-group 7 mode active\nexit", "refused: is a member of a LAG"),
    ("icos", "service-policy in theirs", "service-policy in theirs"),
    ("icos", "interface vlan 7\nrate-limit 50\nexit", "interface vlan7: rate-limit 50"),
    ("icos", "ip access-list theirs\npermit ip any any assign-queue 5\nexit", "assign-queue 5"),
    *(
        ("icos", text, "")
        for text in (
            "interface P1\ndescription 'qos'\nmtu 9216\nspanning-tree portfast\nswitchport mode trunk\nexit",
            "interface te1/0/31\nstorm-control broadcast level 5\nexit",
            "policy-map theirs in\nclass theirs\nassign-queue 5\nexit\nexit\nvlan database\nexit",
            "no storm-control broadcast\nsnmp-server host 10.0.0.1 qos",
        )
    ),
    # SONiC: objects of CONFIG_DB on a port, and what a switch of another kind says of itself.
    *(
        ("sonic", f'{{"{table}": {{"{key}": {fields}}}}}', expected)
        for table, key, fields, expected in (
            ("DEVICE_METADATA", "localhost", '{"switch_type": "voq"}', "refused: switch_type is voq"),
            ("DEVICE_METADATA", "localhost", '{"sub_role": "FrontEnd"}', "refused: sub_role is FrontEnd"),
            ("QUEUE", "a," * 100_000 + "b|0-99", "{}", ""),
            ("QUEUE", "leaf1|Asic0|P1|5", '{"scheduler": "theirs"}', "QUEUE|leaf1|Asic0|P1|5"),
            ("BUFFER_QUEUE", "leaf1|Asic0|P1|5", '{"profile": "theirs"}', "BUFFER_QUEUE|leaf1|Asic0|P1|5"),
            ("BUFFER_PG", "P1|0", '{"profile": "theirs"}', "BUFFER_PG|P1|0 profile theirs"),
            ("BUFFER_PG", "P2,P1|0-2", '{"profile": "theirs"}', "profile theirs"),
            ("PORT_STORM_CONTROL", "P1|broadcast", '{"kbps": "1000"}', "PORT_STORM_CONTROL|P1|broadcast"),
            ("PORT_QOS_MAP", "P1", '{"scheduler": "theirs"}', "scheduler theirs"),
            ("PORT_QOS_MAP", "P1", '{"tc_to_dscp_map": "theirs"}', "tc_to_dscp_map theirs"),
            ("PORT_QOS_MAP", "global", '{"tc_to_dscp_map": "theirs"}', "PORT_QOS_MAP|global tc_to_dscp_map"),
            ("PORT", "P1", '{"num_voq": "8"}', "PORT|P1 num_voq 8"),
            ("ACL_TABLE", "theirs", '{"type": "UNDERLAY_SET_DSCP", "ports": ["P1"]}', "ACL_TABLE|theirs"),
            ("POLICY_BINDING_TABLE", "P1", '{"INGRESS_QOS_POLICY": "theirs"}', "POLICY_BINDING_TABLE|P1"),
            ("PORTCHANNEL_MEMBER", "PortChannel1|P1", "{}", ""),
            ("VLAN_MEMBER", "Vlan7|P1", '{"tagging_mode": "tagged"}', ""),
            ("PFC_WD", "P1", '{"action": "drop"}', ""),
            ("BUFFER_PG", "P1|3-4", '{"profile": "pg_lossless_100000_5m_profile"}', ""),
            ("ACL_TABLE", "theirs", '{"type": "L3", "ports": ["P1"]}', ""),
            ("QUEUE", "Ethernet124|5", '{"scheduler": "theirs"}', ""),
        )
    ),
    *(
        ("sonic", f'{{{members}, "{table}": {{"{key}": {fields}}}}}', expected)
        for members in (
            '"PORTCHANNEL_MEMBER": {"L|P1": {}}',
            '"VLAN_MEMBER": {"L|P1": {}}',
            '"PORTCHANNEL_MEMBER": {"PortChannel1|P1": {}}, "VLAN_MEMBER": {"L|PortChannel1": {}}',
        )
        for table, key, fields, expected in (
            ("ACL_TABLE", "theirs", '{"type": "UNDERLAY_SET_DSCP", "ports": ["L"]}', "ACL_TABLE|theirs"),
            ("PORT_STORM_CONTROL", "L|broadcast", '{"kbps": "1000"}', "PORT_STORM_CONTROL|L|broadcast"),
            ("PORT_STORM_CONTROL", "L2|broadcast", '{"kbps": "1000"}', ""),
            ("DHCP_RELAY", "L", '{"dhcpv6_servers": ["2001:db8::1"]}', ""),
        )
    ),
    # Cumulus Linux: objects of an interface, of `qos`, of bonds and VLANs.
    *(
        ("cumulus", tree, expected)
        for tree, expected in (
            ('{"interface": {"bond1": {"bond": {"member": {"P1": {}}}}}}', "refused: is a member of bond1"),
            (
                '{"interface": {"bond1-2": {"bond": {"member": {"swp1-4": {}}}}}}',
                "refused: is a member of bond",
            ),
            ('{"qos": {"roce": {"mode": "lossless"}}}', "qos roce mode lossless"),
            ('{"qos": {"remark": {"default-global": {"rewrite": "l3"}}}}', "qos remark rewrite l3"),
            ('{"qos": {"link-pause": {"default-global": {"rx": "enable"}}}}', "qos link-pause"),
            (
                '{"qos": {"advance-buffer-config": {"default-global": {"egress-lossy-buffer": '
                '{"traffic-class": {"6": {"shared-bytes": 9}}}}}}}',
                "traffic-class 6 shared-bytes 9",
            ),
            ('{"qos": {"traffic-pool": {"t": {"switch-priority": {"5": {}}}}}}', "qos traffic-pool t"),
            ('{"qos": {"traffic-pool": {"default-lossy": {"memory-percent": 9}}}}', "memory-percent 9"),
            ('{"qos": {"something": {"new": "on"}}}', "qos something new on"),
            ('{"interface": {"P1": {"qos": {"something": {"profile": "t"}}}}}', "interface P1 qos something"),
            (
                '{"interface": {"P1": {"qos": {"pfc": {"switch-priority": "5"}}}}}',
                "P1 qos pfc switch-priority",
            ),
            ('{"interface": {"P1": {"storm-control": {"broadcast": 9}}}}', "interface P1 storm-control"),
            (
                '{"acl": {"t": {"rule": {"1": {"action": {"set": {"dscp": 3}}}}}}, "interface": '
                '{"vlan7": {"acl": {"t": {"inbound": {}}}}, "P2": {"bridge": {"domain": {"br": {}}}}}}',
                "interface vlan7 acl t inbound",
            ),
            (
                '{"acl": {"t": {"rule": {"1": {"action": {"set": {"dscp": 3}}}}}}, '
                '"interface": {"P1.7": {"acl": {"t": {"inbound": {}}}}}}',
                "interface P1.7 acl t inbound",
            ),
            ('{"qos": {"traffic-pool": {"t": {"memory-percent": 9, "switch-priority": {"3": {}}}}}}', ""),
            ('{"interface": {"P1": {"link": {"mtu": 9216}, "description": "qos", "lldp": {}}}}', ""),
            ('{"interface": {"bond1": {"bond": {"member": {"swp31": {}}}}}}', ""),
            (
                '{"interface": {"swp0-9999": {"qos": {"mapping": {"p": {"dscp": {"0-9999": {}}}}}}}}',
                "refused: more than 100,000 entries",
            ),
            ('{"interface": {"P1": {"bridge": {"domain": {"br_default": {}}}}}}', ""),
        )
    ),
]


BOTH = [*deploy.Question]


@cache
def plan(platform: str) -> Plan:
    """With a lossless class where the platform has any: flow control for its priority is right."""
    return other_classes.plan(platform, *([ROCE] if platform in WITH_LOSSLESS else []))


@cache
def job(platform: str) -> Job:
    target = target_for(platform)
    cabling = Cabling.of(plan(platform), Inventory((meant(platform),), Path("inventory")))
    return Job(meant(platform), target, target.fit_to_hardware(plan(platform), "leaf1"), cabling)


@cache
def fresh_answers(platform: str) -> Mapping[str, str]:
    return Untouched(platform, "leaf1").ask_all(job(platform).target.queries(job(platform).fitted.state))


def on_ports(platform: str, text: str) -> str:
    for number, port in enumerate(job(platform).fitted.state.ports, start=1):
        text = text.replace(f"P{number}", port.name)
    return text


def with_foreign(platform: str, text: str) -> dict[str, str]:
    """What the switch answers where this is in its configuration: lines, or objects as JSON."""
    answers, query = dict(fresh_answers(platform)), CONFIGURATION[platform]
    text = on_ports(platform, text)
    if text.startswith("{"):
        running = json.loads(answers[query])
        place = (
            running if isinstance(running, dict) else next(part["set"] for part in running if "set" in part)
        )
        merge(place, json.loads(text))
        answers[query] = json.dumps(running)
    else:
        answers[query] += f"\n{text}\n"
    return answers


def merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def looked(platform: str, answers: Mapping[str, str]) -> tuple[RunningState, Change]:
    fitted, target = job(platform).fitted, job(platform).target
    running = target.read(answers, fitted.state, fitted.capabilities)
    return running, target.diff(running, fitted.state, fitted.capabilities)


@pytest.mark.parametrize(("platform", "text", "expected"), FOREIGN)
def test_what_touches_the_plan_is_named_and_no_line_removes_it(
    platform: str, text: str, expected: str
) -> None:
    answers, expected = with_foreign(platform, text), on_ports(platform, expected)
    if expected.startswith("refused: "):
        begun = time.process_time()
        with pytest.raises(DeviceError) as refusal:
            looked(platform, answers)
        assert time.process_time() - begun < MOST_SECONDS
        assert expected.removeprefix("refused: ") in str(refusal.value)
        return
    _, change = looked(platform, answers)
    if expected:
        assert any(expected in each.found for each in change.stays)
    else:
        assert not change.stays


MANY = "".join(f'"k{number}": "", ' for number in range(20_000))


@pytest.mark.parametrize(
    "text",
    [f'{{"PORT": {{"a": {{{MANY}"b": "", "b": ""}}}}}}']
    + [each.replace("…", each[1] * 20_000) for each in ("A …\1", "\n\n…", "--…x", "1\t…x", "a : b…c")],
    ids=("keys", "name", "lines", "rule", "row", "value"),
)
@pytest.mark.parametrize("platform", KINDS)
def test_no_answer_takes_long_to_read(platform: str, text: str) -> None:
    identify, neighbours = target_for(platform).identify, target_for(platform).neighbours
    identity = Untouched(platform, "leaf1").ask_all(target_for(platform).identity_queries)
    answers = fresh_answers(platform)
    reads: list[Callable[[], object]] = [
        lambda: looked(platform, {query: f"{text}\n{shown}\n{text}" for query, shown in answers.items()}),
        lambda: looked(platform, dict.fromkeys(answers, text)),
        lambda: identify and identify({query: f"{text}\n{shown}" for query, shown in identity.items()}),
        lambda: neighbours and [*neighbours(text)],
    ]
    looked(platform, answers)
    begun = time.process_time()
    for read in reads:
        with suppress(DeviceError), known_form("LLDP"):
            read()
    assert time.process_time() - begun < MOST_SECONDS


@pytest.mark.parametrize(
    ("links", "qdiscs", "rules", "expected"),
    [
        ([{"ifname": "P1", "master": "bond0", "linkinfo": {"info_slave_kind": "bond"}}], [], "", "refused"),
        ([{"ifname": "P1", "xdp": {"mode": 1, "prog": {"id": 7}}}], [], "", "P1 has an XDP program"),
        ([{"ifname": "P1", "master": "br0"}], [("tbf", "br0")], "", "root tbf 7: on br0"),
        (
            [{"ifname": "P1.7", "link": "P1", "linkinfo": {"info_kind": "vlan"}}],
            [("htb", "P1.7")],
            "",
            "root htb 7: on P1.7, which stands above P1",
        ),
        (
            [],
            [],
            "table ip t {\nchain c {\ntype filter hook forward priority 0;\nip dscp set cs1\n",
            "dscp set",
        ),
        (
            [],
            [],
            "chain c {\ntype filter hook postrouting priority 0;\nmeta priority set 1:2\n",
            "priority set",
        ),
        ([], [], 'chain c {\noifname "P1" limit rate over 1 mbytes/second drop\n', "limit rate over"),
        ([], [], "-A POSTROUTING -o P1 -j DSCP --set-dscp 0x01\n", "-j DSCP"),
        *(
            ([], [], f"{rule}\n", rule)
            for rule in (
                'iifname { "eth98", "eth99" } ip dscp set cs0',
                'iifname != "lo" ip dscp set cs0',
                'iifname "eth*" ip6 dscp set cs0',
                "iifname @ports ip dscp set cs0",
                "@nh,8,6 set 0x0",
                "-A POSTROUTING -o eth+ -j DSCP --set-dscp 0x08",
                "-A POSTROUTING ! -o lo -j DSCP --set-dscp 0x08",
                "-A QOS -j DSCP --set-dscp 0x08",
            )
        ),
        ([{"ifname": "br0"}, {"ifname": "P1", "master": "br0"}], [], "-A Q -o br0 -j TOS\n", "-j TOS"),
        ([], [], "-A POSTROUTING -o eth99 -j DSCP --set-dscp 0x01\n", ""),
        ([], [], "-A OUTPUT -j DSCP --set-dscp 0x01\n", ""),
        ([], [], "chain c {\ntype filter hook output priority 0;\nip dscp set cs1\n", ""),
        ([], [], 'chain c {\niifname "eth99" ip dscp set cs1\n', ""),
        ([], [], "chain c {\nip dscp cs1 accept\n", ""),
        (
            [{"ifname": "P1", "master": "br0"}, {"ifname": "eth99", "xdp": {"mode": 1}}],
            [("noqueue", "br0")],
            "",
            "",
        ),
    ],
)
def test_on_linux_what_stands_beside_the_qdiscs_of_a_port_counts(
    links: list[dict[str, Any]], qdiscs: list[tuple[str, str]], rules: str, expected: str
) -> None:
    shown = [
        {"kind": kind, "handle": "0:" if kind == "noqueue" else "7:", "dev": dev, "root": True}
        for kind, dev in qdiscs
    ]
    texts = {LINK_QUERY: json.dumps(links), QDISC_QUERY: json.dumps(shown), RULES_QUERY: rules}
    answers = {query: on_ports("linux", text) for query, text in texts.items()}
    state, expected = job("linux").fitted.state, on_ports("linux", expected)
    read = target_for("linux").queries(state)
    assert texts.keys() <= {*read}
    if expected == "refused":
        with pytest.raises(PreflightError, match="is a member of bond0"):
            list(elsewhere(answers, state))
        return
    found = list(elsewhere(answers, state))
    assert [expected in each for each in found] == ([True] if expected else [])


@pytest.mark.parametrize("platform", KINDS)
def test_a_fresh_switch_has_nothing_that_no_line_removes(platform: str) -> None:
    _, change = looked(platform, fresh_answers(platform))
    assert change.steps
    assert not change.stays


MARK = re.compile(r"end|configure session mltswitch-1-\S+(?: abort)?|.* /run/lock/mltswitch", re.DOTALL)
"""What says that somebody is at work, and configures nothing."""


class Untouched(Typed):
    """A session with a switch whose configuration has more, and to which nothing may be sent."""

    def __init__(self, platform: str, name: str, text: str = "") -> None:
        super().__init__(KINDS[platform](name))
        query = CONFIGURATION[platform]
        self._answers = {query: with_foreign(platform, text)[query]} if text else {}

    def apply(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if not MARK.fullmatch(step.command):
                pytest.fail(f"sent {step}")
            self.ask(step.command)

    def ask(self, command: str) -> str:
        shown = super().ask(command)
        return self._answers.get(command, shown)


def rack(platform: str, texts: Mapping[str, str]) -> tuple[Inventory, Fleet]:
    """Switches by name, and what somebody else has set on each; none of them may be sent anything."""
    devices = tuple(
        dataclasses.replace(meant(platform), name=name, switch=name, port=number)
        for number, name in enumerate(texts, start=1)
    )

    def connected(device: Device, _target: Target) -> AbstractContextManager[Session]:
        return nullcontext(Untouched(platform, device.name, texts[device.name]))

    return Inventory(devices, Path("inventory")), Fleet(connector=connected)


CANNOT = {
    "cumulus": '{"qos": {"roce": {"mode": "lossless"}}}',
    "icos": "interface P1\nstorm-control broadcast level 5",
    "dell-sonic": "interface P1\n qos-map dot1p-tc theirs",
    "sonic": '{"PORT_STORM_CONTROL": {"P1|broadcast": {"kbps": "1000"}}}',
    "eos": "interface P1\n   service-profile theirs",
    "onyx": "   interface ethernet 1/1 flowcontrol receive on force",
}
"""Platform → what stands in the way of a push."""


@pytest.mark.parametrize("platform", CANNOT)
def test_what_cannot_be_removed_refuses_the_push_before_its_first_line(platform: str) -> None:
    line = {"cumulus": "qos roce mode lossless", "sonic": "PORT_STORM_CONTROL|P1|broadcast"}.get(
        platform, CANNOT[platform].split("\n")[-1].strip()
    )
    line = on_ports(platform, line)
    inventory, fleet = rack(platform, {"leaf1": CANNOT[platform]})
    report = deploy.diff(plan(platform), inventory, fleet=fleet)
    [shown] = report.devices
    assert (shown.status, report.exit_code) == (Status.CANNOT, 5)
    cannot = next(each for each in shown.differences if each.cannot)
    assert line in cannot.found
    assert line in str(cannot)
    assert "cannot" in str(cannot)
    for rollout in (Rollout(), Rollout(atomic=True)):
        report = deploy.push(plan(platform), inventory, accept=BOTH, rollout=rollout, fleet=fleet)
        [pushed] = report.devices
        assert (pushed.status, report.exit_code) == (Status.FAILED, 4)
        assert line in pushed.error
        assert "Nothing was sent" in pushed.error


@pytest.mark.parametrize("platform", CANNOT)
def test_of_an_atomic_change_no_device_is_touched_where_one_cannot(platform: str) -> None:
    inventory, fleet = rack(platform, {"leaf2": "", "leaf1": CANNOT[platform]})
    report = deploy.push(plan(platform), inventory, accept=BOTH, rollout=Rollout(atomic=True), fleet=fleet)
    assert [each.status for each in report.devices] == [Status.NOT_BEGUN, Status.FAILED]


EOS_PFC = "   priority-flow-control on\n   priority-flow-control priority 3 no-drop"
ICOS_PFC = "datacenter-bridging\npriority-flow-control mode on\npriority-flow-control priority 7 no-drop\n"
LOSSLESS = [
    (
        "dell-sonic",
        "qos map dscp-tc theirs\n dscp 24-31 traffic-class 3\n!\ninterface P1\n qos-map dscp-tc theirs\n"
        " priority-flow-control priority 3",
        "loses DSCP 24, 25, 27, 28, 29, 30, 31 on P1",
    ),
    ("sonic", '{"PORT_QOS_MAP": {"P2": {"pfc_enable": ""}, "P3": {"pfc_enable": ""}}}', "loses DSCP 3 on P1"),
    (
        "cumulus",
        '{"interface": {"P1": {"qos": {"mapping": {"profile": "t"}, "pfc": {"profile": "t"}}}}, '
        '"qos": {"mapping": {"t": {"trust": "l3"}}, "pfc": {"t": {"switch-priority": {"3": {}}}}}}',
        "loses DSCP 24, 25, 26, 27, 28, 29, 30, 31 on P1",
    ),
    (
        "cumulus",
        '{"interface": {"P1": {"qos": {"pfc": {"profile": "t"}}}}, "qos": {"pfc": {"t": {"switch-priority": '
        '{"3": {}}}}}}',
        "loses what `qos mapping default-global trust l2` leads to it on P1",
    ),
    ("eos", f"interface P1\n   no switchport\n{EOS_PFC}", "loses DSCP 24, 25, 27, 28, 29, 30, 31 on P1"),
    ("eos", f"interface P1\n{EOS_PFC}", "loses what `qos trust cos, qos cos 0` leads to it on P1"),
    ("eos", f"interface P1\n   no qos trust\n   qos cos 3\n{EOS_PFC}", "what `qos trust none, qos cos 3`"),
    (
        "eos",
        f"interface Ethernet31/1\n   no switchport\n{EOS_PFC}\ninterface Ethernet30/1\n{EOS_PFC}",
        "loses DSCP 24, 25, 27, 28, 29, 30, 31 on Ethernet31/1",
    ),
    (
        "icos",
        f"interface te1/0/31\nclassofservice trust ip-dscp\n{ICOS_PFC}exit\nexit\n"
        f"interface te1/0/30\nclassofservice trust dot1p\n{ICOS_PFC}exit\nexit",
        "loses DSCP 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63 on te1/0/31",
    ),
]
"""Platform, flow control for priorities of a port, and what it would lose."""


@pytest.mark.parametrize(("platform", "text", "expected"), LOSSLESS)
def test_what_a_running_lossless_class_would_lose_is_a_question(
    platform: str, text: str, expected: str
) -> None:
    expected = on_ports(platform, expected)
    inventory, fleet = rack(platform, {"leaf1": text})
    [shown] = deploy.diff(plan(platform), inventory, fleet=fleet).devices
    assert len({each.port for each in shown.loses}) == 1
    if job(platform).fitted.leak:  # which has to be accepted, too
        with pytest.raises(UnsupportedPlanError, match="--accept-leak"):
            deploy.push(plan(platform), inventory, accept=[deploy.Question.LOSSLESS], fleet=fleet)
    accept = [deploy.Question.LEAK]
    [pushed] = deploy.push(plan(platform), inventory, accept=accept, fleet=fleet).devices
    assert pushed.status is Status.FAILED
    assert expected in pushed.error
    assert "--accept-lossless" in pushed.error
    agreed = {"leaf1": shown.loses}
    with pytest.raises(pytest.fail.Exception, match="sent"):
        deploy.push(plan(platform), inventory, accept=accept, may_lose=agreed, fleet=fleet)
