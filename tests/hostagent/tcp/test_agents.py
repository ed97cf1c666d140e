"""Two agents over real TCP connections; loopback, and a cable between two namespaces."""

import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.completions import Transfer
from mltswitch.hostagent.control.credentials import Credentials
from mltswitch.hostagent.control.keys import make_keys
from mltswitch.hostagent.control.security import Plaintext, Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.control.tls import TlsIdentity, load_identity
from mltswitch.hostagent.errors import (
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
)
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.spraying.modes import BySourcePort
from mltswitch.hostagent.tcp import strangers
from mltswitch.hostagent.tcp.connection import TcpConnection
from mltswitch.hostagent.tcp.flows import TCP_NOTSENT_LOWAT, IncomingFlow, OutgoingFlow
from mltswitch.hostagent.tcp.frames import OPENING_BYTES, encode_opening
from mltswitch.hostagent.tcp.pipes import PlainPipe, TlsPipe
from mltswitch.hostagent.tcp.port import TcpPort
from mltswitch.hostagent.tcp.settings import TcpSettings
from mltswitch.hostagent.transport.hello import PathAddress
from mltswitch.hostagent.transport.rate import RateSettings
from mltswitch.hostagent.transport.settings import Transport
from tests.hostagent.background import eventually
from tests.hostagent.namespaces import TwoHosts, can_make_namespaces, two_hosts

DSCP, CONTROL_DSCP = 34, 40
PATIENCE_SECONDS = 60.0
RATE = RateSettings.for_network(10e9, queue_bytes=0, noise_ns=10**9)
LARGE = 8_000_000
"""Elements; more than the kernel's buffers hold."""

Make = Callable[..., Agent]
Tensor = NDArray[np.float32]


def settings(name: str, addresses: tuple[str, ...], **options: object) -> AgentSettings:
    given: dict[str, object] = {
        "security": Plaintext(),
        "transport": Transport.TCP,
        "listen": Endpoint(addresses[0], 0),
        "data_port": 0,
    } | options
    return AgentSettings(
        name=name,
        addresses=addresses,
        control_dscp=CONTROL_DSCP,
        rate=RATE,
        **given,  # type: ignore[arg-type]  # any of the settings
    )


@pytest.fixture
def make() -> Iterator[Make]:
    agents: list[Agent] = []

    def one(name: str, **options: object) -> Agent:
        place = ord(name[-1]) % 100
        agents.append(
            Agent(settings(name, tuple(f"127.0.{place}.{number}" for number in range(1, 5)), **options))
        )
        return agents[-1]

    yield one
    for agent in agents:
        agent.close()


def joined(first: Agent, second: Agent) -> tuple[Agent, Agent]:
    assert second.listening_at is not None
    first.connect("host-b", second.listening_at, PATIENCE_SECONDS)
    second.wait_for_peers(["host-a"], PATIENCE_SECONDS)
    return first, second


@pytest.fixture
def pair(make: Make) -> tuple[Agent, Agent]:
    return joined(make("host-a"), make("host-b"))


def port_of(agent: Agent) -> TcpPort:
    found = agent._engine._tcp
    assert found is not None
    return found


def flows(agent: Agent, kind: type[OutgoingFlow] | type[IncomingFlow]) -> list[OutgoingFlow | IncomingFlow]:
    (peer,) = port_of(agent)._peers
    return [flow for flow in peer.flows if isinstance(flow, kind)]


def gradients(count: int, seed: int = 1) -> Tensor:
    return np.random.default_rng(seed).standard_normal(count, np.float32)


def exchange(sender: Agent, receiver: Agent, count: int = 100_003, tensor: int = 1) -> Transfer:
    original, buffer = gradients(count), np.full(count, 7, np.float32)
    there = receiver.post_recv("host-a", buffer, tensor=tensor, round_number=1, loss_bound=0.1)
    here = sender.post_send("host-b", original, tensor=tensor, round_number=1, dscp=DSCP)
    for transfer in (here, there):
        transfer.wait(PATIENCE_SECONDS)
    assert (buffer == original).all()
    return there


