"""The side that connects: examines the peer, and every path to and from it."""

import errno
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from mltswitch.hostagent.control.channel import ChannelSettings, ControlChannel
from mltswitch.hostagent.control.security import Security
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.doctor.clocks import ClockChange, ClockWatch
from mltswitch.hostagent.doctor.conversation import Conversation, RoundTrip
from mltswitch.hostagent.doctor.messages import (
    LEAST_PAYLOAD_BYTES,
    MAXIMUM_RUN_BYTES,
    MAXIMUM_RUN_DATAGRAMS,
    Expect,
    Findings,
    Finish,
    Finished,
    PathSeen,
    PathSent,
    Ready,
    Run,
    ToldFinding,
    Transmit,
)
from mltswitch.hostagent.doctor.ports import opened_ports
from mltswitch.hostagent.doctor.settings import DoctorSettings
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_PAYLOAD_BYTES
from mltswitch.wire import Ecn, TrafficClassByte

QUESTIONS: Final = 20
"""For round trips, on each path, twice."""
LOSS_DATAGRAMS: Final = 500
"""On each path in each direction."""
MANY_PATHS: Final = 8
"""Beyond them, code points are tried in one size."""
CODE_POINT_DATAGRAMS: Final = 20
"""Of each DSCP/ECN byte of which the first ones did not arrive: at 10 % loss all of them vanish once in 10²⁰
times."""
SEARCH_COPIES: Final = 4
"""Of each size: at 10 % loss all of them vanish once in 10,000 times."""
SEARCH_SIZES: Final = 16
"""Tried at once; 16 of 16 of 16 tell 4,096 sizes apart."""
MAXIMUM_MTU_BYTES: Final = 16_384
"""Nobody's cable takes longer packets; loopback and InfiniBand do, and are asked only if the job wants to."""


@dataclass(slots=True)
class Direction:
    """One path from one host to the other; all figures measured."""

    sent: Counter[int] = field(default_factory=Counter)
    """By DSCP/ECN byte, of the run that tries code points."""
    received: Counter[tuple[int, int]] = field(default_factory=Counter)
    """By the byte as sent and as received."""
    loss_sent: int = 0
    loss_arrived: int = 0
    """Of the run that measures loss, with full packets."""
    loss_payload_bytes: int = 0
    payload_limit_bytes: int = 0
    """Longest UDP payload that arrives; 0: not searched, or none does."""
    sender_limit_bytes: int | None = None
    """Shortest payload that the sender's own kernel refused; None: it refused none."""
    errors: Counter[int] = field(default_factory=Counter)
    """errno of what the sender's kernel refused for another reason."""
    doubled: int = 0
    misdirected: int = 0
    dropped_by_host: int = 0
    is_withheld: bool = False
    """The peer sent nothing: plain text, and no datagram of ours has reached it on this path."""

    @property
    def is_alive(self) -> bool:
        """Something has arrived."""
        return bool(self.received)


@dataclass(slots=True)
class PathResult:
    """One path, both directions."""

    number: int
    local: str
    remote: str
    header_bytes: int
    """Beside the UDP payload."""
    round_trips_ns: list[int] = field(default_factory=list)
    questions: int = 0
    outgoing: Direction = field(default_factory=Direction)
    incoming: Direction = field(default_factory=Direction)

    @property
    def round_trip_minimum_ns(self) -> int | None:
        """Of those answered."""
        return min(self.round_trips_ns, default=None)

    @property
    def round_trip_median_ns(self) -> float | None:
        """Of those answered."""
        return median(self.round_trips_ns) if self.round_trips_ns else None


@dataclass(frozen=True, slots=True)
class Drift:
    """How much faster the peer's monotonic clock runs than ours."""

    parts_per_million: float
    uncertainty: float
    """In the same unit: what the round trips leave open."""


@dataclass(frozen=True, slots=True)
class PeerResult:
    """What an examination has measured."""

    peer: str
    is_authenticated: bool
    told: tuple[ToldFinding, ...]
    """The peer about itself."""
    paths: tuple[PathResult, ...]
    drift: Drift | None
    own_clock: ClockChange
    peer_clock: ClockChange
    datagrams: int
    """Sent by this host."""
    ignored_datagrams: int
    """At both ends, without the token."""
    seconds: float


