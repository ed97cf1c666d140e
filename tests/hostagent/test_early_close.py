"""What gathers refuse, and what they learn: estimators of LT against a fluid incast."""

import math
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent import Agent, AgentError, CancelledError, ReceiveRequest
from mltswitch.hostagent.early_close import (
    MOST_LINKS_KEPT,
    REGISTERED,
    ROUNDS_KEPT,
    EarlyCloseSettings,
    History,
)
from tests.hostagent.ends import PATIENCE_SECONDS, RECEIVER, SENDER, Make, connect, joined, values

SETTINGS = EarlyCloseSettings()
PAPER = EarlyCloseSettings(estimator="paper", rounds_per_epoch=1000)
SIZE = 1_000_000
SENDERS = 8
LINK_BYTES_PER_NS = 0.0125
"""100 Mbit/s."""


def _fluid_round(rates: list[float], lts_ns: list[float], slack_ns: float) -> list[tuple[float, float]]:
    """Elapsed time and share of each sender; those that still send share the link, as their rates are.

    A link closes when everything is there, at its LT or later when 80 % are, or at the deadline of all.
    """
    deadline_ns, now_ns = max(lts_ns) + slack_ns, 0.0
    got, ended_ns = [0.0] * SENDERS, [0.0] * SENDERS
    while sending := [at for at in range(SENDERS) if not ended_ns[at]]:
        whole = sum(rates[at] for at in sending)
        pace = {at: LINK_BYTES_PER_NS * rates[at] / whole for at in sending}
        times = {lts_ns[at] for at in sending} | {deadline_ns}
        for at in sending:
            times |= {now_ns + (target - got[at]) / pace[at] for target in (0.8 * SIZE, SIZE)}
        next_ns = min(time_ns for time_ns in times if time_ns > now_ns)
        for at in sending:
            got[at] += pace[at] * (next_ns - now_ns)
            is_enough = got[at] >= 0.8 * SIZE - 1 and next_ns >= lts_ns[at]
            if got[at] >= SIZE - 1 or is_enough or next_ns >= deadline_ns:
                ended_ns[at] = next_ns
        now_ns = next_ns
    return [
        (elapsed_ns, 1.0 if found >= SIZE - 1 else found / SIZE)
        for elapsed_ns, found in zip(ended_ns, got, strict=True)
    ]


def _delivered(settings: EarlyCloseSettings, spread: float, too_high: float, rounds: int) -> float:
    """Mean share of rounds whose rates differ by chance; BtlBw is taken so many times too high."""
    random, history, shares = Random(1), History(), []  # noqa: S311
    for _ in range(rounds):
        rates = [random.uniform(1 - spread, 1 + spread) for _ in range(SENDERS)]
        lts_ns = []
        for at in range(SENDERS):
            lt_ns = float(history.lt_ns(str(at), SIZE, settings))
            registered_ns = SIZE / (LINK_BYTES_PER_NS / SENDERS * too_high)
            lts_ns.append(registered_ns if lt_ns == REGISTERED else lt_ns or math.inf)
        for at, (elapsed_ns, share) in enumerate(_fluid_round(rates, lts_ns, 30e6)):
            history.learn(str(at), SIZE, round(elapsed_ns), share)
            shares.append(share)
    return sum(shares) / len(shares)


@pytest.mark.parametrize(
    ("spread", "too_high", "papers"),
    [
        (0.02, 1, 0.98),
        (0.1, 1, 0.91),
        (0.3, 1, 0.81),
        (0.02, 2, 0.55),  # for ever: no round completes
        (0.3, 2, 0.55),
        (0.02, 8, 0.18),
        (0.3, 8, 0.18),
    ],
)
def test_an_incast_delivers_nearly_everything_where_the_papers_rule_does_not(
    spread: float, too_high: float, papers: float
) -> None:
    assert _delivered(PAPER, spread, too_high, rounds=300) == pytest.approx(papers, abs=0.015)
    assert _delivered(SETTINGS, spread, too_high, rounds=100) >= 0.997


