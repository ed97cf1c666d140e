"""Agents on loopback, in plain text unless told otherwise, that are closed at the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.security import Plaintext, Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.transport.rate import RateSettings

CONTROL_DSCP = 40
RATE = RateSettings.for_network(10e9, queue_bytes=0, noise_ns=10**9)

PATIENCE_SECONDS = 60.0

Make = Callable[..., Agent]


@contextmanager
def opening() -> Iterator[Make]:
    """Called with a name, whose last letter says where its addresses are, and with settings."""
    agents: list[Agent] = []

    def one(name: str, addresses: int = 4, *, security: Security | None = None, **options: object) -> Agent:
        place = ord(name[-1]) % 100
        settings = AgentSettings(
            name=name,
            addresses=tuple(f"127.0.{place}.{number}" for number in range(1, 1 + addresses)),
            security=security or Plaintext(),
            control_dscp=CONTROL_DSCP,
            data_port=0,
            rate=RATE,
            listen=Endpoint(f"127.0.{place}.1", 0),
            **options,  # type: ignore[arg-type]  # any of the settings
        )
        agents.append(Agent(settings))
        return agents[-1]

    try:
        yield one
    finally:
        for agent in agents:
            agent.close()


def joined(make: Make, **options: object) -> tuple[Agent, Agent]:
    """host-a and host-b, connected."""
    sender, receiver = make("host-a", **options), make("host-b", **options)
    assert receiver.listening_at is not None
    sender.connect("host-b", receiver.listening_at, PATIENCE_SECONDS)
    receiver.wait_for_peers(["host-a"], PATIENCE_SECONDS)
    return sender, receiver
