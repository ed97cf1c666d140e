"""The agent as its transports see it."""

import asyncio
from typing import Any, Protocol

from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.telemetry.events import AgentEvent


class TransportHost(Protocol):
    """What an agent gives its transports. Only the engine's thread may call, but for `loop`'s own doors."""

    @property
    def config(self) -> AgentConfig:
        """Resolved."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The engine's."""

    def send_frame(self, peer: str, channel: str, body: dict[str, Any]) -> None:
        """To the other end of the connection, on the control channel."""

    def tell(self, event: AgentEvent) -> None:
        """Observers."""

    def message_arrived(self, peer: str, channel: str) -> None:
        """There is something to take."""

    def connection_failed(self, peer: str, error: AgentError) -> None:
        """The peer is gone, or breaks the protocol: the agent disconnects, and closes all its channels."""

    def warn(self, text: str) -> None:
        """What the user should know about this machine."""
