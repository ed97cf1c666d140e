"""The rule of MLT and TIMELY, step by step; and what becomes of senders that follow it."""

from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.hostagent.transport.interfaces import RateController
from mltswitch.hostagent.transport.rate import RateSettings, Timely
from tests.hostagent.transport.bottleneck import Bottleneck, Sender, run

PAPER = RateSettings.paper_100g()
LINE_BPS = 500e6
QUEUE_BYTES = 128_000
LAB = RateSettings.for_network(LINE_BPS, queue_bytes=QUEUE_BYTES)
SECOND_NS = 10**9

RoundTrips = st.lists(
    st.tuples(st.integers(-1000, 10**10), st.integers(0, 10**8)), max_size=200
)  # ns of the round trip, ns until the next


def steps(rate: Timely, round_trips_ns: list[int], gap_ns: int = 1000) -> list[float]:
    found = []
    for number, round_trip_ns in enumerate(round_trips_ns):
        rate.acknowledged(round_trip_ns, number * gap_ns)
        found.append(rate.rate_bps)
    return found


def slowed(round_trip_ns: int = 500_000, settings: RateSettings = PAPER) -> Timely:
    """In the middle of its range; the gradient's average is the one of a constant round trip."""
    rate = Timely(settings)
    for now_ns in range(2):
        rate.acknowledged(round_trip_ns, now_ns)
    return rate


def test_starts_at_line_rate() -> None:
    controller: RateController = Timely(PAPER)
    assert controller.rate_bps == 100e9
    assert Timely(LAB).rate_bps == LINE_BPS


def test_the_preset_is_the_papers() -> None:
    assert (PAPER.low_ns, PAPER.high_ns, PAPER.increase_bps, PAPER.decrease) == (12_500, 125_000, 40e6, 0.8)


def test_below_the_low_threshold_alpha_is_added() -> None:
    rate = slowed()
    before = rate.rate_bps
    assert steps(rate, [12_499, 12_499]) == pytest.approx([before + 40e6, before + 80e6])


def test_above_the_high_threshold_the_papers_factor_applies() -> None:
    first, second = steps(Timely(PAPER), [150_000, 250_000])
    assert first == pytest.approx(100e9 * (1 - 0.8 * (1 - 125 / 150)))
    assert second == pytest.approx(first * (1 - 0.8 * (1 - 125 / 250)))


def test_the_rate_is_the_highest_once_round_trips_say_so_and_until_they_do_not() -> None:
    rate = Timely(replace(PAPER, increase_bps=60e9))
    assert not rate.is_highest  # nobody knows yet
    steps(rate, [10_000])
    assert rate.is_highest
    steps(rate, [150_000])
    assert not rate.is_highest
    steps(rate, [10_000])
    assert rate.is_highest


def test_a_fall_above_the_high_threshold_is_still_a_decrease() -> None:
    first, second = steps(Timely(PAPER), [250_000, 150_000])
    assert second == pytest.approx(first * (1 - 0.8 * (1 - 125 / 150)))


def test_at_the_high_threshold_with_no_rise_alpha_is_added() -> None:
    rate = Timely(replace(PAPER, gradient_weight=1.0))
    before = steps(rate, [500_000])[0]
    assert steps(rate, [125_000]) == pytest.approx([before + 40e6])


def test_between_the_thresholds_a_constant_delay_adds_and_a_rise_follows_the_gradient() -> None:
    rate = Timely(replace(PAPER, gradient_weight=0.5))
    before = steps(rate, [500_000, 50_000])[-1]
    rate = slowed(50_000, replace(PAPER, gradient_weight=0.5, cap_bps=10e9))
    assert before > 0
    assert steps(rate, [50_000]) == pytest.approx([10e9])
    gradient = 0.5 * 5_000 / 12_500
    assert steps(rate, [55_000]) == pytest.approx([10e9 * (1 - 0.8 * gradient)])
    gradient = (0.5 * 0.5 * 5_000 + 0.5 * 2_000) / 12_500
    assert steps(rate, [57_000]) == pytest.approx([10e9 * (1 - 0.8 * 0.2) * (1 - 0.8 * gradient)])


def test_no_step_takes_more_than_half() -> None:
    assert steps(Timely(PAPER), [10**12]) == [50e9]


