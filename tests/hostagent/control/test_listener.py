"""What strangers can make a listener hold, and for how long."""

import errno
import select
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.configuration import AgentDocument, configured
from mltswitch.hostagent.control.channel import ControlChannel
from mltswitch.hostagent.control.listener import PAUSE_NS, ControlListener, ListenerLimits
from mltswitch.hostagent.control.security import Plaintext, Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.control.tls import TlsIdentity
from mltswitch.hostagent.errors import PeerRefusedError, PeerUnreachableError
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.transport.hello import LocalEnd, PathAddress, Secrets, encode_hello
from mltswitch.hostagent.transport.messages import Hello, encode_message
from tests.hostagent.control.peers import (
    LOOPBACK,
    PATIENCE_SECONDS,
    SETTINGS,
    accepted,
    all_ended,
    all_open,
    connected,
    drive,
    listening,
    raw_connection,
    wait,
)

PLAIN = Plaintext()


def limited(security: Security, **limits: int) -> ControlListener:
    return ControlListener(LOOPBACK, security, SETTINGS, ListenerLimits(**limits))


@pytest.mark.parametrize("security", ["tls", "plain"])
def test_a_stranger_who_says_nothing_is_dropped_in_time(security: str, server: TlsIdentity) -> None:
    listener = listening(server if security == "tls" else PLAIN)
    with raw_connection(listener) as stranger:
        channel = accepted(listener, now_ns=500)
        assert channel.peer == ""
        assert channel.is_setting_up
        due = 500 + SETTINGS.handshake_limit_ns
        assert channel.next_timer_ns() == due
        channel.timer(due - 1)
        host, port = stranger.getsockname()
        with pytest.raises(PeerUnreachableError, match=f"peer {host}:{port}: does not finish setting up"):
            channel.timer(due)
        channel.close()
        assert stranger.recv(10) == b""


def test_half_a_handshake_is_dropped_in_time_however_slowly_it_goes_on(server: TlsIdentity) -> None:
    listener = listening(server)
    with raw_connection(listener) as stranger:
        channel = accepted(listener)
        for now_ns, byte in enumerate(b"\x16\x03\x01\x02"):
            stranger.send(bytes([byte]))
            wait(channel)
            assert channel.step(now_ns) == b""
        assert channel.next_timer_ns() == SETTINGS.handshake_limit_ns
        with pytest.raises(PeerUnreachableError):
            channel.timer(SETTINGS.handshake_limit_ns)
        channel.close()


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000, b"SSH-2.0-OpenSSH_9.6\r\n"])
def test_garbage_instead_of_tls_is_answered_by_nothing_and_the_end(words: bytes, server: TlsIdentity) -> None:
    listener = listening(server)
    with raw_connection(listener) as stranger:
        channel = accepted(listener)
        stranger.sendall(words)
        (told,) = drive((channel,), all_ended)
        assert isinstance(told.error, PeerRefusedError)
        assert stranger.recv(10) == b""


def test_a_flood_fills_the_table_and_no_more(client: TlsIdentity, server: TlsIdentity) -> None:
    listener = limited(server, setting_up=8, setting_up_per_address=8)
    strangers = [raw_connection(listener) for _ in range(20)]
    held: list[ControlChannel] = []
    while listener.wants_read:
        wait(listener)
        held += listener.accept(0)
    assert len(held) == 8
    assert listener.accept(0) == []
    for channel in held[:3]:
        with pytest.raises(PeerUnreachableError):
            channel.timer(SETTINGS.handshake_limit_ns)
        channel.close()
    assert listener.wants_read
    assert len(listener.accept(1)) == 3
    assert not listener.wants_read
    for stranger in strangers:
        stranger.close()


def test_a_flood_from_one_address_leaves_room_for_others(client: TlsIdentity, server: TlsIdentity) -> None:
    listener = limited(server, setting_up=8, setting_up_per_address=3)
    strangers = [raw_connection(listener) for _ in range(20)]
    held: list[ControlChannel] = []
    while listener.turned_away < 17:
        wait(listener)
        held += listener.accept(0)
    assert len(held) == 3
    assert listener.wants_read
    near = ControlChannel.connect(listener.local, "server", client, SETTINGS, 0, source="127.0.0.2")
    far = accepted(listener)
    drive((near, far), all_open)
    assert sum(_is_closed(stranger) for stranger in strangers) == 17
    for stranger in strangers:
        stranger.close()


def _is_closed(stranger: socket.socket) -> bool:
    stranger.setblocking(False)
    try:
        return stranger.recv(1) == b""
    except ConnectionResetError:
        return True
    except BlockingIOError:
        return False


def test_open_channels_count_against_the_number_of_all(client: TlsIdentity, server: TlsIdentity) -> None:
    listener = limited(server, channels=2, setting_up=2)
    pairs = []
    for _ in range(2):
        assert listener.wants_read
        pairs.append(connected(listener, client))
        drive(pairs[-1], all_open)
    assert not listener.wants_read
    pairs[0][1].close()
    assert listener.wants_read
    connected(listener, client)


@pytest.mark.parametrize("security", ["tls", "plain"])
def test_greeted_channels_are_no_strangers(security: str, client: TlsIdentity, server: TlsIdentity) -> None:
    here, there = (client, server) if security == "tls" else (PLAIN, PLAIN)
    listener = limited(there, setting_up=1, setting_up_per_address=1)
    for _ in range(3):
        pair = _opened(listener, here)
        assert pair[1].is_strange
        assert not listener.wants_read
        pair[1].greeted()
        assert not pair[1].is_strange
        assert listener.wants_read
    assert listener.turned_away == 0