@pytest.mark.parametrize("streams", [1, 5])
def test_many_tensors_in_both_directions_at_once(make: Make, streams: int) -> None:
    options = TcpSettings(streams=streams, chunk_bytes=64 * 1024)
    first, second = joined(make("host-a", tcp=options), make("host-b", tcp=options))
    waits, checks = [], []
    for number in range(12):
        for here, there, names in ((first, second, "ab"), (second, first, "ba")):
            original = gradients(1 + 40_000 * number, seed=number)
            buffer = np.zeros_like(original)
            waits.append(
                there.post_recv(f"host-{names[0]}", buffer, tensor=number, round_number=3)
                if number % 2
                else here.post_send(
                    f"host-{names[1]}", original, tensor=number, round_number=3, dscp=DSCP, layer=12 - number
                )
            )
            waits.append(
                there.post_recv(f"host-{names[0]}", buffer, tensor=number, round_number=3)
                if not number % 2
                else here.post_send(f"host-{names[1]}", original, tensor=number, round_number=3, dscp=DSCP)
            )
            checks.append((original, buffer))
    for transfer in waits:
        transfer.wait(PATIENCE_SECONDS)
    for original, buffer in checks:
        assert (buffer == original).all()
    for agent in (first, second):
        assert len(flows(agent, OutgoingFlow)) == len(flows(agent, IncomingFlow)) == streams


def test_completions_speak_of_chunks(pair: tuple[Agent, Agent]) -> None:
    done = exchange(*pair, count=2_500_000).completion
    assert done is not None
    assert done.statistics is not None
    assert done.received is not None
    assert done.received.tolist() == [True] * 3
    assert done.statistics.packets == 3
    assert done.statistics.goodput_bps > 0


@pytest.mark.parametrize("transport", Transport)
def test_several_ranks_of_one_host_have_an_agent_each(transport: Transport) -> None:
    """With the same addresses and ports of their own."""
    hosts = ("127.0.81.1", "127.0.81.2"), ("127.0.82.1", "127.0.82.2")
    with ExitStack() as opened:
        (senders, receivers) = (
            {
                (name := f"host-{letter}-rank-{rank}"): opened.enter_context(
                    Agent(settings(name, addresses, transport=transport))
                )
                for rank in range(2)
            }
            for letter, addresses in zip("ab", hosts, strict=True)
        )
        waits, checks = [], []
        for number, ((here, sender), (there, receiver)) in enumerate(
            product(senders.items(), receivers.items())
        ):
            assert receiver.listening_at is not None
            sender.connect(there, receiver.listening_at, PATIENCE_SECONDS)
            receiver.wait_for_peers([here], PATIENCE_SECONDS)
            original = gradients(50_000, seed=number)
            buffer = np.zeros_like(original)
            waits.append(receiver.post_recv(here, buffer, tensor=1, round_number=1))
            waits.append(sender.post_send(there, original, tensor=1, round_number=1, dscp=DSCP))
            checks.append((original, buffer))
        for transfer in waits:
            transfer.wait(PATIENCE_SECONDS)
        for original, buffer in checks:
            assert (buffer == original).all()


def test_ipv6() -> None:
    with (
        Agent(settings("host-a", ("::1",))) as sender,
        Agent(settings("host-b", ("::1",))) as receiver,
    ):
        exchange(*joined(sender, receiver))


def test_the_kernel_is_told_class_and_congestion_control(make: Make) -> None:
    sender, receiver = joined(
        make("host-a", tcp=TcpSettings(congestion_control="reno", unsent_bytes=1 << 20)), make("host-b")
    )
    exchange(sender, receiver)
    (out,), (back,) = flows(sender, OutgoingFlow), flows(receiver, OutgoingFlow)
    opened = out._pipe.kernel_socket
    assert opened.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) & 0xFC == DSCP << 2
    assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
    assert opened.getsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT) == 1 << 20
    unused = back._pipe.kernel_socket
    assert unused.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) & 0xFC == CONTROL_DSCP << 2