def test_increases_in_a_row_become_larger_where_that_is_set() -> None:
    rate = slowed(settings=replace(PAPER, hyperactive_factor=5.0, hyperactive_after=3))
    found = [rate.rate_bps, *steps(rate, [10_000] * 5)]
    assert [after - before for before, after in pairwise(found)] == pytest.approx(
        [40e6, 40e6, 40e6, 200e6, 200e6]
    )
    plain = slowed()
    found = [plain.rate_bps, *steps(plain, [10_000] * 9)]
    assert found[-1] - found[0] == pytest.approx(9 * 40e6)


def test_a_decrease_ends_the_row() -> None:
    rate = slowed(settings=replace(PAPER, hyperactive_factor=5.0, hyperactive_after=2))
    *_, before, after = steps(rate, [10_000, 10_000, 10_000, 200_000, 10_000])
    assert after - before == pytest.approx(40e6)


@given(RoundTrips, st.sampled_from([PAPER, LAB]))
def test_the_rate_stays_between_floor_and_cap(
    round_trips: list[tuple[int, int]], given: RateSettings
) -> None:
    rate, now_ns = Timely(given), 0
    for round_trip_ns, gap_ns in round_trips:
        now_ns += gap_ns
        rate.acknowledged(round_trip_ns, now_ns)
        assert given.floor_bps <= rate.rate_bps <= given.cap_bps


@given(RoundTrips, st.integers(125_001, 10**9))
def test_above_the_high_threshold_the_rate_falls_whatever_was_before(
    round_trips: list[tuple[int, int]], round_trip_ns: int
) -> None:
    rate, now_ns = Timely(PAPER), 0
    for before_ns, gap_ns in round_trips:
        now_ns += gap_ns
        rate.acknowledged(before_ns, now_ns)
    before = rate.rate_bps
    rate.acknowledged(round_trip_ns, now_ns)
    assert rate.rate_bps < before or before == PAPER.floor_bps


@given(RoundTrips, st.integers(1, 12_499))
def test_below_the_low_threshold_the_rate_rises_whatever_was_before(
    round_trips: list[tuple[int, int]], round_trip_ns: int
) -> None:
    rate, now_ns = Timely(PAPER), 0
    for before_ns, gap_ns in round_trips:
        now_ns += gap_ns
        rate.acknowledged(before_ns, now_ns)
    before = rate.rate_bps
    rate.acknowledged(round_trip_ns, now_ns)
    assert rate.rate_bps > before or before == PAPER.cap_bps


def test_one_step_a_round_trip_answers_to_the_least_of_its_samples() -> None:
    rate = Timely(LAB)
    rate.base_measured(200_000, 0)
    for now_ns in range(0, 600_000, 100_000):
        rate.acknowledged(50_000_000 if now_ns != 300_000 else 600_000, now_ns)
    assert rate.rate_bps == LINE_BPS
    for now_ns in range(600_000, 60_000_000, 100_000):
        rate.acknowledged(50_000_000, now_ns)
    assert rate.rate_bps == LINE_BPS / 2


def test_the_base_is_learned_from_the_control_channel_and_forgotten() -> None:
    rate = Timely(LAB)
    rate.acknowledged(9_000_000, 0)
    assert rate.base_round_trip_ns == 9_000_000
    rate.base_measured(2_000_000, 1)
    rate.acknowledged(5_000_000, 2)
    assert rate.base_round_trip_ns == 2_000_000
    rate.base_measured(3_000_000, 3)
    assert rate.base_round_trip_ns == 2_000_000
    for second in (6, 12):
        rate.base_measured(3_000_000, second * SECOND_NS)
    assert rate.base_round_trip_ns == 3_000_000
    rate.base_measured(1, 13 * SECOND_NS)
    assert rate.base_round_trip_ns == LAB.base_round_trip_ns


def test_no_round_trip_is_shorter_than_the_base() -> None:
    rate = Timely(LAB)
    rate.base_measured(6_000_000, 0)  # the control channel's host was busy
    rate.acknowledged(1_000_000, 1)
    assert rate.base_round_trip_ns == 1_000_000


