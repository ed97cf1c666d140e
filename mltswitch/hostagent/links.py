"""One peer as the engine sees it: its control channel, its connection, and what sends to it."""

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from socket import socket
from typing import Final

from mltswitch.hostagent.control.channel import ControlChannel
from mltswitch.hostagent.errors import AgentError, PeerRefusedError
from mltswitch.hostagent.network.outgoing import Output, rest_of
from mltswitch.hostagent.network.waiting import READABLE, WRITABLE
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram
from mltswitch.hostagent.transport.hello import KEY_BYTES, PeerHello, Secrets
from mltswitch.hostagent.transport.interfaces import TransferKey
from mltswitch.hostagent.transport.messages import Goodbye, encode_message

_log = logging.getLogger(__name__)

BATCH_PACKETS = 8192
"""Offered to the kernel at once; a chunk of the transport's."""
BATCHES = 4
"""In a row at the most,"""
TURN_PACKETS = BATCH_PACKETS
TURN_BYTES = 12_000_000
"""or about so much: then others get their turn."""
SHORTEST_PAUSE_NS: Final = 50_000
LONGEST_PAUSE_NS: Final = 5_000_000


def new_secrets() -> Secrets:
    """Random ones of a connection."""
    return Secrets(secrets.randbits(64), secrets.token_bytes(KEY_BYTES))


class Pause:
    """Leaves the kernel alone where nobody tells when it has room again: longer each time, until it takes
    something."""

    def __init__(self) -> None:
        self.until_ns: int | None = None
        """None: there is none."""
        self._next_ns = SHORTEST_PAUSE_NS

    def begin(self, now_ns: int) -> None:
        """It has no room."""
        self.until_ns = now_ns + self._next_ns
        self._next_ns = min(2 * self._next_ns, LONGEST_PAUSE_NS)

    def end(self) -> None:
        """It has taken something."""
        self.until_ns, self._next_ns = None, SHORTEST_PAUSE_NS

    def is_over(self, now_ns: int) -> bool:
        """Whether to try; True means that it is tried now."""
        if self.until_ns is not None and now_ns < self.until_ns:
            return False
        self.until_ns = None
        return True


