"""Two doctors over loopback: keys, strangers, peers that are none, and bounds. No root."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.control.listener import ControlListener
from mltswitch.hostagent.control.security import Plaintext, Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.doctor import conversation as conversation_module
from mltswitch.hostagent.doctor import examination
from mltswitch.hostagent.doctor.conversation import Conversation
from mltswitch.hostagent.doctor.datagrams import Datagram, Kind
from mltswitch.hostagent.doctor.examination import LOSS_DATAGRAMS, connected, examine
from mltswitch.hostagent.doctor.examined import listening
from mltswitch.hostagent.doctor.messages import (
    PREAMBLE,
    Expect,
    Findings,
    Finish,
    Finished,
    Hello,
    Ready,
    Run,
    Seen,
    Sent,
    Transmit,
    encode,
)
from mltswitch.hostagent.doctor.ports import Port, opened_ports
from mltswitch.hostagent.errors import (
    AgentError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
)
from tests.hostagent.background import eventually, in_background
from tests.hostagent.control.peers import (
    Job,
    accepted,
    all_ended,
    drive,
    new_authority,
    nobody_listens,
    unproved,
)
from tests.hostagent.doctor.pairs import (
    CHANNEL,
    LOOSE,
    PATIENCE_SECONDS,
    examined_by,
    problems,
    served,
    settings_of,
)

ONE, OTHER = ("127.0.81.1", "127.0.81.2"), ("127.0.82.1", "127.0.82.2")
CLIENT, SERVER = settings_of("client", ONE, dscp=(34,)), settings_of("server", OTHER, dscp=(34,))
RUN = Run(number=1, paths=(0, 1), traffic_bytes=(138,), payload_bytes=(64,), copies=5)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("job"))


@contextmanager
def talking(listener: Endpoint, security: Security = LOOSE) -> Iterator[tuple[Conversation, list[Port]]]:
    """An examiner that a test drives."""
    with (
        connected(listener, "server", security, CHANNEL, source=ONE[0]) as channel,
        opened_ports(CLIENT) as ports,
        Conversation(channel, ports, CLIENT, is_examiner=True) as conversation,
    ):
        conversation.greet()
        conversation.hear(Findings)
        yield conversation, list(ports)


def test_with_keys_both_prove_their_names(job: Job) -> None:
    with served(SERVER, OTHER[0], job.identity("server")) as listener:
        result, report = examined_by(CLIENT, listener, job.identity("client"))
        answered = listener.wait()
    assert (result.peer, result.is_authenticated) == ("server", True)
    assert problems(report) == {}
    assert (answered.examiner, answered.error, answered.is_finished) == ("client", None, True)
    assert result.datagrams == answered.sent_datagrams < 4_000
    assert result.drift is not None
    assert abs(result.drift.parts_per_million) <= result.drift.uncertainty  # it is one clock


def test_one_listener_serves_one_after_the_other() -> None:
    with served(SERVER, OTHER[0], times=2) as listener:
        for _ in range(2):
            assert problems(examined_by(CLIENT, listener)[1]) == {}


@pytest.mark.parametrize("has_keys", [False, True])
def test_a_second_examiner_is_told_at_once_that_the_doctor_is_busy(job: Job, has_keys: bool) -> None:
    """As often as it asks; the first one notices nothing, and then it is the second one's turn."""
    ours, theirs = (job.identity("client"), job.identity("server")) if has_keys else (LOOSE, LOOSE)
    with served(SERVER, OTHER[0], theirs, times=2) as listener:
        with talking(listener.at, ours) as (conversation, _):
            began = time.monotonic()
            for _ in range(3):
                with pytest.raises(PeerRefusedError, match="its doctor examines another host now: try again"):
                    examined_by(CLIENT, listener, ours)
            assert time.monotonic() - began < conversation_module.GREETING_SECONDS
            conversation.say(Finish())
            conversation.hear(Finished)
        eventually(lambda: len(listener.answered) == 1)
        assert problems(examined_by(CLIENT, listener, ours)[1]) == {}
    assert [answered.error for answered in listener.answered] == [None, None]


