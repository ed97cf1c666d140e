"""OpenConfig over gNMI, against a simulated switch: laws over random plans, and pushes by an operator."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.deploy import Question, Status, change, connect, push, resume, rollback, verify
from mltswitch.deploy.session import Session
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.hostagent.security.certificates import issue
from mltswitch.inventory import Device, Inventory, Secret
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import Change, RunningState, SwitchState, hardware_capabilities
from mltswitch.targets.openconfig import TARGET
from mltswitch.targets.state import differences
from tests.deploy.doubles import device
from tests.plan.examples import SMALL
from tests.targets.openconfig.server import EOS_LIKE, SR_LINUX_LIKE, Switch, System, serving
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

CAPABILITIES = TARGET.hardware(None)
PLANS = plans(CAPABILITIES)
BOTH = pytest.mark.parametrize("system", [EOS_LIKE, SR_LINUX_LIKE], ids=["eos", "sr-linux"])
few = settings(max_examples=max(LAW_EXAMPLES // 4, 3), deadline=None, suppress_health_check=list(HealthCheck))
ALL = [*Question]
PORT, LAG = "/qos/interfaces/interface[interface-id=Ethernet1/1", "/interfaces/interface[name=Ethernet1/1]"
FOREIGN = {
    "/qos/classifiers/classifier[name=theirs]/config/name": "theirs",
    "/qos/classifiers/classifier[name=theirs]/config/type": "IPV4",
    f"{PORT}7]/config/interface-id": "Ethernet1/17",
    f"{PORT}7]/input/classifiers/classifier[type=IPV4]/config/type": "IPV4",
    f"{PORT}7]/input/classifiers/classifier[type=IPV4]/config/name": "theirs",
}


@pytest.fixture(autouse=True)
def _operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SWITCH_PASSWORD", "secret")
    monkeypatch.setenv("MLTSWITCH_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("mltswitch.deploy.comparison.RETRY_SECONDS", 0.01)
    monkeypatch.setattr("mltswitch.deploy.gnmi.SETTLE_SECONDS", 0.2)
    monkeypatch.setattr("mltswitch.deploy.transaction.LINE_SECONDS", 0.01)


def reached_at(port: int, name: str = "leaf1", **changes: Any) -> Device:
    password = Secret("mltswitch_password_env", "SWITCH_PASSWORD")
    fields = {"platform": "openconfig", "switch": name, "port": port, "password": password, "plaintext": True}
    return device(name, **(fields | changes))


@contextmanager
def rack(*switches: Switch, **changes: Any) -> Iterator[Inventory]:
    with ExitStack() as stack:
        ports = [stack.enter_context(serving(each)) for each in switches]
        devices = [reached_at(port, f"leaf{n}", **changes) for n, port in enumerate(ports, start=1)]
        yield Inventory(tuple(devices), Path("inventory"))


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Two leaves, whose systems name their ports in their own way."""
    group = {"count": 1, "platform": "openconfig"}
    leaf2 = {"platform": "openconfig", "port_names": {"pattern": "ethernet-1/{n}"}}
    shape = {"spines": group, "leaves": group | {"count": 2, "models": {"leaf2": leaf2}}, "hosts_per_leaf": 1}
    document = SMALL | {"topology": {"leaf_spine": shape}, "ports": {"rate": "10Gbps", "buffer": "1MB"}}
    document["addressing"] = SMALL["addressing"] | {"alias": {"spine1": "10.101.0.0/16"}}
    document["classes"] = SMALL["classes"] | {"gradients": {"dscp": [34, 36, 26]}}
    profile = resolve_profile("resnet50")
    return build_plan(profile, Fabric.model_validate(document), hardware_capabilities, "paper")


@contextmanager
def session(switch: Switch) -> Iterator[Session]:
    with serving(switch) as port, connect(reached_at(port), TARGET) as session:
        yield session


def read(typed: Session, wanted: SwitchState) -> RunningState:
    return TARGET.read(typed.ask_all(TARGET.queries(wanted)), wanted, CAPABILITIES)