def test_the_first_round_waits_for_all_and_old_ones_are_forgotten() -> None:
    history = History()
    assert history.lt_ns("a", SIZE, SETTINGS) == 0
    assert history.lt_ns("a", SIZE, PAPER) == REGISTERED
    for elapsed_ns in [9_000_000] * 9 * ROUNDS_KEPT + [1_000_000] * ROUNDS_KEPT:  # the latter are remembered
        history.learn("a", SIZE, elapsed_ns, 1.0)
    assert history.lt_ns("a", SIZE, SETTINGS) == 1_000_000
    assert history.lt_ns("a", SIZE + 1, SETTINGS) == 0  # another size is another link
    assert history.lt_ns("b", SIZE, SETTINGS) == 0


@given(st.lists(st.integers(1_000_000, 1_200_000), min_size=19, max_size=19), st.integers(0, 19))
def test_one_outlier_of_twenty_rounds_does_not_move_lt(rounds: list[int], place: int) -> None:
    history = History()
    for elapsed_ns in [*rounds[:place], 10**12, *rounds[place:]]:
        history.learn("a", SIZE, elapsed_ns, 1.0)
    assert 0 < history.lt_ns("a", SIZE, SETTINGS) <= max(rounds)


def test_rounds_that_were_closed_count_at_the_rate_that_they_had() -> None:
    history = History()
    for _ in range(10):
        history.learn("a", SIZE, 8_000_000, 0.8)
    assert history.lt_ns("a", SIZE, SETTINGS) == 10_000_000
    assert history.lt_ns("a", SIZE, PAPER) == REGISTERED  # none was complete


def test_the_papers_estimator_takes_the_least_complete_round_of_an_epoch() -> None:
    history, settings = History(), EarlyCloseSettings(estimator="paper", rounds_per_epoch=3)
    found = []
    for elapsed_ns, share in ((5, 1.0), (3, 1.0), (2, 0.9), (9, 1.0)):
        history.learn("a", SIZE, elapsed_ns, share)
        found.append(history.lt_ns("a", SIZE, settings))
    assert found == [5, 3, REGISTERED, 9]


@given(st.lists(st.tuples(st.integers(1, 10**12), st.floats(0.01, 1.0)), min_size=1, max_size=80))
def test_an_lt_lies_within_what_the_kept_rounds_needed(rounds: list[tuple[int, float]]) -> None:
    history = History()
    for elapsed_ns, share in rounds:
        history.learn("a", SIZE, elapsed_ns, share)
    needed = [elapsed_ns / share for elapsed_ns, share in rounds[-ROUNDS_KEPT:]]
    lt_ns = history.lt_ns("a", SIZE, SETTINGS)
    assert min(needed) - 1 <= lt_ns <= max(needed) + SETTINGS.slack_seconds * 1e9 + 1


def test_old_links_are_forgotten() -> None:
    history = History()
    for number in range(MOST_LINKS_KEPT + 1):
        history.learn("a", number, 1000, 1.0)
    assert history.lt_ns("a", 0, SETTINGS) == 0
    assert history.lt_ns("a", 1, SETTINGS) > 0


# Gathers of real agents


