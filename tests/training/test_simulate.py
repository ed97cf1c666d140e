"""Simulated steps: closed forms, whatever the scale; timelines without gaps; slow ranks."""

from collections import defaultdict
from functools import partial
from typing import Any

import pytest

from mltswitch.errors import UserInputError
from mltswitch.profile import bundled_profile
from mltswitch.training import simulate as simulation
from mltswitch.training.axes import Network, topologies
from mltswitch.training.simulate import forward_gain, scaled_job, simulate

VGG16 = bundled_profile("vgg16")
PIECE_BYTES = VGG16.total_bytes / 40
run = partial(simulate, VGG16, Network(10e9, 50e-6), piece_bytes=PIECE_BYTES)


def exchange_seconds(workers: int) -> float:
    """Pushes of all pieces, and results but for those that cross while larger pieces are still pushed."""
    job, _ = scaled_job(VGG16, world=workers, piece_bytes=PIECE_BYTES)
    counts = sorted((piece.count for piece in job.pieces), reverse=True)
    last = max(count * number for number, count in enumerate(counts, 1)) / job.elements
    return workers * (1 + last) * VGG16.total_bytes * 8 / 10e9


@pytest.mark.parametrize("workers", [2, 5])
def test_a_step_of_bsp_is_computing_and_both_directions(workers: int) -> None:
    found = run([3.0] * workers, batch=16, warm_up=1, steps=2)
    assert found.step_seconds == pytest.approx(3.0 + exchange_seconds(workers), rel=1e-3)
    assert found.samples_per_second == pytest.approx(workers * 16 / found.step_seconds)


@pytest.mark.parametrize("ratio", [1.25, 3.0])
def test_osp_sends_later_what_fits_in_computing(ratio: float) -> None:
    compute = exchange_seconds(4) / ratio
    found = run([compute] * 4, synchronization="osp", settings={"importance": "mean"})
    assert found.later_share == pytest.approx(1 / ratio, abs=0.05)
    assert found.step_seconds == pytest.approx(compute * ratio, rel=0.05)


def test_most_of_vgg16_is_one_layer_that_does_not_fit() -> None:
    compute = [exchange_seconds(4) / 2] * 4
    settings: list[dict[str, None]] = [{}, {"slice_bytes": None}]
    sliced, whole = (run(compute, synchronization="osp", settings=each).step_seconds for each in settings)
    assert whole > 1.2 * sliced


@pytest.mark.parametrize("synchronization", ["bsp", "osp"])
def test_the_scale_changes_nothing(synchronization: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = run([2.0] * 3, synchronization=synchronization).step_seconds
    monkeypatch.setattr(simulation, "ELEMENTS", 400_000)
    assert run([2.0] * 3, synchronization=synchronization).step_seconds == pytest.approx(small, rel=0.02)


def test_who_waits_for_a_slow_rank() -> None:
    compute = [6.0, 2.0, 2.2, 1.8]
    bsp, asp = (run(compute, synchronization=name, steps=12) for name in ("bsp", "asp"))
    assert asp.step_seconds < 5.0
    assert bsp.step_seconds > 6.0
    waiting = [span for span in bsp.timeline if span.activity == "waiting"]
    assert {span.rank: span.begin_seconds for span in waiting} == pytest.approx(dict(enumerate(compute)))


@pytest.mark.parametrize(
    ("synchronization", "topology"), [("bsp", "ring"), ("osp", "star"), ("r2sp", "star")]
)
def test_ranks_compute_or_wait_all_the_time(synchronization: str, topology: str) -> None:
    found = run([1.0, 1.1, 1.2], synchronization=synchronization, topology=topology)
    ends: defaultdict[int, float] = defaultdict(float)
    for span in sorted(found.timeline, key=lambda span: (span.rank, span.begin_seconds)):
        if span.activity != "later":
            assert span.begin_seconds == pytest.approx(ends[span.rank])
            ends[span.rank] = span.end_seconds
    assert [*ends.values()] == [pytest.approx(found.timeline_seconds)] * 3
    assert any(span.activity == "later" for span in found.timeline) == (synchronization == "osp")


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_forward_passes_that_wait_layer_by_layer_come_near_their_bound(ratio: float) -> None:
    first = VGG16.layers[3]
    layers = tuple(first.model_copy(update={"name": f"layer{number}"}) for number in range(64))
    alike = VGG16.model_copy(update={"layers": layers})
    options: dict[str, Any] = {"servers": 0, "topology": "ring", "piece_bytes": first.size_bytes}
    job, share = scaled_job(alike, world=2, **options)
    exchange = topologies()["ring"].seconds(job, Network(10e9 * share, 0))
    compute = exchange / ratio
    play = partial(simulate, alike, Network(10e9, 0), [compute] * 2, backward_share=2 / 3, **options)
    hook, forward, unordered = (
        play(forward=is_forward, classes=classes).step_seconds
        for is_forward, classes in ((False, 1), (True, 64), (True, 1))
    )
    bound = forward_gain(compute, 2 / 3, exchange)
    assert bound == pytest.approx({0.5: 1.0, 1.0: 4 / 3, 2.0: 7 / 6}[ratio])
    assert 0.93 * bound < hook / forward < 1.01 * bound
    assert ratio == 0.5 or hook / unordered < 1.03, "without priorities it gains nothing"


def test_only_steps_that_wait_for_all_sums_wait_layer_by_layer() -> None:
    with pytest.raises(UserInputError, match="osp has no step that waits"):
        run([1.0, 1.0], synchronization="osp", forward=True)