def enter(typed: Session, wanted: SwitchState) -> Change:
    change = TARGET.diff(read(typed, wanted), wanted, CAPABILITIES)
    typed.apply(change.steps)
    return change


def state_of(data: st.DataObject, plan: Plan) -> SwitchState:
    return TARGET.fit_to_hardware(plan, data.draw(switch_names(plan))).state


@BOTH
@few
@given(st.data(), PLANS, PLANS)
def test_a_change_leads_from_any_plan_to_any_other(
    system: System, data: st.DataObject, first: Plan, second: Plan
) -> None:
    switch = Switch(system, config=dict(FOREIGN))
    with session(switch) as typed:
        for wanted in (state_of(data, first), state_of(data, second)):
            assert enter(typed, wanted).stays == ()
            running = read(typed, wanted)
            assert differences(wanted, running.state) == ()
            assert TARGET.diff(running, wanted, CAPABILITIES).is_empty
            assert FOREIGN.items() <= switch.config.items()


@BOTH
@few
@given(st.data(), PLANS, PLANS)
def test_the_way_back_restores_what_was(
    system: System, data: st.DataObject, first: Plan, second: Plan
) -> None:
    """Also a classifier of somebody else that a port had; the protocol of static routes stays."""
    switch, wanted = Switch(system, config=dict(FOREIGN)), state_of(data, second)
    name = wanted.ports[0].name
    for path, value in FOREIGN.items():
        switch.config[path.replace("Ethernet1/17", name)] = value.replace("Ethernet1/17", name)
    with session(switch) as typed:
        if data.draw(st.booleans(), "another plan ran before"):
            enter(typed, state_of(data, first))
        before, config = read(typed, wanted).answers, dict(switch.config)
        enter(typed, wanted)
        way_back = TARGET.restore(before, read(typed, wanted), wanted, CAPABILITIES)
        typed.apply(way_back.steps)
        left = {path: value for path, value in switch.config.items() if config.get(path) != value}
        assert config.items() <= switch.config.items()
        assert all(re.search(r"/protocol\[[^/]*/config/", path) for path in left)
        assert TARGET.restore(before, read(typed, wanted), wanted, CAPABILITIES).is_empty


def test_one_plan_is_pushed_and_verified_on_two_systems(plan: Plan) -> None:
    switches = Switch(EOS_LIKE), Switch(SR_LINUX_LIKE, "leaf2")
    with rack(*switches) as inventory:
        first, second = (push(plan, inventory, accept=ALL).devices for _ in range(2))
        assert [(each.status, each.error) for each in first] == [(Status.CHANGED, "")] * 2
        assert [(each.status, each.change) for each in second] == [(Status.OK, "")] * 2
        assert [len(each.sets) for each in switches] == [1, 1]
        assert verify(plan, inventory).exit_code == 0
        assert "mltswitch-queue" in str(switches[0].config)
        assert "mltswitch-queue" not in str(switches[1].config), "queues keep the names that they have"
        curve = next(path for path in switches[1].config if path.endswith("/min-threshold"))
        switches[1].config |= {curve: "25600", curve.replace("min-", "max-"): "25600"}
        [_, told] = verify(plan, inventory).devices
        assert ("ecn_threshold_bytes", "25600") in {(each.field, each.found) for each in told.differences}
        assert push(plan, inventory, accept=ALL).exit_code == 0
        assert verify(plan, inventory).exit_code == 0
        switches[0].fault = "lag"
        [told, _] = verify(plan, inventory).devices
        assert "which is not what is configured" in told.differences[0].found


