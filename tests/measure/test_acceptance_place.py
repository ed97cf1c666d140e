"""Which port, which hosts, what is expected; and what is refused."""

from dataclasses import replace
from ipaddress import IPv4Address
from typing import cast

import pytest

from mltswitch.capabilities import AlphaLimit, BytesLimit, Unlimited, Unverified
from mltswitch.errors import UserInputError
from mltswitch.measure.acceptance import (
    Check,
    DeviceCounters,
    Place,
    Question,
    Verdict,
    accept,
    find_place,
)
from mltswitch.measure.acceptance.report import SETTLED_BY, AcceptanceResult, open_items
from mltswitch.measure.hosts import Hosts
from mltswitch.measure.runs import (
    HOLD_LOAD,
    TestedPort,
    background_run,
    cap_run,
    control_run,
    order_run,
    threshold_run,
)
from mltswitch.measure.schedule import run_seconds
from mltswitch.plan import Plan
from mltswitch.targets import target_for, targets
from tests.measure.simulated_port import PACKET, SimulatedPort, SimulatedQueue


def place(plan: Plan, device: str, hosts: str, receiver: str | None = None, port: str | None = None) -> Place:
    return find_place(plan, device, hosts.split(","), receiver, port)


def test_the_port_before_a_host(lab_plan: Plan) -> None:
    found = place(lab_plan, "leaf2", "host1,host3,host4")
    assert (found.port, found.receiver, found.senders) == ("eth2", "host4", ("host1", "host3"))
    assert found.tested.burst_senders == (1,)
    aliases = {host.name: host.aliases for host in lab_plan.topology.hosts}["host4"]
    assert found.destinations == (tuple(address for _, address in aliases), (aliases[0][1],))
    assert place(lab_plan, "leaf2", "host4,host1,host3").receiver == "host3"
    assert place(lab_plan, "leaf2", "host1,host3,host4", receiver="host3").port == "eth1"


def test_a_port_between_switches(lab_plan: Plan) -> None:
    up = place(lab_plan, "leaf1", "host1,host2,host4", receiver="host4", port="eth4")
    assert (up.port, up.tested.burst_senders) == ("eth4", (0, 1))
    assert up.destinations == 2 * ((IPv4Address("10.102.0.66"),),)


def test_expected_is_what_the_device_can_express(lab_plan: Plan) -> None:
    fitted = target_for("sonic").fit_to_hardware(lab_plan, "sonic1")
    hosts = "host1,host3,host6"
    found = place(lab_plan, "sonic1", hosts)
    queues = {queue.queue: queue for queue in fitted.state.ports[0].queues}
    assert [entry.traffic_class for entry in found.gradients] == ["gradient-0", "gradient-1", "gradient-2"]
    for entry in found.gradients:
        assert entry.ecn_threshold_bytes == queues[entry.queue].ecn_threshold_bytes
        assert isinstance(entry.limit, AlphaLimit)
        assert entry.limit_bytes is None
        assert entry.standing_bytes > (entry.ecn_threshold_bytes or 0)
    assert found.tested.marks_at == "dequeue"
    onyx = place(lab_plan, "onyx1", "host1,host3,host5")
    assert all(isinstance(entry.limit, Unlimited) for entry in onyx.gradients)


