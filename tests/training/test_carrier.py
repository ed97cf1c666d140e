"""What the carrier asks of an agent's channel."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent import CompletionQueue, ReceiveRequest, SendRequest
from mltswitch.hostagent.elements import memory_of
from mltswitch.training.axes import Direction, Post, Stage
from mltswitch.training.carrier import AgentCarrier
from mltswitch.training.job import OptimizerRule, make_job
from mltswitch.training.rounds import EPOCHS, MOST_STEPS
from mltswitch.training.shortening import round_to_short
from mltswitch.wire import ElementType


class Channel:
    """Notes what it is to send."""

    closes_early = False

    def __init__(self) -> None:
        self.sent: list[SendRequest] = []
        self.received: list[ReceiveRequest] = []

    def post_sends(self, _peer: str, requests: list[SendRequest], _completions: object) -> None:
        self.sent += requests

    def post_receives(self, _peer: str, requests: list[ReceiveRequest], _completions: object) -> None:
        self.received += requests


def order(posts: list[tuple[int, int, Stage]], **options: Any) -> list[int]:
    """In which posts of (number of the sum, layer, stage) leave, where all wait for their turn."""
    job = make_job([(f"layer{number}", 10_000) for number in range(4)], world=2, **options)
    channel = Channel()
    classes = SimpleNamespace(layers=None, gradient_dscp=(34, 26))
    agent: Any = SimpleNamespace(
        name="a", channel=lambda _name, transport: channel, config=SimpleNamespace(classes=classes)
    )
    carrier = AgentCarrier(job, agent, ["a", "b"], CompletionQueue())
    data = np.zeros(4, np.float32)
    carrier.post(
        [
            Post(Direction.SEND, 1, data, number, sum_ * EPOCHS, layer, stage, 0.0)
            for number, (sum_, layer, stage) in enumerate(posts)
        ]
    )
    keys = [request.priority for request in channel.sent]
    assert None not in keys
    return sorted(range(len(posts)), key=lambda at: keys[at] or 0)


@pytest.mark.parametrize("late", [3, MOST_STEPS - 2])
def test_older_sums_leave_first_then_front_layers_and_what_is_later_last(late: int) -> None:
    posts = [
        (late + 1, 0, Stage.NOW),
        (late, 3, Stage.NOW),
        (late - 1, 0, Stage.LATER),
        (late, 1, Stage.NOW),
        (late + 1, 2, Stage.NOW),
    ]
    assert order(posts) == [3, 1, 0, 4, 2]


def test_where_ranks_are_at_different_steps_numbers_say_nothing() -> None:
    rule = OptimizerRule("SGD", ({"lr": 0.1},), ((40_000, 0),))
    posts = [(7, 2, Stage.NOW), (1, 3, Stage.NOW), (9, 0, Stage.NOW)]
    assert order(posts, synchronization="asp", optimizer=rule) == [2, 0, 1]


def test_what_may_travel_short_does_and_arrives_as_it_was_added() -> None:
    job = make_job([("layer", 1000)], world=2, wire_type="bfloat16")
    channel = Channel()
    classes = SimpleNamespace(layers=None, gradient_dscp=(34, 26))
    agent: Any = SimpleNamespace(
        name="a", channel=lambda _name, transport: channel, config=SimpleNamespace(classes=classes)
    )
    carrier = AgentCarrier(job, agent, ["a", "b"], CompletionQueue())
    sent, ballot = np.linspace(-3, 3, 1000, dtype=np.float32), np.arange(9, dtype=np.float32) / 7
    came, counted = np.full(1000, np.nan, np.float32), np.full(9, np.nan, np.float32)
    for direction, data, figures in ((Direction.SEND, sent, ballot), (Direction.RECEIVE, came, counted)):
        carrier.post([Post(direction, 1, data, 0, 0, 0, Stage.NOW, 0.0, is_short=True)])
        carrier.post([Post(direction, 1, figures, 4, 0, 0, Stage.NOW, 0.0)])
    short, exact = channel.sent
    assert (memory_of(short.data, element_type=short.element_type).element_type, exact.data) == (
        ElementType.BFLOAT16,
        ballot,
    )
    for request, answer in zip(channel.received, channel.sent, strict=True):
        memory = memory_of(request.buffer, writable=True, element_type=request.element_type)
        memory.data[:] = memory_of(answer.data, element_type=answer.element_type).data
    said = SimpleNamespace(ending="complete", important_packets=0, bytes_received=8, first_ns=1, last_ns=2)
    for tensor in (0, 4):
        completion: Any = SimpleNamespace(
            direction=Direction.RECEIVE,
            peer="b",
            tensor=tensor,
            round_number=0,
            error=None,
            missing=(),
            statistics=said,
        )
        assert carrier.crossing(completion).error is None
    assert np.array_equal(counted, ballot)
    assert np.allclose(came, sent, rtol=2**-8)
    round_to_short(sent)
    assert np.array_equal(came, sent)