THEIRS = {
    "/qos/classifiers/classifier[name=Ethernet1/1]/config/name": "Ethernet1/1",
    "/qos/classifiers/classifier[name=Ethernet1/1]/config/type": "IPV4",
}
OTHER_VRF = "/network-instances/network-instance[name=DEFAULT]"
OTHER_PROTOCOL = f"{OTHER_VRF}/protocols/protocol[identifier=STATIC][name=STATIC]"
THEIR_HOP = f"{OTHER_PROTOCOL}/static-routes/static[prefix=192.0.2.0/24]/next-hops/next-hop[index=0]"
VRF = {
    f"{OTHER_VRF}/config/name": "DEFAULT",
    f"{OTHER_VRF}/config/type": "openconfig-network-instance-types:L3VRF",
    f"{OTHER_PROTOCOL}/config/name": "STATIC",
    f"{OTHER_PROTOCOL}/config/identifier": "openconfig-policy-types:STATIC",
    f"{THEIR_HOP.partition('/next-hops')[0]}/config/prefix": "192.0.2.0/24",
    f"{THEIR_HOP}/config/index": "0",
    f"{THEIR_HOP}/interface-ref/config/interface": "Ethernet1/1",
}


@pytest.mark.parametrize(
    "switch",
    [
        Switch(System("DEFAULT", "static", tuple(map(str, range(8))), "2.2.0", is_piecewise=True)),
        Switch(config=dict(THEIRS)),
        Switch(config=dict(VRF)),
        Switch(config=dict(THEIRS), is_listing=True),
    ],
    ids=[
        "queues are called 0 to 7",
        "a classifier is called like a port",
        "a VRF is called DEFAULT",
        "lists",
    ],
)
def test_what_others_call_like_ours_is_pushed_beside_and_stays(switch: Switch, plan: Plan) -> None:
    before = dict(switch.config)
    with rack(switch) as inventory:
        [pushed] = push(plan, inventory, accept=ALL).devices
        assert (pushed.status, pushed.error) == (Status.CHANGED, "")
        routes = [path for path in switch.config if "static-routes" in path and path not in before]
        assert all(f"[name={switch.system.instance}]/" in path for path in routes)
        assert len(routes) > 3
        assert verify(plan, inventory).exit_code == 0
        [back] = rollback(change(None), inventory).devices
        assert (back.status, back.error) == (Status.ROLLED_BACK, "")
    left = {path for path in switch.config.keys() - before.keys() if "/protocol[" not in path}
    assert (left, before.items() <= switch.config.items()) == (set(), True)


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("end", [resume, rollback])
def test_a_switch_that_dies_in_a_set(fault: str, end: Callable[..., Any], plan: Plan) -> None:
    switch = Switch(fault=fault)
    with rack(switch) as inventory:
        [failed] = push(plan, inventory, accept=ALL).devices
        assert failed.status is Status.FAILED
        assert "cannot be reached" in failed.error
        assert "The change may be partly in effect" in failed.error
        switch.fault = ""
        [ended] = end(change(None), inventory).devices
        assert ended.error == ""
        assert verify(plan, inventory).exit_code == (0 if end is resume else 5)
        assert end is resume or "mltswitch" not in str(switch.config)


class Raced(Switch):
    """Somebody else changes it between the first look and the Set."""

    looks = 0

    def leaves(self) -> dict[str, Any]:
        """As they are, until the change is about to be sent."""
        self.looks += 1
        if self.looks == 7:
            self.config |= FOREIGN
        return super().leaves()


QUEUE_ID = "/qos/queues/queue[name={}]/config/queue-id"
NO_LINE = "no line of a push removes it: port Ethernet1/1: "


