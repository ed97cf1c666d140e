"""Classes of the user's own beside the gradients: in the fabric file, in the plan, and on every switch OS."""

import copy
from typing import Any

import pytest

from mltswitch.capabilities import BytesLimit
from mltswitch.documents import parse_yaml, validate
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan import ClassKind, Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import bundled_profile
from mltswitch.targets import hardware_capabilities, targets

ROCE = {"name": "roce", "dscp": [26], "lossless": True, "load": 0.2}
STORAGE = {"name": "storage", "dscp": [18], "guaranteed_share": 0.3, "load": 0.1, "limit_packets": 64}
TELEMETRY = {"name": "telemetry", "dscp": [16], "place": "above-gradients", "load": 0.01}
BACKUP = {"name": "backup", "dscp": [8], "place": "below-gradients", "load": 0.05}
WITH_LOSSLESS = ("sonic", "dell-sonic", "eos", "onyx")
FABRIC: dict[str, Any] = parse_yaml(
    """
schema: mltswitch/fabric/v1
name: rack
topology: {leaf_spine: {spines: {count: 1}, leaves: {count: 2}, hosts_per_leaf: 1}}
addressing: {hosts: 10.10.0.0/16, links: 10.20.0.0/16, alias: 10.64.0.0/10}
ports: {rate: 10Gbps, buffer: 1MB}
traffic: {load: 0.9}
classes:
  control: {dscp: [40]}
  gradients: {dscp: [34, 36, 28, 20]}
""",
    where="FABRIC",
)


def fabric(platform: str, *others: dict[str, Any], **background: Any) -> Fabric:
    data = copy.deepcopy(FABRIC)
    for tier in ("spines", "leaves"):
        data["topology"]["leaf_spine"][tier]["platform"] = platform
    data["classes"] |= {"others": list(others), "background": background}
    return validate(data, Fabric, where="fabric.yaml")


def plan(platform: str, *others: dict[str, Any]) -> Plan:
    return build_plan(bundled_profile("vgg16"), fabric(platform, *others), hardware_capabilities, "paper")


@pytest.mark.parametrize(
    ("others", "what"),
    [
        (
            [ROCE | {"place": "above-gradients"}],
            "needs exactly one of lossless: true, guaranteed_share and place",
        ),
        ([{"name": "x", "dscp": [18], "load": 0.1}], "x: needs exactly one of lossless: true"),
        ([ROCE | {"limit_packets": 9}], "roce: limit_packets is the operator's for a lossless class"),
        ([ROCE | {"name": "gradient-0"}], "gradient-0 is the name of a class of every plan"),
        ([ROCE, STORAGE | {"name": "roce"}], "others: roce stands twice"),
        ([ROCE, STORAGE | {"dscp": [26]}], "DSCP 26 is given to others: roce and to others: storage"),
        ([ROCE | {"dscp": [34]}], "DSCP 34 is given to gradients and to others: roce"),
        ([ROCE | {"dscp": [48]}], "others: roce.dscp: 48 is CS6"),
        ([STORAGE | {"guaranteed_share": 1.5}], "classes.others[0].guaranteed_share"),
        ([TELEMETRY | {"place": "first"}], "classes.others[0].place"),
        ([TELEMETRY | {"non_ip": True}], "classes.others[0].non_ip: is no field that is known here"),
    ],
)
def test_refused_in_the_fabric_file(others: list[dict[str, Any]], what: str) -> None:
    with pytest.raises(UserInputError) as refusal:
        fabric("linux", *others)
    assert what in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_background_keeps_a_share_beside_others() -> None:
    with pytest.raises(UserInputError, match=r"background\.guaranteed_share is 0"):
        fabric("linux", STORAGE, guaranteed_share=0)


