"""An agent's counts as Prometheus names them; the one module that knows its library.

Names follow https://prometheus.io/docs/practices/naming/: base units (bytes, seconds), `_total` for what
never falls. Labels are bounded in number: peers by `snapshot.MAXIMUM_PEERS`, paths by what a HELLO may name.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from mltswitch import __version__
from mltswitch.errors import MachineError
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.spraying.standing import State
from mltswitch.hostagent.telemetry.snapshot import AgentSnapshot, PathCounters, PeerSnapshot
from mltswitch.hostagent.telemetry.transfers import DirectionCounts, TransferCounts
from mltswitch.hostagent.transport.interfaces import Direction
from mltswitch.units import BITS_PER_BYTE

try:
    from prometheus_client import CollectorRegistry, MetricsHandler
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        InfoMetricFamily,
    )
    from prometheus_client.registry import Collector
except ImportError:
    raise MachineError(
        "metrics need the package prometheus_client", hint="`pip install 'mltswitch[agent]'`"
    ) from None

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX: Final = "mltswitch_agent_"

Values = Iterator[tuple[tuple[str, ...], float]]

_PEER: Final = ("peer",)
_PATH: Final = ("peer", "path")
_BY_IMPORTANCE: Final = ("peer", "importance")
_SOCKET: Final = ("port",)
_BUFFER: Final = ("port", "direction")

PEER_COUNTERS: Final[dict[str, tuple[str, Callable[[PeerSnapshot], float]]]] = {
    "resent_packets": ("Data packets sent again.", lambda entry: entry.counters.sent.packets_resent),
    "duplicate_packets": (
        "Data packets that arrived again.",
        lambda entry: entry.counters.received.packets_duplicate,
    ),
    "received_marked_packets": (
        "Data packets that arrived with CE, duplicates included.",
        lambda entry: entry.counters.received.packets_marked,
    ),
    "received_bytes": (
        "Bytes of tensors in the different data packets that arrived.",
        lambda entry: entry.counters.received.payload_bytes,
    ),
    "late_packets": (
        "Data packets of transfers that were not open here: over, or never posted.",
        lambda entry: entry.counters.late_packets,
    ),
    "dropped_datagrams": (
        "Datagrams with the right token that were no packets of the peer's.",
        lambda entry: entry.counters.dropped_datagrams,
    ),
    "refused_packets": (
        "Packets that the kernel of this machine would not send.",
        lambda entry: entry.counters.refused_packets,
    ),
}
PATH_COUNTERS: Final[dict[str, tuple[str, Callable[[PathCounters], float]]]] = {
    "path_sent_packets": ("Packets sent on a path, probes included.", lambda entry: entry.sent_packets),
    "path_sent_bytes": ("The same in bytes, as queues count them.", lambda entry: entry.sent_bytes),
    "path_acknowledged_packets": (
        "Packets that the peer says have arrived on a path.",
        lambda entry: entry.acknowledged_packets,
    ),
    "path_lost_packets": (
        "Packets lost on a path; some of them may have come late.",
        lambda entry: entry.lost_packets,
    ),
    "path_marked_packets": (
        "Packets that the peer says have arrived with CE.",
        lambda entry: entry.marked_packets,
    ),
    "path_left": ("Times that a path was given up as dead or grey.", lambda entry: entry.times_left),
    "path_returned": ("Times that a path was used again.", lambda entry: entry.times_returned),
    "path_received_packets": (
        "Packets that arrived from the peer on a path, probes included.",
        lambda entry: entry.arrived_packets,
    ),
    "path_received_marked_packets": (
        "The same, of those with CE.",
        lambda entry: entry.arrived_marked_packets,
    ),
}


class AgentCollector(Collector):
    """Makes the families of one scrape."""

    def __init__(self, snapshot: Callable[[], AgentSnapshot], transfers: TransferCounts) -> None:
        """`snapshot` may raise AgentError: then the scrape says that the agent is not up, and no more."""
        self._snapshot = snapshot
        self._transfers = transfers
        self._most_lost: dict[tuple[str, int], int] = {}

    def describe(self) -> Iterator["Metric"]:
        """Nothing: names are known by what `collect` makes, and the agent is not asked for them."""
        return iter(())

    def collect(self) -> Iterator["Metric"]:
        """Of now."""
        yield InfoMetricFamily(PREFIX + "build", "The software.", value={"version": __version__})
        yield from _transfer_families(self._transfers.read())
        try:
            snapshot = self._snapshot()
        except AgentError:
            yield GaugeMetricFamily(PREFIX + "up", "Whether the agent answers.", value=0)
            return
        yield GaugeMetricFamily(PREFIX + "up", "Whether the agent answers.", value=1)
        self._never_falling(snapshot)
        yield from _peer_families(snapshot)
        yield from _path_families(snapshot)
        yield from _socket_families(snapshot)

    def _never_falling(self, snapshot: AgentSnapshot) -> None:
        """A packet that comes late is no longer lost, but a counter that falls means a restart to whoever
        reads it."""
        for entry in snapshot.peers:
            for path, counters in entry.counters.paths.items():
                key = entry.peer, path
                most = max(counters.lost_packets, self._most_lost.get(key, 0))
                counters.lost_packets = self._most_lost[key] = most


def handler_type(collector: AgentCollector, timeout_seconds: float) -> type[MetricsHandler]:
    """Answers one request for the collector's families; a client gets so long to ask, and to read."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)

    class Handler(MetricsHandler):
        timeout = timeout_seconds

    Handler.registry = registry
    return Handler


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    labels: tuple[str, ...],
    values: Values,
) -> "Metric":
    family = kind(PREFIX + name, text, labels=labels)
    for place, value in values:
        family.add_metric(place, value)
    return family