def test_who_does_not_speak_while_another_is_examined_has_its_turn_afterwards() -> None:
    with served(SERVER, OTHER[0], times=2) as listener:
        with talking(listener.at) as (conversation, _), ExitStack() as later:
            second = later.enter_context(connected(listener.at, "server", LOOSE, CHANNEL, source=ONE[0]))
            with pytest.raises(PeerRefusedError):
                examined_by(CLIENT, listener)  # who came before is known to the doctor, too
            conversation.say(Finish())
            conversation.hear(Finished)
            kept = later.pop_all()
        eventually(lambda: len(listener.answered) == 1)
        with kept:
            examine(second, CLIENT)
    assert [answered.error for answered in listener.answered] == [None, None]


def test_paths_by_port() -> None:
    """As in the mode `entropy`: one address, and a port for each path."""
    one, other = (settings_of(name, [address] * 3, dscp=(34,)) for name, address in
                  (("client", ONE[0]), ("server", OTHER[0])))  # fmt: skip
    with served(other, OTHER[0]) as listener:
        _, report = examined_by(one, listener)
    assert problems(report) == {}
    assert len(report.paths) == 3


def test_many_paths_have_whole_samples_in_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "MAXIMUM_RUN_DATAGRAMS", 2 * LOSS_DATAGRAMS)
    one, other = (settings_of(name, [address] * 3, dscp=(34,)) for name, address in
                  (("client", ONE[0]), ("server", OTHER[0])))  # fmt: skip
    with served(other, OTHER[0]) as listener:
        _, report = examined_by(one, listener)
    samples = [way.measured.loss_sent for path in report.paths for way in path.directions]
    assert samples == [LOSS_DATAGRAMS] * 6


def test_a_job_that_wants_the_longest_packets() -> None:
    """Loopback takes them."""
    one, other = (settings_of(name, [address], dscp=(34,), payload_bytes=40_000) for name, address in
                  (("client", ONE[0]), ("server", OTHER[0])))  # fmt: skip
    with served(other, OTHER[0]) as listener:
        _, report = examined_by(one, listener)
    assert problems(report) == {}
    limits = {way.measured.payload_limit_bytes for way in report.paths[0].directions}
    assert limits == {40_000}


def test_nobody_listens() -> None:
    with (
        nobody_listens(OTHER[0]) as remote,
        pytest.raises(PeerUnreachableError, match="nothing listens at"),
        connected(remote, "server", LOOSE, CHANNEL) as channel,
    ):
        examine(channel, CLIENT)


def test_a_certificate_of_another_job(job: Job) -> None:
    stranger = job.credentials("client", signer=new_authority())
    with served(SERVER, OTHER[0], job.identity("server")) as listener:
        with pytest.raises(PeerRefusedError, match=r"CA|believe"):
            examined_by(CLIENT, listener, unproved(stranger, stranger.authority))
        # The listener is there for the next.
        assert problems(examined_by(CLIENT, listener, job.identity("client"))[1]) == {}


def test_the_wrong_host(job: Job) -> None:
    with served(SERVER, OTHER[0], job.identity("server")) as listener:
        with pytest.raises(PeerRefusedError, match="names another host"):
            examined_by(CLIENT, listener, job.identity("client"), peer="somebody")
        examined_by(CLIENT, listener, job.identity("client"))


def test_plain_text_where_keys_are_wanted(job: Job) -> None:
    with served(SERVER, OTHER[0], job.identity("server")) as listener:
        with pytest.raises(PeerRefusedError, match="it speaks TLS, and we are in plain text"):
            examined_by(CLIENT, listener, LOOSE)
        examined_by(CLIENT, listener, job.identity("client"))


def test_an_agent_is_no_doctor() -> None:
    """Something else answers at the control port."""
    listener = ControlListener(Endpoint(OTHER[0], 0), LOOSE, CHANNEL)

    def other() -> None:
        channel = accepted(listener)
        channel.send(b"\x00\x00\x00\x20\x01an agent's hello is another....")
        drive([channel], all_ended)

    with in_background(other) as ended:
        with (
            pytest.raises(PeerRefusedError, match="is an agent, and no doctor"),
            connected(listener.local, "server", LOOSE, CHANNEL) as channel,
        ):
            examine(channel, CLIENT)
        ended()
    listener.close()


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP: it is no agent"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it speaks SSH: it is no agent"),
        (b"\x16\x03\x01\x02\x00\x01", "it speaks TLS, and we are in plain text"),
        (b"", "closed the connection while the control channel was set up"),
    ],
)
def test_strangers_are_told_of_and_do_not_end_the_listener(said: bytes, refusal: str) -> None:
    refused: list[AgentError] = []
    place = Endpoint(OTHER[0], 0)
    with listening(place, LOOSE, CHANNEL, SERVER, (), refused.append) as examined:
        with socket.create_connection((examined.local.address, examined.local.port)) as stranger:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            while not refused:
                assert examined.serve_one(0.1) is None
        [error] = refused
        assert error.peer.startswith("127.0.")
        assert error.what.startswith(refusal)