def test_a_congestion_control_that_is_not_there(make: Make) -> None:
    with pytest.raises(UserInputError, match="'nonsense' cannot be used"):
        make("host-a", tcp=TcpSettings(congestion_control="nonsense"))


@pytest.mark.parametrize(
    "options", [{"streams": 0}, {"streams": 33}, {"chunk_bytes": 4095}, {"unsent_bytes": 0}]
)
def test_settings_without_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        TcpSettings(**options)


def test_there_is_no_spraying() -> None:
    with pytest.raises(ValueError, match="over TCP"):
        settings("host-a", ("127.0.0.1", "127.0.0.1"), spray=BySourcePort())


def test_the_memory_is_bounded(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    original, buffer = gradients(LARGE), np.zeros(LARGE, np.float32)
    tracemalloc.start()
    try:
        there = receiver.post_recv("host-a", buffer, tensor=1, round_number=1)
        sender.post_send("host-b", original, tensor=1, round_number=1, dscp=DSCP).wait(PATIENCE_SECONDS)
        there.wait(PATIENCE_SECONDS)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (buffer == original).all()
    assert peak_bytes < 2_000_000


def test_nobody_sends_and_nobody_receives(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    buffer = np.zeros(10, np.float32)
    there = receiver.post_recv("host-a", buffer, tensor=1, round_number=1, deadline_seconds=0.2)
    here = sender.post_send(
        "host-b", buffer.copy(), tensor=2, round_number=1, dscp=DSCP, deadline_seconds=0.2
    )
    for transfer, text in ((there, "host-a, tensor 1"), (here, "host-b, tensor 2")):
        with pytest.raises(DeadlineExceededError, match=text):
            transfer.wait(PATIENCE_SECONDS)


def test_cancel_in_the_middle_and_go_on(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    buffer = np.zeros(LARGE, np.float32)
    there = receiver.post_recv("host-a", buffer, tensor=1, round_number=1)
    here = sender.post_send("host-b", gradients(LARGE), tensor=1, round_number=1, dscp=DSCP)
    eventually(lambda: bool(buffer[0]))
    here.cancel("skipped")
    try:
        there.wait(PATIENCE_SECONDS)
    except CancelledError:
        assert here.completion is None or isinstance(here.completion.error, CancelledError)
    exchange(sender, receiver, tensor=2)


def test_transports_that_differ(make: Make) -> None:
    sender, receiver = make("host-a"), make("host-b", transport=Transport.MLT)
    assert receiver.listening_at is not None
    with pytest.raises(PeerRefusedError, match=r"tcp here, mlt there|mlt here, tcp there") as found:
        sender.connect("host-b", receiver.listening_at, PATIENCE_SECONDS)
    assert "peer host-b" in str(found.value)
    eventually(lambda: any(receiver._peers._known.values()))
    with pytest.raises(DeadlineExceededError, match=r"nobody has connected.*different transports"):
        receiver.wait_for_a_peer(0.05)


# Who may send


@pytest.fixture
def identities(tmp_path: Path) -> dict[str, TlsIdentity]:
    made = make_keys(
        tmp_path / "job", {"host-a": [], "host-b": []}, days=1, authority_days=2, now=datetime.now(UTC)
    )
    return {host.name: load_identity(Credentials.in_folder(host.folder)) for host in made.hosts}


@pytest.mark.parametrize("who_asks", ["host-a", "host-b"])
def test_data_over_tls(make: Make, identities: dict[str, Security], who_asks: str) -> None:
    ends = [make(name, security=identities[name], authenticate=name == who_asks) for name in identities]
    sender, receiver = joined(ends[0], ends[1])
    exchange(sender, receiver, count=3_000_001)
    for agent in (sender, receiver):
        for kind in (OutgoingFlow, IncomingFlow):
            assert [type(flow._pipe) for flow in flows(agent, kind)] == [TlsPipe]
    connection = receiver._engine.connection("host-a")
    assert isinstance(connection, TcpConnection)
    opening = encode_opening(connection.receive_token, connection._exchange.secrets.key)
    assert connection.is_genuine(opening)
    assert knock(receiver, opening) == b""  # right, and yet not within TLS
    exchange(sender, receiver, tensor=2)


def test_keys_without_tls_for_data(make: Make, identities: dict[str, Security]) -> None:
    ends = [make(name, security=identities[name]) for name in identities]
    exchange(*joined(ends[0], ends[1]))
    assert [type(flow._pipe) for flow in flows(ends[0], OutgoingFlow)] == [PlainPipe]


def knock(agent: Agent, said: bytes) -> bytes | None:
    """What the data port answers; empty: it closed without a word; None: it waits for more."""
    place = port_of(agent).addresses[0]
    with socket.create_connection((place.address, place.port), PATIENCE_SECONDS) as stranger:
        stranger.sendall(said)
        stranger.settimeout(PATIENCE_SECONDS if len(said) >= OPENING_BYTES else 0.3)
        try:
            return stranger.recv(100)
        except ConnectionResetError:
            return b""
        except TimeoutError:
            return None


def test_strangers_are_closed_without_a_word(make: Make) -> None:
    sender, receiver = joined(make("host-a", authenticate=True), make("host-b"))
    connection = receiver._engine.connection("host-a")
    token = connection.receive_token
    key = connection._exchange.secrets.key
    right = encode_opening(token, key)
    for opening in (
        bytes(OPENING_BYTES),
        b"GET / HTTP/1.1\r\nHost: data.example\r\n\r\n",
        encode_opening(token ^ 1, key),
        encode_opening(token, None),
        encode_opening(token, bytes(32)),
        b"\x02" + right[1:],
        b"\x16\x03\x01" + right,
    ):
        assert knock(receiver, opening) == b""
    assert knock(receiver, right[:-1]) is None
    eventually(lambda: not port_of(receiver)._listeners.strangers)
    exchange(sender, receiver)


def test_few_strangers_may_wait_and_not_for_long(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "MAXIMUM_STRANGERS_PER_ADDRESS", 4)
    agent = make("host-a")
    place = port_of(agent).addresses[0]
    waiting = [socket.create_connection((place.address, place.port)) for _ in range(7)]
    listeners = port_of(agent)._listeners
    eventually(lambda: listeners.turned_away == 3)
    eventually(lambda: not listeners.strangers)
    for each in waiting:
        each.close()


# What breaks


def test_a_broken_data_connection_fails_its_transfers(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    there = receiver.post_recv("host-a", np.zeros(10, np.float32), tensor=1, round_number=1)
    here = receiver.post_send("host-a", gradients(10), tensor=5, round_number=1, dscp=DSCP)
    eventually(lambda: len(flows(receiver, IncomingFlow)) == 1)
    (flow,) = flows(sender, OutgoingFlow)
    flow._pipe.kernel_socket.shutdown(socket.SHUT_WR)
    for transfer, text in ((there, "tensor 1"), (here, "tensor 5")):
        with pytest.raises(PeerUnreachableError, match=f"host-a, {text}.*data connection"):
            transfer.wait(PATIENCE_SECONDS)


def test_a_receiver_that_answers_on_a_data_connection(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    here = sender.post_send("host-b", gradients(10), tensor=5, round_number=1, dscp=DSCP)
    eventually(lambda: len(flows(receiver, IncomingFlow)) == 1)
    (flow,) = flows(receiver, IncomingFlow)
    flow._pipe.kernel_socket.send(b"hello")
    with pytest.raises(ProtocolViolationError, match="tensor 5"):
        here.wait(PATIENCE_SECONDS)


def test_a_peer_that_has_left_leaves_no_data_connections(make: Make) -> None:
    first, second = joined(make("host-a"), make("host-b"))
    exchange(first, second)
    descriptors = [flow.fileno() for flow in flows(first, OutgoingFlow) + flows(first, IncomingFlow)]
    assert len(descriptors) == 2
    second.close()
    eventually(lambda: not port_of(first)._peers)
    assert set(port_of(first).wanted(0)).isdisjoint(descriptors)
    joined(first, make("host-b"))
    assert len(port_of(first)._peers) == 1


def test_who_closes_says_why(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    there = receiver.post_recv("host-a", gradients(10), tensor=1, round_number=1)
    sender.close("the job is over")
    with pytest.raises(PeerUnreachableError, match=r"host-a, tensor 1.*the job is over"):
        there.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("address", "message"), [("127.0.66.1", "data port|closed"), ("192.0.2.1", "plain text|closed")]
)
def test_a_data_port_that_cannot_be_reached(
    make: Make, monkeypatch: pytest.MonkeyPatch, address: str, message: str
) -> None:
    nowhere = PathAddress(0, address, 9)
    monkeypatch.setattr(TcpPort, "addresses", property(lambda _: (nowhere,)))
    sender, receiver = make("host-a"), make("host-b")

    def reach() -> None:
        assert receiver.listening_at is not None
        sender.connect(
            "host-b", receiver.listening_at, PATIENCE_SECONDS
        )  # may succeed: it is tried afterwards
        sender.post_send("host-b", gradients(10), tensor=1, round_number=1, dscp=DSCP).wait(PATIENCE_SECONDS)

    with pytest.raises((PeerUnreachableError, PeerRefusedError), match=f"host-b.*({message})"):
        reach()


DYING = """
import sys, time
import numpy as np
from tests.hostagent.tcp.test_agents import Agent, settings, gradients, Endpoint, LARGE
agent = Agent(settings("host-a", ("127.0.7.1",)))
agent.connect("host-b", Endpoint(sys.argv[1], int(sys.argv[2])))
agent.post_send("host-b", gradients(LARGE), tensor=1, round_number=1, dscp=34)
print("posted", flush=True)
time.sleep(1000)
"""


def test_a_peer_that_is_killed(make: Make) -> None:
    receiver = make("host-b")
    assert receiver.listening_at is not None
    command = [sys.executable, "-c", DYING, receiver.listening_at.address, str(receiver.listening_at.port)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as peer:
        try:
            receiver.wait_for_peers(["host-a"], PATIENCE_SECONDS)
            assert peer.stdout is not None
            assert peer.stdout.readline() == b"posted\n"
            there = receiver.post_recv("host-a", np.zeros(LARGE, np.float32), tensor=2, round_number=1)
        finally:
            peer.kill()
        with pytest.raises(PeerUnreachableError, match="host-a, tensor 2"):
            there.wait(PATIENCE_SECONDS)


# On a cable


@pytest.fixture(scope="module")
def hosts() -> Iterator[TwoHosts]:
    if not can_make_namespaces():
        pytest.skip("needs root")
    with two_hosts() as made:
        yield made


@pytest.mark.root
@pytest.mark.parametrize("version", [4, 6])
def test_streams_are_spread_over_the_addresses(hosts: TwoHosts, version: int) -> None:
    options = {"security": Plaintext(beyond_loopback=True), "tcp": TcpSettings(streams=4)}
    ends = []
    for host, name in ((hosts.one, "host-a"), (hosts.other, "host-b")):
        addresses = host.aliases if version == 4 else host.aliases6
        with host.entered():
            ends.append(Agent(settings(name, addresses, **options)))
    sender, receiver = ends
    with sender, receiver:
        assert receiver.listening_at is not None
        with hosts.one.entered():
            sender.connect("host-b", receiver.listening_at, PATIENCE_SECONDS)
        receiver.wait_for_peers(["host-a"], PATIENCE_SECONDS)
        exchange(sender, receiver, count=5_000_000)
        places = {flow._pipe.kernel_socket.getpeername()[0] for flow in flows(sender, OutgoingFlow)}
        sources = {flow._pipe.kernel_socket.getsockname()[0] for flow in flows(sender, OutgoingFlow)}
        assert places == set(hosts.other.aliases if version == 4 else hosts.other.aliases6)
        assert sources == set(hosts.one.aliases if version == 4 else hosts.one.aliases6)
