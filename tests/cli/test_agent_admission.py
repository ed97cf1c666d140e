"""Who may send to `mltswitch agent recv`: strangers are refused and told why, and it waits on."""

import json
import re
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mltswitch.cli import agent_recv
from mltswitch.cli.agent_admission import Admission
from mltswitch.cli.strangers import MOST_LINES, Strangers
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.announced import ANNOUNCEMENT_BYTES, ANNOUNCEMENT_TENSOR, connect_patiently
from mltswitch.hostagent.configuration import AgentDocument, configured, parse_endpoint
from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    ProtocolViolationError,
)
from mltswitch.hostagent.telemetry.events import PeerConnected, PeerLost
from tests.cli.agent_commands import GRADIENTS, receiving, run, running
from tests.hostagent.background import in_background
from tests.hostagent.control.peers import nobody_listens

TRANSPORTS = ["mlt", "tcp"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("g.npy", GRADIENTS)
    return tmp_path


def refused_with(error: str, reason: str) -> bool:
    return error.splitlines()[-1] == f"mltswitch: peer receiver: refused the connection: {reason}"


def test_it_says_whom_it_waits_for_and_who_has_come() -> None:
    """As they come, and not when all are there."""
    with receiving("--from", "one", "--from", "two") as (receiver, place):
        receiver.reads("^waiting for one, two, up to 60 s$")
        to = ("--to", f"receiver={place}")
        with running("send", "g.npy", "--name", "two", *to) as two:
            receiver.reads("^connected: two; waiting for one$")
            with running("send", "g.npy", "--name", "one", *to) as one:
                receiver.reads("^connected: one$")
                assert one.ends()[0] == two.ends()[0] == receiver.ends()[0] == 0


def test_many_names_do_not_fill_a_line() -> None:
    admission = Admission([f"host{number}" for number in range(12)], 60.0)
    assert admission.waits_for() == (
        "waiting for host0, host1, host2, host3, host4, host5, host6, host7 and 4 more, up to 60 s"
    )
    assert Admission((), 2.5).waits_for() == "waiting for the first who connects, up to 2.5 s"


def test_who_comes_and_goes_all_the_time_fills_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    admission, told = Admission(["one", "two"], 0.0), list[str]()
    for _ in range(200):
        admission.observe(PeerConnected(0, "one", 1, 1, 1))
        with pytest.raises(DeadlineExceededError):
            admission.wait(told.append)
        admission.observe(lost("one", "it was told to end"))
    assert told == ["connected: one; waiting for two"]
    assert len(capsys.readouterr().err.splitlines()) == MOST_LINES + 1


def test_many_names_fill_no_log_where_anybody_may_come(capsys: pytest.CaptureFixture[str]) -> None:
    admission, told = Admission((), 60.0), list[str]()
    for number in range(200):
        admission.observe(PeerConnected(0, f"host{number}", 1, 1, 1))
        admission.wait(told.append)
        admission.observe(lost(f"host{number}", "it was told to end"))
    assert told == ["connected: host0"]
    assert len(capsys.readouterr().err.splitlines()) == MOST_LINES + 1


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_who_is_not_expected_is_told_and_the_receiver_waits_on(transport: str) -> None:
    over = ("--transport", transport)
    with receiving("--from", "one", "-o", "out.npy", *over) as (receiver, place):
        to = ("--to", f"receiver={place}", *over)
        with running("send", "--random", "1MB", "--name", "other", *to) as stranger:
            code, out, err = stranger.ends()
        assert (code, out) == (6, "")
        assert refused_with(err, "other is not expected here (--from)")
        with running("send", "g.npy", "--name", "one", *to) as sender:
            assert sender.ends()[0] == 0
        code, _, err = receiver.ends()
    assert code == 0, err
    lines = [line for line in err.splitlines() if "other" in line]
    assert len(lines) == 1
    assert re.fullmatch(
        r"not connected: 127\.0\.0\.1:\d+: other is not expected here \(--from\)", lines[0]
    ), "what it calls itself is no more than its word"
    assert (np.load("out.npy") == GRADIENTS).all()


def test_who_comes_later_than_the_first_is_told() -> None:
    with receiving("-o", "{round}.npy") as (receiver, place):
        to = ("--to", f"receiver={place}")
        with running("send", "--random", "4MB", "--rounds", 100_000, "--name", "one", *to) as first:
            receiver.reads("connected: one")
            with running("send", "g.npy", "--name", "two", *to) as second:
                code, _, err = second.ends()
            assert code == 6
            assert refused_with(err, "two comes too late: one was first")
            first.process.terminate()
            assert first.ends()[0] == 143
        code, _, err = receiver.ends()
        assert code == 6
        assert err.splitlines()[-1].endswith("closed the connection: it was told to end")
        assert "two" not in err  # a progress bar would be there


def test_who_calls_another_name_takes_nobodys_turn() -> None:
    """It is connected for a moment: as far as it finds out with whom."""
    with receiving("-o", "out.npy") as (receiver, place):
        with running("send", "g.npy", "--name", "one", "--to", f"another={place}") as wrong:
            code, _, err = wrong.ends()
        assert code == 6
        assert "calls itself 'receiver'" in err
        receiver.reads("^not connected: one: closed the connection: calls itself 'receiver'")
        with running("send", "g.npy", "--name", "two", "--to", f"receiver={place}") as sender:
            assert sender.ends()[0] == receiver.ends()[0] == 0
    assert (np.load("out.npy") == GRADIENTS).all()


def test_who_left_before_the_others_came_may_come_back() -> None:
    with receiving("--from", "one", "--from", "two", "--json") as (receiver, place):
        to = ("--to", f"receiver={place}")
        with running("send", "g.npy", "--name", "one", *to) as early:
            receiver.reads("^connected: one; waiting for two$")
            early.process.terminate()
            assert early.ends()[0] == 143
        receiver.reads("^not connected: one: closed the connection: it was told to end")
        with (
            running("send", "g.npy", "--name", "one", *to) as one,
            running("send", "g.npy", "--name", "two", *to) as two,
        ):
            assert one.ends()[0] == two.ends()[0] == 0
        code, out, err = receiver.ends()
    assert code == 0, err
    assert {peer["peer"] for peer in json.loads(out)["peers"]} == {"one", "two"}
    assert len(re.findall("^connected: one", err, re.MULTILINE)) == 2
    assert len(re.findall("^connected: two", err, re.MULTILINE)) == 1


def test_who_claims_the_name_of_an_expected_one(capsys: pytest.CaptureFixture[str]) -> None:
    """A host of the job, with a certificate of its own, ends nobody's waiting."""
    assert run(capsys, "keys", "one", "two", "receiver", "-o", "job")[0] == 0
    with receiving("--keys", "job/hosts/receiver", "--from", "one") as (receiver, place):
        document = AgentDocument(keys="job/hosts/two", data_port=0)
        two = configured(document, folder=Path(), where="here").settings
        with Agent(replace(two, name="one")) as impostor:
            with suppress(AgentError):  # it may hear of it later
                impostor.connect("receiver", parse_endpoint(place))
            receiver.reads("^not connected: .*calls itself 'one', its certificate is of 'two'")
        with running("send", "g.npy", "--keys", "job/hosts/one", "--to", f"receiver={place}") as sender:
            assert sender.ends()[0] == receiver.ends()[0] == 0


def test_names_that_no_file_may_have(capsys: pytest.CaptureFixture[str]) -> None:
    with receiving("-o", "{peer}.npy") as (receiver, place):
        settings = configured(AgentDocument(name="x", data_port=0), folder=Path(), where="here").settings
        with Agent(replace(settings, name="../x")) as stranger:
            with pytest.raises(PeerRefusedError, match="refused the connection: is not a host name"):
                stranger.connect("receiver", parse_endpoint(place))
            receiver.reads(r"^not connected: .*: is not a host name")
            with running("send", "g.npy", "--to", f"receiver={place}") as sender:
                assert sender.ends()[0] == receiver.ends()[0] == 0
    assert Path("sender.npy").exists()


def test_the_last_reason_stands_with_the_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody expected came: the stranger's end is no reason of theirs."""
    with receiving("--from", "one", "--wait", "3") as (receiver, place):
        # In this process: before another one has begun on a busy machine, nobody listens any more.
        with sender("other") as stranger, pytest.raises(PeerRefusedError, match="other is not expected here"):
            stranger.connect("receiver", parse_endpoint(place))
        code, out, err = receiver.ends()
    assert (code, out) == (6, "")
    assert "other is not expected here" in err
    assert err.splitlines()[-1] == "mltswitch: peer one: has not connected within 3 s"


def sender(name: str) -> Agent:
    return Agent(configured(AgentDocument(name=name, data_port=0), folder=Path(), where="here").settings)


def test_who_announces_nonsense_is_sent_away_and_may_come_back() -> None:
    """The others, who have announced already, are asked nothing twice."""
    with receiving("--from", "one", "--from", "two", "-o", "{peer}.npy") as (receiver, place):
        to = ("--to", f"receiver={place}")
        with running("send", "g.npy", "--name", "two", *to) as two, sender("one") as odd:
            odd.connect("receiver", parse_endpoint(place), 60.0)
            odd.post_send(
                "receiver",
                np.zeros(ANNOUNCEMENT_BYTES, np.int8),
                tensor=ANNOUNCEMENT_TENSOR,
                round_number=1,
                dscp=34,
            ).wait()
            receiver.reads("^not connected: one: its announcement cannot be used: is not JSON")
            with running("send", "g.npy", "--name", "one", *to) as one:
                assert one.ends()[0] == two.ends()[0] == receiver.ends()[0] == 0
    assert (np.load("one.npy") == np.load("two.npy")).all()


def test_interrupted_when_somebody_else_has_come(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with nobody_listens() as free:
        place = free
    is_there, other_is_there = threading.Event(), threading.Event()

    def progress(line: str) -> None:
        if line == "connected: one":
            is_there.set()

    def tell(_: Strangers, line: str) -> None:
        if line == "connected: two":
            other_is_there.set()
            raise KeyboardInterrupt

    def call() -> None:
        with sender("one") as one:
            connect_patiently(one, [("receiver", place)], 60.0)
            assert is_there.wait(60.0)
        with sender("two") as two, suppress(AgentError):
            connect_patiently(two, [("receiver", place)], 60.0)
            assert other_is_there.wait(60.0)

    monkeypatch.setattr(Strangers, "tell", tell)
    monkeypatch.setattr(agent_recv, "progress", progress)
    with in_background(call) as called:
        code, out, err = run(capsys, "recv", "--listen", place, "--data-port", 0, "--json")
        called()
    assert code == 130, err
    [peer] = json.loads(out)["peers"]
    assert peer == dict.fromkeys(("tensor", "element_type", "shape", "size_bytes")) | {
        "peer": "two",
        "files": [],
        "rounds": [],
    }


def test_the_receiver_looks_from_the_beginning_of_its_agent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two who come at once are both the first."""

    def too_late(*_: object) -> None:
        raise AssertionError("somebody may be connected by now")

    monkeypatch.setattr(Agent, "observe", too_late)
    with nobody_listens() as free:
        place = str(free)
    with running("send", "g.npy", "--to", f"receiver={place}") as sender_:
        code, _, err = run(capsys, "recv", "--listen", place, "--data-port", 0, "--trace", "t.jsonl")
        assert sender_.ends()[0] == 0
    assert code == 0, err
    assert "peer_connected" in Path("t.jsonl").read_text()


def test_no_time_is_left_for_another_try() -> None:
    with sender("x") as agent, pytest.raises(ProtocolViolationError, match="says nonsense"):
        Admission((), 0.0).wait_again(agent, [ProtocolViolationError("says nonsense", peer="one")], print)


def test_nobody_is_waited_for_where_the_agent_has_failed() -> None:
    with sender("x") as agent:
        agent.close()
        with pytest.raises(CancelledError, match="closed"):
            Admission((), 60.0).wait_again(
                agent, [ProtocolViolationError("says nonsense", peer="one")], print
            )


def lost(peer: str, reason: str) -> PeerLost:
    return PeerLost(0, peer, "peer_unreachable", reason)


def test_strangers_hide_no_reason_of_who_is_expected() -> None:
    admission = Admission(["one"], 0.0)
    for number in range(2000):
        admission.observe(lost(f"10.0.0.1:{number}", "is no agent"))
    admission.observe(PeerConnected(0, "one", 1, 1, 1))
    admission.observe(lost("one", "it was told to end"))
    with pytest.raises(DeadlineExceededError, match="before: it was told to end"):
        admission.wait(print)


def test_the_last_reason_is_the_last() -> None:
    admission = Admission((), 0.0)
    for peer, reason in (("10.0.0.1:1", "first"), ("10.0.0.2:1", "second"), ("10.0.0.1:1", "third")):
        admission.observe(lost(peer, reason))
    with pytest.raises(DeadlineExceededError, match="before: third"):
        admission.wait(print)
