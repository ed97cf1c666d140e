"""Data connections that have not said yet whose they are, and those that cannot be accepted."""

import errno
import socket
import time
from collections.abc import Iterator, Sized

import pytest

from mltswitch.errors import MachineError
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.errors import CancelledError
from mltswitch.hostagent.network.waiting import Waiter
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.tcp.connection import TcpConnection
from mltswitch.hostagent.tcp.flows import IncomingFlow
from mltswitch.hostagent.tcp.frames import encode_opening
from mltswitch.hostagent.tcp.port import TcpPort
from mltswitch.hostagent.tcp.strangers import PAUSE_NS, DataListeners, Stranger
from mltswitch.hostagent.transport.hello import KEY_BYTES, Secrets
from mltswitch.hostagent.transport.rate import RateSettings
from mltswitch.hostagent.transport.settings import Transport
from tests.hostagent.background import eventually
from tests.hostagent.tcp.ends import end

TURN_NS = 10_000_000
TOKEN = 7
ADDRESS = "127.0.0.1"


class Driven:
    """A port, and turns as an engine takes them."""

    def __init__(self) -> None:
        self.waiter = Waiter()
        self.port = TcpPort(
            AgentSettings(
                name="host-b",
                addresses=(ADDRESS,),
                security=Plaintext(),
                rate=RateSettings.for_network(1e9, queue_bytes=0),
                control_dscp=40,
                data_port=0,
                transport=Transport.TCP,
            ),
            self.waiter.leave,
        )
        self.connection = self.port.connection(Secrets(TOKEN, bytes(KEY_BYTES)), time.monotonic_ns())

    @property
    def strangers(self) -> list[Stranger]:
        return self.port._listeners.strangers

    def turn(self) -> None:
        self.waiter.watch(self.port.wanted(time.monotonic_ns()))
        self.port.step(self.waiter.wait(TURN_NS), time.monotonic_ns)

    def has_opening(self) -> bool:
        self.turn()
        return any(stranger.opening for stranger in self.strangers)


@pytest.fixture
def driven() -> Iterator[Driven]:
    found = Driven()
    yield found
    found.port.close()
    found.waiter.close()


@pytest.fixture
def early(driven: Driven) -> Iterator[socket.socket]:
    """A data connection whose opening is there before its peer's HELLO."""
    with socket.create_connection((ADDRESS, driven.port.addresses[0].port)) as connection:
        connection.settimeout(20.0)
        connection.sendall(encode_opening(TOKEN, None))
        eventually(driven.has_opening)
        yield connection


@pytest.mark.usefixtures("early")
def test_an_early_one_waits_for_the_hello(driven: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(connection: TcpConnection, opening: bytes) -> bool:
        raise AssertionError("it was looked up before, and nothing has changed")

    monkeypatch.setattr(TcpConnection, "is_for_us", compared)
    driven.turn()
    assert driven.strangers
    driven.connection.control_received(end(1).control_to_send(), time.monotonic_ns())
    driven.turn()
    assert not driven.strangers
    (peer,) = driven.port._peers
    assert [type(flow) for flow in peer.flows] == [IncomingFlow]


def test_an_early_one_whose_peer_never_says_hello_is_turned_out(driven: Driven, early: socket.socket) -> None:
    driven.connection.control_ended(CancelledError("gone"), time.monotonic_ns())
    driven.port.forget(driven.connection)
    driven.turn()
    assert not driven.strangers
    with pytest.raises(ConnectionResetError):
        early.recv(1)


def test_only_those_that_are_ready_are_read(driven: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Stranger] = []

    def step(stranger: Stranger) -> None:
        read.append(stranger)

    monkeypatch.setattr(Stranger, "step", step)
    place = ADDRESS, driven.port.addresses[0].port
    with socket.create_connection(place), socket.create_connection(place) as speaking:

        def after_a_turn(found: Sized, count: int) -> bool:
            driven.turn()
            return len(found) >= count

        eventually(lambda: after_a_turn(driven.strangers, 2))
        assert not read
        speaking.sendall(b"\1")
        eventually(lambda: after_a_turn(read, 1))
        assert {stranger.remote.port for stranger in read} == {speaking.getsockname()[1]}


class Refusing(socket.socket):
    """Whose accept fails."""

    code = 0

    def accept(self) -> tuple[socket.socket, object]:
        raise OSError(self.code, "no")


@pytest.fixture
def listeners(monkeypatch: pytest.MonkeyPatch) -> Iterator[DataListeners]:
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Refusing)
        found = DataListeners([ADDRESS], 0, Plaintext(), 40)
    yield found
    found.close()


def accept(listeners: DataListeners, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(Refusing, "code", code)
    listeners.step(set(listeners.wanted(0)), lambda _: None, 0)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS])
def test_a_machine_without_room_pauses(
    listeners: DataListeners, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    accept(listeners, monkeypatch, code)
    assert not listeners.wanted(PAUSE_NS - 1)
    assert listeners.next_timer_ns(0) == PAUSE_NS
    assert listeners.wanted(PAUSE_NS)


@pytest.mark.parametrize("code", [errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EAGAIN])
def test_a_newcomer_that_is_gone_is_no_error_of_ours(
    listeners: DataListeners, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    accept(listeners, monkeypatch, code)
    assert listeners.wanted(0)


def test_a_broken_listener_is_said(listeners: DataListeners, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MachineError, match="cannot accept connections"):
        accept(listeners, monkeypatch, errno.EINVAL)
