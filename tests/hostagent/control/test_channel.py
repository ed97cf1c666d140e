"""Two channels over loopback, real kernel and real TLS, both ends pumped in one thread."""

import os
import selectors
import socket
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.channel import ChannelSettings, ControlChannel
from mltswitch.hostagent.control.security import Plaintext, Security
from mltswitch.hostagent.control.sockets import (
    KEEPALIVE_IDLE_SECONDS,
    RETRANSMISSION_MICROSECONDS,
    USER_TIMEOUT_MILLISECONDS,
    Endpoint,
)
from mltswitch.hostagent.control.tls import TlsIdentity
from mltswitch.hostagent.errors import PeerUnreachableError
from tests.hostagent.background import eventually
from tests.hostagent.control.peers import (
    PATIENCE_SECONDS,
    SECOND_NS,
    SETTINGS,
    accepted,
    all_ended,
    all_open,
    connected,
    drive,
    listening,
    opened_pair,
    raw_connection,
    wait,
)

PLAIN = Plaintext()
TCP_RTO_MIN_US, TCP_DELACK_MAX_US = 45, 46
"""linux/tcp.h."""
MEBIBYTE = 1 << 20
FIN, SYN, ACK = 1, 2, 16
SO_RCVBUFFORCE = 33
"""asm-generic/socket.h; Python has no name for it."""


@pytest.fixture(params=["tls", "plain"])
def securities(
    request: pytest.FixtureRequest, client: TlsIdentity, server: TlsIdentity
) -> tuple[Security, Security]:
    return (client, server) if request.param == "tls" else (PLAIN, PLAIN)


def test_both_ends_know_each_other_by_their_certificates(client: TlsIdentity, server: TlsIdentity) -> None:
    ends = opened_pair(client, server)
    assert [end.peer for end in ends] == ["server", "client"]
    assert all(end.is_authenticated and end.wants_read and not end.wants_write for end in ends)
    assert ends[1].remote == ends[0].local()


def test_plain_text_proves_nothing() -> None:
    ends = opened_pair(PLAIN, PLAIN)
    assert [end.peer for end in ends] == ["server", ""]
    assert not any(end.is_authenticated for end in ends)


def test_what_the_peers_kernel_has_has_arrived(securities: tuple[Security, Security]) -> None:
    near, far = opened_pair(*securities)
    near.send(b"word")
    assert not near.has_arrived  # nobody has handed it to the kernel
    near.flush()
    eventually(lambda: near.has_arrived)  # although the peer has not read it
    far.close()
    near.close()
    assert not near.has_arrived


def test_no_end_of_a_dialogue_keeps_acknowledgements(securities: tuple[Security, Security]) -> None:
    near, far = opened_pair(*securities)
    for _ in range(3):
        for speaker, listener in ((near, far), (far, near)):
            speaker.send(b"a word")
            speaker.flush()
            wait(listener)
            assert listener.step(0) == b"a word"
    for end in (near, far):
        with socket.socket(fileno=os.dup(end.fileno())) as looked_at:
            assert looked_at.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
    for end in (near, far):
        end.close()


def test_what_the_peers_kernel_has_no_room_for_has_not_arrived() -> None:
    near, far = opened_pair(PLAIN, PLAIN)
    while near.waiting_bytes == 0:  # the kernels of both ends are full
        near.send(bytes(MEBIBYTE))
        near.flush()
    assert not near.has_arrived
    far.close()
    near.close()


def test_what_is_said_before_the_channel_is_open_arrives(securities: tuple[Security, Security]) -> None:
    listener = listening(securities[1])
    near, far = connected(listener, securities[0])
    near.send(b"hello ")
    far.send(b"welcome")
    near.send(b"server")
    assert near.waiting_bytes >= len(b"hello server")
    told = drive((near, far), lambda ends: ends[0].said == b"welcome" and ends[1].said == b"hello server")
    assert [end.error for end in told] == [None, None]
    assert near.waiting_bytes == far.waiting_bytes == 0


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.tuples(st.booleans(), st.integers(0, 70_000), st.booleans()), max_size=12))
def test_whatever_is_said_arrives_once_and_in_order(
    securities: tuple[Security, Security], pieces: list[tuple[bool, int, bool]]
) -> None:
    ends = opened_pair(*securities)
    said = [bytearray(), bytearray()]
    for number, (from_client, size, is_flushed) in enumerate(pieces):
        piece = bytes([number]) * size
        end = ends[0] if from_client else ends[1]
        end.send(piece)
        said[0 if from_client else 1] += piece
        if is_flushed:
            end.flush()
    told = drive(ends, lambda told: [told[1].said, told[0].said] == said)
    assert all_open(told)
    for end in ends:
        end.close()


