"""EOS in particular: what it writes, reads, refuses, and in which order it changes a switch."""

import json
import re
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from mltswitch.capabilities import BitRate, BytesLimit, PortShare, Unlimited
from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.targets import Change, PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.common import NOT_SAVED
from mltswitch.targets.eos import TARGET
from mltswitch.targets.eos.capabilities import HARDWARE
from mltswitch.targets.eos.read import RUNNING_CONFIG
from mltswitch.targets.state import every_dscp_but
from switchsim.eos import EosDevice
from tests.targets.eos.device import FAMILIES, MODELS, actions, apply, policy_of, read, send
from tests.targets.stories import Actor, Case, check_plan, play, stories

CAPABILITIES = TARGET.hardware(None)

HERE = Path(__file__).parent
FILE = "mltswitch.txt"
SESSIONS = "show configuration sessions detail | json"
OTHERS = tuple(dscp for dscp in range(64) if dscp not in {48, 56, 10, 12})
QUEUES = (
    QueueState(6, (48, 56), None, Unlimited()),
    QueueState(5, (10,), 18432, Unlimited()),
    QueueState(4, (12,), 61440, Unlimited()),
    QueueState(0, OTHERS, None, Unlimited()),
)
STATE = SwitchState(
    (PortState("Ethernet2/1", True, None, QUEUES), PortState("Ethernet1/1", False, None, QUEUES)),
    (
        RouteState(IPv4Network("10.101.0.0/16"), IPv4Address("10.20.0.2"), "Ethernet2/1"),
        RouteState(IPv4Network("10.101.0.1/32"), IPv4Address("10.10.0.2"), "Ethernet1/1"),
    ),
)
ONE, TWO = STATE.ports


def with_queue(number: int, **changed: Any) -> tuple[QueueState, ...]:
    return tuple(replace(each, **changed) if each.queue == number else each for each in QUEUES)


def with_hosts(*control: int) -> SwitchState:
    """Two ports to spines, one to a host, and one whose packets are not trusted."""
    others = sorted({*OTHERS, 48, 56} - {*control})
    fabric = (replace(QUEUES[0], dscps=control), *QUEUES[1:3], replace(QUEUES[3], dscps=tuple(others)))
    every = tuple(sorted((*others, *control)))
    hosts = (replace(QUEUES[0], dscps=()), *QUEUES[1:3], replace(QUEUES[3], dscps=every))
    ports = (
        replace(ONE, queues=fabric),
        replace(TWO, queues=fabric),
        PortState("Ethernet5/1", True, None, hosts, rewritten=control),
        PortState("Ethernet6/1", False, None, fabric, rewritten=every_dscp_but(9)),
    )
    return replace(STATE, ports=ports, background_dscp=9)


HOSTS = with_hosts(48, 56)
FABRIC = replace(
    STATE, ports=tuple(replace(port, queues=QUEUES, rewritten=()) for port in HOSTS.ports), background_dscp=0
)
BOUNDED = tuple(
    replace(queue, ecn_threshold_bytes=None, maximum=BitRate(5_000_000_000)) if queue.queue == 5 else queue
    for queue in with_queue(0, minimum=PortShare(5))
)
PLANS = {
    "STATE": STATE,
    "LOWER": SwitchState((replace(ONE, queues=with_queue(5, ecn_threshold_bytes=6144)),), STATE.routes[:1]),
    "HOSTS": HOSTS,
    "HOSTS_ALONE": SwitchState(HOSTS.ports[2:3], (), background_dscp=9),
    "OTHER_CONTROL": with_hosts(48, 50),
    "FABRIC": FABRIC,
    "BOUNDED": SwitchState((replace(ONE, queues=BOUNDED),), ()),
    "FREE": SwitchState((ONE,), ()),
}


def enter(device: EosDevice, lines: list[str]) -> None:
    assert device.configure(*lines) == "", lines


def entered(change: Change) -> list[str]:
    """What is sent, without what opens and commits the session."""
    steps = (step.command for step in change.steps)
    return [step for step in steps if step != "end" and not step.startswith("configure session")]


EOS = Actor(
    target=TARGET,
    new=EosDevice,
    read=read,
    apply=apply,
    enter=enter,
    entered=entered,
    plans=PLANS,
    shown=RUNNING_CONFIG,
    shown_end="end\n",
)
WORDS = {"REST": " ".join(map(str, OTHERS)), "ALL_BUT_9": str(every_dscp_but(9))}


@pytest.mark.parametrize("case", stories(HERE / "stories.txt", WORDS))
def test_what_the_manual_of_cases_says(case: Case) -> None:
    play(case, EOS)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_reads_back_and_runs(name: str) -> None:
    check_plan(PLANS[name], EOS)


def test_the_example_file() -> None:
    assert TARGET.render(STATE, CAPABILITIES) == {FILE: (HERE / "example.txt").read_text(encoding="utf-8")}


