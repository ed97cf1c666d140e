"""Both ends of a stream in memory: any cut of the bytes, and whoever should not get in."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.hostagent.control.streams import (
    ControlStream,
    PlainStream,
    TlsStream,
)
from mltswitch.hostagent.control.tls import TlsIdentity
from mltswitch.hostagent.errors import PeerUnreachableError

HEARD = HealthCheck.function_scoped_fixture


def connecting(identity: TlsIdentity, peer: str = "server") -> TlsStream:
    return TlsStream(identity, expected_peer=peer, address="10.0.0.2:1")


def accepting(identity: TlsIdentity) -> TlsStream:
    return TlsStream(identity, expected_peer=None, address="10.0.0.1:2")


def carry(source: ControlStream, sink: ControlStream, sizes: list[int]) -> bytes:
    """What waits in one end, in pieces of these sizes (repeated), into the other; returns what it hears."""
    data = source.to_send()
    heard = b""
    place = turn = 0
    while place < len(data):
        size = sizes[turn % len(sizes)] if sizes else len(data)
        heard += sink.received(data[place : place + size])
        place, turn = place + size, turn + 1
    return heard


def shake(near: ControlStream, far: ControlStream, sizes: list[int] | None = None) -> tuple[bytes, bytes]:
    """Until neither has anything to say; returns what each has heard."""
    heard_near, heard_far = b"", b""
    while near.has_output or far.has_output:
        heard_far += carry(near, far, sizes or [])
        heard_near += carry(far, near, sizes or [])
    return heard_near, heard_far


@settings(max_examples=25, suppress_health_check=[HEARD])
@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=6),
    messages=st.lists(st.tuples(st.booleans(), st.binary(max_size=200), st.integers(1, 300)), max_size=6),
)
@pytest.mark.parametrize("kind", ["tls", "plain"])
def test_any_cut_of_the_bytes(
    client: TlsIdentity,
    server: TlsIdentity,
    kind: str,
    sizes: list[int],
    messages: list[tuple[bool, bytes, int]],
) -> None:
    near: ControlStream = connecting(client)
    far: ControlStream = accepting(server)
    if kind == "plain":
        near, far = (
            PlainStream(claimed_peer="server", address="a"),
            PlainStream(claimed_peer=None, address="b"),
        )
        near.send(b"")
    said = {True: b"", False: b""}
    heard = [b"", b""]
    for is_near, text, times in messages:
        message = b"\0" + text * times  # in plain text, nothing of ours begins as TLS does
        (near if is_near else far).send(message)
        said[is_near] += message
        for number, more in enumerate(shake(near, far, sizes)):
            heard[number] += more
    for number, more in enumerate(shake(near, far, sizes)):
        heard[number] += more
    assert near.is_open
    if kind == "tls" or said[True]:
        assert far.is_open
        assert heard == [said[False], said[True]]
        assert near.waiting_bytes == far.waiting_bytes == 0
    else:
        assert heard == [b"", b""]
        assert far.waiting_bytes == len(said[False])
    assert near.ended is None
    assert far.ended is None


def test_the_client_says_nothing_before_it_is_accepted(client: TlsIdentity, server: TlsIdentity) -> None:
    near, far = connecting(client), accepting(server)
    near.send(b"hello")
    far.received(near.to_send())
    near.received(far.to_send())
    assert near.is_authenticated
    assert not near.is_open
    finished = near.to_send()
    assert near.waiting_bytes == len(b"hello")
    assert far.received(finished) == b""
    assert far.is_open
    near.received(far.to_send())
    assert near.is_open
    assert far.received(near.to_send()) == b"hello"


def test_a_farewell_and_an_end_without_one_are_told_apart(client: TlsIdentity, server: TlsIdentity) -> None:
    for is_polite, line in ((True, "has closed the control channel"), (False, "without a word")):
        near, far = connecting(client), accepting(server)
        shake(near, far)
        if is_polite:
            near.close()
            assert far.received(near.to_send()) == b""
        far.received_end()
        assert isinstance(far.ended, PeerUnreachableError)
        assert line in str(far.ended)
        assert far.received(b"more") == b""


def test_an_end_while_the_channel_is_set_up(client: TlsIdentity) -> None:
    near = connecting(client)
    near.received_end()
    assert isinstance(near.ended, PeerUnreachableError)
    assert "while the control channel was set up" in str(near.ended)


def test_no_session_is_resumed(client: TlsIdentity, server: TlsIdentity) -> None:
    near, far = connecting(client), accepting(server)
    shake(near, far)
    assert client.client.session_stats()["hits"] == 0
    assert server.server.num_tickets == 0
    assert not near._tls.session_reused
    assert near._tls.version() == far._tls.version() == "TLSv1.3"
