"""Rates of meters that BMv2 gives back as they were set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.capabilities.meter_rate import rate_kept
from mltswitch.p4 import entries
from mltswitch.targets.bmv2 import adapt


def bmv2_reads_back(bytes_per_second: int) -> int:
    """As BMv2 converts: to bytes per microsecond, and back with the fraction cut off."""
    return int(bytes_per_second / 1e6 * 1e6)


@given(st.integers(0, entries.MAXIMUM_RATE_BYTES_PER_SECOND))
def test_a_kept_rate_is_read_back_as_it_was_set_and_is_almost_the_rate(rate: int) -> None:
    kept = rate_kept(rate)
    assert bmv2_reads_back(kept) == kept
    assert rate - 20 <= kept <= rate
    assert rate_kept(kept) == kept


def test_a_rate_that_would_not_be_kept_exists() -> None:
    assert bmv2_reads_back(249) == 248
    assert rate_kept(249) == 248
    assert rate_kept(250) == 250


@pytest.mark.parametrize("rate", [0, 1, 2, 125_000])
def test_the_least_rates_and_that_of_control_are_kept(rate: int) -> None:
    assert rate_kept(rate) == rate


def test_a_plan_is_rounded_by_the_rule_by_which_a_rate_is_sent() -> None:
    assert vars(adapt)["rate_kept"] is vars(entries)["rate_kept"] is rate_kept
