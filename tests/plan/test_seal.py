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


def edited(made: Plan, change: Callable[[Any], Any], file: Path) -> Path:
    data = yaml.safe_load(dump_yaml(made))
    change(data)
    file.write_text(yaml.safe_dump(data))
    return file


def test_a_plan_is_read_as_it_was_made(made: Plan, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(dump_yaml(made))
    assert load_plan(tmp_path / "plan.yaml") == made


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_by_hand_is_refused(made: Plan, tmp_path: Path, change: str) -> None:
    file = edited(made, CHANGES[change], tmp_path / "plan.yaml")
    with pytest.raises(UserInputError, match="changed by hand") as refusal:
        load_plan(file)
    assert "mltswitch plan --edited" in str(refusal.value)


def test_an_edited_plan_is_predicted_anew_and_marked(made: Plan, tmp_path: Path) -> None:
    file = edited(made, CHANGES["an S"], tmp_path / "plan.yaml")
    anew = predict_edited(load_plan(file, accepts_edits=True), bundled_profile("vgg16"), capabilities)
    assert anew.provenance.is_edited
    assert not made.provenance.is_edited
    assert anew.port_profiles[0].queues[2].ecn_threshold_bytes == 3028
    before, after = (plan.port_profiles[0].queues[2].prediction for plan in (made, anew))
    assert before is not None
    assert after is not None
    assert after.loss_unimportant > before.loss_unimportant
    file.write_text(dump_yaml(anew))
    assert load_plan(file) == anew
    with pytest.raises(UserInputError, match="is not the profile"):
        predict_edited(made, bundled_profile("googlenet"), capabilities)


MOVED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a DSCP": (CHANGES["a DSCP"], "classes"),
    "the fabric": (CHANGES["the fabric"], "fabric"),
    "a tolerance": (lambda d: d["classes"][2].update(loss_bound_unimportant=1.0), "classes"),
    "a load": (lambda d: d["port_profiles"][0].update(load=0.1), "port_profiles"),
    "a buffer": (lambda d: d["port_profiles"][0].update(buffer_bytes=10**9), "port_profiles"),
    "a scenario": (lambda d: d["scenarios"][0].update(load_factor=0.5), "scenarios"),
}


@pytest.mark.parametrize("name", MOVED)
def test_an_edit_moves_nothing_but_thresholds_and_limits(made: Plan, tmp_path: Path, name: str) -> None:
    change, where = MOVED[name]
    plan = load_plan(edited(made, change, tmp_path / "plan.yaml"), accepts_edits=True)
    with pytest.raises(
        UserInputError, match=r"was changed|is not what profile and fabric make it"
    ) as refusal:
        predict_edited(plan, bundled_profile("vgg16"), capabilities)
    assert refusal.value.where == where
