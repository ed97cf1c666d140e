"""A plan that was changed by hand is refused, or predicted anew and marked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan, load_plan
from mltswitch.planning import predict_edited
from mltswitch.profile import bundled_profile
from tests.planning.test_build import capabilities, plan_for

CHANGES: dict[str, Callable[[Any], Any]] = {
    "an S": lambda d: d["port_profiles"][0]["queues"][2].update(ecn_threshold_bytes=3028),
    "a DSCP": lambda d: d["classes"][2].update(dscp=[33]),
    "a prediction": lambda d: d["end_to_end"][0].update(loss_important=0.5),
    "the fabric": lambda d: d["fabric"]["traffic"].update(load=0.5),
    "its hash": lambda d: d["provenance"].update(content_sha256="0" * 64),
}


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan_for("vgg16", "paper", classes__gradients__queues=2)


def test_a_plan_is_read_as_it_was_made(made: Plan, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(dump_yaml(made))
    assert load_plan(tmp_path / "plan.yaml") == made


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_by_hand_is_refused(made: Plan, tmp_path: Path, change: str) -> None:
    data = yaml.safe_load(dump_yaml(made))
    CHANGES[change](data)
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(UserInputError, match="changed by hand") as refusal:
        load_plan(tmp_path / "plan.yaml")
    assert "mltswitch plan --edited" in str(refusal.value)


def test_an_edited_plan_is_predicted_anew_and_marked(made: Plan, tmp_path: Path) -> None:
    data = yaml.safe_load(dump_yaml(made))
    CHANGES["an S"](data)
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(data))
    edited = predict_edited(load_plan(file, accepts_edits=True), bundled_profile("vgg16"), capabilities)
    assert edited.provenance.is_edited
    assert not made.provenance.is_edited
    assert edited.port_profiles[0].queues[2].ecn_threshold_bytes == 3028
    before, after = (plan.port_profiles[0].queues[2].prediction for plan in (made, edited))
    assert before is not None
    assert after is not None
    assert after.loss_unimportant > before.loss_unimportant
    file.write_text(dump_yaml(edited))
    assert load_plan(file) == edited
    with pytest.raises(UserInputError, match="is not the profile"):
        predict_edited(made, bundled_profile("googlenet"), capabilities)


@pytest.mark.parametrize("change", sorted(CHANGES.keys() - {"an S", "a limit", "a prediction", "its hash"}))
def test_whatever_else_was_changed_is_refused_for_an_edited_plan_too(
    made: Plan, tmp_path: Path, change: str
) -> None:
    data = yaml.safe_load(dump_yaml(made))
    CHANGES[change](data)
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(data))
    edited = load_plan(tmp_path / "plan.yaml", accepts_edits=True)
    with pytest.raises(UserInputError, match=r"was changed|is not what profile and fabric make it"):
        predict_edited(edited, bundled_profile("vgg16"), capabilities)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["classes"][2].update(loss_bound_unimportant=1.0),
        lambda d: d["port_profiles"][0].update(load=0.1),
        lambda d: d["port_profiles"][0].update(buffer_bytes=10**9),
        lambda d: d["scenarios"][0].update(load_factor=0.5),
    ],
)
def test_an_edit_moves_no_bound_and_no_load(
    made: Plan, change: Callable[[Any], None], tmp_path: Path
) -> None:
    data = yaml.safe_load(dump_yaml(made))
    change(data)
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(UserInputError) as refused:
        predict_edited(
            load_plan(tmp_path / "plan.yaml", accepts_edits=True), bundled_profile("vgg16"), capabilities
        )
    assert refused.value.where in ("classes", "port_profiles", "scenarios")
