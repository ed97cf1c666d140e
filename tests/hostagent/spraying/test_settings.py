"""Settings that cannot be are refused, and the defaults fit together."""

from typing import Any

import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.spraying.settings import Policy, SprayingSettings


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"answer_minimum_ns": 0}, "answer_minimum_ns is 0"),
        ({"dead_probes": -1}, "dead_probes is -1"),
        ({"loss_scale": float("nan")}, "loss_scale is nan"),
        ({"excess_loss": 1.0}, "between 0 and 1"),
        ({"probation_share": 0.0}, "between 0 and 1"),
        ({"bad_share_good": 0.9, "bad_share_grey": 0.9}, "not below"),
    ],
)
def test_what_cannot_be(values: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        SprayingSettings(**values)


def test_packets_are_given_up_after_an_answer_was_asked_for() -> None:
    settings = SprayingSettings()
    assert settings.answer_minimum_ns < settings.loss_minimum_ns < settings.stall_ns
    assert settings.dead_pause_ns < settings.probe_maximum_ns
    assert settings.grey_pause_ns < settings.grey_pause_maximum_ns


@pytest.mark.parametrize("policy", Policy)
def test_a_policy_is_known_by_its_name(policy: Policy) -> None:
    named: Any = policy.value
    assert SprayingSettings(named).policy is SprayingSettings(policy).policy is policy


@pytest.mark.parametrize("value", ["nonsense", "", None, 1, ["random"], Policy])
def test_policies_that_there_are_not(value: Any) -> None:
    expected = "round-robin, random, least-delay, least-loss"
    with pytest.raises(UserInputError, match=rf"^policy: there is no .*\(expected {expected}\)$"):
        SprayingSettings(policy=value)
