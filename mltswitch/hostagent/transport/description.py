"""What a transport is to the agent: how one tensor crosses between two hosts, and nothing else.

A transport is a module of this package, its name without underscore, with an object `TRANSPORT`, or an entry
point of the group `mltswitch.transports` that names one. All else, connecting, channels, defaults and
completions, is the agent's.
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
    """One transfer inside a transport. Any thread may call."""

    request: Send | Receive

    def wait(self, timeout_seconds: float | None) -> bool:
        """Until it is done; False when the time is up. Holds no lock of the interpreter meanwhile."""

    def notify(self, callback: Callable[[], object]) -> None:
        """Call once it is done, in the engine's thread; soon, where it is done already."""

    def completion(self) -> Completion | None:
        """None while it is open. Called once more after it is done; the memory is the user's from then on."""

    def statistics(self) -> TransferStatistics:
        """As far as it is now; not after `completion`."""

    def finish(self) -> None:
        """A receive takes what is there; nothing happens where it is over."""

    def cancel(self, reason: str) -> None:
        """Fail with CancelledError, here and at the peer; nothing happens where it is over."""

    def retag(self, dscp: int) -> None:
        """Later packets of a send have this code point; nothing happens where it is over."""


class Connection(Protocol):
    """One peer on one channel. Any thread may call what posts; the engine calls the rest."""

    def post_sends(self, requests: Sequence[Send]) -> Sequence[Ticket]:
        """All begin, or none; raises AgentError."""

    def post_receives(self, requests: Sequence[Receive]) -> Sequence[Ticket]:
        """All begin, or none; raises AgentError."""

    def send_message(self, message: bytes) -> bool:
        """Reliable and in order; False while the peer has too many to read."""

    def take_message(self) -> bytes | None:
        """The next one of the peer's."""

    def frame_received(self, body: dict[str, Any]) -> None:
        """The peer's end of the transport says something; raises ProtocolViolationError."""

    def is_settled(self) -> bool:
        """Whether the peer has heard all that this end has said: how receives ended, above all."""

    def set_rate(self, cap_bps: float | None, controller: RateController | None) -> None:
        """Another cap, or somebody else's control of the rate; raises UserInputError where there is none."""

    def close(self, error: AgentError) -> None:
        """Whatever is open fails with a copy of this."""

    def snapshot(self) -> ConnectionSnapshot:
        """What has been counted until now."""


class TransportEngine(Protocol):
    """An agent's end of one transport. All but `close` are called in the engine's thread."""

    def offer(self, peer: str, channel: str) -> dict[str, Any]:
        """What the peer needs to know, as JSON has it; raises AgentError where nothing can be offered."""

    def withdraw(self, ours: dict[str, Any]) -> None:
        """An offer that came to nothing: its tokens are free again."""

    def accept(self, peer: str, channel: str, ours: dict[str, Any], theirs: dict[str, Any]) -> Connection:
        """Both offers are known; raises PeerRefusedError where they do not fit, or are malformed."""

    def counters(self) -> Mapping[str, int]:
        """What is counted for all peers together, by name; any thread may ask."""

    def close(self) -> None:
        """All connections are closed already. Bounded in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """The description that is registered."""

    name: str
    settings: type[BaseModel]
    """Its section of the agent's file, under its name."""
    open: Callable[[Any], TransportEngine]
    """Opens sockets and the like for a TransportHost, in the engine's thread; raises MachineError,
    UserInputError."""
    importance: str | None = None
    """Policy of sends where neither they nor the file name one; None: that of the file's defaults."""
    sends_datagrams: bool = False
    """Whether packets and their bursts are its own."""
    closes_early: bool = False
    """Whether a receive may belong to a gather, which ends several of them early together; then `settings` is
    of the kind EarlyCloseSettings."""


@cache
def transports() -> Mapping[str, Transport]:
    """Name → description, in alphabetical order."""
    names = [found.name for found in iter_modules(room.__path__) if "_" not in found.name]
    modules = (import_module(f"{room.__name__}.{name}") for name in names)
    found = [module.TRANSPORT for module in modules if hasattr(module, "TRANSPORT")]
    found += [entry.load() for entry in entry_points(group=ENTRY_POINT_GROUP)]
    return MappingProxyType({entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)})


def transport_named(name: str, *, where: str = "transport") -> Transport:
    """Raises UserInputError listing the known ones."""
    try:
        return transports()[name]
    except KeyError:
        raise UserInputError(
            f"unknown transport {name[:60]!r}", where=where, expected=f"one of {', '.join(transports())}"
        ) from None
