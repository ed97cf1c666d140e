"""Judgements on a simulated port: right ones pass, and each fault is told by the right question."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.capabilities import AlphaLimit, BytesLimit, Unlimited
from mltswitch.errors import MachineError
from mltswitch.measure.acceptance import Check, Question, TestedClass
from mltswitch.measure.acceptance.competition import (
    judge_cap,
    judge_control,
    judge_host_control,
    judge_order,
    judge_share,
)
from mltswitch.measure.acceptance.judge import judge_class, judge_counters
from mltswitch.measure.observe import Trace, observe
from mltswitch.measure.runs import (
    TestedPort,
    background_run,
    cap_run,
    control_run,
    order_run,
    threshold_run,
)
from mltswitch.targets.base import EgressCounters
from tests.measure.simulated_port import PACKET, RATE, SimulatedPort, SimulatedQueue

PORT = TestedPort(RATE, PACKET, 2, (1,))
S, L = 32, 64


def expected(
    threshold: int | None = S, limit: int = L, name: str = "gradient-2", index: int = 4
) -> TestedClass:
    size = None if threshold is None else threshold * PACKET
    return TestedClass(name, index, 26, index, BytesLimit(limit * PACKET), limit * PACKET, size)


def traced(port: SimulatedPort, threshold: int = S, limit: int = L) -> Trace:
    return observe(port.exchange(threshold_run(PORT, 4, threshold * PACKET, limit * PACKET)))


def answers(checks: tuple[Check, ...]) -> dict[Question, bool | None]:
    return {check.question: check.holds for check in checks}


def failures(checks: tuple[Check, ...]) -> set[Question]:
    return {check.question for check in checks if check.holds is False}


def judged(queue: SimulatedQueue, **port: object) -> tuple[Check, ...]:
    trace = traced(SimulatedPort({4: queue}, **port))  # type: ignore[arg-type]  # names and types are the test's own
    return judge_class(trace, expected(), PORT)


@settings(max_examples=12, deadline=None)
@given(st.integers(12, 60), st.integers(10, 60), st.integers(1, 1000))
def test_a_right_queue_passes_every_question(threshold: int, above: int, seed: int) -> None:
    limit = threshold + above
    port = SimulatedPort({4: SimulatedQueue(threshold, limit)}, seed=seed)
    checks = judge_class(traced(port, threshold, limit), expected(threshold, limit), PORT)
    assert set(answers(checks).values()) == {True}, checks
    assert not any(check.explanation for check in checks)


@pytest.mark.parametrize(
    ("queue", "caught"),
    [
        (SimulatedQueue(2 * S, 2 * L), {Question.MARKS_BEGIN, Question.MARKED_ABOVE, Question.STANDS}),
        (SimulatedQueue(2 * S, L), {Question.MARKS_BEGIN, Question.MARKED_ABOVE, Question.DROPPED_ABOVE}),
        (SimulatedQueue(S // 2, L), {Question.MARKS_BEGIN, Question.KEPT_BELOW, Question.BURST}),
        (SimulatedQueue(S, L, others="pass"), {Question.DROPPED_ABOVE}),
        (SimulatedQueue(S, L, capable="drop"), {Question.MARKS_BEGIN, Question.ECT_KEPT, Question.STANDS}),
        (SimulatedQueue(S, L, capable="pass"), {Question.MARKS_BEGIN, Question.MARKED_ABOVE}),
        (SimulatedQueue(S, L // 2), {Question.ECT_KEPT, Question.STANDS}),
        (SimulatedQueue(S, L * 4 // 5), {Question.ECT_KEPT, Question.STANDS}),
        (SimulatedQueue(S, 2 * L), {Question.STANDS}),
        (SimulatedQueue(S * 5 // 4, L), {Question.MARKS_BEGIN, Question.DROPPED_ABOVE}),
        (SimulatedQueue(S * 3 // 4, L), {Question.MARKS_BEGIN, Question.KEPT_BELOW, Question.BURST}),
        (SimulatedQueue(S, L, weight=1 / 512), {Question.MARKED_ABOVE}),
    ],
)
def test_each_fault_is_told_by_the_right_question(queue: SimulatedQueue, caught: set[Question]) -> None:
    checks = judged(queue)
    assert failures(checks) >= caught, checks
    assert Question.RATE not in failures(checks)
    assert all(
        check.explanation and check.seen and check.expected for check in checks if check.holds is False
    )


def test_a_port_at_another_rate_is_told() -> None:
    assert Question.RATE in failures(judged(SimulatedQueue(S, L), rate_share=0.8))


@pytest.mark.parametrize(
    ("port", "queue", "known"),
    [
        ({"marks_at": "dequeue"}, SimulatedQueue(S, L), {"marks_at": "dequeue"}),
        ({}, SimulatedQueue(S, L, weight=0.5), {"averaging_packets": 4}),
    ],
)
def test_what_the_capabilities_say_of_marks_is_allowed(
    port: dict[str, str], queue: SimulatedQueue, known: dict[str, object]
) -> None:
    trace = traced(SimulatedPort({4: queue}, **port))  # type: ignore[arg-type]  # the test's own names
    checks = judge_class(trace, expected(), replace(PORT, **known))  # type: ignore[arg-type]  # these, too
    assert set(answers(checks).values()) == {True}, checks


@pytest.mark.parametrize(
    ("limit", "words"), [(AlphaLimit(-1), "alpha 2^-1"), (Unlimited(), "no limit in bytes")]
)
def test_a_limit_that_is_no_length_is_not_checked(limit: AlphaLimit | Unlimited, words: str) -> None:
    queue = replace(expected(), limit=limit)
    checks = judge_class(traced(SimulatedPort({4: SimulatedQueue(S, L)})), queue, PORT)
    found = answers(checks)
    assert found.pop(Question.ECT_KEPT) is None
    assert found.pop(Question.STANDS) is None
    assert set(found.values()) == {True}, checks
    assert all(words in check.explanation for check in checks if check.holds is None)


ABOVE_S = {Question.MARKS_BEGIN, Question.MARKED_ABOVE, Question.DROPPED_ABOVE}
OF_S = {Question.BURST, Question.KEPT_BELOW} | ABOVE_S
OF_L = {Question.ECT_KEPT, Question.STANDS}


@pytest.mark.parametrize(
    ("threshold", "limit", "unchecked"), [(1, 3, OF_S | OF_L), (30, 31, ABOVE_S), (None, L, OF_S)]
)
def test_what_delays_cannot_tell_is_not_checked(
    threshold: int | None, limit: int, unchecked: set[Question]
) -> None:
    real = limit if threshold is None else threshold
    trace = traced(SimulatedPort({4: SimulatedQueue(real, limit)}), real, limit)
    found = answers(judge_class(trace, expected(threshold, limit), PORT))
    assert {question for question, holds in found.items() if holds is None} == unchecked
    assert False not in found.values()


def test_nothing_through_the_port() -> None:
    with pytest.raises(MachineError, match="nothing arrived over the empty port"):
        traced(SimulatedPort({4: SimulatedQueue(0, 0)}))


GRADIENTS = (3, 4)
CONTROL = TestedClass("control", 1, 40, 1, BytesLimit(30 * PACKET), 30 * PACKET, maximum_bps=RATE // 10)
BACKGROUND = TestedClass("background", 5, 0, 5, BytesLimit(32 * PACKET), 32 * PACKET, minimum_bps=RATE // 20)
HOST_CONTROL = TestedClass("network-control", 0, 48, 0, BytesLimit(16 * PACKET), 16 * PACKET)
UPPER, LOWER = expected(18, 36, "gradient-1", 3), expected(32, 64, "gradient-2", 4)
QUEUES = {3: SimulatedQueue(18, 36), 4: SimulatedQueue(32, 64)}


SHORT = {3: SimulatedQueue(1, 3), 4: SimulatedQueue(32, 64)}


def order_trace(queues: dict[int, SimulatedQueue], pauses: tuple[float, float] | None = None) -> Trace:
    run = order_run(PORT, 3, 4, (36 * PACKET, 64 * PACKET))
    return observe(SimulatedPort(queues, pauses=pauses).exchange(run))


@pytest.mark.parametrize("pauses", [None, (0.030, 0.008)])
@pytest.mark.parametrize("above", [SHORT, QUEUES], ids=["short", "long"])
def test_order_is_told_and_pauses_of_the_hosts_accuse_nobody_and_hide_nothing(
    above: dict[int, SimulatedQueue], pauses: tuple[float, float] | None
) -> None:
    right = judge_order(order_trace(above, pauses), UPPER, LOWER, PORT)
    wrong = judge_order(order_trace({4: above[4], 3: above[3]}, pauses), UPPER, LOWER, PORT)
    assert wrong.holds is False, wrong
    assert "reversed" in wrong.explanation
    if above is SHORT and pauses:
        assert right.holds is None
        assert "paused too often" in right.explanation
    assert right.holds is not False, right
    assert right.holds or pauses, right


def test_an_upper_class_that_never_filled_the_port_proves_nothing() -> None:
    trace = order_trace(QUEUES)
    lost = ((trace.phase == "upper") & (np.arange(len(trace)) % 3 > 0)) | (trace.phase == "lower")
    check = judge_order(replace(trace, is_received=trace.is_received & ~lost), UPPER, LOWER, PORT)
    assert check.holds is None
    assert "did not fill the port" in check.explanation


@pytest.mark.parametrize(
    ("queues", "holds"),
    [
        ({1: SimulatedQueue(30, 30), **QUEUES}, True),
        ({**QUEUES, 1: SimulatedQueue(30, 30)}, False),
        ({1: SimulatedQueue(1000, 1000), 3: SimulatedQueue(1000, 1000), 4: SimulatedQueue(5000, 5000)}, None),
    ],
)
def test_control(queues: dict[int, SimulatedQueue], holds: bool | None) -> None:
    run = control_run(PORT, 1, GRADIENTS, 100 * PACKET)
    check = judge_control(observe(SimulatedPort(queues).exchange(run)), CONTROL, PORT)
    assert check.holds is holds, check


def cap_trace(cap: float | None) -> Trace:
    run = cap_run(PORT, 1, GRADIENTS, RATE // 10, 30 * PACKET)
    return observe(SimulatedPort({1: SimulatedQueue(30, 30, cap=cap), **QUEUES}).exchange(run))


@pytest.mark.parametrize(
    ("cap", "holds"), [(0.1, True), (0.05, True), (0.13, False), (0.18, False), (None, False)]
)
def test_control_at_its_cap(cap: float | None, holds: bool) -> None:
    check = judge_cap(cap_trace(cap), CONTROL, RATE // 10, PORT)
    assert check.holds is holds, check


def test_control_that_hosts_did_not_send_proves_no_cap() -> None:
    trace = cap_trace(0.1)
    thinned = trace.where((trace.phase != "greedy") | (np.arange(len(trace)) % 2 == 0))
    assert judge_cap(thinned, CONTROL, RATE // 10, PORT).holds is None


def background_trace(
    queues: dict[int, SimulatedQueue], pauses: tuple[float, float] | None = None, seed: int = 1
) -> Trace:
    run = background_run(PORT, 5, RATE // 20, 0, (1,), GRADIENTS, 100 * PACKET)
    return observe(SimulatedPort(queues, pauses=pauses, seed=seed).exchange(run))


@pytest.mark.parametrize(
    ("last", "holds"),
    [
        (SimulatedQueue(32, 32, share=0.05), True),
        (SimulatedQueue(32, 32, share=0.09), True),
        (SimulatedQueue(32, 32, share=0.035), False),
        (SimulatedQueue(32, 32, share=0.02), False),
        (SimulatedQueue(32, 32), False),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_share_of_background(last: SimulatedQueue, holds: bool, seed: int) -> None:
    check = judge_share(background_trace({**QUEUES, 5: last}, seed=seed), BACKGROUND, RATE // 20, PORT)
    assert check.holds is holds, check


def test_a_port_that_stood_still_condemns_no_share() -> None:
    """It sent a third less than it can, of all classes alike."""
    trace = background_trace({**QUEUES, 5: SimulatedQueue(32, 32, share=0.05)})
    lost = (trace.phase != "idle") & (np.arange(len(trace)) % 3 == 0)
    check = judge_share(replace(trace, is_received=trace.is_received & ~lost), BACKGROUND, RATE // 20, PORT)
    assert (check.holds, check.is_disturbed) == (None, True), check
    assert "the port sent only" in check.explanation


def test_what_background_gets_in_pauses_of_the_hosts_is_no_share() -> None:
    queues = {3: SimulatedQueue(1, 2), 4: SimulatedQueue(1, 3), 5: SimulatedQueue(32, 32)}
    check = judge_share(background_trace(queues, (0.040, 0.020)), BACKGROUND, RATE // 20, PORT)
    assert (check.holds, check.is_disturbed) == (None, True), check
    assert "paused too often" in check.explanation


@pytest.mark.parametrize(
    ("queues", "holds"),
    [
        ({**QUEUES, 5: SimulatedQueue(32, 32, share=0.05)}, True),
        ({**QUEUES, 5: SimulatedQueue(32, 32)}, True),
        ({0: SimulatedQueue(16, 16), **QUEUES, 5: SimulatedQueue(32, 32, share=0.05)}, False),
        ({5: SimulatedQueue(32, 32), **QUEUES}, None),
    ],
)
def test_network_control_of_hosts(queues: dict[int, SimulatedQueue], holds: bool | None) -> None:
    if holds is None:  # background is served first: nothing can be told from it
        queues = {5: queues[5], 0: SimulatedQueue(16, 16), **QUEUES}
    check = judge_host_control(background_trace(queues), HOST_CONTROL, BACKGROUND, PORT)
    assert check.holds is holds, check


@pytest.mark.parametrize(
    ("marked", "dropped", "holds"), [(1, 1, True), (0, 1, False), (1, 2, False), (1, 0, False)]
)
def test_counters(marked: int, dropped: int, holds: bool) -> None:
    """Times what the hosts saw."""
    port = SimulatedPort({4: SimulatedQueue(S, L)})
    trace = traced(port)
    before = EgressCounters(ce_marked_packets=9, dropped_at_threshold_packets=8, dropped_at_limit_packets=7)
    after = replace(
        before,
        ce_marked_packets=9 + marked * port.marked,
        dropped_at_threshold_packets=8 + dropped * port.dropped,
    )
    assert judge_counters(trace, expected(), before, after).holds is holds
    unread = judge_counters(trace, expected(), "nobody can be asked", after)
    assert (unread.holds, unread.explanation) == (None, "nobody can be asked")
