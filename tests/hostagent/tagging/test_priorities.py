"""From layers to classes and code points, by a plan."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging.priorities import PlanPriorities, Priority
from mltswitch.plan import Plan
from mltswitch.plan.document import ClassKind
from mltswitch.profile import bundled_profile


def test_every_layer_has_the_class_that_the_plan_gives_it(lab_plan: Plan) -> None:
    profile = bundled_profile("resnet50")
    priorities = PlanPriorities(lab_plan, profile)
    gradients = lab_plan.gradient_classes
    assert priorities.layers == len(profile.layers)
    for number, layer in enumerate(profile.layers):
        expected = gradients[number * len(gradients) // len(profile.layers)]
        found = priorities.of_layer(number)
        assert found == Priority(expected.name, expected.dscp[0])
        for name in (layer.name, *(tensor.name for tensor in layer.tensors)):
            assert priorities.layer_number(name) == number
            assert priorities.of_layer(name) == found


def test_without_a_profile_the_names_that_the_plan_has(lab_plan: Plan) -> None:
    priorities = PlanPriorities(lab_plan)
    for entry in lab_plan.gradient_classes:
        assert entry.layers is not None
        for name in (entry.layers.first_name, entry.layers.last_name):
            assert priorities.of_layer(name).traffic_class == entry.name
    between = bundled_profile("resnet50").layers[1].name
    with pytest.raises(UserInputError, match=r"does not name layer .*Give its number"):
        priorities.of_layer(between)
    with pytest.raises(UserInputError, match="no layer or tensor 'head'"):
        PlanPriorities(lab_plan, bundled_profile("resnet50")).of_layer("head")


@pytest.mark.parametrize("layer", [True, 1.0, None, -1])
def test_layers_that_are_none(lab_plan: Plan, layer: Any) -> None:
    with pytest.raises(UserInputError, match=r"^layer: there is no layer"):
        PlanPriorities(lab_plan).layer_number(layer)


def test_profiles_of_other_plans(lab_plan: Plan) -> None:
    with pytest.raises(UserInputError, match=r"^profile 'vgg16': is not the profile 'resnet50'"):
        PlanPriorities(lab_plan, bundled_profile("vgg16"))


@given(layer=st.integers(-5, 80) | st.text(max_size=5))
def test_any_layer_has_a_priority_or_one_line(lab_plan: Plan, layer: int | str) -> None:
    priorities = PlanPriorities(lab_plan)
    try:
        found = priorities.of_layer(layer)
    except UserInputError as error:
        assert error.where == "layer"
        assert not isinstance(layer, int) or not 0 <= layer < priorities.layers
    else:
        assert lab_plan.class_by_name[found.traffic_class].kind is ClassKind.GRADIENT


def test_classes_and_code_points_by_themselves(lab_plan: Plan) -> None:
    priorities = PlanPriorities(lab_plan)
    for entry in lab_plan.classes:
        for_tensors = entry.kind in (ClassKind.GRADIENT, ClassKind.BACKGROUND)
        checks: list[tuple[Any, Any]] = [(priorities.of_class, entry.name)]
        checks += [(priorities.of_dscp, dscp) for dscp in entry.dscp]
        for ask, value in checks:
            if for_tensors:
                assert ask(value).traffic_class == entry.name
                assert ask(value).dscp in entry.dscp
            else:
                with pytest.raises(UserInputError):
                    ask(value)
    with pytest.raises(UserInputError, match=r"cannot travel in class 'control' .expected gradient-0, "):
        priorities.of_class("control")
    unused = next(code for code in range(1, 48) if all(code not in entry.dscp for entry in lab_plan.classes))
    with pytest.raises(UserInputError, match=f"no class for tensors with DSCP {unused}"):
        priorities.of_dscp(unused)


def test_two_queues_take_the_first_and_the_last_class(lab_plan: Plan) -> None:
    queues = PlanPriorities(lab_plan).two_queues(2)
    gradients = lab_plan.gradient_classes
    assert (queues.high, queues.low) == (gradients[0].dscp[0], gradients[-1].dscp[0])
    for layer in (4, 5, 6):
        queues.started(layer)
    assert [queues.dscp(layer) for layer in (4, 5, 6)] == [queues.high, queues.high, queues.low]


def test_two_queues_of_one_class(lab_plan: Plan) -> None:
    others = [entry for entry in lab_plan.classes if entry.kind is not ClassKind.GRADIENT]
    one = lab_plan.model_copy(update={"classes": (*others[:-1], lab_plan.gradient_classes[0], others[-1])})
    with pytest.raises(UserInputError, match="has 1 gradient class"):
        PlanPriorities(one).two_queues()
