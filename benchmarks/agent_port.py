"""The host agent as the benchmarks use it: everything that knows the public interface is here."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.agent_ends import CONTROL_PORT, RECEIVER, Settings, sender_name
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.credentials import Credentials
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.control.tls import load_identity
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.transport.rate import RateSettings
from mltswitch.hostagent.transport.settings import Transport

PATIENCE_SECONDS: Final = 30.0
NEVER_SLOWER_NS: Final = 10**9
"""Round trips that much longer than the base are still no reason to slow down."""


@dataclass(frozen=True, slots=True)
class Ended:
    """One transfer, complete."""

    peer: str
    slot: int
    completed_ns: int
    seconds: float
    packets: int
    packets_received: int
    packets_sent: int
    packets_resent: int

    @property
    def missing_share(self) -> float:
        """Of the packets."""
        return 1 - self.packets_received / self.packets


class Port(Protocol):
    """What a benchmark needs of an agent."""

    def send(self, peer: str, slot: int, round_number: int, tensor: NDArray[np.float32]) -> None:
        """Post a tensor; its memory is the agent's until it has ended."""
        ...

    def receive(
        self, peer: str, slot: int, round_number: int, buffer: NDArray[np.float32], loss_bound: float
    ) -> None:
        """Post a buffer."""
        ...

    def ended(self, timeout_seconds: float) -> Ended | None:
        """The next transfer that has ended; raises AgentError for one that failed; None: none in time."""
        ...


class _AgentPort:
    """An agent and its peers."""

    def __init__(self, agent: Agent, settings: Settings) -> None:
        self._agent = agent
        self._settings = settings

    def send(self, peer: str, slot: int, round_number: int, tensor: NDArray[np.float32]) -> None:
        self._agent.post_send(
            peer,
            tensor,
            tensor=slot,
            round_number=round_number,
            dscp=self._settings.dscp,
            burst_packets=self._settings.burst_packets,
            policy=self._settings.policy,
        )

    def receive(
        self, peer: str, slot: int, round_number: int, buffer: NDArray[np.float32], loss_bound: float
    ) -> None:
        self._agent.post_recv(peer, buffer, tensor=slot, round_number=round_number, loss_bound=loss_bound)

    def ended(self, timeout_seconds: float) -> Ended | None:
        done = self._agent.poll(timeout_seconds)
        if done is None:
            return None
        if done.error is not None:
            raise done.error
        found = done.statistics
        assert found is not None  # noqa: S101  (a transfer without an error has them)
        return Ended(
            done.peer,
            done.tensor,
            done.completed_ns,
            found.seconds,
            found.packets,
            found.packets_received,
            found.packets_sent,
            found.packets_resent,
        )


@contextmanager
def open_port(settings: Settings) -> Iterator[Port]:
    """An agent that is connected with all its peers; the receiver's prints "ready" as soon as it listens.

    Raises MachineError or AgentError.
    """
    is_receiver = settings.name == RECEIVER
    control = Endpoint(settings.receiver_address, CONTROL_PORT)
    rate = RateSettings.for_network(
        settings.line_rate_bps,
        queue_bytes=settings.queue_bytes,
        **({"noise_ns": NEVER_SLOWER_NS} if settings.is_steady else {}),
    )
    own = AgentSettings(
        name=settings.name,
        addresses=settings.addresses,
        security=load_identity(Credentials.in_folder(Path(settings.keys))),
        rate=rate,
        control_dscp=settings.control_dscp,
        listen=control if is_receiver else None,
        payload_bytes=settings.payload_bytes,
        expected_peers=settings.senders if is_receiver else 1,
        transport=Transport(settings.transport),
    )
    with Agent(own) as agent:
        if is_receiver:
            print("ready", flush=True)
            agent.wait_for_peers(
                [sender_name(number) for number in range(settings.senders)], PATIENCE_SECONDS
            )
        else:
            agent.connect(RECEIVER, control, PATIENCE_SECONDS)
        yield _AgentPort(agent, settings)
