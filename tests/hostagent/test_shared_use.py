"""What an agent shares out among all its transfers: two queues for many layers, one rate for all peers."""

import errno
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.completions import Transfer
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import AgentError, CancelledError
from mltswitch.hostagent.links import LONGEST_PAUSE_NS, SHORTEST_PAUSE_NS
from mltswitch.hostagent.network import outgoing
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.tagging import TwoQueues
from mltswitch.hostagent.transport.rate import RateSettings

HIGH, LOW = 34, 10
FULL_NS = 300_000_000
PATIENCE_SECONDS = 60.0
RATE = RateSettings.for_network(10e9, queue_bytes=0, noise_ns=10**9)

Make = Callable[..., Agent]


@pytest.fixture
def make() -> Iterator[Make]:
    agents: list[Agent] = []

    def one(name: str, place: int, **options: Any) -> Agent:
        address = f"127.0.{place}.1"
        settings = AgentSettings(
            name=name,
            addresses=(address,),
            security=Plaintext(),
            rate=RATE,
            control_dscp=40,
            data_port=0,
            listen=Endpoint(address, 0),
            **options,
        )
        agents.append(Agent(settings))
        return agents[-1]

    yield one
    for agent in agents:
        agent.close()


def connect(one: Agent, other: Agent, names: tuple[str, str]) -> None:
    assert other.listening_at is not None
    one.connect(names[1], other.listening_at, PATIENCE_SECONDS)
    other.wait_for_peers([names[0]], PATIENCE_SECONDS)


class Layers:
    """A sender whose layers go by two queues, and a receiver."""

    def __init__(self, make: Make, queues: TwoQueues) -> None:
        self.sender, self.receiver = make("sender", 61, two_queues=queues), make("receiver", 62)
        connect(self.sender, self.receiver, ("sender", "receiver"))
        self.tensor = np.arange(5000, dtype=np.float32)

    def post(self, layer: int) -> Transfer:
        return self.sender.post_send("receiver", self.tensor, tensor=layer, round_number=1, layer=layer)

    def receive(self, layer: int) -> set[int]:
        """The code points that its packets had."""
        buffer = np.zeros_like(self.tensor)
        done = self.receiver.post_recv("sender", buffer, tensor=layer, round_number=1).wait(PATIENCE_SECONDS)
        assert (buffer == self.tensor).all()
        assert done.statistics is not None
        return {entry.dscp for entry in done.statistics.classes}


def test_only_the_foremost_layer_that_is_on_its_way_is_served_first(make: Make) -> None:
    queues = TwoQueues(HIGH, LOW)
    layers = Layers(make, queues)
    first, last = layers.post(1), layers.post(7)
    assert layers.receive(7) == {LOW}
    last.wait(PATIENCE_SECONDS)
    middle = layers.post(4)
    first.cancel()
    with pytest.raises(CancelledError):
        first.wait(PATIENCE_SECONDS)
    assert layers.receive(4) == {HIGH}
    middle.wait(PATIENCE_SECONDS)
    assert {queues.dscp(layer) for layer in range(10)} == {HIGH}  # nothing is on its way


def test_what_was_never_posted_is_not_on_its_way(make: Make) -> None:
    queues = TwoQueues(HIGH, LOW)
    layers = Layers(make, queues)
    layers.post(3)
    with pytest.raises(UserInputError, match="posted already"):
        layers.post(3)
    layers.sender.close()
    assert queues.dscp(9) == HIGH
    with pytest.raises(AgentError):
        layers.post(4)
    assert queues.dscp(9) == HIGH


def test_a_code_point_of_ones_own_goes_before_it(make: Make) -> None:
    queues = TwoQueues(HIGH, LOW)
    layers = Layers(make, queues)
    layers.sender.post_send("receiver", layers.tensor, tensor=2, round_number=1, dscp=20, layer=2)
    assert queues.dscp(9) == HIGH
    assert layers.receive(2) == {20}


def test_without_either_there_is_none(make: Make) -> None:
    agent = make("sender", 63)
    with pytest.raises(UserInputError, match="no code point"):
        agent.post_send("receiver", np.zeros(1, np.float32), tensor=1, round_number=1)


def test_peers_share_one_rate(make: Make) -> None:
    """Two tensors of 2 MB at 100 Mbit/s together: no receiver's share is left to the other."""
    total_bps, elements = 100e6, 500_000
    sender = make("sender", 64, total_rate_bps=total_bps)
    names = ("left", "right")
    receivers = {name: make(name, 65 + place) for place, name in enumerate(names)}
    for name, receiver in receivers.items():
        connect(sender, receiver, ("sender", name))
    tensor = np.arange(elements, dtype=np.float32)
    buffers = {name: np.zeros_like(tensor) for name in names}
    begun = time.monotonic()
    there = [
        receiver.post_recv("sender", buffers[name], tensor=1, round_number=1)
        for name, receiver in receivers.items()
    ]
    for name in names:
        sender.post_send(name, tensor, tensor=1, round_number=1, dscp=HIGH)
    for transfer in there:
        transfer.wait(PATIENCE_SECONDS)
    # A machine that is too slow takes longer; none may be faster than the rate and the credit to begin with.
    least_seconds = (len(names) * tensor.nbytes - 4 * 65_536) * 8 / total_bps
    assert time.monotonic() - begun >= least_seconds
    assert all((buffer == tensor).all() for buffer in buffers.values())


def test_a_rate_of_nothing_for_all() -> None:
    with pytest.raises(ValueError, match="for all peers"):
        AgentSettings(
            name="one",
            addresses=("127.0.0.1",),
            security=Plaintext(),
            rate=RATE,
            control_dscp=40,
            total_rate_bps=0,
        )


def test_a_full_queue_of_the_device_keeps_no_processor_busy(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket can be written all the time; the tensor arrives when the queue has room."""
    sender, receiver = make("sender", 61), make("receiver", 62)
    connect(sender, receiver, ("sender", "receiver"))
    real, tries = outgoing.send_messages, 0
    full_until_ns: int | None = None

    def full(descriptor: int, address: int, count: int, pieces: int) -> int:
        nonlocal tries, full_until_ns
        if full_until_ns is None:  # from the first try on, however long the machine takes to come to it
            full_until_ns = time.monotonic_ns() + FULL_NS
        if time.monotonic_ns() < full_until_ns:
            tries += 1
            return -errno.ENOBUFS
        return real(descriptor, address, count, pieces)

    monkeypatch.setattr(outgoing, "send_messages", full)
    data, buffer = np.arange(5000, dtype=np.float32), np.zeros(5000, np.float32)
    there = receiver.post_recv("sender", buffer, tensor=1, round_number=1)
    sender.post_send("receiver", data, tensor=1, round_number=1, dscp=LOW)
    there.wait(PATIENCE_SECONDS)
    assert (buffer == data).all()
    doublings = (LONGEST_PAUSE_NS // SHORTEST_PAUSE_NS).bit_length()
    assert 1 < tries <= FULL_NS // LONGEST_PAUSE_NS + doublings + 1