def test_order_of_service_loads_and_limits() -> None:
    made = plan("onyx", ROCE, BACKUP, STORAGE, TELEMETRY)
    names = [entry.name for entry in made.classes]
    assert names == [
        *("network-control", "control", "telemetry", "gradient-0", "backup", "storage", "roce", "background")
    ]
    assert validate(made.model_dump(mode="json", by_alias=True), Plan, where="plan") == made
    left = 1 - 0.001 - 0.005 - 0.05 - 0.2 - 0.05 - 0.3 - 0.01
    assert [entry.rate_cap_share for entry in made.gradient_classes] == [pytest.approx(left)]
    queues = {queue.traffic_class: queue for queue in made.port_profiles[0].queues}
    assert queues["storage"].prediction is not None
    assert (queues["roce"].limit.kind, queues["roce"].prediction) == ("none", None)


def test_limits_are_the_fabrics() -> None:
    (limit,) = {
        queue.limit
        for profile in plan("linux", STORAGE, TELEMETRY).port_profiles
        for queue in profile.queues
        if queue.traffic_class == "storage"
    }
    assert limit == BytesLimit(64 * 1514)


def test_order_of_service_is_checked_in_plans() -> None:
    made = plan("eos", STORAGE, TELEMETRY).model_dump(mode="json", by_alias=True)
    made["classes"][2], made["classes"][3] = made["classes"][3], made["classes"][2]
    with pytest.raises(UserInputError, match="out of the order of service"):
        validate(made, Plan, where="plan.yaml")


@pytest.mark.parametrize("platform", targets())
def test_classes_read_back_and_guarantees_are_set_or_reported(platform: str) -> None:
    made, target = plan(platform, STORAGE, TELEMETRY), targets()[platform]
    fitted = target.fit_to_hardware(made, "leaf1")
    files = target.render(fitted.state, fitted.capabilities)
    assert target.parse(files, fitted.capabilities) == fitted.state
    number = fitted.class_queues["storage"]
    (queue,) = [queue for queue in fitted.state.ports[0].queues if queue.queue == number]
    assert queue.dscps == (18,)
    said = any(text.startswith("storage is not guaranteed its 30 %") for text in fitted.unsupported)
    assert (queue.minimum is None) == said


@pytest.mark.parametrize("platform", targets())
def test_a_lossless_class_keeps_its_queue_or_is_refused_by_name(platform: str) -> None:
    if platform not in WITH_LOSSLESS:
        with pytest.raises(UnsupportedPlanError, match="has no lossless queue for roce") as refusal:
            plan(platform, ROCE)
        assert refusal.value.where == "spine1: classes.others"
        return
    made, target = plan(platform, ROCE), targets()[platform]
    fitted = target.fit_to_hardware(made, "leaf1")
    files = target.render(fitted.state, fitted.capabilities)
    assert target.parse(files, fitted.capabilities) == fitted.state
    for port in fitted.state.ports:
        (queue,) = [queue for queue in port.queues if queue.is_lossless]
        assert (queue.queue, queue.dscps, queue.ecn_threshold_bytes) == (3, (26,), None)
    assert any(sentence.startswith("roce keeps the scheduling") for sentence in fitted.unsupported)
    (text,) = files.values()
    for line in ('"Ethernet0|3"', "\n queue 3\n", "uc-tx-queue 3", "class 3 dcb", "class 3 congestion"):
        assert line not in text


def test_queues_of_other_classes_are_not_the_gradients() -> None:
    count = {len(plan("sonic", *others).gradient_classes) for others in ((), (ROCE,))}
    assert count == {3}
    assert len(plan("sonic", STORAGE, TELEMETRY).gradient_classes) == 1
    assert len(plan("eos", ROCE).gradient_classes) == 3
    with pytest.raises(UnsupportedPlanError, match="6 usable queues, 6 other classes and a gradient need"):
        plan("sonic", STORAGE, TELEMETRY, BACKUP)
    kinds = {entry.kind for entry in plan("eos", ROCE, STORAGE).classes}
    assert {ClassKind.LOSSLESS, ClassKind.WEIGHTED} < kinds