def slowed_on_a_network(given: RateSettings) -> tuple[Timely, int]:
    """At its floor, just after a step; and now."""
    rate, now_ns = Timely(given), 0
    rate.base_measured(given.base_round_trip_ns, 0)
    while rate.rate_bps > given.floor_bps or rate._samples:
        now_ns += 10**7
        rate.acknowledged(10**9, now_ns)
    return rate, now_ns


def test_below_the_low_threshold_a_share_of_the_rate_is_added_where_that_is_more() -> None:
    rate, now_ns = slowed_on_a_network(replace(LAB, samples=1, floor_bps=LINE_BPS / 10))
    rate.acknowledged(LAB.low_ns - 1, now_ns + 10**6)
    assert rate.rate_bps == pytest.approx(LINE_BPS / 10 * (1 + LAB.growth))
    rate, now_ns = slowed_on_a_network(replace(LAB, samples=1))
    rate.acknowledged(LAB.low_ns - 1, now_ns + 10**6)
    assert rate.rate_bps == pytest.approx(LAB.floor_bps + LAB.increase_bps)
    rate, now_ns = slowed_on_a_network(replace(LAB, samples=1, floor_bps=LINE_BPS / 4))
    rate.acknowledged(LAB.low_ns - 1, now_ns + 10**6)
    assert rate.rate_bps == pytest.approx(LINE_BPS / 4 + LAB.increase_bps), "it is near its cap again"


def test_who_hears_seldom_grows_by_the_first_short_round_trip() -> None:
    rate, now_ns = slowed_on_a_network(LAB)
    rate.acknowledged(LAB.low_ns - 1, now_ns + 1)
    rate.acknowledged(10**9, now_ns + LAB.samples * LAB.low_ns - 1)
    assert rate.rate_bps == LAB.floor_bps
    rate.acknowledged(10**9, now_ns + LAB.samples * LAB.low_ns)
    assert rate.rate_bps > LAB.floor_bps


def test_who_hears_seldom_waits_for_all_samples_before_it_slows_down() -> None:
    rate = Timely(LAB)
    rate.base_measured(LAB.base_round_trip_ns, 0)
    for number in range(LAB.samples - 1):
        rate.acknowledged(10**9, 1 + number * 10**8)
    assert rate.rate_bps == LINE_BPS
    rate.acknowledged(10**9, 2 * 10**9)
    assert rate.rate_bps == LINE_BPS / 2


def test_the_papers_thresholds_do_not_move() -> None:
    rate = Timely(PAPER)
    rate.base_measured(2_000_000, 0)
    assert rate.base_round_trip_ns == 12_500
    assert steps(rate, [250_000]) == pytest.approx([100e9 * 0.6])


@pytest.mark.parametrize("round_trip_ns", [0, -5])
def test_a_round_trip_that_cannot_be_does_not_count(round_trip_ns: int) -> None:
    assert steps(slowed(), [round_trip_ns]) == [slowed().rate_bps]


@pytest.mark.parametrize(
    "wrong",
    [
        {"floor_bps": 0.0},
        {"floor_bps": 101e9},
        {"low_ns": 125_000},
        {"base_round_trip_ns": 20_000},
        {"increase_bps": 0.0},
        {"decrease": 1.1},
        {"gradient_weight": 0.0},
        {"samples": 0},
        {"hyperactive_factor": 0.5},
        {"growth": 1.1},
    ],
)
def test_settings_that_contradict_each_other(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"bit/s|ns|1 or more|growth"):
        replace(PAPER, **wrong)  # type: ignore[arg-type]  # any field


@settings(max_examples=50)
@given(
    st.floats(1e6, 1e12),
    st.integers(0, 10**9),
    st.integers(1, 10**9),
    st.floats(0.01, 1.0),
    st.integers(1, 10**7),
)
def test_settings_for_any_network(
    line_bps: float, queue_bytes: int, base_ns: int, share: float, noise_ns: int
) -> None:
    found = RateSettings.for_network(
        line_bps, queue_bytes=queue_bytes, base_round_trip_ns=base_ns, cap_share=share, noise_ns=noise_ns
    )
    assert found.cap_bps == line_bps * share
    drain_ns = queue_bytes * 8e9 / line_bps
    assert found.low_ns == base_ns + max(noise_ns, round(drain_ns / 4))
    assert found.high_ns <= max(base_ns + drain_ns, found.low_ns + noise_ns)


