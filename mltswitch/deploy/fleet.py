"""Doing one thing on many devices at once, with nornir; one device's failure stops no other."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from mltswitch.deploy.comparison import report
from mltswitch.deploy.connector import connect
from mltswitch.deploy.prepare import Job
from mltswitch.deploy.results import DeviceReport, Status
from mltswitch.deploy.session import Connector, Session, explained
from mltswitch.deploy.ssh import bounded
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.inventory import Device
from mltswitch.targets import Target

DEFAULT_CONCURRENCY: Final = 20
MAXIMUM_CONCURRENCY: Final = 256
"""The most connections at once; each costs a thread, and the jump host's files are limited."""

_TICK_SECONDS: Final = 0.05

Work = Callable[[Job], DeviceReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The settings for work on many devices: how many at once, time limits, and who is told of progress."""

    concurrency: int = DEFAULT_CONCURRENCY
    """How many devices are worked on at the same time."""
    progress: Callable[[DeviceReport], None] | None = None
    """Called with the report of each device that has ended, never twice at once; None: nobody is told."""
    connector: Connector = connect
    device_seconds: float | None = None
    """Time limit in seconds for one connection, after which a device has failed; None: no limit."""
    deadline: float | None = None
    """When, on the monotonic clock, work on further devices stops being started; None: never."""
    interrupted: threading.Event = field(default_factory=threading.Event)
    """Set to stop: work on no further device begins, and what has begun is finished."""

    @property
    def is_late(self) -> bool:
        """Whether no further device is begun: the deadline has passed, or somebody has interrupted."""
        return self.interrupted.is_set() or (self.deadline is not None and time.monotonic() > self.deadline)

    @property
    def unhurried(self) -> "Fleet":
        """The fleet without deadline, interruption and progress, for what must be done on every device."""
        return replace(self, progress=None, deadline=None, interrupted=threading.Event())

    @contextmanager
    def session(self, device: Device, target: Target) -> Iterator[Session]:
        """An open session, which is closed when `device_seconds` have passed; raises DeviceError."""
        with self.connector(device, target) as session:
            if self.device_seconds is None:
                yield session
                return
            late = DeviceError(f"takes longer than {self.device_seconds:g} s")
            with bounded(self.device_seconds, session.hang_up, late):
                yield session

    def run(self, jobs: Sequence[Job], work: Work, wave: int = 0) -> tuple[DeviceReport, ...]:
        """Do the work on each device, several at once, and return a report per job, in order.

        A KeyboardInterrupt lets devices finish that are being worked on, and starts no other.
        """
        from nornir.core import Nornir
        from nornir.core.inventory import Host, Hosts, Inventory
        from nornir.core.task import Result, Task
        from nornir.plugins.runners import ThreadedRunner

        if not 1 <= self.concurrency <= MAXIMUM_CONCURRENCY:
            raise UserInputError(
                f"{self.concurrency} devices at once", expected=f"1 to {MAXIMUM_CONCURRENCY}"
            )
        # nornir prints what its inventory holds; so it gets names only, and credentials stay in our devices.
        hosts = Hosts({job.device.name: Host(job.device.name) for job in jobs})
        by_name = {job.device.name: job for job in jobs}
        reports: dict[str, DeviceReport] = {}
        is_over = threading.Event()
        busy: set[str] = set()
        reporting = threading.Lock()

        def task(task: Task) -> Result:
            name = task.host.name
            busy.add(name)  # before the look at `is_over`, which is set before the look at `busy`
            try:
                if is_over.is_set():
                    return Result(host=task.host)
                report = reports[name] = replace(self._carry_out(work, by_name[name]), wave=wave)
            finally:
                busy.discard(name)
            if self.progress is not None:
                with reporting:
                    self.progress(report)
            return Result(host=task.host)

        nornir = Nornir(inventory=Inventory(hosts), runner=ThreadedRunner(num_workers=self.concurrency))
        try:
            nornir.run(task)
        except KeyboardInterrupt:
            is_over.set()
            while busy:  # whoever holds the devices' lock must not leave while one of them is worked on
                time.sleep(_TICK_SECONDS)
            raise
        return tuple(reports[job.device.name] for job in jobs)

    def _carry_out(self, work: Work, job: Job) -> DeviceReport:
        started = time.monotonic()
        try:
            self._check_time()
            return work(job)
        except Exception as error:  # noqa: BLE001 (a bug of ours concerns this device alone)
            return report(job, Status.FAILED, started, error=explained(job.device, error))

    def _check_time(self) -> None:
        if self.is_late:
            why = "it was interrupted" if self.interrupted.is_set() else "the deadline has passed"
            hint = "`mltswitch resume` goes on with a push; any other command is given again"
            raise DeviceError(f"is not begun: {why}", hint=hint)
