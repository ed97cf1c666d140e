"""What strangers may say to an agent's control port, and what an agent costs that does nothing."""

import json
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.hostagent import Agent, PeerRefusedError, PeerUnreachableError, connector
from mltswitch.hostagent.protocol.frames import MOST_HELLO_BYTES
from mltswitch.hostagent.telemetry.events import PeerLost
from tests.hostagent.background import eventually, in_background
from tests.hostagent.ends import (
    PATIENCE_SECONDS,
    Make,
    Notes,
    RawPeer,
    acquainted,
    connect,
    exchange,
    hello,
    opening,
)


@pytest.fixture(scope="module")
def lasting_agent() -> Any:
    with opening() as one:
        yield one("one")


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        (MOST_HELLO_BYTES + 1).to_bytes(4, "big"),
        framed(b"no JSON"),
        framed(b"[" * 60_000),
        framed(b"[]"),
        framed(b'{"type": 5}'),
        framed(b'{"type": "hello"}'),
        framed(json.dumps({"type": "goodbye"}).encode()),
        framed(json.dumps({"type": "transport", "channel": "default", "body": {}}).encode()),
        framed(json.dumps({"type": "of a later version"}).encode()),
        framed(json.dumps(hello("one")).encode()),
        framed(json.dumps(hello("bad name")).encode()),
        framed(json.dumps(hello("10.0.0.1")).encode()),
        framed(json.dumps(hello("x" * 64)).encode()),
        framed(json.dumps(hello("x", versions=[])).encode()),
        framed(json.dumps(hello("x", versions=["two"])).encode()),
        framed(json.dumps(hello("x", channels={f"c{n}": {} for n in range(70)})).encode()),
    ],
)
def test_who_says_anything_but_a_good_hello_is_not_a_peer(lasting_agent: Agent, said: bytes) -> None:
    with RawPeer(lasting_agent.listening_at) as stranger:
        with suppress(ConnectionError):
            stranger.socket.sendall(said)
        answer = stranger.hear()
        if answer is not None:
            assert answer["type"] == "goodbye"
            assert stranger.ends()
    assert lasting_agent.peers == ()
    with acquainted(lasting_agent, "good"):
        pass
    eventually(lambda: lasting_agent.peers == ())


KEYS = ["type", "hello", "name", "versions", "channels", "default", "transport", "parameters", "mlt", "paths"]
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
DOCUMENTS = st.recursive(
    LEAVES,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(KEYS), part, max_size=6),
    max_leaves=20,
)


@given(st.binary(max_size=200) | DOCUMENTS)
@settings(max_examples=100)
def test_whatever_is_said_the_agent_lives(lasting_agent: Agent, said: Any) -> None:
    with RawPeer(lasting_agent.listening_at) as stranger:
        with suppress(ConnectionError):
            stranger.socket.sendall(framed(said if isinstance(said, bytes) else json.dumps(said).encode()))
            stranger.socket.shutdown(socket.SHUT_WR)
        answer = stranger.hear()
        assert answer is None or answer["type"] == "goodbye"
    assert lasting_agent.peers == ()


def test_ends_of_other_versions_refuse_each_other(make: Make) -> None:
    agent = make("one")
    with RawPeer(agent.listening_at) as peer:
        peer.say(hello("other", versions=[1, 3]))
        answer = peer.hear()
        assert answer is not None
        assert (answer["type"], answer["code"]) == ("goodbye", "refused")
        assert answer["reason"] == "it speaks versions 1, 3 of the protocol, we speak 2"
        assert peer.ends()
    with acquainted(agent, "both", versions=[1, 2, 3]):
        pass