@pytest.mark.parametrize("security", ["tls", "plain"])
def test_who_opens_a_channel_and_says_no_hello_is_a_stranger_still(
    security: str, client: TlsIdentity, server: TlsIdentity
) -> None:
    """One key opens as many channels as it likes, and in plain text one byte does."""
    here, there = (client, server) if security == "tls" else (PLAIN, PLAIN)
    listener = limited(there, setting_up=8, setting_up_per_address=3)
    held = [_opened(listener, here) for _ in range(3)]
    assert all(channel.is_open for pair in held for channel in pair)
    with raw_connection(listener) as fourth:
        wait(listener)
        assert listener.accept(0) == []
        assert listener.turned_away == 1
        assert _is_closed(fourth)
    held[0][1].close()
    held.append(_opened(listener, here))
    held[1][1].greeted()
    held.append(_opened(listener, here))
    assert listener.turned_away == 1
    for pair in held:
        for channel in pair:
            channel.close()


def test_strangers_with_open_channels_fill_the_table_and_no_more() -> None:
    listener = limited(PLAIN, setting_up=2, setting_up_per_address=2)
    held = [_opened(listener, PLAIN) for _ in range(2)]
    assert not listener.wants_read
    assert listener.accept(0) == []
    with pytest.raises(PeerUnreachableError):
        held[0][1].timer(SETTINGS.idle_limit_ns or 0)
    assert listener.wants_read


def test_an_agent_greets_as_many_peers_of_one_address_as_come() -> None:
    """And nobody who says no HELLO is one of them, though one byte opens a channel."""
    most = ListenerLimits().setting_up_per_address
    names = [f"peer{number}" for number in range(most + 8)]
    with ExitStack() as opened:
        agent = opened.enter_context(Agent(_agent_settings()))
        place = agent.listening_at
        assert place is not None
        for number, name in enumerate(names):
            peer = opened.enter_context(socket.create_connection((place.address, place.port)))
            peer.sendall(encode_message(Hello(_hello(name, number))))
            agent.wait_for_peers([name], PATIENCE_SECONDS)
        strangers = [
            opened.enter_context(socket.create_connection((place.address, place.port)))
            for _ in range(most + 1)
        ]
        for stranger in strangers:
            with suppress(OSError):  # the last may be gone
                stranger.send(b"\0")
        ready, _, _ = select.select([strangers[-1]], [], [], PATIENCE_SECONDS)
        assert ready
        assert _is_closed(strangers[-1])
        agent.wait_for_peers(names, 0.1)


def _agent_settings() -> AgentSettings:
    document = AgentDocument(name="all", addresses=("127.0.0.1",), listen="127.0.0.1:0", data_port=0)
    return configured(document, folder=Path(), where="test").settings


def _hello(name: str, token: int) -> bytes:
    end = LocalEnd(name, (PathAddress(0, "127.0.0.1", 9),), 1 << 20, 1472, False, 40)
    return encode_hello(end, Secrets(token, bytes(32)))


def _opened(listener: ControlListener, security: Security) -> tuple[ControlChannel, ControlChannel]:
    pair = connected(listener, security)
    pair[0].send(b"!")  # plain text opens by it
    drive(pair, all_open)
    return pair


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS])
def test_a_machine_without_room_pauses(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = listening(PLAIN)
    with raw_connection(listener):
        wait(listener)
        with monkeypatch.context() as patched:
            patched.setattr(listener, "_socket", Refusing(code))
            assert listener.accept(1000) == []
        assert not listener.wants_read
        assert listener.next_timer_ns() == 1000 + PAUSE_NS
        assert listener.accept(1000) == []
        listener.timer(1000 + PAUSE_NS - 1)
        assert not listener.wants_read
        listener.timer(1000 + PAUSE_NS)
        assert listener.next_timer_ns() is None
        assert len(listener.accept(1000 + PAUSE_NS)) == 1


def test_a_newcomer_that_is_gone_is_no_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = listening(PLAIN)
    with monkeypatch.context() as patched:
        patched.setattr(listener, "_socket", Refusing(errno.ECONNABORTED))
        assert listener.accept(0) == []
    assert listener.wants_read
    listener.close()
    assert listener.fileno() == -1
    with pytest.raises(MachineError, match="cannot accept connections"):
        listener.accept(0)


class Refusing:
    """A socket whose accept fails."""

    def __init__(self, code: int) -> None:
        self._code = code

    def accept(self) -> None:
        raise OSError(self._code, "no")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:0.0.0.0"])  # noqa: S104  (refused)
def test_it_listens_on_given_addresses_alone(address: str, server: TlsIdentity) -> None:
    with pytest.raises(UserInputError, match="means every network of this machine"):
        ControlListener(Endpoint(address, 0), server, SETTINGS)


def test_an_address_of_another_machine(server: TlsIdentity) -> None:
    with pytest.raises(UserInputError, match=r"203\.0\.113\.7:0: is not an address of this machine"):
        ControlListener(Endpoint("203.0.113.7", 0), server, SETTINGS)


def test_a_port_that_is_taken(server: TlsIdentity) -> None:
    first = listening(server)
    with pytest.raises(MachineError, match=f"{first.local}: cannot listen there: Address already in use"):
        ControlListener(first.local, server, SETTINGS)


def test_plain_text_listens_on_loopback_unless_told_otherwise() -> None:
    with pytest.raises(UserInputError, match="plain text does not leave this machine"):
        ControlListener(Endpoint("203.0.113.7", 0), PLAIN, SETTINGS)
    with pytest.raises(UserInputError, match="is not an address of this machine"):
        ControlListener(Endpoint("203.0.113.7", 0), Plaintext(beyond_loopback=True), SETTINGS)
