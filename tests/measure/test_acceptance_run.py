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


class Noisy(SimulatedPort):
    """Delays that tell less than S are no answer."""

    def exchange(self, run: Run) -> Exchanged:
        found = super().exchange(run)
        noise = np.random.default_rng(3).integers(0, 60_000_000, len(found.records))
        found.records["arrived_ns"] += noise
        return found


def accepted(*ports: SimulatedPort) -> tuple[AcceptanceResult, int, list[str]]:
    """The result, how many runs it took, and what was said meanwhile."""
    said: list[str] = []
    hosts = Scripted(ports)
    result = accept(
        PLACE, cast("Hosts", hosts), DeviceCounters(None, "nobody asks", target=None), said.append
    )
    return result, hosts.runs, said


BAD, LATE, REFUSED = SimulatedPort({4: WRONG}), Late({4: WRONG}), Refused({4: RIGHT})
NOISY = Noisy({4: RIGHT})
NO_FAILURE = {Verdict.ACCEPTED, Verdict.INCONCLUSIVE}


@pytest.mark.parametrize(
    ("ports", "verdicts", "runs", "said"),
    [
        ([QUIET], {Verdict.ACCEPTED}, 1, ""),
        ([BAD, QUIET], {Verdict.ACCEPTED}, 2, "? Once more"),
        ([BAD], {Verdict.FAILED}, MEASUREMENTS, "? Once more"),
        ([LATE, QUIET], {Verdict.ACCEPTED}, 2, ": a sender paused for 80 ms, once more"),
        ([LATE], NO_FAILURE, ATTEMPTS, ": a sender paused for 80 ms, once more"),
        ([REFUSED, QUIET], {Verdict.ACCEPTED}, 2, "refused 7 of 9 packets, once more"),
        ([NOISY, QUIET], {Verdict.ACCEPTED}, 2, "? Once more"),
        ([NOISY], {Verdict.INCONCLUSIVE}, MEASUREMENTS, "? Once more"),
    ],
)
def test_what_a_run_leaves_open_is_measured_again(
    ports: list[SimulatedPort], verdicts: set[Verdict], runs: int, said: str
) -> None:
    """One bad run condemns nobody, a late one says nothing, and what is wrong fails every time."""
    result, count, lines = accepted(*ports)
    assert result.verdict in verdicts, result.checks
    assert count == runs
    assert runs == 1 or any(line.endswith(said) for line in lines)
    counts = {check.question: check.measured for check in result.checks}
    if ports == [QUIET] or LATE in ports:  # a run that is not believed does not count
        assert set(counts.values()) == {1}
    if BAD in ports:
        assert (counts[Question.RATE], counts[Question.STANDS], counts[Question.MARKS_BEGIN]) == (
            1,
            runs,
            runs,
        )
        once = accepted(QUIET)[0]
        assert result.seconds == pytest.approx(runs * once.seconds)
    if ports == [LATE]:
        spoilt = [check for check in result.checks if check.is_disturbed]
        assert {check.question for check in spoilt} >= {Question.STANDS, Question.MARKS_BEGIN}
        assert all("a sender paused for 80 ms in every run" in check.explanation for check in spoilt)


def test_hosts_that_never_send_as_asked_end_the_test() -> None:
    with pytest.raises(MachineError, match="refused 7 of 9 packets"):
        accepted(REFUSED)


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
