"""Peers share a rate: nobody starves, nobody exceeds it, and what one does not use the others do."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.pacing import LEAST_CREDIT_BYTES
from mltswitch.hostagent.transport.sharing import Share, SharedRate
from mltswitch.units import NANOSECONDS
from tests.hostagent.transport.ends import connection, incoming, outgoing, talk, tensor

PACKET_BYTES = 1500
GIGABIT = 1e9


def sent_by(shares: list[Share], wants: list[float], seconds: float, step_ns: int = 50_000) -> list[int]:
    """Bytes that each sends where it may, asked in the same order every time; `wants` are their own rates."""
    sent, now_ns = [0] * len(shares), 0
    while now_ns < seconds * NANOSECONDS:
        now_ns += step_ns
        for number, (share, own_bps) in enumerate(zip(shares, wants, strict=True)):
            while sent[number] < own_bps / 8e9 * now_ns and share.may_leave_bytes(now_ns) > 0:
                share.left(PACKET_BYTES)
                sent[number] += PACKET_BYTES
    return sent


@pytest.mark.parametrize("peers", [1, 2, 7, 32])
def test_all_get_the_same_and_together_the_rate(peers: int) -> None:
    rate = SharedRate(GIGABIT, 0)
    sent = sent_by([rate.share() for _ in range(peers)], [10 * GIGABIT] * peers, 0.5)
    whole = GIGABIT / 8 * 0.5
    assert sum(sent) == pytest.approx(whole, rel=0.05)
    for each in sent:
        assert each == pytest.approx(whole / peers, rel=0.05)


def test_what_one_does_not_use_the_others_get() -> None:
    rate = SharedRate(GIGABIT, 0)
    sent = sent_by([rate.share() for _ in range(3)], [0.1 * GIGABIT, 10 * GIGABIT, 10 * GIGABIT], 0.5)
    assert [each * 8 / 0.5 / GIGABIT for each in sent] == pytest.approx([0.1, 0.45, 0.45], rel=0.05)


def test_who_rests_or_leaves_takes_nothing() -> None:
    rate = SharedRate(GIGABIT, 0, least_credit_bytes=PACKET_BYTES)
    one, other, third = (rate.share() for _ in range(3))
    for share in (one, other, third):
        share.may_leave_bytes(0)
    one.rest()
    third.leave()
    sent = sent_by([other], [10 * GIGABIT], 0.1)
    assert sent[0] * 8 / 0.1 == pytest.approx(GIGABIT, rel=0.05)
    assert one.may_leave_bytes(2 * 10**8) > 0  # and gets its part as soon as it asks


def test_a_debt_is_paid_off_whether_more_is_wanted_or_not() -> None:
    rate = SharedRate(8e6, 0, least_credit_bytes=1000)  # a byte a microsecond
    share, other = rate.share(), rate.share()
    assert share.may_leave_bytes(0) == 1000
    share.left(5000)
    share.rest()
    assert other.may_leave_bytes(0) == 0
    assert other.may_leave_bytes(2_000_000) == 1000  # the other half of what has grown paid off a part
    assert share.next_ns(2_000_000) > 2_000_000
    assert share.may_leave_bytes(20_000_000) > 0


def test_a_rate_of_nothing() -> None:
    with pytest.raises(ValueError, match="expected more than 0"):
        SharedRate(0, 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 200_000), st.integers(1, 70_000), st.booleans()),
        max_size=80,
    ),
    st.sampled_from([1e7, 1e9, 4e10]),
)
@settings(max_examples=100)
def test_never_more_than_rate_credits_and_last_sendings(
    asked: list[tuple[int, int, int, bool]], rate_bps: float
) -> None:
    rate = SharedRate(rate_bps, 0)
    shares = [rate.share() for _ in range(4)]
    most_bytes = max(LEAST_CREDIT_BYTES, rate_bps / 8e9 * 250_000)
    now_ns, sent = 0, 0
    for number, gap_ns, size_bytes, rests in asked:
        now_ns += gap_ns
        if rests:
            shares[number].rest()
        elif shares[number].may_leave_bytes(now_ns):
            shares[number].left(size_bytes)
            sent += size_bytes
        # The credit of each share, what is kept for whoever comes, and what each sent beyond its credit.
        assert sent <= rate_bps / 8e9 * now_ns + (len(shares) + 1) * most_bytes + len(shares) * 70_000


@given(st.integers(2, 9), st.sampled_from([1e7, 1e8, 1e9]))
@settings(max_examples=20)
def test_waiting_as_told_is_never_too_short_for_good(peers: int, rate_bps: float) -> None:
    rate = SharedRate(rate_bps, 0, least_credit_bytes=PACKET_BYTES)
    shares = [rate.share() for _ in range(peers)]
    now_ns = 0
    for _ in range(5):
        for share in shares:
            rounds = 0
            while not share.may_leave_bytes(now_ns):
                later_ns = share.next_ns(now_ns)
                assert later_ns > now_ns
                now_ns, rounds = later_ns, rounds + 1
                assert rounds <= 2
            share.left(PACKET_BYTES)


def test_connections_keep_to_it_together() -> None:
    """Three peers, all of them with a tensor to send, asked in the same order every time."""
    rate, large = SharedRate(1e8, 0), tensor(1_000_000)
    senders: list[Connection] = []
    for number in range(1, 4):
        sender, receiver = connection(number), connection(10 + number)
        talk(sender, receiver)
        sender.share_rate(rate.share())
        sender.send(outgoing(7, tensor=large), 1)
        receiver.receive(replace(incoming(7), tensor=large), 1)
        talk(sender, receiver)
        senders.append(sender)
    sent, now_ns = [0, 0, 0], 0
    while now_ns < 10**8:
        now_ns += 10**5
        for place, sender in enumerate(senders):
            sender.timer(now_ns)
            while (bursts := sender.bursts(now_ns, 1000)) is not None:
                sent[place] += int(bursts.payload_bytes.sum()) + 82 * bursts.packet_count
    share = 1e8 / 8 * 0.1 / 3
    assert sum(sent) <= 1e8 / 8 * 0.1 + 4 * LEAST_CREDIT_BYTES
    assert min(sent) >= 0.95 * share
