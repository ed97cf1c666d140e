"""Ways back from a push on FASTPATH that went wrong once."""

from dataclasses import replace
from pathlib import Path

import pytest

from mltswitch.errors import DeviceError
from mltswitch.targets import SwitchState
from mltswitch.targets.icos import TARGET
from mltswitch.targets.remap import HOST_POLICY, policy_of
from mltswitch.wire.tos import every_dscp_but
from switchsim.icos import IcosDevice
from tests.targets.icos.device import CAPABILITIES, policies_of, read
from tests.targets.icos.test_icos import ONE, STATE, WITH_HOSTS
from tests.targets.icos.under_test import IcosUnderTest

UNTRUSTED = SwitchState((replace(ONE, trusted=False, rewritten=every_dscp_but(0)),), ())


def test_a_class_of_others_behind_ours_comes_back_behind_them() -> None:
    switch = IcosUnderTest(CAPABILITIES)
    switch.push(WITH_HOSTS)
    voice = ("class-map match-all voice ipv4", "match vlan 7", "exit")
    switch.configure(*voice, f"policy-map {HOST_POLICY} in", "class voice", "exit", "exit")
    wanted = replace(WITH_HOSTS, ports=(replace(STATE.ports[1], name=WITH_HOSTS.ports[2].name),))
    at_start, before = switch.configuration(), switch.read(wanted)
    switch.push(wanted)
    assert HOST_POLICY not in policies_of(switch.device.configuration)
    switch.apply(switch.way_back(before, wanted))
    assert switch.configuration() == at_start


def test_the_systems_queue_is_named_before_the_push() -> None:
    text = Path(__file__).with_name("example.txt").read_text()
    device, wanted = IcosDevice(), TARGET.parse({"mltswitch.txt": text}, CAPABILITIES)
    running = read(device, wanted)
    shown = "show classofservice ip-dscp-mapping"
    mapped = running.answers[shown].replace("56(cs7)            3", "56(cs7)            7")
    with pytest.raises(DeviceError, match="dscp 56 map 7, for which no command is known"):
        TARGET.restore({**running.answers, shown: mapped}, running, wanted, CAPABILITIES)


def test_guarantees_of_queues_that_are_not_the_plans_stay_on_the_way_back() -> None:
    switch = IcosUnderTest(CAPABILITIES)
    before = switch.read(STATE)
    switch.push(STATE)
    switch.configure("interface te1/0/2", "cos-queue min-bandwidth 0 0 7 0 0 0 0", "exit")
    switch.apply(switch.way_back(before, STATE))
    assert switch.device.fact("te1/0/2", "min-bandwidth") == (0, 0, 7, 0, 0, 0, 0)


def test_a_class_of_somebody_else_keeps_its_place_in_our_policy() -> None:
    switch = IcosUnderTest(CAPABILITIES)
    switch.push(WITH_HOSTS)
    (port,) = (port.name for port in WITH_HOSTS.ports if policy_of(port) == HOST_POLICY)
    names = [f"mltswitch-{dscp}-{family}" for dscp in (48, 56) for family in ("ipv4", "ipv6")]
    ours = [line for name in names for line in (f"class {name}", "assign-queue 0", "exit")]
    head = f"policy-map {HOST_POLICY} in"
    switch.configure(f"interface {port}", f"no service-policy in {HOST_POLICY}", "exit")
    switch.configure(head, *(f"no class {name}" for name in names), "exit")
    switch.configure("class-map match-all theirs ipv4", "match any", "exit")
    switch.configure(head, "class theirs", "assign-queue 5", "exit", *ours, "exit")
    switch.configure(f"interface {port}", f"service-policy in {HOST_POLICY}", "exit")
    before, at_start = switch.read(WITH_HOSTS), switch.configuration()
    switch.push(WITH_HOSTS)
    switch.apply(switch.way_back(before, WITH_HOSTS))
    assert switch.configuration() == at_start


def test_ports_trust_again_before_their_default_queue_comes_back() -> None:
    """Between the two lines packets would lie in a queue that drops early on other ports."""
    switch = IcosUnderTest(CAPABILITIES)
    switch.configure("classofservice trust ip-dscp")
    before = switch.read(UNTRUSTED)
    switch.push(UNTRUSTED)
    lines = [step.command for step in switch.way_back(before, UNTRUSTED).steps]
    trust = max(number for number, line in enumerate(lines) if line == "classofservice trust ip-dscp")
    assert trust < lines.index("classofservice dot1p-mapping 0 1")