@dataclass(slots=True, eq=False)
class Link:
    """Everything of one peer."""

    channel: ControlChannel
    expected: str | None
    """Whom we connect to; None: the peer connected to us."""
    connection: Connection | None = None
    """None until the peer's channel is open."""
    sender: Output | None = None
    """None until the peer has said where it is."""
    rest: Bursts | None = None
    """Bursts that the kernel has not taken yet."""
    late: list[Datagram] = field(default_factory=list)
    """Small datagrams that it has not taken yet."""
    rest_socket: socket | None = None
    """Whose room the rest waits for; None: what the pause is for."""
    late_socket: socket | None = None
    pause: Pause = field(default_factory=Pause)
    is_welcome: bool = False
    """Whether the peer is connected by it, under its name."""
    is_held_back: bool = False
    """The peer's call waits for what becomes of ours."""
    is_awake: bool = True
    """Whether something has happened to it since it was served."""
    due_ns: int | None = None
    """When it is to be served although nothing happens; None: never."""

    def close(self, leave: Callable[[int], None]) -> None:
        """Close the channel; its descriptor is left before it becomes somebody else's."""
        leave(self.channel.fileno())
        self.channel.close()

    def wake_if_due(self, ready: set[int], now_ns: int) -> None:
        """`ready`: descriptors that may be read or written."""
        if self.is_awake:
            return
        self.is_awake = (
            (self.due_ns is not None and self.due_ns <= now_ns)
            or self.channel.fileno() in ready
            or any(blocked.fileno() in ready for blocked in self.blocked_sockets)
        )

    def rest_until_due(self) -> None:
        """It has been served."""
        self.is_awake = False
        times = [self.channel.next_timer_ns(), self.pause.until_ns]
        due_ns = None if self.connection is None else self.connection.next_timer_ns()
        if due_ns is not None:
            # What is due has been tried, and waits for the same room.
            times.append(max(due_ns, self.pause.until_ns or due_ns))
        self.due_ns = min((time_ns for time_ns in times if time_ns is not None), default=None)

    @property
    def name(self) -> str:
        """Of the peer, as well as it is known: what a caller claims counts once it is welcome. Else anybody
        could fail in the name of others."""
        if self.expected is not None:
            return self.expected
        return (self.claimed_name if self.is_welcome else None) or self.channel.peer

    @property
    def claimed_name(self) -> str | None:
        """As its HELLO says; None before that."""
        hello = self.connection.peer if self.connection else None
        return hello.name if hello else None

    @property
    def sprayer(self) -> PathSprayer | None:
        """Of the paths to the peer; None before its HELLO, and over TCP."""
        found = self.connection.sprayer if self.connection else None
        return found if isinstance(found, PathSprayer) else None

    @property
    def blocked_sockets(self) -> list[socket]:
        """Whose buffers are full: what waits goes on when they have room."""
        rest = self.rest_socket if self.rest is not None else None
        late = self.late_socket if self.late else None
        return [entry for entry in (rest, late) if entry is not None]

    def wanted(self) -> dict[int, int]:
        """Descriptors, and what to wait for."""
        found: dict[int, int] = {}
        descriptor = self.channel.fileno()
        if descriptor >= 0:
            found[descriptor] = (READABLE if self.channel.wants_read else 0) | (
                WRITABLE if self.channel.wants_write else 0
            )
        for blocked in self.blocked_sockets:
            found[blocked.fileno()] = READABLE | WRITABLE
        return found

    def check_peer(self, hello: PeerHello) -> None:
        """Raises PeerRefusedError where the peer is not whom its certificate names."""
        if self.channel.is_authenticated and hello.name != self.channel.peer:
            raise PeerRefusedError(
                f"calls itself {hello.name!r}, its certificate is of {self.channel.peer!r}",
                peer=self.channel.peer,
            )
        if self.expected is not None and hello.name != self.expected:
            raise PeerRefusedError(
                f"calls itself {hello.name!r}: connect to it by that name, or mend its configuration",
                peer=self.expected,
            )

    def send_data(self, now: Callable[[], int]) -> bool:
        """What may leave; whether there is more that may leave at once."""
        if self.sender is None or self.connection is None or not self.pause.is_over(now()):
            return False
        if self.rest is not None:
            if not self._is_taken(self.sender, self.rest, now):
                return False
            self.rest = None
            self._send_late(self.connection.markers_to_send(now()), now())
        packets = size_bytes = 0
        for _ in range(BATCHES):
            bursts = self.connection.bursts(now(), BATCH_PACKETS)
            if bursts is None or not self._is_taken(self.sender, bursts, now):
                return False
            self._send_late(self.connection.markers_to_send(now()), now())
            packets += bursts.packet_count
            size_bytes += int(bursts.payload_bytes.sum())
            if packets >= TURN_PACKETS or size_bytes >= TURN_BYTES:
                break
        return True

    def _is_taken(self, sender: Output, bursts: Bursts, now: Callable[[], int]) -> bool:
        """Whether all of it has left; what has not is the rest."""
        taken = sender.send(bursts)
        if taken:
            self.pause.end()
        if taken == bursts.packet_count:
            return True
        self.rest, self.rest_socket = rest_of(bursts, taken), sender.blocked_socket
        if self.rest_socket is None:
            self.pause.begin(now())
        return False

    def forget(self, key: TransferKey) -> None:
        """A tensor is the user's again: nothing of it may leave any more, it may be another one by now."""
        if self.rest is not None:
            first = self.rest.headers[0]
            if (int(first["tensor"]), int(first["round"])) == (key.tensor, key.round_number):
                self.rest = None

    def send_small(self, now_ns: int) -> None:
        """Acknowledgements and path probes."""
        if self.sender is None or self.connection is None:
            return
        self._send_late(self.connection.datagrams_to_send(now_ns), now_ns)

    def _send_late(self, more: Sequence[Datagram], now_ns: int) -> None:
        if self.sender is None:
            return
        self.late += more
        if not self.late or not self.pause.is_over(now_ns):
            return
        del self.late[: self.sender.send_datagrams(self.late)]
        self.late_socket = self.sender.blocked_socket
        if self.late and self.late_socket is None:
            self.pause.begin(now_ns)
        elif not self.late and self.rest is None:
            self.pause.end()

    def look_at_control(self, now_ns: int) -> None:
        """Spare the connection repeating itself where the peer's kernel has what it said."""
        connection = self.connection
        if connection is not None and connection.is_waiting_to_be_heard and self.channel.has_arrived:
            connection.control_arrived(now_ns)

    def tell_why(self, error: AgentError) -> None:
        """The other end's channel is about to be closed."""
        if self.connection is not None and self.connection.greeting.is_addressed and self.channel.is_open:
            with suppress(AgentError):  # it leaves anyway
                self.channel.send(encode_message(Goodbye(error.what)))
                self.channel.flush()

    def say_goodbye(self, reason: str, now_ns: int) -> None:
        """To a peer that may still hear it."""
        if self.connection is None:
            return
        self.connection.close(reason, now_ns)
        try:
            self.flush_control()
        except AgentError as error:
            _log.debug("no goodbye: %s", error)

    def flush_control(self) -> None:
        """What the connection says goes into the channel; raises AgentError where the peer does not read."""
        if self.connection is not None and not self.channel.has_ended:
            data = self.connection.control_to_send()
            if data:
                self.channel.send(data)
        self.channel.flush()
