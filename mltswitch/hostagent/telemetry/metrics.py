"""An agent's counters as Prometheus metrics, served by prometheus_client's own server.

Reading them changes nothing, but it tells who talks to whom, and how much: the endpoint is on loopback unless
its user says otherwise.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from mltswitch.errors import MachineError, UserInputError, printable
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.telemetry.events import (
    AgentEvent,
    GradientsLeftOut,
    LinkRate,
    LinksMeasured,
    TransferEnded,
)
from mltswitch.hostagent.telemetry.snapshot import COMPLETED, AgentSnapshot
from mltswitch.hostagent.transport.records import Direction
from mltswitch.units import NANOSECONDS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from mltswitch.hostagent.agent import Agent

PREFIX: Final = "mltswitch_agent_"
SECONDS_BUCKETS: Final = [step * 10.0**power for power in range(-4, 2) for step in (1, 2.5, 5)]
STATES: Final = ("used", "dead", "gray")

ENDED: Final = {
    "transferred_bytes_total": ("size_bytes", "Sizes of the tensors that completed."),
    "resent_packets_total": ("packets_resent", "Data packets that were sent again, of ended transfers."),
    "needlessly_resent_packets_total": (
        "packets_needless",
        "Data packets that were sent again and had only been late, of ended transfers.",
    ),
    "duplicate_packets_total": ("packets_duplicate", "Data packets that arrived again, of ended transfers."),
    "marked_packets_total": ("packets_marked", "Data packets that arrived with CE, of ended transfers."),
}
"""Metrics of ended transfers: name → field of TransferCounts, and help text."""
CONNECTION: Final = {
    "rate_bits_per_second": ("rate_bps", "That rate control allows towards the peer."),
    "window_bytes": ("window_bytes", "That may be on their way to the peer."),
    "in_flight_bytes": ("in_flight_bytes", "Sent and not acknowledged."),
    "round_trip_seconds": ("round_trip_seconds", "Smoothed round trip."),
    "base_round_trip_seconds": ("base_round_trip_seconds", "Round trip of an empty network (RTprop)."),
    "bottleneck_bits_per_second": ("bottleneck_bps", "Rate of the bottleneck (BtlBw), as `bbr` finds it."),
    "needless_packets_total": ("needless_packets", "Packets sent again that had only been late."),
    "open_transfers": ("open_transfers", "Posted and not over."),
    "forged_datagrams_total": ("forged_datagrams", "Datagrams with a wrong tag."),
    "stale_datagrams_total": ("stale_datagrams", "Datagrams that are repeated, or too old."),
    "refused_datagrams_total": ("refused_datagrams", "Datagrams of no open transfer, or malformed."),
}
PATH: Final = {
    "path_sent_packets_total": ("sent_packets", "Packets sent, probes included."),
    "path_sent_bytes_total": ("sent_bytes", "The same in bytes."),
    "path_acknowledged_packets_total": ("acknowledged_packets", "Packets that the peer says have arrived."),
    "path_lost_packets_total": ("lost_packets", "Packets that the peer has not seen."),
    "path_marked_packets_total": ("marked_packets", "Packets that the peer says have arrived with CE."),
    "path_received_packets_total": ("received_packets", "Packets of the peer that arrived, probes included."),
    "path_received_marked_packets_total": ("received_marked", "The same, of those with CE."),
    "path_round_trip_seconds": ("round_trip_seconds", "Smoothed round trip."),
    "path_least_round_trip_seconds": ("least_round_trip_seconds", "Least round trip."),
}


class AgentCollector:
    """Prometheus collector that makes one scrape's metric families, and observes for the histogram."""

    def __init__(self, agent: "Agent") -> None:
        from prometheus_client import CollectorRegistry, Histogram

        self._agent = agent
        self._left_out: GradientsLeftOut | None = None
        self._learned: LinksMeasured | None = None
        self._links: dict[tuple[str, str], LinkRate] = {}
        """Those that were measured, by source and target."""
        self.registry: Final = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self._seconds = Histogram(
            f"{PREFIX}transfer_duration_seconds",
            "From the post to the completion, since the endpoint was opened.",
            ["direction"],
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )

    def observe(self, event: AgentEvent) -> None:
        """Take an event of the agent into the histogram."""
        if isinstance(event, GradientsLeftOut):
            self._left_out = event
        if isinstance(event, LinksMeasured):
            self._links |= {
                (link.source, link.target): link for link in event.links if link.measured_bps is not None
            }
            self._learned = event
        if isinstance(event, TransferEnded) and event.result == COMPLETED:
            self._seconds.labels(event.direction).observe(event.statistics.seconds)

    def collect(self) -> "Iterator[Metric]":
        """The metric families as they are now; none once the agent is closed."""
        with suppress(AgentError):
            yield from _families(self._agent.snapshot())
            if (found := self._left_out) is not None:
                shares = [({"by": "network"}, found.network_share), ({"by": "bound"}, found.bound_share)]
                yield metric_family("left_out_share", "Of all ranks' gradients, not in sums, lately.", shares)
                worst = [({"layer": found.layer}, found.layer_share)]
                yield metric_family("left_out_worst_layer_share", "Of the layer that lacks most.", worst)
            if (learned := self._learned) is not None:
                yield from _of_links(learned, [*self._links.values()])


