"""Two agents on loopback, and an observer that remembers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.completions import Completion
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.telemetry.events import AgentEvent
from mltswitch.hostagent.transport.rate import RateSettings

DSCP, CONTROL_DSCP = 34, 40
PATIENCE_SECONDS = 60.0
RATE = RateSettings.for_network(10e9, queue_bytes=0, noise_ns=10**9)

Event = TypeVar("Event")


class Remembering:
    """Keeps all events."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: list[AgentEvent] = []

    def observe(self, event: AgentEvent) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    @property
    def events(self) -> list[AgentEvent]:
        with self._changed:
            return list(self._events)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def wait_for(self, kind: type[Event], count: int = 1) -> list[Event]:
        with self._changed:
            assert self._changed.wait_for(
                lambda: sum(isinstance(event, kind) for event in self._events) >= count, PATIENCE_SECONDS
            ), f"{count} of {kind.__name__} among {self._events}"
        return self.of(kind)


@contextmanager
def agent(name: str, place: int, **options: Any) -> Iterator[Agent]:
    settings = AgentSettings(
        name=name,
        addresses=tuple(f"127.0.{place}.{number}" for number in range(1, 5)),
        security=Plaintext(),
        control_dscp=CONTROL_DSCP,
        data_port=0,
        rate=RATE,
        listen=Endpoint(f"127.0.{place}.1", 0),
        **options,
    )
    with Agent(settings) as made:
        yield made


@contextmanager
def pair(
    sender_options: dict[str, Any] | None = None, receiver_options: dict[str, Any] | None = None
) -> Iterator[tuple[Agent, Agent]]:
    with (
        agent("host-a", 61, **(sender_options or {})) as sender,
        agent("host-b", 62, **(receiver_options or {})) as receiver,
    ):
        join(sender, receiver)
        yield sender, receiver


def join(sender: Agent, receiver: Agent) -> None:
    assert receiver.listening_at is not None
    sender.connect("host-b", receiver.listening_at, PATIENCE_SECONDS)
    receiver.wait_for_peers(["host-a"], PATIENCE_SECONDS)


def transfer(
    sender: Agent, receiver: Agent, round_number: int = 1, count: int = 100_003
) -> tuple[Completion, Completion]:
    original = np.random.default_rng(round_number).standard_normal(count).astype(np.float32)
    buffer = np.zeros_like(original)
    there = receiver.post_recv("host-a", buffer, tensor=3, round_number=round_number)
    here = sender.post_send("host-b", original, tensor=3, round_number=round_number, dscp=DSCP)
    done = here.wait(PATIENCE_SECONDS), there.wait(PATIENCE_SECONDS)
    assert (buffer == original).all()
    return done
