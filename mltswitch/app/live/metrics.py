"""The counters of the watched queues for Prometheus."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from mltswitch.hostagent.telemetry.metrics import metric_family
from mltswitch.measure.watch import Reading
from mltswitch.plan import Plan

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX: Final = "mltswitch_switch_"
COUNTERS: Final = {
    "queue_depth_bytes": ("depth_bytes", "Waiting in the queue when it was read."),
    "queue_sent_bytes_total": ("sent_bytes", "Sent from the queue."),
    "queue_sent_packets_total": ("sent_packets", "Packets sent from the queue."),
    "queue_admitted_packets_total": (
        "admitted_packets",
        "Packets let into the queue, where nothing tells what leaves it.",
    ),
    "queue_dropped_packets_total": ("dropped_packets", "Packets dropped, at the threshold and at the limit."),
    "queue_threshold_dropped_packets_total": (
        "dropped_at_threshold_packets",
        "Unimportant packets dropped above the threshold, where the device tells them apart.",
    ),
    "queue_limit_dropped_packets_total": (
        "dropped_at_limit_packets",
        "Packets of any importance dropped at the limit, where the device tells them apart.",
    ),
    "queue_marked_packets_total": ("ce_marked_packets", "Packets marked CE."),
}
"""Metric → field of EgressCounters, meaning."""
PLANNED: Final = {
    "queue_threshold_bytes": (
        "ecn_threshold_bytes",
        "The plan's threshold, above which important packets are marked and others dropped.",
    ),
    "queue_limit_bytes": ("limit_bytes", "The plan's limit, at which everything is dropped."),
}
"""Metric → field of QueueReading, meaning."""


class QueueCollector:
    """Makes the families of one scrape from the newest reading; nothing before the first."""

    def __init__(self, plan: Plan) -> None:
        from prometheus_client import CollectorRegistry

        self._rates = [
            ({"switch": switch.name, "port": port.name, "peer": port.peer}, float(port.rate_bps))
            for switch in plan.topology.switches
            for port in switch.ports
        ]
        self._reading: Reading | None = None
        self.registry: Final = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def show(self, reading: Reading) -> None:
        """What scrapes find from now on."""
        self._reading = reading

    def collect(self) -> "Iterator[Metric]":
        """A device without an answer has `up` 0, and no queues."""
        reading = self._reading
        if reading is None:
            return
        up = [
            ({"device": each.device, "switch": each.switch}, float(not each.error))
            for each in reading.devices
        ]
        yield _family("up", "1 for a device that has answered, 0 for one that has not.", up)
        at = datetime.fromisoformat(reading.at).timestamp()
        yield _family(
            "reading_timestamp_seconds", "When the devices were asked last, since 1970.", [({}, at)]
        )
        watched = {each.switch for each in reading.devices}
        rates = [(labels, rate) for labels, rate in self._rates if labels["switch"] in watched]
        yield _family("port_rate_bits_per_second", "Of the port, as the plan has it.", rates)
        queues = [
            (
                {
                    "device": device.device,
                    "switch": device.switch,
                    "port": queue.port,
                    "queue": str(queue.queue),
                    "class": queue.traffic_class or "",
                },
                queue,
            )
            for device in reading.devices
            for queue in device.queues
        ]
        for name, (field, text) in COUNTERS.items():
            yield _family(name, text, [(labels, getattr(each.counters, field)) for labels, each in queues])
        for name, (field, text) in PLANNED.items():
            yield _family(name, text, [(labels, getattr(each, field)) for labels, each in queues])


def _family(name: str, text: str, samples: Iterable[tuple[dict[str, str], float | None]]) -> "Metric":
    return metric_family(name, text, samples, PREFIX)
