"""A bare problem at another load, burst size or buffer."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import fsum, isfinite
from typing import Any

from mltswitch.errors import UserInputError
from mltswitch.queueing import (
    Arrivals,
    Batch,
    Incast,
    Poisson,
    Port,
    QueuePrediction,
    QueueThresholds,
    QueueTraffic,
    SimulationSettings,
    Trace,
    kind_of,
    mean_burst_packets,
    predict,
)
from mltswitch.sweep import Cell

Problem = tuple[Port, Sequence[QueueTraffic], Sequence[QueueThresholds]]


def queue_record(entry: QueuePrediction) -> dict[str, Any]:
    """All fields; JSON has no infinity, which is what a delay without service is."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in asdict(entry).items()
    }


def vary(
    problem: Problem,
    *,
    load: float | None = None,
    burst_packets: float | None = None,
    buffer_packets: float | None = None,
) -> Problem:
    """The problem with some of its numbers changed, each None left as it is.

    Args:
        problem: port, traffic and thresholds.
        load: of the whole port; each queue keeps its part of it.
        burst_packets: of every queue.
        buffer_packets: of the port; every S and L changes in proportion. The problem's own buffer is
            `buffer_packets`, or the sum of all L.

    Raises:
        UserInputError: no queue offers a load, or has a length, that could be scaled.
    """
    port, traffic, thresholds = problem
    if load is not None:
        total = fsum(queue.load for queue in traffic)
        if total <= 0:
            raise UserInputError("no queue offers a load that could be scaled", where="load")
        traffic = [replace(queue, load=queue.load * load / total) for queue in traffic]
    if burst_packets is not None:
        traffic = [replace(queue, arrivals=_bursts(queue.arrivals, burst_packets)) for queue in traffic]
    if buffer_packets is not None:
        own = port.buffer_packets or fsum(entry.limit_packets for entry in thresholds)
        if own <= 0:
            raise UserInputError("no queue has a length that could be scaled", where="queues")
        thresholds = [_scaled(entry, buffer_packets / own) for entry in thresholds]
        port = replace(port, buffer_packets=port.buffer_packets and buffer_packets)
    return port, traffic, thresholds


def _bursts(arrivals: Arrivals, burst_packets: float) -> Arrivals:
    match arrivals:
        case Incast():
            return replace(arrivals, burst_packets=int(burst_packets))
        case Batch():
            return replace(arrivals, burst_packets=burst_packets)
        case Trace():
            return Batch(burst_packets, source_rate_ratio=arrivals.source_rate_ratio)
        case Poisson():
            return arrivals if burst_packets == 1 else Batch(burst_packets)


def _scaled(entry: QueueThresholds, factor: float) -> QueueThresholds:
    def times(length: float | None) -> float | None:
        return None if length is None else length * factor

    return replace(
        entry,
        ecn_threshold_packets=times(entry.ecn_threshold_packets),
        limit_packets=entry.limit_packets * factor,
        ecn_maximum_packets=times(entry.ecn_maximum_packets),
    )


@dataclass(frozen=True, slots=True)
class ProblemCells:
    """A sweep's cells (load, burst, buffer, model) of one problem; picklable."""

    problem: Problem
    simulation: SimulationSettings

    def __call__(self, cell: Cell) -> list[dict[str, Any]]:
        """One row for each queue."""
        load, burst, buffer, model = cell
        port, traffic, thresholds = vary(
            self.problem,
            load=None if load is None else float(load),
            burst_packets=None if burst is None else float(burst),
            buffer_packets=None if buffer is None else float(buffer),
        )
        figures = predict(port, traffic, thresholds, str(model), simulation=self.simulation)
        held = port.buffer_packets or fsum(entry.limit_packets for entry in thresholds)
        rows = []
        for number, (offered, limits, figure) in enumerate(zip(traffic, thresholds, figures, strict=True)):
            record = queue_record(figure)
            del record["queue_probabilities"]
            rows.append(
                {
                    "queue": number,
                    "model": str(model),
                    "kind": kind_of(str(model)),
                    "load": fsum(queue.load for queue in traffic),
                    "burst_packets": burst,
                    "buffer_packets": held,
                    "class_load": offered.load,
                    "class_burst_packets": mean_burst_packets(offered.arrivals),
                    "ecn_threshold_packets": limits.ecn_threshold_packets,
                    "limit_packets": limits.limit_packets,
                    **record,
                }
            )
        return rows
