"""What `lab probe` prints: measured and predicted figures, told apart."""

import pytest

from mltswitch.cli.output import Answer
from mltswitch.cli.probe import probe_text
from mltswitch.measure import ClassLoss, LoadResult, ProbeResult


def entry(*, loss: float | None, predicted: float, wait: float | None) -> ClassLoss:
    return ClassLoss(
        traffic_class="gradient-0",
        is_important=False,
        sent=1000,
        received=970,
        ce_marked=0,
        lost=30,
        loss=loss,
        loss_half_width=None if loss is None else 0.005,
        predicted_loss=predicted,
        delay_p50_seconds=0.004,
        delay_p99_seconds=0.009,
        wait_p50_seconds=wait,
        predicted_wait_p50_seconds=0.0035,
    )


def printed(capsys: pytest.CaptureFixture[str], found: ClassLoss) -> str:
    load = LoadResult(1.1, 8, "completion", 20.0, 0.001, (found,))
    result = ProbeResult("leaf2:eth2", "completion", 10_000_000, 1514, 5e-4, (load,), ())
    Answer(result, probe_text(result, ())).print(as_json=False)
    return " ".join(capsys.readouterr().out.split())


def test_measured_beside_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, entry(loss=0.03, predicted=0.024, wait=0.0031))
    assert "loss measured" in text
    assert "loss model 'completion'" in text
    assert "3.00% ± 0.50% 2.4 % 1.25 3.1 ms 3.5 ms 9 ms" in text


def test_nothing_is_compared_with_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "- 2.4 % - - 3.5 ms" in printed(capsys, entry(loss=None, predicted=0.024, wait=None))
    assert "> 1000" in printed(capsys, entry(loss=0.03, predicted=1e-9, wait=None))
    assert "0 - -" in printed(capsys, entry(loss=0.03, predicted=0.0, wait=None))
