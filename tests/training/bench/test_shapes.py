"""Shapes: sizes of a profile's tensors, pauses, gradients that are worth sorting, and names."""

import time
from itertools import pairwise
from math import ceil

import pytest

from mltswitch.errors import UserInputError
from mltswitch.profile import bundled_profile
from mltswitch.training.bench import load_bench_task

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("name", "divisor"), [("shape:vgg16/1000", 1000), ("shape:resnet50/64@0.01", 64)])
def test_tensors_are_the_profiles_over_the_divisor(name: str, divisor: int) -> None:
    profile = bundled_profile(name.partition(":")[2].partition("/")[0])
    model = load_bench_task(name).model()
    expected = [ceil(tensor.elements / divisor) for layer in profile.layers for tensor in layer.tensors]
    assert [parameter.numel() for parameter in model.parameters()] == expected
    assert not [*model.buffers()], "DDP would exchange them"


def test_layers_compute_for_the_same_time_and_gradients_come_in_turn() -> None:
    task = load_bench_task("shape:vgg16/100000@0.32")
    model = task.model()
    batch = next(iter(task.batches(0, 0, 1)))
    came: list[float] = []
    for layer in model:
        first = next(iter(layer.parameters()))
        first.register_post_accumulate_grad_hook(lambda _parameter: came.append(time.perf_counter()))
    started = time.perf_counter()
    loss = task.loss(model, batch)
    forward_seconds = time.perf_counter() - started
    loss.backward()
    assert forward_seconds >= 0.32 / 3
    assert time.perf_counter() - started >= 0.32
    assert len(came) == len(bundled_profile("vgg16").layers)
    assert min(later - first for first, later in pairwise(came)) >= 0.9 * 0.32 * 2 / 3 / len(came)
    sizes = torch.cat([parameter.grad.abs() for parameter in model.parameters() if len(parameter) > 100])
    assert sizes.quantile(0.9) > 3 * sizes.median() / 2 > 0, "large ones and small ones"


@pytest.mark.parametrize(
    "name", ["shape:", "shape:vgg16/0", "shape:vgg16/x", "shape:vgg16@1/2", "shape:vgg@1"]
)
def test_names_of_another_form_are_refused(name: str) -> None:
    with pytest.raises(UserInputError, match=r"shape:PROFILE/DIVISOR@SECONDS|unknown profile|cannot be read"):
        load_bench_task(name)
