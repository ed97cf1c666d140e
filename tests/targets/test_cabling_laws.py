"""What stops a push: cables that lead elsewhere than the plan says, by LLDP, and dangers set by hand."""

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.deploy import Status, diff, push, verify
from mltswitch.deploy.cabling import Cabling
from mltswitch.deploy.comparison import Comparison, cabling_differences, check_cabling
from mltswitch.deploy.prepare import Job
from mltswitch.deploy.session import Session
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device, Inventory
from mltswitch.plan import Fabric, Plan, resolve_fabric
from mltswitch.plan.topology import Topology
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import FittedState, Target, hardware_capabilities, target_for, targets
from switchsim import KINDS, EosDevice
from tests.plan.examples import SMALL
from tests.targets.test_identity_laws import Queries, Typed, meant, reached


def fabric(platform: str) -> Fabric:
    """Two spines and two leaves, two hosts each."""
    group = {"count": 2, "platform": platform}
    shape = {"leaf_spine": {"spines": group, "leaves": group, "hosts_per_leaf": 2}}
    return Fabric.model_validate(SMALL | {"topology": shape, "ports": {"rate": "10Gbps", "buffer": "1MB"}})


def job_of(platform: str, called: str = "") -> Job:
    """Leaf1 of such a fabric, and what spine2 calls itself."""
    topology = Topology(resolve_fabric(fabric(platform), hardware_capabilities))
    names = {switch.name: switch.name for switch in topology.switches}
    if called:
        names = {called if name == "spine2" else name: name for name in names}
    return Job(
        meant(platform),
        target_for(platform),
        cast(FittedState, None),
        Cabling(topology, MappingProxyType(names)),
    )


@pytest.mark.parametrize("platform", [name for name in KINDS if target_for(name).neighbours])
def test_a_cable_of_the_plan_that_leads_elsewhere_is_refused(platform: str) -> None:
    emulated, job = KINDS[platform]("leaf1"), job_of(platform)
    ports = job.cabling.topology.switch("leaf1").ports
    host, _, first, second = ports
    by_plan = {port.name: (port.peer, port.peer_port) for port in ports}
    port_of_others = job.cabling.topology.switch("spine1").ports[1].name
    harmless: tuple[dict[str, tuple[str, str]], ...] = (
        {},
        by_plan,
        {first.name: (f"{first.peer.upper()}.example.net", first.peer_port)},
        {first.name: (first.peer, "Eth" + first.peer_port)},
        {first.name: (first.peer, "02:00:5e:10:00:01"), second.name: (second.peer, "etp7")},
        {host.name: ("another-host", "eth0"), "mgmt0": ("spine2", "swp1")},
        {first.name: ("a-switch-of-somebody-else", port_of_others)},
    )
    for neighbours in harmless:
        emulated.neighbours = neighbours
        check_cabling(job, Typed(emulated))
    crossed = by_plan | {first.name: by_plan[second.name], second.name: by_plan[first.name]}
    emulated.neighbours = crossed
    found, notes = cabling_differences(job, Typed(emulated))
    assert not notes
    assert [each.port for each in found] == [first.name, second.name]
    with pytest.raises(DeviceError) as refused:
        check_cabling(job, Typed(emulated))
    assert (
        f"port {first.name} leads to spine2 {second.peer_port} by LLDP, "
        f"to spine1 {first.peer_port} by the plan's cabling"
    ) in str(refused.value)
    emulated.neighbours = {host.name: ("spine1", first.peer_port)}
    with pytest.raises(DeviceError, match=f"port {host.name} leads to spine1 .* to {host.peer} "):
        check_cabling(job, Typed(emulated))
    emulated.neighbours = {first.name: ("spine1", port_of_others)}
    if job.target.tells_port_names:
        with pytest.raises(DeviceError, match=f"leads to spine1 {port_of_others} by LLDP"):
            check_cabling(job, Typed(emulated))
    else:
        check_cabling(job, Typed(emulated))  # what SONiC tells is an alias


def test_the_inventorys_name_for_a_switch_is_the_one_that_counts() -> None:
    emulated, job = EosDevice("leaf1"), job_of("eos", called="tor7")
    second = job.cabling.topology.switch("leaf1").ports[3]
    emulated.neighbours = {second.name: ("tor7", second.peer_port)}
    check_cabling(job, Typed(emulated))
    emulated.neighbours = {second.name: ("spine2", second.peer_port)}
    check_cabling(job, Typed(emulated))  # no switch calls itself so