def test_a_chip_with_one_kind_of_queue() -> None:
    capabilities = HARDWARE["trident2"]
    queues = tuple(
        replace(queue, ecn_threshold_bytes=queue.ecn_threshold_bytes and 208 * queue.queue)
        for queue in QUEUES
    )
    state = replace(STATE, ports=tuple(replace(port, queues=queues) for port in STATE.ports))
    text = TARGET.render(state, capabilities)[FILE]
    assert "   tx-queue 5\n" in text
    assert "uc-tx-queue" not in text
    assert TARGET.parse({FILE: text}, capabilities) == state
    with pytest.raises(UserInputError, match=r"mltswitch.txt:3: not a line .*: ' tx-queue 6'"):
        TARGET.parse({FILE: text}, CAPABILITIES)
    device = EosDevice(queue_word="tx-queue", model=MODELS["trident2"])
    apply(device, TARGET.diff(read(device, state, capabilities), state, capabilities))
    assert read(device, state, capabilities).state == state


def one(**changed: Any) -> SwitchState:
    return SwitchState((replace(ONE, **changed),), ())


def mapped(*queues: QueueState) -> SwitchState:
    return SwitchState((ONE, replace(TWO, queues=queues)), ())


def rewriting(number: int, **changed: Any) -> SwitchState:
    return replace(HOSTS, ports=(*HOSTS.ports[:number], replace(HOSTS.ports[number], **changed)))


ONE_MAP = "port Ethernet1/1: EOS has one DSCP map"
REWRITES = "EOS rewrites what a port"


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (one(shaped_bps=10**9), "not shaped"),
        (one(name="eth1"), "port eth1: is no name for a port"),
        (one(queues=(replace(QUEUES[1], limit=BytesLimit(9)),)), "the limit 9 B"),
        (one(queues=with_queue(5, queue=7)), "queue 7: is no queue that a plan may use"),
        (one(queues=with_queue(5, ecn_threshold_bytes=0)), "threshold 0"),
        (one(queues=with_queue(0, dscps=())), "no code point leads"),
        (one(queues=with_queue(0, minimum=BitRate(1000))), "queue 0: a minimum of 1000 bit/s"),
        (one(queues=with_queue(0, maximum=PortShare(5))), "queue 0: a maximum of 5 %"),
        (one(queues=with_queue(0, maximum=BitRate(1500))), "queue 0: a maximum of 1500 bit/s"),
        (mapped(*with_queue(4, dscps=())), ONE_MAP),
        (mapped(*with_queue(4, dscps=(12, 13))[:3], replace(QUEUES[3], dscps=OTHERS[:13])), ONE_MAP),
        (mapped(*(replace(QUEUES[n], dscps=QUEUES[1 - n].dscps) for n in (0, 1)), *QUEUES[2:]), ONE_MAP),
        (rewriting(0, rewritten=(48, 56)), f"port Ethernet2/1: {REWRITES}"),
        (rewriting(1, rewritten=(48, 56)), f"port Ethernet1/1: {REWRITES}"),
        (rewriting(2, rewritten=()), f"port Ethernet5/1: {REWRITES}"),
        (rewriting(2, rewritten=(48,)), f"port Ethernet5/1: {REWRITES}"),
        (rewriting(3, queues=HOSTS.ports[2].queues), f"port Ethernet6/1: {REWRITES}"),
        (rewriting(3, rewritten=every_dscp_but(0)), f"port Ethernet6/1: {REWRITES}"),
    ],
)
def test_what_eos_cannot_express_is_refused(state: SwitchState, what: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=what):
        TARGET.render(state, CAPABILITIES)


def test_what_the_policies_do_with_packets() -> None:
    running = EOS.pushed(HOSTS).configuration
    ports = [policy_of(running, f"Ethernet{n}/1") for n in (1, 2, 5, 6)]
    made_background = {"dscp": "9", "traffic-class": "0"}
    for family in FAMILIES:
        for dscp, hosts in ((48, made_background), (46, {})):
            found = [actions(running, port, family, dscp) for port in ports]
            assert found == [{}, {}, hosts, made_background]


def test_lines_may_stand_in_another_order_with_other_comments() -> None:
    text = TARGET.render(HOSTS, CAPABILITIES)[FILE]
    queues, classification, denied, ports, routes = re.split(
        r"! classification\n|! what hosts.*\n|(?<=!\n)(?=interface Ethernet2/1\n   qos)|! routes\n", text
    )
    moved = "".join([routes, "! ports\n", ports, "\n", denied, "   ! indented\n", classification, queues])
    assert moved != text
    assert "! what ports send that are not trusted becomes background\n" in text
    assert TARGET.parse({FILE: moved}, CAPABILITIES) == HOSTS


KEEP = ["end", "configure session mltswitch-1 commit", "write memory"]