def said_by_a_server(agent: Agent, *frames: dict[str, Any], timeout_seconds: float = 1.0) -> None:
    """The agent calls, and hears these."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        with in_background(agent.connect, "other", place, timeout_seconds=timeout_seconds) as connected:
            accepted, _ = server.accept()
            with accepted:
                for frame in frames:
                    accepted.sendall(framed(json.dumps(frame).encode()))
                server.close()
                connected()


@pytest.mark.parametrize(
    ("frame", "kind", "message"),
    [
        (hello("third"), PeerRefusedError, "who answers there is third"),
        (hello("other", versions=[9]), PeerRefusedError, "it speaks versions 9"),
        ({"type": "goodbye", "code": "refused", "reason": "\x1bno"}, PeerRefusedError, r"refuses: \?no"),
        ({"type": "goodbye", "code": "of a later version"}, PeerRefusedError, "it says no reason"),
    ],
)
def test_what_a_called_peer_may_answer(
    make: Make, frame: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        said_by_a_server(make("one"), frame)


def test_a_called_peer_that_is_busy_or_leaves_is_called_again(make: Make) -> None:
    for frame in (
        {"type": "goodbye", "code": "busy", "reason": "later"},
        {"type": "goodbye", "code": "crossed"},
    ):
        with pytest.raises(PeerUnreachableError, match="cannot be reached"):  # by then nobody listens there
            said_by_a_server(make(f"one-{frame['code']}"), frame, timeout_seconds=0.5)


def test_silent_connections_keep_no_peer_out_for_ever(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "HELLO_SECONDS", 1.0)
    notes = Notes()
    agent, peer = make("one", observers=[notes]), make("other")
    with ExitStack() as silent:
        for number in range(300):
            source = f"127.0.1.{number % 10 + 1}"  # of several hosts, so that all together are too many
            with suppress(OSError):
                silent.enter_context(RawPeer(agent.listening_at, source))
        connect(peer, agent)
        exchange(peer, agent)
        eventually(lambda: len(notes.of(PeerLost)) >= connector.MOST_UNIDENTIFIED)


def test_one_host_may_not_take_all_places(make: Make) -> None:
    agent = make("one")
    with ExitStack() as silent:
        for _ in range(connector.MOST_UNIDENTIFIED_OF_ADDRESS):
            silent.enter_context(RawPeer(agent.listening_at, "127.0.1.1"))
        eventually(
            lambda: (
                agent.engine.connector._unidentified["127.0.1.1"] == connector.MOST_UNIDENTIFIED_OF_ADDRESS
            )
        )
        with RawPeer(agent.listening_at, "127.0.1.1") as one_more:
            assert one_more.ends()
        with acquainted(agent, "other"):
            pass


COSTS = """
import resource, sys, time, json
from mltswitch.hostagent import Agent, AgentConfig
agent = Agent(AgentConfig(name="server", listen="127.0.0.1:0"))
print(agent.listening_at, flush=True)
def memory():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) * 1024
before = memory()
sys.stdin.readline()
after = memory()
used = resource.getrusage(resource.RUSAGE_SELF)
busy, began = used.ru_utime + used.ru_stime, time.monotonic()
time.sleep(5)
used = resource.getrusage(resource.RUSAGE_SELF)
share = (used.ru_utime + used.ru_stime - busy) / (time.monotonic() - began)
print(json.dumps([len(agent.peers), after - before, share]))
"""


def test_what_a_hundred_idle_peers_cost() -> None:
    """Each less than 100 kB, all together less than a few percent of a processor."""
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", COSTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        from mltswitch.hostagent.endpoint import parse_endpoint

        place = parse_endpoint(process.stdout.readline().strip())
        for number in range(100):
            peer = stack.enter_context(RawPeer(place))
            peer.say(hello(f"peer{number}"))
            answer = peer.hear()
            assert answer is not None
            assert answer["type"] == "hello"
        process.stdin.write("\n")
        process.stdin.flush()
        peers, grown_bytes, share = json.loads(process.stdout.readline())
    assert peers == 100
    assert grown_bytes / 100 < 100_000
    assert share < 0.03


def test_the_engine_ends_in_time_with_peers_that_do_not_answer(make: Make) -> None:
    agent = make("one")
    with acquainted(agent, "other") as peer:
        began = time.monotonic()
        agent.close()
        assert time.monotonic() - began < PATIENCE_SECONDS / 2
        answer = peer.hear()
        assert answer is not None
        assert (answer["type"], answer["code"], answer["reason"]) == (
            "goodbye",
            "left",
            "the agent was closed",
        )
        assert peer.ends()