@contextmanager
def connected(
    remote: Endpoint,
    peer: str,
    security: Security,
    channel_settings: ChannelSettings,
    *,
    source: str | None = None,
) -> Iterator[ControlChannel]:
    """A control channel to the peer, not open yet; raises UserInputError or PeerUnreachableError."""
    channel = ControlChannel.connect(
        remote, peer, security, channel_settings, time.monotonic_ns(), source=source
    )
    try:
        yield channel
    finally:
        channel.close()


def examine(channel: ControlChannel, settings: DoctorSettings) -> PeerResult:
    """Ask everything; takes some seconds, and some thousand datagrams each way.

    Raises AgentError where the peer cannot be reached, refuses, or is no doctor, UserInputError for addresses
    that this host does not have, MachineError for a port that is taken.
    """
    with (
        opened_ports(settings) as ports,
        Conversation(channel, ports, settings, is_examiner=True) as conversation,
    ):
        conversation.greet()
        return _Examination(conversation, settings).run(is_authenticated=channel.is_authenticated)


class _Examination:
    def __init__(self, conversation: Conversation, settings: DoctorSettings) -> None:
        self._conversation, self._settings = conversation, settings
        self._run_number = 0
        self._paths = tuple(
            PathResult(number, local.address, remote.address, local.header_bytes)
            for number, (local, remote) in enumerate(
                zip(settings.paths, conversation.peer.paths, strict=True)
            )
        )
        self._all = tuple(range(len(self._paths)))

    def run(self, *, is_authenticated: bool) -> PeerResult:
        began = time.monotonic()
        clock = ClockWatch()
        told = self._conversation.hear(Findings).findings
        before = self._ask()
        for is_outgoing in (True, False):
            self._try_code_points(is_outgoing)
            self._search_limits(is_outgoing)
            self._measure_loss(is_outgoing)
        after = self._ask()
        self._conversation.say(Finish())
        finished = self._conversation.hear(Finished)
        return PeerResult(
            self._conversation.peer_name,
            is_authenticated,
            told,
            self._paths,
            drift_between(before, after),
            clock.change(),
            ClockChange(finished.elapsed_ns, finished.clock_change_ns),
            self._conversation.sent_datagrams,
            self._conversation.ignored_datagrams + finished.ignored_datagrams,
            time.monotonic() - began,
        )

    def _ask(self) -> Sequence[RoundTrip]:
        """Round trips of every path."""
        byte = int(TrafficClassByte(self._settings.dscp[0], Ecn.ECT_0))
        first = len(self._conversation.round_trips)
        for run in self._runs(self._all, (byte,), (LEAST_PAYLOAD_BYTES,), QUESTIONS, is_echoed=True):
            self._send(run)
        found = self._conversation.round_trips[first:]
        for path in self._paths:
            path.questions += QUESTIONS
            path.round_trips_ns += [trip.duration_ns for trip in found if trip.path == path.number]
        return found

    def _try_code_points(self, is_outgoing: bool) -> None:
        traffic = tuple(int(TrafficClassByte(dscp, ecn)) for dscp in self._settings.dscp for ecn in Ecn)
        sizes = tuple(sorted({LEAST_PAYLOAD_BYTES, max(LEAST_PAYLOAD_BYTES, self._settings.payload_bytes)}))
        if len(self._paths) > MANY_PATHS:
            sizes = sizes[:1]
        for run in self._runs(self._all, traffic, sizes, 1):
            for path, _, seen in self._exchange(run, is_outgoing):
                direction = self._direction(path, is_outgoing)
                if not direction.is_withheld:
                    # A size that the kernel refuses tells nothing about code points: judged is what arrived.
                    direction.sent.update({byte: len(sizes) for byte in traffic})
                for byte, received, count in seen.traffic_bytes:
                    direction.received[byte, received] += count
        self._try_again(is_outgoing, CODE_POINT_DATAGRAMS - len(sizes))

    def _try_again(self, is_outgoing: bool, copies: int) -> None:
        """Short datagrams of bytes of which nothing has come, while others of their DSCP have: bad luck?"""
        silent: dict[int, set[int]] = {}
        for path in self._living(is_outgoing):
            direction = self._direction(path, is_outgoing)
            came = {byte for byte, _ in direction.received}
            living = {byte >> 2 for byte in came}
            if lost := {byte for byte in direction.sent if byte not in came and byte >> 2 in living}:
                silent[path] = lost
        if not silent:
            return
        traffic = tuple(sorted(set[int]().union(*silent.values())))
        for run in self._runs(tuple(silent), traffic, (LEAST_PAYLOAD_BYTES,), copies):
            for path, _, seen in self._exchange(run, is_outgoing):
                direction = self._direction(path, is_outgoing)
                direction.sent.update(dict.fromkeys(traffic, copies))
                for byte, received, count in seen.traffic_bytes:
                    direction.received[byte, received] += count

    def _search_limits(self, is_outgoing: bool) -> None:
        """The longest payload that arrives, on each living path: all sizes between two, again and again."""
        brackets = {}
        for path in self._living(is_outgoing):
            result = self._paths[path]
            mtu = self._mtu(path, is_outgoing)
            wanted = max(MAXIMUM_MTU_BYTES, self._settings.payload_bytes + result.header_bytes)
            longest = min(min(mtu, wanted) - result.header_bytes, UDP_MAXIMUM_PAYLOAD_BYTES)
            brackets[path] = (LEAST_PAYLOAD_BYTES, max(LEAST_PAYLOAD_BYTES, longest) + 1)
        bytes_of = {path: self._probe_byte(path, is_outgoing) for path in brackets}
        while open_brackets := {path: pair for path, pair in brackets.items() if pair[1] - pair[0] > 1}:
            for pair, byte in sorted({(pair, bytes_of[path]) for path, pair in open_brackets.items()}):
                paths = tuple(
                    path for path, entry in open_brackets.items() if entry == pair and bytes_of[path] == byte
                )
                sizes = sizes_between(*pair)
                for run in self._runs(paths, (byte,), sizes, SEARCH_COPIES):
                    for path, _, seen in self._exchange(run, is_outgoing):
                        brackets[path] = narrowed(pair, sizes, {size for size, count in seen.sizes if count})
        for path, (longest, _) in brackets.items():
            self._direction(path, is_outgoing).payload_limit_bytes = longest

    def _measure_loss(self, is_outgoing: bool) -> None:
        alike: dict[tuple[int, int], list[int]] = {}
        for path in self._living(is_outgoing):
            direction = self._direction(path, is_outgoing)
            size = max(LEAST_PAYLOAD_BYTES, min(self._settings.payload_bytes, direction.payload_limit_bytes))
            direction.loss_payload_bytes = size
            alike.setdefault((size, self._probe_byte(path, is_outgoing)), []).append(path)
        for (size, byte), paths in alike.items():
            for run in self._runs(paths, (byte,), (size,), LOSS_DATAGRAMS):
                for path, sent, seen in self._exchange(run, is_outgoing):
                    direction = self._direction(path, is_outgoing)
                    direction.loss_sent += sent.sent
                    direction.loss_arrived += seen.arrived

    def _probe_byte(self, path: int, is_outgoing: bool) -> int:
        """Of important packets of the first class, dropped last where the plan runs.

        Where none of them arrives, of what does: else their fault would look like the length's, or loss.
        """
        usual = int(TrafficClassByte(self._settings.dscp[0], Ecn.ECT_0))
        came = {byte for byte, _ in self._direction(path, is_outgoing).received}
        return usual if usual in came else min(came, key=lambda byte: (byte >> 2 != usual >> 2, byte))

    def _runs(
        self,
        paths: Sequence[int],
        traffic_bytes: tuple[int, ...],
        payload_bytes: tuple[int, ...],
        copies: int,
        *,
        is_echoed: bool = False,
    ) -> Iterator[Run]:
        """One, or several of fewer paths each, so that none is longer than the peer answers."""
        each = copies * len(traffic_bytes) * len(payload_bytes)
        each_bytes = copies * len(traffic_bytes) * sum(payload_bytes)
        together = max(1, min(MAXIMUM_RUN_DATAGRAMS // each, MAXIMUM_RUN_BYTES // each_bytes))
        for first in range(0, len(paths), together):
            self._run_number += 1
            yield Run(
                number=self._run_number,
                paths=tuple(paths[first : first + together]),
                traffic_bytes=traffic_bytes,
                payload_bytes=payload_bytes,
                copies=copies,
                is_echoed=is_echoed,
            )

    def _send(self, run: Run) -> tuple[Sequence[PathSent], Sequence[PathSeen]]:
        self._conversation.say(Expect(run=run))
        self._conversation.hear(Ready)
        sent = self._conversation.transmit(run)
        if run.is_echoed:
            self._conversation.await_answers()
        self._conversation.say(sent)
        return sent.paths, self._conversation.hear_seen(run).paths

    def _receive(self, run: Run) -> tuple[Sequence[PathSent], Sequence[PathSeen]]:
        self._conversation.expect(run)
        self._conversation.say(Transmit(run=run))
        sent = self._conversation.hear_sent(run)
        return sent.paths, self._conversation.collect(sent).paths

    def _exchange(self, run: Run, is_outgoing: bool) -> Iterator[tuple[int, PathSent, PathSeen]]:
        """Both ends' reports of each path; what every run tells is kept here."""
        sent, seen = (self._send if is_outgoing else self._receive)(run)
        for left, came in zip(sent, seen, strict=True):
            direction = self._direction(left.path, is_outgoing)
            direction.doubled += came.doubled
            direction.misdirected += came.misdirected
            direction.dropped_by_host += came.dropped_by_host
            direction.is_withheld = direction.is_withheld or left.is_withheld
            _note_refused(direction, left)
            yield left.path, left, came

    def _direction(self, path: int, is_outgoing: bool) -> Direction:
        result = self._paths[path]
        return result.outgoing if is_outgoing else result.incoming

    def _living(self, is_outgoing: bool) -> Iterable[int]:
        return [path for path in self._all if self._direction(path, is_outgoing).is_alive]

    def _mtu(self, path: int, is_outgoing: bool) -> int:
        """Of the sender's interface; its kernel says where it is less."""
        if not is_outgoing:
            return self._conversation.peer.paths[path].mtu_bytes
        return self._conversation.own_paths[path].mtu_bytes


def _note_refused(direction: Direction, sent: PathSent) -> None:
    for entry in sent.refused:
        if entry.error == errno.EMSGSIZE:
            limit = direction.sender_limit_bytes
            direction.sender_limit_bytes = min(entry.payload_bytes, limit or entry.payload_bytes)
        else:
            direction.errors[entry.error] += entry.count


def sizes_between(low: int, high: int) -> tuple[int, ...]:
    """Some sizes above `low` and below `high`, evenly, the longest always among them."""
    count = min(SEARCH_SIZES, high - 1 - low)
    return tuple(sorted({high - 1 - (high - 1 - low) * step // count for step in range(count)}))


def narrowed(bracket: tuple[int, int], tried: Sequence[int], arrived: set[int]) -> tuple[int, int]:
    """(longest that arrived, shortest above it that did not); what is lost below the longest was bad luck."""
    longest = max(arrived, default=bracket[0])
    return longest, min((size for size in tried if size > longest), default=bracket[1])


def drift_between(before: Sequence[RoundTrip], after: Sequence[RoundTrip]) -> Drift | None:
    """From the quickest round trip of each; None where one of them has none."""
    if not before or not after:
        return None
    first, last = (min(trips, key=lambda trip: trip.duration_ns) for trips in (before, after))
    elapsed_ns = last.sent_ns - first.sent_ns
    if elapsed_ns <= 0:
        return None
    # Each offset is off by half of its round trip at most.
    open_ns = (first.duration_ns + last.duration_ns) / 2
    return Drift((last.offset_ns - first.offset_ns) / elapsed_ns * 1e6, open_ns / elapsed_ns * 1e6)
