"""One end of an examination: messages over the control channel, datagrams on every path, in one thread.

Datagrams are sent at a bounded rate. Whoever listens sends to no address that is not proved: by the
certificate of who names it, or, in plain text, by a datagram with our token that came from it. Only questions
of a run that was announced are answered, each once, by one of the same size.
"""

import errno
import secrets
import selectors
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self

from mltswitch.hostagent.control.channel import ControlChannel
from mltswitch.hostagent.doctor.datagrams import Datagram, Kind, decode
from mltswitch.hostagent.doctor.messages import (
    PREAMBLE,
    AnyMessage,
    Decoder,
    Hello,
    Message,
    PathEnd,
    PathSent,
    Refuse,
    RefusedSize,
    Run,
    Seen,
    Sent,
    cut,
    encode,
)
from mltswitch.hostagent.doctor.ports import Arrival, Port
from mltswitch.hostagent.doctor.settings import DoctorSettings
from mltswitch.hostagent.doctor.tally import Tally
from mltswitch.hostagent.errors import (
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
)
from mltswitch.hostagent.network.features import interface_mtu_bytes
from mltswitch.hostagent.network.netlink import interface_with

DATAGRAMS_PER_SECOND: Final = 4_000
"""Of all paths together: no queue of a switch notices, and a slow host follows."""
BYTES_PER_SECOND: Final = 12_500_000
"""100 Mbit/s."""
QUESTION_SECONDS: Final = 0.001
"""Between questions: none waits behind another's answer."""
SENT_AT_ONCE: Final = 8
"""Then the arriving ones have their turn."""
LINGER_SECONDS: Final = 0.5
"""What has not arrived so long after the last that did is lost: longer than any queue of a data centre."""
MAXIMUM_LINGER_SECONDS: Final = 5.0
GREETING_SECONDS: Final = 5.0
"""For the first message: whoever is a doctor says it at once."""
ANSWER_SECONDS: Final = 30.0
"""For each other message that is waited for."""
BUFFER_WAIT_SECONDS: Final = 2.0
MAXIMUM_MESSAGES: Final = 16
"""That wait to be read; the conversation takes turns, so that two are many."""
_FULL: Final = {errno.EAGAIN, errno.ENOBUFS}
_DEFAULT_MTU_BYTES: Final = 1500
_LEAST_MTU_BYTES: Final = 68
"""RFC 791."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """A question and its answer; the peer's times are of its own clock."""

    path: int
    sent_ns: int
    peer_received_ns: int
    peer_sent_ns: int
    received_ns: int

    @property
    def duration_ns(self) -> int:
        """On the way, without the time in which the peer held it."""
        return self.received_ns - self.sent_ns - (self.peer_sent_ns - self.peer_received_ns)

    @property
    def offset_ns(self) -> int:
        """The peer's clock less ours, if both ways take the same time."""
        return (self.peer_received_ns - self.sent_ns + self.peer_sent_ns - self.received_ns) // 2