def test_a_large_message_needs_many_turns_and_all_of_them_come(
    securities: tuple[Security, Security],
) -> None:
    near, far = opened_pair(*securities)
    with socket.fromfd(near.fileno(), socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    message = bytes(range(256)) * (2 * MEBIBYTE // 256)
    near.send(message)
    near.flush()
    assert near.waiting_bytes > 0
    assert near.wants_write
    told = drive((near, far), lambda ends: len(ends[1].said) == len(message))
    assert told[1].said == message


def test_farewell(securities: tuple[Security, Security]) -> None:
    near, far = opened_pair(*securities)
    near.send(b"last words")
    near.close()
    near.close()
    assert near.fileno() == -1
    assert not near.wants_read
    assert not near.wants_write
    (told,) = drive((far,), all_ended)
    assert told.said == b"last words"
    assert "peer " in str(told.error)
    assert "closed the control channel" in str(told.error)
    assert far.has_ended
    for call in (lambda: far.step(0), lambda: far.send(b""), lambda: far.timer(0)):
        with pytest.raises(PeerUnreachableError, match="closed the control channel"):
            call()


def test_last_words_and_the_end_in_one_reading(securities: tuple[Security, Security]) -> None:
    """The words come first, and the timer is due at once, although no socket may ever be ready again."""
    near, far = opened_pair(*securities)
    near.send(b"x" * 1000)
    near.close()
    heard = b""
    while heard != b"x" * 1000:
        wait(far)
        heard += far.step(7)
    if far.next_timer_ns() == 7:
        with pytest.raises(PeerUnreachableError):
            far.timer(7)
    else:
        with pytest.raises(PeerUnreachableError):
            far.step(8)


def test_a_closed_channel_of_a_selector_can_be_forgotten(client: TlsIdentity, server: TlsIdentity) -> None:
    near, far = opened_pair(client, server)
    with selectors.DefaultSelector() as selector:
        selector.register(far, selectors.EVENT_READ)
        near.close()
        ((key, _),) = selector.select(20)
        assert key.fileobj is far
        with pytest.raises(PeerUnreachableError):
            far.step(0)
        selector.unregister(far)
        far.close()


def test_a_slow_reader_ends_the_channel_at_the_cap(securities: tuple[Security, Security]) -> None:
    limited = ChannelSettings(dscp=40, outgoing_limit_bytes=MEBIBYTE)
    near, far = opened_pair(*securities, limited)
    piece = bytes(64 * 1024)
    sent = 0

    def talk() -> None:
        nonlocal sent
        for _ in range(1000):
            near.send(piece)
            near.flush()
            sent += len(piece)
            assert near.waiting_bytes <= MEBIBYTE + MEBIBYTE // 16

    line = r"peer server: does not read its control channel: \d+ bytes"
    with pytest.raises(PeerUnreachableError, match=line):
        talk()
    assert sent >= MEBIBYTE
    assert near.has_ended
    assert near.next_timer_ns() is None
    near.close()
    (told,) = drive((far,), all_ended)
    assert isinstance(told.error, PeerUnreachableError)
    assert told.said == bytes(len(told.said))


def test_the_cap_holds_before_the_channel_is_open(securities: tuple[Security, Security]) -> None:
    listener = listening(securities[1])
    limited = ChannelSettings(dscp=40, outgoing_limit_bytes=10_000)
    near = ControlChannel.connect(listener.local, "server", securities[0], limited, 0)
    near.send(bytes(9_000))
    with pytest.raises(PeerUnreachableError, match="does not read"):
        near.send(bytes(1_001))
    near.close()


def test_nobody_listens() -> None:
    listener = listening(PLAIN)
    remote = listener.local
    listener.close()
    channel = ControlChannel.connect(remote, "server", PLAIN, SETTINGS, 0)
    wait(channel, writes=True)
    with pytest.raises(PeerUnreachableError, match=f"peer server: nothing listens at {remote}: is its agent"):
        channel.step(0)


def test_no_route(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PeerUnreachableError, match=r"peer server: cannot be reached at 255\.255\.255\.255:1"):
        ControlChannel.connect(Endpoint("255.255.255.255", 1), "server", Plaintext(True), SETTINGS, 0)


def test_a_handshake_without_an_answer_ends_in_time(client: TlsIdentity) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        remote = Endpoint(*silent.getsockname())
        channel = ControlChannel.connect(remote, "server", client, SETTINGS, 1000)
        due = 1000 + SETTINGS.handshake_limit_ns
        assert channel.next_timer_ns() == due
        channel.timer(due - 1)
        wait(channel, writes=True)
        assert channel.step(due - 1) == b""
        assert channel.is_setting_up
        with pytest.raises(
            PeerUnreachableError,
            match=r"peer server: takes connections at .* and says nothing",
        ):
            channel.timer(due)
        assert not channel.is_setting_up
        channel.close()


def test_a_peer_that_never_answers_the_first_packet() -> None:
    """A full queue of connections: the kernel drops SYNs."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        remote = Endpoint(*full.getsockname())
        waiting = [ControlChannel.connect(remote, "server", PLAIN, SETTINGS, 0) for _ in range(4)]
        last = waiting[-1]
        last.step(1)
        with pytest.raises(PeerUnreachableError, match=f"does not answer at {remote}"):
            last.timer(SETTINGS.handshake_limit_ns)
        for channel in waiting:
            channel.close()


def test_silence_ends_an_open_channel(securities: tuple[Security, Security]) -> None:
    near, far = opened_pair(*securities)
    idle = SETTINGS.idle_limit_ns
    assert idle is not None
    assert near.next_timer_ns() == idle
    far.send(b"still here")
    far.flush()
    wait(near)
    assert near.step(5 * SECOND_NS) == b"still here"
    assert near.next_timer_ns() == 5 * SECOND_NS + idle
    near.timer(5 * SECOND_NS + idle - 1)
    with pytest.raises(PeerUnreachableError, match=r"peer server: has been silent for 30\.0 s"):
        near.timer(5 * SECOND_NS + idle)


def test_no_idle_limit_is_no_timer(securities: tuple[Security, Security]) -> None:
    near, _ = opened_pair(*securities, ChannelSettings(dscp=40, idle_limit_ns=None))
    assert near.next_timer_ns() is None
    near.timer(10**18)


def test_what_was_said_before_a_reset_is_heard() -> None:
    listener = listening(PLAIN)
    with raw_connection(listener) as stranger:
        far = accepted(listener)
        stranger.send(b"last words")
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.send(b"anybody?")
    far.flush()
    (told,) = drive((far,), all_ended)
    assert told.said == b"last words"
    assert isinstance(told.error, PeerUnreachableError)


def test_sending_to_who_has_gone_is_no_error_before_his_last_words_are_heard() -> None:
    listener = listening(PLAIN)
    with raw_connection(listener) as stranger:
        far = accepted(listener)
        stranger.send(b"a")
        wait(far)
        assert far.step(0) == b"a"
        stranger.send(b"last words")
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for _ in range(3):
        far.send(b"anybody?")
        far.flush()
    assert far.waiting_bytes == 0
    (told,) = drive((far,), all_ended)
    assert told.said == b"last words"
    assert isinstance(told.error, PeerUnreachableError)


def test_plain_text_does_not_leave_the_machine_unless_told_so() -> None:
    with pytest.raises(UserInputError, match=r"10\.0\.0\.1:5: plain text does not leave.*--plaintext"):
        ControlChannel.connect(Endpoint("10.0.0.1", 5), "server", PLAIN, SETTINGS, 0)
    with pytest.raises(UserInputError, match="plain text"):
        ControlChannel.connect(Endpoint("::ffff:10.0.0.1", 5), "server", PLAIN, SETTINGS, 0)


@pytest.mark.parametrize(
    ("endpoint", "line"),
    [
        (Endpoint("host1", 5), "host1: is not an IP address"),
        (Endpoint("127.0.0.1", 65536), "port 65536"),
        (Endpoint("127.0.0.1", -1), "port -1"),
        (Endpoint("::1%nosuchif", 5), "is no address on this machine's networks"),
    ],
)
def test_endpoints_that_are_none(endpoint: Endpoint, line: str) -> None:
    with pytest.raises(UserInputError, match=line):
        ControlChannel.connect(endpoint, "server", PLAIN, SETTINGS, 0)


@pytest.mark.parametrize(
    "name", ["", "10.0.0.1", "a b", "-x", "host..1", "*.example", "host1.", "x" * 64, "é"]
)
def test_peers_without_a_usable_name(name: str, client: TlsIdentity) -> None:
    with pytest.raises(UserInputError, match="peer"):
        ControlChannel.connect(Endpoint("127.0.0.1", 5), name, client, SETTINGS, 0)


def test_a_source_address(client: TlsIdentity, server: TlsIdentity) -> None:
    listener = listening(server)
    channel = ControlChannel.connect(listener.local, "server", client, SETTINGS, 0, source="127.0.0.2")
    far = accepted(listener)
    drive((channel, far), all_open)
    assert far.remote.address == channel.local().address == "127.0.0.2"
    for source, line in (("203.0.113.7", "cannot be sent from"), ("::1", "different versions of IP")):
        with pytest.raises(UserInputError, match=line):
            ControlChannel.connect(listener.local, "server", client, SETTINGS, 0, source=source)


@pytest.mark.parametrize("dscp", [0, 40, 63])
def test_socket_options(dscp: int) -> None:
    chosen = ChannelSettings(dscp=dscp)
    listener = listening(PLAIN, chosen)
    near = ControlChannel.connect(listener.local, "server", PLAIN, chosen, 0)
    far = accepted(listener)
    for end in (near, far, listener):
        assert not os.get_blocking(end.fileno())
        assert not os.get_inheritable(end.fileno())
        with socket.fromfd(end.fileno(), socket.AF_INET, socket.SOCK_STREAM) as connection:
            assert connection.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == dscp << 2
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_IDLE_SECONDS
            timeout = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert timeout == USER_TIMEOUT_MILLISECONDS


def test_a_lost_word_is_repeated_soon_where_the_kernel_lets_us() -> None:
    """Kernels round up to their clock's next tick; before 6.15 they have no such option."""
    with socket.socket() as plain:
        try:
            usual = plain.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MIN_US)
        except OSError:
            pytest.skip("this kernel has no TCP_RTO_MIN_US")
    listener = listening(PLAIN, SETTINGS)
    near = ControlChannel.connect(listener.local, "server", PLAIN, SETTINGS, 0)
    far = accepted(listener)
    for end in (near, far):
        with socket.fromfd(end.fileno(), socket.AF_INET, socket.SOCK_STREAM) as connection:
            for option in (TCP_RTO_MIN_US, TCP_DELACK_MAX_US):
                found = connection.getsockopt(socket.IPPROTO_TCP, option)
                assert RETRANSMISSION_MICROSECONDS <= found < RETRANSMISSION_MICROSECONDS + 10_000 < usual


def test_ipv6(client: TlsIdentity, server: TlsIdentity) -> None:
    from mltswitch.hostagent.control.listener import ControlListener

    try:
        listener = ControlListener(Endpoint("::1", 0), server, SETTINGS)
    except UserInputError:
        pytest.skip("no IPv6 on loopback here")
    near, far = connected(listener, client)
    told = drive((near, far), all_open)
    assert str(far.remote).startswith("[::1]:")
    for end in (near, far, listener):
        with socket.fromfd(end.fileno(), socket.AF_INET6, socket.SOCK_STREAM) as connection:
            assert connection.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS) == 40 << 2
    near.close()
    told = drive((far,), all_ended)
    assert "closed" in str(told[0].error)


@pytest.mark.root
def test_every_packet_carries_the_class_from_the_first_on(client: TlsIdentity, server: TlsIdentity) -> None:
    """SYN, SYN-ACK and all that follow, as seen on loopback."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as capture:
        capture.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 * MEBIBYTE)
        capture.bind(("lo", 0x0800))
        capture.settimeout(PATIENCE_SECONDS)
        near, far = opened_pair(client, server)
        port = near.remote.port
        near.close()
        drive((far,), all_ended)
        dscps: dict[int, set[int]] = {}
        ended: set[tuple[int, int]] = set()
        while len(ended) < 2:
            packet, *_ = capture.recvfrom(65536)
            tcp = packet[(packet[0] & 15) * 4 :]
            ports = (int.from_bytes(tcp[:2]), int.from_bytes(tcp[2:4]))
            if packet[9] == socket.IPPROTO_TCP and port in ports:
                dscps.setdefault(tcp[13] & (SYN | ACK), set()).add(packet[1] >> 2)
                ended |= {ports} if tcp[13] & FIN else set()
        assert dscps == {SYN: {40}, SYN | ACK: {40}, ACK: {40}}
