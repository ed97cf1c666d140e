"""What observers are told."""

import errno
import logging
import socket
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.engine import Engine
from mltswitch.hostagent.errors import AgentError, DeadlineExceededError, PeerUnreachableError
from mltswitch.hostagent.links import Link
from mltswitch.hostagent.network.outgoing import Refusal
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.spraying.standing import Reason, State
from mltswitch.hostagent.telemetry.events import (
    COMPLETED,
    AgentEnded,
    AgentEvent,
    AgentStarted,
    DatagramsDropped,
    DropReason,
    PacketsRefused,
    PathChanged,
    PeerConnected,
    PeerLost,
    RateChanged,
    TransferAdvanced,
    TransferEnded,
    TransferPosted,
    Warned,
    kind_of,
)
from mltswitch.hostagent.telemetry.watch import SAMPLE_NS, Watch
from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE
from mltswitch.hostagent.transport.interfaces import Direction, Stage
from tests.hostagent.telemetry.agents import DSCP, PATIENCE_SECONDS, Remembering, agent, pair, transfer


def test_the_life_of_a_transfer() -> None:
    here, there = Remembering(), Remembering()
    with pair({"observers": (here,)}, {"observers": (there,)}) as (sender, receiver):
        sent, received = transfer(sender, receiver)
    for seen, peer, direction, done in (
        (here, "host-b", Direction.SEND, sent),
        (there, "host-a", Direction.RECEIVE, received),
    ):
        events = seen.events
        assert isinstance(events[0], AgentStarted)
        assert isinstance(events[-1], AgentEnded)
        (connected,) = seen.of(PeerConnected)
        assert (connected.peer, connected.paths) == (peer, 4)
        (posted,) = seen.of(TransferPosted)
        assert (posted.peer, posted.tensor, posted.round_number, posted.direction, posted.size_bytes) == (
            (peer, 3, 1, direction, 400_012)
        )
        (ended,) = seen.of(TransferEnded)
        assert (ended.result, ended.reason) == (COMPLETED, "")
        assert ended.statistics == done.statistics
        assert ended.paths == done.paths
        assert done.statistics is not None
        assert ended.goodput_bps == done.statistics.goodput_bps
        advanced = seen.of(TransferAdvanced)
        assert advanced[0].stage is Stage.BEGUN
        assert {(entry.peer, entry.tensor, entry.direction) for entry in advanced} == {(peer, 3, direction)}
        places = [events.index(posted), events.index(advanced[0]), events.index(ended)]
        assert places == sorted(places)
        assert posted.time_ns <= advanced[0].time_ns <= ended.time_ns
        assert seen.of(PeerLost)
    assert [entry.path for entry in sent.paths] == [0, 1, 2, 3]
    # The last acknowledgements of a path may come after the end.
    measured = [path for path in sent.paths if path.round_trip_seconds is not None]
    assert measured
    for path in measured:
        assert path.state is State.ACTIVE
        assert path.least_round_trip_seconds is not None
        assert path.round_trip_seconds is not None
        assert 0 < path.least_round_trip_seconds <= path.round_trip_seconds
    assert received.paths == ()
    assert here.of(RateChanged)[0].rate_bps == 10e9


def test_nobody_observes_and_nothing_is_told() -> None:
    with pair() as (sender, receiver):
        transfer(sender, receiver)
        assert not sender._engine.watch
        connection = sender._engine.connection("host-b")
        assert not connection._exchange.is_observed


def test_who_comes_late_hears_of_those_who_are_there_and_may_leave() -> None:
    seen = Remembering()
    with pair() as (sender, receiver):
        transfer(sender, receiver, 1)
        sender.observe(seen)
        sender.observe(seen)
        seen.wait_for(PeerConnected)
        transfer(sender, receiver, 2)
        sender.stop_observing(seen)
        transfer(sender, receiver, 3)
        assert [entry.round_number for entry in seen.of(TransferEnded)] == [2]
        assert len(seen.of(PeerConnected)) == 1
        assert [entry.stage for entry in seen.of(TransferAdvanced)][:1] == [Stage.BEGUN]
    assert not seen.of(AgentEnded)
    sender.stop_observing(seen)
    with pytest.raises(AgentError):
        sender.observe(seen)