@pytest.mark.parametrize(
    ("switch", "said"),
    [
        (Switch(password="another"), "refuses user admin Capabilities: invalid username or password"),  # noqa: S106
        (Switch(fault="dead"), "cannot be reached: Connection refused"),
        (Switch(fault="busy"), "refuses Get: FAILED_PRECONDITION: database: key NOT_FOUND"),
        (Switch(fault="hang"), "has not finished 'Capabilities' after 0.5 s"),
        (Switch(fault="refuse"), "refuses step 1 of 1, 'set': refuses Set: INVALID_ARGUMENT: hardware table"),
        (Raced(), "somebody has changed it meanwhile, so nothing takes effect"),
        (Switch(System(models=("openconfig-interfaces",))), "does not have the model openconfig-qos"),
        (Switch(System(version="0.5.0")), "does not have the model openconfig-qos 0.8.0 (0.5.0)"),
        (Switch(System(version="new")), "the answer to 'capabilities' has another form than known"),
        (
            Switch(hostname="tor7"),
            "says that it is tor7 (serial ABC123, model DCS-7050CX3-32S-F, release 1.2",
        ),
        *(
            (Switch(config=dict.fromkeys(map(QUEUE_ID.format, names), number)), "has another form than known")
            for names, number in (("x", "x"), ("ab", 6), (["x" * 2000], 6))
        ),
        (Switch(config={f"{LAG}/ethernet/config/aggregate-id": "Po7"}), "Ethernet1/1: is a member of Po7"),
        *(
            (Switch(config={f"{PORT}{path}": value}), f"{NO_LINE}{PORT}{path} is {value}")
            for path, value in (
                ("]/input/scheduler-policy/config/name", "theirs"),
                ("]/output/config/buffer-allocation-profile", "theirs"),
                ("]/output/queues/queue[name=x]/config/queue-management-profile", "theirs"),
                ("]/input/classifiers/classifier[type=MPLS]/config/name", "theirs"),
                (".0]/interface-ref/config/interface", "Ethernet1/1"),
            )
        ),
    ],
)
def test_one_line_says_why_nothing_takes_effect(switch: Switch, said: str, plan: Plan) -> None:
    with rack(switch, connect_seconds=0.5) as inventory:
        [failed] = push(plan, inventory, accept=ALL).devices
    assert failed.status is Status.FAILED
    assert said in failed.error
    assert failed.error.startswith(f"leaf1 ({inventory.devices[0].endpoint}): ")
    assert "Nothing was sent" in failed.error or "It runs again what it ran before" in failed.error
    assert "\n" not in failed.error
    assert switch.sets == []


def test_tls_takes_a_certificate_of_the_authority_that_the_inventory_names(tmp_path: Path) -> None:
    authority = issue("authority", datetime.now(UTC), 2)
    certificate = issue("localhost", datetime.now(UTC), 1, authority).pem()
    (tmp_path / "ca.pem").write_bytes(authority.pem()[0])
    with serving(Switch(), certificate) as port:
        leaf = reached_at(port, address="localhost", plaintext=False, ca_file=tmp_path / "ca.pem")
        with connect(leaf, TARGET) as session:
            assert "openconfig-qos" in session.ask("capabilities")
            with pytest.raises(DeviceError, match="has no answer to 'show version'"):
                session.ask("show version")
            session.hang_up()
            with pytest.raises(DeviceError, match="the session has ended"):
                session.ask("config /qos")
        for wrong, said in (
            ({"ca_file": None}, "mltswitch_ca_file"),
            ({"plaintext": True}, "cannot be reached"),
            ({"ca_file": tmp_path}, "cannot be read"),
        ):
            refused = pytest.raises((DeviceError, UserInputError), match=said)
            with refused, connect(replace(leaf, **wrong), TARGET):
                pass


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"weight": 0', '"weight": 5', "/wred/uniform/config/weight is 5"),
        ('"weight": 0', '"weight": "0"', "the type of a value is not that of RFC 7951"),
        ('"openconfig-qos:qos"', '"qos"', "a module's name"),
        ('"priority": "STRICT"', '"priority": "STRICT", "type": "X"', "config/type is 'X'"),
        ('"min-threshold": "', '"min-threshold": "x', "is no document of ours"),
        ('"interface-id": "Eth', '"interface-id": "\\u0007Eth', r"[interface-id=\x07Ethernet1/1]"),
        ("{", "", "is no document of ours"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_with_its_place(old: str, new: str, said: str, plan: Plan) -> None:
    [(name, text)] = TARGET.render(TARGET.fit_to_hardware(plan, "leaf1").state, CAPABILITIES).items()
    assert old in text
    with pytest.raises(UserInputError) as refused:
        TARGET.parse({name: text.replace(old, new, 1)}, CAPABILITIES)
    assert said in str(refused.value)
