"""An agent's counts without an agent."""

from dataclasses import replace

from mltswitch.hostagent.telemetry.events import LinkRate, LinksMeasured, Observer, TransferEnded
from mltswitch.hostagent.telemetry.snapshot import COMPLETED, AgentSnapshot, EndedTransfers
from mltswitch.hostagent.transport.records import (
    ConnectionSnapshot,
    Direction,
    PathSnapshot,
    TransferStatistics,
)

SECOND = 10**9
STATISTICS = TransferStatistics(
    size_bytes=1_000_000,
    packets=1000,
    packets_sent=1100,
    packets_resent=100,
    bytes_sent=1_100_000,
    packets_received=900,
    bytes_received=900_000,
    packets_marked=7,
    packets_needless=4,
    ending="percentage",
    lt_seconds=1.5,
    deadline_seconds=1.53,
    posted_ns=SECOND,
    ended_ns=3 * SECOND,
)
PATH = PathSnapshot(
    path=0,
    state="gray",
    weight=1,
    sent_packets=1000,
    sent_bytes=1_500_000,
    acknowledged_packets=990,
    lost_packets=10,
    marked_packets=5,
    received_packets=20,
    received_marked=2,
    round_trip_seconds=0.0002,
    least_round_trip_seconds=0.0001,
)
CONNECTION = ConnectionSnapshot(
    transport="ltp",
    rate_bps=8e9,
    window_bytes=65536,
    in_flight_bytes=3000,
    round_trip_seconds=0.0002,
    base_round_trip_seconds=0.0001,
    bottleneck_bps=9e9,
    needless_packets=6,
    forged_datagrams=3,
    paths=(PATH,),
)


def learned(
    bps: float | None = 1e6, *, version: int = 9, at_ns: int = SECOND, source: str = "a"
) -> LinksMeasured:
    """Of the link from a to b: its target has measured a rate when the event is told, or nothing yet."""
    link = LinkRate(
        source=source, target="b", said_bps=2e6, measured_bps=bps, measured_ns=0 if bps is None else at_ns
    )
    return LinksMeasured(version=version, refused=3, problem="", links=(link,), time_ns=at_ns)


def ended(result: str = "completed", direction: str = "send") -> TransferEnded:
    return TransferEnded(
        peer="b",
        channel="default",
        tensor=1,
        round_number=2,
        direction=direction,
        result=result,
        reason="",
        statistics=STATISTICS if result == COMPLETED else replace(STATISTICS, ending=None),
    )


class Example:
    """What `serve_metrics` needs of an agent."""

    def __init__(self) -> None:
        self.counts = EndedTransfers()
        self.observers: list[Observer] = []
        self.error: Exception | None = None

    def observe(self, observer: Observer) -> None:
        self.observers.append(observer)

    def stop_observing(self, observer: Observer) -> None:
        self.observers.remove(observer)

    def tell(self, event: TransferEnded) -> None:
        self.counts.count(Direction(event.direction), event.result, event.statistics)
        for observer in self.observers:
            observer.observe(event)

    def snapshot(self) -> AgentSnapshot:
        if self.error is not None:
            raise self.error
        return AgentSnapshot(
            name="a",
            started_ns=SECOND,
            peers={"b": {"default": CONNECTION, "bulk": ConnectionSnapshot(transport="tcp")}},
            ended=self.counts.read(),
            data_plane={"unknown_token": 4},
        )