def test_failures_are_told_with_their_type() -> None:
    seen = Remembering()
    with pair({}, {"observers": (seen,)}) as (sender, receiver):
        there = receiver.post_recv(
            "host-a", np.zeros(10, np.float32), tensor=1, round_number=1, deadline_seconds=0.05
        )
        with pytest.raises(DeadlineExceededError):
            there.wait(PATIENCE_SECONDS)
        with pytest.raises(PeerUnreachableError):
            receiver.post_recv("nobody", np.zeros(10, np.float32), tensor=1, round_number=1).wait()
        ended = seen.wait_for(TransferEnded, 2)
        assert [entry.result for entry in ended] == ["deadline_exceeded", "peer_unreachable"]
        assert ended[0].reason == "not complete within its bound in time"
        assert [(entry.statistics, entry.goodput_bps) for entry in ended] == [(None, None)] * 2
        sender.close("the job is over")
        assert "the job is over" in seen.wait_for(PeerLost)[0].reason


def test_a_peer_that_cannot_be_reached() -> None:
    seen = Remembering()
    with socket.socket() as taken, agent("host-a", 61, observers=(seen,)) as alone:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(PeerUnreachableError):
            alone.connect("host-b", Endpoint("127.0.0.1", taken.getsockname()[1]), PATIENCE_SECONDS)
        (lost,) = seen.of(PeerLost)
        assert (lost.peer, lost.kind) == ("host-b", "peer_unreachable")