@pytest.mark.parametrize("said", [b"220 mail\r\n", PREAMBLE[:-1] + b"\x09", PREAMBLE + b"\xff" * 64])
def test_who_says_what_no_doctor_says_is_turned_away_with_a_reason(said: bytes) -> None:
    with listening(Endpoint(OTHER[0], 0), LOOSE, CHANNEL, SERVER, ()) as examined:
        with socket.create_connection((examined.local.address, examined.local.port)) as stranger:
            stranger.sendall(said)
            answered = examined.serve_one(PATIENCE_SECONDS)
        assert answered is not None
        assert isinstance(answered.error, PeerRefusedError | ProtocolViolationError)
        assert not answered.is_finished


def test_another_number_of_paths() -> None:
    with (
        served(settings_of("server", OTHER[:1]), OTHER[0]) as listener,
        pytest.raises(PeerRefusedError, match="has 1 paths where we have 2"),
    ):
        examined_by(CLIENT, listener)


def test_another_version_of_ip() -> None:
    with (
        served(settings_of("server", ["::1", "::1"]), OTHER[0]) as listener,
        pytest.raises(PeerRefusedError, match="another version of IP"),
    ):
        examined_by(CLIENT, listener)


def test_datagrams_of_strangers_are_neither_counted_nor_answered() -> None:
    """Without the token, with a token of somebody else's, garbage, and agents' own."""
    with served(SERVER, OTHER[0]) as listener, talking(listener.at) as (conversation, _):
        conversation.say(Expect(run=RUN.model_copy(update={"is_echoed": True})))
        conversation.hear(Ready)
        end = conversation.peer.paths[0]
        forged = Datagram(Kind.QUESTION, 138, 0, 12345, 1, 0, 1).encode(64)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind((ONE[0], 0))
            for data in (forged, b"", b"x" * 1400, bytes(64), forged[:40]):
                stranger.sendto(data, (end.address, end.port))
            conversation.say(Sent(number=1, paths=()))
            seen = conversation.hear(Seen)
            stranger.setblocking(False)
            with pytest.raises(BlockingIOError):
                stranger.recv(2048)
        assert [path.arrived for path in seen.paths] == [0, 0]
        conversation.say(Finish())
        assert conversation.hear(Finished).ignored_datagrams == 5
    assert conversation.round_trips == []


def test_a_question_is_answered_once_and_to_the_address_that_was_said() -> None:
    """Replayed, and from another socket: a copy makes nobody send, least of all elsewhere."""
    with served(SERVER, OTHER[0]) as listener, talking(listener.at) as (conversation, _):
        run = RUN.model_copy(update={"is_echoed": True})
        conversation.say(Expect(run=run))
        conversation.hear(Ready)
        sent = conversation.transmit(run)
        end = conversation.peer.paths[0]
        copy = Datagram(Kind.QUESTION, 138, 0, int(conversation.peer.token, 16), 1, 0, 1).encode(64)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind((ONE[1], 0))
            for _ in range(20):
                stranger.sendto(copy, (end.address, end.port))
            conversation.await_answers()
            conversation.say(sent)
            seen = conversation.hear(Seen)
            stranger.setblocking(False)
            with pytest.raises(BlockingIOError):
                stranger.recv(2048)
        assert len(conversation.round_trips) == 10
        assert [path.doubled for path in seen.paths] == [20, 0]
        conversation.say(Finish())
        conversation.hear(Finished)
    assert listener.wait().sent_datagrams == 10


