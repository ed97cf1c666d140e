"""Profile files: what is accepted, and the one line for what is not."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.profile import (
    ModelProfile,
    bundled_names,
    bundled_profile,
    profile_sha256,
    resolve_profile,
)
from tests.profile import strategies


@given(strategies.profiles())
def test_dump_and_load(profile: ModelProfile) -> None:
    again = ModelProfile.model_validate(yaml.safe_load(dump_yaml(profile)))
    assert again == profile
    assert profile_sha256(again) == profile_sha256(profile)


@pytest.mark.parametrize("name", bundled_names())
def test_bundled_profile_as_a_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(dump_yaml(bundled_profile(name)))
    assert resolve_profile(str(path)) == bundled_profile(name)


def test_json_and_defaults(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(strategies.document()))
    profile = resolve_profile(str(path))
    assert [layer.size_bytes for layer in profile.layers] == [400, 1200]
    assert (profile.total_parameters, profile.total_bytes) == (400, 1600)
    assert profile.sensitivity.unimportant_share == 0.5


def test_element_size_counts() -> None:
    layer = {"name": "a", "tensors": [{"name": "a.scale", "shape": [], "element_bytes": 2}]}
    data = strategies.document(layers=[layer, strategies.document()["layers"][1]])
    assert ModelProfile.model_validate(data).layers[0].size_bytes == 2


def test_hash_sees_the_content_only() -> None:
    profile = ModelProfile.model_validate(strategies.document())
    reordered = ModelProfile.model_validate(dict(reversed(strategies.document().items())))
    renamed = ModelProfile.model_validate(strategies.document(name="other"))
    assert profile_sha256(profile) == profile_sha256(reordered) != profile_sha256(renamed)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The small document with one value replaced."""
    data: Any = strategies.document()
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target = data
    for part in parents:
        target = target[part]
    target[last] = value
    return data  # type: ignore[no-any-return]  # plain data


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("schema", "mltswitch/profile/v2", "schema: must be 'mltswitch/profile/v1'"),
        ("name", "two words", "name: must match"),
        ("colour", "red", "colour: is no field that is known here"),
        ("layers", [], "layers: must have at least 1 item"),
        ("layers.0.tensors", [], "layers[0].tensors: must have at least 1 item"),
        ("layers.1.name", "front", "layer 'front' stands twice"),
        ("layers.1.tensors.0.name", "front.weight", "tensor 'front.weight' stands twice"),
        ("layers.0.tensors.0.shape.1", 0, "layers[0].tensors[0].shape[1]: must be at least"),
        ("layers.0.tensors.0.shape.1", -3, "layers[0].tensors[0].shape[1]: must be at least"),
        ("sensitivity.unimportant_share", 1, "sensitivity.unimportant_share: must be less than 1"),
        ("sensitivity.curves.0.first_layer", 1, "sensitivity: a curve begins at layer 1 instead of 0"),
        ("sensitivity.curves.0.last_layer", 0, "sensitivity.curves cover 1 layers, the model has 2"),
        ("sensitivity.curves.0.last_layer", 2, "sensitivity.curves cover 3 layers, the model has 2"),
        ("sensitivity.curves.0.important", [[0, 0]], "curves[0].important: must have at least 2"),
        ("sensitivity.curves.0.important.0.1", 0.5, "important: starts at [0.0, 0.5] instead of [0, 0]"),
        ("sensitivity.curves.0.important.1.0", 0, "loss ratio 0 does not lie above the 0 before it"),
        ("sensitivity.curves.0.important.1.0", 1e-12, "does not lie above the 0 before it"),
        (
            "sensitivity.curves.0.important.1.0",
            1.5,
            "important[1][0]: must be at most",
        ),
        ("sensitivity.curves.0.important.1.1", float("nan"), "important[1][1]: must be"),
        ("sensitivity.curves.0.unimportant.1.1", 0.4, "extra rounds fall from 0.4 to 0.3"),
    ],
)
def test_one_line_names_the_field(path: str, value: Any, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump(changed(path, value)))
    with pytest.raises(UserInputError) as caught:
        resolve_profile(str(file))
    line = str(caught.value)
    assert line.startswith(f"{file}:")
    assert expected in line
    assert "\n" not in line


@pytest.mark.parametrize("text", ["", "[]", "resnet50", "a: [", "a: 1\na: 2\n"])
def test_no_profile_at_all(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(UserInputError, match=r"bad\.yaml"):
        resolve_profile(str(file))


@pytest.mark.parametrize("name", ["missing.yaml", "./resnet50", "folder/resnet50"])
def test_a_missing_file(name: str) -> None:
    with pytest.raises(UserInputError, match="No such file"):
        resolve_profile(name)


def test_names_go_before_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vgg16").write_text("not a profile")
    (tmp_path / "mine").write_text(dump_yaml(bundled_profile("vgg16")))
    assert resolve_profile("vgg16") == resolve_profile("mine")
