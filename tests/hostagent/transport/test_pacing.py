"""A pacer lets the rate through, and no more than a moment's credit above it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.transport.pacing import MOST_CREDIT_BYTES, REFILL_NS, Pacer

GIGABIT = 1e9


def test_credit_runs_out_and_grows_at_the_rate() -> None:
    pacer = Pacer(0, least_credit_bytes=1500, pause_ns=0)
    assert pacer.may_leave_bytes(GIGABIT, 0) == 1500
    pacer.left(1500)
    assert pacer.may_leave_bytes(GIGABIT, 0) == 0
    assert pacer.may_leave_bytes(GIGABIT, 8_000) == 1000
    assert pacer.may_leave_bytes(GIGABIT, 12_000) == 1500


def test_a_debt_is_paid_before_anything_leaves() -> None:
    pacer = Pacer(0, least_credit_bytes=1000, pause_ns=0)
    pacer.left(3000)
    assert pacer.may_leave_bytes(GIGABIT, 15_000) == 0
    assert pacer.next_ns(GIGABIT, 15_000) == 16_008
    assert pacer.may_leave_bytes(GIGABIT, 16_008) == 1


def test_after_a_pause_there_is_credit_for_its_length() -> None:
    pacer = Pacer(0, least_credit_bytes=65_536, pause_ns=100_000)
    pacer.left(65_536)
    assert pacer.next_ns(GIGABIT, 0) == 100_000
    assert pacer.may_leave_bytes(GIGABIT, 99_000) == 0
    assert pacer.may_leave_bytes(GIGABIT, 100_000) == 12_500
    pacer.left(5_000)
    assert pacer.may_leave_bytes(GIGABIT, 100_000) == 7_500


@pytest.mark.parametrize(
    ("rate_bps", "milliseconds", "size_bytes"),
    [(1e6, 8, 1_000), (6e6, 8, 6_000), (12e6, 4, 6_000), (48e6, 1, 6_000), (480e6, 1, 60_000)],
)
def test_slow_flows_wait_for_a_few_packets_but_not_for_long(
    rate_bps: float, milliseconds: int, size_bytes: int
) -> None:
    pacer = Pacer(0)
    pacer.left(pacer.may_leave_bytes(rate_bps, 0))
    due_ns = pacer.next_ns(rate_bps, 0)
    assert due_ns == milliseconds * 1_000_000
    assert pacer.may_leave_bytes(rate_bps, due_ns) == size_bytes


def test_a_pause_is_over_when_the_bucket_is_full() -> None:
    pacer = Pacer(0, least_credit_bytes=1500, slack_ns=0, pause_ns=1_000_000)
    pacer.left(1500)
    assert pacer.next_ns(GIGABIT, 0) == 12_000
    assert pacer.may_leave_bytes(GIGABIT, 12_000) == 1500


def test_a_flow_that_begins_anew_has_the_least_credit_at_once() -> None:
    pacer = Pacer(0, least_credit_bytes=1500, pause_ns=1_000_000)
    pacer.left(1500 + 500)
    pacer.refill(0)
    assert pacer.may_leave_bytes(GIGABIT, 0) == 1000, "a debt is paid off"
    pacer.left(1000)
    pacer.refill(REFILL_NS - 1)
    assert pacer.may_leave_bytes(1.0, REFILL_NS - 1) == 0, "it has begun anew a moment ago"
    pacer.refill(REFILL_NS)
    pacer.refill(2 * REFILL_NS)
    assert pacer.may_leave_bytes(1.0, 2 * REFILL_NS) == 1500


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
def test_no_path_gets_more_than_its_credit_at_once(share: float) -> None:
    pacer = Pacer(0, slack_ns=2_000_000, most_credit_bytes=1_000_000, path_credit_bytes=100_000)
    pacer.spread(share)
    assert pacer.may_leave_bytes(10 * GIGABIT, 10**9) == 100_000 / share
    pacer.spread(0.01)
    assert pacer.may_leave_bytes(10 * GIGABIT, 2 * 10**9) == 1_000_000
    pacer.spread(share)
    assert pacer.may_leave_bytes(10 * GIGABIT, 2 * 10**9) == 100_000 / share


def test_until_it_is_known_how_a_flow_spreads_one_path_gets_all() -> None:
    pacer = Pacer(0, slack_ns=2_000_000, path_credit_bytes=30_000)
    assert pacer.may_leave_bytes(GIGABIT, 0) == pacer.may_leave_bytes(GIGABIT, 10**9) == 30_000


def test_idle_time_is_not_saved() -> None:
    pacer = Pacer(0, least_credit_bytes=1500, slack_ns=100_000)
    assert pacer.may_leave_bytes(GIGABIT, 10**12) == 12_500
    assert pacer.may_leave_bytes(1e6, 2 * 10**12) == 1500


def test_a_clock_that_goes_back_gives_nothing() -> None:
    pacer = Pacer(10**6, least_credit_bytes=1500)
    pacer.left(1500)
    assert pacer.may_leave_bytes(GIGABIT, 0) == 0
    assert pacer.may_leave_bytes(GIGABIT, 10**6) == 0


def test_a_calm_flow_may_catch_up_with_more() -> None:
    pacer = Pacer(0, least_credit_bytes=1500, slack_ns=100_000, calm_slack_ns=300_000, pause_ns=0)
    pacer.calm(is_calm=True)
    assert pacer.may_leave_bytes(GIGABIT, 10**9) == 37_500
    pacer.calm(is_calm=False)
    assert pacer.may_leave_bytes(GIGABIT, 10**9) == 12_500
    pacer.calm(is_calm=True)
    assert pacer.may_leave_bytes(GIGABIT, 10**9) == 12_500  # what is lost does not come back


@pytest.mark.parametrize("rate_bps", [400e9, 10e12])
def test_no_rate_is_so_high_that_its_credit_has_no_bound(rate_bps: float) -> None:
    pacer = Pacer(0, pause_ns=0)
    pacer.calm(is_calm=True)
    assert pacer.may_leave_bytes(rate_bps, 10**9) == MOST_CREDIT_BYTES


def test_a_calm_flow_never_has_less_credit_than_another() -> None:
    pacer = Pacer(0, slack_ns=2_000_000, calm_slack_ns=1_000_000, pause_ns=0)
    pacer.calm(is_calm=True)
    assert pacer.may_leave_bytes(GIGABIT, 10**9) == 250_000


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**7),
            st.integers(1, 70_000),
            st.sampled_from([1e7, 1e9, 4e10]),
            st.booleans(),
            st.booleans(),
        )
    ),
    st.integers(1, 70_000),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_never_more_than_rate_credit_and_last_sending(
    sendings: list[tuple[int, int, float, bool, bool]],
    credit_bytes: int,
    slack_ns: int,
    calm_slack_ns: int,
    pause_ns: int,
) -> None:
    pacer = Pacer(
        0,
        least_credit_bytes=credit_bytes,
        slack_ns=slack_ns,
        calm_slack_ns=calm_slack_ns,
        pause_ns=pause_ns,
    )
    now_ns, allowed, sent, fastest = 0, 0.0, 0, 1e7
    longest_ns, refilled_ns = slack_ns, -REFILL_NS
    for gap_ns, size_bytes, rate_bps, is_calm, begins_anew in sendings:
        pacer.calm(is_calm=is_calm)
        longest_ns = max(longest_ns, calm_slack_ns if is_calm else 0)
        now_ns += gap_ns
        allowed += rate_bps / 8e9 * gap_ns
        fastest = max(fastest, rate_bps)
        if begins_anew:
            pacer.refill(now_ns)
            if now_ns - refilled_ns >= REFILL_NS:
                refilled_ns = now_ns
                allowed += credit_bytes
        if pacer.may_leave_bytes(rate_bps, now_ns):
            pacer.left(size_bytes)
            sent += size_bytes
            most = max(credit_bytes, fastest / 8e9 * longest_ns)
            assert sent <= allowed + most + size_bytes + 1


@given(st.floats(1e6, 1e11), st.integers(1, 9000), st.integers(0, 10**7))
def test_waiting_as_told_sends_at_the_rate(rate_bps: float, packet_bytes: int, pause_ns: int) -> None:
    pacer = Pacer(0, least_credit_bytes=packet_bytes, slack_ns=0, pause_ns=pause_ns)
    now_ns, sent = 0, 0
    for _ in range(200):
        now_ns = pacer.next_ns(rate_bps, now_ns)
        assert pacer.may_leave_bytes(rate_bps, now_ns) > 0
        pacer.left(packet_bytes)
        sent += packet_bytes
    ideal_ns = (sent - packet_bytes) * 8e9 / rate_bps
    assert now_ns == pytest.approx(ideal_ns, rel=0.01, abs=400 + packet_bytes * 8e9 / rate_bps)
