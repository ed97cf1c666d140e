"""What gathers refuse, and what they learn: estimators of LT against a fluid incast."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent import Agent, AgentError
from mltswitch.hostagent.early_close import (
    MOST_LINKS_KEPT,
    REGISTERED,
    ROUNDS_KEPT,
    EarlyCloseSettings,
    History,
)
from tests.hostagent.ends import PATIENCE_SECONDS, RECEIVER, SENDER, Make, joined, values

SETTINGS = EarlyCloseSettings()
PAPER = EarlyCloseSettings(estimator="paper")
SIZE = 1_000_000
SENDERS = 8
LINK_BYTES_PER_NS = 0.0125
"""100 Mbit/s."""


def _fluid_round(rates: list[float], lts_ns: list[float], slack_ns: float) -> list[tuple[float, float]]:
    """Elapsed time and share of each sender, whose rates are in these ratios while they share the link.

    A link closes at its LT where 80 % are there, else when they are, or at the deadline of all. A rate that
    is free is not taken by others: what TCP's flows would do, and the worst for who is slow.
    """
    deadline_ns = max(lts_ns) + slack_ns
    found = []
    for rate, lt_ns in zip(rates, lts_ns, strict=True):
        needed_ns = SIZE / (rate / sum(rates) * LINK_BYTES_PER_NS)
        closed_ns = min(needed_ns, max(lt_ns, min(0.8 * needed_ns, deadline_ns)))
        found.append((closed_ns, min(1.0, closed_ns / needed_ns)))
    return found


def _delivered(settings: EarlyCloseSettings, spread: float, too_high: float = 1.0, rounds: int = 60) -> float:
    """Mean share after a few rounds; BtlBw of the paper's estimator is taken so many times too high."""
    history, shares = History(), []
    for number in range(rounds):
        rates = [1 + spread * math.sin(2.4 * number * (at + 1) + at) for at in range(SENDERS)]
        lts_ns = []
        for at in range(SENDERS):
            lt_ns = float(history.lt_ns(str(at), SIZE, settings))
            registered_ns = SIZE / (LINK_BYTES_PER_NS / SENDERS * too_high)
            lts_ns.append(registered_ns if lt_ns == REGISTERED else lt_ns or math.inf)
        for at, (elapsed_ns, share) in enumerate(_fluid_round(rates, lts_ns, 30e6)):
            history.learn(str(at), SIZE, round(elapsed_ns), share)
            shares.append(share)
    return sum(shares) / len(shares)


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
def test_rounds_of_which_nine_in_ten_complete_deliver_nearly_everything(spread: float) -> None:
    assert _delivered(SETTINGS, spread) >= 0.985
    assert _delivered(PAPER, spread) < _delivered(SETTINGS, spread)


@pytest.mark.parametrize(("too_high", "most"), [(2, 0.85), (8, 0.85)])
def test_a_bottleneck_believed_too_fast_cuts_the_papers_rounds_for_ever(too_high: float, most: float) -> None:
    assert _delivered(PAPER, 0.1, too_high) < most
    assert _delivered(SETTINGS, 0.1, too_high) >= 0.985


def test_the_first_round_waits_for_all_and_an_outlier_does_not_count_for_long() -> None:
    history = History()
    assert history.lt_ns("a", SIZE, SETTINGS) == 0
    assert history.lt_ns("a", SIZE, PAPER) == REGISTERED
    for _ in range(ROUNDS_KEPT):
        history.learn("a", SIZE, 1_000_000, 1.0)
    history.learn("a", SIZE, 900_000_000, 1.0)
    assert history.lt_ns("a", SIZE, SETTINGS) == 1_000_000
    assert history.lt_ns("a", SIZE + 1, SETTINGS) == 0  # another size is another link
    assert history.lt_ns("b", SIZE, SETTINGS) == 0


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
    return joined(make, transport="ltp")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"percentage": 0}, r"percentage: 0 \(expected above 0, up to 1\)"),
        ({"percentage": 1.01}, "percentage: 1.01"),
        ({"percentage": math.nan}, "percentage: nan"),
        ({"percentage": True}, "percentage: True"),
        ({"slack_seconds": -1}, r"slack_seconds: -1 \(expected 0 to 86400\)"),
        ({"slack_seconds": math.inf}, "slack_seconds: inf"),
        ({"estimator": "oracle"}, r"estimator: 'oracle' \(expected quantile or paper\)"),
        ({"rounds_per_epoch": 0}, r"rounds_per_epoch: 0 \(expected 1 or more\)"),
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
    with pytest.raises(UserInputError, match=f"gather: is not of channel default of agent {RECEIVER}"):
        _post(receiver, sender.gather())
    with pytest.raises(UserInputError, match=r"is over tcp, which closes nothing early .*over ltp"):
        make("elsewhere", transport="tcp").gather()


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