def test_plain_text_sends_to_no_address_that_is_not_proved() -> None:
    """Somebody names a victim's address as their own."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim,
        served(SERVER, OTHER[0]) as listener,
        connected(listener.at, "server", LOOSE, CHANNEL) as channel,
        opened_ports(CLIENT) as ports,
    ):
        victim.bind(("127.0.83.1", 0))
        with Conversation(channel, ports, CLIENT, is_examiner=True) as liar:
            ends = [end.model_copy(update={"port": victim.getsockname()[1]}) for end in liar.own_paths]
            liar.own_paths = tuple(end.model_copy(update={"address": "127.0.83.1"}) for end in ends)
            liar.greet()
            liar.hear(Findings)
            liar.say(Transmit(run=RUN))
            sent = liar.hear(Sent)
            assert [(path.sent, path.is_withheld) for path in sent.paths] == [(0, True), (0, True)]
            victim.setblocking(False)
            with pytest.raises(BlockingIOError):
                victim.recv(2048)
            liar.say(Finish())
            liar.hear(Finished)
    assert listener.wait().sent_datagrams == 0


def unknown_path(conversation: Conversation) -> None:
    conversation.say(Transmit(run=RUN.model_copy(update={"paths": (5,)})))


def same_run_again(conversation: Conversation) -> None:
    conversation.say(Transmit(run=RUN))
    conversation.hear(Sent)
    conversation.say(Transmit(run=RUN))


def another_run(conversation: Conversation) -> None:
    conversation.say(Expect(run=RUN))
    conversation.hear(Ready)
    conversation.say(Sent(number=9, paths=()))


def out_of_turn(conversation: Conversation) -> None:
    conversation.say(Ready(number=1))


def hello_again(conversation: Conversation) -> None:
    conversation.say(Hello(name="client", token="0" * 16, paths=conversation.own_paths))


def flood(conversation: Conversation) -> None:
    for _ in range(100):
        conversation.say(Ready(number=1))


def too_long(conversation: Conversation) -> None:
    """No message of ours says it; somebody else's may."""
    body = encode(Transmit(run=RUN)).replace(b'"copies":5', b'"copies":8000')
    conversation._channel.send((len(body) - 4).to_bytes(4, "big") + body[4:])
    conversation._channel.flush()


def until_it_ends(conversation: Conversation, misbehave: Callable[[Conversation], None]) -> None:
    misbehave(conversation)
    while True:
        conversation.hear_any()


@pytest.mark.parametrize(
    "misbehave", [unknown_path, same_run_again, another_run, out_of_turn, hello_again, flood, too_long]
)
def test_what_no_examiner_does(misbehave: Callable[[Conversation], None]) -> None:
    """It is told so, and the listener lives."""
    with served(SERVER, OTHER[0], times=2) as listener:
        with talking(listener.at) as (conversation, _), pytest.raises(AgentError):
            until_it_ends(conversation, misbehave)
        assert problems(examined_by(CLIENT, listener)[1]) == {}
    assert isinstance(listener.answered[0].error, ProtocolViolationError)
    assert not listener.answered[0].is_finished


def test_a_listener_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_module, "GREETING_SECONDS", 0.2)
    with (
        socket.create_server((OTHER[0], 0)) as silent,
        connected(Endpoint(*silent.getsockname()), "server", LOOSE, CHANNEL) as channel,
        pytest.raises(
            PeerUnreachableError, match=r"and no doctor speaks there within 0\.2 s: something else"
        ),
    ):
        examine(channel, CLIENT)


def test_addresses_that_this_host_does_not_have() -> None:
    with (
        listening(Endpoint(OTHER[0], 0), LOOSE, CHANNEL, SERVER, ()) as examined,
        connected(examined.local, "server", LOOSE, CHANNEL) as channel,
        pytest.raises(UserInputError, match=r"192\.0\.2\.1"),
    ):
        examine(channel, settings_of("client", ["192.0.2.1"]))


def test_a_port_that_is_taken() -> None:
    with (
        listening(Endpoint(OTHER[0], 0), LOOSE, CHANNEL, SERVER, ()) as examined,
        pytest.raises(MachineError, match="cannot listen there"),
        listening(examined.local, LOOSE, CHANNEL, SERVER, ()),
    ):
        pass


def test_plain_text_stays_on_this_machine_unless_it_is_asked_for() -> None:
    with (
        pytest.raises(UserInputError, match="plain text does not leave this machine"),
        listening(Endpoint("192.0.2.1", 0), Plaintext(), CHANNEL, SERVER, ()),
    ):
        pass


def test_nobody_comes() -> None:
    with listening(Endpoint(OTHER[0], 0), LOOSE, CHANNEL, SERVER, ()) as examined:
        assert examined.serve_one(0.3) is None
