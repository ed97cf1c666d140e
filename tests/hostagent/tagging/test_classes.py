"""From layers to code points, and many priorities in two queues."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mltswitch.errors import UserInputError
from mltswitch.hostagent import AgentConfig
from mltswitch.hostagent.planned import planned_classes
from mltswitch.hostagent.tagging.classes import Classes, JobPlace, TwoQueues
from mltswitch.plan import Plan
from mltswitch.plan.document import ClassKind
from mltswitch.profile import bundled_profile

HIGH, LOW = 34, 10


def test_every_layer_has_the_class_that_the_plan_gives_it(lab_plan: Plan) -> None:
    profile = bundled_profile("resnet50")
    classes = planned_classes(lab_plan, profile)
    gradients = lab_plan.gradient_classes
    assert classes.layers == len(profile.layers)
    for number, layer in enumerate(profile.layers):
        expected = gradients[number * len(gradients) // len(profile.layers)]
        names: list[int | str] = [number, layer.name, *(tensor.name for tensor in layer.tensors)]
        for name in names:
            assert classes.layer_number(name) == number
            assert classes.of_layer(name) == expected.dscp[0]


def test_without_a_profile_the_names_that_the_plan_has(lab_plan: Plan) -> None:
    classes = planned_classes(lab_plan)
    for entry in lab_plan.gradient_classes:
        assert entry.layers is not None
        for name in (entry.layers.first_name, entry.layers.last_name):
            assert classes.of_layer(name) == entry.dscp[0]
    with pytest.raises(UserInputError, match="no layer or tensor"):
        classes.of_layer(bundled_profile("resnet50").layers[1].name)


def test_classes_by_name(lab_plan: Plan) -> None:
    classes = planned_classes(lab_plan)
    for entry in lab_plan.classes:
        if entry.kind in (ClassKind.GRADIENT, ClassKind.BACKGROUND):
            assert classes.of_class(entry.name) == entry.dscp[0]
        else:
            with pytest.raises(UserInputError, match=r"cannot travel in class .*expected gradient-0, "):
                classes.of_class(entry.name)


@given(layer=st.integers(-5, 80) | st.text(max_size=5))
def test_any_layer_has_a_code_point_or_one_line(lab_plan: Plan, layer: int | str) -> None:
    classes = planned_classes(lab_plan)
    try:
        assert classes.of_layer(layer) in classes.gradient_dscp
    except UserInputError as error:
        assert error.where == "layer"
        assert not isinstance(layer, int) or not 0 <= layer < (classes.layers or 0)


def test_classes_of_a_list() -> None:
    classes = Classes(control_dscp=40, gradient_dscp=(34, 36), layers=4)
    assert [classes.of_layer(layer) for layer in range(4)] == [34, 34, 36, 36]
    with pytest.raises(UserInputError, match="there is no layer 4"):
        classes.of_layer(4)
    with pytest.raises(UserInputError, match="Names need a plan"):
        classes.of_layer("conv1")
    assert Classes(control_dscp=0, gradient_dscp=(0,)).of_layer(999) == 0
    with pytest.raises(UserInputError, match=r"classes\.layers: which of 2 classes carries layer 1"):
        Classes(control_dscp=40, gradient_dscp=(34, 36)).of_layer(1)
    with pytest.raises(UserInputError, match=r"expected gradient-0, gradient-1\)"):
        classes.of_class("background")


@pytest.mark.parametrize(
    "fields",
    [
        {"control_dscp": 48},
        {"control_dscp": 34},
        {"gradient_dscp": ()},
        {"gradient_dscp": (34, 34)},
        {"gradient_dscp": (64,)},
        {"first_layers": (0,)},
        {"first_layers": (1, 2)},
        {"first_layers": (0, 0)},
        {"names": {"x": -1}},
    ],
)
def test_classes_that_cannot_be(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Classes.model_validate({"control_dscp": 40, "gradient_dscp": (34, 36)} | fields)


@given(events=st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=60), foremost=st.integers(1, 4))
def test_the_foremost_unfinished_layers_are_high(events: list[tuple[bool, int]], foremost: int) -> None:
    """And each change is told, so that whoever retags what it is told has every code point right."""
    queues = TwoQueues(HIGH, LOW, foremost)
    running: Counter[int] = Counter()
    tagged: dict[int, int] = {}
    for starts, layer in events:
        if starts:
            tagged.setdefault(layer, queues.dscp(layer))
            changed = queues.started(layer)
            running[layer] += 1
        elif running[layer]:
            changed = queues.finished(layer)
            running[layer] -= 1
            if not running[layer]:
                del tagged[layer]
        else:
            continue
        assert all(tagged[other] != queues.dscp(other) for other in changed)
        tagged |= {other: queues.dscp(other) for other in changed}
        unfinished = sorted(entry for entry, count in running.items() if count)
        assert tagged == {entry: HIGH if place < foremost else LOW for place, entry in enumerate(unfinished)}
        for asked in range(8):
            before = [entry for entry in unfinished if entry < asked]
            assert queues.dscp(asked) == (HIGH if len(before) < foremost else LOW)


def test_the_backward_pass() -> None:
    queues = TwoQueues(HIGH, LOW)
    assert queues.started(2) == frozenset()
    assert queues.started(1) == {2}
    assert queues.started(0) == {1}
    assert queues.started(0) == queues.finished(0) == frozenset()
    assert queues.finished(0) == {1}
    assert queues.finished(1) == {2}


@given(st.integers(1, 20), st.integers(1, 20))
def test_jobs_have_classes_of_their_own_in_the_order_of_their_numbers(points: int, of: int) -> None:
    classes = Classes(control_dscp=63, gradient_dscp=tuple(range(points)), layers=50)
    if of > points:
        with pytest.raises(UserInputError, match=f"{of} jobs, and the switches have {points} gradient class"):
            classes.of_job(JobPlace(number=0, of=of))
        return
    jobs = [classes.of_job(JobPlace(number=number, of=of)) for number in range(of)]
    assert sum((each.gradient_dscp for each in jobs), ()) == classes.gradient_dscp
    for each in jobs:
        assert len(each.gradient_dscp) >= points // of
        assert each.of_layer(0) == each.gradient_dscp[0]
        assert each.of_layer(49) == each.gradient_dscp[-1]


def test_a_job_is_one_of_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="2 jobs have the numbers 0 to 1"):
        JobPlace(number=2, of=2)
    places = {"control_dscp": 63, "gradient_dscp": (8, 10, 12, 14), "layers": 8, "first_layers": (0, 1, 2, 5)}
    config = AgentConfig.model_validate(
        {"name": "h", "classes": places, "job": {"number": 1, "of": 2}}
    ).resolved()
    assert config.classes is not None
    assert config.classes.gradient_dscp == (12, 14)
    assert [config.dscp(layer) for layer in (0, 3, 4, 7)] == [12, 12, 14, 14]
    assert config.dscp_of_class("gradient-0") == 12