def _of_links(learned: LinksMeasured, links: list[LinkRate]) -> "Iterator[Metric]":
    text = "Number of the routes that are bound; 1: those of the start."
    yield metric_family("routes_version", text, [({}, learned.version)])
    text = "Rates and routes that other ranks told, and that were not believed."
    yield metric_family("routes_refused_total", text, [({}, learned.refused)])
    ends, now_ns = [{"source": link.source, "target": link.target} for link in links], time.monotonic_ns()
    rates = zip(ends, (link.measured_bps for link in links), strict=True)
    yield metric_family("link_measured_bits_per_second", "Rate of a link, as its target measured it.", rates)
    ages = zip(ends, ((now_ns - link.measured_ns) / NANOSECONDS for link in links), strict=True)
    yield metric_family("link_measured_age_seconds", "Since this rank heard of that.", ages)


def metric_family(
    name: str, text: str, samples: Iterable[tuple[dict[str, str], float | None]], prefix: str = PREFIX
) -> "Metric":
    """A counter where the name ends in `_total`, else a gauge; None: not known, and left out."""
    from prometheus_client.core import Metric

    kind = "counter" if name.endswith("_total") else "gauge"
    family = Metric(prefix + name.removesuffix("_total"), text, kind)
    for labels, value in samples:
        if value is not None:
            words = {
                label: printable(word) for label, word in labels.items()
            }  # half a surrogate ends a scrape
            family.add_sample(prefix + name, words, value)
    return family


def _families(snapshot: AgentSnapshot) -> "Iterator[Metric]":
    ended = [({"direction": str(key)}, counts) for key, counts in snapshot.ended.items()]
    connections = [
        ({"peer": peer, "channel": channel}, entry)
        for peer, channels in snapshot.peers.items()
        for channel, entry in channels.items()
    ]
    paths = [(key | {"path": str(path.path)}, path) for key, entry in connections for path in entry.paths]
    results = [(key | {"result": name}, n) for key, counts in ended for name, n in counts.results.items()]
    yield metric_family("transfers_total", "Transfers that have ended.", results)
    endings = snapshot.ended[Direction.RECEIVE].endings
    ended_by = [({"ending": name}, count) for name, count in endings.items()]
    yield metric_family("receives_ended_total", "Receives that completed, by how they ended.", ended_by)
    opened = [(key | {"transport": entry.transport}, 1) for key, entry in connections]
    yield metric_family("peer_connections", "1 for each channel that is open with a peer.", opened)
    for rows, entries in ((ENDED, ended), (CONNECTION, connections), (PATH, paths)):
        for name, (field, text) in rows.items():
            yield metric_family(name, text, [(key, getattr(entry, field)) for key, entry in entries])
    states = [(key | {"state": state}, path.state == state) for key, path in paths for state in STATES]
    yield metric_family("path_state", "1 for the state that the path is in.", states)
    counters = [({"counter": name}, count) for name, count in snapshot.data_plane.items()]
    yield metric_family(
        "data_plane_total", "Counts of the data plane by their names in dataplane.h.", counters
    )


@contextmanager
def serve_metrics(agent: "Agent", endpoint: Endpoint, *, beyond_loopback: bool = False) -> Iterator[Endpoint]:
    """Serve metrics for Prometheus until the block ends; yields the address (port 0: any that is free).

    Raises what `serve_registry` raises.
    """
    require_prometheus("agent")
    collector = AgentCollector(agent)
    with serve_registry(collector.registry, endpoint, beyond_loopback=beyond_loopback) as place:
        agent.observe(collector)
        try:
            yield place
        finally:
            agent.stop_observing(collector)


def require_prometheus(extra: str) -> None:
    """Raise MachineError, naming the extra that has it, without the package prometheus_client."""
    try:
        import prometheus_client  # noqa: F401  (only whether it is there)
    except ImportError:
        hint = f"`pip install 'mltswitch[{extra}]'`"
        raise MachineError("metrics need the package prometheus_client", hint=hint) from None


@contextmanager
def serve_registry(
    registry: "CollectorRegistry", endpoint: Endpoint, *, beyond_loopback: bool = False
) -> Iterator[Endpoint]:
    """Let Prometheus scrape a registry; yields where it is (port 0: any that is free).

    Raises UserInputError for an address beyond loopback without `beyond_loopback`, MachineError where it
    cannot be opened.
    """
    from prometheus_client import start_http_server

    where = f"metrics endpoint {endpoint}"
    if not endpoint.ip.is_loopback and not beyond_loopback:
        raise UserInputError(
            "is open to other machines, without any check of who asks",
            where=where,
            expected="an address of loopback",
            hint="if that is wanted, say so: `--open-metrics`, `beyond_loopback=True` in Python",
        )
    try:
        server, thread = start_http_server(endpoint.port, endpoint.address, registry)
    except OSError as error:
        raise MachineError(f"cannot listen there: {error.strerror}", where=where) from None
    try:
        yield Endpoint(endpoint.address, server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