def test_what_a_neighbour_says_cannot_steer_a_terminal() -> None:
    emulated, job = EosDevice("leaf1"), job_of("eos")
    first = job.cabling.topology.switch("leaf1").ports[2]
    emulated.neighbours = {first.name: ("spine2", "\x1b[2J\nEthernet")}
    with pytest.raises(DeviceError) as refused:
        check_cabling(job, Typed(emulated))
    assert "\x1b" not in str(refused.value)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return build_plan(resolve_profile("resnet50"), fabric("eos"), hardware_capabilities, "paper")


def test_push_sends_nothing_and_verify_tells_the_difference(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLTSWITCH_STATE", str(tmp_path / "state"))
    emulated = EosDevice("leaf1")
    first = plan.topology.switch("leaf1").ports[2]
    with reached(tmp_path, "eos", emulated) as (leaf, _):
        inventory = Inventory((leaf,), tmp_path)
        before = emulated.configuration
        emulated.neighbours = {first.name: ("spine2", first.peer_port)}
        [report] = push(plan, inventory).devices
        assert report.status is Status.FAILED
        assert "by the plan's cabling" in report.error
        assert "Nothing was sent" in report.error
        assert emulated.configuration == before
        emulated.neighbours = {}
        with monkeypatch.context() as patch:
            patch.setattr("mltswitch.deploy.comparison.cabling_differences", lambda *_: ([], ("not told",)))
            assert all(
                "not told" in each.devices[0].notes for each in (diff(plan, inventory), push(plan, inventory))
            )
        assert push(plan, inventory).exit_code == 0
        emulated.neighbours = {first.name: ("spine2", first.peer_port)}
        found = verify(plan, inventory)
        assert found.exit_code == 5
        [difference] = found.devices[0].differences
        assert str(difference) == (
            f"leaf1 {first.name}: leads to spine2 {first.peer_port} by LLDP, "
            f"to spine1 {first.peer_port} by the plan's cabling"
        )


@pytest.mark.parametrize(
    ("platform", "by_hand"),
    [
        ("cumulus", ("nv set qos pfc default-global switch-priority 7", "nv config apply -y")),
        ("eos", ("configure", "qos rewrite dscp", "end")),
        (
            "icos",
            (
                "configure",
                "interface te1/0/1",
                "datacenter-bridging",
                "priority-flow-control mode on",
                "priority-flow-control priority 7 no-drop",
                "exit",
                "exit",
                "exit",
            ),
        ),
        (
            "dell-sonic",
            ("configure terminal", "interface Eth1/1", "priority-flow-control priority 5", "end"),
        ),
        (
            "onyx",
            (
                "configure terminal",
                "interface ethernet 1/1-1/16 dcb priority-flow-control mode on force",
                "dcb priority-flow-control priority 6 enable",
                "dcb priority-flow-control enable force",
            ),
        ),
        ("sonic", ("sudo sonic-db-cli CONFIG_DB hset 'PORT_QOS_MAP|Ethernet0' pfc_enable 3,6",)),
    ],
)
def test_a_hazard_set_by_hand_is_a_difference_and_stops_a_push(
    platform: str, by_hand: tuple[str, ...], tmp_path: Path
) -> None:
    plan = build_plan(resolve_profile("resnet50"), fabric(platform), hardware_capabilities, "paper")
    leaf, target, typed = meant(platform), target_for(platform), Typed(KINDS[platform]("leaf1"))
    cabling = Cabling.of(plan, Inventory((leaf,), tmp_path))
    job = Job(leaf, target, target.fit_to_hardware(plan, "leaf1"), cabling)

    def connected(_device: Device, _target: Target) -> AbstractContextManager[Session]:
        return nullcontext(typed)

    for line in by_hand:
        typed.ask(line)
    report = Comparison(connected, {}).verify(job)
    assert report.status is Status.DIFFERS
    [difference] = report.differences
    assert "a refusal: " in difference.found
    assert Comparison(connected, {}).diff(job).status is Status.CANNOT


@pytest.mark.parametrize("platform", [name for name, target in targets().items() if target.neighbours])
@given(
    answer=st.text(max_size=60) | st.sampled_from(("[]", "{}", "null", '{"lldp": 3}', "-- -- -- -- --\na"))
)
def test_any_answer_is_neighbours_or_a_note(platform: str, answer: str) -> None:
    class Answers(Queries):
        def ask(self, command: str) -> str:
            del command
            return answer

    job = job_of("eos")
    found, notes = cabling_differences(dataclasses.replace(job, target=target_for(platform)), Answers())
    assert not found
    assert all("\n" not in note for note in notes)
