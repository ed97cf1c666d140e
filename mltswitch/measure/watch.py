"""What queues hold, send, mark and drop, read again and again over sessions that stay open."""

import itertools
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mltswitch.deploy.comparison import reached
from mltswitch.deploy.fleet import Fleet
from mltswitch.deploy.prepare import Job, prepare
from mltswitch.deploy.session import Session, explained, place
from mltswitch.errors import DeviceError, MltswitchError, UnsupportedPlanError
from mltswitch.inventory import Inventory
from mltswitch.measure.counters import read_counters, silence, tells_traffic
from mltswitch.plan import Plan
from mltswitch.targets.base import EgressCounters, QueueCounters

PATIENCE_SECONDS: Final = 15.0
"""Seconds after which a silent device is shown as late; no reading waits for it again until it answers."""
_RISING: Final = ("sent_bytes", "dropped_packets", "ce_marked_packets", "admitted_packets", "sent_packets")
"""Counters that fall only where they begin anew."""
_ALONE: Final = Fleet()


@dataclass(frozen=True, slots=True)
class QueueReading:
    """One queue of one port; rates are means since the last reading, and None where nothing tells them."""

    port: str
    queue: int
    """Number of the hardware queue."""
    traffic_class: str | None
    """The plan's traffic class in that queue; None: no class."""
    counters: EgressCounters
    sent_bps: float | None = None
    dropped_per_second: float | None = None
    ce_marked_per_second: float | None = None
    admitted_per_second: float | None = None
    """Packets a second let into the queue, where nothing tells what leaves it."""
    restarted: bool = False
    """Whether a counter fell: the device restarted, its queue was rebuilt, or counters were cleared."""


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """The reading of one device at one time."""

    device: str
    error: str = ""
    """Why there is no answer, in one line; then `queues` is empty. Empty: there is one."""
    queues: tuple[QueueReading, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of all devices at the same time."""

    at: str
    """When the devices were asked, in UTC, as ISO 8601 writes it."""
    devices: tuple[DeviceReading, ...]


class _Watched:
    """One device, its session, and what it told last; each reading is a thread of its own."""

    def __init__(self, job: Job, fleet: Fleet) -> None:
        self._job = job
        self._fleet = fleet
        self._stack = ExitStack()
        self._session: Session | None = None
        self._before: tuple[float, QueueCounters] | None = None
        self._thread = threading.Thread()
        self._is_late = False
        self._latest = DeviceReading(job.device.name)

    def begin(self) -> None:
        """Ask the device, unless it still owes an answer."""
        if not self._thread.is_alive():
            self._is_late = False
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()

    def reading(self, deadline: float) -> DeviceReading:
        """The answer; an error where there is none by then (monotonic clock)."""
        self._thread.join(0.0 if self._is_late else max(0.0, deadline - time.monotonic()))
        self._is_late = self._thread.is_alive()
        if not self._is_late:
            return self._latest
        late = DeviceError("has not answered yet", where=place(self._job.device))
        return DeviceReading(self._job.device.name, str(late))

    def close(self) -> None:
        """Hang up at once; whoever waits for the device fails."""
        if self._session is not None:
            with suppress(MltswitchError, OSError):
                self._session.hang_up()

    def _read(self) -> None:
        job = self._job
        try:
            if self._session is None:
                self._session = self._stack.enter_context(reached(self._fleet.session, job))
            counted = read_counters(self._session, job)
        except Exception as error:  # noqa: BLE001 (a bug of ours concerns this device alone)
            self._latest = DeviceReading(job.device.name, explained(job.device, error))
            self._session = None
            with suppress(Exception):  # the session is broken, and so may its end be
                self._stack.close()
            return
        now, before = time.monotonic(), self._before
        self._before = now, counted
        names = {queue: name for name, queue in job.fitted.class_queues.items()}
        self._latest = DeviceReading(
            job.device.name,
            queues=tuple(
                _queue_reading(
                    spot,
                    names.get(spot[1]),
                    found,
                    before[1].get(spot) if before else None,
                    now - before[0] if before else 0.0,
                )
                for spot, found in counted.items()
            ),
        )


def _queue_reading(
    spot: tuple[str, int],
    name: str | None,
    now: EgressCounters,
    before: EgressCounters | None,
    seconds: float,
) -> QueueReading:
    pairs = ((getattr(before, field, None), getattr(now, field)) for field in _RISING)
    risen = [None if None in pair else pair[1] - pair[0] for pair in pairs]
    if any(rise is not None and rise < 0 for rise in risen):
        return QueueReading(*spot, name, now, restarted=True)
    sent, dropped, marked, admitted, _ = (None if rise is None else rise / seconds for rise in risen)
    return QueueReading(*spot, name, now, None if sent is None else 8 * sent, dropped, marked, admitted)


def watch(
    plan: Plan,
    inventory: Inventory,
    *,
    limit: str | None = None,
    interval_seconds: float = 2.0,
    count: int | None = None,
    fleet: Fleet = _ALONE,
) -> tuple[tuple[str, ...], Generator[Reading, None, None]]:
    """(lines on the platforms that are left out and why, generator of readings).

    Each device has one session over the whole time, opened again at the next reading after it broke. Nothing
    is sent that changes a device. Raises what `prepare` raises, and UnsupportedPlanError where no device is
    left; a device's failure is told in its reading.
    """
    jobs, _ = prepare(plan, inventory, limit)
    told = [job for job in jobs if tells_traffic(job.target)]
    left_out = tuple(dict.fromkeys(silence(job.target) for job in jobs if job not in told))
    if not told:
        raise UnsupportedPlanError("; ".join(left_out) or "no device is selected", where="--limit")
    return left_out, _readings([_Watched(job, fleet) for job in told], interval_seconds, count)


def _readings(
    devices: list[_Watched], interval_seconds: float, count: int | None
) -> Generator[Reading, None, None]:
    try:
        for number in itertools.count(1):
            started = time.monotonic()
            for device in devices:
                device.begin()
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            yield Reading(at, tuple(device.reading(started + PATIENCE_SECONDS) for device in devices))
            if number == count:
                return
            time.sleep(max(0.0, started + interval_seconds - time.monotonic()))
    finally:
        for device in devices:
            device.close()
