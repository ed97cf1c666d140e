"""How often a check is measured: once where it holds, again where one run said something else."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, repeat
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.capabilities import BytesLimit, Unlimited
from mltswitch.deploy.session import Session
from mltswitch.errors import MachineError
from mltswitch.measure.acceptance import (
    AcceptanceResult,
    Check,
    DeviceCounters,
    Place,
    Question,
    TestedClass,
    Verdict,
    accept,
)
from mltswitch.measure.acceptance.run import AGAIN_SECONDS, ATTEMPTS, MEASUREMENTS, settle
from mltswitch.measure.hosts import DisturbedRunError, Exchanged, Hosts
from mltswitch.measure.runs import TestedPort
from mltswitch.measure.schedule import Run
from mltswitch.targets import target_for
from tests.measure.simulated_port import PACKET, RATE, SimulatedPort, SimulatedQueue

S, L = 20, 40
PLACE = Place(
    switch="leaf2",
    port="eth2",
    platform="none",
    hardware="none",
    receiver="host4",
    senders=("host1", "host3"),
    destinations=((), ()),
    tested=TestedPort(RATE, PACKET, 2, (1,)),
    gradients=(TestedClass("gradient-0", 4, 26, 4, BytesLimit(L * PACKET), L * PACKET, S * PACKET),),
    controls=(),
    background=TestedClass("background", 5, 0, 5, Unlimited(), 20 * PACKET),
    host_control=None,
    host_control_senders=(),
    unverified=(),
)
RIGHT, WRONG = SimulatedQueue(S, L), SimulatedQueue(2 * S, 2 * L)
QUIET = SimulatedPort({4: RIGHT})


class Scripted:
    """Hosts before one port after the other; the last one stays."""

    def __init__(self, ports: Sequence[SimulatedPort]) -> None:
        self.runs = 0
        self._ports = chain(ports, repeat(ports[-1]))

    def exchange(self, run: Run) -> Exchanged:
        self.runs += 1
        return next(self._ports).exchange(run)


class Late(SimulatedPort):
    """Its hosts fell behind."""

    def exchange(self, run: Run) -> Exchanged:
        return replace(super().exchange(run), late_seconds=2 * AGAIN_SECONDS)


class Refused(SimulatedPort):
    """A host of it could not send."""

    def exchange(self, run: Run) -> Exchanged:
        raise DisturbedRunError("its own kernel refused 7 of 9 packets", where="host1")


def accepted(*ports: SimulatedPort) -> tuple[AcceptanceResult, int, list[str]]:
    """The result, how many runs it took, and what was said meanwhile."""
    said: list[str] = []
    hosts = Scripted(ports)
    result = accept(
        PLACE, cast("Hosts", hosts), DeviceCounters(None, "nobody asks", target=None), said.append
    )
    return result, hosts.runs, said


def measured(result: AcceptanceResult) -> dict[Question, int]:
    return {check.question: check.measured for check in result.checks}


def test_a_right_port_is_measured_once() -> None:
    result, runs, _ = accepted(QUIET)
    assert (result.verdict, runs) == (Verdict.ACCEPTED, 1)
    assert set(measured(result).values()) == {1}


def test_one_bad_run_condemns_nobody() -> None:
    result, runs, said = accepted(SimulatedPort({4: WRONG}), QUIET)
    assert (result.verdict, runs) == (Verdict.ACCEPTED, 2)
    counts = measured(result)
    assert counts[Question.RATE] == 1
    assert counts[Question.STANDS] == counts[Question.MARKS_BEGIN] == 2
    assert any(Question.STANDS in line and line.endswith("? Once more") for line in said)


def test_what_is_wrong_fails_every_time() -> None:
    result, runs, _ = accepted(SimulatedPort({4: WRONG}))
    assert (result.verdict, runs) == (Verdict.FAILED, MEASUREMENTS)
    for check in result.checks:
        if check.holds is not None:
            assert check.measured == (1 if check.holds else MEASUREMENTS)


def test_the_time_on_the_wire_is_that_of_all_runs() -> None:
    once, thrice = accepted(QUIET)[0], accepted(SimulatedPort({4: WRONG}))[0]
    assert thrice.seconds == pytest.approx(MEASUREMENTS * once.seconds)


def test_a_late_run_is_repeated_and_not_believed() -> None:
    result, runs, said = accepted(Late({4: WRONG}), QUIET)
    assert (result.verdict, runs) == (Verdict.ACCEPTED, 2)
    assert set(measured(result).values()) == {1}
    assert any("a sender paused for 80 ms, once more" in line for line in said)


def test_hosts_that_are_always_late_accuse_nobody() -> None:
    result, runs, _ = accepted(Late({4: WRONG}))
    assert runs == ATTEMPTS
    assert result.verdict is not Verdict.FAILED
    spoilt = [check for check in result.checks if check.is_disturbed]
    assert {check.question for check in spoilt} >= {Question.STANDS, Question.MARKS_BEGIN}
    assert all("a sender paused for 80 ms in every run" in check.explanation for check in spoilt)


def test_a_run_that_a_host_spoilt_is_repeated() -> None:
    result, runs, _ = accepted(Refused({4: RIGHT}), QUIET)
    assert (result.verdict, runs) == (Verdict.ACCEPTED, 2)
    with pytest.raises(MachineError, match="refused 7 of 9 packets"):
        accepted(Refused({4: RIGHT}))


def test_a_noisy_path_is_measured_again() -> None:
    """Delays that tell less than S are no answer; the next run's do."""

    class Noisy(SimulatedPort):
        def exchange(self, run: Run) -> Exchanged:
            found = super().exchange(run)
            found.records["arrived_ns"] += np.random.default_rng(3).integers(
                0, 60_000_000, len(found.records)
            )
            return found

    result, runs, _ = accepted(Noisy({4: RIGHT}), QUIET)
    assert (result.verdict, runs) == (Verdict.ACCEPTED, 2)
    unclear, runs, _ = accepted(Noisy({4: RIGHT}))
    assert runs == MEASUREMENTS
    assert unclear.verdict is Verdict.INCONCLUSIVE, unclear.checks