def test_settings_of_a_network_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="share 0"):
        RateSettings.for_network(1e9, queue_bytes=1, cap_share=0)


def shares(senders: list[Sender], until_ns: int) -> list[float]:
    """Goodput of each in the second half."""
    return [sender.delivered_bps(until_ns // 2, until_ns) for sender in senders]


def fairness(rates: list[float]) -> float:
    """Jain's index: 1 where all are equal, 1/n where one has it all."""
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


def meet(
    count: int, bottleneck: Bottleneck, given: RateSettings, until_ns: int, apart_ns: int = 0
) -> tuple[list[Sender], list[int]]:
    senders = [Sender(Timely(given), index * apart_ns) for index in range(count)]
    for sender in senders:
        assert isinstance(sender.rate, Timely)
        sender.rate.base_measured(bottleneck.base_round_trip_ns, sender.starts_ns)
    return senders, run(bottleneck, senders, until_ns)


@pytest.mark.parametrize(
    ("count", "base_ns", "apart_ns"),
    [(2, 200_000, 0), (8, 200_000, 0), (8, 2_000_000, 0), (4, 200_000, 50_000_000)],
)
def test_senders_share_a_bottleneck(count: int, base_ns: int, apart_ns: int) -> None:
    bottleneck = Bottleneck(rate_bps=LINE_BPS, base_round_trip_ns=base_ns, queue_bytes=QUEUE_BYTES)
    senders, _ = meet(count, bottleneck, LAB, SECOND_NS, apart_ns)
    found = shares(senders, SECOND_NS)
    assert sum(found) > 0.75 * LINE_BPS
    assert fairness(found) > 0.95
    late = [fmean(sender.rates_bps[-50:]) for sender in senders]
    assert sum(late) < 1.6 * LINE_BPS, "the senders have not slowed down to what the bottleneck carries"


def test_rate_control_keeps_the_queue_shorter_and_loses_less() -> None:
    bottleneck = Bottleneck(rate_bps=LINE_BPS, base_round_trip_ns=200_000, queue_bytes=QUEUE_BYTES)
    deaf = replace(LAB, low_ns=10**10, high_ns=10**11)

    def lost_and_waited(given: RateSettings) -> tuple[float, float]:
        senders, waits = meet(4, bottleneck, given, SECOND_NS // 2)
        sent = sum(sender.sent for sender in senders)
        return 1 - sum(len(sender.delivered) for sender in senders) / sent, fmean(waits)

    lost, waited = lost_and_waited(LAB)
    deaf_lost, deaf_waited = lost_and_waited(deaf)
    assert deaf_lost == pytest.approx(0.75, abs=0.02)
    assert lost < deaf_lost / 3
    assert waited < deaf_waited * 0.75


@pytest.mark.parametrize(("noise_ns", "noise_share"), [(500_000, 1.0), (1_000_000, 0.5)])
def test_noise_of_busy_hosts_does_not_make_a_lone_sender_crawl(noise_ns: int, noise_share: float) -> None:
    bottleneck = Bottleneck(
        rate_bps=LINE_BPS,
        base_round_trip_ns=200_000,
        queue_bytes=QUEUE_BYTES,
        noise_ns=noise_ns,
        noise_share=noise_share,
    )
    senders, _ = meet(1, bottleneck, LAB, SECOND_NS // 2)
    assert shares(senders, SECOND_NS // 2)[0] > 0.9 * LINE_BPS
    papers = replace(PAPER, cap_bps=LINE_BPS, floor_bps=LINE_BPS / 1000, increase_bps=LINE_BPS / 2500)
    crawling, _ = meet(1, bottleneck, papers, SECOND_NS // 2)
    assert shares(crawling, SECOND_NS // 2)[0] < 0.1 * LINE_BPS, "the noise of this test is none"


def test_the_papers_rule_on_the_papers_network() -> None:
    bottleneck = Bottleneck(rate_bps=100e9, base_round_trip_ns=8_000, queue_bytes=1_500_000)
    until_ns = 12_000_000
    senders, _ = meet(4, bottleneck, PAPER, until_ns)
    found = shares(senders, until_ns)
    assert sum(found) > 0.9 * 100e9
    assert fairness(found) > 0.95
