"""The bundled profiles against the reference implementations."""

import hashlib

import pytest

from mltswitch.errors import UserInputError
from mltswitch.profile import bundled_names, bundled_profile, profile_sha256

PARAMETERS = {
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
    "alexnet": 61_100_840,
    "mobilenet": 4_231_976,
    "googlenet": 6_624_904,
    "inception-v3": 27_161_264,
    "bert-base": 109_482_240,
    "gpt2-small": 124_439_808,
    "t5-3b": 2_851_598_336,
}
# SHA-256 over one line "name shape" for each parameter, in the order in which forward hooks saw them in
# torchvision 0.28 or 0.29 (the first seven) and transformers 5.23 (the others): made from those, not here.
REFERENCE_TENSORS = {
    "resnet50": "16951cb1028a48e7df8731a7b215c74c893009acb1e9573647369f361ad03670",
    "resnet101": "437e6325ef57b8f44eeec1a4497b1b6f96fcf2bd256f58069fb6190d898dc415",
    "resnet152": "49c1aa1b11b9d082b00128edaa8854a5621ae5633e974330ceb5763d77afc18f",
    "alexnet": "25c71b0a8ccd1962eb983e966250035b0f3909510528cf58fc7bb93d36ea4e5e",
    "vgg16": "9eb5cb12aeb518661a363bb6979eee408b0ff9c6d31f82b8824f90609d03efc2",
    "googlenet": "5e561e97fdc69eae0fa5e2e59fe01ff86b6efde6d115a6397ce74ac1f33a75d8",
    "inception-v3": "727f34f46cc7c3579a82a44ec93c4139f35a97be8c5f51ddf59245c62821b0ac",
    "bert-base": "209a7160fa1f9f8c22d2bfbc4fe49f1abf90d8a1ecd103c72a457241b3e1153b",
    "gpt2-small": "784a05d3a2d78b1fffec9e5c151c69a473f0c4425c3c1b94d950b21aa3558f93",
    "t5-3b": "6e1498500f576eec93b7cc5b92b7550a8d3b630675497a5ce2f7891dd6864159",
}


def test_names() -> None:
    assert bundled_names() == tuple(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_published_counts(name: str) -> None:
    profile = bundled_profile(name)
    assert profile.name == name
    assert profile.total_parameters == PARAMETERS[name]
    assert profile.total_bytes == 4 * PARAMETERS[name]
    assert profile.source
    assert profile.parameter_convention


@pytest.mark.parametrize("name", REFERENCE_TENSORS)
def test_tensors_in_the_order_of_the_reference_implementation(name: str) -> None:
    lines = [
        f"{tensor.name} {'x'.join(map(str, tensor.shape))}"
        for layer in bundled_profile(name).layers
        for tensor in layer.tensors
    ]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == REFERENCE_TENSORS[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_tensors_belong_to_their_layer(name: str) -> None:
    for layer in bundled_profile(name).layers:
        assert all(tensor.name.rpartition(".")[0] == layer.name for tensor in layer.tensors)


def test_shortcut_runs_after_the_convolutions_of_its_block() -> None:
    names = [layer.name for layer in bundled_profile("resnet50").layers]
    assert names[:2] == ["conv1", "bn1"]
    assert names[-1] == "fc"
    block = [name.removeprefix("layer2.0.") for name in names if name.startswith("layer2.0.")]
    assert block == ["conv1", "bn1", "conv2", "bn2", "conv3", "bn3", "downsample.0", "downsample.1"]


def test_auxiliary_classifier_runs_where_it_reads_and_is_all_that_training_adds() -> None:
    profile = bundled_profile("inception-v3")
    auxiliary = [layer for layer in profile.layers if layer.name.startswith("AuxLogits.")]
    assert profile.total_parameters - sum(layer.parameters for layer in auxiliary) == 23_834_568
    assert "23,834,568" in profile.parameter_convention
    first = profile.layers.index(auxiliary[0])
    assert profile.layers[first : first + len(auxiliary)] == tuple(auxiliary)
    assert profile.layers[first - 1].name == "Mixed_6e.branch_pool.bn"
    assert profile.layers[first + len(auxiliary)].name == "Mixed_7a.branch3x3_1.conv"


@pytest.mark.parametrize(("name", "layer"), [("gpt2-small", "transformer.wte"), ("t5-3b", "shared")])
def test_tied_embedding_stands_once_in_front(name: str, layer: str) -> None:
    profile = bundled_profile(name)
    assert profile.layers[0].name == layer
    assert not any("lm_head" in entry.name for entry in profile.layers)
    assert layer in profile.parameter_convention


def test_hash_tells_profiles_apart_and_stays() -> None:
    first = {name: profile_sha256(bundled_profile(name)) for name in PARAMETERS}
    assert len(set(first.values())) == len(PARAMETERS)
    bundled_profile.cache_clear()
    assert first == {name: profile_sha256(bundled_profile(name)) for name in PARAMETERS}


def test_unknown_name() -> None:
    with pytest.raises(UserInputError) as caught:
        bundled_profile("ResNet-50")
    assert str(caught.value) == (
        "unknown profile 'ResNet-50' (expected one of resnet50, resnet101, resnet152, vgg16, alexnet, "
        "mobilenet, googlenet, inception-v3, bert-base, gpt2-small, t5-3b, or a file). Did you mean resnet50?"
    )
