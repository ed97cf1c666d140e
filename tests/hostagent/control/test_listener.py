"""What strangers can make a listener hold, and for how long."""

import errno
import socket

import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.control.channel import ControlChannel
from mltswitch.hostagent.control.listener import PAUSE_NS, ControlListener, ListenerLimits
from mltswitch.hostagent.control.security import Plaintext, Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.control.tls import TlsIdentity
from mltswitch.hostagent.errors import PeerRefusedError, PeerUnreachableError
from tests.hostagent.control.peers import (
    LOOPBACK,
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


def test_open_channels_are_not_being_set_up(client: TlsIdentity, server: TlsIdentity) -> None:
    listener = limited(server, setting_up=1, setting_up_per_address=1)
    for _ in range(3):
        drive(connected(listener, client), all_open)
    assert listener.wants_read
    assert listener.turned_away == 0


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
