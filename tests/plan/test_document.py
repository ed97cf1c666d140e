"""The plan file: whatever an editor breaks in it is refused before anything is rendered."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from mltswitch.documents import validate
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan
from tests.planning.test_build import plan_for

Data = dict[str, Any]


@pytest.fixture(scope="module")
def made() -> Data:
    return plan_for(ports__buffer="256kB", classes__gradients__queues=3).model_dump(
        mode="json", by_alias=True
    )


def _queue(data: Data, position: int) -> Data:
    queue: Data = data["port_profiles"][0]["queues"][position]
    return queue


def _swap_classes(data: Data) -> None:
    for listed in (data["classes"], *(profile["queues"] for profile in data["port_profiles"])):
        listed[2], listed[0] = listed[0], listed[2]


def _drop_background(data: Data) -> None:
    for listed in (data["classes"], *(profile["queues"] for profile in data["port_profiles"])):
        listed.pop()


def _same_name(data: Data) -> None:
    for listed, field in ((data["classes"], "name"), (data["port_profiles"][0]["queues"], "traffic_class")):
        listed[3][field] = listed[2][field]


CASES: list[tuple[str, Callable[[Data], Any], str]] = [
    (
        "a gradient on CS6",
        lambda d: d["classes"][2].update(dscp=[48]),
        "CS6 and CS7 belong to routing protocols",
    ),
    ("a DSCP twice", lambda d: d["classes"][3].update(dscp=d["classes"][2]["dscp"]), "DSCP 34 stands twice"),
    ("another order", _swap_classes, "classes: out of the order of service network-control, control"),
    ("no background", _drop_background, "classes: no background"),
    ("a name twice", _same_name, "class gradient-0 stands twice"),
    (
        "two controls",
        lambda d: d["classes"][0].update(kind="control", dscp=[47]),
        "class of kind control stands twice",
    ),
    ("layers of none", lambda d: d["classes"][2].update(layers=None), "gradient-0: gradient classes carry"),
    (
        "layers of control",
        lambda d: d["classes"][1].update(layers=d["classes"][2]["layers"]),
        "control: gradient classes carry layers, and no others do",
    ),
    ("layers backwards", lambda d: d["classes"][3]["layers"].update(last=0), "layers end at 0, before"),
    (
        "a profile twice",
        lambda d: d["port_profiles"].append(d["port_profiles"][0]),
        "port profile linux/default/leaf-down/50000000 stands twice",
    ),
    ("a packet of one byte", lambda d: d["port_profiles"][0].update(packet_bytes=1), "packet_bytes"),
    (
        "no S",
        lambda d: _queue(d, 2).update(ecn_threshold_bytes=None),
        "port_profiles: linux leaf-down: gradient classes have an S, and no others do",
    ),
    ("S on control", lambda d: _queue(d, 1).update(ecn_threshold_bytes=1), "gradient classes have an S"),
    (
        "S above L",
        lambda d: _queue(d, 4).update(ecn_threshold_bytes=250_000),
        "B lies below S = 250000 B",
    ),
    ("a negative limit", lambda d: _queue(d, 0)["limit"].update(size_bytes=-5), "size_bytes"),
    ("an empty limit", lambda d: _queue(d, 0)["limit"].update(size_bytes=0), "size_bytes"),
    (
        "an alpha beyond all",
        lambda d: _queue(d, 0).update(limit={"kind": "alpha", "exponent": 5000}),
        "exponent",
    ),
    (
        "limits beyond the buffer",
        lambda d: d["port_profiles"][0].update(buffer_bytes=100_000),
        "in a buffer of 100000 B",
    ),
    ("a bound above one", lambda d: d["classes"][2].update(loss_bound_important=2), "loss_bound_important"),
    ("another version", lambda d: d.update(schema="mltswitch/plan/v1"), "schema: "),
    (
        "an endless delay",
        lambda d: _queue(d, 2)["prediction"].update(p99_delay_seconds=float("inf")),
        "prediction.p99_delay_seconds",
    ),
]


@pytest.mark.parametrize(("change", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_broken_plans_are_refused(made: Data, change: Callable[[Data], Any], message: str) -> None:
    data = copy.deepcopy(made)
    change(data)
    with pytest.raises(UserInputError) as refusal:
        validate(data, Plan, where="plan.yaml")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("is_ordered", [True, False])
def test_s_rises_with_the_class_unless_the_fabric_leaves_it_free(made: Data, is_ordered: bool) -> None:
    data = copy.deepcopy(made)
    data["fabric"]["classes"]["gradients"]["ordered_thresholds"] = is_ordered
    _queue(data, 3)["ecn_threshold_bytes"] = 1
    _queue(data, 2)["ecn_threshold_bytes"] = 2
    if is_ordered:
        with pytest.raises(UserInputError, match="S of gradient-0 lies above that of gradient-1"):
            validate(data, Plan, where="plan.yaml")
    else:
        assert validate(data, Plan, where="plan.yaml").port_profiles


def test_the_packet_time_of_a_port(made: Data) -> None:
    data = copy.deepcopy(made)
    data["port_profiles"][0].update(rate_bps=10_000_000, packet_bytes=1250)
    assert validate(data, Plan, where="plan.yaml").port_profiles[0].packet_seconds == 0.001
