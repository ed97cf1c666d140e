"""The drop-or-mark decision at and around its thresholds."""

import pytest

from mltswitch.queueing import Decision, decide


@pytest.mark.parametrize(
    ("waiting", "is_capable", "expected"),
    [
        (0, False, Decision.FORWARD),
        (9, False, Decision.FORWARD),
        (10, False, Decision.DROP_UNIMPORTANT),
        (10, True, Decision.MARK),
        (19, True, Decision.MARK),
        (20, True, Decision.DROP_LIMIT),
        (20, False, Decision.DROP_LIMIT),
    ],
)
def test_thresholds(waiting: int, is_capable: bool, expected: Decision) -> None:
    assert decide(waiting, is_capable=is_capable, ecn_threshold=10, limit=20) is expected


def test_without_threshold_only_the_limit_counts() -> None:
    assert decide(19, is_capable=False, ecn_threshold=None, limit=20) is Decision.FORWARD
    assert decide(20, is_capable=True, ecn_threshold=None, limit=20) is Decision.DROP_LIMIT


def test_admitted() -> None:
    assert [d for d in Decision if d.is_admitted] == [Decision.FORWARD, Decision.MARK]