_counter: Final = partial(_family, CounterMetricFamily)
_gauge: Final = partial(_family, GaugeMetricFamily)


def _transfer_families(directions: dict[Direction, DirectionCounts]) -> Iterator["Metric"]:
    yield _counter(
        "transfers",
        "Transfers that have ended, since the endpoint was opened.",
        ("direction", "result"),
        (
            ((direction, result), count)
            for direction, counts in directions.items()
            for result, count in counts.results.items()
        ),
    )
    yield _counter(
        "transferred_bytes",
        "Sizes of the tensors that were completed, since the endpoint was opened.",
        ("direction",),
        (((direction,), counts.size_bytes) for direction, counts in directions.items()),
    )
    seconds = HistogramMetricFamily(
        PREFIX + "transfer_duration_seconds",
        "From the post to the completion, of completed transfers.",
        labels=("direction",),
    )
    goodput = HistogramMetricFamily(
        PREFIX + "transfer_goodput_bytes_per_second",
        "Bytes of the tensor that arrived over that time.",
        labels=("direction",),
    )
    for direction, counts in directions.items():
        seconds.add_metric((direction,), counts.seconds.cumulative(), counts.seconds.total)
        goodput.add_metric((direction,), counts.goodput.cumulative(), counts.goodput.total)
    yield seconds
    yield goodput


def _peer_families(snapshot: AgentSnapshot) -> Iterator["Metric"]:
    peers = snapshot.peers
    for name, (text, value) in PEER_COUNTERS.items():
        yield _counter(name, text, _PEER, (((entry.peer,), value(entry)) for entry in peers))
    yield _counter(
        "sent_packets", "Data packets sent, those sent again included.", _BY_IMPORTANCE, _sent(peers)
    )
    yield _counter(
        "lost_packets",
        "Data packets that had not arrived when the peer was asked at the end of a pass.",
        _BY_IMPORTANCE,
        _lost(peers),
    )
    yield _counter(
        "received_packets", "Different data packets that arrived.", _BY_IMPORTANCE, _received(peers)
    )
    states = [(entry.peer, entry.state) for entry in peers]
    yield _gauge(
        "peer_connections",
        "Open connections.",
        _PEER,
        (((peer,), state.connections) for peer, state in states),
    )
    yield _gauge(
        "rate_bytes_per_second",
        "That the rate control allows towards the peer.",
        _PEER,
        (
            ((peer,), state.rate_bps / BITS_PER_BYTE)
            for peer, state in states
            if math.isfinite(state.rate_bps)
        ),
    )
    yield _gauge(
        "in_flight_bytes",
        "Sent and not acknowledged.",
        _PEER,
        (((peer,), state.in_flight_bytes) for peer, state in states),
    )
    yield _gauge(
        "window_bytes",
        "That may be on their way to the peer.",
        _PEER,
        (((peer,), state.window_bytes) for peer, state in states),
    )
    yield _gauge("open_transfers", "Posted and not over.", ("peer", "direction"), _open(peers))


