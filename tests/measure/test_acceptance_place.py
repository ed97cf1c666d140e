"""Which port, which hosts, what is expected; and what is refused."""

from ipaddress import IPv4Address

import pytest

from mltswitch.capabilities import AlphaLimit, Unlimited
from mltswitch.errors import UserInputError
from mltswitch.measure.acceptance import Check, Place, Question, find_place
from mltswitch.measure.acceptance.report import AcceptanceResult, open_sentences
from mltswitch.measure.acceptance.schedule import (
    HOLD_LOAD,
    Marking,
    Port,
    control_run,
    order_run,
    run_seconds,
    threshold_run,
)
from mltswitch.plan import Plan
from mltswitch.targets import target_for, targets


def place(plan: Plan, device: str, hosts: str, receiver: str | None = None, port: str | None = None) -> Place:
    return find_place(plan, device, hosts.split(","), receiver, port)


def test_the_port_before_a_host(lab_plan: Plan) -> None:
    found = place(lab_plan, "leaf2", "host1,host3,host4")
    assert (found.port, found.receiver, found.senders) == ("eth2", "host4", ("host1", "host3"))
    assert found.burst_senders == (1,)
    aliases = {host.name: host.aliases for host in lab_plan.topology.hosts}["host4"]
    assert found.destinations == (tuple(address for _, address in aliases), (aliases[0][1],))
    assert place(lab_plan, "leaf2", "host4,host1,host3").receiver == "host3"
    assert place(lab_plan, "leaf2", "host1,host3,host4", receiver="host3").port == "eth1"


def test_a_port_between_switches(lab_plan: Plan) -> None:
    up = place(lab_plan, "leaf1", "host1,host2,host4", receiver="host4", port="eth4")
    assert (up.port, up.burst_senders) == ("eth4", (0, 1))
    assert up.destinations == 2 * ((IPv4Address("10.102.0.66"),),)


def test_expected_is_what_the_device_can_express(lab_plan: Plan) -> None:
    quantised = target_for("sonic").quantise(lab_plan, "sonic1")
    hosts = "host1,host3,host6"
    found = place(lab_plan, "sonic1", hosts)
    queues = {queue.queue: queue for queue in quantised.state.ports[0].queues}
    assert [entry.traffic_class for entry in found.gradients] == ["gradient-0", "gradient-1", "gradient-2"]
    for entry in found.gradients:
        assert entry.ecn_threshold_bytes == queues[entry.queue].ecn_threshold_bytes
        assert isinstance(entry.limit, AlphaLimit)
        assert entry.limit_bytes is None
        assert entry.standing_bytes > (entry.ecn_threshold_bytes or 0)
    assert found.expected.marks_at == "dequeue"
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
    port = Port(rate, 1514, senders, (0,))
    marks = [Marking(index, 10 + index) for index in range(8)]
    runs = [
        threshold_run(port, marks[0], 50_000, 92_000),
        order_run(port, marks[0], marks[1], (92_000, 92_000)),
        control_run(port, marks[0], marks[1:], 300_000),
    ]
    for run in runs:
        assert run_seconds(run) < 8
        assert len(run) == senders
        for flows in run:
            streams = [flow for flow in flows if flow.gap_seconds > 0 and flow.phase not in ("idle", "burst")]
            starts = sorted({flow.phase for flow in streams})
            for phase in starts:
                together = [flow for flow in streams if flow.phase == phase]
                load = sum(port.packet_seconds / flow.gap_seconds for flow in together)
                assert load <= HOLD_LOAD / senders * 1.01


GOOD = tuple(Check(question, "gradient-0", True, "", "") for question in Question)


def test_sentences_are_settled_by_the_questions_that_bear_on_them() -> None:
    known = {sentence for target in targets().values() for sentence in target.hardware(None).unverified}
    settled, still_open = open_sentences(sorted(known), GOOD)
    assert "strict traffic classes: the higher number is served first" in settled
    assert "marks at enqueue" in still_open
    assert any("marks ECN-capable packets and drops the others" in sentence for sentence in settled)
    assert not [sentence for sentence in settled if "round robin" in sentence or "weight 0" in sentence]
    assert set(settled) | set(still_open) == known


@pytest.mark.parametrize("holds", [False, None])
def test_a_sentence_whose_question_did_not_pass_stays_open(holds: bool | None) -> None:
    sentence = "strict queues: the higher number is served first"
    checks = [
        Check(check.question, "", holds if check.question is Question.ORDER else True, "", "")
        for check in GOOD
    ]
    assert open_sentences([sentence], GOOD) == ((sentence,), ())
    assert open_sentences([sentence], checks) == ((), (sentence,))


def result(*answers: bool | None) -> AcceptanceResult:
    checks = tuple(Check(Question.RATE, "", holds, "", "") for holds in answers)
    return AcceptanceResult(
        "leaf2", "eth2", "linux", "software", "h", (), 1, 1, 1.0, 0.0, 0.0, checks, (), ()
    )


def test_accepted_needs_a_pass_and_no_failure() -> None:
    assert result(True, None).accepted
    assert not result(True, False).accepted
    assert not result(None, None).accepted