@pytest.mark.parametrize(
    ("device", "hosts", "options", "words"),
    [
        ("leaf9", "host1,host3", {}, "no switch 'leaf9'"),
        ("leaf2", "host1,host9", {}, "'host9' is no host"),
        ("leaf2", "host4", {}, "at least two"),
        ("leaf2", "host4,host4", {}, "at least two"),
        ("leaf2", "host3,host4", {"receiver": "host1"}, "'host1' is not among"),
        ("leaf2", "host3,host4", {"port": "eth9"}, "has no port 'eth9'"),
        ("leaf2", "host3,host4", {"port": "eth1"}, "leads to host3, not to host4"),
        ("spine1", "host1,host3", {"receiver": "host3"}, "would have to fill a link"),
        ("leaf1", "host3,host4,host2", {"receiver": "host3"}, "does not leave leaf1"),
        ("onyx1", "host5,host3", {"receiver": "host3", "port": "1/2"}, "host5 alone cannot overload"),
    ],
)
def test_what_cannot_be_tested_is_refused(
    lab_plan: Plan, device: str, hosts: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(UserInputError, match=words):
        place(lab_plan, device, hosts, **options)


@pytest.mark.parametrize("rate", [10_000_000, 1_000_000_000, 10_000_000_000])
@pytest.mark.parametrize("senders", [1, 2, 3])
def test_no_run_is_long_or_more_than_its_hosts_can_send(rate: int, senders: int) -> None:
    port = TestedPort(rate, 1514, senders, (0,))
    runs = [
        threshold_run(port, 0, 50_000, 92_000),
        order_run(port, 0, 1, (92_000, 92_000)),
        control_run(port, 0, range(1, 8), 300_000),
        cap_run(port, 0, range(1, 8), rate // 10, 48_448),
        background_run(port, 0, rate // 20, 7, (0,), range(1, 7), 300_000),
    ]
    for run in runs:
        assert run_seconds(run) < 8.5
        assert len(run) == senders
        for schedule in run:
            for phase in {*schedule.phase.tolist()} - {"idle", "burst"}:
                times = schedule.time_seconds[schedule.phase == phase]
                load = (len(times) - 1) * port.packet_seconds / (times[-1] - times[0])
                assert load <= HOLD_LOAD / senders * 1.01


GOOD = tuple(Check(question, "gradient-0", True, "", "") for question in Question)


def test_items_are_settled_by_the_questions_that_bear_on_them() -> None:
    known = {item for target in targets().values() for item in target.hardware(None).unverified}
    settled, still_open = open_items(sorted(known), GOOD)
    ids = {item.id for item in settled}
    assert {"onyx.strict-order", "icos.red-per-packet", "cumulus.queue-length"} <= ids
    assert not {"icos.marking-point", "eos.strict-order", "eos.queue-length"} & ids
    assert set(settled) | set(still_open) == known
    assert {item.partition(".")[2] for item in ids} == set(SETTLED_BY)


@pytest.mark.parametrize("holds", [False, None])
def test_an_item_whose_question_did_not_pass_stays_open(holds: bool | None) -> None:
    item = Unverified("sonic.strict-order", "strict queues: the higher number is served first")
    checks = [
        Check(check.question, "", holds if check.question is Question.ORDER else True, "", "")
        for check in GOOD
    ]
    assert open_items([item], GOOD) == ((item,), ())
    assert open_items([item], checks) == ((), (item,))


def result(*checks: Check) -> AcceptanceResult:
    return AcceptanceResult(
        "leaf2", "eth2", "linux", "software", "h", (), 1, 1, 1.0, 0.0, 0.0, checks, (), ()
    )


def answered(question: Question, holds: bool | None, name: str = "gradient-0") -> Check:
    return Check(question, name, holds, "", "")


def test_accepted_needs_marks_and_drops_of_every_gradient_class_and_no_failure() -> None:
    above = [answered(Question.MARKED_ABOVE, True), answered(Question.DROPPED_ABOVE, True)]
    assert result(*above).verdict is Verdict.ACCEPTED
    assert result(*above, answered(Question.STANDS, None)).verdict is Verdict.ACCEPTED
    assert result(*above, answered(Question.STANDS, False)).verdict is Verdict.FAILED
    unseen = answered(Question.DROPPED_ABOVE, None, "gradient-1")
    assert result(*above, unseen).verdict is Verdict.INCONCLUSIVE
    assert result(*above, unseen).missing == (unseen,)
    assert result(answered(Question.RATE, True)).verdict is Verdict.INCONCLUSIVE
    assert result().verdict is Verdict.INCONCLUSIVE


PACKETS = {"gradient-0": (14, 28), "gradient-1": (18, 36), "gradient-2": (32, 64)}
"""S and L that delays can tell."""


def accepted_by(found: Place, port: SimulatedPort) -> AcceptanceResult:
    return accept(
        found, cast(Hosts, port), DeviceCounters(None, "nobody can be asked", target=None), lambda _: None
    )


def ported(found: Place, *, share: float | None = 0.07, is_believed: bool = False) -> SimulatedPort:
    """What the place expects, in virtual time; a cap on control, and a share that two classes divide."""
    queues = {
        queue.class_index: SimulatedQueue(
            (queue.ecn_threshold_bytes or 0) // PACKET, (queue.limit_bytes or 400 * PACKET) // PACKET
        )
        for queue in found.gradients
    }
    first = {0: SimulatedQueue(16, 16)} if is_believed else {}
    return SimulatedPort(
        first | {1: SimulatedQueue(32, 32, cap=0.1)} | queues | {5: SimulatedQueue(32, 32, share=share)}
    )


def resolvable(found: Place) -> Place:
    gradients = tuple(
        replace(
            queue,
            ecn_threshold_bytes=PACKETS[queue.traffic_class][0] * PACKET,
            limit=BytesLimit(PACKETS[queue.traffic_class][1] * PACKET),
            standing_bytes=PACKETS[queue.traffic_class][1] * PACKET,
        )
        for queue in found.gradients
    )
    return replace(found, gradients=gradients)


def test_a_right_port_is_accepted(lab_plan: Plan) -> None:
    found = resolvable(place(lab_plan, "leaf2", "host1,host3,host4"))
    result = accepted_by(found, ported(found))
    assert {check.question for check in result.checks} == set(Question)
    unchecked = {check.question for check in result.checks if check.holds is not True}
    assert (result.verdict, unchecked) == (Verdict.ACCEPTED, {Question.COUNTERS}), result.checks


def test_thresholds_of_the_example_that_nobody_can_see_are_not_accepted(lab_plan: Plan) -> None:
    """S of gradient-0 is two packets there, and of gradient-1 six, with two between S and L."""
    found = place(lab_plan, "leaf2", "host1,host3,host4")
    result = accepted_by(found, ported(found))
    assert result.verdict is Verdict.INCONCLUSIVE
    unseen = {check.traffic_class for check in result.missing}
    assert unseen == {"gradient-0", "gradient-1"}
    assert all(check.explanation for check in result.missing)


def test_a_port_without_share_or_remap_fails(lab_plan: Plan) -> None:
    found = resolvable(place(lab_plan, "leaf2", "host1,host3,host4"))
    result = accepted_by(found, ported(found, share=None, is_believed=True))
    assert {check.question for check in result.checks if check.holds is False} == {
        Question.SHARE,
        Question.HOST_CONTROL,
    }


def test_what_a_device_cannot_do_is_not_checked(lab_plan: Plan) -> None:
    onyx = place(lab_plan, "onyx1", "host1,host3,host5")
    assert onyx.background.minimum_bps is None
    assert onyx.controls[0].maximum_bps is None
    result = accepted_by(onyx, ported(onyx))
    why = {check.question: check.explanation for check in result.checks if check.holds is None}
    assert why[Question.CAPPED] == "the device holds no queue to a rate"
    assert "guarantees no share" in why[Question.SHARE]
    assert "right behind the device" in why[Question.HOST_CONTROL]


def test_who_sends_network_control(lab_plan: Plan) -> None:
    linux = place(lab_plan, "leaf2", "host1,host3,host4")
    assert linux.host_control is not None
    assert (linux.host_control.class_index, linux.host_control.dscp) == (0, 48)
    assert linux.host_control_senders == (1,)
    assert (linux.background.minimum_bps, linux.controls[0].maximum_bps) == (500_000, 1_000_000)