@pytest.fixture
def pair(make: Make) -> tuple[Agent, Agent]:
    return joined(make, transport="ltp", channels={"parameters": "ltp"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"percentage": 0}, "percentage: 0: .*more than 0"),
        ({"percentage": 1.01}, "percentage: 1.01"),
        ({"percentage": -0.1}, "percentage: -0.1"),
        ({"percentage": math.nan}, "percentage: nan"),
        ({"percentage": True}, "percentage: True"),
        ({"slack_seconds": -1}, "slack_seconds: -1: .*at least 0"),
        ({"slack_seconds": math.inf}, "slack_seconds: inf"),
        ({"slack_seconds": math.nan}, "slack_seconds: nan"),
        ({"estimator": "oracle"}, "estimator: 'oracle': .*'quantile' or 'paper'"),
        ({"rounds_per_epoch": 0}, "rounds_per_epoch: 0: .*at least 1"),
    ],
)
def test_a_gather_names_field_and_range(
    pair: tuple[Agent, Agent], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(UserInputError, match=text):
        pair[1].gather(**options)


def _post(agent: Agent, gather: Any, tensor: int = 1, round_number: int = 0, loss_bound: float = 0.2) -> Any:
    return agent.post_receive(
        SENDER, values(9), tensor=tensor, round_number=round_number, loss_bound=loss_bound, gather=gather
    )


def test_a_gather_serves_one_round_of_its_own_channel(pair: tuple[Agent, Agent], make: Make) -> None:
    sender, receiver = pair
    gather = receiver.gather()
    _post(receiver, gather)
    with pytest.raises(UserInputError, match="gather: serves round 0, and has tensor 1 already"):
        _post(receiver, gather)
    with pytest.raises(UserInputError, match="gather: serves round 0, and this is 1"):
        _post(receiver, gather, round_number=1)
    with pytest.raises(UserInputError, match=r"percentage: 0.8 is below 1 - loss_bound = 0.9"):
        _post(receiver, gather, tensor=2, loss_bound=0.1)
    for other in (sender.gather(), receiver.channel("parameters").gather()):
        with pytest.raises(UserInputError, match=f"gather: is not of channel default of agent {RECEIVER}"):
            _post(receiver, other)
    with pytest.raises(UserInputError, match=r"is over tcp, which closes nothing early .*over ltp"):
        make("elsewhere", transport="tcp").gather()


def test_a_post_of_which_nothing_began_leaves_nothing_in_its_gather(make: Make) -> None:
    """It may be made again: once its peer is connected, or without what was wrong."""
    sender, receiver = make(SENDER, transport="ltp"), make(RECEIVER, transport="ltp")
    gather = receiver.gather()
    requests = [ReceiveRequest(buffer=values(9), tensor=at, loss_bound=0.2, gather=gather) for at in (1, 2)]
    with pytest.raises(AgentError, match=SENDER):
        receiver.default.post_receives(SENDER, [replace(each, deadline_seconds=0.01) for each in requests])
    connect(sender, receiver)
    with pytest.raises(UserInputError, match="loss_bound"):
        receiver.default.post_receives(SENDER, [requests[0], replace(requests[1], loss_bound=2)])
    received = receiver.default.post_receives(SENDER, requests)
    for tensor in (1, 2):
        sender.post_send(RECEIVER, values(9), tensor=tensor).wait(PATIENCE_SECONDS)
    assert all(transfer.wait(PATIENCE_SECONDS).error is None for transfer in received)


def test_what_was_cancelled_before_it_began_hides_nothing_of_its_link(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    gather = receiver.gather()
    cancelled, received = (_post(receiver, gather, tensor) for tensor in (1, 2))
    cancelled.cancel("it comes by another way")
    with pytest.raises(CancelledError, match="another way"):
        cancelled.wait(PATIENCE_SECONDS)
    sender.post_send(RECEIVER, values(9), tensor=2).wait(PATIENCE_SECONDS)
    assert received.wait(PATIENCE_SECONDS).error is None
    assert receiver.default.history.lt_ns(SENDER, values(9).nbytes, SETTINGS) > 0


def test_a_dead_peer_fails_its_own_link_and_the_others_end(make: Make) -> None:
    receiver = make(RECEIVER, transport="ltp")
    senders = [make(f"sender{number}", transport="ltp") for number in range(3)]
    for sender in senders:
        sender.connect(RECEIVER, receiver.listening_at)
    receiver.wait_for_peers([sender.name for sender in senders], PATIENCE_SECONDS)
    gather = receiver.gather()
    received = {
        sender.name: receiver.post_receive(
            sender.name, values(50_000), tensor=1, loss_bound=0.2, gather=gather
        )
        for sender in senders
    }
    sent = [sender.post_send(RECEIVER, values(50_000), tensor=1) for sender in senders[1:]]
    senders[0].close()
    for transfer in sent:
        transfer.wait(PATIENCE_SECONDS)
    for sender in senders[1:]:
        assert received[sender.name].wait(PATIENCE_SECONDS).error is None
    with pytest.raises(AgentError, match="sender0"):
        received["sender0"].wait(PATIENCE_SECONDS)