class Conversation:
    """Takes the channel and closes it; every AgentError is its end."""

    def __init__(
        self,
        channel: ControlChannel,
        ports: Sequence[Port],
        settings: DoctorSettings,
        *,
        is_examiner: bool,
        said: bytes = b"",
    ) -> None:
        """`said`: what has come on the channel already."""
        self._said = said
        self._channel, self._ports, self._settings = channel, ports, settings
        self._is_examiner = is_examiner
        self._token = secrets.randbits(64)
        self._selector = selectors.DefaultSelector()
        self._decoder = Decoder(str(channel.remote))
        self._heard: deque[Message] = deque()
        self._tally: Tally | None = None
        self._dropped_before: dict[int, int] = {}
        self._last_arrival = 0.0
        self._proved: set[int] = set()
        self._asked: dict[tuple[int, int], int] = {}
        self._peer: Hello | None = None
        self.round_trips: list[RoundTrip] = []
        self.ignored_datagrams = 0
        self.sent_datagrams = 0
        self._selector.register(channel, selectors.EVENT_READ)
        self.own_paths = tuple(map(_own_end, ports))
        for path, port in enumerate(ports):
            self._selector.register(port, selectors.EVENT_READ, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Tell the peer why, where it is we who leave."""
        if isinstance(error, ProtocolViolationError | PeerRefusedError) and self._channel.is_open:
            self._channel.send(encode(Refuse(reason=cut(error.what))))
        self._selector.close()
        self._channel.close()

    @property
    def peer(self) -> Hello:
        """After `greet`."""
        if self._peer is None:
            raise RuntimeError("the peer has not been greeted")
        return self._peer

    @property
    def peer_name(self) -> str:
        """Proved where the channel is, else as the peer calls itself."""
        if self._channel.is_authenticated or self._peer is None:
            return self._channel.peer or str(self._channel.remote)
        return self._peer.name

    def greet(self) -> None:
        """Exchange hellos; raises AgentError where the paths of both ends do not fit."""
        ends = self.own_paths
        hello = Hello(name=self._settings.name, token=f"{self._token:016x}", paths=ends)
        self._channel.send(PREAMBLE + encode(hello))
        self._channel.flush()
        said, self._said = self._said, b""
        self._heard += self._decoder.feed(said)
        heard = self._hear_hello()
        if len(heard.paths) != len(ends):
            raise PeerRefusedError(
                f"has {len(heard.paths)} paths where we have {len(ends)}: give both ends one address a path, "
                "in the same order",
                peer=self.peer_name,
            )
        versions = {ip_address(end.address).version for end in (*ends, *heard.paths)}
        if len(versions) != 1:
            raise PeerRefusedError("its addresses are of another version of IP", peer=self.peer_name)
        self._peer = heard

    def _hear_hello(self) -> Hello:
        try:
            return self.hear(Hello, GREETING_SECONDS)
        except DeadlineExceededError:
            what = f"no doctor speaks there within {GREETING_SECONDS:g} s"
            if self._is_examiner:
                what = (
                    f"takes connections at {self._channel.remote}, and {what}: something else listens at "
                    "that port"
                )
            raise PeerUnreachableError(what, peer=self.peer_name) from None

    def say(self, message: Message) -> None:
        """Queue a message, and send what the kernel takes."""
        self._channel.send(encode(message))
        self._channel.flush()

    def hear(self, kind: type[AnyMessage], wait_seconds: float = ANSWER_SECONDS) -> AnyMessage:
        """The next message, which must be of this kind; raises AgentError."""
        message = self.hear_any(wait_seconds)
        if not isinstance(message, kind):
            raise ProtocolViolationError(
                f"says {message.kind!r} where {kind.__name__.lower()!r} is due", peer=self.peer_name
            )
        return message

    def hear_any(self, wait_seconds: float = ANSWER_SECONDS) -> Message:
        """The next message; raises AgentError, and PeerRefusedError with the reason that the peer gives."""
        deadline = time.monotonic() + wait_seconds
        while not self._heard:
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlineExceededError(f"has said nothing for {wait_seconds:g} s", peer=self.peer_name)
            self.pump(left)
        message = self._heard.popleft()
        if isinstance(message, Refuse):
            raise PeerRefusedError(message.reason, peer=self.peer_name)
        return message

    def hear_sent(self, run: Run) -> Sent:
        """What the peer says to have sent of this run: each path once."""
        heard = self.hear(Sent)
        self._require_report(run, heard.number, [entry.path for entry in heard.paths])
        return heard

    def hear_seen(self, run: Run) -> Seen:
        """What the peer says to have seen of this run: each path once."""
        heard = self.hear(Seen)
        self._require_report(run, heard.number, [entry.path for entry in heard.paths])
        return heard

    def _require_report(self, run: Run, number: int, paths: Sequence[int]) -> None:
        if number != run.number or tuple(paths) != run.paths:
            raise ProtocolViolationError("reports another run than it was asked for", peer=self.peer_name)

    def pump(self, seconds: float) -> None:
        """Handle what arrives; wait so long for it at most."""
        now_ns = time.monotonic_ns()
        self._channel.timer(now_ns)
        timer_ns = self._channel.next_timer_ns()
        if timer_ns is not None:
            seconds = min(seconds, (timer_ns - now_ns) / 1e9)
        events = (selectors.EVENT_READ if self._channel.wants_read else 0) | (
            selectors.EVENT_WRITE if self._channel.wants_write else 0
        )
        self._selector.modify(self._channel, events or selectors.EVENT_READ)
        for key, _ in self._selector.select(max(0.0, seconds)):
            if isinstance(key.fileobj, Port):
                for arrival in key.fileobj.arrivals():
                    self._arrived(key.data, arrival)
            else:
                self._heard += self._decoder.feed(self._channel.step(time.monotonic_ns()))
                if len(self._heard) > MAXIMUM_MESSAGES:
                    raise ProtocolViolationError("does not wait for answers", peer=self.peer_name)

    def expect(self, run: Run) -> None:
        """Count datagrams of this run from now on."""
        self.require_paths(run)
        self.pump(0)  # late ones of the run before
        self._tally = Tally(run)
        self._dropped_before = {path: self._ports[path].dropped() for path in run.paths}
        self._last_arrival = time.monotonic()

    def collect(self, sent: Sent) -> Seen:
        """Wait for what is still on its way, and say what has come."""
        tally = self._tally
        if tally is None or sent.number != tally.run.number:
            raise ProtocolViolationError("speaks of another run", peer=self.peer_name)
        numbers = {entry.path: entry.sent for entry in sent.paths}
        self._linger(lambda: tally.holds(numbers))
        dropped = {
            path: self._ports[path].dropped() - before for path, before in self._dropped_before.items()
        }
        self._tally = None
        return Seen(number=tally.run.number, paths=tally.result(dropped))

    def await_answers(self) -> None:
        """To the questions of the last run."""
        self._linger(lambda: not self._asked)
        self._asked.clear()

    def transmit(self, run: Run) -> Sent:
        """Send a run, paced; raises AgentError only for the control channel."""
        self.require_paths(run)
        self._asked.clear()
        targets = [path for path in run.paths if self._may_send(path)]
        sent = Counter[int]()
        refused: dict[int, Counter[tuple[int, int]]] = {path: Counter() for path in run.paths}
        due = time.monotonic()
        number = 0
        for sequence in range(run.datagrams_per_path):
            size = run.payload_bytes[sequence // len(run.traffic_bytes) % len(run.payload_bytes)]
            byte = run.traffic_bytes[sequence % len(run.traffic_bytes)]
            for path in targets:
                problem = self._send_one(run, path, sequence, byte, size)
                if problem:
                    refused[path][size, problem] += 1
                else:
                    sent[path] += 1
                pause = QUESTION_SECONDS if run.is_echoed else 1 / DATAGRAMS_PER_SECOND
                due += max(pause, size / BYTES_PER_SECOND)
                number += 1
                if run.is_echoed or number % SENT_AT_ONCE == 0:
                    self.pump(0)
                    while (left := due - time.monotonic()) > 0:
                        self.pump(left)
        self.sent_datagrams += sum(sent.values())
        return Sent(
            number=run.number,
            paths=tuple(
                PathSent(
                    path=path,
                    sent=sent[path],
                    refused=tuple(
                        RefusedSize(payload_bytes=size, error=problem, count=count)
                        for (size, problem), count in sorted(refused[path].items())[:64]
                    ),
                    is_withheld=path not in targets,
                )
                for path in run.paths
            ),
        )

    def require_paths(self, run: Run) -> None:
        """Raise ProtocolViolationError for a run on paths that do not exist."""
        if max(run.paths) >= len(self._ports):
            raise ProtocolViolationError("speaks of a path that nobody has", peer=self.peer_name)

    def _may_send(self, path: int) -> bool:
        # Who connected has chosen the peer; who listens waits for a proof.
        return self._channel.is_authenticated or self._is_examiner or path in self._proved

    def _linger(self, is_complete: Callable[[], bool]) -> None:
        """Until nothing is missing, or nothing more comes."""
        began = time.monotonic()
        self._last_arrival = max(self._last_arrival, began)
        while not is_complete():
            now = time.monotonic()
            left = min(
                self._last_arrival + LINGER_SECONDS - now,
                began + MAXIMUM_LINGER_SECONDS - now,
            )
            # What lies in the sockets already counts, however late we are.
            before = self._last_arrival
            self.pump(max(0.0, left))
            if left <= 0 and self._last_arrival == before:
                return

    def _send_one(self, run: Run, path: int, sequence: int, byte: int, size: int) -> int:
        """0, or the errno with which the kernel refused it."""
        end = self.peer.paths[path]
        deadline = time.monotonic() + BUFFER_WAIT_SECONDS
        while True:
            now_ns = time.monotonic_ns()
            kind = Kind.QUESTION if run.is_echoed else Kind.ONE_WAY
            datagram = Datagram(kind, byte, path, int(self.peer.token, 16), run.number, sequence, now_ns)
            try:
                self._ports[path].send(datagram.encode(size), byte, end.address, end.port)
            except OSError as error:
                if error.errno in _FULL and time.monotonic() < deadline:
                    self.pump(0.001)
                    continue
                return error.errno or errno.EIO
            if run.is_echoed:
                self._asked[path, sequence] = now_ns
            return 0

    def _arrived(self, path: int, arrival: Arrival) -> None:
        datagram = decode(arrival.data, self._token)
        if datagram is None or self._peer is None or datagram.path >= len(self._ports):
            self.ignored_datagrams += 1
            return
        end = self._peer.paths[datagram.path]
        if arrival.source == (end.address, end.port):
            self._proved.add(datagram.path)
        if datagram.kind is Kind.ANSWER:
            self._answered(datagram, arrival)
            return
        if self._tally is None:
            return
        self._last_arrival = time.monotonic()
        is_first = self._tally.add(datagram, path, arrival.traffic_byte, len(arrival.data))
        is_question = datagram.kind is Kind.QUESTION and self._tally.run.is_echoed
        if is_first and is_question and self._may_send(datagram.path):
            self._answer(datagram, arrival, end)

    def _answer(self, question: Datagram, arrival: Arrival, end: PathEnd) -> None:
        answer = Datagram(
            Kind.ANSWER,
            question.traffic_byte,
            question.path,
            int(self.peer.token, 16),
            question.run,
            question.sequence,
            time.monotonic_ns(),
            question.sent_ns,
            arrival.at_ns,
        )
        try:
            self._ports[question.path].send(
                answer.encode(len(arrival.data)), question.traffic_byte, end.address, end.port
            )
        except OSError:
            return  # the examiner counts what comes back
        self.sent_datagrams += 1

    def _answered(self, answer: Datagram, arrival: Arrival) -> None:
        asked_ns = self._asked.pop((answer.path, answer.sequence), None)
        if asked_ns is None or asked_ns != answer.question_sent_ns:
            return
        self._last_arrival = time.monotonic()
        self.round_trips.append(
            RoundTrip(answer.path, asked_ns, answer.question_received_ns, answer.sent_ns, arrival.at_ns)
        )


def _own_end(port: Port) -> PathEnd:
    interface = interface_with(port.address)
    mtu = interface_mtu_bytes(interface) if interface else _DEFAULT_MTU_BYTES
    limited = min(1 << 16, max(_LEAST_MTU_BYTES, mtu))
    return PathEnd(address=port.address, port=port.number, mtu_bytes=limited)
