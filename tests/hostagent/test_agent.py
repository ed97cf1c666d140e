"""Two agents on loopback: real sockets, real TLS, real offload; no root."""

import asyncio
import re
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.completions import Completion, CompletionQueue, Transfer
from mltswitch.hostagent.control.credentials import Credentials
from mltswitch.hostagent.control.keys import make_keys
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.control.tls import load_identity
from mltswitch.hostagent.errors import (
    AgentError,
    BufferReusedError,
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
    TaggingError,
    TransferMismatchError,
)
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.tagging import ByFunction
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerLost
from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE
from mltswitch.hostagent.transport.interfaces import Direction
from tests.hostagent.background import eventually
from tests.hostagent.opening import CONTROL_DSCP, RATE, Make, joined, opening

DSCP = 34
PATIENCE_SECONDS = 60.0


@pytest.fixture
def make() -> Iterator[Make]:
    with opening() as one:
        yield one


@pytest.fixture
def pair(make: Make) -> tuple[Agent, Agent]:
    return joined(make)


def gradients(count: int = 100_003) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(1).standard_normal(count).astype(np.float32)


def test_a_tensor_arrives_whole(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    original, buffer = gradients(), np.full(100_003, 7, np.float32)
    there = receiver.post_recv("host-a", buffer, tensor=3, round_number=1)
    here = sender.post_send("host-b", original, tensor=3, round_number=1, dscp=DSCP)
    sent, received = here.wait(PATIENCE_SECONDS), there.wait(PATIENCE_SECONDS)
    assert (buffer == original).all()
    assert sent.statistics is not None
    assert received.statistics is not None
    assert received.received is not None
    assert received.received.all()
    assert received.statistics.packets == sent.statistics.packets == len(received.received)
    assert sent.statistics.packets_sent - sent.statistics.packets_resent == sent.statistics.packets
    assert sent.statistics.important_packets in {None, received.statistics.important_received}
    assert received.statistics.goodput_bps > 0


def test_a_sender_may_come_first_and_many_are_on_their_way(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    originals = [gradients(1000 + 700 * number) for number in range(20)]
    for number, original in enumerate(originals):
        sender.post_send("host-b", original, tensor=number, round_number=5, dscp=DSCP, layer=20 - number)
    buffers = [np.zeros_like(original) for original in originals]
    for number, buffer in enumerate(buffers):
        receiver.post_recv("host-a", buffer, tensor=number, round_number=5)
    done = [receiver.poll(PATIENCE_SECONDS) for _ in buffers]
    assert {entry.tensor for entry in done if entry is not None and entry.error is None} == set(range(20))
    for original, buffer in zip(originals, buffers, strict=True):
        assert (original == buffer).all()


def test_between_streams_an_agent_waits(pair: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    """While a stream comes, the kernel does not tell us of its packets; before and after it does."""
    sender, receiver = pair
    engine = receiver._engine
    watched: list[bool] = []
    watch = engine._waiter.watch

    def look(wanted: Mapping[int, int]) -> None:
        watched.append(engine._descriptors <= wanted.keys())
        watch(wanted)

    monkeypatch.setattr(engine._waiter, "watch", look)
    for round_number in (1, 2):
        tensor, buffer = gradients(4_000_000), np.zeros(4_000_000, np.float32)
        transfers = (
            receiver.post_recv("host-a", buffer, tensor=7, round_number=round_number),
            sender.post_send("host-b", tensor, tensor=7, round_number=round_number, dscp=DSCP),
        )
        for transfer in transfers:
            transfer.wait(PATIENCE_SECONDS)
        assert np.array_equal(buffer, tensor)
        assert {True, False} <= set(watched)
        eventually(lambda: watched[-1])
        watched.clear()


def test_both_directions_and_several_rounds(pair: tuple[Agent, Agent]) -> None:
    first, second = pair
    one, two = gradients(5000), -gradients(5000)
    for number in range(1, 8):
        into_two, into_one = np.empty_like(one), np.empty_like(two)
        waits = [
            second.post_recv("host-a", into_two, tensor=0, round_number=number),
            first.post_recv("host-b", into_one, tensor=0, round_number=number),
            first.post_send("host-b", one, tensor=0, round_number=number, dscp=DSCP, burst_packets=1),
            second.post_send("host-a", two, tensor=0, round_number=number, dscp=DSCP, policy="all"),
        ]
        for transfer in waits:
            transfer.wait(PATIENCE_SECONDS)
        assert (into_two == one).all()
        assert (into_one == two).all()


def test_keys_and_tags(make: Make, tmp_path: Path) -> None:
    made = make_keys(tmp_path / "job", {"host-a": [], "host-b": []}, days=1, authority_days=2, now=_now())
    folders = {host.name: host.folder for host in made.hosts}
    ends = [
        make(
            name, security=load_identity(Credentials.in_folder(folders[name])), authenticate=name == "host-a"
        )
        for name in ("host-a", "host-b")
    ]
    sender, receiver = ends
    assert receiver.listening_at is not None
    sender.connect("host-b", receiver.listening_at, PATIENCE_SECONDS)
    receiver.wait_for_peers(["host-a"], PATIENCE_SECONDS)
    original, buffer = gradients(), np.zeros(100_003, np.float32)
    there = receiver.post_recv("host-a", buffer, tensor=1, round_number=1)
    sender.post_send("host-b", original, tensor=1, round_number=1, dscp=DSCP).wait(PATIENCE_SECONDS)
    there.wait(PATIENCE_SECONDS)
    assert (buffer == original).all()


def test_another_jobs_key_is_refused(make: Make, tmp_path: Path) -> None:
    identities = [
        load_identity(
            Credentials.in_folder(
                make_keys(tmp_path / job, {name: []}, days=1, authority_days=2, now=_now()).hosts[0].folder
            )
        )
        for job, name in (("one", "host-a"), ("two", "host-b"))
    ]
    stranger, receiver = make("host-a", security=identities[0]), make("host-b", security=identities[1])
    assert receiver.listening_at is not None
    with pytest.raises(PeerRefusedError):
        stranger.connect("host-b", receiver.listening_at, PATIENCE_SECONDS)


def test_a_peer_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    settings = AgentSettings(
        name="host-a",
        addresses=("127.0.0.1",),
        security=Plaintext(),
        control_dscp=CONTROL_DSCP,
        data_port=0,
        rate=RATE,
    )
    with Agent(settings) as agent, pytest.raises(PeerUnreachableError, match="host-b"):
        agent.connect("host-b", Endpoint("127.0.0.1", port), PATIENCE_SECONDS)


def test_the_second_of_one_name_is_refused_and_the_first_stays(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    twin = AgentSettings(
        name="host-a",
        addresses=("127.0.0.1",),
        security=Plaintext(),
        control_dscp=CONTROL_DSCP,
        data_port=0,
        rate=RATE,
    )
    assert receiver.listening_at is not None
    at = receiver.listening_at

    said = "peer host-b: refused the connection: is connected already"

    def come(second: Agent) -> None:
        second.connect("host-b", at, PATIENCE_SECONDS)
        eventually(lambda: is_gone(second, "host-b"))  # our hello and the refusal may cross

    with Agent(twin) as second, pytest.raises(PeerRefusedError, match=said):
        come(second)
    receiver.wait_for_peers(["host-a"], PATIENCE_SECONDS)
    there = receiver.post_recv("host-a", np.zeros(10, np.float32), tensor=1, round_number=1)
    sender.post_send("host-b", gradients(10), tensor=1, round_number=1, dscp=DSCP)
    assert there.wait(PATIENCE_SECONDS).error is None


def test_sizes_that_differ(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    there = receiver.post_recv("host-a", np.zeros(10, np.float32), tensor=1, round_number=1)
    here = sender.post_send("host-b", gradients(11), tensor=1, round_number=1, dscp=DSCP)
    for transfer in (here, there):
        with pytest.raises(TransferMismatchError, match="tensor 1, round 1"):
            transfer.wait(PATIENCE_SECONDS)


def test_a_round_is_posted_once(pair: tuple[Agent, Agent]) -> None:
    _, receiver = pair
    buffer = np.zeros(10, np.float32)
    receiver.post_recv("host-a", buffer, tensor=1, round_number=4)
    with pytest.raises(UserInputError, match="posted already"):
        receiver.post_recv("host-a", buffer, tensor=1, round_number=4)
    with pytest.raises(TransferMismatchError, match="rounds rise"):
        receiver.post_recv("host-a", buffer, tensor=1, round_number=3).wait(PATIENCE_SECONDS)


def test_nobody_sends(pair: tuple[Agent, Agent]) -> None:
    _, receiver = pair
    there = receiver.post_recv(
        "host-a", np.zeros(10, np.float32), tensor=1, round_number=1, deadline_seconds=0.2
    )
    with pytest.raises(DeadlineExceededError, match="host-a, tensor 1, round 1"):
        there.wait(PATIENCE_SECONDS)


def test_cancel_reaches_the_other_end(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    here = sender.post_send("host-b", gradients(), tensor=1, round_number=1, dscp=DSCP)
    here.cancel("the step was skipped")
    with pytest.raises(CancelledError, match="skipped"):
        here.wait(PATIENCE_SECONDS)
    there = receiver.post_recv("host-a", gradients(), tensor=1, round_number=1)
    with pytest.raises(CancelledError):
        there.wait(PATIENCE_SECONDS)


def test_a_peer_that_ends_takes_its_transfers_along(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    there = receiver.post_recv("host-a", gradients(), tensor=1, round_number=1)
    sender.close("the job is over")
    with pytest.raises(PeerUnreachableError, match="host-a, tensor 1"):
        there.wait(PATIENCE_SECONDS)
    with pytest.raises(AgentError):
        sender.post_send("host-b", gradients(), tensor=1, round_number=1, dscp=DSCP)


def test_a_policy_that_fails_fails_its_transfer_alone(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair

    def broken(_: object) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        raise UserInputError("no idea")

    receiver.post_recv("host-a", gradients(), tensor=1, round_number=1)
    bad = sender.post_send(
        "host-b", gradients(), tensor=1, round_number=1, dscp=DSCP, policy=ByFunction(broken)
    )
    with pytest.raises(TaggingError, match="no idea"):
        bad.wait(PATIENCE_SECONDS)
    buffer = np.zeros(10, np.float32)
    there = receiver.post_recv("host-a", buffer, tensor=2, round_number=1)
    sender.post_send("host-b", gradients(10), tensor=2, round_number=1, dscp=DSCP)
    there.wait(PATIENCE_SECONDS)
    assert (buffer == gradients(10)).all()


def test_reuse_is_caught(make: Make) -> None:
    sender, receiver = joined(make, catch_reuse=True)
    original = gradients(10)
    here = sender.post_send("host-b", original, tensor=1, round_number=1, dscp=DSCP)
    original[3] = 4711
    receiver.post_recv("host-a", np.zeros(10, np.float32), tensor=1, round_number=1)
    with pytest.raises(BufferReusedError):
        here.wait(PATIENCE_SECONDS)


def test_asyncio_and_a_queue_of_ones_own(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    own = CompletionQueue()
    buffer = np.zeros(1000, np.float32)

    async def exchange() -> None:
        there = receiver.post_recv("host-a", buffer, tensor=9, round_number=1, completions=own)
        here = sender.post_send("host-b", gradients(1000), tensor=9, round_number=1, dscp=DSCP)
        done = await asyncio.wait_for(here, PATIENCE_SECONDS)
        assert done.direction is Direction.SEND
        await there

    asyncio.run(exchange())
    found = own.poll(PATIENCE_SECONDS)
    assert found is not None
    assert found.tensor == 9
    assert receiver.poll() is None


def test_a_loop_that_was_closed_meanwhile_is_no_harm(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    memory = np.zeros(100, np.float32)
    transfer = receiver.post_recv("host-a", memory, tensor=1, round_number=1)

    async def give_up_waiting() -> None:
        waiting = asyncio.ensure_future(_await(transfer))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(give_up_waiting())
    sender.post_send("host-b", gradients(100), tensor=1, round_number=1, dscp=DSCP)
    assert transfer.wait(PATIENCE_SECONDS).error is None
    again = receiver.post_recv("host-a", memory, tensor=1, round_number=2)
    sender.post_send("host-b", gradients(100), tensor=1, round_number=2, dscp=DSCP)
    assert again.wait(PATIENCE_SECONDS).error is None


async def _await(transfer: Transfer) -> Completion:
    return await transfer


def test_what_is_called_at_the_end_may_fail(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    for round_number in (1, 2):
        memory = np.zeros(100, np.float32)
        transfer = receiver.post_recv("host-a", memory, tensor=1, round_number=round_number)
        transfer.when_ended(lambda: 1 / 0)
        sender.post_send("host-b", gradients(100), tensor=1, round_number=round_number, dscp=DSCP)
        assert transfer.wait(PATIENCE_SECONDS).error is None
        assert receiver.poll(PATIENCE_SECONDS) is not None


def test_what_fails_with_one_peer_fails_with_nobody_else(
    make: Make, pair: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = pair
    other = make("host-c")
    assert receiver.listening_at is not None
    other.connect("host-b", receiver.listening_at, PATIENCE_SECONDS)
    receiver.wait_for_peers(["host-c"], PATIENCE_SECONDS)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    # For a fault of ours that only one peer's datagrams meet.
    monkeypatch.setattr(receiver._engine.connection("host-a"), "datagrams_read", fail)
    lost = receiver.post_recv("host-a", np.zeros(10, np.float32), tensor=1, round_number=1)
    sender.post_send("host-b", gradients(10), tensor=1, round_number=1, dscp=DSCP)
    with pytest.raises(CancelledError, match="failed on this connection"):
        lost.wait(PATIENCE_SECONDS)
    there = receiver.post_recv("host-c", np.zeros(10, np.float32), tensor=1, round_number=1)
    other.post_send("host-b", gradients(10), tensor=1, round_number=1, dscp=DSCP)
    assert there.wait(PATIENCE_SECONDS).error is None


def test_a_port_that_is_taken_leaves_nothing_open(make: Make) -> None:
    taken = make("host-a").listening_at
    assert taken is not None
    second = AgentSettings(
        name="host-b",
        addresses=("127.0.0.1",),
        security=Plaintext(),
        control_dscp=CONTROL_DSCP,
        data_port=0,
        rate=RATE,
        listen=taken,
    )
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with pytest.raises(MachineError, match="cannot listen"):
            Agent(second)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_strangers_datagrams_are_not_answered(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    headers = np.zeros(1, HEADER_DTYPE)
    headers["version"], headers["kind"], headers["flow_token"] = 1, 3, 0x1234
    hello = sender._engine.connection("host-b").peer
    assert hello is not None
    target = hello.data_addresses[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.sendto(headers.tobytes(), (target.address, target.port))
        eventually(lambda: receiver._engine.unknown_datagrams == 1)
        stranger.settimeout(0.3)
        with pytest.raises(TimeoutError):
            stranger.recv(100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss_bound": 1.0}, "loss_bound"),
        ({"important_loss_bound": -0.1}, "important_loss_bound"),
        ({"deadline_seconds": 0}, "deadline"),
    ],
)
def test_bad_bounds(pair: tuple[Agent, Agent], options: dict[str, float], message: str) -> None:
    with pytest.raises(UserInputError, match=message):
        pair[1].post_recv(
            "host-a",
            np.zeros(1, np.float32),
            tensor=1,
            round_number=1,
            **options,  # type: ignore[arg-type]  # any of the bounds
        )


@pytest.mark.parametrize(("dscp", "policy"), [(48, "all"), (64, "all"), (34, "nonsense")])
def test_bad_tags(pair: tuple[Agent, Agent], dscp: int, policy: str) -> None:
    with pytest.raises(UserInputError):
        pair[0].post_send("host-b", gradients(3), tensor=1, round_number=1, dscp=dscp, policy=policy)


def _now() -> datetime:
    return datetime.now(UTC)


def test_a_post_to_a_peer_that_has_left_says_why(pair: tuple[Agent, Agent]) -> None:
    sender, receiver = pair
    receiver.close("it is late")
    with pytest.raises(PeerUnreachableError, match="peer host-b: closed the connection: it is late"):
        eventually(lambda: is_gone(sender, "host-b"))
    with pytest.raises(PeerUnreachableError, match="host-b, tensor 1, round 1: closed the connection: it is"):
        sender.post_send("host-b", gradients(10), tensor=1, round_number=1, dscp=DSCP).wait()


def is_gone(agent: Agent, peer: str) -> bool:
    """Raises what it has gone with."""
    error = agent._peers.error_of(peer)
    if error is not None:
        raise error
    return False


def test_somebody_else_in_plain_text_is_named(make: Make) -> None:
    agent = make("host-a")
    with socket.create_server(("127.0.0.1", 0)) as stranger, ThreadPoolExecutor(1) as executor:
        taken = executor.submit(lambda: _said(stranger.accept()[0], b"220 mail.example ESMTP\r\n"))
        with pytest.raises(
            ProtocolViolationError, match="peer mail: no agent speaks there: it says '220 mail"
        ):
            agent.connect("mail", Endpoint(*stranger.getsockname()), PATIENCE_SECONDS)
        taken.result(PATIENCE_SECONDS)


def test_by_another_name_both_ends_say_why(make: Make) -> None:
    one, other = make("host-a"), make("host-b")
    assert other.listening_at is not None
    why = "calls itself 'host-b': connect to it by that name, or mend its configuration"
    with pytest.raises(PeerRefusedError, match=f"^peer host-b: {why}$"):
        one.connect("host-z", other.listening_at, PATIENCE_SECONDS)
    with pytest.raises(PeerUnreachableError, match=f"^peer host-a: closed the connection: {why}$"):
        eventually(lambda: is_gone(other, "host-a"))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (b"220 mail.example ESMTP\r\n", "no agent speaks there: it says '220 mail.example ESM' first"),
        (b"220", "closed the control channel without a word"),
    ],
)
def test_a_stranger_in_plain_text_is_told_of_by_its_address(make: Make, words: bytes, why: str) -> None:
    agent, told = make("host-a"), Told()
    agent.observe(told)
    assert agent.listening_at is not None
    with socket.create_connection((agent.listening_at.address, agent.listening_at.port)) as stranger:
        place = f"127.0.0.1:{stranger.getsockname()[1]}"
        stranger.sendall(words)
        stranger.shutdown(socket.SHUT_WR)
        eventually(lambda: len(told.lost) > 0)
    assert told.lost == [(place, why)]
    with pytest.raises(DeadlineExceededError, match=re.escape(f"; peer {place}: {why}")):
        agent.wait_for_a_peer(0.1)


class Told:
    """Which peers were lost, and why."""

    def __init__(self) -> None:
        self.lost: list[tuple[str, str]] = []

    def observe(self, event: AgentEvent) -> None:
        if isinstance(event, PeerLost):
            self.lost.append((event.peer, event.reason))


def _said(connection: socket.socket, words: bytes) -> None:
    with connection:
        connection.sendall(words)
        while connection.recv(4096):
            pass