def _sent(peers: tuple[PeerSnapshot, ...]) -> Values:
    for entry in peers:
        sent = entry.counters.sent
        yield (entry.peer, "important"), sent.packets_important
        yield (entry.peer, "unimportant"), sent.packets - sent.packets_important


def _lost(peers: tuple[PeerSnapshot, ...]) -> Values:
    for entry in peers:
        sent = entry.counters.sent
        yield (entry.peer, "important"), sent.important_lost
        yield (entry.peer, "unimportant"), sent.packets_lost - sent.important_lost


def _received(peers: tuple[PeerSnapshot, ...]) -> Values:
    for entry in peers:
        received = entry.counters.received
        different = received.packets - received.packets_duplicate
        yield (entry.peer, "important"), received.important_packets
        yield (entry.peer, "unimportant"), different - received.important_packets


def _open(peers: tuple[PeerSnapshot, ...]) -> Values:
    for entry in peers:
        yield (entry.peer, Direction.SEND), entry.state.open_sends
        yield (entry.peer, Direction.RECEIVE), entry.state.open_receives


def _path_families(snapshot: AgentSnapshot) -> Iterator["Metric"]:
    counted = [
        ((entry.peer, str(path)), counters)
        for entry in snapshot.peers
        for path, counters in sorted(entry.counters.paths.items())
    ]
    for name, (text, value) in PATH_COUNTERS.items():
        yield _counter(name, text, _PATH, ((place, value(counters)) for place, counters in counted))
    known = [((entry.peer, str(path.path)), path) for entry in snapshot.peers for path in entry.state.paths]
    yield _gauge(
        "path_state",
        "1 for the state that the path is in.",
        (*_PATH, "state"),
        (((*place, state), float(condition.state is state)) for place, condition in known for state in State),
    )
    for name, text, values in (
        (
            "path_round_trip_seconds",
            "Smoothed round trip.",
            ((place, path.round_trip_seconds) for place, path in known),
        ),
        (
            "path_least_round_trip_seconds",
            "Least round trip since the path was last given up.",
            ((place, path.least_round_trip_seconds) for place, path in known),
        ),
        (
            "path_loss_ratio",
            "Share of the last blocks of packets that was lost.",
            ((place, path.loss_share) for place, path in known),
        ),
    ):
        yield _gauge(name, text, _PATH, ((place, value) for place, value in values if value is not None))


def _socket_families(snapshot: AgentSnapshot) -> Iterator["Metric"]:
    sockets = [((str(entry.port),), entry) for entry in snapshot.sockets]
    yield _counter(
        "unknown_datagrams",
        "Datagrams with a token that is none of ours.",
        (),
        iter([((), snapshot.unknown_datagrams)]),
    )
    yield _counter(
        "kernel_dropped_datagrams",
        "Datagrams that the kernel dropped, most of all because the receive buffer was full.",
        _SOCKET,
        ((place, entry.kernel_drops) for place, entry in sockets),
    )
    yield _counter(
        "malformed_datagrams",
        "Datagrams that were cut short, or too short for a header.",
        _SOCKET,
        ((place, entry.truncated + entry.short) for place, entry in sockets),
    )
    yield _counter(
        "receive_errors",
        "Calls that the kernel answered with an error of the network.",
        _SOCKET,
        ((place, entry.errors) for place, entry in sockets),
    )
    for name, text, is_granted in (
        ("socket_buffer_bytes", "Buffer that the kernel grants.", True),
        ("socket_buffer_wanted_bytes", "Buffer that was asked for.", False),
    ):
        yield _gauge(
            name,
            text,
            _BUFFER,
            (
                ((*place, direction), size.granted_bytes if is_granted else size.wanted_bytes)
                for place, entry in sockets
                for direction, size in (
                    (Direction.RECEIVE, entry.receive_buffer),
                    (Direction.SEND, entry.send_buffer),
                )
            ),
        )
