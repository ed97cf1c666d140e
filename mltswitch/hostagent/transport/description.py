"""The interface of transports, which carry one tensor between two hosts and do nothing else.

A transport is a module of this package, its name without underscore, with an object `TRANSPORT`, or an entry
point of the group `mltswitch.transports` that names one. The agent does all else: connecting, channels,
defaults and completions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, Final, Protocol

from pydantic import BaseModel

import mltswitch.hostagent.transport as room
from mltswitch.errors import UserInputError
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.transport.records import (
    Completion,
    ConnectionSnapshot,
    RateController,
    Receive,
    Send,
    TransferStatistics,
)

ENTRY_POINT_GROUP: Final = "mltswitch.transports"


class Ticket(Protocol):
    """One transfer as its transport sees it; safe to use from several threads."""

    request: Send | Receive

    def wait(self, timeout_seconds: float | None) -> bool:
        """Wait until the transfer has ended, without holding the GIL; False after the timeout."""

    def notify(self, callback: Callable[[], object]) -> None:
        """Have a function called in the engine's thread when the transfer ends; soon, if it has ended."""

    def completion(self) -> Completion | None:
        """The completion, None while the transfer is open; with it the memory is the user's again."""

    def statistics(self) -> TransferStatistics:
        """Statistics of the transfer so far; not to be called after `completion`."""

    def finish(self) -> None:
        """Complete a receive with what has arrived; does nothing if it has ended."""

    def cancel(self, reason: str) -> None:
        """Fail the transfer with CancelledError, here and at the peer; does nothing if it has ended."""

    def retag(self, dscp: int) -> None:
        """Set the DSCP of a send's further packets; does nothing if it has ended."""


class Connection(Protocol):
    """The connection with one peer on one channel. Posting is thread-safe; the engine calls the rest."""

    def post_sends(self, requests: Sequence[Send]) -> Sequence[Ticket]:
        """Post sends, all of which begin, or none; raises AgentError."""

    def post_receives(self, requests: Sequence[Receive]) -> Sequence[Ticket]:
        """Post receives, all of which begin, or none; raises AgentError."""

    def send_message(self, message: bytes) -> bool:
        """Send a message, reliably and in order; False if the peer has too many unread messages."""

    def take_message(self) -> bytes | None:
        """The peer's next message; None if there is none."""

    def frame_received(self, body: dict[str, Any]) -> None:
        """Handle a frame from the peer's end of the transport; raises ProtocolViolationError."""

    def is_settled(self) -> bool:
        """Whether the peer has heard all that this end has said: how receives ended, above all."""

    def set_rate(self, cap_bps: float | None, controller: RateController | None) -> None:
        """Set a rate cap, or a user's controller; raises UserInputError if there is no rate control."""

    def close(self, error: AgentError) -> None:
        """Close the connection; all that is open fails with a copy of this error."""

    def snapshot(self) -> ConnectionSnapshot:
        """The connection's counters as they are now."""


class TransportEngine(Protocol):
    """An agent's end of one transport. All but `close` are called in the engine's thread."""

    def offer(self, peer: str, channel: str) -> dict[str, Any]:
        """What the peer needs to know to connect, as JSON data; raises AgentError if that is nothing."""

    def withdraw(self, ours: dict[str, Any]) -> None:
        """Take back an offer that led to no connection, and free its tokens."""

    def accept(self, peer: str, channel: str, ours: dict[str, Any], theirs: dict[str, Any]) -> Connection:
        """Connect with the peer, given both offers; raises PeerRefusedError if they do not fit."""

    def counters(self) -> Mapping[str, int]:
        """Counters for all peers together, by name; may be called from any thread."""

    def close(self) -> None:
        """Release the transport's resources, in bounded time, after all its connections are closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """Description of a transport, by which it is registered."""

    name: str
    settings: type[BaseModel]
    """Model of the transport's section in the agent's file, which has the transport's name."""
    open: Callable[[Any], TransportEngine]
    """Opens the transport's end for an agent (a TransportHost), in the engine's thread; raises MachineError,
    UserInputError."""
    importance: str | None = None
    """Importance policy of sends if neither they nor the file name one; None: the default of the file."""
    sends_datagrams: bool = False
    """Whether the transport makes packets and bursts itself."""
    closes_early: bool = False
    """Whether a receive may belong to a gather, which ends several of them early together; then `settings` is
    of the kind EarlyCloseSettings."""


@cache
def transports() -> Mapping[str, Transport]:
    """All transports by name, in alphabetical order."""
    names = [found.name for found in iter_modules(room.__path__) if "_" not in found.name]
    modules = (import_module(f"{room.__name__}.{name}") for name in names)
    found = [module.TRANSPORT for module in modules if hasattr(module, "TRANSPORT")]
    found += [entry.load() for entry in entry_points(group=ENTRY_POINT_GROUP)]
    return MappingProxyType({entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)})


def transport_named(name: str, *, where: str = "transport") -> Transport:
    """The transport of this name; raises UserInputError that lists the known ones."""
    try:
        return transports()[name]
    except KeyError:
        raise UserInputError(
            f"unknown transport {name[:60]!r}", where=where, expected=f"one of {', '.join(transports())}"
        ) from None
