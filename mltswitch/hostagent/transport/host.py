"""The agent as its transports see it."""

import asyncio
from typing import Any, Protocol

from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.telemetry.events import AgentEvent


class TransportHost(Protocol):
    """What an agent offers its transports; for the engine's thread, but for `loop`'s thread-safe methods."""

    @property
    def config(self) -> AgentConfig:
        """The agent's settings, resolved."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the engine's thread."""

    def send_frame(self, peer: str, channel: str, body: dict[str, Any]) -> None:
        """Send a frame to the transport's other end on a channel, by the control connection."""

    def tell(self, event: AgentEvent) -> None:
        """Tell the agent's observers of an event."""

    def message_arrived(self, peer: str, channel: str) -> None:
        """Report that a message of the peer can be received on a channel."""

    def connection_failed(self, peer: str, error: AgentError) -> None:
        """The peer is gone, or breaks the protocol: the agent disconnects, and closes all its channels."""

    def warn(self, text: str) -> None:
        """Warn the user about this machine."""
