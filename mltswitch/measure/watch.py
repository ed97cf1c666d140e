"""What queues hold, send, mark and drop, read again and again over sessions that stay open."""

import itertools
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

from mltswitch.deploy.comparison import reached
from mltswitch.deploy.fleet import Fleet
from mltswitch.deploy.prepare import Job, prepare
from mltswitch.deploy.session import Session, explained, place
from mltswitch.errors import DeviceError, MltswitchError, UnsupportedPlanError, UserInputError
from mltswitch.inventory import Inventory
from mltswitch.measure.counters import read_counters, silence, tells_traffic
from mltswitch.plan import Plan
from mltswitch.targets.base import EgressCounters, QueueCounters, QueuePlace

PATIENCE_SECONDS: Final = 15.0
"""A device that has not answered by then is shown as late, and no reading waits for it again until it has."""
_RISING: Final = (
    "sent_bytes",
    "dropped_packets",
    "ce_marked_packets",
    "admitted_packets",
    "dropped_at_limit_packets",
    "sent_packets",
)
"""Counters that fall only where they begin anew."""
_ALONE: Final = Fleet()


class Level(IntEnum):
    """How bad the state of a queue is."""

    IDLE = 0
    SENDS = 1
    WAITS = 2
    MARKS = 3
    """The queue marks, or more waits in it than its threshold."""
    DROPS = 4
    """The queue drops packets: at its threshold, or nothing tells where."""
    LIMIT = 5
    """The queue is full: it drops whatever comes, or holds as much as its limit."""


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
    """Let into the queue, where nothing tells what leaves it."""
    dropped_at_limit_per_second: float | None = None
    """Those of the drops that the limit made, of whatever importance."""
    restarted: bool = False
    """A counter fell: the device was started anew, its queue was built anew, or somebody cleared it."""
    ecn_threshold_bytes: int | None = None
    """The ECN threshold S as a push of the plan gives it; None: the queue neither marks nor drops before
    its limit.
    """
    limit_bytes: int | None = None
    """Waiting bytes at which the limit drops everything, while others are congested too; None: not known."""

    @property
    def level(self) -> Level:
        """The worst that the reading says of the queue."""
        depth = self.counters.depth_bytes or 0
        if self.dropped_at_limit_per_second or (self.limit_bytes is not None and depth >= self.limit_bytes):
            return Level.LIMIT
        if self.dropped_per_second:
            return Level.DROPS
        if self.ce_marked_per_second or (
            self.ecn_threshold_bytes is not None and depth > self.ecn_threshold_bytes
        ):
            return Level.MARKS
        if depth:
            return Level.WAITS
        return Level.SENDS if self.sent_bps or self.admitted_per_second else Level.IDLE

    @property
    def badness(self) -> tuple[float, ...]:
        """Sorts queues: the level, drops at the limit, all drops, marks, what waits, what is sent."""
        return (
            self.level,
            self.dropped_at_limit_per_second or 0.0,
            self.dropped_per_second or 0.0,
            self.ce_marked_per_second or 0.0,
            self.counters.depth_bytes or 0,
            self.sent_bps or 0.0,
        )


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """The reading of one device at one time."""

    device: str
    error: str = ""
    """Why there is no answer, in one line; then `queues` is empty. Empty: there is one."""
    queues: tuple[QueueReading, ...] = ()
    switch: str = ""
    """Its name in the plan's fabric."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of all devices at the same time."""

    at: str
    """When the devices were asked, in UTC, as ISO 8601 writes it."""
    devices: tuple[DeviceReading, ...]

    def worst_first(self) -> list[tuple[DeviceReading, QueueReading]]:
        """All queues and their devices."""
        rows = [(device, queue) for device in self.devices for queue in device.queues]
        return sorted(rows, key=lambda row: row[1].badness, reverse=True)


class _Watched:
    """One device, its session, and what it told last; each reading is a thread of its own."""

    def __init__(self, plan: Plan, job: Job, fleet: Fleet) -> None:
        self._job = job
        self._queues = _queues_of(plan, job)
        self._fleet = fleet
        self._stack = ExitStack()
        self._session: Session | None = None
        self._before: tuple[float, QueueCounters] | None = None
        self._thread = threading.Thread()
        self._is_late = False
        self._latest = self._without_answer("")

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
        return self._without_answer(str(late))

    def _without_answer(self, error: str) -> DeviceReading:
        return DeviceReading(self._job.device.name, error, switch=self._job.device.switch)

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
            self._latest = self._without_answer(explained(job.device, error))
            self._session = None
            with suppress(Exception):  # the session is broken, and so may its end be
                self._stack.close()
            return
        now, before = time.monotonic(), self._before
        self._before = now, counted
        self._latest = DeviceReading(
            job.device.name,
            switch=job.device.switch,
            queues=tuple(
                _queue_reading(
                    self._queues[spot],
                    found,
                    before[1].get(spot) if before else None,
                    now - before[0] if before else 0.0,
                )
                for spot, found in counted.items()
            ),
        )


def _queues_of(plan: Plan, job: Job) -> dict[QueuePlace, QueueReading]:
    """What of each queue's reading is the same every time: its class and its thresholds on this device."""
    switch = plan.topology.by_name[job.device.switch]
    names = {queue: name for name, queue in job.fitted.class_queues.items()}
    found: dict[QueuePlace, QueueReading] = {}
    for port in job.fitted.state.ports:
        profile = plan.port_profile(switch, switch.port(port.name))
        for each in port.queues:
            try:
                limit_bytes = None if each.is_lossless else profile.length_bytes(each.limit)
            except UserInputError:  # an alpha of a pool whose size nobody has told
                limit_bytes = None
            found[port.name, each.queue] = QueueReading(
                port.name,
                each.queue,
                names.get(each.queue),
                EgressCounters(),
                ecn_threshold_bytes=each.ecn_threshold_bytes,
                limit_bytes=limit_bytes,
            )
    return found


def _queue_reading(
    queue: QueueReading, now: EgressCounters, before: EgressCounters | None, seconds: float
) -> QueueReading:
    pairs = ((getattr(before, field, None), getattr(now, field)) for field in _RISING)
    risen = [None if None in pair else pair[1] - pair[0] for pair in pairs]
    if any(rise is not None and rise < 0 for rise in risen):
        return replace(queue, counters=now, restarted=True)
    sent, dropped, marked, admitted, at_limit, _ = (
        None if rise is None else rise / seconds for rise in risen
    )
    return replace(
        queue,
        counters=now,
        sent_bps=None if sent is None else 8 * sent,
        dropped_per_second=dropped,
        ce_marked_per_second=marked,
        admitted_per_second=admitted,
        dropped_at_limit_per_second=at_limit,
    )


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
        problem = "; ".join(left_out) or "no device is selected"
        raise UnsupportedPlanError(problem, where="--limit" if limit else "")
    return left_out, _readings([_Watched(plan, job, fleet) for job in told], interval_seconds, count)


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
