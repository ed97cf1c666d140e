"""What we render, and what two systems then run, judged by OpenConfig's own YANG models; what they refuse."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yangson import DataModel

from mltswitch.plan import Plan
from mltswitch.targets.openconfig import TARGET
from mltswitch.targets.openconfig.model import FILE, nest
from mltswitch.targets.state import SwitchState
from tests.targets.openconfig import test_openconfig as gnmi
from tests.targets.openconfig.server import Switch, System
from tests.targets.yang import DATA, data_model, refusal_by

QOS: Final = "openconfig-qos:qos"
GOLDEN: Final = [
    text
    for path in sorted(DATA.parent.glob(f"golden/*/*/{FILE}"))
    if QOS in (text := path.read_text(encoding="utf-8"))
]


@cache
def _model() -> DataModel:
    modules = (DATA / "openconfig-yang").glob("*.yang")
    return data_model([*modules, DATA / "sonic-yang" / "ietf-yang-types.yang"], "openconfig-", "iana-")


def refusal(document: Mapping[str, Any], state: SwitchState) -> str | None:
    """Why the models refuse a document's `/qos` on a switch with the state's ports; None if it is valid."""
    config = {"type": "iana-if-type:ethernetCsmacd"}
    ports = [{"name": port.name, "config": config | {"name": port.name}} for port in state.ports]
    interfaces = {"openconfig-interfaces:interfaces": {"interface": ports}}
    return refusal_by(_model(), {QOS: document[QOS]} | interfaces)


@gnmi.BOTH
@gnmi.few
@given(gnmi.PLANS, st.data())
def test_every_plan_is_valid_as_a_file_and_on_a_device(
    monkeypatch: pytest.MonkeyPatch, system: System, plan: Plan, data: st.DataObject
) -> None:
    monkeypatch.setenv("SWITCH_PASSWORD", "secret")
    state, switch = gnmi.state_of(data, plan), Switch(system, config=dict(gnmi.FOREIGN))
    assert refusal(json.loads(TARGET.render(state, gnmi.CAPABILITIES)[FILE]), state) is None
    with gnmi.session(switch) as typed:
        gnmi.enter(typed, state)
    assert refusal(nest(switch.config), state) is None


@pytest.mark.parametrize("text", GOLDEN)
def test_the_golden_files_are_valid(text: str) -> None:
    assert refusal(json.loads(text), TARGET.parse({FILE: text}, gnmi.CAPABILITIES)) is None


@pytest.mark.parametrize(
    ("pattern", "fault", "said"),
    [
        ('"drop": true(,)', ', "gentle": true,', "RawMemberError: .*/uniform/config/gentle"),
        ('"weight": (0)', '"0"', "/uniform/config/weight. expected uint32"),
        (r'"min-threshold": ("\d+")', "61440", "/uniform/config/min-threshold. expected uint64"),
        ('"max-drop-probability-percent": (100)', "101", "-percent. invalid-type: not in range"),
        (r'"dscp-set": \[(\d+)', "64", "/ipv4/config/dscp-set.* not in range"),
        (r'"queue-id": (\d)', "256", "/config/queue-id. .* expected uint8"),
        ('"priority": "(STRICT)"', "LOWEST", "/config/priority. .* expected enumeration"),
        ('("interface-id": "Ethernet1/1",)', "", "list-key-missing: interface-id"),
        (r'"queue": \[\s+{\s+"name": "(.*)"', "other", "/output/queues/queue.*/name. instance-required"),
        ('"name": "(mltswitch-strict-.*)"', "other", "/output/scheduler-policy/config/name. instance-req"),
        ('"queue-management-profile": "(.*)"', "other", "/config/queue-management-profile. instance-req"),
        ('"name": "(mltswitch-ipv4-.*)"', "other", "/input/classifiers/.*/config/name. instance-required"),
        ('"queue": "(.*)"', "other", "/inputs/input.*/config/queue. instance-required"),
        ('"output-queue": "(.*)"', "other", "/config/output-queue. instance-required"),
        ('"target-group": "(.*)"', "other", "/config/target-group. instance-required"),
        ('"interface": "(.*)"', "Ethernet9/9", "/interface-ref/config/interface. instance-required"),
        ('("input-type": "QUEUE",)', "", "/inputs/input.* config member-not-allowed: queue"),
    ],
)
def test_what_the_models_refuse(pattern: str, fault: str, said: str) -> None:
    """A golden file, in which the group of the pattern is replaced by a fault."""
    text = GOLDEN[0]
    match = re.search(pattern, text)
    assert match
    document = json.loads(text[: match.start(1)] + fault + text[match.end(1) :])
    refused = refusal(document, TARGET.parse({FILE: text}, gnmi.CAPABILITIES))
    assert refused
    assert re.search(said, refused), refused
