"""Verdicts: each promise can break."""

from dataclasses import replace

import pytest

from mltswitch.measure import ClassLoss, LoadResult, ProbeResult, RampResult, judge
from mltswitch.plan import Plan

PACKET = 1514


def ramp(**changes: object) -> RampResult:
    good = RampResult(
        traffic_class="gradient-2",
        ecn_threshold_bytes=40 * PACKET,
        limit_bytes=80 * PACKET,
        drop_seen_bytes=41 * PACKET,
        mark_seen_bytes=40 * PACKET,
        wrong_marks=0.001,
        full_seen_bytes=79 * PACKET,
        survivors_when_full=0.0,
    )
    return replace(good, **changes)  # type: ignore[arg-type]  # names and types are the test's own


def entry(name: str, p50_seconds: float | None, *, lost: int = 0, is_important: bool = True) -> ClassLoss:
    return ClassLoss(
        traffic_class=name,
        is_important=is_important,
        sent=100,
        received=100 - lost,
        ce_marked=0,
        lost=lost,
        loss=lost / 100,
        loss_half_width=0.01,
        predicted_loss=0.0,
        delay_p50_seconds=p50_seconds,
        delay_p99_seconds=p50_seconds,
        wait_p50_seconds=p50_seconds,
        predicted_wait_p50_seconds=None,
    )


def result(ramps: tuple[RampResult, ...] = (), *entries: ClassLoss) -> ProbeResult:
    loads = (LoadResult(1.1, 1, "paper", 1.0, 0.0, entries),) if entries else ()
    return ProbeResult("leaf2:eth2", "paper", 10_000_000, PACKET, 1e-3, loads, ramps)


def broken(plan: Plan, found: ProbeResult) -> list[str]:
    return [verdict.promise for verdict in judge(plan, found) if verdict.holds is False]


GOOD_LOAD = (
    entry("control", 0.001, is_important=False),
    entry("gradient-0", 0.002),
    entry("gradient-1", 0.004),
    entry("gradient-2", 0.02, lost=30),
)


def test_a_good_probe_passes(lab_plan: Plan) -> None:
    verdicts = judge(lab_plan, result((ramp(),), *GOOD_LOAD))
    assert len(verdicts) == 8
    assert all(verdict.holds is not False for verdict in verdicts)


@pytest.mark.parametrize(
    ("changes", "promise"),
    [
        ({"drop_seen_bytes": 60 * PACKET}, "gradient-2: Not-ECT is dropped above S"),
        ({"drop_seen_bytes": 20 * PACKET}, "gradient-2: Not-ECT is dropped above S"),
        ({"drop_seen_bytes": None}, "gradient-2: Not-ECT is dropped above S"),
        ({"mark_seen_bytes": None}, "gradient-2: ECT is marked above S"),
        ({"mark_seen_bytes": 10 * PACKET}, "gradient-2: ECT is marked above S"),
        ({"wrong_marks": 0.2}, "gradient-2: marks stand on one side of S only"),
        ({"wrong_marks": None}, "gradient-2: marks stand on one side of S only"),
        ({"survivors_when_full": 0.3}, "gradient-2: no Not-ECT passes a full queue"),
        ({"full_seen_bytes": 160 * PACKET}, "gradient-2: everything is dropped at L"),
        ({"full_seen_bytes": 41 * PACKET}, "gradient-2: everything is dropped at L"),
    ],
)
def test_every_threshold_promise_can_break(lab_plan: Plan, changes: dict[str, object], promise: str) -> None:
    assert broken(lab_plan, result((ramp(**changes),))) == [promise]


ORDER = "load 1.1: strict priority, no delay falls from class to class"
CONTROL = "load 1.1: control untouched"
FIRST = "load 1.1: unimportant packets are lost first"


@pytest.mark.parametrize(
    ("entries", "promises"),
    [
        ((entry("gradient-0", 0.02), entry("gradient-1", 0.004), entry("gradient-2", 0.03)), [ORDER]),
        ((entry("gradient-0", None, lost=100), *GOOD_LOAD[2:]), [ORDER]),
        ((entry("gradient-0", 0.001), entry("gradient-1", None, lost=100)), []),
        ((entry("control", 0.001, lost=1), *GOOD_LOAD[1:]), [CONTROL]),
        ((entry("control", None, lost=100), *GOOD_LOAD[1:]), [CONTROL]),
        (
            (entry("gradient-2", 0.01, lost=10, is_important=False), entry("gradient-2", 0.01, lost=50)),
            [FIRST],
        ),
        ((entry("gradient-2", 0.01, lost=10, is_important=False), entry("gradient-2", 0.01, lost=14)), []),
    ],
    ids=["inverted", "starved-above", "starved-below", "touched", "cut-off", "important-first", "by-chance"],
)
def test_every_promise_about_a_load_can_break(
    lab_plan: Plan, entries: tuple[ClassLoss, ...], promises: list[str]
) -> None:
    assert broken(lab_plan, result((ramp(),), *entries)) == promises


def test_what_cannot_be_told_is_said(lab_plan: Plan) -> None:
    close = ramp(limit_bytes=41 * PACKET, full_seen_bytes=41 * PACKET, mark_seen_bytes=None, wrong_marks=None)
    verdicts = judge(lab_plan, result((close,)))
    assert [verdict.holds for verdict in verdicts] == [True, None, True]