@pytest.mark.parametrize(
    ("count", "said"),
    [
        ("-", "port eth2: the chip does not count marks or drops of queue 4"),
        (None, "has another form than known"),
        ("7", ""),
    ],
)
def test_what_the_device_counts_is_asked_before_and_after(
    monkeypatch: pytest.MonkeyPatch, count: str | None, said: str
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    queues = {"4": count} if count else {}
    answered = json.dumps({"intfQueueCounters": {"eth2": {"queueCounters": queues}}})
    asked: list[str] = []

    def ask(query: str) -> str:
        asked.append(query)
        return answered

    session = SimpleNamespace(ask=ask)
    counters = DeviceCounters(cast("Session", session), target=target_for("eos"))
    result = accept(PLACE, cast("Hosts", Scripted([QUIET])), counters, lambda _: None)
    (check,) = (check for check in result.checks if check.question is Question.COUNTERS)
    assert len(asked) >= 2 * check.measured
    assert said in check.explanation
    assert check.holds is (None if said else False)  # it has not risen, and the hosts saw marks


def answer(holds: bool | None, *, is_disturbed: bool = False) -> Check:
    return Check(Question.STANDS, "gradient-0", holds, "", "", is_disturbed=is_disturbed)


@given(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=MEASUREMENTS))
def test_several_answers_become_one(holds: list[bool | None]) -> None:
    found = settle([answer(entry, is_disturbed=entry is None) for entry in holds])
    if True in holds:
        assert (found.holds, found.measured) == (True, holds.index(True) + 1)
    else:
        expected = False if holds.count(False) > 1 or holds == [False] else None
        assert (found.holds, found.measured) == (expected, len(holds))


def test_what_cannot_be_checked_at_all_was_measured_once() -> None:
    assert settle([answer(None), answer(None), answer(None)]).measured == 1
