"""What other buffers, loads and bursts would change: what is asked, what is varied, and what is compared."""

from pathlib import Path
from typing import Any

import pytest

from mltswitch.cli import main
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan, load_plan
from mltswitch.planning import build_plan
from mltswitch.planning.evaluate import predict_ports
from mltswitch.planning.what_if import Change, changed_fabric, parse_changes, what_if
from mltswitch.profile import bundled_profile
from mltswitch.targets import hardware_capabilities
from tests.conftest import LAB_FABRIC
from tests.deploy.emulated import plan_of

PLAN = ("plan", "--profile", "resnet50", "--fabric", str(LAB_FABRIC), "--model", "paper")


@pytest.fixture(scope="module")
def small() -> Plan:
    return plan_of("linux")


def compared(plan: Plan, text: str) -> Any:
    return what_if(plan, bundled_profile("resnet50"), hardware_capabilities, parse_changes(text))


def thresholds(plan: Plan) -> list[tuple[int | None, str]]:
    return [
        (queue.ecn_threshold_bytes, str(queue.limit)) for port in plan.port_profiles for queue in port.queues
    ]


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("buffer=2x", {"buffer": Change(2.0, is_factor=True)}),
        ("buffer=16MB", {"buffer": Change(16e6, is_factor=False)}),
        ("load=1.2", {"load": Change(1.2, is_factor=False)}),
        (
            " load = 1.2x, burst=4",
            {"load": Change(1.2, is_factor=True), "burst": Change(4.0, is_factor=False)},
        ),
    ],
)
def test_what_is_asked(text: str, changes: dict[str, Change]) -> None:
    assert parse_changes(text) == changes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is none of buffer, burst, load"),
        ("laod=2x", "'laod' is none of buffer, burst, load, did you mean load?"),
        ("load", "load needs one value"),
        ("load=1,load=2", "load needs one value"),
        ("load=-1", "load=-1 is no number and no factor"),
        ("load=nan", "is no number"),
        ("load=0x", "is no factor from 0 to 1000"),
        ("buffer=2000x", "is no factor from 0 to 1000"),
        ("buffer=2Mb", "Mb"),
        ("buffer=many", "'many' is not understood"),
    ],
)
def test_what_cannot_be_asked(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("?", r"\?")):
        parse_changes(text)


def test_what_is_varied(lab_plan: Plan) -> None:
    old = lab_plan.fabric
    new = changed_fabric(lab_plan, parse_changes("load=0.5x,burst=3,buffer=300kB"))
    assert new.traffic.load == old.traffic.load / 2
    assert (new.traffic.burst_packets, new.classes.gradients.burst_packets) == (3, None)
    assert new.ports.buffer_bytes == 300_000
    assert {entry.buffer_bytes for entry in new.ports.overrides.values()} <= {None}
    twice = changed_fabric(lab_plan, parse_changes("buffer=2x"))
    assert twice.ports.buffer_bytes == 2 * (old.ports.buffer_bytes or 0)
    assert twice.model_copy(update={"ports": old.ports}) == old


@pytest.mark.parametrize("text", ["load=11", "burst=5000", "buffer=0"])
def test_a_value_that_a_fabric_cannot_have_is_refused(small: Plan, text: str) -> None:
    with pytest.raises(UserInputError, match=r"^--what-if"):
        compared(small, text)


@pytest.mark.parametrize("text", ["load=1x", "buffer=1x", "burst=1x,load=1x"])
def test_where_nothing_is_varied_three_plans_are_one(small: Plan, text: str) -> None:
    found = compared(small, text)
    for plan in (found.kept, found.anew):
        assert thresholds(plan) == thresholds(small)
        assert (plan.end_to_end, plan.scenarios) == (small.end_to_end, small.scenarios)


def test_thresholds_that_are_kept_lose_what_the_loss_model_says_of_them(small: Plan) -> None:
    found = compared(small, "load=1.25x")
    assert thresholds(found.kept) == thresholds(small) != thresholds(found.anew)
    [port, *_] = predict_ports(small, load=1.25 * small.fabric.traffic.load)
    for queue in found.kept.port_profiles[0].queues:
        if queue.prediction is not None and queue.ecn_threshold_bytes is not None:
            assert queue.prediction == port.classes[queue.traffic_class]
    assert found.kept.end_to_end[-1].loss_unimportant > small.end_to_end[-1].loss_unimportant

    def rounds(plan: Plan) -> float:
        return sum(entry.weight * (entry.extra_rounds or 0) for entry in plan.scenarios)

    assert rounds(found.anew) <= rounds(found.kept)


def test_a_plan_for_one_load_is_compared_with_one_for_one_load(small: Plan) -> None:
    profile = bundled_profile("resnet50")
    at_half = build_plan(profile, small.fabric, hardware_capabilities, "paper", at_load=0.5)
    found = compared(at_half, "load=1.2x")
    assert (found.anew.fabric.traffic.load, len(found.anew.scenarios)) == (0.6, 1)
    assert found.anew == build_plan(profile, small.fabric, hardware_capabilities, "paper", at_load=0.6)


def test_limits_that_do_not_fit_a_smaller_buffer_are_not_kept(small: Plan) -> None:
    found = compared(small, "buffer=0.5x")
    assert found.kept is None
    assert "do not fit into" in found.why_not_kept
    assert found.anew.port_profiles[0].buffer_bytes == small.port_profiles[0].buffer_bytes // 2


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_command_compares_and_writes_what_is_asked_for_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended(*PLAN, "--what-if", "load=0.5x,buffer=2x") == 0
    text = capsys.readouterr().out
    assert "What if load=0.5x,buffer=2x: plan for resnet50; losses and delays are predicted" in text
    assert "load 0.9 → 0.45 → 0.45, buffer 256,000 → 512,000 → 512,000 B" in text
    assert not [*tmp_path.iterdir()]
    assert ended(*PLAN, "--what-if", "load=0.5x", "-o", "half.yaml", "--json") == 0
    assert load_plan(tmp_path / "half.yaml").fabric.traffic.load == 0.45
    assert '"anew": 0.45' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--what-if", "laod=2"), "--what-if: 'laod' is none of buffer, burst, load, did you mean load?"),
        (("--what-if", "load=2", "--refine", "simulate"), "--what-if: a comparison is of predicted plans"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*PLAN, *words) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert line in told.err
