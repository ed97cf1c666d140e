"""Channels: each with its own transport, tensor and round numbers, and messages."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent import (
    Agent,
    AgentError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
)
from tests.hostagent.background import eventually, in_background
from tests.hostagent.ends import (
    PATIENCE_SECONDS,
    RECEIVER,
    SENDER,
    Make,
    acquainted,
    acquainted_or_refused,
    connect,
    exchange,
    hello,
    joined,
    offer,
    values,
)


def test_one_agent_has_lossy_and_whole_channels_with_the_same_numbers(make: Make) -> None:
    sender, receiver = joined(make, channels={"weights": "tcp", "more": "mlt"})
    names = ("default", "weights", "more")
    assert [sender.channel(name).transport for name in names] == ["mlt", "tcp", "mlt"]
    originals = {name: values(20_000, seed) for seed, name in enumerate(names)}
    buffers = {name: np.zeros(20_000, np.float32) for name in names}
    waits = [
        receiver.channel(name).post_receive(SENDER, buffer, tensor=1, round_number=5)
        for name, buffer in buffers.items()
    ]
    waits += [
        sender.channel(name).post_send(RECEIVER, original, tensor=1, round_number=5)
        for name, original in originals.items()
    ]
    assert [transfer.wait(PATIENCE_SECONDS).channel for transfer in waits] == [*names, *names]
    for name in names:
        assert (buffers[name] == originals[name]).all()
        assert sender.snapshot().peers[RECEIVER][name].transport == sender.channel(name).transport


@pytest.mark.parametrize("is_sender_first", [True, False])
def test_a_channel_may_be_declared_while_connected(pair: tuple[Agent, Agent], is_sender_first: bool) -> None:
    one, other = pair if is_sender_first else pair[::-1]
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(one.channel("late").wait_for_peers, [other.name], PATIENCE_SECONDS)
        posted = pool.submit(one.channel("late").post_send, other.name, values(100), tensor=1)
        time.sleep(0.05)
        assert not posted.done()
        with pytest.raises(DeadlineExceededError, match="has not declared channel late"):
            one.channel("late").post_send(other.name, values(100), tensor=2, deadline_seconds=0.05)
        buffer = np.zeros(100, np.float32)
        there = other.channel("late").post_receive(one.name, buffer, tensor=1)
        posted.result(PATIENCE_SECONDS).wait(PATIENCE_SECONDS)
        early.result(PATIENCE_SECONDS)
    there.wait(PATIENCE_SECONDS)
    assert (buffer == values(100)).all()


def test_channels_that_are_declared_while_peers_connect_open_all_the_same(make: Make) -> None:
    for number in range(20):
        one, other = make(f"one{number}"), make(f"other{number}")
        with ThreadPoolExecutor(2) as pool:
            declared = [pool.submit(agent.channel, "late") for agent in (one, other)]
            connect(one, other)
            for entry in declared:
                entry.result(PATIENCE_SECONDS)
        one.channel("late").wait_for_peers([other.name], PATIENCE_SECONDS)
        other.channel("late").wait_for_peers([one.name], PATIENCE_SECONDS)
        one.close()
        other.close()


def test_names_and_transports_of_channels(pair: tuple[Agent, Agent]) -> None:
    agent = pair[0]
    assert agent.channel("default") is agent.default
    assert agent.channel("x", transport="tcp") is agent.channel("x")
    for name, transport, message in (
        ("x", "mlt", "has transport tcp already"),
        ("default", "tcp", "has transport mlt already"),
        ("y", "pigeon", "unknown transport 'pigeon'.*mlt.*tcp"),
        ("", None, "is no name"),
        ("two words", None, "is no name"),
        ("x" * 64, None, "is no name"),
    ):
        with pytest.raises(UserInputError, match=message):
            agent.channel(name, transport=transport)
    for number in range(62):
        agent.channel(f"many{number}")
    with pytest.raises(UserInputError, match="one more than 64"):
        agent.channel("one-more")
    exchange(*pair)


def test_a_default_channel_of_another_transport_is_refused_at_both_ends(make: Make) -> None:
    one, other = make("one"), make("other", transport="tcp")
    said = "channel default has transport .* at one end and .* at the other"
    with pytest.raises(PeerRefusedError, match=said):
        one.connect("other", other.listening_at, timeout_seconds=PATIENCE_SECONDS)
    with pytest.raises(PeerRefusedError, match=said):
        other.connect("one", one.listening_at, timeout_seconds=PATIENCE_SECONDS)
    eventually(lambda: one.peers == other.peers == ())


def test_a_later_channel_of_another_transport_ends_the_connection(pair: tuple[Agent, Agent]) -> None:
    one, other = pair
    one.channel("x", transport="tcp")
    never = one.post_receive(other.name, values(9), tensor=1)
    other.channel("x", transport="mlt")
    with pytest.raises(AgentError, match="channel x has transport"):
        never.wait(PATIENCE_SECONDS)
    eventually(lambda: one.peers == other.peers == ())


# Messages


def test_messages_come_in_order_both_ways(pair: tuple[Agent, Agent]) -> None:
    one, other = pair
    texts = [bytes([number % 256]) * (1 + number * 7 % 1024) for number in range(300)]

    def talk(mine: Agent, peer: str) -> list[bytes]:
        def say() -> None:
            for entry in texts:
                mine.send_message(peer, entry)

        sender = threading.Thread(target=say)
        sender.start()
        found = [mine.receive_message(peer, PATIENCE_SECONDS) for _ in texts]
        sender.join(PATIENCE_SECONDS)
        return found

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(talk, one, other.name), pool.submit(talk, other, one.name)]
        assert [entry.result(PATIENCE_SECONDS) == texts for entry in both] == [True, True]


def test_messages_of_channels_do_not_mix(make: Make) -> None:
    one, other = joined(make, channels={"a": "mlt", "b": "tcp"})
    for name in ("default", "a", "b"):
        one.channel(name).send_message(other.name, name.encode())
    for name in ("b", "default", "a"):
        assert other.channel(name).receive_message(one.name, PATIENCE_SECONDS) == name.encode()


@pytest.mark.parametrize("pair", ["mlt", "tcp"], indirect=True)
def test_who_sends_more_than_is_read_waits(pair: tuple[Agent, Agent]) -> None:
    one, other = pair
    sent = 0

    def send_all() -> None:
        nonlocal sent
        for sent in range(1000):
            one.send_message(other.name, sent.to_bytes(2, "big") * 512, timeout_seconds=0.3)

    with pytest.raises(DeadlineExceededError, match="reads no messages"):
        send_all()
    with in_background(one.send_message, other.name, b"last", PATIENCE_SECONDS) as waited:
        for number in range(sent):
            assert other.receive_message(one.name, PATIENCE_SECONDS) == number.to_bytes(2, "big") * 512
        waited()
    assert other.receive_message(one.name, PATIENCE_SECONDS) == b"last"


@pytest.mark.parametrize("transport", ["mlt", "tcp"])
def test_what_has_arrived_can_be_read_when_the_peer_has_left(make: Make, transport: str) -> None:
    one, other = joined(make, transport=transport)
    texts = [b"first", b"second", b"third"]
    for text in texts:
        one.send_message(other.name, text)
    assert other.receive_message(one.name, PATIENCE_SECONDS) == texts[0]
    one.close()
    eventually(lambda: other.peers == ())
    assert other.receive_message(one.name, PATIENCE_SECONDS) == texts[1]
    again = make(one.name, transport=transport)
    connect(again, other)
    with pytest.raises(DeadlineExceededError):
        other.receive_message(one.name, 0.05)  # nothing of another connection
    again.send_message(other.name, b"anew")
    again.close()
    eventually(lambda: other.peers == ())
    assert other.receive_message(one.name, PATIENCE_SECONDS) == b"anew"
    for _ in range(2):
        with pytest.raises(PeerUnreachableError, match=r"peer worker: .*has left"):
            other.receive_message(one.name, PATIENCE_SECONDS)


@pytest.mark.parametrize("transport", ["mlt", "tcp"])
def test_who_waits_for_a_message_hears_that_none_comes(make: Make, transport: str) -> None:
    one, other = joined(make, transport=transport)
    with pytest.raises(DeadlineExceededError, match=r"peer server: has sent no message within 0\.05 s"):
        one.receive_message(other.name, 0.05)
    with in_background(one.receive_message, other.name, PATIENCE_SECONDS) as waited:
        time.sleep(0.05)
        other.close()
        with pytest.raises(PeerUnreachableError, match=r"peer server: .*has left"):
            waited()
    for call in (one.send_message, one.default.send_message):
        with pytest.raises(PeerUnreachableError, match="peer server: is not connected"):
            call(other.name, b"x")


@pytest.mark.parametrize("message", [b"", bytes(1025)])
def test_messages_have_a_size(pair: tuple[Agent, Agent], message: bytes) -> None:
    with pytest.raises(UserInputError, match="1 to 1024"):
        pair[0].send_message(pair[1].name, message)


# What a peer may say of channels


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            {"type": "channel", "name": "default", "offer": {"transport": "mlt", "parameters": {}}},
            "channel twice",
        ),
        (
            {"type": "channel", "name": "no name", "offer": {"transport": "mlt", "parameters": {}}},
            "channel.name",
        ),
        (
            {"type": "transport", "channel": "default", "body": {}},
            "speaks of datagrams on the control channel",
        ),
        (hello("stranger"), "says HELLO twice"),
        ({"type": "goodbye", "reason": "\x1b[31mbye"}, r"has left: \?\[31mbye"),
    ],
)
def test_frames_that_end_a_connection(make: Make, frame: dict[str, object], message: str) -> None:
    agent = make("one")
    with acquainted(agent, "stranger") as peer:
        never = agent.post_receive("stranger", values(9), tensor=1)
        peer.say(frame)
        with pytest.raises(AgentError, match=message):
            never.wait(PATIENCE_SECONDS)
        assert peer.ends()
    eventually(lambda: agent.peers == ())


def test_frames_that_are_skipped(make: Make) -> None:
    agent = make("one")
    with acquainted(agent, "stranger") as peer:
        peer.say({"type": "of a later version", "anything": [1, 2]})
        peer.say({"type": "transport", "channel": "unknown", "body": {"x": 1}, "new": True})
        peer.say(
            {"type": "channel", "name": "unknown", "offer": {"transport": "?", "parameters": {}, "y": 1}}
        )
        agent.channel("known")
        heard = peer.hear()
        assert heard is not None
        assert (heard["type"], heard["name"]) == ("channel", "known")
        peer.say(
            {"type": "channel", "name": "known", "offer": {"transport": "mlt", "parameters": offer(token=9)}}
        )
        agent.channel("known").wait_for_peers(["stranger"], PATIENCE_SECONDS)


def test_a_peer_declares_no_more_channels_than_there_may_be(make: Make) -> None:
    agent = make("one")
    with acquainted(agent, "stranger") as peer:
        for number in range(64):
            peer.say(
                {"type": "channel", "name": f"x{number}", "offer": {"transport": "mlt", "parameters": {}}}
            )
        answer = peer.hear()
        assert answer is not None
        assert (answer["type"], answer["code"]) == ("goodbye", "protocol")
        assert peer.ends()


@pytest.mark.parametrize(
    "changes",
    [
        {"paths": []},
        {"paths": [{"address": "nowhere", "port": 9}]},
        {"paths": [{"address": "fe80::1%lo", "port": 9}]},
        {"paths": [{"address": "::1", "port": 9}]},
        {"paths": [{"address": "127.0.0.1", "port": 0}]},
        {"paths": [{"address": "127.0.0.1", "port": 9}] * 65},
        {"token": -1},
        {"token": 1 << 64},
        {"datagram_bytes": 1},
        {"window_bytes": "much"},
        {"key": "secret"},
        {"salt": None},
    ],
)
def test_offers_that_cannot_be_are_refused_and_forgotten(make: Make, changes: dict[str, object]) -> None:
    """Whoever made them may come again with better ones."""
    agent = make("one")
    channels = {"default": {"transport": "mlt", "parameters": offer(**changes)}}
    with acquainted_or_refused(agent, channels) as answer:
        assert (answer["type"], answer["code"]) == ("goodbye", "refused")
        assert "secret" not in answer["reason"]
    with acquainted(agent, "stranger"):
        pass