def test_the_session_is_committed_with_a_timer_and_confirmed() -> None:
    device = EosDevice()
    change = EOS.change(device, STATE)
    steps = [step.command for step in change.steps]
    assert steps[:2] == ["end", "configure session mltswitch-1"]
    assert steps[-2:] == ["end", "configure session mltswitch-1 commit timer 00:10:00"]
    assert [step.command for step in change.save] == KEEP
    before = device.configuration
    send(device, change.steps[:-1])
    assert device.configuration == before
    assert change.text.startswith(
        "configure session mltswitch-1\n   interface Ethernet2/1\n      uc-tx-queue 5\n"
        "         random-detect ecn count\n"
    )


def test_what_waits_for_its_confirmation_is_told_and_no_other_push_begins() -> None:
    device = EosDevice()
    send(device, EOS.change(device, STATE).steps)
    running = read(device, STATE)
    [sentence] = running.unconfirmed
    assert sentence.startswith("config session mltswitch-1 waits to be confirmed, and the switch undoes it")
    assert running.state == STATE
    change = EOS.change(device, STATE)
    assert [step.command for step in change.save] == KEEP
    with pytest.raises(DeviceError, match="a push waits to be confirmed, in config session mltswitch-1"):
        EOS.change(device, one(trusted=False))
    send(device, change.save)
    assert read(device, STATE).unconfirmed == ()


@pytest.mark.parametrize("end", ["end", "commit timer 00:05:00"])
def test_sessions_of_others_are_left_alone(end: str) -> None:
    device = EosDevice()
    session = device.open_session("other")
    for line in ("enable", "configure session theirs", "ip routing", end):
        assert session.enter(line).text == ""
    running = read(device, STATE)
    assert running.unconfirmed == ()
    if end == "end":
        change = TARGET.diff(running, STATE, CAPABILITIES)
        assert "configure session theirs abort" not in [step.command for step in change.steps]
        assert device.sessions.by_name["theirs"].state == "pending"


def test_a_model_tells_its_chip() -> None:
    for chip, model in MODELS.items():
        assert read(EosDevice(model=model), STATE, HARDWARE[chip]).notes == ()
        assert TARGET.hardware_of(model) == {chip}
    [note] = read(EosDevice(model="DCS-7050QX-32S-F"), STATE, HARDWARE["trident2"]).notes
    assert note == "whether DCS-7050QX-32S-F has the chip trident2, for which the plan was made, is not known"


def test_what_is_not_saved_is_a_note() -> None:
    device = EOS.pushed(STATE)
    assert read(device, STATE).notes == ()
    device.configure("interface Ethernet9/1", "mtu 9214")
    assert read(device, STATE).notes == (NOT_SAVED,)


def test_what_already_runs_is_saved_again() -> None:
    device = EOS.pushed(STATE)
    device.saved = EosDevice().configuration
    change = EOS.change(device, STATE)
    assert (change.steps, change.text) == ((), "")
    apply(device, change)
    assert device.saved == device.configuration


def test_a_port_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="there is no interface Ethernet2/1"):
        read(EosDevice(ports=1), STATE)


@pytest.mark.parametrize("query", [SESSIONS, "show version | json"])
@pytest.mark.parametrize("answer", ["", "% Invalid input", "{}", "[1, 2]", '{"sessions": {"x": 1}}'])
def test_an_answer_of_another_form_is_one_error(query: str, answer: str) -> None:
    with pytest.raises(DeviceError, match="another form"):
        TARGET.read({**read(EosDevice(), STATE).answers, query: answer}, STATE, CAPABILITIES)


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ({"sessions": {"x": {"state": "pendingApproval"}}}, "config session x is 'pendingApproval'"),
        ({"sessions": {"x": {"state": ["committed"]}}}, "config session x is .'committed'"),
        ({"sessions": {"mltswitch-1": {"state": "Committed"}}}, "config session mltswitch-1 is 'Committed'"),
        ({"sessions": {}, "pendingTimers": {"x": 60}}, "pendingTimers: {'x': 60}"),
        ({"sessions": {}, "commitTimerExpireTime": 12.5}, "commitTimerSessionName does not say"),
        ({"sessions": {}, "saveToStartupConfigOnCommit": True}, "saves each commit to its startup config"),
    ],
)
def test_what_sessions_may_not_say_is_one_error(shown: dict[str, object], told: str) -> None:
    answers = {**read(EosDevice(), STATE).answers, SESSIONS: json.dumps(shown)}
    with pytest.raises(DeviceError, match=told) as caught:
        TARGET.diff(TARGET.read(answers, STATE, CAPABILITIES), STATE, CAPABILITIES)
    assert SESSIONS in str(caught.value) or "each commit" in told


def test_an_end_in_a_banner_is_no_end_of_the_configuration() -> None:
    answers = read(EosDevice(), STATE).answers
    whole = "banner motd\nthis is the\nend\nEOF\n" + answers[RUNNING_CONFIG]
    TARGET.read({**answers, RUNNING_CONFIG: whole}, STATE, CAPABILITIES)
    with pytest.raises(DeviceError, match="is cut short"):
        TARGET.read({**answers, RUNNING_CONFIG: whole[: whole.rindex("end")]}, STATE, CAPABILITIES)
