"""What the paths benchmark makes of its samples."""

import pytest

from benchmarks.agent_paths import SAMPLE_SECONDS, TENSOR_BYTES, TROUBLED, Sample, Turn, figures

BROKEN, MENDED, END = 2.5, 6.5, 12.5


def turn(left_after: float | None, returned_after: float | None) -> Turn:
    """A path that carries 1,000 bytes a sample, but for a while."""
    samples = []
    for number in range(round(END / SAMPLE_SECONDS)):
        now = number * SAMPLE_SECONDS
        left = left_after is not None and now > BROKEN + left_after
        back = returned_after is not None and now >= MENDED + returned_after
        carried = [1000] * 4
        carried[TROUBLED] = 20 if left and not back else 1000
        samples.append(Sample(now, tuple(carried)))
    completed = tuple(
        number / 50 for number in range(round(END * 50)) if not number % 2 or number / 50 < BROKEN
    )
    return Turn(tuple(samples), completed, BROKEN, MENDED, END)


def test_times_to_leave_and_return() -> None:
    found = turn(0.3, 1.0)
    assert found.usual_bytes == 1000
    assert found.leave_seconds == pytest.approx(0.3, abs=SAMPLE_SECONDS)
    assert found.return_seconds == pytest.approx(1.0, abs=SAMPLE_SECONDS)


def test_a_path_that_is_never_left_or_never_returned_to() -> None:
    assert turn(None, None).leave_seconds is None
    assert turn(0.3, None).return_seconds is None
    found = figures("dead", [turn(None, None), turn(0.2, 0.5), turn(0.2, None)])
    assert found["dead_left"] == pytest.approx(2 / 3)
    assert found["dead_leave_ms"] == pytest.approx(200, abs=SAMPLE_SECONDS * 1e3)
    assert found["dead_returned"] == pytest.approx(2 / 3)
    assert "grey_leave_ms" not in found
    assert "dead_return_ms" not in figures("dead", [turn(0.2, None)])


def test_goodput_counts_whole_tensors() -> None:
    found = figures("grey", [turn(0.1, 0.1)])
    assert found["grey_before_mbps"] == pytest.approx(50 * TENSOR_BYTES * 8 / 1e6)
    assert found["grey_during_ratio"] == pytest.approx(0.5)
    assert found["grey_after_ratio"] == pytest.approx(0.5)