def test_a_stranger_that_is_refused() -> None:
    seen = Remembering()
    with agent("host-a", 61, observers=(seen,)) as alone:
        at = alone.listening_at
        assert at is not None
        with socket.create_connection((at.address, at.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            (lost,) = seen.wait_for(PeerLost)
            assert not seen.of(PeerConnected)
        assert lost.reason


def test_an_observer_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        calls = 0

        def observe(self, event: AgentEvent) -> None:
            self.calls += 1
            raise RuntimeError("of no use")

    broken, seen = Broken(), Remembering()
    with caplog.at_level(logging.ERROR), pair({"observers": (broken,)}) as (sender, receiver):
        sender.observe(seen)
        transfer(sender, receiver)
    assert broken.calls == 1
    assert len(caplog.records) == 1
    assert seen.of(TransferEnded)


def test_an_observer_that_fails_at_its_first_event_is_told_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        calls = 0

        def observe(self, event: AgentEvent) -> None:
            self.calls += 1
            raise RuntimeError("of no use")

        def __eq__(self, other: object) -> bool:
            raise SystemExit

        __hash__ = None  # type: ignore[assignment]  # as of what has `==`

    greeting = (AgentStarted(1, "host-a", ()), Warned(1, "small buffers"), Warned(1, "small packets"))
    watch, broken, other = Watch(lambda: greeting), Broken(), Remembering()
    watch.add(other)
    watch.add(broken)
    assert broken.calls == 1
    assert len(caplog.records) == 1
    watch.tell(greeting[0])
    assert (broken.calls, other.events) == (1, [*greeting, greeting[0]])


def test_strangers_datagrams_are_told() -> None:
    seen = Remembering()
    with agent("host-a", 61, observers=(seen,)) as alone:
        _send_strange(alone)
        (dropped,) = seen.wait_for(DatagramsDropped)
        assert (dropped.peer, dropped.reason, dropped.datagrams) == (None, DropReason.UNKNOWN, 1)


def _send_strange(target: Agent) -> None:
    headers = np.zeros(1, HEADER_DTYPE)
    headers["version"], headers["kind"], headers["flow_token"] = 1, 3, 0x1234
    place = target.snapshot(PATIENCE_SECONDS).sockets[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(headers.tobytes(), ("127.0.61.1", place.port))


def test_warnings_about_the_machine_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "warnings", ("the buffer is too small",))
    seen = Remembering()
    with agent("host-a", 61, observers=(seen,)):
        assert [entry.text for entry in seen.of(Warned)] == ["the buffer is too small"]


class Stub:
    """A link as far as a watch looks at it."""

    def __init__(self, paths: int = 2) -> None:
        self.sprayer = PathSprayer(paths)
        self.refused: tuple[Refusal, ...] = ()
        self.connection = SimpleNamespace(
            sprayer=self.sprayer, peer=object(), rate_bps=1e9, dropped_datagrams=0, late_packets=0
        )
        sender = SimpleNamespace(refusals=self._refusals)
        self.link = Link(cast(Any, None), "host-b", cast(Any, self.connection), cast(Any, sender))
        self.link.is_welcome = True

    def _refusals(self) -> tuple[Refusal, ...]:
        refused, self.refused = self.refused, ()
        return refused


class Receiver:
    drops = 0

    def kernel_drops(self) -> int:
        return self.drops


@pytest.fixture
def watched() -> tuple[Watch, Remembering, Stub, Receiver]:
    watch, seen = Watch(lambda: ()), Remembering()
    watch.add(seen)
    return watch, seen, Stub(), Receiver()


Watched = tuple[Watch, Remembering, Stub, Receiver]


def look(given: Watched, now_ns: int, unknown: int = 0) -> list[AgentEvent]:
    watch, seen, stub, receiver = given
    before = len(seen.events)
    watch.look([stub.link], [cast(Any, receiver)], unknown, now_ns)
    return seen.events[before:]


def test_a_path_that_is_left_is_told_in_the_same_turn(watched: Watched) -> None:
    stub = watched[2]
    look(watched, 0)
    now_ns, changed = 0, list[AgentEvent]()
    while not changed:
        now_ns += 1_000_000
        stub.sprayer.sent(np.array([0, 1]), np.array([1, 1]), np.array([100, 100]), now_ns)
        sent = stub.sprayer.statistics()[1].sent_packets
        stub.sprayer.acknowledged(1, now_ns, sent, 0, 1000, now_ns)
        stub.sprayer.probes_due(now_ns)
        changed = [event for event in look(watched, now_ns) if isinstance(event, PathChanged)]
        assert now_ns < 10**10, "the dead path is never left"
    assert changed == [PathChanged(now_ns, "host-b", 0, State.LEFT, Reason.DEAD)]


def test_rates_and_drops_are_told_as_differences_and_rarely(watched: Watched) -> None:
    stub, receiver = watched[2], watched[3]
    assert look(watched, 0) == [RateChanged(0, "host-b", 1e9, 0)]
    stub.connection.rate_bps, stub.connection.late_packets, receiver.drops = 5e8, 3, 7
    stub.refused = (Refusal(1, errno.EMSGSIZE, 2), Refusal(0, 9999, 1))
    assert look(watched, SAMPLE_NS - 1, unknown=4) == []
    assert look(watched, SAMPLE_NS, unknown=4) == [
        DatagramsDropped(SAMPLE_NS, None, DropReason.KERNEL, 7),
        DatagramsDropped(SAMPLE_NS, None, DropReason.UNKNOWN, 4),
        DatagramsDropped(SAMPLE_NS, "host-b", DropReason.LATE, 3),
        RateChanged(SAMPLE_NS, "host-b", 5e8, 0),
        PacketsRefused(SAMPLE_NS, "host-b", 1, "EMSGSIZE", 2),
        PacketsRefused(SAMPLE_NS, "host-b", 0, "9999", 1),
    ]
    stub.connection.dropped_datagrams = 1
    assert look(watched, 2 * SAMPLE_NS, unknown=4) == [
        DatagramsDropped(2 * SAMPLE_NS, "host-b", DropReason.FALSE, 1)
    ]


def test_the_last_counts_of_a_connection_are_told(watched: Watched) -> None:
    watch, seen, stub, _ = watched
    look(watched, 0)
    stub.connection.late_packets = 5
    watch.forget(stub.link)
    (dropped,) = seen.of(DatagramsDropped)
    assert (dropped.reason, dropped.datagrams) == (DropReason.LATE, 5)
    assert not watch._seen
    assert not watch._rates


def test_kinds_of_errors_have_plain_names() -> None:
    assert kind_of(None) == COMPLETED
    assert kind_of(DeadlineExceededError("x")) == "deadline_exceeded"


def test_the_dscp_of_a_transfer_is_in_its_statistics() -> None:
    with pair() as (sender, receiver):
        for done in transfer(sender, receiver):
            assert done.statistics is not None
            assert [entry.dscp for entry in done.statistics.classes] == [DSCP]
            assert sum(done.statistics.packets_by_path) >= done.statistics.packets
